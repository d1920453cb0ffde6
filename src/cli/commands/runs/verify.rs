//! `graphrun runs verify [RUN…]`.

use serde::Serialize;

use crate::{
    checkpoint::{CheckpointError, Checkpointer, EntryHash},
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{Paint, print_result},
            words::{clean, count, table},
        },
        process::runtime::block_on,
    },
    graph::with_causes,
    storage::{Proof, prove},
};

/// Verify histories: find entries that were lost, changed or moved
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The names or ids of the runs; all of them if none is given
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
    /// A hash that you noted: fails unless the history of the run still contains it
    #[arg(long, value_name = "HASH", requires = "runs")]
    expect: Option<EntryHash>,
}

/// The result of verifying one run.
#[derive(Debug, Serialize)]
struct Verification {
    run: String,
    name: Option<String>,
    intact: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<EntryHash>,
    /// The entry with the expected hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl Args {
    /// Verifies the histories of runs by computing all hashes, and prints the last hash of each.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs verify", &[Output::Text, Output::Json])?;
            if self.expect.is_some() && self.runs.len() > 1 {
                return Err(CliError::usage(
                    "`--expect` is the hash of one run, but several runs are named",
                ));
            }
            let database = globals.database_to_read()?;
            let checkpointer = match self.runs.first() {
                Some(run) => database.open_for(run)?,
                None => database.open()?.ok_or_else(|| database.missing())?,
            };
            checkpointer.check().await?;
            let named = self.runs.clone();
            let runs = if named.is_empty() {
                checkpointer.ids().await?.iter().map(ToString::to_string).collect()
            } else {
                named
            };
            let mut verdicts = Vec::new();
            for run in runs {
                verdicts.push(judge(checkpointer.as_ref(), &run, self.expect).await?);
            }
            let text = match globals.output {
                Output::Json => to_json(&verdicts)?,
                _ if verdicts.is_empty() => "no runs yet\n".to_owned(),
                _ => draw(&verdicts, globals.stdout),
            };
            print_result(&text).map_err(CliError::write)?;
            let is_intact = verdicts.iter().all(|it| it.intact);
            Ok(if is_intact { Exit::Done } else { Exit::NotResumable })
        })
    }
}

/// Verifies one run. Fails only when the result is unknown.
async fn judge(
    checkpointer: &dyn Checkpointer,
    run: &str,
    expected: Option<EntryHash>,
) -> Result<Verification, CliError> {
    let proven = match checkpointer.find(run).await {
        Ok(summary) => {
            let proof = prove(checkpointer, &summary.info.id, expected).await;
            proof.map(|it| (summary.info, it))
        }
        Err(error) => Err(error),
    };
    match proven {
        Ok((info, proof)) => {
            Ok(Verification::of(info.id.to_string(), Some(info.name), proof, expected))
        }
        Err(error @ CheckpointError::Damaged { .. }) => Ok(Verification {
            run: run.to_owned(),
            name: None,
            intact: false,
            entries: None,
            steps: None,
            hash: None,
            expected_at: None,
            problem: Some(with_causes(&error)),
        }),
        Err(error) => Err(error.into()),
    }
}

impl Verification {
    fn of(run: String, name: Option<String>, proof: Proof, expected: Option<EntryHash>) -> Self {
        let is_there = expected.is_none() || proof.expected_at.is_some();
        let problem = "no entry has the expected hash: the history was changed or truncated";
        Self {
            run,
            name,
            intact: is_there,
            entries: Some(proof.entries),
            steps: Some(proof.steps.0),
            hash: Some(proof.hash),
            expected_at: proof.expected_at,
            problem: (!is_there).then(|| problem.to_owned()),
        }
    }
}

fn draw(verdicts: &[Verification], paint: Paint) -> String {
    let rows = verdicts.iter().map(|run| {
        let name = paint.strong(run.name.as_deref().unwrap_or(&run.run));
        if let Some(problem) = &run.problem {
            return vec![name, paint.bad("damaged"), clean(problem)];
        }
        let entries = run.entries.unwrap_or(0);
        let steps = run.steps.unwrap_or(0);
        let mut detail = format!("{}, {}", plural(entries), count(steps, "step"));
        if let Some(at) = run.expected_at {
            detail = format!("{detail}; entry {at} has the expected hash");
        }
        let hash = run.hash.map(|it| it.to_string()).unwrap_or_default();
        vec![name, paint.good("intact"), hash, detail]
    });
    table(&rows.collect::<Vec<_>>())
}

fn plural(entries: u64) -> String {
    if entries == 1 { "1 entry".to_owned() } else { format!("{entries} entries") }
}
