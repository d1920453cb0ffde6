//! The YAML of the documentation and of the templates means the same to readers of YAML 1.1 and of YAML 1.2.
//!
//! Other programs read workflows, too. `off`, `no` and dates are values of other types in YAML 1.1, and
//! some of its readers refuse a question mark in braces. These are in quotes wherever people copy from.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Value, json};

use crate::support::packages;

/// The files below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The YAML texts that people copy from, each with its place.
fn texts() -> Vec<(String, String)> {
    let mut paths = vec!["README.md".into(), "COMPATIBILITY.md".into()];
    for folder in ["docs", "graphs", "examples"] {
        files(folder.as_ref(), &mut paths);
    }
    paths.sort();
    let mut texts = Vec::new();
    for path in paths {
        let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
        match extension {
            "yaml" | "yml" => {
                texts.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
            "md" => texts.extend(blocks(&path, &fs::read_to_string(&path).unwrap())),
            _ => (),
        }
    }
    texts
}

/// The blocks of YAML in a page, without the indentation of the list that they are in.
fn blocks(path: &Path, page: &str) -> Vec<(String, String)> {
    let (mut found, mut open): (Vec<(String, String)>, Option<usize>) = (Vec::new(), None);
    for (number, line) in page.lines().enumerate() {
        let fence = line.trim_start();
        match open {
            None if fence.starts_with("```yaml") => {
                open = Some(line.len() - fence.len());
                found.push((format!("{}:{}", path.display(), number + 1), String::new()));
            }
            Some(_) if fence.starts_with("```") => open = None,
            Some(indent) => {
                let text = &mut found.last_mut().unwrap().1;
                text.push_str(line.get(indent..).unwrap_or_default());
                text.push('\n');
            }
            None => (),
        }
    }
    found
}

/// A reader of YAML 1.2 in Python.
const RUAMEL: &str = "ruamel.yaml==0.18.6";

/// What `PyYAML` understands, a reader of YAML 1.1.
fn by_pyyaml(texts: &[(String, String)]) -> Vec<Value> {
    by_python(texts, None)
}

/// What `ruamel.yaml` understands, a reader of YAML 1.2.
fn by_ruamel(texts: &[(String, String)]) -> Vec<Value> {
    by_python(texts, Some(packages::pypi(RUAMEL)))
}

fn by_python(texts: &[(String, String)], ruamel: Option<PathBuf>) -> Vec<Value> {
    let python = Command::new("python3")
        .arg("tests/yaml_readers.py")
        .args(ruamel)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut python = python.expect("python3 with PyYAML is needed: `scripts/setup --tests`");
    let texts: Vec<&str> = texts.iter().map(|(_, it)| it.as_str()).collect();
    let mut stdin = python.stdin.take().unwrap();
    stdin.write_all(&serde_json::to_vec(&texts).unwrap()).unwrap();
    drop(stdin);
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "PyYAML is needed: `scripts/setup --tests`");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What our own reader understands, in the form of `yaml_readers.py`.
fn by_saphyr(text: &str) -> Value {
    match Yaml::load_from_str(text) {
        Ok(documents) => documents.first().map_or_else(|| json!(["null", ""]), plain),
        Err(error) => json!(["refused", error.to_string()]),
    }
}

fn plain(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Sequence(items) => json!(["list", items.iter().map(plain).collect::<Vec<_>>()]),
        Yaml::Mapping(entries) => {
            let entry = |(key, value)| json!([plain(key), plain(value)]);
            json!(["map", entries.iter().map(entry).collect::<Vec<_>>()])
        }
        Yaml::Value(Scalar::Null) => json!(["null", ""]),
        Yaml::Value(Scalar::Boolean(it)) => json!(["bool", it.to_string()]),
        Yaml::Value(Scalar::Integer(it)) => json!(["int", it.to_string()]),
        Yaml::Value(Scalar::FloatingPoint(it)) => {
            json!(["float", format!("{:?}", it.into_inner())])
        }
        Yaml::Value(Scalar::String(it)) => json!(["str", it]),
        other => json!(["other", format!("{other:?}")]),
    }
}

/// The first place where two values differ.
fn difference(one: &Value, other: &Value) -> Option<String> {
    if one == other {
        return None;
    }
    if let (Some(a), Some(b)) = (one.as_array(), other.as_array())
        && a.len() == b.len()
        && let Some(found) = a.iter().zip(b).find_map(|(a, b)| difference(a, b))
        && !a.first().is_some_and(Value::is_string)
    {
        return Some(found);
    }
    if let (Some([kind, a]), Some([as_kind, b])) =
        (one.as_array().map(Vec::as_slice), other.as_array().map(Vec::as_slice))
        && kind == as_kind
        && a.is_array()
        && let Some(found) = difference(a, b)
    {
        return Some(found);
    }
    // If one of them refuses the text, the other side is the whole file.
    let shown = |it: &Value| it.to_string().chars().take(300).collect::<String>();
    Some(format!("in Python: {}, here: {}", shown(one), shown(other)))
}

#[test]
fn documentation_and_templates_read_the_same_with_other_readers() {
    let texts = texts();
    assert!(texts.len() > 150, "only {} texts", texts.len());
    let mut wrong = String::new();
    let by_python = by_pyyaml(&texts).into_iter().zip(by_ruamel(&texts));
    for ((place, text), (by_pyyaml, by_ruamel)) in texts.iter().zip(by_python) {
        let by_saphyr = by_saphyr(text);
        // Some pages show mistakes, such as a key that is given twice. Other tests check all others.
        if by_saphyr[0] == "refused" {
            continue;
        }
        for read in [by_pyyaml, by_ruamel] {
            if let Some(difference) = difference(&read, &by_saphyr) {
                wrong.extend([place, ": ", &difference, "\n"]);
            }
        }
    }
    assert!(wrong.is_empty(), "quote these:\n{wrong}");
}

#[test]
fn a_value_that_yaml_1_1_reads_differently_is_found() {
    for (text, is_found) in [
        ("a: off", true),
        ("a: \"off\"", false),
        ("a: yes", true),
        ("a: { b: string? }", true),
        ("a: { b: \"string?\" }", false),
        ("a: 2026-12-31", true),
        ("a: 010", true),
        ("a: 12:30", true),
        ("a: 5_000", false),
        ("a: [1, 1.5, true, null, text]", false),
    ] {
        let texts = [(String::new(), text.to_owned())];
        let found = difference(&by_pyyaml(&texts)[0], &by_saphyr(text));
        assert_eq!(found.is_some(), is_found, "{text}: {found:?}");
    }
}
