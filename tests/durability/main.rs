//! What is promised of runs when processes die, stop or compete; `docs/durability.md` has the promises by their numbers.
//!
//! Every test drives processes of its own: this program starts itself again as a `child`, which runs one of the `shapes`
//! with nodes that write into a `ledger` outside of everything, and dies where a fault was planned.

mod child;
mod crashes;
mod damage;
mod formats;
mod ledger;
mod owners;
mod place;
#[path = "../support/postgres.rs"]
mod postgres;
mod power;
mod shapes;
