//! Satisfiability: decides conditions for all states at once, over a finite abstraction.
//!
//! `translate` turns a compiled condition into a formula: questions about terms. `atoms` reduces
//! the terms of several conditions to finitely many values each (the values of an enum, the numbers
//! at and between the constants of a comparison, "another text"). `search` looks for a world, one
//! value a term, in which the conditions have the wanted outcomes.
//!
//! **Example.** The cases of a route are `score >= 8`, `score < 5 && kind == "bug"` and `score < 5`. The term `score` has the values
//! below 5, 5, between 5 and 8, 8 and above 8; the term `kind` has "bug" and another text. That makes 10 worlds. The first case
//! takes those from 8; the others take all below 5. In the worlds with a score from 5 to below 8 no case holds, so the route is
//! reported with such a score as its example.
//!
//! **Soundness and limits.** Every reported result holds for all states. The abstraction can be too coarse (two terms that
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

pub use self::cases::{CaseList, UncoveredState, exclude_each_other};
pub(super) use self::{
    cases::constant_parts,
    translate::{Conditions, Types, translate},
};
