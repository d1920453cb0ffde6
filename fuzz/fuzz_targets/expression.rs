//! `cargo +nightly fuzz run expression`
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| graphrun_fuzz::expression(text));
