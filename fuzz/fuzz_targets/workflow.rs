//! `cargo +nightly fuzz run workflow`
#![no_main]

libfuzzer_sys::fuzz_target!(|steps: &[u8]| graphrun_fuzz::workflow(steps));
