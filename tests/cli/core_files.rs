//! A program that crashes leaves no core file, which would contain its keys.

use std::{
    fs,
    net::TcpListener,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::{CommandExt as _, ExitStatusExt as _},
    },
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};

use crate::cli::program::{Place, workflow};

/// A key in the memory of the program.
const KEY: &str = "canary-of-core-files-7f3a9c2b";

/// The user for the program if root runs the tests: the files of its process then show whether
/// others may read its memory.
const NOBODY: u32 = 65_534;

#[test]
fn a_program_that_crashes_leaves_no_core_file() {
    for signal in [Signal::SIGABRT, Signal::SIGSEGV] {
        let provider = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::new();
        let folder = place.path("");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        for file in ["program", "agent.yaml"] {
            let from = if file == "program" {
                env!("CARGO_BIN_EXE_graphrun").into()
            } else {
                workflow("agent")
            };
            fs::copy(from, place.path(file)).unwrap();
        }
        let given = place.command(["execute", "agent.yaml", "-i", "brief=x"]);
        // The shell allows core files of any size.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -c unlimited; exec \"$0\" \"$@\""]).arg(place.path("program"));
        command.args(given.get_args()).env_clear();
        command.envs(given.get_envs().filter_map(|(name, it)| Some((name, it?))));
        let address = provider.local_addr().unwrap();
        command.env("OPENAI_API_KEY", KEY).env("OPENAI_BASE_URL", format!("http://{address}/v1"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let mut child = command.current_dir(&folder).spawn().unwrap();
        let _call = provider.accept().unwrap();
        let process = format!("/proc/{}", child.id());
        // The kernel assigns the files of such a process to root.
        assert_eq!(
            fs::metadata(format!("{process}/mem")).unwrap().uid(),
            0,
            "others may read its memory"
        );
        let limits = fs::read_to_string(format!("{process}/limits")).unwrap();
        let cores = limits.lines().find(|it| it.starts_with("Max core file size")).unwrap();
        assert_eq!(cores.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"], "{cores}");
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap());
        // The first SIGSEGV without a fault only restores the default action.
        let status = loop {
            kill(id, signal).unwrap();
            thread::sleep(Duration::from_millis(20));
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
        };
        assert_eq!((status.signal(), status.core_dumped()), (Some(signal as i32), false));
        for entry in fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.contains("core"), "{name}");
        }
    }
}
