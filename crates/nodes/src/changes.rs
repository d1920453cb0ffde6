//! `changes`: the files of a copy of a folder that are written back after a program has changed them.

use std::{collections::BTreeMap, path::PathBuf};

use graphrun_core::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError},
};
use graphrun_guard::redact::redact;
use graphrun_sandbox::{JobResult, SourceFile, check_files, check_path};
use graphrun_workflow::kind::NodeReader;

use super::write_files::replace_in;

/// The most files that a warning names, and the characters of each name.
const NAMED_MAX: usize = 5;
const NAME_CHARACTERS_MAX: usize = 80;

/// Reads the paths that are written back.
pub(super) fn read_changes(reader: &mut NodeReader<'_>) -> Vec<String> {
    let Some(yaml) = reader.get("changes") else { return Vec::new() };
    if let (None, Some(key)) = (reader.get("folder"), reader.key("changes")) {
        let help = "name one of `folders` with `folder:`";
        reader.report().bad_value(key, "without `folder` nothing can be written back", help);
    }
    let mut changes = Vec::new();
    for word in reader.report().words(yaml, "`changes`") {
        match check_path(&word.text) {
            Ok(()) => changes.push(word.text),
            Err(error) => {
                let message = format!("`{}` cannot be written back: {error}", word.text);
                reader.report().bad_value(&word, message, "name a file or a folder, as in `src`");
            }
        }
    }
    changes
}

/// The changes of a program in a copy of a folder.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The files that are written back, by path.
    pub(super) files: BTreeMap<String, Vec<u8>>,
    /// The files that do not come back, because their paths are not acceptable.
    refused: BTreeMap<PathBuf, Vec<u8>>,
}

impl Changes {
    /// Returns the changes of a job whose own files were taken out of its result.
    pub(super) fn of(finished: JobResult) -> Self {
        Self { files: finished.collected, refused: finished.refused }
    }
}

/// Writes changed files back to a folder of the run.
///
/// # Errors
///
/// Fails when a changed file cannot come back. Nothing is written then, because a part of the work would be lost unseen.
pub(super) async fn write_back(
    ctx: &NodeContext,
    name: &str,
    changes: Changes,
    program: &str,
) -> Result<(), NodeError> {
    if let Some(message) = refused_names(&changes.refused, program) {
        return Err(Failure::new(ErrorKind::Command, message).into());
    }
    let mut files = Vec::new();
    for (path, content) in changes.files {
        let content = String::from_utf8(content).map_err(|_| {
            let message = format!("`{program}` wrote `{path}`, which is not UTF-8");
            Failure::new(ErrorKind::Command, message)
        })?;
        files.push(SourceFile { path, content });
    }
    if files.is_empty() {
        return Ok(());
    }
    check_files(&files).map_err(|refused| {
        let message = format!("the changes of `{program}` cannot be written back: {refused}");
        Failure::new(ErrorKind::Command, message)
    })?;
    for path in replace_in(ctx, name, files).await? {
        ctx.report(Report::Artifact { path: path.display().to_string() }).await;
    }
    Ok(())
}

/// Returns a message that names changed files which do not come back, if there are any.
fn refused_names(refused: &BTreeMap<PathBuf, Vec<u8>>, program: &str) -> Option<String> {
    let named = refused.keys().take(NAMED_MAX).map(|path| {
        // The program chose the names, so they are escaped and cut.
        let path = path.to_string_lossy();
        let shown: String = path.chars().take(NAME_CHARACTERS_MAX).collect();
        let problem = check_path(&path).err();
        let problem = problem.map_or_else(|| "it is not UTF-8".to_owned(), |it| it.to_string());
        format!("{shown:?} ({problem})")
    });
    let mut named: Vec<String> = named.collect();
    if named.is_empty() {
        return None;
    }
    let more = refused.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        named.push(format!("{more} more"));
    }
    let (files, their) = match refused.len() {
        1 => ("1 changed file".to_owned(), "cannot be written back, because its name is"),
        many => {
            (format!("{many} changed files"), "cannot be written back, because their names are")
        }
    };
    let message = format!("{files} of `{program}` {their} not acceptable: {}", named.join(", "));
    Some(redact(&message).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_names_are_listed_with_their_problems() {
        let of = |paths: &[&str]| {
            let refused = paths.iter().map(|it| (PathBuf::from(it), Vec::new())).collect();
            refused_names(&refused, "make")
        };
        assert_eq!(of(&[]), None);
        assert_eq!(
            of(&["src/a\n:b"]).unwrap(),
            "1 changed file of `make` cannot be written back, because its name is not acceptable: \
             \"src/a\\n:b\" (the character '\\n' is not allowed in a path)"
        );
        let many = of(&["-a", "-b", "-c", "-d", "-e", "-f", "-g"]).unwrap();
        assert!(many.starts_with("7 changed files of `make` cannot be written back"), "{many}");
        assert!(many.ends_with(", 2 more") && !many.contains("\"-f\""), "{many}");
    }
}
