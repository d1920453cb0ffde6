//! `cargo +nightly fuzz run layout`
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| graphrun_fuzz::layout(text));
