//! `graphrun graph WORKFLOW`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::{
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    prepare::{check, refuse},
    terminal::print_result,
};
use crate::draw::{Charset, Drawing};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workflow to draw
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: PathBuf,
    /// As what it is drawn
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal
    #[default]
    Ascii,
    /// For Markdown
    Mermaid,
}

/// Draws a workflow that passes its checks.
pub(super) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("graph", &[Output::Text])?;
    let (compiled, _) = check(&args.workflow).map_err(|it| refuse(&args.workflow, it))?;
    let drawing = Drawing::of(compiled.graph());
    let charset = if globals.is_ascii_only() { Charset::Ascii } else { Charset::Unicode };
    let text = match args.format {
        Format::Ascii => drawing.to_listing(charset),
        Format::Mermaid => drawing.to_mermaid(),
    };
    print_result(&format!("{}\n", text.trim_end())).map_err(CliError::write)?;
    Ok(Exit::Done)
}
