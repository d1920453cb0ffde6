//! `fs.context`: which files of a repository are gathered, and how much of them.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::tool::called;

/// Writes files below the folder of the tools, which is `root` in the returned one.
fn repository(files: &[(&str, &str)]) -> tempfile::TempDir {
    let outer = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = outer.path().join("root").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    outer
}

fn shop() -> tempfile::TempDir {
    repository(&[
        ("README.md", "A shop.\n"),
        ("pyproject.toml", "[project]\nname = \"shop\"\n"),
        ("uv.lock", "invoice invoice invoice\n"),
        (".gitignore", "build/\n*.log\n!kept.log\n"),
        ("build/invoice.py", "invoice\n"),
        ("trace.log", "invoice\n"),
        ("kept.log", "nothing\n"),
        ("src/.gitignore", "/local.py\n"),
        ("src/local.py", "invoice\n"),
        ("src/invoice.py", "def total(lines):\n    return sum(lines)\n"),
        (
            "src/mail.py",
            "from invoice import total\n\ndef send(invoice):\n    return total(invoice)\n",
        ),
        ("src/user.py", "class User:\n    pass\n"),
        ("src/deep/local.py", "class SendInvoice:\n    pass\n"),
        ("data.bin", "invoice\0"),
        (".git/config", "invoice\n"),
    ])
}

async fn gathered(root: &Path, input: Value) -> Value {
    called(root, "fs.context", input).await.unwrap()
}

fn paths(gathered: &Value) -> Vec<&str> {
    let files = gathered["files"].as_array().unwrap();
    files.iter().map(|it| it["path"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn files_with_the_words_of_the_task_come_first() {
    let shop = shop();
    let found = gathered(shop.path(), json!({"query": "the invoices: sendInvoice"})).await;
    assert_eq!(
        paths(&found),
        ["src/deep/local.py", "src/mail.py", "src/invoice.py", "README.md", "pyproject.toml"]
    );
    assert_eq!(found["stack"], json!([{"name": "python", "manifest": "pyproject.toml"}]));
    assert_eq!((&found["omitted"], &found["truncated"]), (&json!(0), &json!(false)));
    assert_eq!(found["files"][2]["content"], "def total(lines):\n    return sum(lines)\n");
}

#[tokio::test]
async fn ignored_files_are_left_out() {
    let shop = shop();
    let found = gathered(shop.path(), json!({})).await;
    let all = [
        ".gitignore",
        "README.md",
        "data.bin",
        "kept.log",
        "pyproject.toml",
        "src/.gitignore",
        "src/deep/local.py",
        "src/invoice.py",
        "src/mail.py",
        "src/user.py",
        "uv.lock",
    ];
    assert_eq!(found["paths"], json!(all));
    // Without words, descriptions of the repository are first, then the files nearest to the root.
    assert_eq!(
        paths(&found),
        [
            "README.md",
            "pyproject.toml",
            ".gitignore",
            "kept.log",
            "src/.gitignore",
            "src/invoice.py",
            "src/mail.py",
            "src/user.py",
            "src/deep/local.py"
        ]
    );
    // The rules above a folder hold in it.
    fs::write(shop.path().join("root/src/old.log"), "").unwrap();
    let found = gathered(shop.path(), json!({"path": "src/"})).await;
    let below =
        ["src/.gitignore", "src/deep/local.py", "src/invoice.py", "src/mail.py", "src/user.py"];
    assert_eq!(found["paths"], json!(below));
}

#[tokio::test]
async fn patterns_select_files() {
    let shop = shop();
    let selected = |include: Value, exclude: Value| {
        let input = json!({"include": include, "exclude": exclude});
        let root = shop.path();
        async move { gathered(root, input).await["paths"].clone() }
    };
    assert_eq!(
        selected(json!(["src/*.py"]), json!(["mail.*"])).await,
        json!(["src/invoice.py", "src/user.py"])
    );
    assert_eq!(
        selected(json!(["*.toml", "*.md"]), json!([])).await,
        json!(["README.md", "pyproject.toml"])
    );
    assert_eq!(
        selected(json!([]), json!(["src", ".*", "*.l*", "data.bin"])).await,
        json!(["README.md", "pyproject.toml"])
    );
    let refused = called(shop.path(), "fs.context", json!({"exclude": ["a{"]})).await.unwrap_err();
    assert!(refused.starts_with("the pattern `a{`"), "{refused}");
}

#[tokio::test]
async fn a_long_file_is_cut_to_its_beginning_and_its_matches() {
    let mut lines: Vec<String> = (1..=2_000).map(|it| format!("line {it} of many")).collect();
    lines[1_499] = "the needle".into();
    let outer = repository(&[("hay.txt", &lines.join("\n")), ("other.txt", "a needle, too\n")]);
    let found = gathered(outer.path(), json!({"query": "needle", "tokens": 1_000})).await;
    assert_eq!((paths(&found), &found["omitted"]), (vec!["other.txt", "hay.txt"], &json!(1)));
    let content = found["files"][1]["content"].as_str().unwrap();
    assert!(content.starts_with("line 1 of many\n"), "{content}");
    assert!(content.contains("line 1499 of many\nthe needle\nline 1501 of many\n"), "{content}");
    assert!(content.contains("line 1506 of many\n[494 lines left out]\n"), "{content}");
}

#[tokio::test]
async fn no_result_is_larger_than_asked_for() {
    let wide = "wide ".repeat(3_000);
    let long = "needle in a long file\n".repeat(400);
    let outer = repository(&[("wide.txt", &wide), ("long.txt", &long), ("a/short.txt", "needle")]);
    for tokens in [1, 2, 59, 60, 61, 100, 173, 500, 1_000, 2_600, 2_601, 10_000] {
        let input = json!({"query": "needle wide", "tokens": tokens});
        let found = gathered(outer.path(), input.clone()).await;
        let files = found["files"].as_array().unwrap();
        let characters = files.iter().map(|it| it["content"].as_str().unwrap().chars().count());
        let estimated: u64 =
            characters.map(|it| graphrun::models::TokenUsage::estimate(it, 0).input_tokens).sum();
        assert_eq!(found["tokens"], estimated);
        assert!(estimated <= tokens, "{estimated} of {tokens}");
        let whole = files.iter().filter(|it| it["truncated"] == false).count();
        assert_eq!(found["omitted"], 3 - whole, "{tokens}");
        assert_eq!(
            found,
            gathered(outer.path(), input).await,
            "the same files give the same result"
        );
    }
    let outcome = called(outer.path(), "fs.context", json!({"path": "../root"})).await;
    assert!(outcome.unwrap_err().contains("leads out of the folder"));
}
