//! `tool`: tools of a program's own, and the built-in ones, which stay in their folder.

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use graphrun::{
    event::Status,
    registry,
    tool::{BuiltIn, Tool, ToolContext, ToolError, tool_fn},
    workflow::memory::Tiers,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{run_in, run_with, services};

#[derive(Deserialize, JsonSchema)]
struct Numbers {
    numbers: Vec<i64>,
    limit: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: i64,
    above: Option<i64>,
}

async fn add(input: Numbers, ctx: ToolContext) -> Result<Sum, ToolError> {
    assert!(ctx.key.contains("/add/"), "{}", ctx.key);
    let sum: i64 = input.numbers.iter().sum();
    match input.limit {
        Some(limit) if sum > limit => Err(ToolError::permanent(format!("{sum} is too much"))),
        _ => Ok(Sum { sum, above: input.limit.map(|it| it - sum) }),
    }
}

fn adding(args: &str, more: &str) -> String {
    format!(
        "graphrun: 1\nname: w\nstate: {{ numbers: '[int]', limit: int, sum: int, above: int?, \
         caught: bool }}\ninput: [numbers, limit]\nstart: add\nnodes:\n  add:\n    tool: math.add\n    \
         args: {{ {args} }}\n    writes: {{ sum: sum, above: above }}\n    then: end\n{more}"
    )
}

#[tokio::test]
async fn a_registered_tool_is_called_with_typed_arguments() {
    let registry = || registry().tool(Arc::new(tool_fn("math.add", "Adds.", add)));
    let input = json!({"numbers": [1, 2, 3], "limit": 10});
    let text = adding("numbers: 'numbers + [4]'", "");
    let ended = run_with(&text, input.clone(), services(), registry()).await;
    assert_eq!((ended.state("sum"), ended.state("above")), (&json!(10), &Value::Null));
    let text = adding("numbers: numbers, limit: limit", "");
    let ended = run_with(&text, input, services(), registry()).await;
    assert_eq!((ended.state("sum"), ended.state("above")), (&json!(6), &json!(4)));
}

#[tokio::test]
async fn an_empty_list_is_an_item_of_a_list_of_lists_by_its_type() {
    #[derive(Serialize, JsonSchema)]
    struct Lists {
        row: Vec<i64>,
        rows: Vec<Vec<i64>>,
    }
    async fn rows(input: Numbers, _: ToolContext) -> Result<Lists, ToolError> {
        let rows = input.numbers.iter().map(|it| vec![*it]).collect();
        Ok(Lists { row: input.numbers, rows })
    }
    let registry = || registry().tool(Arc::new(tool_fn("math.rows", "Makes rows.", rows)));
    let text = "graphrun: 1\nname: w\n\
        state: { numbers: '[int]', by_row: &rows { type: '[[int]]', merge: append, default: [] }, by_rows: *rows, \
        set_row: *rows, set_rows: *rows, nothing: *rows }\ninput: numbers\nstart: make\nnodes:\n  \
        make: { tool: math.rows, args: { numbers: numbers }, writes: { by_row: row, by_rows: rows }, then: more }\n  \
        more: { set: { set_row: numbers, set_rows: '[numbers]', nothing: '[]' }, then: end }\n";
    for (numbers, row, rows) in
        [(json!([]), json!([[]]), json!([])), (json!([1, 2]), json!([[1, 2]]), json!([[1], [2]]))]
    {
        let one = json!([numbers.clone()]);
        let input = json!({ "numbers": numbers });
        let ended = run_with(text, input, services(), registry()).await;
        assert_eq!(
            (ended.state("by_row"), ended.state("by_rows")),
            (&row, &rows),
            "{}",
            ended.reason()
        );
        assert_eq!((ended.state("set_row"), ended.state("set_rows")), (&row, &one));
        assert_eq!(ended.state("nothing"), &json!([]));
    }
}

#[tokio::test]
async fn a_failure_of_a_tool_can_be_caught() {
    let registry = || registry().tool(Arc::new(tool_fn("math.add", "Adds.", add)));
    let input = json!({"numbers": [7, 8], "limit": 10});
    let args = "numbers: numbers, limit: limit";
    let ended = run_with(&adding(args, ""), input.clone(), services(), registry()).await;
    assert_eq!(ended.end.status, Status::Failed);
    assert!(ended.reason().contains("`math.add`: 15 is too much"), "{}", ended.reason());
    let mend = "    catch: { tool: mend }\n  mend: { set: { caught: true }, then: end }\n";
    let ended = run_with(&adding(args, mend), input, services(), registry()).await;
    assert_eq!((ended.end.status, ended.state("caught")), (Status::Done, &json!(true)));
}

#[tokio::test]
async fn an_output_that_breaks_its_promise_is_a_failure() {
    #[derive(Debug)]
    struct Liar(Value, Value);
    #[async_trait::async_trait]
    impl Tool for Liar {
        fn name(&self) -> &'static str {
            "math.add"
        }
        fn description(&self) -> &'static str {
            "Says one thing and does another."
        }
        fn input_schema(&self) -> &Value {
            &self.0
        }
        fn output_schema(&self) -> &Value {
            &self.1
        }
        async fn call(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
            Ok(json!({"sum": "six"}))
        }
    }
    let output = json!({
        "type": "object", "required": ["sum"],
        "properties": {"sum": {"type": "integer"}, "above": {"type": "integer"}},
    });
    let liar = Liar(json!({"type": "object"}), output);
    let registry = registry().tool(Arc::new(liar));
    let input = json!({"numbers": [], "limit": 1});
    let ended = run_with(&adding("", ""), input, services(), registry).await;
    let expected = "the output does not fit its schema: /sum: \"six\" is not of type \"integer\"";
    assert!(ended.reason().contains(expected), "{}", ended.reason());
}

/// A folder with a few files, and things that lead out of it.
fn folder() -> tempfile::TempDir {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir_all(root.join("src/deep")).unwrap();
    fs::create_dir_all(root.join(".git")).unwrap();
    fs::write(outer.path().join("secret.txt"), "secret\n").unwrap();
    fs::write(root.join("readme.md"), "one\ntwo\nthree\n").unwrap();
    fs::write(root.join("src/main.rs"), "fn main() {}\n// two\n").unwrap();
    fs::write(root.join("src/deep/two.txt"), "one two\n").unwrap();
    fs::write(root.join(".git/config"), "two\n").unwrap();
    fs::write(root.join("data.bin"), b"two\0").unwrap();
    symlink("readme.md", root.join("inside")).unwrap();
    symlink("../secret.txt", root.join("outside")).unwrap();
    symlink("/etc/passwd", root.join("absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    outer
}

pub(super) async fn called(root: &Path, name: &str, input: Value) -> Result<Value, String> {
    let tool = BuiltIn::named(name).unwrap().make(&root.join("root"), &Tiers::new());
    assert!(jsonschema::is_valid(tool.input_schema(), &input), "{input}");
    let output = tool.call(input, &ToolContext::default()).await.map_err(|it| it.message)?;
    assert!(jsonschema::is_valid(tool.output_schema(), &output), "{output}");
    Ok(output)
}

#[tokio::test]
async fn nothing_outside_of_the_folder_is_read() {
    let outer = folder();
    let root = outer.path();
    for path in ["../secret.txt", "outside", "absolute", "up/secret.txt", "src/../../secret.txt"] {
        let refused = called(root, "fs.read", json!({ "path": path })).await.unwrap_err();
        assert!(refused.contains("leads out of the folder"), "{path}: {refused}");
        let refused = called(root, "fs.grep", json!({"path": path, "pattern": "."})).await;
        assert!(refused.is_err(), "{path}: {refused:?}");
    }
    for path in ["..", "up", "/", "/etc"] {
        assert!(called(root, "fs.list", json!({ "path": path })).await.is_err(), "{path}");
    }
    for path in ["", "nowhere", "src", "data.bin", "a\0b"] {
        assert!(called(root, "fs.read", json!({ "path": path })).await.is_err(), "{path:?}");
    }
    let found = called(root, "fs.grep", json!({"pattern": "secret|root"})).await.unwrap();
    assert_eq!(found["matches"], json!([]), "a search follows no links");
}

#[tokio::test]
async fn no_tool_reads_the_files_of_git() {
    let outer = folder();
    let root = outer.path();
    fs::create_dir(root.join("root/src/.GIT")).unwrap();
    fs::write(root.join("root/src/.GIT/config"), "two\n").unwrap();
    for path in [".git/config", ".git", "src/.GIT/config", "src/../.git/config"] {
        for (tool, input) in [
            ("fs.read", json!({ "path": path })),
            ("fs.list", json!({ "path": path })),
            ("fs.grep", json!({ "path": path, "pattern": "." })),
            ("fs.context", json!({ "path": path })),
        ] {
            let refused = called(root, tool, input).await.unwrap_err();
            assert_eq!(refused, "`.git` belongs to git and is not read", "{tool} {path}");
        }
    }
    for (tool, input) in [
        ("fs.list", json!({})),
        ("fs.list", json!({ "path": "src" })),
        ("fs.grep", json!({ "pattern": "two" })),
        ("fs.context", json!({})),
    ] {
        let found = called(root, tool, input).await.unwrap().to_string();
        assert!(!found.to_lowercase().contains(".git"), "{tool}: {found}");
    }
}

#[tokio::test]
async fn files_are_read_listed_and_searched() {
    let outer = folder();
    let root = outer.path();
    let read = called(root, "fs.read", json!({"path": "inside", "from": 2, "lines": 1})).await;
    assert_eq!(read.unwrap(), json!({"text": "two\n", "lines": 1, "truncated": true}));
    let read = called(root, "fs.read", json!({"path": "readme.md"})).await;
    assert_eq!(read.unwrap(), json!({"text": "one\ntwo\nthree\n", "lines": 3, "truncated": false}));
    let list = called(root, "fs.list", json!({"path": "src"})).await.unwrap();
    let entries = json!([
        {"path": "src/deep", "kind": "folder", "bytes": 0},
        {"path": "src/main.rs", "kind": "file", "bytes": 20},
    ]);
    assert_eq!(list, json!({"entries": entries, "truncated": false}));
    let found = called(root, "fs.grep", json!({"pattern": "\\btwo$"})).await.unwrap();
    let matches = json!([
        {"path": "readme.md", "line": 2, "text": "two"},
        {"path": "src/deep/two.txt", "line": 1, "text": "one two"},
        {"path": "src/main.rs", "line": 2, "text": "// two"},
    ]);
    assert_eq!(found, json!({"matches": matches, "truncated": false}));
    assert!(called(root, "fs.grep", json!({"pattern": "("})).await.is_err());
}

#[tokio::test]
async fn reads_are_bounded() {
    let outer = folder();
    let root = outer.path();
    fs::write(root.join("root/long.txt"), "é two\n".repeat(100_000)).unwrap();
    let read = called(root, "fs.read", json!({"path": "long.txt"})).await.unwrap();
    assert_eq!(read["truncated"], true);
    assert!(read["text"].as_str().unwrap().len() <= 256 << 10);
    let found = called(root, "fs.grep", json!({"pattern": "two", "path": "long.txt"})).await;
    let found = found.unwrap();
    assert_eq!(
        (found["matches"].as_array().unwrap().len(), &found["truncated"]),
        (200, &json!(true))
    );
    // What lies behind a result can be read and found.
    let args = json!({"path": "long.txt", "from": 99_999, "lines": 5});
    let read = called(root, "fs.read", args).await.unwrap();
    assert_eq!(read, json!({"text": "é two\né two\n", "lines": 2, "truncated": false}));
    fs::write(root.join("root/log.txt"), "x\n".repeat(1 << 20) + "last\n").unwrap();
    let found = called(root, "fs.grep", json!({"pattern": "last", "path": "log.txt"})).await;
    let line = json!({"path": "log.txt", "line": (1 << 20) + 1, "text": "last"});
    assert_eq!(found.unwrap(), json!({"matches": [line], "truncated": false}));
    fs::write(root.join("root/huge.txt"), "x\n".repeat(9 << 20)).unwrap();
    let args = json!({"path": "huge.txt", "from": 9 << 20});
    let behind = called(root, "fs.read", args).await.unwrap_err();
    assert_eq!(behind, "`huge.txt` is read to its first 16 MiB, and line 9437184 is behind");
    for at in 0..1_100 {
        fs::write(root.join(format!("root/src/deep/f{at}")), "").unwrap();
    }
    let list = called(root, "fs.list", json!({"path": "src/deep"})).await.unwrap();
    assert_eq!(
        (list["entries"].as_array().unwrap().len(), &list["truncated"]),
        (1_000, &json!(true))
    );
}

#[tokio::test]
async fn a_workflow_sets_the_folder_of_its_tools() {
    let outer = folder();
    let text = |path: &str| {
        format!(
            "graphrun: 1\nname: w\nstate: {{ path: string, text: string, cut: bool }}\ninput: path\n\
             tools: {{ fs: {{ root: root }} }}\nstart: read\nnodes:\n  read:\n    tool: fs.read\n    \
             args: {{ path: {path} }}\n    writes: {{ text: text, cut: truncated }}\n    then: end\n"
        )
    };
    let run = async |text: String, input| {
        run_in(outer.path(), &text, input, services(), registry()).await
    };
    let ended = run(text("path"), json!({"path": "readme.md"})).await;
    assert_eq!(*ended.state("text"), json!("one\ntwo\nthree\n"), "{}", ended.reason());
    let ended = run(text("path"), json!({"path": "../secret.txt"})).await;
    assert_eq!(ended.end.status, Status::Failed);
    assert!(ended.reason().contains("leads out of the folder"), "{}", ended.reason());
}
