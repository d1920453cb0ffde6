//! With few descriptors, threads or little memory left, the program refuses to start and reports
//! the cause.

use std::{fs, net::TcpListener, path::Path, process::Stdio};

use crate::cli::{
    program::{Ended, Place, Running, workflow},
    provider::answer,
};

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
fn too_few_resources_are_refused_with_the_reason() {
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
fn minimal_resources_end_a_run_or_give_the_reason() {
    for limit in ["-n 32", "-n 64", "-v 300000", "-v 2000000", "-d 65536", "-c unlimited"] {
        let ended = limited(limit);
        // A machine with many cores starts more threads than the limit allows.
        assert!(matches!(ended.code, 0 | 5), "{limit}: {ended}");
        assert!(!ended.stderr.contains("panicked"), "{limit}: {ended}");
    }
    assert_eq!(limited("-n 32").code, 0);
}

/// Starts a program with this many files already open, and a limit on open files.
const WITH_OPEN_FILES: &str = "
import os, resource, sys
for _ in range(int(sys.argv[1])):
    os.set_inheritable(os.open('/dev/null', os.O_RDONLY), True)
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
os.execv(sys.argv[2], sys.argv[2:])
";

#[test]
fn with_too_few_files_left_the_program_refuses_to_start() {
    let place = Place::new();
    let run = |open: u32, args: &[&str]| {
        let program = place.command(args);
        let mut command = std::process::Command::new("python3");
        command.args(["-c", WITH_OPEN_FILES, &open.to_string()]);
        command.arg(program.get_program()).args(program.get_args()).env_clear();
        command.envs(program.get_envs().filter_map(|(name, it)| Some((name, it?))));
        Ended::of(command.current_dir(place.path("")))
    };
    let workflow = workflow("two_steps");
    let mut done = 0;
    let mut refused = 0;
    // With fewer, the system cannot load the program.
    for open in 0..=24 {
        let ended = run(open, &["execute", &workflow, "-i", "brief=x"]);
        assert!(!ended.stderr.contains("panicked"), "{open}: {ended}");
        match ended.code {
            0 => done += 1,
            5 => {
                refused += 1;
                for part in [
                    "can open only",
                    "more files, and needs 22",
                    "Too many open files",
                    "`ulimit -n 256`",
                ] {
                    assert!(ended.stderr.contains(part), "{part}: {open}: {ended}");
                }
            }
            _ => panic!("{open}: {ended}"),
        }
    }
    assert!(done >= 4 && refused >= 15, "{done} done, {refused} refused");
}

#[test]
fn a_run_whose_database_is_taken_away_ends_with_exit_5() {
    type Take = fn(&Path);
    let ways: [(&str, Take, &str); 4] = [
        ("removed", |it| fs::remove_file(it).unwrap(), "it was removed or moved away"),
        (
            "moved",
            |it| fs::rename(it, it.with_extension("old")).unwrap(),
            "it was removed or moved away",
        ),
        (
            "replaced",
            |path| {
                fs::copy(path, path.with_extension("copy")).unwrap();
                fs::rename(path.with_extension("copy"), path).unwrap();
            },
            "another file replaced it",
        ),
        (
            "moved with its folder",
            |path| {
                let folder = path.parent().unwrap();
                fs::rename(folder, folder.with_extension("old")).unwrap();
            },
            "it was removed or moved away",
        ),
    ];
    for (what, take, says) in ways {
        let provider = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::new();
        let run = Running::start(&place, &provider);
        let (mut call, _) = provider.accept().unwrap();
        take(&place.path(".graphrun/runs.db"));
        answer(&mut call);
        let ended = run.rest();
        assert_eq!(ended.code, 5, "{what}: {ended}");
        assert!(ended.stderr.contains(says), "{what}: {ended}");
        let told = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!told.contains("\"done\"") && !told.contains(" done after"), "{what}: {ended}");
    }
}
