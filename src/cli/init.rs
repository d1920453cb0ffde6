//! `graphrun init [TEMPLATE] [DIR]`: writes a workflow that runs immediately, as a starting point.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use serde_json::json;

use super::registry;
use super::{
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    json::to_json,
    terminal::print_result,
};
use crate::workflow;

/// The schema that the YAML language server of an editor uses for completion and checks.
const SCHEMA: &str = "workflow.schema.json";

/// Write a workflow to start from
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The template
    #[arg(value_enum, default_value_t = Template::Review)]
    template: Template,
    /// The folder for its files; created if it is missing
    #[arg(default_value = ".")]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Template {
    /// A writer and a critic, in a loop with a bound
    Review,
    /// A person decides; needs no model
    Approval,
    /// A question is split, and its parts are answered in parallel
    Research,
    /// A software team that turns a brief into tested code
    #[value(name = "dev_team")]
    DevTeam,
    /// Four agents that change a repository in iterations
    Cycle,
    /// A coder, tests and a reviewer that change a repository
    Lifecycle,
    /// An architect, a developer and QA that change a repository part by part
    Escalation,
    /// A task becomes a specification, sub-tasks side by side, and a change that QA has approved
    Autocode,
}

/// The files of a template, each with its path and content: those of a folder of templates, or those of `graphs` with
/// their prompts.
macro_rules! files {
    ($template:literal: $($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../graphs/templates/", $template, "/", $path)))),+]
    };
    ([$($path:literal),+ $(,)?], $prompts:literal: $($prompt:literal),+ $(,)?) => {
        &[
            $(($path, include_str!(concat!("../../graphs/", $path))),)+
            $((
                concat!("prompts/", $prompts, "/", $prompt),
                include_str!(concat!("../../prompts/", $prompts, "/", $prompt)),
            )),+
        ]
    };
}

impl Template {
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Review => files!(
                "review": "review.yaml", "review.test.yaml", "recording.jsonl",
                "prompts/write.md", "prompts/rewrite.md", "prompts/read.md", "prompts/report.md",
            ),
            Self::Approval => files!("approval": "approval.yaml", "approval.test.yaml"),
            Self::Research => files!(
                "research": "research.yaml", "research.test.yaml", "recording.jsonl",
                "prompts/split.md", "prompts/find.md", "prompts/conclude.md",
            ),
            Self::DevTeam => files!(
                ["dev_team.yaml", "dev_team.test.yaml"],
                "dev_team": "architect.md", "architect.system.md", "ba.md", "ba.system.md", "flush.md",
                "qa.md", "qa.system.md", "qc.md", "qc.system.md", "report.md", "sse.first.md",
                "sse.retry.md", "sse.system.md", "ta.md", "ta.system.md", "tl.md", "tl.system.md",
            ),
            Self::Cycle => files!(
                ["cycle.yaml", "cycle.test.yaml", "phase_result.yaml", "phase_result.test.yaml"],
                "cycle": "cd.again.md", "cd.md", "cd.system.md", "ep.md", "ep.system.md", "ra.again.md",
                "ra.md", "ra.system.md", "report.md", "vas.again.md", "vas.md", "vas.system.md",
            ),
            Self::Lifecycle => files!(
                [
                    "lifecycle.yaml", "lifecycle.test.yaml", "lifecycle_policy.yaml",
                    "lifecycle_policy.test.yaml",
                ],
                "lifecycle": "coder.system.md", "follow_up.md", "implement.md", "report.md",
                "review.md", "reviewer.system.md",
            ),
            Self::Escalation => files!(
                ["escalation.yaml", "escalation.test.yaml"],
                "escalation": "architect.system.md", "blueprint.md", "developer.system.md",
                "implement.md", "planner.system.md", "qa.md", "qa.system.md", "report.md", "split.md",
            ),
            Self::Autocode => files!(
                [
                    "autocode.yaml", "autocode.test.yaml", "autocode_subtask.yaml",
                    "autocode_subtask.test.yaml", "autocode_commands.py",
                ],
                "autocode": "analyst.system.md", "assess.md", "assessor.system.md",
                "code.again.md", "code.md", "coder.system.md", "compact.md", "context.md",
                "critique.md", "discovery.md", "fix.md", "fixer.system.md", "history.md",
                "interview.md", "mend.md", "plan.md", "planner.system.md", "progress.md",
                "quick_spec.md", "recover.md", "recovery.system.md", "report.md",
                "requirements.md", "research.md", "review.md", "reviewer.system.md", "spec.md",
                "spec_file.md", "summariser.system.md", "validate.md", "writer.system.md",
            ),
        }
    }

    /// Returns the next commands in their usual order, each with a short description.
    fn commands(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Review => &[
                ("graphrun test review.yaml --coverage", "its test cases, without a model"),
                (
                    "graphrun execute review.yaml -i topic=Lighthouses --replay recording.jsonl",
                    "a run with recorded answers, without a key",
                ),
                ("graphrun plan review.yaml", "its worst case"),
            ],
            Self::Approval => &[
                ("graphrun test approval.yaml --coverage", "its test cases, without a person"),
                (
                    "graphrun execute approval.yaml -i request='A new chair' -i amount=300",
                    "a run that asks you",
                ),
            ],
            Self::Research => &[
                ("graphrun test research.yaml --coverage", "its test cases, without a model"),
                (
                    "graphrun execute research.yaml -i question='Why is the sea salty?' \
                     --replay recording.jsonl",
                    "a run with recorded answers, without a key",
                ),
                ("graphrun graph research.yaml", "a drawing"),
            ],
            Self::DevTeam => &[
                ("graphrun test dev_team.yaml", "its test cases, without a model"),
                ("graphrun plan dev_team.yaml", "its worst case"),
                ("graphrun models", "the models that you can use"),
            ],
            Self::Cycle => &[
                ("graphrun test cycle.yaml --coverage", "its test cases, without a model"),
                ("graphrun graph cycle.yaml", "a drawing"),
                ("graphrun models", "the models that you can use"),
            ],
            Self::Escalation => &[
                ("graphrun test escalation.yaml", "its test cases, without a model"),
                ("graphrun graph escalation.yaml", "a drawing"),
                ("graphrun models", "the models that you can use"),
            ],
            Self::Autocode => &[
                (
                    "graphrun test autocode_subtask.yaml --coverage",
                    "the rules of a sub-task, without a model",
                ),
                ("graphrun graph autocode.yaml", "a drawing"),
                ("graphrun models", "the models that you can use"),
            ],
            Self::Lifecycle => &[
                ("graphrun test lifecycle_policy.yaml --coverage", "its rules, without a model"),
                ("graphrun test lifecycle.yaml", "its test cases"),
                ("graphrun models", "the models that you can use"),
            ],
        }
    }
}

impl Args {
    /// Writes all files or none, and prints the next commands.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("init", &[Output::Text, Output::Json])?;
        let schema = to_json(&workflow::json_schema(&registry()))?;
        let mut files: Vec<(PathBuf, &str)> =
            self.template.files().iter().map(|(path, text)| (self.dir.join(path), *text)).collect();
        files.push((self.dir.join(SCHEMA), &schema));
        refuse_existing(&files)?;
        write_all(&files)?;
        let result = match globals.output {
            Output::Json => {
                let paths: Vec<_> =
                    files.iter().map(|(path, _)| path.display().to_string()).collect();
                let commands: Vec<_> = self.template.commands().iter().map(|(it, _)| it).collect();
                to_json(&json!({ "files": paths, "commands": commands }))?
            }
            _ => draw(self, &files, globals),
        };
        print_result(&result).map_err(CliError::write)?;
        Ok(Exit::Done)
    }
}

/// Fails if a file exists: nothing is overwritten.
fn refuse_existing(files: &[(PathBuf, &str)]) -> Result<(), CliError> {
    let is_there = |it: &&(PathBuf, &str)| it.0.symlink_metadata().is_ok();
    let there: Vec<String> =
        files.iter().filter(is_there).map(|(path, _)| path.display().to_string()).collect();
    if there.is_empty() {
        return Ok(());
    }
    let refused = CliError::usage("some of the files exist already; nothing was written");
    Err(refused.with_problems(there).with_help("name another folder: `graphrun init review DIR`"))
}

fn write_all(files: &[(PathBuf, &str)]) -> Result<(), CliError> {
    for (at, (path, text)) in files.iter().enumerate() {
        if let Err(source) = write_new(path, text) {
            // Otherwise, a second attempt would fail because some files exist.
            files[..at].iter().for_each(|(path, _)| drop(fs::remove_file(path)));
            let message = format!("could not write {}", path.display());
            return Err(CliError::new(Exit::Unusable, message)
                .because(source)
                .with_help("name another folder: `graphrun init review DIR`"));
        }
    }
    Ok(())
}

/// Writes a file whole or not at all.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))
}

fn draw(args: &Args, files: &[(PathBuf, &str)], globals: &Globals) -> String {
    let paint = globals.stdout;
    let mut lines: Vec<String> =
        files.iter().map(|(path, _)| format!("wrote {}", path.display())).collect();
    lines.push(String::new());
    if args.dir != Path::new(".") {
        lines.push(paint.command(&format!("cd {}", args.dir.display())));
    }
    for (command, about) in args.template.commands() {
        lines.push(format!("{}  {}", paint.command(command), paint.faint(&format!("# {about}"))));
    }
    lines.join("\n") + "\n"
}
