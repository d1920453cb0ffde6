//! Models against peers that behave as real providers, proxies and networks do, over loopback.
//!
//! `exchanges/` holds one reply a file with what must become of it; a new case is a new file.

mod answers;
mod attachments;
mod bench;
mod charges;
mod embeddings;
mod exchanges;
mod faults;
mod gate;
mod ladder;
mod matrix;
mod peer;
mod protocols;
mod recordings;
mod silence;
mod streams;
mod structured;
mod tools;
mod typed;
