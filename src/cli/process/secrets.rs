//! Protects secrets at the start of the process: it learns them, and prevents core dumps.

use std::{backtrace::Backtrace, backtrace::BacktraceStatus, env, panic, thread};

use nix::sys::{
    prctl,
    resource::{Resource, setrlimit},
};

use crate::{cli::output::terminal::print_message, redact};

/// Protects the secrets of this process: in its environment, in memory, and in the text of a panic.
pub(crate) fn protect_secrets() {
    for (name, value) in env::vars_os() {
        redact::learn_variable(&name.to_string_lossy(), &value.to_string_lossy());
    }
    // A core file would contain every key. Where the kernel pipes cores to a program, the limit
    // alone does not prevent them. Neither call can fail for this process itself, and without them
    // it still works.
    _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    _ = prctl::set_dumpable(false);
    panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        print_message(&format!("thread '{}' {panic}", thread.name().unwrap_or("unnamed")));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            print_message(&backtrace.to_string());
        }
    }));
}
