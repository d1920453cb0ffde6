//! Runs the coding agent of `docs/coding-agents.md`, which needs no provider. It needs git and a sandbox.

use std::{fs, process::Command};

use tempfile::TempDir;

use crate::{docs::page::Page, support::git::git};

#[test]
fn the_program_of_the_page_changes_the_folder() {
    let place = TempDir::new().unwrap();
    let page = Page::read("docs/coding-agents.md");
    for block in page.blocks() {
        if let Some(name) = block.file {
            fs::write(place.path().join(name), block.code).unwrap();
        }
    }
    let folder = place.path().join("repository");
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/a.py"), "old = 1\n").unwrap();
    fs::write(folder.join("other.py"), "old = 2\n").unwrap();
    git(&folder, &["init", "--quiet", "--initial-branch=main"]);
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "--message", "first"]);
    let ended = Command::new(env!("CARGO_BIN_EXE_graphrun"))
        .args(["execute", "rename.yaml", "-i", "repo_path=repository", "-i", "words=old new"])
        .args(["--run-id", "one"])
        .current_dir(place.path())
        .env("XDG_STATE_HOME", place.path().join("state"))
        .env("XDG_CONFIG_HOME", place.path().join("config"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{text}");
    let shown = Command::new("git")
        .args(["show", "--format=%s", "--unified=0", "graphrun/one"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.starts_with("Rename old to new\n"), "{shown}");
    assert!(shown.ends_with("-old = 1\n+new = 1\n") && !shown.contains("other.py"), "{shown}");
}
