//! `changes`: the files of a copy of a folder that are written back after a program has changed them.

use std::collections::BTreeMap;

use graphrun_core::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError},
};
use graphrun_sandbox::{SourceFile, check_path};
use graphrun_workflow::kind::NodeReader;

use super::write_files::replace_in;

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

/// Writes changed files back to a folder of the run.
pub(super) async fn write_back(
    ctx: &NodeContext,
    name: &str,
    changes: BTreeMap<String, Vec<u8>>,
    program: &str,
) -> Result<(), NodeError> {
    let mut files = Vec::new();
    for (path, content) in changes {
        let content = String::from_utf8(content).map_err(|_| {
            let message = format!("`{program}` wrote `{path}`, which is not UTF-8");
            Failure::new(ErrorKind::Command, message)
        })?;
        files.push(SourceFile { path, content });
    }
    if files.is_empty() {
        return Ok(());
    }
    for path in replace_in(ctx, name, files).await? {
        ctx.report(Report::Artifact { path: path.display().to_string() }).await;
    }
    Ok(())
}
