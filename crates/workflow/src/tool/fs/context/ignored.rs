//! The files of a repository, without those that `.gitignore` excludes.

use std::{collections::VecDeque, path::Path};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
    overrides::{Override, OverrideBuilder},
};

use super::super::{EntryKind, READ_BYTES_MAX, VISITED_MAX, folder::ToolFolder, joined, sorted};
use crate::tool::ToolError;

/// The files below a folder.
pub(super) struct Walk {
    /// Their paths, sorted.
    pub(super) paths: Vec<String>,
    /// Whether there are more.
    pub(super) truncated: bool,
}

/// The files that a request asks for.
struct Selection {
    patterns: Override,
}

/// Returns the files below a folder that match one of the patterns to include, if there are any, and none of those to
/// exclude. Links are not followed.
pub(super) fn walk(
    files: &ToolFolder,
    path: &str,
    include: &[String],
    exclude: &[String],
) -> Result<Walk, ToolError> {
    let selection = Selection::of(include, exclude)?;
    let path = path.trim_end_matches('/');
    let mut walk = Walk { paths: Vec::new(), truncated: false };
    let mut open = VecDeque::from([(path.to_owned(), rules_above(files, path))]);
    let mut visited = 0;
    while let Some((folder, mut rules)) = open.pop_front() {
        rules.extend(rules_of(files, &folder));
        let entries = if folder == path {
            sorted(files, &folder)?
        } else {
            // A folder that disappeared or cannot be read hides no other one.
            sorted(files, &folder).unwrap_or_default()
        };
        for entry in entries {
            visited += 1;
            if visited > VISITED_MAX {
                walk.truncated = true;
                open.clear();
                break;
            }
            let is_folder = entry.kind == EntryKind::Folder;
            if entry.kind == EntryKind::Other
                || is_ignored(&rules, &entry.path, is_folder)
                || !selection.contains(&entry.path, is_folder)
            {
                continue;
            }
            if is_folder {
                open.push_back((entry.path, rules.clone()));
            } else {
                walk.paths.push(entry.path);
            }
        }
    }
    walk.paths.sort();
    Ok(walk)
}

impl Selection {
    fn of(include: &[String], exclude: &[String]) -> Result<Self, ToolError> {
        // A pattern with `!` means the opposite here, so a leading one of the user is part of a name.
        let excluded = exclude.iter().map(|it| (it, format!("!{it}")));
        let included = include
            .iter()
            .map(|it| (it, it.replacen('!', "\\!", usize::from(it.starts_with('!')))));
        let mut patterns = OverrideBuilder::new("");
        for (given, pattern) in included.chain(excluded) {
            let added = patterns.add(&pattern);
            added.map_err(|it| ToolError::permanent(format!("the pattern `{given}`: {it}")))?;
        }
        let patterns = patterns.build().map_err(ToolError::permanent)?;
        Ok(Self { patterns })
    }

    fn contains(&self, path: &str, is_folder: bool) -> bool {
        !self.patterns.matched(path, is_folder).is_ignore()
    }
}

/// Returns the rules of the folders above one, the outermost first.
fn rules_above(files: &ToolFolder, path: &str) -> Vec<Gitignore> {
    let parents = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
    let mut parents: Vec<_> = parents.collect();
    parents.reverse();
    parents.into_iter().filter_map(|it| rules_of(files, it)).collect()
}

/// Returns the rules in the `.gitignore` of a folder.
fn rules_of(files: &ToolFolder, folder: &str) -> Option<Gitignore> {
    let (bytes, _) = files.read(&joined(folder, ".gitignore"), READ_BYTES_MAX).ok()?;
    let mut rules = GitignoreBuilder::new(if folder == "." { "" } else { folder });
    for line in String::from_utf8_lossy(&bytes).lines() {
        // Git ignores a line that is no pattern, too.
        let _ = rules.add_line(None, line);
    }
    rules.build().ok()
}

/// Returns whether rules leave a path out. The innermost one that matches decides, as in git.
fn is_ignored(rules: &[Gitignore], path: &str, is_folder: bool) -> bool {
    let found = rules.iter().rev().map(|it| it.matched(path, is_folder));
    found.into_iter().find(|it| !it.is_none()).is_some_and(|it| matches!(it, Match::Ignore(_)))
}
