//! `run`: real commands in the real sandbox.

use std::{
    fs,
    time::{Duration, Instant},
};

use graphrun::event::Status;
use serde_json::{Value, json};

use super::run;
use crate::tracing::Seen;

/// A workflow of one command, whose fields are those that a command can write.
fn command(node: &str) -> String {
    format!(
        "graphrun: 1\nname: w\n\
         state:\n  words: string\n  n: {{ type: int, default: 3 }}\n  out: string\n  err: string\n  \
         code: int\n  ok: bool\n  data: json\n  caught: string\n  \
         files: {{ type: [{{ path: string, content: string }}], default: [] }}\n\
         input: [words, files]\nsandboxes: {{ box: {{ time: 10s }} }}\nstart: it\nnodes:\n  it:\n    \
         in: box\n{node}    then: end\n"
    )
}

fn words(words: &str) -> Value {
    json!({ "words": words })
}

#[tokio::test]
async fn standard_output_and_error_are_separate() {
    let node = "    run: [sh, -c, 'echo out; echo err >&2; exit 3']\n    \
                writes: { out: stdout, err: stderr, code: exit_code, ok: ok }\n";
    let ended = run(&command(node), words("")).await;
    assert_eq!(ended.end.status, Status::Done, "{:?}", ended.end.reason);
    let fields = ["out", "err", "code", "ok"].map(|it| ended.state(it).clone());
    assert_eq!(fields, [json!("out\n"), json!("err\n"), json!(3), json!(false)]);
    assert!(ended.told().contains("`sh` ended with 3"), "{}", ended.told());
}

#[tokio::test]
async fn values_reach_a_command_uninterpreted() {
    let evil = "'; echo $HOME `id` \"$(id)\" -n \u{7} é\n";
    let node = "    run: [sh, -c, 'printf \"%s|%s|\" \"$WORDS\" \"$N\"; cat']\n    \
                env: { WORDS: words, N: n + 1 }\n    stdin: words\n    writes: { out: stdout }\n";
    let ended = run(&command(node), words(evil)).await;
    // The bell is the one character that is not kept.
    let kept = evil.replace('\u{7}', "");
    assert_eq!(*ended.state("out"), json!(format!("{kept}|4|{kept}")), "{}", ended.reason());
}

#[tokio::test]
async fn files_are_there_and_nothing_else_is() {
    let files = json!([{"path": "a/b.txt", "content": "one"}, {"path": "c", "content": "two"}]);
    let node = "    run: [sh, -c, 'find . -type f | sort; cat a/b.txt c']\n    files: files\n    \
                stdin: words\n    writes: { out: stdout }\n";
    let ended = run(&command(node), json!({"words": "x", "files": files})).await;
    assert_eq!(*ended.state("out"), json!("./a/b.txt\n./c\nonetwo"), "{}", ended.reason());
}

#[tokio::test]
async fn printed_json_is_a_value() {
    let node = "    run: [printf, '{\"a\": [1, 2.5, null]}']\n    writes: { data: json }\n";
    let ended = run(&command(node), words("")).await;
    assert_eq!(*ended.state("data"), json!({"a": [1, 2.5, null]}), "{}", ended.reason());
    let node = "    run: [echo, none]\n    writes: { data: json }\n";
    let ended = run(&command(node), words("")).await;
    assert_eq!(ended.end.status, Status::Failed);
    assert!(ended.reason().contains("`echo` printed invalid JSON"), "{}", ended.reason());
}

#[tokio::test]
async fn output_that_is_cut_is_not_called_invalid_json() {
    let program = "import json; print(json.dumps([\\\"x\\\" * 2000000]))";
    let node = format!("    run: [python3, -c, \"{program}\"]\n    writes: {{ data: json }}\n");
    let ended = run(&command(&node), words("")).await;
    let expected = "`python3` printed more JSON than the 1 MiB that are kept of its output";
    assert!(ended.reason().contains(expected), "{}", ended.reason());
}

/// A value of the state may be larger than a generated file.
#[tokio::test]
async fn standard_input_may_be_as_large_as_a_value() {
    let node =
        "    run: [sh, -c, 'wc -c; ls -A /box']\n    stdin: words\n    writes: { out: stdout }\n";
    let ended = run(&command(node), words(&"a".repeat(12 << 20))).await;
    assert_eq!(*ended.state("out"), json!("12582912\n.home\n"), "{}", ended.reason());
}

#[tokio::test]
async fn an_unwritten_exit_code_is_a_failure_that_can_be_caught() {
    let node = "    run: [sh, -c, 'echo first >&2; echo the reason >&2; exit 7']\n    \
                writes: { out: stdout }\n";
    let ended = run(&command(node), words("")).await;
    assert_eq!(ended.end.status, Status::Failed);
    let said = "`sh` ended with 7:\nfirst\nthe reason";
    assert!(ended.reason().contains(said), "{}", ended.reason());
    let caught = format!("{node}    catch: {{ command: mend }}\n");
    let mend = "  mend: { set: { caught: '\"yes\"' }, then: end }\n";
    let ended = run(&(command(&caught) + mend), words("")).await;
    assert_eq!((ended.end.status, ended.state("caught")), (Status::Done, &json!("yes")));
}

#[tokio::test]
async fn a_failure_has_the_last_20_lines_of_the_output() {
    let node = "    run: [sh, -c, 'seq 30 >&2; exit 7']\n    writes: { out: stdout }\n";
    let ended = run(&command(node), words("")).await;
    let last: Vec<String> = (11..=30).map(|it: u8| it.to_string()).collect();
    let said = format!("`sh` ended with 7:\n{}", last.join("\n"));
    assert!(ended.reason().contains(&said), "{}", ended.reason());
}

#[tokio::test]
async fn a_command_that_does_not_end_is_stopped() {
    let text = command("    run: [sleep, '600']\n    writes: { ok: ok }\n");
    let ended = run(&text.replace("10s", "1s"), words("")).await;
    assert_eq!(ended.end.status, Status::Failed, "it did not end, so there is no result");
    assert!(ended.reason().contains("`sleep` was stopped after 1s"), "{}", ended.reason());
}

#[tokio::test]
async fn a_command_ends_with_the_timeout_of_its_node() {
    let node = "    run: [sh, -c, 'sleep 600 # of g12']\n    timeout: 1s\n    writes: { ok: ok }\n    \
                catch: { timeout: mend }\n";
    let mend = "  mend: { set: { caught: '\"late\"' }, then: end }\n";
    let begun = Instant::now();
    let ended = run(&(command(node) + mend), words("")).await;
    assert_eq!((ended.end.status, ended.state("caught")), (Status::Done, &json!("late")));
    assert!(begun.elapsed() < Duration::from_secs(9), "the sandbox itself would end it after 10 s");
    let is_it = |process: &fs::DirEntry| {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains("sleep 600 # of g12")
    };
    let left = || fs::read_dir("/proc").unwrap().map(Result::unwrap).filter(is_it).count();
    // It was killed before its failure was reported; the system may still be taking it down.
    while left() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(9), "it sleeps on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_for_the_operator() {
    let node = "    run: [no-such-program]\n    catch: { any: it }\n    max_visits: 2\n    \
                writes: { ok: ok }\n";
    let ended = run(&command(node), words("")).await;
    assert_eq!(ended.end.status, Status::Failed);
    let reason = ended.reason();
    assert!(reason.contains("no program `no-such-program` inside the sandbox"), "{reason}");
}

/// The command gives every name that its parent was started with the form that a missing program once had.
#[tokio::test]
async fn a_command_cannot_make_its_program_seem_absent() {
    let forge = "tr '\\0' '\\n' </proc/$PPID/cmdline | sed -n 's/^std[a-z]*-/missing-/p' | \
                 while read -r name; do : >$name; done; ls >&2; exit 3";
    let forge = serde_json::to_string(forge).unwrap();
    let node = format!("    run: [sh, -c, {forge}]\n    writes: {{ ok: ok, out: stderr }}\n");
    let ended = run(&command(&node), words("")).await;
    assert_eq!(*ended.state("ok"), json!(false), "{}", ended.reason());
}

#[tokio::test]
async fn endless_output_is_truncated_and_the_job_continues() {
    let node = "    run: [sh, -c, 'yes | head -c 3000000']\n    writes: { out: stdout, ok: ok }\n";
    let ended = run(&command(node), words("")).await;
    let out = ended.state("out").as_str().unwrap_or_default();
    assert_eq!(*ended.state("ok"), json!(true), "{}", ended.reason());
    assert!(out.len() < 1_100_000 && out.ends_with("\n… cut after 1 MiB\n"), "{}", out.len());
    let endless = run(&command("    run: [yes]\n    writes: { out: stdout }\n"), words("")).await;
    assert_eq!(endless.end.status, Status::Failed);
}

#[tokio::test]
async fn there_is_no_network_and_no_file_of_the_host() {
    let node = "    run: [sh, -c, 'ls /root /home 2>/dev/null; cat /etc/shadow; echo $HOST_ONLY; \
                cat /proc/net/dev | grep -c :']\n    writes: { out: stdout, ok: ok }\n";
    let ended = run(&command(node), words("")).await;
    assert_eq!(*ended.state("out"), json!("\n1\n"), "{}", ended.reason());
}

#[tokio::test]
async fn a_command_is_a_span_within_its_attempt() {
    let (seen, guard) = Seen::start();
    let node = "    run: [sh, -c, 'exit 3']\n    writes: { code: exit_code }\n";
    let ended = run(&command(node), words("")).await;
    drop(guard);
    assert_eq!(ended.end.status, Status::Done, "{:?}", ended.end.reason);
    seen.has("run/step/task/sandbox", &["exit_code=3"]);
}

#[tokio::test]
async fn packages_of_the_sandbox_are_there() {
    let text = command(
        "    run: [python, -m, pytest, --version]\n    writes: { out: stdout, err: stderr }\n",
    );
    let packages = "box: { time: 60s, python: { requirements: [pytest] } }";
    let ended = run(&text.replace("box: { time: 10s }", packages), words("")).await;
    let told = format!("{}{}", ended.state("out"), ended.state("err"));
    assert!(told.contains("pytest "), "{told} {}", ended.reason());
}

/// Runs the command `python3 scripts/gate.py`, with the folder of the workflow and files of the state.
async fn gate(script: &str, files: Value) -> super::Ended {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("scripts")).unwrap();
    fs::write(folder.path().join("scripts/gate.py"), script).unwrap();
    let node = "    run: [python3, scripts/gate.py]\n    scripts: [scripts/gate.py]\n    files: files\n    \
                writes: { out: stdout }\n";
    let input = json!({"words": "", "files": files});
    let services = super::services();
    let registry = graphrun::registry();
    super::run_in(folder.path(), &command(node), input, services, registry).await
}

#[tokio::test]
async fn a_script_beside_the_workflow_runs_on_the_files_of_the_state() {
    let files = json!([{"path": "a.txt", "content": "one"}]);
    let ended = gate("print(open('a.txt').read())", files).await;
    assert_eq!(*ended.state("out"), json!("one\n"), "{}", ended.reason());
}

#[tokio::test]
async fn no_file_of_the_state_takes_the_place_of_a_script() {
    let files = json!([{"path": "scripts/gate.py", "content": "print('mine')"}]);
    let ended = gate("print('the gate')", files).await;
    assert_eq!(ended.end.status, Status::Failed);
    let expected = "a file under the name of the script `scripts/gate.py`";
    assert!(ended.reason().contains(expected), "{}", ended.reason());
}

#[test]
fn a_changed_script_changes_the_fingerprint_of_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let fingerprint = |script: &str| {
        fs::write(folder.path().join("gate.py"), script).unwrap();
        let node = "    run: [python3, gate.py]\n    scripts: gate.py\n";
        let file = graphrun::diagnostic::SourceFile { name: "w.yaml".into(), text: command(node) };
        let (workflow, _) =
            graphrun::workflow::parse(file.into(), folder.path(), &graphrun::registry()).unwrap();
        let factory = graphrun::nodes::factory(super::services(), graphrun::registry());
        let graph = workflow.into_graph(&factory).graph;
        graph.nodes["it"].describe().fingerprint.clone()
    };
    let first = fingerprint("print(1)");
    assert_eq!(fingerprint("print(1)"), first);
    assert_ne!(fingerprint("print(2)"), first);
}

/// Runs a command that ends with a code, with three attempts for the code 75.
async fn retried(code: u8, writes: &str) -> (super::Ended, usize) {
    let node = format!(
        "    run: [sh, -c, 'exit {code}']\n    \
         retry: {{ exit_codes: [75], attempts: 3, initial: 1ms, max: 1ms }}\n    \
         writes: {{ {writes} }}\n"
    );
    let ended = run(&command(&node), words("")).await;
    let note = format!("`sh` ended with {code}\"");
    let is_note = |it: &&str| it.contains("\"note\"") && it.contains(&note);
    let attempts = ended.told().lines().filter(is_note).count();
    (ended, attempts)
}

#[tokio::test]
async fn a_named_exit_code_is_a_result_only_after_the_last_attempt() {
    let (ended, attempts) = retried(75, "ok: ok, code: exit_code").await;
    assert_eq!((ended.state("ok"), ended.state("code"), attempts), (&json!(false), &json!(75), 3));
    let (ended, attempts) = retried(1, "ok: ok, code: exit_code").await;
    assert_eq!((ended.state("code"), attempts), (&json!(1), 1));
}

#[tokio::test]
async fn only_named_exit_codes_are_tried_again() {
    for (code, expected) in [(75, 3), (1, 1)] {
        let (ended, attempts) = retried(code, "out: stdout").await;
        assert_eq!((ended.end.status, attempts), (Status::Failed, expected), "{code}");
        assert!(ended.reason().contains(&format!("`sh` ended with {code}")), "{}", ended.reason());
    }
}
