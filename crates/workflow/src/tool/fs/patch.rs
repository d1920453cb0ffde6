//! `fs.patch`: applies a unified diff to a text file.
//!
//! Models count lines badly, so the numbers of a hunk only choose among the places where its lines are. Blanks and everything
//! else of these lines have to agree. A patch and a file that end their lines in different ways agree, too, and new lines
//! then end as those of the file.

use std::{borrow::Cow, path::Path};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ChangeOutput, edit::read, write_one, writing_tool};
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
    new: Vec<NewLine<'p>>,
    /// Whether the last of the old lines is the end of the file, without a line break.
    ends_old: bool,
    /// Whether the last of the new lines is the end of the file, without a line break.
    ends_new: bool,
}

/// A line of the file after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewLine<'p> {
    /// The old line of this index.
    Kept(usize),
    Added(&'p str),
}

/// How lines are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnds {
    Exact,
    Ignored,
}

fn patch(root: &Path, input: &Patch) -> Result<ChangeOutput, ToolError> {
    let Patch { path, patch } = input;
    let text = read(root, path)?;
    let patched = parse(patch).and_then(|it| apply(&text, &it));
    let refuse = |why| ToolError::permanent(format!("`{path}` is not changed: {why}"));
    write_one(root, path, patched.map_err(refuse)?)
}

/// Reads the hunks of one file.
fn parse(patch: &str) -> Result<Vec<Hunk<'_>>, String> {
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    let mut sides = (false, false);
    // `lines` would remove the `\r` of a line, which belongs to the file.
    let lines: Vec<&str> = patch.strip_suffix('\n').unwrap_or(patch).split('\n').collect();
    for (at, line) in lines.iter().copied().enumerate() {
        if let Some(rest) = line.strip_prefix("@@") {
            let digits = rest.trim_start().strip_prefix('-').unwrap_or_default();
            let end = digits.find(|it: char| !it.is_ascii_digit()).unwrap_or(digits.len());
            let first = digits[..end].parse().ok();
            let old = Vec::new();
            let new = Vec::new();
            hunks.push(Hunk { first, old, new, ends_old: false, ends_new: false });
            continue;
        }
        let Some(hunk) = hunks.last_mut() else {
            // The header.
            if line.strip_prefix("+++ ").is_some_and(|it| it.trim_end() == "/dev/null") {
                return Err("the patch removes the file; `fs.rm` does that".to_owned());
            }
            let is_empty = patch.is_empty();
            if is_empty || ["--- ", "+++ ", "diff ", "index "].iter().any(|it| line.starts_with(it))
            {
                continue;
            }
            return Err(format!("line {} of the patch is before its first `@@`", at + 1));
        };
        // A line that begins with `--` may be removed, but not in this company.
        let begins_file = lines[at..].iter().zip(["--- ", "+++ ", "@@"]);
        if begins_file.filter(|(line, start)| line.starts_with(start)).count() == 3 {
            return Err(format!("a patch is of one file, and line {} begins another", at + 1));
        }
        match line.split_at_checked(1) {
            Some((" ", rest)) => {
                hunk.keep(rest);
                sides = (true, true);
            }
            Some(("-", rest)) => {
                hunk.old.push(rest);
                sides = (true, false);
            }
            Some(("+", rest)) => {
                hunk.new.push(NewLine::Added(rest));
                sides = (false, true);
            }
            // `\ No newline at end of file`, about the line before it.
            Some(("\\", _)) => {
                hunk.ends_old |= sides.0;
                hunk.ends_new |= sides.1;
            }
            // An empty line of the file, without its blank.
            None | Some(("\r", "")) => {
                hunk.keep(line);
                sides = (true, true);
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

impl<'p> Hunk<'p> {
    fn keep(&mut self, line: &'p str) {
        self.new.push(NewLine::Kept(self.old.len()));
        self.old.push(line);
    }

    /// Returns whether the hunk fits at a place, its marks of the end of the file included.
    fn fits(&self, lines: &[&str], place: usize, ends: LineEnds) -> bool {
        let Some(there) = lines.get(place..place + self.old.len()) else { return false };
        let is_equal = |(one, other): (&&str, &&str)| match ends {
            LineEnds::Exact => one == other,
            LineEnds::Ignored => without_return(one) == without_return(other),
        };
        let rest = &lines[place + self.old.len()..];
        let is_at_end = match (self.ends_old, self.ends_new) {
            (true, _) => rest.is_empty(),
            (false, true) => rest.is_empty() || rest == [""],
            (false, false) => true,
        };
        is_at_end && there.iter().zip(&self.old).all(is_equal)
    }
}

/// Returns the text with all hunks applied.
fn apply(text: &str, hunks: &[Hunk<'_>]) -> Result<String, String> {
    let lines: Vec<&str> = text.split('\n').collect();
    // Behind the last line break is no line, or one without a break.
    let (rest, broken) = lines.split_last().expect("a split text has at least one part");
    let mut patched: Vec<Cow<'_, str>> = Vec::new();
    let mut done = 0;
    for (at, hunk) in hunks.iter().enumerate() {
        let (start, ends) =
            place_of(hunk, &lines, done).map_err(|why| format!("hunk {} {why}", at + 1))?;
        patched.extend(lines[done..start].iter().copied().map(Cow::from));
        // The line at the place of the hunk, or before it, shows how lines end here. Without one, the patch does.
        let has_return = broken.get(start).or(broken.last()).map(|it| it.ends_with('\r'));
        let is_exact = ends == LineEnds::Exact && start < broken.len();
        patched.extend(hunk.new.iter().map(|line| match (*line, has_return) {
            // The rest of the file may get a line break.
            (NewLine::Kept(index), Some(true)) if start + index == broken.len() => {
                with_return(rest)
            }
            (NewLine::Kept(index), _) => lines[start + index].into(),
            (NewLine::Added(line), Some(true)) if !is_exact => with_return(line),
            (NewLine::Added(line), Some(false)) if !is_exact => without_return(line).into(),
            (NewLine::Added(line), _) => line.into(),
        }));
        done = start + hunk.old.len();
        match (hunk.ends_old, hunk.ends_new) {
            (true, false) => patched.push("".into()),
            // The empty rest after the last line break.
            (false, true) => done = lines.len(),
            _ => {}
        }
    }
    patched.extend(lines[done..].iter().copied().map(Cow::from));
    if let Some(last) = patched.last_mut().filter(|it| it != rest) {
        *last = without_return(last).to_owned().into();
    }
    Ok(patched.join("\n"))
}

fn with_return(line: &str) -> Cow<'_, str> {
    format!("{}\r", without_return(line)).into()
}

fn without_return(line: &str) -> &str {
    line.strip_suffix('\r').unwrap_or(line)
}

/// Returns the place of a hunk behind the earlier ones, and how its lines agree with those of the file.
fn place_of(hunk: &Hunk<'_>, lines: &[&str], done: usize) -> Result<(usize, LineEnds), String> {
    const NOWHERE: &str = "is not in the file as it is; read the file again";
    if hunk.old.is_empty() {
        // New lines alone stand behind the line of this number.
        let first = hunk.first.ok_or("has neither lines of the file nor a number")?;
        let place = first.clamp(done, lines.len());
        let is_there = hunk.fits(lines, place, LineEnds::Exact);
        return if is_there { Ok((place, LineEnds::Ignored)) } else { Err(NOWHERE.to_owned()) };
    }
    for ends in [LineEnds::Exact, LineEnds::Ignored] {
        let fits = |it: &usize| hunk.fits(lines, *it, ends);
        let places: Vec<usize> = (done..lines.len()).filter(fits).collect();
        match (&places[..], hunk.first) {
            ([], _) => {}
            ([place], _) => return Ok((*place, ends)),
            (_, None) => {
                return Err(format!("fits in {} places; include more lines", places.len()));
            }
            (_, Some(first)) => {
                let nearest = places.iter().min_by_key(|it| it.abs_diff(first.saturating_sub(1)));
                return Ok((*nearest.expect("there are places"), ends));
            }
        }
    }
    Err(NOWHERE.to_owned())
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
        assert_eq!(patched(text, last).unwrap(), "a\nb\n\nc\nd\nE");
    }

    /// The expected texts are those of `git apply`.
    #[test]
    fn the_line_break_at_the_end_can_be_added_and_removed() {
        const NONE: &str = "\\ No newline at end of file\n";
        for (text, patch, expected) in [
            ("a\nb", format!("@@ -2 +2 @@\n-b\n{NONE}+b\n"), "a\nb\n"),
            ("a\nb\n", format!("@@ -2 +2 @@\n-b\n+b\n{NONE}"), "a\nb"),
            ("a\nb", format!("@@ -1,2 +1,2 @@\n-a\n+A\n b\n{NONE}"), "A\nb"),
            ("a\nb", format!("@@ -1,2 +1 @@\n a\n-b\n{NONE}"), "a\n"),
            ("a\nb", format!("@@ -2 +2,2 @@\n-b\n{NONE}+b\n+c\n{NONE}"), "a\nb\nc"),
            ("", format!("@@ -0,0 +1 @@\n+a\n{NONE}"), "a"),
            ("", "@@ -0,0 +1 @@\n+a\n".to_owned(), "a\n"),
        ] {
            assert_eq!(patched(text, &patch).unwrap(), expected, "{patch}");
        }
        for (text, patch) in [
            ("a\nb\n", format!("@@ -2 +2 @@\n-b\n{NONE}+b\n")),
            ("a\nb\n", format!("@@ -1 +1 @@\n-a\n+A\n{NONE}")),
            ("a\nb\n", format!("@@ -1,0 +1 @@\n+A\n{NONE}")),
        ] {
            let error = patched(text, &patch).unwrap_err();
            assert!(error.starts_with("hunk 1 is not in the file"), "{patch}: {error}");
        }
    }

    #[test]
    fn a_file_keeps_its_line_ends() {
        let crlf = "a\r\nb\r\n\r\nc\r\n";
        let lf = "a\nb\n\nc\n";
        let plain = "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n\n";
        let with_returns = "@@ -1,3 +1,4 @@\n a\r\n-b\r\n+B\r\n+B2\r\n \r\n";
        let all_returns = plain.replace('\n', "\r\n");
        for patch in [plain, with_returns, &all_returns] {
            assert_eq!(patched(crlf, patch).unwrap(), "a\r\nB\r\nB2\r\n\r\nc\r\n", "{patch:?}");
            assert_eq!(patched(lf, patch).unwrap(), "a\nB\nB2\n\nc\n", "{patch:?}");
        }
        assert_eq!(patched("a\r\n", "@@ -1,0 +2 @@\n+b\n").unwrap(), "a\r\nb\r\n");
        assert_eq!(patched("", "@@ -0,0 +1,2 @@\n+a\r\n+b\r\n").unwrap(), "a\r\nb\r\n");
        // A patch of the line ends themselves.
        assert_eq!(patched("a\r\nb\n", "@@ -1 +1 @@\n-a\r\n+a\n").unwrap(), "a\nb\n");
    }

    #[test]
    fn a_last_line_without_a_break_has_no_part_of_one() {
        const NONE: &str = "\\ No newline at end of file\n";
        for (text, patch, expected) in [
            ("a\r\nb", format!("@@ -1,2 +1,2 @@\n-a\n+A\n-b\n+B\n{NONE}"), "A\r\nB"),
            ("a\r\nb", format!("@@ -2 +2 @@\n-b\n{NONE}+B\n{NONE}"), "a\r\nB"),
            ("a\r\nb", format!("@@ -2 +2 @@\n-b\n{NONE}+B\n"), "a\r\nB\r\n"),
            ("a\r\nb", "@@ -2 +2,2 @@\n b\n+c\n".to_owned(), "a\r\nb\r\nc"),
            ("a\r\nb\r\n", format!("@@ -2 +2 @@\n-b\r\n+B\r\n{NONE}"), "a\r\nB"),
            ("a", "@@ -1 +1 @@\n-a\r\n+b\r\n".to_owned(), "b"),
            ("", format!("@@ -0,0 +1,2 @@\n+a\r\n+b\r\n{NONE}"), "a\r\nb"),
            ("a\nb\r", "@@ -1 +1 @@\n-a\n+A\n".to_owned(), "A\nb\r"),
        ] {
            assert_eq!(patched(text, &patch).unwrap(), expected, "{text:?} {patch}");
        }
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
            ("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "the patch removes the file; `fs.rm`"),
            (
                "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-c\n+d\n",
                "a patch is of one file, and line 6 begins another",
            ),
            ("@@\n+b\n", "hunk 1 has neither lines of the file nor a number"),
        ] {
            let error = patched("a\n", patch).unwrap_err();
            assert!(error.starts_with(problem), "{patch:?}: {error}");
        }
    }
}
