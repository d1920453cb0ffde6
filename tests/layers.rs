//! Rules of the source that Cargo cannot express.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The modules of the packages that have several, lowest first. Those of one row do not import each other.
const LAYERS: &[(&str, &[&[&str]])] = &[
    ("crates/guard", &[&["address", "data_limit", "redact"], &["beneath"]]),
    (
        "crates/core",
        &[&["id", "diagnostic", "fault", "usage", "words"], &["state"], &["event"], &["graph"]],
    ),
    ("", &[&["cases", "draw", "prelude"], &["lsp"], &["cli"]]),
];

/// Words with the only places that may have them.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("petgraph", &["crates/analysis", "src/draw"]),
    ("miette", &["src/cli"]),
    ("clap", &["src/cli"]),
    (
        "spawn(",
        &[
            "crates/engine/src/driver/scheduler/futures.rs",
            "crates/engine/src/launch.rs",
            "crates/engine/src/lease.rs",
            "crates/folders",
            "crates/mcp/src/program.rs",
            "crates/sandbox",
            "crates/storage",
            "crates/telemetry/src/lib.rs",
            "src/cli",
        ],
    ),
    ("openat2", &["crates/guard/src/beneath"]),
    ("println!", &["src/cli"]),
    ("env::var", &["src/cli", "crates/models"]),
];

#[test]
fn modules_use_only_lower_layers() {
    let mut wrong = Vec::new();
    for (package, layers) in LAYERS {
        let layer_of = |module: &str| layers.iter().position(|layer| layer.contains(&module));
        let root = Path::new(package).join("src");
        for (path, source) in sources(&root) {
            let module = module_of(&path, &root);
            if matches!(module.as_str(), "lib" | "main") {
                continue;
            }
            let Some(layer) = layer_of(&module) else {
                panic!("no layer for {}", path.display());
            };
            for used in used_modules(&code_of(&source)) {
                if used != module && layer_of(&used).is_some_and(|it| layer <= it) {
                    wrong.push(format!("{}: `{module}` uses `{used}`", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn some_words_have_one_place() {
    let mut wrong = Vec::new();
    for root in ["src", "crates"] {
        for (path, source) in sources(Path::new(root)) {
            let code = code_of(&source);
            for (word, places) in ONLY_IN {
                let allowed = places.iter().any(|it| path.starts_with(it));
                if !allowed && code.contains(word) {
                    wrong.push(format!("{} has `{word}`", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every source file below a folder, in the order of their paths.
fn sources(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
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

fn module_of(path: &Path, root: &Path) -> String {
    let inner = path.strip_prefix(root).unwrap().with_extension("");
    inner.iter().next().unwrap().to_string_lossy().into_owned()
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
    let mut names = Vec::new();
    let mut depth = 0;
    let mut start = 0;
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
