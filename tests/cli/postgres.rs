//! Runs in PostgreSQL, from the command line.

use std::{fs, thread, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    cli::program::{Place, Running, workflow},
    support::postgres::{Schema, ask, execute, server, without_room},
};

#[test]
fn authorities_that_cannot_be_read_are_named() {
    let place = Place::new();
    fs::write(place.path("text.pem"), "no certificate").unwrap();
    for (file, expected) in
        [("missing.pem", "cannot be read"), ("text.pem", "no certificate of an authority")]
    {
        let file = place.path(file);
        let url = format!(
            "postgres://me@127.0.0.1:1/app?sslmode=verify-full&sslrootcert={}",
            file.display()
        );
        for args in [
            &["runs", "list"][..],
            &["execute", &workflow("two_steps"), "-i", "brief=x"],
            &["doctor"],
        ] {
            let ended = place.run([args, &["--db", &*url]].concat());
            let said = ended.to_string();
            assert!(
                ended.code == 5 && said.contains(expected) && !said.contains("panicked"),
                "{ended}"
            );
        }
    }
}

#[test]
fn a_postgres_run_is_shown_and_listed_without_the_password() {
    let place = Place::new();
    let schema = Schema::new();
    let url = server();
    // The test server may accept any user; the given name and password must not be shown either
    // way.
    let (user, rest) = url.split_once("://").unwrap().1.split_once('@').unwrap();
    let (user, password) = user.split_once(':').unwrap_or((user, "hunter2"));
    let url = schema.url_at(&format!("postgres://{user}:{password}@{rest}"));
    let execute = ["execute", &workflow("two_steps"), "-i", "brief=x"];
    let by_flag = ["--db", url.as_str()];
    let by_variable = [("GRAPHRUN_DB", url.as_str())];
    let mut all = Vec::new();

    let empty = place.run_with(["runs", "list"], by_variable);
    assert_eq!((empty.code, empty.stdout.as_str()), (0, "no runs yet\n"), "{empty}");
    let first = place.run([&execute[..], &by_flag].concat());
    assert!(first.stderr.contains(&format!(" --db 'postgres://{user}:…@")), "{first}");
    let second = place.run_with([&execute[..], &["--output", "json"]].concat(), by_variable);
    assert_eq!((first.code, second.code), (0, 0), "{first}{second}");
    let run = second.json()["name"].as_str().unwrap().to_owned();
    all.extend([empty, first, second]);

    let listed = place.run_with(["runs", "list", "--output", "json", "--limit", "1"], by_variable);
    let newest = listed.json();
    assert_eq!(newest.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(newest[0]["name"], Value::from(run.as_str()));
    let more = format!(
        "there are more: graphrun runs list --before {}\n",
        newest[0]["run"].as_str().unwrap()
    );
    assert_eq!(listed.stderr, more);
    let rest = place.run_with(["runs", "list", "--output", "json", "--before", &run], by_variable);
    assert_eq!((rest.json().as_array().map(Vec::len), rest.stderr.as_str()), (Some(1), ""));
    all.extend([listed, rest]);
    for args in [
        &["runs", "show", &run][..],
        &["runs", "state", &run],
        &["runs", "events", &run],
        &["doctor"],
    ] {
        let ended = place.run_with(args, by_variable);
        assert!(ended.code == 0 || args == ["doctor"], "{ended}");
        all.push(ended);
    }
    let doctor = all.last().unwrap();
    assert!(doctor.stdout.contains("PostgreSQL "), "{doctor}");
    for ended in &all {
        assert!(!format!("{ended}").contains(&format!(":{password}")), "{ended}");
    }
    assert!(place.is_empty(), "nothing is kept in files");
}

#[test]
fn a_server_that_cannot_be_used_ends_with_exit_5() {
    let place = Place::new();
    for args in [
        &["runs", "list"][..],
        &["execute", &workflow("two_steps"), "-i", "brief=x"],
        &["resume", "calm-otter"],
    ] {
        let url = "postgres://me:hunter2@127.0.0.1:1/app";
        let ended = place.run([args, &["--db", url]].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
        let said = "error: postgres://me@127.0.0.1:1/app cannot be used: no server answers there";
        assert!(ended.stderr.contains(said) && !ended.stderr.contains("hunter2"), "{ended}");
    }
}

/// Starts `run-1`, which asks a question.
fn asks_in(url: &str) -> Vec<String> {
    ["execute", &workflow("asks"), "-i", "brief=x", "--run-id", "run-1", "--db", url]
        .map(str::to_owned)
        .to_vec()
}

/// A change to a database, and the expected exit code and message.
struct Case {
    harms: &'static [&'static str],
    code: i32,
    says: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        harms: &["UPDATE graphrun_format SET version = 99"],
        code: 5,
        says: &["it has format 99", "use the program that wrote it"],
    },
    Case {
        harms: &["DELETE FROM graphrun_format"],
        code: 5,
        says: &["holds no version", "restore a backup"],
    },
    Case {
        harms: &["DROP TABLE graphrun_format"],
        code: 5,
        says: &["belongs to another program", "?schema=NAME"],
    },
    Case {
        harms: &["DROP TABLE inbox", "DROP TABLE journal"],
        code: 5,
        says: &["its tables are not those of this program", "?schema=NAME"],
    },
    Case {
        harms: &[
            "UPDATE journal SET meta = '' WHERE number = 2",
            "DELETE FROM journal WHERE number = 2",
        ],
        code: 6,
        says: &["entry 2 of run `run-1` is damaged"],
    },
    Case {
        harms: &["UPDATE heads SET run_status = replace(run_status, 'paused', 'failed')"],
        code: 6,
        says: &["the status of run `run-1` is damaged"],
    },
    Case {
        harms: &["DELETE FROM journal WHERE number = (SELECT max(number) FROM journal)"],
        code: 6,
        says: &["of run `run-1` is damaged"],
    },
];

#[test]
fn a_damaged_or_foreign_database_is_refused_with_a_remedy() {
    let place = Place::new();
    let mut wrong = Vec::new();
    for (case, harm) in CASES.iter().flat_map(|it| it.harms.iter().map(move |harm| (it, harm))) {
        let schema = Schema::new();
        let url = schema.url();
        let paused = place.run(asks_in(&url));
        assert_eq!(paused.code, 3, "{paused}");
        execute(format!("SET search_path = {}; {harm}", schema.name));
        for args in [&["resume", "run-1"][..], &["runs", "state", "run-1"]] {
            let ended = place.run([args, &["--db", &url]].concat());
            let misses = case.says.iter().any(|it| !ended.stderr.contains(it));
            if ended.code != case.code || misses || !ended.stderr.starts_with("error: ") {
                wrong.push(format!("{harm}, {args:?}: and not {}: {ended}", case.code));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_full_server_is_exit_5_and_the_run_can_be_resumed() {
    let place = Place::new();
    let schema = Schema::new();
    let url = schema.url();
    assert_eq!(place.run(asks_in(&url)).code, 3);
    let full = without_room("could not extend file: No space left on device");
    execute(format!("SET search_path = {}; {full}", schema.name));
    let answer = ["resume", "run-1", "--answer", r#"help="go_on""#, "--db", &url];
    let ended = place.run(answer);
    assert_eq!(ended.code, 5, "{ended}");
    for said in ["No space left on device", "free some space on the disk of the database"] {
        assert!(ended.stderr.contains(said), "{ended}");
    }
    execute(format!("SET search_path = {}; DROP TRIGGER full_disk ON journal", schema.name));
    let ended = place.run(answer);
    assert_eq!(ended.code, 0, "{ended}");
}

#[test]
fn a_second_signal_ends_a_run_whose_server_is_silent() {
    let place = Place::new();
    let schema = Schema::new();
    let url = schema.url();
    assert_eq!(place.run(asks_in(&url)).code, 3);
    let table = format!("{}.journal", schema.name);
    let hold = format!("BEGIN; LOCK TABLE {table} IN SHARE MODE; SELECT pg_sleep(15); COMMIT");
    let holder = thread::spawn(move || execute(hold));
    let wait_for = |locks: &str| {
        let sql = format!(
            "SELECT count(*)::text FROM pg_locks WHERE {locks} AND relation = '{table}'::regclass"
        );
        while ask(sql.clone()) == "0" {
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("granted AND mode = 'ShareLock'");
    let answer = ["resume", "run-1", "--answer", r#"help="go_on""#, "--db", &url];
    let mut run = Running::of(place.command(answer));
    wait_for("NOT granted");
    run.signal(Signal::SIGTERM);
    run.wait_for("terminated: no new node starts");
    run.signal(Signal::SIGTERM);
    let ended = run.rest();
    assert!(ended.code == 143 && ended.stderr.contains("did not answer"), "{ended}");
    holder.join().unwrap();
    let ended = place.run(answer);
    assert_eq!(ended.code, 0, "{ended}");
}
