//! `graphrun runs list`.

use serde::Serialize;

use super::super::{
    drive::to_json,
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    terminal::{Paint, print_result, say},
    words::{clean, table},
};
use crate::{checkpoint::RunSummary, event::Status, id::RunId};

/// How many runs are listed when nobody says.
const LIMIT_DEFAULT: &str = "50";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List at most so many
    #[arg(long, value_name = "N", default_value = LIMIT_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// List only those accepted before this one, by id or name
    #[arg(long, value_name = "RUN")]
    before: Option<String>,
}

/// A run as a program reads it.
#[derive(Debug, Serialize)]
struct Line {
    run: RunId,
    name: String,
    workflow: String,
    status: Status,
    reason: Option<String>,
    steps: u64,
    created: String,
    /// The process that goes on with it.
    owner: Option<String>,
}

/// Lists the runs of the database; none if there is no database.
pub(super) async fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("runs list", &[Output::Text, Output::Json])?;
    let runs = match globals.database()?.open()? {
        Some(checkpointer) => {
            let before = match &args.before {
                Some(run) => Some(checkpointer.find(run).await?.info.id),
                None => None,
            };
            // One more tells whether there are more.
            checkpointer.page(before.as_ref(), args.limit as usize + 1).await?
        }
        None => Vec::new(),
    };
    let mut lines: Vec<Line> = runs.into_iter().map(Line::from).collect();
    let more = lines.len() > args.limit as usize;
    lines.truncate(args.limit as usize);
    let text = match globals.output {
        Output::Json => to_json(&lines)?,
        _ if lines.is_empty() => "no runs yet\n".to_owned(),
        _ => draw(&lines, globals.stdout),
    };
    print_result(&text).map_err(CliError::write)?;
    if let Some(last) = lines.last().filter(|_| more) {
        say(&format!("there are more: graphrun runs list --before {}", last.run));
    }
    Ok(Exit::Done)
}

impl From<RunSummary> for Line {
    fn from(summary: RunSummary) -> Self {
        let RunSummary { info, status, reason, step, holder } = summary;
        let owner = holder.filter(|it| status == Status::Running && !it.owner.is_gone());
        Self {
            owner: owner.map(|it| it.owner.to_string()),
            run: info.id,
            name: info.name,
            workflow: info.workflow,
            status,
            reason,
            steps: step.0,
            created: info.created,
        }
    }
}

impl Line {
    /// Why it stands as it does.
    fn note(&self) -> String {
        match (self.status, &self.owner, &self.reason) {
            (Status::Running, Some(owner), _) => format!("in the hands of {owner}"),
            (Status::Running, None, _) => "its process is gone; resume it".to_owned(),
            (_, _, reason) => reason.as_deref().map(clean).unwrap_or_default(),
        }
    }
}

fn draw(lines: &[Line], paint: Paint) -> String {
    let title = ["NAME", "STATUS", "STEPS", "WORKFLOW", "CREATED", "RUN", "REASON"];
    let mut rows = vec![title.map(|it| paint.faint(it)).to_vec()];
    rows.extend(lines.iter().map(|it| {
        // To the second: the rest is for programs.
        let created = it.created.get(..19).unwrap_or(&it.created).replace('T', " ");
        vec![
            paint.strong(&it.name),
            paint.status(it.status),
            it.steps.to_string(),
            clean(&it.workflow),
            created,
            it.run.to_string(),
            it.note(),
        ]
    }));
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_table_with_the_reasons() {
        let line = |name: &str, status, reason: Option<&str>| Line {
            run: RunId::parse("01JABC").unwrap(),
            name: name.into(),
            workflow: "dev_team".into(),
            status,
            reason: reason.map(str::to_owned),
            steps: 9,
            created: "2026-01-01T12:00:00.123Z".into(),
            owner: None,
        };
        let lines = [
            line("calm-otter", Status::Done, None),
            line("bold-ibis", Status::Limit, Some("the limit of 90 steps")),
            line("lost-lark", Status::Running, None),
            Line { owner: Some("4711@host".into()), ..line("busy-bee", Status::Running, None) },
        ];
        insta::assert_snapshot!(draw(&lines, Paint::new(false)), @r"
        NAME        STATUS   STEPS  WORKFLOW  CREATED              RUN     REASON
        calm-otter  done     9      dev_team  2026-01-01 12:00:00  01JABC
        bold-ibis   limit    9      dev_team  2026-01-01 12:00:00  01JABC  the limit of 90 steps
        lost-lark   running  9      dev_team  2026-01-01 12:00:00  01JABC  its process is gone; resume it
        busy-bee    running  9      dev_team  2026-01-01 12:00:00  01JABC  in the hands of 4711@host
        ");
    }
}
