//! The promises for runs when processes die, stop or compete; `docs/durability.md` lists the promises by
//! number.
//!
//! Every test drives separate processes: this program starts itself again as a `child`, which runs one of the
//! `shapes`. The nodes write into a `ledger` outside the database, and the child dies at the planned fault.

mod child;
mod crashes;
mod damage;
mod ledger;
mod owners;
mod place;
mod power;
mod shapes;
