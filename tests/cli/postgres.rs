//! Runs in PostgreSQL, from the command line.

use serde_json::Value;

use crate::{
    program::{Place, workflow},
    server::{Schema, server},
};

#[test]
fn a_run_in_postgres_is_shown_and_listed_and_its_password_never_is() {
    let (place, schema, url) = (Place::new(), Schema::new(), server());
    // The server of the tests may let everybody in; what is given is not shown either way.
    let (user, rest) = url.split_once("://").unwrap().1.split_once('@').unwrap();
    let (user, password) = user.split_once(':').unwrap_or((user, "hunter2"));
    let url = schema.url_at(&format!("postgres://{user}:{password}@{rest}"));
    let execute = ["execute", &workflow("two_steps"), "-i", "brief=x"];
    let (by_flag, by_variable) = (["--db", url.as_str()], [("GRAPHRUN_DB", url.as_str())]);
    let mut all = Vec::new();

    let empty = place.run_with(["runs", "list"], by_variable);
    assert_eq!((empty.code, empty.stdout.as_str()), (0, "no runs yet\n"), "{empty}");
    let first = place.run([&execute[..], &by_flag].concat());
    assert!(first.stderr.contains(" --db \"$GRAPHRUN_DB\""), "{first}");
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
