//! Nodes that work in a folder of the run. These tests need git.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use graphrun::{
    event::{Event, Report, Status},
    folders::{NewFolder, RunFolders},
    models::{ModelError, ToolCall},
    nodes::Services,
    registry,
};
use serde_json::{Value, json};

use super::{
    Ended,
    agent_tools::{Scripted, call, calls, says},
    run_in, run_prepared, services,
};

/// A repository, and the worktree of a run.
pub(super) struct Home(pub(super) tempfile::TempDir);

impl Home {
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::create_dir(home.repository()).unwrap();
        for (path, content) in files {
            let path = home.repository().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fs::write(home.0.path().join("outside"), "outside\n").unwrap();
        symlink("../outside", home.repository().join("link")).unwrap();
        home.git(&["init", "--quiet"]);
        home.git(&["add", "--all"]);
        home.git(&["commit", "--quiet", "--message", "first"]);
        home
    }

    fn repository(&self) -> PathBuf {
        self.0.path().join("repository")
    }

    fn worktree(&self) -> PathBuf {
        self.0.path().join("run/repo")
    }

    fn git(&self, arguments: &[&str]) {
        let status = Command::new("git")
            .args(["-c", "user.name=User", "-c", "user.email=user@localhost"])
            .args(arguments)
            .current_dir(self.repository())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .status()
            .expect("these tests need git");
        assert!(status.success(), "{arguments:?}");
    }

    pub(super) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.worktree().join(path)).ok()
    }

    /// The folder `repo` of a run.
    pub(super) async fn folders(&self) -> RunFolders {
        let new = NewFolder {
            name: "repo".into(),
            from: self.repository(),
            branch: "auto/run".into(),
            worktree: self.worktree(),
        };
        RunFolders::new("run", [new.find().await.unwrap()])
    }

    async fn run(&self, nodes: &str, input: Value, services: Services) -> Ended {
        let folders = self.folders().await;
        let text = format!(
            "graphrun: 1\nname: w\nstate:\n  path: {{ type: string, default: unused }}\n  answer: string\n  \
             result: json\n  files: {{ type: json, default: [] }}\n  out: json\n  \
             known: {{ type: [{{ file: string, name: string, outcome: passed | failed | skipped }}], default: [] }}\ninput: [files]\n\
             models: {{ m: [x/1, x/2] }}\n\
             agents: {{ a: {{ model: m, tools: [fs.read, fs.write, fs.edit, fs.patch, fs.rm] }} }}\n\
             sandboxes: {{ box: {{ time: 30s, python: {{ requirements: [pytest] }} }} }}\n\
             folders: {{ repo: {{ from: path, git: true }} }}\nstart: it\nnodes:\n{nodes}"
        );
        let text = without_unused(&text);
        let folder = Path::new("tests/nodes");
        run_prepared(folder, &text, input, services, registry(), |it| it.provide(folders)).await
    }
}

/// Removes the declarations that no node uses: they would be diagnostics.
fn without_unused(text: &str) -> String {
    let (mut head, nodes) = text.split_once("nodes:\n").map(|(a, b)| (a.to_owned(), b)).unwrap();
    for (section, mark) in
        [("models:", "agent: a"), ("agents:", "agent: a"), ("sandboxes:", "in: box")]
    {
        if !nodes.contains(mark) {
            head = head
                .lines()
                .filter(|it| !it.starts_with(section))
                .fold(String::new(), |all, it| all + it + "\n");
        }
    }
    head + "nodes:\n" + nodes
}

const AGENT: &str = "  it: { agent: a, folder: repo, prompt: { text: Do it. }, writes: answer, retry: 2, then: end }\n";

fn tool(number: usize, name: &str, arguments: &Value) -> ToolCall {
    call(&format!("call{number:05}"), name, &arguments.to_string())
}

/// The results of the tools that an agent has called.
fn results(model: &Scripted) -> Vec<String> {
    let last = model.asked().pop().unwrap();
    last.messages.into_iter().filter(|it| it.tool_call_id.is_some()).map(|it| it.content).collect()
}

#[tokio::test]
async fn an_agent_changes_files_of_its_folder_and_no_others() {
    let home =
        Home::new(&[("a.txt", "one two two\n"), ("b.txt", "one\ntwo\n"), ("old.txt", "old\n")]);
    let model = Scripted::new([
        calls([
            tool(1, "fs.write", &json!({"path": "src/new.txt", "content": "new\n"})),
            tool(2, "fs.edit", &json!({"path": "a.txt", "old": "one", "new": "1"})),
            tool(3, "fs.edit", &json!({"path": "a.txt", "old": "two", "new": "2"})),
            tool(4, "fs.edit", &json!({"path": "a.txt", "old": "three", "new": "3"})),
            tool(5, "fs.rm", &json!({"path": "old.txt"})),
            tool(6, "fs.rm", &json!({"path": "missing.txt"})),
            tool(7, "fs.write", &json!({"path": "../outside", "content": "x"})),
            tool(8, "fs.write", &json!({"path": ".git/config", "content": "x"})),
            tool(9, "fs.write", &json!({"path": "link", "content": "x"})),
            tool(10, "fs.edit", &json!({"path": "link", "old": "outside", "new": "x"})),
            tool(11, "fs.rm", &json!({"path": "../outside"})),
            tool(12, "fs.write", &json!({"path": "large", "content": "x".repeat((1 << 20) + 1)})),
            tool(
                14,
                "fs.patch",
                &json!({"path": "b.txt", "patch": "@@ -1,2 +1,2 @@\n one\n-two\n+2\n"}),
            ),
            tool(15, "fs.patch", &json!({"path": "b.txt", "patch": "@@ -1 +1 @@\n-three\n"})),
            tool(16, "fs.patch", &json!({"path": "link", "patch": "@@ -1 +1 @@\n-outside\n"})),
        ]),
        calls([
            tool(13, "fs.read", &json!({"path": "src/new.txt"})),
            tool(17, "fs.rm", &json!({"path": "link"})),
            tool(18, "fs.read", &json!({"path": ".git"})),
        ]),
        says("done"),
    ]);
    let ended = home.run(AGENT, json!({}), model.services()).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    let results = results(&model);
    for (at, expected) in [
        "{\"path\":\"src/new.txt\",\"bytes\":4}",
        "{\"path\":\"a.txt\",\"bytes\":10}",
        "error: `a.txt` is not changed: it contains `old` 2 times",
        "error: `a.txt` is not changed: it does not contain `old`",
        "{\"path\":\"old.txt\",\"bytes\":0}",
        "error: there is no file `missing.txt`",
        "error: the file was not accepted",
        "error: the file was not accepted",
        "error: `link` is not a regular file",
        "error: `link` cannot be read: it leads out of the folder",
        "error: there is no file `../outside`",
        "error: the file was not accepted",
        "{\"path\":\"b.txt\",\"bytes\":6}",
        "error: `b.txt` is not changed: hunk 1 is not in the file as it is; read the file again",
        "error: `link` cannot be read: it leads out of the folder",
        "{\"text\":\"new\\n\"",
        "{\"path\":\"link\",\"bytes\":0}",
        "error: `.git` belongs to git and is not read",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(results[at].starts_with(expected), "{at}: {}", results[at]);
    }
    assert_eq!(home.read("a.txt").unwrap(), "1 two two\n");
    assert_eq!(home.read("b.txt").unwrap(), "one\n2\n");
    assert_eq!((home.read("src/new.txt").as_deref(), home.read("old.txt")), (Some("new\n"), None));
    assert_eq!(fs::read_to_string(home.0.path().join("outside")).unwrap(), "outside\n");
    assert!(home.repository().join("old.txt").exists(), "the checkout of the user changed");
    assert!(fs::symlink_metadata(home.worktree().join("link")).is_err(), "only the link is gone");
}

/// What the first model has changed before it failed stays, so the second one reads it.
#[tokio::test]
async fn a_fallback_model_reads_files_as_they_are() {
    let home = Home::new(&[("a.txt", "one\n")]);
    let read = |at| tool(at, "fs.read", &json!({"path": "a.txt"}));
    let edit = |at| tool(at, "fs.edit", &json!({"path": "a.txt", "old": "one", "new": "two"}));
    let model = Scripted::new([
        calls([read(1)]),
        calls([edit(2)]),
        Err(ModelError::Overloaded { after: None, message: "busy".into() }),
        calls([read(3)]),
        calls([edit(4)]),
        calls([read(5)]),
        says("done"),
    ]);
    let ended = home.run(AGENT, json!({}), model.services()).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    let results = results(&model);
    assert_eq!(results.len(), 3);
    for at in [0, 2] {
        assert!(results[at].starts_with("{\"text\":\"two\\n\""), "{at}: {}", results[at]);
    }
    assert!(results[1].contains("\"bytes\""), "the same change is not made twice: {}", results[1]);
}

/// The calls of an answer would otherwise run side by side, and each edit writes the whole file.
#[tokio::test]
async fn changes_of_one_answer_are_made_in_its_order() {
    let lines: Vec<String> = (1..=7).map(|it| format!("line {it} end\n")).collect();
    let home = Home::new(&[("a.txt", &lines.concat())]);
    let edit = |at: usize| {
        let part =
            json!({"path": "a.txt", "old": format!("line {at} "), "new": format!("LINE {at} ")});
        tool(at, "fs.edit", &part)
    };
    let patch = "@@ -2 +2 @@\n-new 2\n+NEW 2\n";
    let mut answer: Vec<ToolCall> = (1..=7).map(edit).collect();
    answer.extend([
        tool(8, "fs.write", &json!({"path": "b.txt", "content": "new 1\nnew 2\n"})),
        tool(9, "fs.patch", &json!({"path": "b.txt", "patch": patch})),
        tool(10, "fs.read", &json!({"path": "b.txt"})),
        tool(11, "fs.rm", &json!({"path": "b.txt"})),
    ]);
    let model = Scripted::new([calls(answer), says("done")]);
    let ended = home.run(AGENT, json!({}), model.services()).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    assert_eq!(home.read("a.txt").unwrap(), lines.concat().replace("line", "LINE"));
    assert_eq!(home.read("b.txt"), None);
    let results = results(&model);
    assert!(results[9].starts_with("{\"text\":\"new 1\\nNEW 2\\n\""), "{}", results[9]);
}

/// No answer of a model orders the edits of different tasks.
#[tokio::test]
async fn edits_of_parallel_tasks_are_all_kept() {
    let lines: Vec<String> = (1..=8).map(|it| format!("line {it} end\n")).collect();
    let home = Home::new(&[("a.txt", &lines.concat())]);
    let nodes = "  it: { map: { over: files, do: edit, width: 8 }, then: end }\n  \
                 edit: { tool: fs.edit, folder: repo, args: { path: '\"a.txt\"', old: item.old, new: item.new } }\n";
    let parts: Vec<Value> = (1..=8)
        .map(|it| json!({"old": format!("line {it} "), "new": format!("LINE {it} ")}))
        .collect();
    let services = Scripted::new([]).services();
    let ended = home.run(nodes, json!({ "files": parts }), services).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    assert_eq!(home.read("a.txt").unwrap(), lines.concat().replace("line", "LINE"));
}

#[tokio::test]
async fn a_declared_tool_runs_in_the_folder_and_changes_nothing() {
    let home = Home::new(&[("a.txt", "one\n")]);
    let program = "import json, sys; word = json.load(sys.stdin)['word']; text = open('a.txt').read(); \
                   open('a.txt', 'w').write('changed'); print(json.dumps({'has': word in text, 'now': open('a.txt').read()}))";
    let nodes = format!(
        "  it: {{ tool: look, args: {{ word: '\"one\"' }}, writes: result, then: end }}\ntools:\n  look:\n    about: Looks.\n    \
         run: [python3, -c, {program:?}]\n    in: box\n    folder: repo\n    input: {{ word: string }}\n    \
         output: {{ has: bool, now: string }}\n"
    );
    let ended = home.run(&nodes, json!({}), services()).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    assert_eq!(ended.state("result"), &json!({ "has": true, "now": "changed" }));
    assert_eq!(home.read("a.txt").unwrap(), "one\n");
}

#[tokio::test]
async fn a_repeated_attempt_does_not_write_twice() {
    let home = Home::new(&[]);
    let write = tool(1, "fs.write", &json!({"path": "x", "content": "1"}));
    let model = Scripted::new([
        calls([write]),
        Err(ModelError::Transient { after: None, message: "gone".into() }),
        says("done"),
    ]);
    let ended = home.run(AGENT, json!({}), model.services()).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    let is_write = |event: &&graphrun::event::RunEvent| {
        matches!(&event.event, Event::TaskReported { report: Report::ToolCall { .. }, .. })
    };
    assert_eq!(ended.events.iter().filter(is_write).count(), 1, "{}", ended.told());
    assert!(ended.told().contains("attempt"), "{}", ended.told());
}

/// A command, a commit of its changes, and their patch.
fn changed_by(script: &str) -> String {
    format!(
        "  it: {{ run: [sh, -c, {script:?}], in: box, folder: repo, changes: [src, gone, odd], writes: {{ answer: stdout }}, then: \
         keep }}\n  keep: {{ commit: {{ folder: repo, message: '\"m\"' }}, then: show }}\n  \
         show: {{ diff: {{ folder: repo }}, writes: answer, then: end }}\n"
    )
}

#[tokio::test]
async fn a_commit_shows_what_a_command_renamed_and_removed() {
    let home = Home::new(&[("src/a.txt", "one\ntwo\n"), ("gone/deep/b.txt", "b\n")]);
    let nodes = changed_by("mv src/a.txt src/b.txt; rm -r gone");
    let ended = home.run(&nodes, json!({}), services()).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    let patch = ended.state("answer").as_str().unwrap();
    for (path, change) in
        [("gone/deep/b.txt", "deleted"), ("src/a.txt", "deleted"), ("src/b.txt", "new")]
    {
        let expected = format!("diff --git a/{path} b/{path}\n{change} file mode");
        assert!(patch.contains(&expected), "{expected}: {patch}");
    }
    assert!(!home.worktree().join("gone").exists());
}

#[tokio::test]
async fn a_command_works_in_a_copy_and_only_its_changes_come_back() {
    let files = [("src/a.txt", "one\n"), ("docs/b.txt", "b\n")];
    let script = "cat docs/b.txt; echo two > src/a.txt; echo other > docs/b.txt; rm docs/b.txt; echo x > new.txt";
    let node = |keys: &str| {
        format!(
            "  it: {{ run: [sh, -c, {script:?}], in: box, folder: repo{keys}, writes: {{ answer: stdout }}, then: end }}\n"
        )
    };
    for (keys, expected) in [("", "one\n"), (", changes: [src]", "two\n")] {
        let home = Home::new(&files);
        let ended = home.run(&node(keys), json!({}), services()).await;
        assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
        assert_eq!(ended.state("answer"), "b\n", "the copy has the files of the folder");
        assert_eq!(home.read("src/a.txt").as_deref(), Some(expected), "{keys}");
        assert_eq!(home.read("docs/b.txt").as_deref(), Some("b\n"), "{keys}");
        assert_eq!(home.read("new.txt"), None, "{keys}");
    }
}

#[tokio::test]
async fn changes_that_cannot_all_come_back_remove_nothing() {
    let many: Vec<String> = (0..201).map(|it| format!("src/{it}.txt")).collect();
    let mut files: Vec<(&str, &str)> = many.iter().map(|it| (it.as_str(), "x\n")).collect();
    files.extend([("odd/a:b", "x\n"), ("gone/c", "x\n")]);
    for (script, expected) in [
        ("rm src/*", "it removed 201 files, more than 200"),
        ("rm -r odd", "1 changed file of `sh` cannot be written back"),
        (
            "rm gone/c; mkdir gone/c; echo x >gone/c/d",
            "cannot be written back: it made `gone/c` a folder",
        ),
        ("rm -r gone; echo x >gone", "cannot be written back: it made `gone` a file"),
    ] {
        let home = Home::new(&files);
        let ended = home.run(&changed_by(script), json!({}), services()).await;
        assert_eq!(ended.end.status, Status::Failed, "{script}");
        assert!(ended.reason().contains(expected), "{script}: {}", ended.reason());
        for (path, content) in &files {
            assert_eq!(home.read(path).as_deref(), Some(*content), "{script} {path}");
        }
    }
}

const TESTS: &str = "  it:\n    run_tests: { runner: pytest }\n    in: box\n    folder: repo\n    \
                     writes: { result: test_result }\n    then: end\n";

#[tokio::test]
async fn tests_of_a_folder_run_with_the_files_of_an_artifact_above_it() {
    let home = Home::new(&[
        ("src/app.py", "def answer():\n    return 41\n"),
        (
            "tests/test_app.py",
            "from app import answer\n\ndef test_answer():\n    assert answer() == 42\n",
        ),
        ("tests/conftest.py", "raise SystemExit('the conftest of the folder was loaded')\n"),
    ]);
    // Without an exception, the `conftest.py` of the folder is not loaded.
    let tests = |more: &str| TESTS.replace("pytest", &format!("pytest, allow: []{more}"));
    let ended = home.run(&tests(""), json!({}), services()).await;
    let result = ended.state("result");
    assert_eq!((&result["passed"], &result["total_tests"]), (&json!(false), &json!(1)), "{result}");
    let files =
        json!({"files": [{"path": "src/app.py", "content": "def answer():\n    return 42\n"}]});
    // Another run of the same id: the first one is removed.
    home.git(&["branch", "-m", "auto/run", "auto/old"]);
    home.git(&["worktree", "remove", "--force", home.worktree().to_str().unwrap()]);
    home.git(&["update-ref", "-d", "refs/graphrun/run/repo"]);
    let ended = home.run(&tests(", artifact: files"), json!({"files": files}), services()).await;
    let result = ended.state("result");
    assert_eq!(
        (&result["passed"], &result["total_tests"]),
        (&json!(true), &json!(1)),
        "{result} {}",
        ended.reason()
    );
    assert_eq!(home.read("src/app.py").unwrap(), "def answer():\n    return 41\n");
}

/// The tests of a repository before a change: one passes, one fails and one is skipped.
const TEST_FILE: &str = "import pytest\n\ndef test_one():\n    pass\n\ndef test_two():\n    assert False\n\n\
                         @pytest.mark.skip\ndef test_three():\n    pass\n";

/// Runs the tests before and after a shell script that changes the repository, and returns whether they pass after it, and
/// the difference.
async fn tested_after(script: &str, tests: &str) -> (Value, Value) {
    let home = Home::new(&[
        ("tests/test_a.py", TEST_FILE),
        ("tests/test_b.py", "def test_b():\n    pass\n"),
    ]);
    let nodes = format!(
        "  it: {{ run_tests: {{ {tests} }}, in: box, folder: repo, writes: {{ known: tests }}, then: change }}\n  \
         change: {{ run: [sh, -c, {script:?}], in: box, folder: repo, changes: [tests, pytest.ini], then: gate }}\n  \
         gate: {{ run_tests: {{ {tests}, baseline: known }}, in: box, folder: repo, writes: {{ result: test_result, out: \
         difference }}, then: end }}\n"
    );
    let ended = home.run(&nodes, json!({}), services()).await;
    assert_eq!(ended.end.status, Status::Done, "{script}: {}", ended.reason());
    (ended.state("result").clone(), ended.state("out").clone())
}

#[tokio::test]
async fn a_change_does_not_pass_by_hiding_tests() {
    let mend = "sed -i 's/assert False/pass/' tests/test_a.py";
    let skip = "sed -i 's/assert False/pytest.skip()/' tests/test_a.py";
    let cut = "head -n 4 tests/test_a.py >a; mv a tests/test_a.py";
    let two = "tests/test_a.py::test_two";
    let gone = json!(["tests/test_a.py::test_three", two]);
    let none = json!([]);
    for (script, passed, [missing, removed, newly_skipped]) in [
        (mend, true, [&none, &none, &none]),
        (
            &format!("{mend}; rm tests/test_b.py"),
            true,
            [&none, &json!(["tests/test_b.py::test_b"]), &none],
        ),
        (skip, false, [&none, &none, &json!([two])]),
        (cut, false, [&gone, &none, &none]),
    ] {
        let (result, difference) =
            tested_after(script, "runner: pytest, allow: [conftest, config]").await;
        let expected =
            json!({"missing": missing, "removed": removed, "newly_skipped": newly_skipped});
        assert_eq!(
            (&result["passed"], &difference),
            (&json!(passed), &expected),
            "{script} {result}"
        );
    }
}

#[tokio::test]
async fn a_command_does_not_pass_by_running_fewer_tests() {
    let tests = "command: [python3, -m, pytest, --junit-xml=report.xml], report: junit, report_path: report.xml";
    let narrow = "sed -i 's/assert False/pass/' tests/test_a.py; \
                  printf '[pytest]\\ntestpaths = tests/test_a.py\\n' >pytest.ini";
    let (result, difference) = tested_after(narrow, tests).await;
    assert_eq!(difference["missing"], json!(["tests.test_b::test_b"]), "{result}");
    let reason = "not passed: tests of the baseline are gone: tests.test_b::test_b";
    assert_eq!((&result["passed"], &result["error_output"]), (&json!(false), &json!(reason)));
}

#[tokio::test]
async fn a_report_without_names_does_not_pass_a_baseline() {
    let tests = "command: [sh, -c, 'echo \"running 1 test\"; test -e tests/quiet || echo \"test a ... ok\"; \
                 echo \"test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\"'], report: libtest";
    let (result, _) = tested_after("true", tests).await;
    assert_eq!(result["passed"], json!(true), "{result}");
    let (result, _) = tested_after("echo x >tests/quiet", tests).await;
    let output = result["error_output"].as_str().unwrap();
    assert_eq!(result["passed"], json!(false));
    assert!(output.contains("the report names no test"), "{output}");
}

#[tokio::test]
async fn a_node_without_the_folders_of_its_run_names_the_reason() {
    let text = "graphrun: 1\nname: w\nstate: { path: { type: string, default: . } }\n\
                folders: { repo: { from: path, git: true } }\nstart: it\n\
                nodes: { it: { discard: repo, then: end } }\n";
    let ended = run_in(Path::new(""), text, json!({}), services(), registry()).await;
    assert!(ended.reason().contains("gave it no folders"), "{}", ended.reason());
}
