//! Satisfiability: decides conditions for all states at once, over a finite abstraction.
//!
//! `translate` turns a compiled condition into a formula: questions about terms. `atoms` reduces
//! the terms of several conditions to finitely many values each (the values of an enum, the numbers
//! at and between the constants of a comparison, "another text"). `search` looks for a world, one
//! value a term, in which the conditions have the wanted outcomes.
//!
//! Every reported result holds for all states. The abstraction can be too coarse (two terms that
//! depend on each other) and the search too long; then the search finds a world that no state has,
//! or reports nothing, but never a wrong result. A state in which an expression has no value is in
//! no world: the run fails there, and no case is taken.

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
