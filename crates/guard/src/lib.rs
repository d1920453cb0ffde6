//! What protects a run and its machine from hostile data.
//!
//! - [`address`]: the addresses of a host, which are public unless others are allowed.
//! - [`data_limit`]: the limits on the size of files, inputs, values and expressions.
//! - [`beneath`]: opens files beneath a folder, and never above it.
//! - [`redact`]: removes keys and passwords from texts before they are saved or shown.
//! ```
//! use graphrun_guard::redact::{learn, redact};
//!
//! learn("sk-the-key-of-this-test");
//! assert!(!redact("the server got sk-the-key-of-this-test").contains("the-key"));
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

pub mod address;
pub mod beneath;
pub mod data_limit;
pub mod redact;
