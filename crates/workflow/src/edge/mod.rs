//! The edges of a workflow: fan-out and fan-in, and the routes behind a node.

mod case_checks;
pub(super) mod draft;
pub(super) mod fan;
pub(super) mod route;
pub(super) mod then;
