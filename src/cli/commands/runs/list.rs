//! `graphrun runs list`.

use serde::{Serialize, Serializer};

use crate::{
    checkpoint::{CheckpointError, Checkpointer, RunSummary, Turns},
    cli::{
        arguments::{
            globals::{Globals, Output},
            values::parse_count,
        },
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{Paint, print_message, print_result},
            words::{clean, count, table},
        },
        process::runtime::block_on,
        run::process_gone::{PROCESS_GONE, process_gone},
    },
    event::Status,
    graph::with_causes,
    id::RunId,
};

/// The status of a damaged run, of which nothing else is known.
const DAMAGED: &str = "damaged";

/// The default number of listed runs.
const LIMIT_DEFAULT: &str = "50";

/// List runs, the newest first
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List at most this many runs
    #[arg(long, value_name = "N", default_value = LIMIT_DEFAULT,
        allow_negative_numbers = true, value_parser = parse_count::<u32>)]
    limit: u32,
    /// List only runs created before this one, by id or name
    #[arg(long, value_name = "RUN")]
    before: Option<String>,
}

/// A run as JSON. For a damaged run, only its id and the damage are known.
#[derive(Debug, Serialize)]
struct RunLine {
    run: String,
    name: Option<String>,
    workflow: Option<String>,
    #[serde(serialize_with = "write_status")]
    status: Option<Status>,
    reason: Option<String>,
    steps: Option<u64>,
    /// The turns of a thread; omitted for other runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<Turns>,
    created: Option<String>,
    /// The owner of the run.
    owner: Option<String>,
    /// Whether the run is `running`, and its process is gone.
    process_gone: bool,
}

impl Args {
    /// Lists the runs of the database; prints none if there is no database.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs list", &[Output::Text, Output::Json])?;
            let database = globals.database_to_read()?;
            let runs = if let Some(checkpointer) = database.open()? {
                let before = match &self.before {
                    Some(run) => Some(place_of(checkpointer.as_ref(), run).await?),
                    None => None,
                };
                // One more than the limit shows whether there are more.
                checkpointer.page(before.as_ref(), self.limit as usize + 1).await?
            } else {
                print_message(&database.absence());
                Vec::new()
            };
            let lines =
                runs.into_iter().map(|it| it.map_or_else(|error| damaged(&error), RunLine::from));
            let mut lines: Vec<RunLine> = lines.collect();
            let more = lines.len() > self.limit as usize;
            lines.truncate(self.limit as usize);
            let text = match globals.output {
                Output::Json => to_json(&lines)?,
                _ if lines.is_empty() => "no runs yet\n".to_owned(),
                _ => draw(&lines, globals.stdout),
            };
            print_result(&text).map_err(CliError::write)?;
            if let Some(last) = lines.last().filter(|_| more) {
                print_message(&format!("there are more: graphrun runs list --before {}", last.run));
            }
            some_damaged(lines.iter().filter(|it| it.status.is_none()).count())
        })
    }
}

/// Returns the id of a run, damaged or not.
async fn place_of(checkpointer: &dyn Checkpointer, run: &str) -> Result<RunId, CliError> {
    let found = checkpointer.find(run).await;
    if let Err(CheckpointError::Damaged { run, .. }) = &found
        && let Ok(id) = RunId::parse(run)
    {
        return Ok(id);
    }
    Ok(found?.info.id)
}

/// Returns the exit of a command that skipped damaged runs.
pub(super) fn some_damaged(runs: usize) -> Result<Exit, CliError> {
    if runs == 0 {
        return Ok(Exit::Done);
    }
    let verb = if runs == 1 { "is" } else { "are" };
    let message = format!("{} {verb} damaged", count(runs as u64, "run"));
    Err(CliError::new(Exit::NotResumable, message).with_help(
        "the other runs are intact; restore a backup of the database to recover all of them",
    ))
}

#[expect(
    clippy::ref_option,
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands it over like this"
)]
fn write_status<S: Serializer>(status: &Option<Status>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(status.map_or(DAMAGED, Status::as_str))
}

/// Returns the line of a damaged run.
fn damaged(error: &CheckpointError) -> RunLine {
    let run = match error {
        CheckpointError::Damaged { run, .. } => run.clone(),
        _ => String::new(),
    };
    let reason = Some(with_causes(error));
    RunLine {
        run,
        name: None,
        workflow: None,
        status: None,
        reason,
        steps: None,
        turns: None,
        created: None,
        owner: None,
        process_gone: false,
    }
}

impl From<RunSummary> for RunLine {
    fn from(summary: RunSummary) -> Self {
        let process_gone = process_gone(&summary).is_some();
        let RunSummary { info, status, reason, step, lease, turns, .. } = summary;
        let owner = lease.filter(|it| status == Status::Running && !it.owner.is_dead());
        Self {
            owner: owner.map(|it| it.owner.to_string()),
            run: info.id.to_string(),
            name: Some(info.name),
            workflow: Some(info.workflow),
            status: Some(status),
            reason,
            steps: Some(step.0),
            turns,
            created: Some(info.created),
            process_gone,
        }
    }
}

impl RunLine {
    /// Returns the reason for the status.
    fn note(&self) -> String {
        match (self.status, &self.owner, &self.reason) {
            (Some(Status::Running), Some(owner), _) => format!("owned by {owner}"),
            (Some(Status::Running), None, _) => PROCESS_GONE.to_owned(),
            (_, _, reason) => reason.as_deref().map(clean).unwrap_or_default(),
        }
    }
}

/// Returns the number of turns of a thread, and whether the last one is open.
fn describe(turns: Turns) -> String {
    match turns {
        Turns { count, has_ended: true } => count.to_string(),
        Turns { count, has_ended: false } => format!("{count}, open"),
    }
}

fn draw(lines: &[RunLine], paint: Paint) -> String {
    let title = ["NAME", "STATUS", "STEPS", "TURNS", "WORKFLOW", "CREATED", "RUN", "REASON"];
    let mut rows = vec![title.map(|it| paint.faint(it)).to_vec()];
    rows.extend(lines.iter().map(|run| {
        // To the second: only programs need more precision.
        let created = run.created.as_deref().unwrap_or_default();
        let created = created.get(..19).unwrap_or(created).replace('T', " ");
        vec![
            paint.strong(run.name.as_deref().unwrap_or_default()),
            run.status.map_or_else(|| paint.bad(DAMAGED), |it| paint.status(it)),
            run.steps.map(|it| it.to_string()).unwrap_or_default(),
            run.turns.map(describe).unwrap_or_default(),
            clean(run.workflow.as_deref().unwrap_or_default()),
            created,
            clean(&run.run),
            run.note(),
        ]
    }));
    if lines.iter().all(|it| it.turns.is_none()) {
        let turns = title.iter().position(|it| *it == "TURNS");
        for row in &mut rows {
            turns.map(|at| row.remove(at));
        }
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_table_with_the_reasons() {
        let line = |name: &str, status, reason: Option<&str>| RunLine {
            run: "01JABC".into(),
            name: Some(name.into()),
            workflow: Some("dev_team".into()),
            status: Some(status),
            reason: reason.map(str::to_owned),
            steps: Some(9),
            turns: None,
            created: Some("2026-01-01T12:00:00.123Z".into()),
            owner: None,
            process_gone: false,
        };
        let lines = [
            line("calm-otter", Status::Done, None),
            line("bold-ibis", Status::Limit, Some("the limit of 90 steps")),
            line("lost-lark", Status::Running, None),
            RunLine { owner: Some("4711@host".into()), ..line("busy-bee", Status::Running, None) },
        ];
        insta::assert_snapshot!(draw(&lines, Paint::new(false)), @r"
        NAME        STATUS   STEPS  WORKFLOW  CREATED              RUN     REASON
        calm-otter  done     9      dev_team  2026-01-01 12:00:00  01JABC
        bold-ibis   limit    9      dev_team  2026-01-01 12:00:00  01JABC  the limit of 90 steps
        lost-lark   running  9      dev_team  2026-01-01 12:00:00  01JABC  its process is gone; resume it
        busy-bee    running  9      dev_team  2026-01-01 12:00:00  01JABC  owned by 4711@host
        ");
    }

    #[test]
    fn threads_have_a_column_of_their_turns() {
        let line = |name: &str, turns| RunLine {
            run: "01JABC".into(),
            name: Some(name.into()),
            workflow: Some("chat".into()),
            status: Some(Status::Done),
            reason: None,
            steps: Some(9),
            turns,
            created: Some("2026-01-01T12:00:00.123Z".into()),
            owner: None,
            process_gone: false,
        };
        let lines = [
            line("ada", Some(Turns { count: 3, has_ended: true })),
            line("bob", Some(Turns { count: 12, has_ended: false })),
            line("calm-otter", None),
        ];
        insta::assert_snapshot!(draw(&lines, Paint::new(false)), @r"
        NAME        STATUS  STEPS  TURNS     WORKFLOW  CREATED              RUN     REASON
        ada         done    9      3         chat      2026-01-01 12:00:00  01JABC
        bob         done    9      12, open  chat      2026-01-01 12:00:00  01JABC
        calm-otter  done    9                chat      2026-01-01 12:00:00  01JABC
        ");
    }
}
