//! The `graphrun` program.

fn main() {}
