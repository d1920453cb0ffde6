//! `graphrun runs events RUN`.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    checkpoint::{Checkpointer, Detail, RunSummary},
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            progress::{Caption, line},
            terminal::{print_message, print_result, print_while_read},
        },
        process::runtime::block_on,
    },
    event::{RunEvent, Status},
    id::RunId,
};

/// The polling interval for a followed run, short enough for a person who watches.
const LOOK: Duration = Duration::from_millis(100);

/// How many entries are read at once.
const ENTRIES_AT_ONCE: usize = 256;

/// Print the events of a run
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run
    run: String,
    /// Only the events after this number
    #[arg(long, value_name = "SEQ", default_value_t)]
    after: u64,
    /// Follow the run, in any process, until it stops
    #[arg(long)]
    follow: bool,
}

/// Reads the events of a run in order, each once, as their entries are saved.
struct EventReader<'a> {
    checkpointer: &'a dyn Checkpointer,
    run: RunId,
    /// The number of the last entry that was read.
    number: u64,
    /// The number of the last event that was read or skipped by `--after`.
    seq: u64,
}

impl Args {
    /// Prints the events in order, as lines for people or as JSON.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs events", &[Output::Text, Output::Json, Output::Jsonl])?;
            if self.follow && globals.output == Output::Json {
                return Err(CliError::usage(
                    "`--output json` prints one complete list, which `--follow` never has",
                )
                .with_help("use `--output jsonl` with `--follow`: one event per line"));
            }
            let database = globals.database_to_read()?;
            let checkpointer = database.open_for(&self.run)?;
            let info = checkpointer.find(&self.run).await?.info;
            let resume = database.with_permissions_of(&info).command("resume", &info.name);
            let caption = Caption { name: info.name.clone(), resume };
            let checkpointer = checkpointer.as_ref();
            let run = info.id;
            let mut reading = EventReader { checkpointer, run, number: 0, seq: self.after };
            if globals.output == Output::Json {
                let mut all = Vec::new();
                while let Some(events) = reading.next().await? {
                    all.extend(events);
                }
                print_result(&to_json(&all)?).map_err(CliError::write)?;
                return Ok(Exit::Done);
            }
            loop {
                // The status is read before the events, so that the last events are included.
                let stands = reading.look().await?;
                while let Some(events) = reading.next().await? {
                    let lines = events.iter().map(|it| drawn(it, globals, &caption));
                    let lines: String = lines.collect::<Result<_, _>>()?;
                    if !print_while_read(&lines).map_err(CliError::write)? {
                        return Ok(Exit::Done);
                    }
                }
                if !self.follow || stands == FollowStatus::Stopped {
                    return Ok(Exit::Done);
                }
                if stands == FollowStatus::Abandoned {
                    let gone = format!("the process that owned run {} is gone", caption.name);
                    let resume = caption.resume.iter().map(|it| format!("; continue with: {it}"));
                    print_message(&resume.fold(gone, |text, it| text + &it));
                    return Ok(Exit::Done);
                }
                sleep(LOOK).await;
            }
        })
    }
}

/// The status of a followed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowStatus {
    Running,
    Stopped,
    /// The process that owned it is gone.
    Abandoned,
}

impl EventReader<'_> {
    /// Returns the status of the run. A process may have stopped the run just before it ended, so
    /// the status is read again when the process is gone.
    async fn look(&self) -> Result<FollowStatus, CliError> {
        for _ in 0..2 {
            let summary = self.checkpointer.find(self.run.as_str()).await?;
            if summary.status != Status::Running {
                return Ok(FollowStatus::Stopped);
            }
            if !is_left(&summary) {
                return Ok(FollowStatus::Running);
            }
        }
        Ok(FollowStatus::Abandoned)
    }

    /// Returns the events of the next entries; none if there are no new entries.
    async fn next(&mut self) -> Result<Option<Vec<RunEvent>>, CliError> {
        let entries = self
            .checkpointer
            .entries(&self.run, self.number, ENTRIES_AT_ONCE, Detail::Whole)
            .await?;
        let Some(last) = entries.last() else { return Ok(None) };
        self.number = last.number;
        let mut events: Vec<RunEvent> =
            entries.into_iter().flat_map(|it| it.entry.events).collect();
        events.retain(|it| it.seq > self.seq);
        self.seq = events.last().map_or(self.seq, |it| it.seq);
        Ok(Some(events))
    }
}

/// Returns whether the process that owned the run is gone.
fn is_left(summary: &RunSummary) -> bool {
    let lease = summary.lease.as_ref();
    lease.is_none_or(|it| it.owner.is_dead() || it.until <= jiff::Timestamp::now())
}

fn drawn(event: &RunEvent, globals: &Globals, caption: &Caption) -> Result<String, CliError> {
    let text = match globals.output {
        Output::Jsonl => {
            serde_json::to_string(event).map_err(|error| CliError::write(error.into()))?
        }
        _ => line(event, caption),
    };
    Ok(text + "\n")
}
