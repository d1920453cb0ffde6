//! The order of the modules, and where heavy things may be named.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The modules of the crate, lowest first. Those of one row do not import each other.
const LAYERS: &[&[&str]] = &[
    &["id", "data_limit", "diagnostic", "fault", "redact"],
    &["beneath"],
    &["state"],
    &["llm", "sandbox", "team", "tool"],
    &["event"],
    &["graph"],
    &["workflow"],
    &["compile"],
    &["checkpoint"],
    &["results"],
    &["engine", "storage", "draw"],
    &["nodes"],
    &["lsp", "cases"],
    &["cli"],
];

/// Words that may stand only in the modules named beside them.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("petgraph", &["compile", "draw"]),
    ("saphyr", &["workflow"]),
    ("minijinja", &["workflow"]),
    ("reqwest", &["llm"]),
    ("async_openai", &["llm"]),
    ("rusqlite", &["storage"]),
    ("tokio_postgres", &["storage"]),
    ("rustls", &["storage"]),
    ("lsp_server", &["lsp"]),
    ("clap", &["cli"]),
    ("indicatif", &["cli"]),
    ("miette", &["cli"]),
    ("toml_edit", &["cli"]),
    ("seccompiler", &["sandbox"]),
    ("spawn(", &["engine/driver/tasks.rs", "engine/lease.rs", "sandbox", "storage", "cli"]),
    ("openat2", &["beneath"]),
    ("println!", &["cli"]),
    ("env::var", &["cli", "llm"]),
];

/// The longest file that is still one idea.
const LINES_MAX: usize = 450;

#[test]
fn modules_use_only_lower_layers() {
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        let module = module_of(&path);
        let Some(layer) = layer_of(&module) else { continue };
        for used in used_modules(&code_of(&source)) {
            if used != module && layer_of(&used).is_some_and(|it| layer <= it) {
                wrong.push(format!("{}: `{module}` uses `{used}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_module_has_a_layer() {
    let lib = fs::read_to_string("src/lib.rs").unwrap();
    let modules = lib.lines().filter_map(|it| it.strip_prefix("pub mod ")?.strip_suffix(';'));
    let stray: Vec<&str> = modules.filter(|it| layer_of(it).is_none()).collect();
    assert!(stray.is_empty(), "no layer for {stray:?}");
}

#[test]
fn heavy_things_are_named_in_one_place() {
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        let inner = path.strip_prefix("src").unwrap();
        let code = code_of(&source);
        for (word, places) in ONLY_IN {
            let allowed = places.iter().any(|it| inner.starts_with(it));
            if !allowed && code.contains(word) {
                wrong.push(format!("{} names `{word}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_stay_readable_in_one_sitting() {
    let long: Vec<String> = sources()
        .into_iter()
        .map(|(path, source)| (path, source.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{} has {lines} lines: is it two ideas?", path.display()))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Every source file under `src`, in the order of their paths.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from("src")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                found.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn module_of(path: &Path) -> String {
    let inner = path.strip_prefix("src").unwrap().with_extension("");
    inner.iter().next().unwrap().to_string_lossy().into_owned()
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// A file without its comments and its tests.
fn code_of(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().map(|it| it.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The modules named as `crate::module` or inside `use crate::{…}`.
fn used_modules(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let path = &code[at + "crate::".len()..];
        match path.strip_prefix('{') {
            Some(group) => used.extend(top_level_names(group)),
            None => used.extend(first_name(path)),
        }
    }
    used
}

/// The first path segment of each item of a `{a, b::{c, d}, e}` group.
fn top_level_names(group: &str) -> Vec<String> {
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                names.extend(first_name(&group[start..at]));
                start = at + 1;
                if char == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => (),
        }
    }
    names
}

fn first_name(path: &str) -> Option<String> {
    let name: String =
        path.trim_start().chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
    (!name.is_empty()).then_some(name)
}
