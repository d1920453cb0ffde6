//! Errors before a run starts or resumes, with exit code and remedy.

use std::{collections::BTreeSet, ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, process::Command};

use crate::cli::{
    killed::killed,
    program::{Ended, Place, Running, workflow},
};

#[test]
fn wrong_usage_is_reported_on_stderr_with_exit_2() {
    let place = Place::new();
    for args in [&["fly"][..], &["execute"], &["execute", "w.yaml", "-i", "brief"], &["resume"]] {
        let ended = place.run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ended.stderr.starts_with("error: "), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn a_missing_workflow_is_exit_2() {
    let ended = Place::new().run(["execute", "nowhere.yaml"]);
    insta::assert_snapshot!(ended, @r"
    exit 2
    stdout:
    stderr:
    error: cannot read `nowhere.yaml`
      because: No such file or directory (os error 2)
    help: a relative path starts at the current folder; check both
    ");
}

#[test]
fn input_that_does_not_fit_is_exit_2_and_starts_nothing() {
    let place = Place::new();
    let ended = place.run(["execute", &workflow("two_steps"), "-i", "brif=x"]);
    insta::assert_snapshot!(ended, @r"
    exit 2
    stdout:
    stderr:
    error: the input does not fit the workflow; nothing was started
      - `brif` is not an input of the workflow; did you mean `brief`?
      - `brief` is missing (it is a text (string))
    help: give a field with `-i KEY=VALUE` or `-i KEY=@FILE`, several with `-i @FILE.json`
    ");
    assert!(place.is_empty());
}

#[test]
fn a_missing_key_is_exit_5_and_starts_nothing() {
    let place = Place::new();
    let ended = place.run(["execute", &workflow("agent"), "-i", "brief=x"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""));
    for part in ["`write`", "OPENAI_API_KEY", "help: "] {
        assert!(ended.stderr.contains(part), "{part} is missing in: {}", ended.stderr);
    }
    assert!(place.is_empty());
}

#[test]
fn agents_that_miss_the_same_keys_are_reported_together() {
    let place = Place::new();
    let team = concat!(env!("CARGO_MANIFEST_DIR"), "/graphs/dev_team.yaml");
    let ended = place.run(["execute", team, "-i", "brief=x"]);
    assert_eq!(ended.code, 5, "{ended}");
    let lines = || ended.stderr.lines().filter(|it| it.starts_with("  - "));
    let groups = lines().filter(|it| it.starts_with("  - `")).count();
    let others: BTreeSet<&str> =
        lines().filter(|it| it.starts_with("  - or no key for ")).collect();
    assert_eq!((groups, others.len(), lines().count()), (2, 1, 3), "{ended}");
    assert!(ended.stderr.contains("`ba`, `qc`"), "{ended}");
}

#[test]
fn the_variables_of_missing_keys_are_named_for_many_agents() {
    let place = Place::new();
    let many = concat!(env!("CARGO_MANIFEST_DIR"), "/graphs/autocode.yaml");
    let ended = place.run(["execute", many, "-i", "repo_path=.", "-i", "task=x"]);
    assert_eq!(ended.code, 5, "{ended}");
    for variable in ["OPENAI_API_KEY, or", "ANTHROPIC_API_KEY, or"] {
        assert!(ended.stderr.contains(variable), "{variable} is cut: {ended}");
    }
}

#[test]
fn an_invalid_recording_is_exit_2_and_starts_nothing() {
    let place = Place::new();
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--replay", "nowhere.jsonl"];
    let ended = place.run(args);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    assert!(ended.stderr.contains("nowhere.jsonl"), "{ended}");
    assert!(place.is_empty());
}

#[test]
fn an_unwritable_recording_is_reported_with_its_cause() {
    let place = Place::new();
    fs::write(place.path("notes.md"), "the last line has no end").unwrap();
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--record", "notes.md"];
    let refused = place.run_with(args, [("OPENAI_API_KEY", "sk-test")]);
    assert_eq!(refused.code, 5, "{refused}");
    assert!(refused.stderr.contains("something else than a recording"), "{refused}");
}

#[test]
fn a_run_that_could_not_deliver_is_not_started() {
    let place = Place::new();
    fs::write(place.path("in_the_way"), "").unwrap();
    let execute =
        |out: &str| place.run(["execute", &workflow("delivers"), "-i", "brief=x", "--out", out]);
    let refused = execute("in_the_way/out");
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{refused}");
    assert!(refused.stderr.contains("in_the_way` cannot be written"), "{refused}");
    assert!(refused.stderr.contains("`--out`"), "{refused}");
    let delivered = execute("new/out");
    assert_eq!(delivered.code, 0, "{delivered}");
    assert_eq!(fs::read_to_string(place.path("new/out/brief.json")).unwrap(), "\"x\"\n");
}

#[test]
fn an_invalid_database_is_refused_with_the_layer_that_named_it() {
    let place = Place::new();
    let by_flag = place.run(["runs", "list", "--db", "mysql://host/db"]);
    let by_variable = place.run_with(["runs", "list"], [("GRAPHRUN_DB", "runs.db")]);
    assert!(by_flag.stderr.starts_with("error: --db is `mysql://host/db`"), "{by_flag}");
    assert!(by_variable.stderr.starts_with("error: GRAPHRUN_DB is `runs.db`"), "{by_variable}");
    assert_eq!((by_flag.code, by_variable.code), (2, 5));
}

#[test]
fn a_second_run_under_the_same_id_is_exit_2() {
    let place = Place::new();
    let args = ["execute", &workflow("two_steps"), "-i", "brief=x", "--run-id", "mine"];
    assert_eq!(place.run(args).code, 0);
    let refused = place.run(args);
    assert!(
        refused.code == 2 && refused.stderr.contains("there is a run `mine` already"),
        "{refused}"
    );
    // The refused run was never saved, so it cannot be resumed.
    assert!(!refused.stderr.contains("graphrun resume"), "{refused}");
    let name = place.run(["runs", "show", "mine", "--output", "json"]).json()["name"].clone();
    let name = name.as_str().unwrap();
    let refused = place.run([&args[..5], &[name]].concat());
    let said = format!("there is a run `{name}` already");
    assert!(refused.code == 2 && refused.stderr.contains(&said), "{refused}");
}

/// The command for the existing run depends on its status, and the new workflow does not matter.
#[test]
fn an_id_in_use_is_refused_with_the_command_for_its_run() {
    let place = Place::new();
    for (name, code, command) in [
        ("two_steps", 0, "see its result with: graphrun runs show run-"),
        ("asks", 3, "continue it with: graphrun resume run-"),
        ("fails", 1, "see why it failed with: graphrun runs show run-"),
    ] {
        let id = format!("run-{name}");
        let begun = place.run(["execute", &workflow(name), "-i", "brief=x", "--run-id", &id]);
        assert_eq!(begun.code, code, "{begun}");
        let before = place.run(["runs", "export", &id]).stdout;
        for again in ["two_steps", "asks"] {
            let args = ["execute", &workflow(again), "-i", "brief=y", "--run-id", &id];
            let refused = place.run(args.into_iter().chain(["--out", "new"]));
            let said = format!("error: there is a run `{id}` already, of `{name}` (");
            assert!(refused.code == 2 && refused.stderr.starts_with(&said), "{refused}");
            assert!(refused.stderr.contains(&format!("{command}{name}")), "{refused}");
            assert!(refused.stderr.contains("choose another id, or omit it"), "{refused}");
        }
        assert_eq!(place.run(["runs", "export", &id]).stdout, before, "nothing has changed");
    }
    assert!(!place.path("new").exists());
}

/// A run of another process, and one whose process has died.
#[test]
fn a_run_of_another_process_is_refused_with_its_owner() {
    let place = Place::new();
    fs::write(place.path("w.yaml"), WAITS).unwrap();
    let execute = ["execute", "w.yaml", "--run-id", "run-1"];
    let mut running = Running::of(place.command(execute));
    running.wait_for("waits until");
    let again = place.run(execute);
    assert!(again.code == 2 && again.stderr.contains("`w` (running)"), "{again}");
    assert!(again.stderr.contains("progress with: graphrun runs show run-1"), "{again}");
    let owner = format!("run `run-1` is owned by process {} on ", running.id());
    let stop = format!("(`kill {}` on ", running.id());
    for args in [&["resume", "run-1"][..], &["retry", "run-1"], &["runs", "rm", "run-1"]] {
        let refused = place.run(args);
        assert!(refused.code == 6 && refused.stderr.contains(&owner), "{refused}");
        let (_, since) = refused.stderr.split_once(" since 20").unwrap();
        assert!(since.contains("Z; its lease expires at 20"), "{refused}");
        assert!(refused.stderr.contains(&stop), "{refused}");
    }
    let execute = ["execute", "w.yaml", "--run-id", "run-2"];
    killed(&place, &execute, "task.before_run=abort");
    let again = place.run(execute);
    assert!(again.code == 2 && again.stderr.contains("with: graphrun resume run-2"), "{again}");
}

const WAITS: &str = r#"
graphrun: 1
name: w
state: { done: bool? }
start: a
nodes:
  a: { wait: 60s, then: b }
  b: { set: { done: "true" }, then: end }
"#;

#[test]
fn an_unknown_run_is_exit_6_with_and_without_a_database() {
    let place = Place::new();
    insta::assert_snapshot!(place.run(["resume", "calm-otter"]), @r"
    exit 6
    stdout:
    stderr:
    error: there is no run `calm-otter`: there is no database `.graphrun/runs.db`
    help: change to the folder where the run was started, or name its database with `--db`
    ");
    assert!(place.is_empty());
    place.execute("two_steps");
    insta::assert_snapshot!(place.run(["runs", "show", "calm-otterrr"]), @r"
    exit 6
    stdout:
    stderr:
    error: there is no run `calm-otterrr`
    help: `graphrun runs list` lists all runs
    ");
}

#[test]
fn a_workflow_that_is_gone_cannot_be_resumed() {
    let place = Place::new();
    let copy = place.path("asks.yaml");
    fs::copy(workflow("asks"), &copy).unwrap();
    let asked = place.run(["execute", "asks.yaml", "-i", "brief=x", "--output", "json"]);
    assert_eq!(asked.code, 3, "{asked}");
    fs::remove_file(copy).unwrap();
    let ended = place.run(["resume", asked.json()["name"].as_str().unwrap()]);
    assert!(ended.code == 6 && ended.stderr.contains("asks.yaml"), "{ended}");
    assert!(ended.stderr.contains("restore it to resume the run"), "{ended}");
}

#[test]
fn a_name_that_leads_to_another_folder_is_exit_2() {
    let place = Place::new();
    for (flag, name) in [("--thread", ".."), ("--thread", "."), ("--run-id", ".")] {
        let ended = place.run(["execute", &workflow("two_steps"), "-i", "brief=x", flag, name]);
        assert!(ended.code == 2 && ended.stderr.contains("is a folder, and no name"), "{ended}");
    }
    assert!(place.is_empty());
}

#[test]
fn a_variable_that_is_no_text_is_exit_5() {
    let place = Place::new();
    let value = OsStr::from_bytes(b"sqlite:\xff.db");
    for name in ["GRAPHRUN_DB", "GRAPHRUN_MAX_STEPS", "OPENAI_BASE_URL", "OPENAI_API_KEY"] {
        let mut command = place.command(["execute", &workflow("two_steps"), "-i", "brief=x"]);
        let ended = Ended::of(command.env(name, value));
        assert!(
            ended.code == 5 && ended.stderr.contains(&format!("{name} is not UTF-8")),
            "{ended}"
        );
    }
    assert!(place.is_empty());
    let mut command = place.command(["execute", &workflow("two_steps"), "-i", "brief=x"]);
    assert_eq!(Ended::of(command.env("LS_COLORS", value)).code, 0, "of another program");
}

#[test]
fn a_proof_without_a_database_is_exit_6() {
    let place = Place::new();
    let ended = place.run(["runs", "verify", "--output", "json"]);
    assert!(ended.code == 6 && ended.stderr.contains("there is no database"), "{ended}");
    for args in
        [&["runs", "list"][..], &["runs", "prune", "--older-than", "0"], &["resume", "--due"]]
    {
        assert_eq!(place.run(args).code, 0, "{args:?}");
    }
}

#[test]
fn a_read_only_database_is_read_and_never_written() {
    let place = Place::new();
    let run_read_only = |args: &str| {
        let program = place.command(args.split(' '));
        let mut command = Command::new("bwrap");
        command.args(["--dev-bind", "/", "/", "--ro-bind"]).args([place.path(""), place.path("")]);
        command.arg(program.get_program()).args(program.get_args()).current_dir(place.path(""));
        command.env_clear().envs(program.get_envs().filter_map(|(name, it)| Some((name, it?))));
        Ended::of(&mut command)
    };
    for name in ["asks", "two_steps"] {
        fs::copy(workflow(name), place.path(&format!("{name}.yaml"))).unwrap();
    }
    let execute = "execute two_steps.yaml -i brief=x --out /tmp";
    let new = run_read_only(execute);
    let why = "its file system is read-only; copy it to another one, or give another path";
    let said = format!(".graphrun/runs.db cannot be used: {why}");
    assert!(new.code == 5 && new.stderr.contains(&said), "{new}");
    let asked = place.run(["execute", "asks.yaml", "-i", "brief=x", "--run-id", "run-1"]);
    assert_eq!(asked.code, 3, "{asked}");
    for args in [
        "runs list",
        "runs show run-1",
        "runs state run-1",
        "runs events run-1",
        "runs history run-1",
        "runs export run-1",
        "runs diff run-1@0 run-1@0",
        "runs verify",
        "runs prune --older-than 1d --dry-run",
        "graph asks.yaml --run run-1",
    ] {
        let ended = run_read_only(args);
        assert_eq!(ended.code, 0, "{args}: {ended}");
    }
    for args in [
        execute,
        "resume run-1",
        "resume run-1 --answer help=\"stop\"",
        "fork run-1@0",
        "runs rm run-1",
        "runs prune --older-than 1d",
    ] {
        let ended = run_read_only(args);
        assert!(ended.code == 5 && ended.stderr.contains(&said), "{args}: {ended}");
    }
    let doctor = run_read_only("doctor");
    assert!(doctor.stdout.contains(why), "{doctor}");
    let answered = place.run(["resume", "run-1", "--answer", "help=\"stop\""]);
    assert_eq!(answered.code, 0, "nothing is lost: {answered}");
}

#[test]
fn a_run_at_its_end_is_not_migrated() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let ended = place.run(["migrate", &name, &workflow("two_steps")]);
    assert!(ended.code == 6 && ended.stderr.starts_with("error: "), "{ended}");
}
