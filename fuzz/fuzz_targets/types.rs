//! `cargo +nightly fuzz run types`
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| graphrun_fuzz::types(text));
