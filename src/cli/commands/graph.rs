//! `graphrun graph WORKFLOW`.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{json::to_json, terminal::print_result},
        process::runtime::block_on,
        run::loaded,
    },
    draw::{Charset, Details, Drawing},
};

/// The examples after the flags in `--help`.
const EXAMPLES: &str = "Examples:
  graphrun graph team.yaml                              # to the terminal
  graphrun graph team.yaml --format svg > team.svg      # a picture, for light and dark pages
  graphrun graph team.yaml --format dot | dot -Tpdf -o team.pdf
  graphrun graph team.yaml --run brave-turtle           # what a run did: visits, failures, routes
  graphrun graph team.yaml --run brave-turtle --format json | jq '.edges[] | select(.taken > 0)'";

/// Draw a workflow, optionally with a run over it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The workflow to draw
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: PathBuf,
    /// The format of the drawing [default: text, or json with `--output json`]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Draw this run over the workflow, finished or not, by its name or id
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A list, for a terminal
    #[value(alias = "ascii")]
    Text,
    /// For Markdown
    Mermaid,
    /// For Graphviz
    Dot,
    /// A picture
    Svg,
    /// For programs
    Json,
}

impl Args {
    /// Draws a valid workflow.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        let format = format(self.format, globals)?;
        let drawing = load(&self.workflow)?;
        match &self.run {
            Some(run) => {
                block_on(async { print(&lay_over(drawing, run, globals).await?, format, globals) })
            }
            None => print(&drawing, format, globals),
        }
    }
}

fn print(drawing: &Drawing, format: Format, globals: &Globals) -> Result<Exit, CliError> {
    let charset = if globals.is_ascii_only() { Charset::Ascii } else { Charset::Unicode };
    let text = match format {
        Format::Text => drawing.to_listing(charset),
        Format::Mermaid => drawing.to_mermaid(),
        Format::Dot => drawing.to_dot(),
        Format::Svg => drawing.to_svg(),
        Format::Json => to_json(&drawing.to_document())?,
    };
    print_result(&format!("{}\n", text.trim_end())).map_err(CliError::write)?;
    Ok(Exit::Done)
}

/// Returns the format that the two flags agree on.
fn format(format: Option<Format>, globals: &Globals) -> Result<Format, CliError> {
    globals.expect_output("graph", &[Output::Text, Output::Json])?;
    match (format, globals.output) {
        (None | Some(Format::Json), Output::Json) => Ok(Format::Json),
        (Some(_), Output::Json) => {
            let message = "`--output json` contradicts `--format`";
            Err(CliError::usage(message).with_help("omit one of them"))
        }
        (format, _) => Ok(format.unwrap_or(Format::Text)),
    }
}

/// Loads a workflow for drawing, without connecting anything.
fn load(path: &Path) -> Result<Drawing, CliError> {
    let loaded = loaded::load(path)?;
    let details = Details::of(&loaded.workflow);
    let compiled = loaded.compile_only()?;
    Ok(Drawing::of(compiled.definition()).with_details(&details))
}

async fn lay_over(drawing: Drawing, run: &str, globals: &Globals) -> Result<Drawing, CliError> {
    let checkpointer = globals.database_to_read()?.open_for(run)?;
    let info = checkpointer.find(run).await?.info;
    if info.workflow != drawing.name {
        let message = format!(
            "run `{}` belongs to the workflow `{}`, not to `{}`",
            info.name, info.workflow, drawing.name
        );
        return Err(CliError::usage(message).with_help("name the workflow of the run"));
    }
    let saved = checkpointer.load(&info.id).await?;
    let journal = checkpointer.journal_without_values(&info.id).await?;
    let records: Vec<_> = journal.into_iter().flat_map(|it| it.entry.records).collect();
    Ok(drawing.with_run(&saved, &records))
}
