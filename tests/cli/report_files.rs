//! `reports`: files that are rendered from the state of a run after steps and at its end.

use std::{
    fs, io,
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::cli::{
    killed::killed,
    program::{Ended, Place, Running, workflow},
};

const PARTS: &str = "parts=[\"a\", \"b\"]";

/// Starts a run of the workflow `reported` with the name `mine` and the output folder `out`.
fn start(place: &Place, more: &[&str]) -> Ended {
    let path = workflow("reported");
    let args = ["execute", &path, "-i", PARTS, "--run-id", "mine", "--out", "out"];
    place.run([&args[..], more, &["--output", "json"]].concat())
}

fn read(place: &Place, name: &str) -> String {
    fs::read_to_string(place.path("out").join(name)).unwrap_or_else(|it| panic!("{name}: {it}"))
}

#[test]
fn reports_show_the_state_when_the_run_waits_and_when_it_ends() {
    let place = Place::new();
    let paused = start(&place, &[]);
    assert_eq!(paused.code, 3, "{paused}");
    assert_eq!(read(&place, "progress.txt"), "1 of 2 by reported, 1 first");
    assert_eq!(read(&place, "report.md"), "# a");
    let files = |ended: &Ended| ended.json()["artifacts"].clone();
    let expected = ["progress.txt", "report.md"].map(|it| place.path("out").join(it));
    assert_eq!(files(&paused), json!(expected), "{paused}");
    let done = place.run(["resume", "mine", "--answer", "judge=\"good\"", "--output", "json"]);
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(read(&place, "progress.txt"), "2 of 2 by reported, 1 first");
    assert_eq!(read(&place, "report.md"), "# a and b: good");
    assert_eq!(files(&done), json!(expected), "{done}");
}

#[test]
fn a_run_that_fails_or_reaches_a_limit_has_its_reports() {
    let place = Place::new();
    let limit = start(&place, &["--max-steps", "1"]);
    assert_eq!(limit.code, 4, "{limit}");
    assert_eq!(read(&place, "report.md"), "# a");
    let paused = place.run(["resume", "mine", "--max-steps", "9"]);
    assert_eq!(paused.code, 3, "{paused}");
    let failed = place.run(["resume", "mine", "--answer", "judge=\"bad\""]);
    assert_eq!(failed.code, 1, "{failed}");
    assert_eq!(read(&place, "report.md"), "# a: bad");
}

#[test]
fn a_report_that_cannot_be_written_is_a_warning() {
    let place = Place::new();
    fs::write(place.path("out"), "a file").unwrap();
    let paused = start(&place, &[]);
    assert_eq!(paused.code, 3, "the run is not affected: {paused}");
    assert_eq!(paused.json()["artifacts"], json!([]));
    for name in ["progress.txt", "report.md"] {
        let warning = format!("warning: the report `{name}` is not written: ");
        assert_eq!(paused.stderr.matches(&warning).count(), 1, "once each: {paused}");
    }
    fs::remove_file(place.path("out")).unwrap();
    let silent = ["resume", "mine", "--answer", "judge=\"good\"", "--progress", "none"];
    let done = place.run(silent);
    assert_eq!((done.code, done.stderr.contains("warning")), (0, false), "{done}");
    assert_eq!(read(&place, "report.md"), "# a and b: good");
}

#[test]
fn a_file_of_other_origin_is_kept_and_hinders_no_other_report() {
    let place = Place::new();
    fs::create_dir(place.path("out")).unwrap();
    fs::write(place.path("out/report.md"), "mine").unwrap();
    let paused = start(&place, &["--progress", "none"]);
    assert_eq!(paused.code, 3, "{paused}");
    let warning = "warning: the report `report.md` is not written: ";
    assert!(paused.stderr.contains(warning), "also without progress: {paused}");
    assert_eq!((&*read(&place, "report.md"), &*read(&place, "progress.txt")).0, "mine");
    assert_eq!(read(&place, "progress.txt"), "1 of 2 by reported, 1 first");
    let done = place.run(["resume", "mine", "--force", "--answer", "judge=\"good\""]);
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(read(&place, "report.md"), "# a and b: good");
}

#[test]
fn after_a_kill_the_next_process_writes_the_reports() {
    let place = Place::new();
    let path = workflow("reported");
    let args = ["execute", &path, "-i", PARTS, "--run-id", "mine", "--out", "out"];
    killed(&place, &args, "task.after_commit=abort");
    assert!(!place.path("out/report.md").exists(), "the process died before");
    let paused = place.run(["resume", "mine"]);
    assert_eq!(paused.code, 3, "{paused}");
    assert_eq!(read(&place, "report.md"), "# a");
    let verified = place.run(["runs", "verify", "mine"]);
    assert_eq!(verified.code, 0, "the journal has nothing of it: {verified}");
}

#[test]
fn a_finished_run_writes_lost_reports_again() {
    let place = Place::new();
    assert_eq!(start(&place, &[]).code, 3);
    assert_eq!(place.run(["resume", "mine", "--answer", "judge=\"good\""]).code, 0);
    fs::remove_dir_all(place.path("out")).unwrap();
    let again = place.run(["resume", "mine"]);
    assert!(again.stderr.contains("is done already"), "{again}");
    assert_eq!(read(&place, "report.md"), "# a and b: good");
}

#[test]
fn a_report_of_each_step_is_written_while_the_run_works() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = provider.local_addr().unwrap();
    let place = Place::new();
    fs::write(place.path("slow.yaml"), SLOW).unwrap();
    let mut command = place.command(["execute", "slow.yaml", "-i", "brief=x", "--out", "out"]);
    command.env("OPENAI_BASE_URL", format!("http://{address}/v1"));
    let run = Running::of(command);
    // The model never answers, so the run stays in its second step.
    let _call = provider.accept().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let written = || fs::read_to_string(place.path("out/progress.txt"));
    while written().ok().as_deref() != Some("started") {
        assert!(Instant::now() < until, "the step is not shown: {:?}", written());
        thread::yield_now();
    }
    let missing = fs::read_to_string(place.path("out/end.txt")).map_err(|it| it.kind());
    assert_eq!(missing, Err(io::ErrorKind::NotFound), "it is written when the run stops");
    run.signal(Signal::SIGKILL);
}

const SLOW: &str = "graphrun: 1
name: slow
state: { brief: string, log: { type: string, default: new }, answer: string }
input: brief
agents: { slow: { model: openai/gpt-5-mini } }
reports:
  progress.txt: { render: { text: '{{ log }}' }, each: step }
  end.txt: { render: { text: '{{ log }}' } }
start: begin
nodes:
  begin: { set: { log: '\"started\"' }, then: ask }
  ask: { agent: slow, prompt: { text: '{{ brief }}' }, writes: answer, then: end }
";
