//! `cargo +nightly fuzz run cases`
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| graphrun_fuzz::cases(text));
