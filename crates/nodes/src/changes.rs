//! `changes`: the files of a copy of a folder that are written back, or removed, after a program has changed or removed them.

use std::{collections::BTreeMap, path::PathBuf};

use graphrun_core::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError},
};
use graphrun_guard::redact::redact;
use graphrun_sandbox::{JobResult, ProgramEnd, SourceFile, WriteError, check_files, check_path};
use graphrun_workflow::kind::NodeReader;

use super::{in_folder::refused_write, write_files::change_in};

/// The most files that a program removes from a folder. A change can have as many files.
const REMOVED_MAX: usize = 200;
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
    /// The files that are removed from the folder.
    removed: Vec<String>,
    /// Whether the program may have removed files that stay.
    is_unsure: bool,
    /// The files that do not come back, because their paths are not acceptable.
    refused: Vec<PathBuf>,
}

impl Changes {
    /// Returns the changes of a job whose own files were taken out of its result.
    pub(super) fn of(finished: JobResult) -> Self {
        let is_unsure = finished.removed.is_none() && finished.end == ProgramEnd::Exited(0);
        let mut refused: Vec<PathBuf> = finished.refused.into_keys().collect();
        let mut removed = Vec::new();
        for path in finished.removed.unwrap_or_default() {
            match path.to_str().filter(|it| check_path(it).is_ok()) {
                Some(acceptable) => removed.push(acceptable.to_owned()),
                None => refused.push(path),
            }
        }
        Self { files: finished.collected, removed, is_unsure, refused }
    }
}

/// Writes changed files back to a folder of the run, and removes from it what the program removed.
///
/// # Errors
///
/// Fails when a change cannot come back. Nothing is changed then, because a part of the work would be lost unseen.
pub(super) async fn write_back(
    ctx: &NodeContext,
    name: &str,
    changes: Changes,
    program: &str,
) -> Result<(), NodeError> {
    let Changes { files: changed, removed, is_unsure, refused } = changes;
    if let Some(message) = refused_names(&refused, program) {
        return Err(Failure::new(ErrorKind::Command, message).into());
    }
    let mut files = Vec::new();
    for (path, content) in changed {
        let content = String::from_utf8(content).map_err(|_| {
            let message = format!("`{program}` wrote `{path}`, which is not UTF-8");
            Failure::new(ErrorKind::Command, message)
        })?;
        files.push(SourceFile { path, content });
    }
    let refusal = |why: String| {
        let message = format!("the changes of `{program}` cannot be written back: {why}");
        Failure::new(ErrorKind::Command, message)
    };
    check_files(&files).map_err(|refused| refusal(refused.to_string()))?;
    if removed.len() > REMOVED_MAX {
        let why = format!("it removed {} files, more than {REMOVED_MAX}", removed.len());
        return Err(refusal(why).into());
    }
    if is_unsure {
        let message = format!(
            "files that `{program}` removed stay, because its work folder was full or could not be read as a whole"
        );
        ctx.report(Report::Warning { message }).await;
    }
    if files.is_empty() && removed.is_empty() {
        return Ok(());
    }
    let note = removed_names(&removed, program);
    let written = change_in(ctx, name, files, removed).await?.map_err(|error| match &error {
        WriteError::InTheWay { path, expected } => {
            let path = path.display();
            refusal(format!(
                "it made `{path}` a {expected}, and the folder has something else there"
            ))
            .into()
        }
        error => refused_write(error),
    });
    for path in written? {
        ctx.report(Report::Artifact { path: path.display().to_string() }).await;
    }
    if let Some(message) = note {
        ctx.report(Report::Note { message }).await;
    }
    Ok(())
}

/// Returns a message that names the removed files, if there are any.
fn removed_names(removed: &[String], program: &str) -> Option<String> {
    let named = first_names(removed.iter().map(|it| format!("`{it}`")), NAMED_MAX);
    (!removed.is_empty()).then(|| format!("`{program}` removed {named}"))
}

/// Returns a message that names changed files which do not come back, if there are any.
fn refused_names(refused: &[PathBuf], program: &str) -> Option<String> {
    let named = first_names(
        refused.iter().map(|path| {
            // The program chose the names, so they are escaped and cut, after keys are removed: a part of a key is not recognised.
            let path = path.to_string_lossy();
            let shown: String = redact(&path).chars().take(NAME_CHARACTERS_MAX).collect();
            let problem = check_path(&path).err();
            let problem = problem.map_or_else(|| "it is not UTF-8".to_owned(), |it| it.to_string());
            format!("{shown:?} ({problem})")
        }),
        NAMED_MAX,
    );
    let (files, their) = match refused.len() {
        0 => return None,
        1 => ("1 changed file".to_owned(), "cannot be written back, because its name is"),
        many => {
            (format!("{many} changed files"), "cannot be written back, because their names are")
        }
    };
    let message = format!("{files} of `{program}` {their} not acceptable: {named}");
    Some(redact(&message).into_owned())
}

/// Returns the first names, and the number of the others.
pub(super) fn first_names(names: impl ExactSizeIterator<Item = String>, max: usize) -> String {
    let more = names.len().saturating_sub(max);
    let mut named: Vec<String> = names.take(max).collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_names_are_listed_with_their_problems() {
        let of = |paths: &[&str]| {
            let refused: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
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
