//! `fs.patch`: applies a unified diff to a text file.
//!
//! Models count lines badly, so the numbers of a hunk only choose among the places where its lines are. Blanks and everything
//! else of these lines have to agree.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Changed, edit::read, write_one, writing_tool};
use crate::tool::{BuiltIn, Make, Needs, ToolError};

pub(super) const TOOL: BuiltIn = BuiltIn {
    name: "fs.patch",
    about: "Applies a unified diff to a file of the folder of the node.",
    needs: Needs::Folder,
    make: Make::OfFiles(|_| writing_tool(&TOOL, patch)),
};

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Patch {
    /// The file, below the folder.
    path: String,
    /// The hunks of a unified diff of this file, each from `@@` on. All of them are applied, or none.
    patch: String,
}

/// A part of a diff.
#[derive(Debug, PartialEq, Eq)]
struct Hunk<'p> {
    /// The number of its first line, from one on, if it has one.
    first: Option<usize>,
    /// The lines that it replaces, with those around them.
    old: Vec<&'p str>,
    /// The lines in their place.
    new: Vec<&'p str>,
}

fn patch(root: &Path, input: &Patch) -> Result<Changed, ToolError> {
    let Patch { path, patch } = input;
    let text = read(root, path)?;
    let patched = parse(patch).and_then(|it| apply(&text, &it));
    let refuse = |why| ToolError::permanent(format!("`{path}` is not changed: {why}"));
    write_one(root, path, patched.map_err(refuse)?)
}

/// Reads the hunks of one file.
fn parse(patch: &str) -> Result<Vec<Hunk<'_>>, String> {
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    for (at, line) in patch.lines().enumerate() {
        if let Some(rest) = line.strip_prefix("@@") {
            let digits = rest.trim_start().strip_prefix('-').unwrap_or_default();
            let end = digits.find(|it: char| !it.is_ascii_digit()).unwrap_or(digits.len());
            let first = digits[..end].parse().ok();
            hunks.push(Hunk { first, old: Vec::new(), new: Vec::new() });
            continue;
        }
        let Some(hunk) = hunks.last_mut() else {
            // The header.
            if ["--- ", "+++ ", "diff ", "index "].iter().any(|it| line.starts_with(it)) {
                continue;
            }
            return Err(format!("line {} of the patch is before its first `@@`", at + 1));
        };
        match line.split_at_checked(1) {
            Some((" ", rest)) => {
                hunk.old.push(rest);
                hunk.new.push(rest);
            }
            Some(("-", rest)) => hunk.old.push(rest),
            Some(("+", rest)) => hunk.new.push(rest),
            // `\ No newline at end of file`
            Some(("\\", _)) => {}
            // An empty line of the file, without its blank.
            None => {
                hunk.old.push("");
                hunk.new.push("");
            }
            Some(_) => {
                let number = at + 1;
                let why = "begins with none of a blank, `-`, `+` and `@@`";
                return Err(format!("line {number} of the patch {why}; a patch is of one file"));
            }
        }
    }
    if hunks.is_empty() { Err("the patch has no `@@`".to_owned()) } else { Ok(hunks) }
}

/// Returns the text with all hunks applied.
fn apply(text: &str, hunks: &[Hunk<'_>]) -> Result<String, String> {
    let lines: Vec<&str> = text.split('\n').collect();
    let (mut patched, mut done) = (Vec::new(), 0);
    for (at, hunk) in hunks.iter().enumerate() {
        let start = place_of(hunk, &lines, done).map_err(|why| format!("hunk {} {why}", at + 1))?;
        patched.extend_from_slice(&lines[done..start]);
        patched.extend_from_slice(&hunk.new);
        done = start + hunk.old.len();
    }
    patched.extend_from_slice(&lines[done..]);
    Ok(patched.join("\n"))
}

/// Returns the place of a hunk behind the earlier ones.
fn place_of(hunk: &Hunk<'_>, lines: &[&str], done: usize) -> Result<usize, String> {
    if hunk.old.is_empty() {
        // New lines alone stand behind the line of this number.
        let first = hunk.first.ok_or("has neither lines of the file nor a number")?;
        return Ok(first.clamp(done, lines.len()));
    }
    let fits = |it: &usize| lines[*it..].starts_with(&hunk.old);
    let places: Vec<usize> = (done..lines.len()).filter(fits).collect();
    match (&places[..], hunk.first) {
        ([], _) => Err("is not in the file as it is; read the file again".to_owned()),
        ([place], _) => Ok(*place),
        (_, None) => Err(format!("fits in {} places; include more lines", places.len())),
        (_, Some(first)) => {
            let nearest = places.iter().min_by_key(|it| it.abs_diff(first.saturating_sub(1)));
            Ok(*nearest.expect("there are places"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(text: &str, patch: &str) -> Result<String, String> {
        parse(patch).and_then(|it| apply(text, &it))
    }

    #[test]
    fn hunks_are_applied_in_their_order() {
        let text = "a\nb\n\nc\nd\ne\n";
        let patch = "--- a/x\n+++ b/x\n@@ -1,3 +1,4 @@ fn x\n a\n-b\n+B\n+B2\n\n@@ -5 +6 @@\n-d\n@@ -6,0 +7 @@\n+f\n";
        assert_eq!(patched(text, patch).unwrap(), "a\nB\nB2\n\nc\ne\nf\n");
        let last = "@@ -6 +6 @@\n-e\n+E\n\\ No newline at end of file\n";
        assert_eq!(patched(text, last).unwrap(), "a\nb\n\nc\nd\nE\n");
    }

    #[test]
    fn numbers_only_choose_among_places() {
        let text = "x\ny\nx\ny\nx\n";
        assert_eq!(patched(text, "@@ -40 +40 @@\n-y\n+z\n").unwrap(), "x\ny\nx\nz\nx\n");
        assert_eq!(patched(text, "@@ -1,2 +1,2 @@\n x\n-y\n+z\n").unwrap(), "x\nz\nx\ny\nx\n");
        let error = patched(text, "@@\n-y\n+z\n").unwrap_err();
        assert_eq!(error, "hunk 1 fits in 2 places; include more lines");
        // A later hunk is not in front of an earlier one.
        let error = patched(text, "@@ -4 +4 @@\n-y\n@@ -2 +2 @@\n-y\n").unwrap_err();
        assert_eq!(error, "hunk 2 is not in the file as it is; read the file again");
    }

    #[test]
    fn a_patch_that_does_not_fit_changes_nothing() {
        for (patch, problem) in [
            ("@@ -1 +1 @@\n-a \n+b\n", "hunk 1 is not in the file as it is"),
            ("", "the patch has no `@@`"),
            ("-a\n+b\n", "line 1 of the patch is before its first `@@`"),
            ("@@ -1 +1 @@\n-a\n+b\ndiff --git a/y b/y\n", "line 4 of the patch begins with none"),
            ("@@\n+b\n", "hunk 1 has neither lines of the file nor a number"),
        ] {
            let error = patched("a\n", patch).unwrap_err();
            assert!(error.starts_with(problem), "{patch:?}: {error}");
        }
    }
}
