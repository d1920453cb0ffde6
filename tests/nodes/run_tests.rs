//! `run_tests`: its runners and what their results prove.

use serde_json::{Value, json};

use super::run;

fn tests(how: &str) -> String {
    format!(
        "graphrun: 1\nname: w\n\
         state:\n  code: {{ files: [{{ path: string, content: string }}] }}\n  \
         result: json\n\
         input: code\n\
         sandboxes: {{ box: {{ time: 30s, python: {{ requirements: [pytest] }} }} }}\n\
         start: it\nnodes:\n  it:\n    run_tests: {{ artifact: code, {how} }}\n    in: box\n    \
         writes: {{ result: test_result }}\n    then: end\n"
    )
}

/// Whether the tests passed, and the proof.
async fn result(how: &str, files: &[(&str, &str)]) -> (Value, Value, String) {
    let file = |(path, content): &(&str, &str)| json!({"path": path, "content": content});
    let files: Vec<Value> = files.iter().map(file).collect();
    let ended = run(&tests(how), json!({"code": {"files": files}})).await;
    let result = ended.state("result");
    let shown = format!("{} {result} {}", ended.reason(), ended.told());
    (result["passed"].clone(), result["proof"].clone(), shown)
}

#[tokio::test]
async fn a_result_names_its_proof() {
    let isolated = "runner: pytest, proof: isolated, fixed: [acceptance]";
    let test = ("test_a.py", "def test_a():\n    pass\n");
    let in_node = ("a.test.mjs", "import test from 'node:test';\ntest('a', () => {});\n");
    let failing = ("b.test.cjs", "require('node:test')('b', () => { throw new Error('x'); });\n");
    // The code under test can print each of these reports itself: they say nothing about it.
    let forged = |text: &'static str| [("given.txt", text)];
    let libtest = forged(
        "running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; \
         finished in 0s\n",
    );
    let go = forged(
        "{\"Action\":\"run\",\"Package\":\"a\",\"Test\":\"T\"}\n{\"Action\":\"pass\",\"Package\":\"a\",\"Test\":\"T\"}\n",
    );
    let jest = forged(
        "{\"numTotalTests\":1,\"success\":true,\"testResults\":[{\"status\":\"passed\",\
         \"assertionResults\":[{\"status\":\"passed\"}]}]}",
    );
    for (how, files, is_passed, proof) in [
        ("runner: node", &[in_node][..], true, "in_process"),
        ("runner: node, proof: unproven", &[in_node, failing], false, "in_process"),
        ("command: [cat, given.txt], report: libtest", &libtest, true, "unproven"),
        ("command: [cat, given.txt], report: go", &go, true, "unproven"),
        ("command: [cat, given.txt], report: libtest", &go, false, "unproven"),
        ("command: [cat], report: jest, report_path: given.txt", &jest, true, "unproven"),
        ("command: [false], report: jest, report_path: given.txt", &jest, false, "unproven"),
        ("runner: pytest", &[test], true, "in_process"),
        (isolated, &[("app.py", "print('app')\n")], true, "isolated"),
        (isolated, &[("app.py", "print('other')\n"), test], false, "isolated"),
        ("command: [echo, \"1..1\\nok 1\"], report: tap", &[test], true, "unproven"),
        ("command: [echo, \"1..1\\nnot ok 1\"], report: tap", &[test], false, "unproven"),
        (
            "command: [cp, given.xml, report.xml], report: junit, report_path: report.xml",
            &[("given.xml", "<testsuite><testcase/></testsuite>")],
            true,
            "unproven",
        ),
    ] {
        let (passed, proven, shown) = result(how, files).await;
        assert_eq!((passed, proven), (json!(is_passed), json!(proof)), "{how}: {shown}");
        assert!(shown.contains(&format!("tests passed ({proof})")), "{how}: {shown}");
    }
}

#[tokio::test]
async fn a_conftest_is_loaded_only_where_it_is_allowed() {
    let files = [
        ("conftest.py", "import pytest\n\n@pytest.fixture\ndef three():\n    return 3\n"),
        ("test_a.py", "def test_a(three):\n    assert three == 3\n"),
    ];
    for (how, is_passed) in [
        ("runner: pytest", true),
        ("runner: pytest, allow: [conftest]", true),
        ("runner: pytest, allow: []", false),
        ("runner: pytest, allow: [skip]", false),
    ] {
        let (passed, _, shown) = result(how, &files).await;
        assert_eq!(passed, json!(is_passed), "{how}: {shown}");
        assert_eq!(shown.contains("`allow: [conftest]`"), !is_passed, "{how}: {shown}");
    }
}

#[tokio::test]
async fn a_failure_in_node_shows_the_test_and_its_message() {
    let test = "const test = require('node:test');\nconst assert = require('node:assert');\n\
                test('adds', () => assert.strictEqual(4, 3, 'the sum is wrong'));\n";
    for (files, wanted) in [
        ([("a.test.js", test)], &["adds", "the sum is wrong", "a.test.js:3"][..]),
        (
            [("a.test.mjs", "import test from 'node:test';\ntest('a', () => {\n")],
            &["SyntaxError", "a.test.mjs:3"],
        ),
        (
            [("a.test.js", "require('./missing');\n")],
            &["Cannot find module './missing'", "`a.test.js` could not be loaded"],
        ),
        (
            [("a.test.js", "process.exitCode = 3;\nrequire('node:test')('a', () => {});\n")],
            &["the process of the tests ended with 3, and no test failed"],
        ),
        ([("test/a.js", "process.exitCode = 3;\n")], &["/box/test/a.js: the process ended with 3"]),
        ([("a.test.js", "process.exit(0);\n")], &["ended before the test runner had finished"]),
        ([("a.test.js", "\n")], &["/box/a.test.js: no test ran"]),
        ([("app.js", "\n")], &["0 of 0 tests passed"]),
    ] {
        let (passed, _, shown) = result("runner: node", &files).await;
        assert_eq!(passed, json!(false), "{files:?}: {shown}");
        for text in wanted {
            assert!(shown.contains(text), "{text} is missing: {shown}");
        }
    }
}

/// pytest reads the source of a test that fails: this runs no code of the project.
#[tokio::test]
async fn failures_of_isolated_tests_are_shown_and_the_others_run() {
    let how = "runner: pytest, proof: isolated, fixed: [strict]";
    let (passed, _, shown) = result(how, &[("app.py", "print('app')\n")]).await;
    assert_eq!(passed, json!(false), "{shown}");
    for text in ["the heading is missing", "boom", "\"passed_count\":1", "\"failed_count\":2"] {
        assert!(shown.contains(text), "{text} is missing: {shown}");
    }
    assert!(!shown.contains("INTERNALERROR"), "{shown}");
}

#[tokio::test]
async fn tests_that_are_stopped_or_missing_say_so() {
    let forever = "import test from 'node:test';\ntest('x', () => { for (;;); });\n";
    let endless = ("a.test.mjs", forever);
    let command = "command: [sleep, '60'], report: tap";
    for (how, files, expected) in [
        ("runner: node", &[endless][..], "the time of the sandbox is over"),
        (command, &[("a", "")], "the time of the sandbox is over"),
        ("runner: node", &[("app.js", "")], "not passed: no test ran"),
        ("runner: pytest", &[("app.py", "")], "not passed: no test ran"),
    ] {
        let text = tests(how).replace("time: 30s", "time: 5s");
        let file = |(path, content): &(&str, &str)| json!({"path": path, "content": content});
        let files: Vec<Value> = files.iter().map(file).collect();
        let ended = run(&text, json!({"code": {"files": files}})).await;
        let result = ended.state("result");
        assert_eq!(result["passed"], json!(false), "{how}: {result}");
        let output = result["error_output"].as_str().unwrap();
        assert!(output.contains(expected), "{how}: {output}");
    }
}
