//! `fs.context`: the part of a repository that a model needs for a task.
//!
//! The tool visits the files in the order of their paths and leaves out what `.gitignore` excludes ([`ignored`]). It
//! ranks them by the words of the query ([`rank`]), and takes their texts in this order until a number of tokens is used
//! up; a long file is cut to its beginning and the lines around its matches ([`excerpt`]). The same files and the same
//! input always give the same result.

mod excerpt;
mod ignored;
mod rank;
mod stack;

use graphrun_core::usage::TokenUsage;
use graphrun_guard::redact::{Cut, redact_part};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::{
    ignored::Walk,
    rank::{QueryWords, Ranking},
    stack::Stack,
};
use super::{READ_BYTES_MAX, file_tool, folder::ToolFolder, here};
use crate::tool::{BuiltIn, Make, Needs, ToolError};

/// The most paths that the result lists.
const PATHS_MAX: usize = 2_000;
/// The most bytes that are read to rank the files.
const RANKED_BYTES_MAX: u64 = 64 << 20;
/// The most tokens of a result.
const TOKENS_MAX: u64 = 500_000;
/// An excerpt that would be shorter tells too little.
const EXCERPT_TOKENS_MIN: u64 = 60;

pub(super) const TOOL: BuiltIn = BuiltIn {
    name: "fs.context",
    about: "Gathers the files of a repository that matter for a task, within a number of tokens.",
    needs: Needs::Files,
    make: Make::OfFiles(|root| file_tool(&TOOL, root, gather)),
};

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Request {
    /// The task, in words. Files in which they occur come first. Default: the manifests and the files nearest to the root.
    #[serde(default)]
    query: String,
    /// The most tokens of all texts together, estimated. Default: 8,000.
    #[serde(default = "default_tokens")]
    #[schemars(range(min = 1, max = TOKENS_MAX))]
    tokens: u64,
    /// The folder to look in, below the folder of the tools.
    #[serde(default = "here")]
    path: String,
    /// Patterns such as `src/**/*.rs`; a file must match one of them. Default: all files.
    #[serde(default)]
    include: Vec<String>,
    /// Patterns of files to leave out.
    #[serde(default)]
    exclude: Vec<String>,
}

/// The output.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RepositoryContext")]
struct ContextOutput {
    /// The languages and build tools, by their manifests.
    stack: Vec<Stack>,
    /// The paths of all files that were considered.
    paths: Vec<String>,
    /// The texts, the most important one first.
    files: Vec<GatheredFile>,
    /// How many files that matter are not among them, or only in part.
    omitted: usize,
    /// The tokens of the texts, estimated.
    tokens: u64,
    /// Whether the repository has more files than were considered.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct GatheredFile {
    /// The file, for `fs.read`.
    path: String,
    /// Its text; a line in brackets stands for lines that were left out.
    content: String,
    /// Whether lines were left out.
    truncated: bool,
}

fn default_tokens() -> u64 {
    8_000
}

/// Returns the estimated tokens of a text.
fn tokens(text: &str) -> u64 {
    TokenUsage::estimate(text.chars().count(), 0).input_tokens
}

fn gather(folder: &ToolFolder, request: &Request) -> Result<ContextOutput, ToolError> {
    let Walk { paths, mut truncated } =
        ignored::walk(folder, &request.path, &request.include, &request.exclude)?;
    let words = QueryWords::of(&request.query);
    let mut ranking = Ranking::new(&words);
    let mut bytes_left = RANKED_BYTES_MAX;
    for path in paths.iter().filter(|it| !stack::is_generated(it)) {
        truncated |= bytes_left == 0;
        // A file that disappeared or cannot be read has no text to gather.
        let Some(text) = read_text(folder, path, bytes_left) else { continue };
        bytes_left = bytes_left.saturating_sub(text.len() as u64);
        ranking.add(path, &text);
    }
    let ranked = ranking.in_order();
    let tokens_max = request.tokens.min(TOKENS_MAX);
    // One long file leaves room for the others.
    let share = if ranked.len() > 1 { tokens_max / 2 } else { tokens_max };
    let mut files = Vec::new();
    let mut used = 0;
    for path in &ranked {
        let Some(text) = read_text(folder, path, READ_BYTES_MAX) else { continue };
        let room = share.min(tokens_max - used);
        let is_whole = tokens(&text) <= room;
        if !is_whole && room < EXCERPT_TOKENS_MIN {
            continue;
        }
        let content = if is_whole { text } else { excerpt::of(&text, &words, room) };
        used += tokens(&content);
        files.push(GatheredFile { path: (*path).to_owned(), content, truncated: !is_whole });
    }
    let whole = files.iter().filter(|it| !it.truncated).count();
    Ok(ContextOutput {
        stack: stack::of(&paths),
        omitted: ranked.len() - whole,
        tokens: used,
        files,
        truncated: truncated || paths.len() > PATHS_MAX,
        paths: paths.into_iter().take(PATHS_MAX).collect(),
    })
}

fn read_text(folder: &ToolFolder, path: &str, bytes_left: u64) -> Option<String> {
    let (bytes, size) = folder.read(path, bytes_left.min(READ_BYTES_MAX)).ok()?;
    if bytes.contains(&0) {
        return None;
    }
    let cut = Cut { start: false, end: size > bytes.len() as u64 };
    Some(redact_part(&String::from_utf8_lossy(&bytes), cut).into_owned())
}
