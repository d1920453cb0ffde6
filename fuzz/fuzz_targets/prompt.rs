//! `cargo +nightly fuzz run prompt`
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| graphrun_fuzz::prompt(text));
