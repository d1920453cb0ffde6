//! The languages and build tools of a repository, by the names of files.

use schemars::JsonSchema;
use serde::Serialize;

/// The most manifests of a result.
const MANIFESTS_MAX: usize = 50;

/// Manifests with the language or tool that each one stands for.
const MANIFESTS: [(&str, &str); 22] = [
    ("Cargo.toml", "rust"),
    ("pyproject.toml", "python"),
    ("setup.py", "python"),
    ("setup.cfg", "python"),
    ("requirements.txt", "python"),
    ("Pipfile", "python"),
    ("package.json", "node"),
    ("deno.json", "deno"),
    ("tsconfig.json", "typescript"),
    ("go.mod", "go"),
    ("pom.xml", "java"),
    ("build.gradle", "gradle"),
    ("build.gradle.kts", "gradle"),
    ("Gemfile", "ruby"),
    ("composer.json", "php"),
    ("mix.exs", "elixir"),
    ("Package.swift", "swift"),
    ("pubspec.yaml", "dart"),
    ("CMakeLists.txt", "cmake"),
    ("Makefile", "make"),
    ("justfile", "just"),
    ("Dockerfile", "docker"),
];

/// Files that a program wrote, with nothing that helps a reader.
const LOCK_FILES: [&str; 12] = [
    "Cargo.lock",
    "Gemfile.lock",
    "Pipfile.lock",
    "bun.lock",
    "composer.lock",
    "deno.lock",
    "go.sum",
    "mix.lock",
    "package-lock.json",
    "pnpm-lock.yaml",
    "poetry.lock",
    "uv.lock",
];

/// A part of the stack of a repository.
#[derive(Serialize, JsonSchema)]
pub(super) struct Stack {
    /// The language or build tool, such as `python`.
    name: String,
    /// The manifest that shows it.
    manifest: String,
}

/// Returns the stack that these files show, the manifests nearest to the root first.
pub(super) fn of(paths: &[String]) -> Vec<Stack> {
    let mut manifests: Vec<_> =
        paths.iter().filter_map(|path| Some((depth(path), path, manifest(path)?))).collect();
    manifests.sort();
    let stack = manifests.into_iter().take(MANIFESTS_MAX);
    stack.map(|(_, path, name)| Stack { name: name.to_owned(), manifest: path.clone() }).collect()
}

/// Returns whether a file describes the repository, so that it matters for every task.
pub(super) fn is_overview(path: &str) -> bool {
    let stem = file_name(path).split('.').next().unwrap_or_default();
    manifest(path).is_some() || stem.eq_ignore_ascii_case("readme")
}

/// Returns whether a file is made by a program.
pub(super) fn is_generated(path: &str) -> bool {
    let name = file_name(path);
    let is_source_map = name.rsplit_once('.').is_some_and(|(_, it)| it == "map");
    LOCK_FILES.contains(&name) || name.contains(".min.") || is_source_map
}

/// Returns how many folders a file is in.
pub(super) fn depth(path: &str) -> usize {
    path.matches('/').count()
}

fn manifest(path: &str) -> Option<&'static str> {
    let name = file_name(path);
    if name.ends_with(".csproj") {
        return Some("dotnet");
    }
    MANIFESTS.iter().find(|(manifest, _)| *manifest == name).map(|(_, stack)| *stack)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
