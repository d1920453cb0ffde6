//! `graphrun fmt [FILE|FOLDER…]`.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    beneath::{BeneathError, read_named, write_beside},
    cli::{
        arguments::{
            globals::{Globals, Output},
            workflow_files::find,
        },
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{print_result, print_unchanged},
            words::count,
        },
    },
    data_limit::DataLimit,
    workflow::format_text,
};

/// The path that stands for stdin.
const STDIN: &str = "-";

/// Lay out workflows and test cases: spaces, line breaks and quotes, never their values
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The files to lay out; of a folder, all workflows and test cases below it; `-` lays out stdin and prints it
    #[arg(required = true, value_name = "FILE|FOLDER")]
    paths: Vec<PathBuf>,
    /// Change nothing; fail if a file is laid out differently
    #[arg(long)]
    check: bool,
}

impl Args {
    /// Lays out every file. A file that cannot be read does not keep the others from being laid out.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("fmt", &[Output::Text, Output::Json])?;
        if self.paths.iter().any(|it| it.as_os_str() == STDIN) {
            return self.lay_out_stdin(globals);
        }
        let mut files = find(&self.paths)?;
        // A link in a folder may lead out of it.
        files.retain(|it| self.paths.contains(&it.path) || !it.path.is_symlink());
        let mut changed = Vec::new();
        let mut refused = 0_usize;
        for file in &files {
            match self.lay_out(&file.path) {
                Ok(true) => changed.push(file.path.display().to_string()),
                Ok(false) => (),
                Err(error) => {
                    refused += 1;
                    crate::cli::report(&error, globals.stderr);
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

    /// Prints the text of stdin as it is laid out. With `--check`, only the exit code shows whether it differs.
    fn lay_out_stdin(&self, globals: &Globals) -> Result<Exit, CliError> {
        if self.paths.len() > 1 || globals.output == Output::Json {
            let message = "`-` stands for stdin, whose layout is printed as a text";
            return Err(
                CliError::usage(message).with_help("lay out one text at a time: `graphrun fmt -`")
            );
        }
        let path = Path::new(STDIN);
        let text = read_stdin().map_err(|error| CliError::read(path, error))?;
        let laid_out = format_text("stdin", &text)
            .map_err(|diagnostics| CliError::invalid(path, diagnostics))?;
        if self.check {
            return Ok(if laid_out == text { Exit::Done } else { Exit::Failed });
        }
        print_unchanged(&laid_out).map_err(CliError::write)?;
        Ok(Exit::Done)
    }

    /// Lays out a file; returns whether its layout differs.
    fn lay_out(&self, path: &Path) -> Result<bool, CliError> {
        let text = read_named(path, DataLimit::FileBytes)
            .map_err(|error| CliError::read(path, error.into()))?;
        let name = path.display().to_string();
        let laid_out = format_text(&name, &text)
            .map_err(|diagnostics| CliError::invalid(path, diagnostics))?;
        if laid_out == text {
            return Ok(false);
        }
        if !self.check {
            // A link stays a link, and its target is replaced.
            let written = fs::canonicalize(path).map_err(BeneathError::from);
            written.and_then(|it| write_beside(&it, laid_out.as_bytes())).map_err(|error| {
                CliError::usage(format!("cannot write `{name}`")).because(error)
            })?;
        }
        Ok(true)
    }

    fn summary(&self, files: usize, changed: &[String], refused: usize) -> String {
        let done = if self.check { "would be laid out differently" } else { "laid out" };
        let kept = files - changed.len() - refused;
        let refused = match refused {
            0 => String::new(),
            some => format!(", {some} refused"),
        };
        let files = count(files as u64, "file");
        let changes = changed.len();
        let mut lines: Vec<String> = changed.iter().map(|it| format!("{it}: {done}\n")).collect();
        let verb = if self.check { "would change" } else { "changed" };
        lines.push(format!("{files}: {changes} {verb}, {kept} as before{refused}\n"));
        lines.concat()
    }
}

fn read_stdin() -> io::Result<String> {
    let limit = DataLimit::FileBytes;
    let mut bytes = Vec::new();
    io::stdin().lock().take(limit.value().saturating_add(1)).read_to_end(&mut bytes)?;
    limit.check(bytes.len() as u64).map_err(|reached| {
        io::Error::new(io::ErrorKind::FileTooLarge, format!("the text is {reached}"))
    })?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
