//! With little left of descriptors, memory or threads the program refuses to start, with the cause.

use std::process::Stdio;

use crate::program::{Ended, Place, workflow};

/// Runs a workflow under a limit of the shell.
fn limited(limit: &str) -> Ended {
    let place = Place::new();
    let mut command = std::process::Command::new("sh");
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    command.args([
        "-c",
        &script,
        env!("CARGO_BIN_EXE_graphrun"),
        "execute",
        &workflow("three_steps"),
    ]);
    command.args(["-i", "brief=x"]).current_dir(place.path("")).stdin(Stdio::null()).env_clear();
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().unwrap_or_else(|| panic!("{limit}: {:?}", output.status)),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

#[test]
fn with_too_little_the_program_refuses_to_start_and_says_why() {
    for (limit, says) in [
        ("-n 8", "may open only 8 files"),
        ("-n 12", "may open only 12 files"),
        ("-n 16", "may open only 16 files"),
        ("-n 20", "may open only 20 files"),
        ("-v 120000", "may use only 120000 KiB of address space"),
        ("-d 5000", "may use only 5000 KiB of memory"),
        ("-d 20000", "may use only 20000 KiB of memory"),
    ] {
        let ended = limited(limit);
        assert_eq!(ended.code, 5, "{limit}: {ended}");
        assert!(ended.stderr.contains(says), "{limit}: {ended}");
        assert!(ended.stderr.contains("help: allow it more"), "{limit}: {ended}");
    }
}

#[test]
fn with_just_enough_a_run_reaches_its_end_or_says_why_not() {
    for limit in ["-n 32", "-n 64", "-v 300000", "-v 2000000", "-d 65536", "-c unlimited"] {
        let ended = limited(limit);
        // A machine with many cores starts more threads than fit.
        assert!(matches!(ended.code, 0 | 5), "{limit}: {ended}");
        assert!(!ended.stderr.contains("panicked"), "{limit}: {ended}");
    }
    assert_eq!(limited("-n 32").code, 0);
}
