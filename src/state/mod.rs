//! The typed state of a run, and how a model's answer becomes part of it.

mod lenient;

pub use lenient::*;
