//! `cargo +nightly fuzz run yaml`
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| graphrun_fuzz::yaml(text));
