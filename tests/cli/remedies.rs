//! Messages for wrong names: the expected values, and a remedy.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

use crate::cli::program::{Ended, Place, workflow};

/// Creates a folder with a workflow in `w.yaml`.
fn place() -> Place {
    let place = Place::new();
    fs::copy(workflow("two_steps"), place.path("w.yaml")).unwrap();
    place
}

fn expect(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{ended}");
    for part in parts {
        assert!(ended.stderr.contains(part), "`{part}` is missing in: {ended}");
    }
}

#[test]
fn an_impossible_value_is_refused_with_the_expected_form() {
    let place = place();
    let count = "expected a whole number above zero";
    let time = "expected a time above zero, as in `90s`, `1h 30m` or `30d`";
    for (flag, value, expected) in [
        ("--max-steps", "0", count),
        ("--max-steps", "-1", count),
        ("--max-tokens", "1e3", count),
        ("--max-tokens", "99999999999999999999", count),
        ("--max-cost", "-1", "expected an amount above zero"),
        ("--timeout", "5", time),
        ("--timeout", "-5s", time),
        ("--timeout", "1 month", time),
        ("--run-id", "a b", "` ` is not allowed in the name `a b`; an id has up to 64 letters"),
        ("--run-id", "a\nb", r"`\n` is not allowed in the name `a\nb`"),
    ] {
        let ended = place.run(["execute", "w.yaml", "-i", "brief=x", flag, value]);
        expect(&ended, 2, &[&format!("for '{flag}"), expected]);
    }
    expect(&place.run(["runs", "prune", "--older-than", "-30d"]), 2, &[time]);
    expect(&place.run(["runs", "list", "--limit", "-1"]), 2, &[count]);
}

#[test]
fn a_file_that_cannot_be_read_is_refused_with_a_remedy() {
    let place = place();
    fs::write(place.path("latin.yaml"), b"name: caf\xe9\n").unwrap();
    for command in ["execute", "validate", "plan", "graph"] {
        // `validate` takes folders, as `test` does.
        if command != "validate" {
            expect(&place.run([command, "."]), 2, &["cannot read `.`", "help: name a file in it"]);
        }
        let latin = place.run([command, "latin.yaml"]);
        expect(&latin, 2, &["cannot read `latin.yaml`", "help: name a text file; texts are saved"]);
    }
    let test = place.run(["test", "."]);
    expect(&test, 2, &["no `*.test.yaml` below `.`", "help: the test cases of `flow.yaml`"]);
    let init = place.run(["init", "review", "w.yaml"]);
    expect(&init, 5, &["w.yaml/review.yaml", "help: name another folder"]);
}

#[test]
fn a_recording_that_cannot_be_written_is_no_fault_of_the_model() {
    let place = place();
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--record", "nowhere/run.jsonl"];
    let ended = place.run_with(args, [("OPENAI_API_KEY", "sk-test")]);
    expect(&ended, 5, &["nowhere/run.jsonl: No such file", "help: name another file with `--rec"]);
    assert!(!ended.stderr.contains("model"), "{ended}");
}

#[test]
fn an_inaccessible_database_is_not_reported_as_missing() {
    let place = place();
    let fifo = Command::new("mkfifo").arg(place.path("pipe")).status().unwrap();
    assert!(fifo.success());
    for (path, reason) in [
        ("w.yaml/runs.db", "a part of its path is a file, not a folder; give another path"),
        ("pipe", "it is not a database; give another path"),
        ("/dev/null", "it is not a database; give another path"),
    ] {
        let url = format!("sqlite:{path}");
        let said = format!("error: {path} cannot be used: {reason}");
        for args in [
            &["runs", "list"][..],
            &["resume", "calm-otter"],
            &["execute", "w.yaml", "-i", "brief=x"],
        ] {
            expect(&place.run([args, &["--db", &url]].concat()), 5, &[&said]);
        }
        let doctor = place.run(["doctor", "--db", &url]);
        assert!(doctor.stdout.contains(reason), "{doctor}");
    }
    let nowhere = place.run(["execute", "w.yaml", "-i", "brief=x", "--db", "sqlite:/proc/x/y.db"]);
    expect(&nowhere, 5, &["/proc/x/y.db cannot be used: its folder cannot be made"]);
    // In other programs, this means a database in memory.
    let memory = place.run(["runs", "list", "--db", "sqlite::memory:"]);
    expect(&memory, 2, &["is not the URL of a database", "`memory:`"]);
}

#[test]
fn a_log_without_its_database_is_not_hidden() {
    let place = place();
    fs::create_dir(place.path(".graphrun")).unwrap();
    fs::write(place.path(".graphrun/runs.db-wal"), "x").unwrap();
    for args in [&["runs", "list"][..], &["resume", "x"], &["execute", "w.yaml", "-i", "brief=x"]] {
        let said = "runs.db-wal` exists without it, and would corrupt a new database";
        expect(&place.run(args), 5, &[said]);
    }
    let doctor = place.run(["doctor"]);
    assert!(doctor.stdout.contains("exists without it"), "{doctor}");
}

#[test]
fn a_wrong_setting_of_the_environment_is_exit_5() {
    let place = place();
    let execute = ["execute", "w.yaml", "-i", "brief=x"];
    for name in
        ["GRAPHRUN_DB", "GRAPHRUN_LEASE", "GRAPHRUN_MAX_STEPS", "GRAPHRUN_LIMIT_VALUE_DEPTH"]
    {
        let ended = place.run_with(execute, [(name, "junk")]);
        expect(&ended, 5, &[&format!("{name} is `junk`")]);
    }
    expect(&place.run(["runs", "list", "--db", "junk"]), 2, &["--db is `junk`"]);
}

#[test]
fn a_home_that_cannot_hold_files_is_none() {
    let place = place();
    for args in
        [&["execute", "w.yaml", "-i", "brief=x"][..], &["runs", "list"], &["trust", "--list"]]
    {
        let mut command = place.command(args);
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME").env("HOME", "/dev/null");
        let ended = Ended::of(&mut command);
        assert_eq!(ended.code, 0, "{ended}");
    }
}

#[test]
fn an_unsupported_output_lists_the_others() {
    let ended = place().run(["execute", "w.yaml", "-i", "brief=x", "--output", "sarif"]);
    expect(&ended, 2, &["help: it prints `text`, `json` or `jsonl`"]);
}

#[test]
fn an_unknown_step_is_refused_with_the_command_that_lists_steps() {
    let place = Place::new();
    let name = place.execute("two_steps");
    for args in [["runs", "state"].as_slice(), &["fork"], &["runs", "diff"]] {
        let ended = place.run([args, &[&format!("{name}@9")]].concat());
        expect(&ended, 2, &["has no step 9", "help: `graphrun runs history` lists its steps"]);
    }
}

#[test]
fn a_field_may_come_from_stdin_once() {
    let place = place();
    let execute = |flags: &[&str], stdin: &str| {
        let args = [&["execute", "w.yaml", "--output", "json"], flags].concat();
        let mut command = place.command(args);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        Ended { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    };
    for (flag, stdin) in [("brief=@-", "from far"), ("@-", r#"{"brief": "from far"}"#)] {
        let ended = execute(&["-i", flag], stdin);
        assert_eq!((ended.code, &ended.json()["state"]["answer"]), (0, &"from far".into()));
    }
    let twice = execute(&["-i", "@-", "-i", "brief=@-"], "{}");
    expect(&twice, 2, &["cannot read `-`: stdin can be read once only"]);
}

#[test]
fn merge_keys_are_refused_by_name() {
    let place = Place::new();
    let text = fs::read_to_string(workflow("two_steps")).unwrap();
    let text =
        text.replace("first:  {", "first:  &it {").replace("second: {", "second: { <<: *it,");
    fs::write(place.path("w.yaml"), text).unwrap();
    let refused = place.run(["validate", "w.yaml"]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stdout.contains("there are no merge keys; write the keys out"), "{refused}");
}
