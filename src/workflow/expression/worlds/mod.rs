//! Conditions decided for every state at once, over a finite abstraction of the states.
//!
//! `translate` makes a formula of a condition when it is compiled: what it asks of which term.
//! `atoms` turns the terms of several conditions into finitely many values each (the values of an
//! enum, the numbers at and between the constants something is compared with, "another text").
//! `search` looks for a world, one value a term, in which conditions turn out as wanted.
//!
//! What is said is true of every state. Where the abstraction is too coarse (two terms that
//! depend on each other) or the search too long, a world is found that no state has, or nothing
//! is said; never the other way round. A state in which an expression has no value is in no
//! world: the run fails there, and no case is taken.

mod atoms;
mod cases;
mod formula;
mod search;
#[cfg(test)]
mod tests;
mod translate;

pub(crate) use self::cases::{CaseList, Uncovered};
pub(super) use self::{
    cases::constant_parts,
    translate::{Conditions, Types, translate},
};
