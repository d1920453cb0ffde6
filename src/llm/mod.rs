//! Models.

mod usage;

pub use self::usage::Usage;
