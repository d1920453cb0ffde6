//! `graphrun runs history RUN`.

use super::steps::{HistoryStep, HistoryTask, steps};
use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{Paint, print_result},
            words::{clean, table},
        },
        process::runtime::block_on,
    },
    id::NodeName,
};

/// Print the steps of a run: its tasks, their changes and the next tasks
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run
    run: String,
}

impl Args {
    /// Prints a line for each step: its tasks, the changed fields, and the next nodes.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs history", &[Output::Text, Output::Json])?;
            let checkpointer = globals.database_to_read()?.open_for(&self.run)?;
            let id = checkpointer.find(&self.run).await?.info.id;
            let steps = steps(checkpointer.journal_without_values(&id).await?);
            let text = match globals.output {
                Output::Json => to_json(&steps)?,
                _ => draw(&steps, globals.stdout),
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }
}

fn draw(steps: &[HistoryStep], paint: Paint) -> String {
    let mut rows =
        vec![["STEP", "TIME", "RAN", "CHANGED", "NEXT"].map(|it| paint.faint(it)).to_vec()];
    rows.extend(steps.iter().map(|step| {
        let time = step.ts.as_deref().and_then(|ts| ts.get(11..19)).unwrap_or_default();
        let mut ran: Vec<String> = step.tasks.iter().map(describe).collect();
        if !step.by_hand.is_empty() {
            ran.push("by hand".to_owned());
        }
        let changed: Vec<&str> = step.changes.iter().map(|it| it.field.as_str()).collect();
        let mut next: Vec<&str> = step.next.iter().map(NodeName::as_str).collect();
        next.dedup();
        vec![
            paint.strong(&step.step.to_string()),
            time.to_owned(),
            match (&step.migrated_to, step.turn) {
                (Some(workflow), _) => format!("migrated to {}", clean(workflow)),
                (None, Some(turn)) => format!("turn {turn} begins"),
                (None, None) if ran.is_empty() => "—".to_owned(),
                (None, None) => ran.join(", "),
            },
            if changed.is_empty() { "—".to_owned() } else { changed.join(", ") },
            if next.is_empty() { "the end".to_owned() } else { next.join(", ") },
        ]
    }));
    table(&rows)
}

fn describe(task: &HistoryTask) -> String {
    match task.outcome {
        "finished" => task.node.to_string(),
        outcome => format!("{} ({outcome})", task.node),
    }
}
