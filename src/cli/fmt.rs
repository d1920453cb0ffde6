//! `graphrun fmt [FILE|FOLDER…]`.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    json::to_json,
    terminal::print_result,
    words::count,
    workflow_files::find,
};
use crate::{beneath::read_named, data_limit::DataLimit, workflow::format_text};

/// Lay out workflows and test cases: spaces, line breaks and quotes, never their values
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The files to lay out; of a folder, all workflows and test cases below it
    #[arg(required = true, value_name = "FILE|FOLDER")]
    paths: Vec<PathBuf>,
    /// Change nothing; fail if a file is laid out differently
    #[arg(long)]
    check: bool,
}

impl Args {
    /// Lays out every file. A file that cannot be read does not keep the others from being laid out.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("fmt", &[Output::Text, Output::Json])?;
        let files = find(&self.paths)?;
        let (mut changed, mut refused) = (Vec::new(), 0_usize);
        for file in &files {
            match self.lay_out(&file.path) {
                Ok(true) => changed.push(file.path.display().to_string()),
                Ok(false) => (),
                Err(error) => {
                    refused += 1;
                    super::report(&error, globals.stderr);
                }
            }
        }
        let text = if globals.output == Output::Json {
            to_json(&json!({"files": files.len(), "changed": changed, "refused": refused}))?
        } else {
            self.summary(files.len(), &changed, refused)
        };
        print_result(&text).map_err(CliError::write)?;
        Ok(match (refused, self.check && !changed.is_empty()) {
            (0, false) => Exit::Done,
            (0, true) => Exit::Failed,
            _ => Exit::Usage,
        })
    }

    /// Lays out a file; returns whether its layout differs.
    fn lay_out(&self, path: &Path) -> Result<bool, CliError> {
        let text = read_named(path, DataLimit::FileBytes)
            .map_err(|error| CliError::read(path, error.into()))?;
        let name = path.display().to_string();
        let laid_out =
            format_text(&name, &text).map_err(|findings| CliError::invalid(path, findings))?;
        if laid_out == text {
            return Ok(false);
        }
        if !self.check {
            replace(path, &laid_out).map_err(|error| {
                CliError::usage(format!("cannot write `{name}`")).because(error)
            })?;
        }
        Ok(true)
    }

    fn summary(&self, files: usize, changed: &[String], refused: usize) -> String {
        let done = if self.check { "would be laid out differently" } else { "laid out" };
        let refused = match refused {
            0 => String::new(),
            some => format!(", {some} refused"),
        };
        let kept = files - changed.len();
        let (files, changes) = (count(files as u64, "file"), changed.len());
        let mut lines: Vec<String> = changed.iter().map(|it| format!("{it}: {done}\n")).collect();
        lines.push(format!("{files}: {changes} changed, {kept} as before{refused}\n"));
        lines.concat()
    }
}

/// Replaces the content of a file at once, so that a crash leaves the old or the new one. A link stays a link.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = fs::canonicalize(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
        file.set_permissions(fs::metadata(&path)?.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    if written.is_err() {
        // Nothing else has this name.
        drop(fs::remove_file(&beside));
    }
    written
}
