//! A database that came with a folder, and the databases that graphrun created for this user.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use rusqlite::Connection;
use serde_json::json;

use crate::cli::program::{Ended, Place, workflow};

const DATABASE: &str = ".graphrun/runs.db";

/// A command that may change runs, and finds none here.
const PRUNE: [&str; 4] = ["runs", "prune", "--older-than", "9999d"];

fn execute(place: &Place, more: &[&str]) -> Ended {
    let workflow = workflow("two_steps");
    place.run([&["execute", &workflow, "-i", "brief=x"], more].concat())
}

/// Creates a cloned folder: it contains a database from another user's folder.
fn clone_with_database() -> (Place, String) {
    let stranger = Place::new();
    let clone = Place::new();
    let run = stranger.execute("two_steps");
    fs::create_dir(clone.path(".graphrun")).unwrap();
    // A copy of one file is whole only without a log.
    let database = Connection::open(stranger.path(DATABASE)).unwrap();
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    fs::copy(stranger.path(DATABASE), clone.path(DATABASE)).unwrap();
    (clone, run)
}

fn assert_refused(ended: &Ended) {
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
    let remedies =
        ["is not a database that graphrun made for you", "`graphrun trust`", "--db sqlite:"];
    for expected in remedies {
        assert!(ended.stderr.contains(expected), "{expected}: {ended}");
    }
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| read(it.unwrap())).collect();
    files.sort();
    files
}

#[test]
fn a_database_that_came_with_a_folder_is_not_opened() {
    let (place, run) = clone_with_database();
    let before = files(&place.path(".graphrun"));
    let workflow = workflow("two_steps");
    for args in [
        vec!["execute", &workflow, "-i", "brief=x"],
        vec!["resume", &run],
        vec!["retry", &run],
        vec!["fork", &run],
        vec!["migrate", &run, &workflow],
        vec!["message", &run, "x"],
        vec!["runs", "update", &run, "--clear", "brief"],
        vec!["runs", "prune", "--older-than", "1d"],
        vec!["runs", "rm", &run],
    ] {
        assert_refused(&place.run(&args));
    }
    assert!(files(&place.path(".graphrun")) == before, "the database was touched");
}

#[test]
fn a_database_that_came_with_a_folder_can_be_read() {
    let (place, run) = clone_with_database();
    let workflow = workflow("two_steps");
    for args in [
        vec!["graph", &workflow, "--run", &run],
        vec!["runs", "list"],
        vec!["runs", "show", &run],
        vec!["runs", "verify"],
        vec!["runs", "export", &run],
    ] {
        let ended = place.run(&args);
        assert_eq!(ended.code, 0, "{ended}");
    }
}

#[test]
fn the_word_of_the_user_opens_it() {
    let (place, _) = clone_with_database();
    let url = format!("sqlite:{DATABASE}");
    let named = place.run([&PRUNE[..], &["--db", &url]].concat());
    assert_eq!(named.code, 0, "{named}");
    assert_eq!(place.run_with(PRUNE, [("GRAPHRUN_DB", url.as_str())]).code, 0);
    assert_refused(&place.run(PRUNE));

    let unasked = place.run(["trust"]);
    assert!(unasked.code == 2 && unasked.stderr.contains("no terminal to ask at"), "{unasked}");
    assert_refused(&place.run(PRUNE));
    assert_eq!(place.run(["trust", "--yes"]).code, 0);
    assert_eq!(place.run(PRUNE).code, 0);
    let list = || place.run(["trust", "--list", "--output", "json"]).json();
    let path = fs::canonicalize(place.path(DATABASE)).unwrap();
    assert_eq!(list(), json!([{"database": path, "status": "trusted"}]));
    let again = place.run(["trust", "--yes"]);
    assert!(again.code == 0 && again.stderr.contains("is trusted already"), "{again}");

    assert_eq!(place.run(["trust", "--revoke"]).code, 0);
    assert_refused(&place.run(PRUNE));
    assert_eq!(list(), json!([]));
}

#[test]
fn a_database_of_this_user_is_opened_wherever_its_folder_moves() {
    let place = Place::new();
    assert_eq!(execute(&place, &[]).code, 0);
    assert_eq!(execute(&place, &[]).code, 0);
    assert_eq!(place.run(["trust", "--list", "--output", "json"]).json(), json!([]), "it is made");
    // Someone restores a backup into the file.
    let backup = fs::read(place.path(DATABASE)).unwrap();
    assert_eq!(execute(&place, &[]).code, 0);
    fs::write(place.path(DATABASE), backup).unwrap();
    assert_eq!(execute(&place, &[]).code, 0);
    fs::create_dir(place.path("moved")).unwrap();
    fs::rename(place.path(".graphrun"), place.path("moved/.graphrun")).unwrap();
    let mut list = place.command(PRUNE);
    assert_eq!(Ended::of(list.current_dir(place.path("moved"))).code, 0);
    let known = place.path(".XDG_STATE_HOME/graphrun/databases.json");
    assert_eq!(fs::metadata(known).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_replaces_a_known_database_is_not_opened() {
    let place = Place::new();
    assert_eq!(execute(&place, &[]).code, 0);
    fs::copy(place.path(DATABASE), place.path("other.db")).unwrap();
    fs::rename(place.path("other.db"), place.path(DATABASE)).unwrap();
    assert_refused(&execute(&place, &[]));
}

#[test]
fn a_database_that_an_untrusted_file_names_is_not_opened() {
    let (place, _) = clone_with_database();
    fs::rename(place.path(DATABASE), place.path("theirs.db")).unwrap();
    fs::write(place.path("graphrun.toml"), "db = \"sqlite:theirs.db\"\n").unwrap();
    assert_refused(&place.run(PRUNE));
    let trusted = place.run(["trust", "--yes"]);
    assert!(trusted.code == 0 && trusted.stderr.contains("db = sqlite:theirs.db"), "{trusted}");
    let listed = place.run(PRUNE);
    assert_eq!(listed.code, 0, "{listed}");
    fs::write(place.path("graphrun.toml"), "db = \"sqlite:new.db\"\n").unwrap();
    assert_eq!(execute(&place, &[]).code, 0, "one that is not there is made");
    assert_eq!(execute(&place, &[]).code, 0, "and is known");
}

/// Creates a log that belongs to a copy of a database, and moves it to a path.
fn steal_log(database: &Path, to: &Path) {
    let folder = tempfile::TempDir::new().unwrap();
    let from = &folder.path().join("runs.db");
    fs::copy(database, from).unwrap();
    let open = Connection::open(from).unwrap();
    open.execute_batch(
        "PRAGMA wal_autocheckpoint = 0; CREATE TABLE stolen (a); INSERT INTO stolen VALUES (1)",
    )
    .unwrap();
    let log = from.with_extension("db-wal");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    fs::copy(log, to).unwrap();
}

#[test]
fn a_log_from_a_cloned_folder_is_not_read_into_a_new_database() {
    let stranger = Place::new();
    stranger.execute("two_steps");
    for ending in ["wal", "journal"] {
        let place = Place::new();
        fs::create_dir(place.path(".graphrun")).unwrap();
        let log = place.path(&format!("{DATABASE}-{ending}"));
        steal_log(&stranger.path(DATABASE), &log);
        for more in [&[][..], &["--db", "sqlite:.graphrun/runs.db"]] {
            let ended = execute(&place, more);
            assert_eq!(ended.code, 5, "{ended}");
            assert!(
                ended.stderr.contains(&format!("runs.db-{ending}` exists without it")),
                "{ended}"
            );
            assert!(!place.path(DATABASE).exists());
        }
        fs::remove_file(&log).unwrap();
        symlink(place.path("elsewhere"), &log).unwrap();
        assert_eq!(execute(&place, &[]).code, 5);
        assert!(!place.path("elsewhere").exists());
    }
}

#[test]
fn a_log_that_is_put_beside_a_known_database_is_not_read() {
    let stranger = Place::new();
    stranger.execute("two_steps");
    let place = Place::new();
    place.execute("two_steps");
    let log = place.path(&format!("{DATABASE}-wal"));
    steal_log(&stranger.path(DATABASE), &log);
    fs::set_permissions(&log, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::read(place.path(DATABASE)).unwrap();
    for args in [&PRUNE[..], &["trust", "--yes"]] {
        let ended = place.run(args);
        assert_eq!(ended.code, 5, "{ended}");
        assert!(ended.stderr.contains("graphrun did not make it"), "{ended}");
    }
    assert_eq!(fs::read(place.path(DATABASE)).unwrap(), before);
    fs::remove_file(log).unwrap();
    assert_eq!(place.run(PRUNE).code, 0);
}

#[test]
fn without_a_state_folder_the_database_of_a_folder_is_opened() {
    let place = Place::new();
    let run = |more: &[&str]| {
        let workflow = workflow("two_steps");
        let args = [&["execute", &workflow, "-i", "brief=x"], more].concat();
        let mut command = place.command(args);
        let output = command.env_remove("HOME").env_remove("XDG_STATE_HOME").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = run(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!stderr.contains("warning"), "{stderr}");
    let (code, stderr) = run(&[]);
    assert_eq!(code, Some(0), "{stderr}");
}
