//! The documentation is true where a machine can tell: links resolve, workflows load, commands exist, and the
//! sessions on a page have the output that the page shows.
//!
//! `UPDATE=1 cargo test --all-features --test tests docs::` writes the generated parts anew: the codes in `docs/SUMMARY.md`,
//! the page `docs/command-line.md`, tables of `docs/workflow.md` and `docs/expressions.md`, and the output of
//! sessions.

mod command_line;
mod commands;
mod links;
pub(crate) mod page;
mod programs;
mod providers;
mod rules;
mod sessions;
mod summary;
mod tables;
mod workflows;

/// Compares a generated text with a file, or writes the file with `UPDATE=1`.
fn check_generated(path: &std::path::Path, wanted: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, wanted).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    if written != wanted {
        let differing = written.lines().zip(wanted.lines()).find(|(a, b)| a != b);
        let (is, should) = differing.unwrap_or(("", "another number of lines"));
        panic!(
            "{} is not up to date: `{is}` should be `{should}`.\n\
             `UPDATE=1 cargo test --all-features --test tests docs::` writes it anew; then read the difference",
            path.display()
        );
    }
}
