//! The file of results: a line about the evaluation, then a line for each result.

use std::{
    collections::BTreeMap,
    fs::{File, TryLockError},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Mutex,
};

use serde::{Deserialize, Serialize};

use super::run::Attempt;
use crate::{
    beneath::{append_beside, append_named, open_named},
    cli::{error::CliError, exit::Exit},
    data_limit::DataLimit,
    event::{Status, Usage},
    id::RunId,
};

/// The version of the lines.
const VERSION: u32 = 1;

/// The version of a workflow that is evaluated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Evaluation {
    /// The name of the workflow.
    pub(super) workflow: String,
    /// Identifies the version of the workflow.
    pub(super) fingerprint: String,
}

/// The first line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    v: u32,
    /// Distinguishes the runs of this evaluation from those of every other.
    evaluation: String,
    #[serde(flatten)]
    of: Evaluation,
}

/// The result of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) row: String,
    pub(super) model: Option<String>,
    pub(super) repeat: u32,
    pub(super) run: RunId,
    /// Identifies what the run was compared with.
    pub(super) expected: String,
    pub(super) passed: bool,
    pub(super) problems: Vec<String>,
    pub(super) status: Status,
    /// How often its most visited node ran: 1 if no loop went back.
    pub(super) rounds: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) score: Option<f64>,
    pub(super) usage: Usage,
    /// The time of its work.
    pub(super) ms: u64,
}

/// The results so far, and their file.
#[derive(Debug)]
pub(super) struct Results {
    path: PathBuf,
    head: Head,
    file: Mutex<File>,
    lines: Mutex<BTreeMap<RunId, Line>>,
}

impl Results {
    /// Opens the results of an evaluation, or begins new ones. A link is followed only if a person named the path.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be used, or has the results of something else.
    pub(super) fn open(path: &Path, is_named: bool, of: &Evaluation) -> Result<Self, CliError> {
        let unusable = |error: io::Error| -> CliError {
            let message = format!("the results cannot be kept in `{}`", path.display());
            CliError::new(Exit::Unusable, message)
                .because(error)
                .with_help("name another file with `--results`; nothing was started")
        };
        let opened = if is_named { append_named(path) } else { append_beside(path) };
        let file = opened.map_err(|error| unusable(error.into()))?;
        // Two evaluations with one file would make the same runs.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("`{}` is in use by another `graphrun eval`", path.display());
                let error = CliError::new(Exit::Unusable, message);
                return Err(
                    error.with_help("wait for its end, or name another file with `--results`")
                );
            }
            // Some network drives have no locks.
            Err(TryLockError::Error(_)) => {}
        }
        // The end of a line may be missing after a crash; its run has its result in the database.
        let Content { found, bytes } = read(path, &file, unusable)?;
        file.set_len(bytes).map_err(unusable)?;
        // A file without results belongs to no version of the workflow yet.
        let found = found.filter(|(head, lines)| head.of == *of || !lines.is_empty());
        let (head, lines) = if let Some(found) = found {
            found
        } else {
            file.set_len(0).map_err(unusable)?;
            let evaluation = RunId::generate().to_string();
            let head = Head { v: VERSION, evaluation, of: of.clone() };
            append(&file, &head).map_err(unusable)?;
            (head, Vec::new())
        };
        if head.of != *of {
            let message = format!(
                "`{}` has results of the workflow `{}`, which was different",
                path.display(),
                head.of.workflow
            );
            return Err(CliError::usage(message).with_help(
                "name another file with `--results`, and compare both with `graphrun eval compare`",
            ));
        }
        let lines = lines.into_iter().map(|it| (it.run.clone(), it)).collect();
        let file = Mutex::new(file);
        let lines = Mutex::new(lines);
        Ok(Self { path: path.to_owned(), head, file, lines })
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version of the workflow that is evaluated.
    pub(super) fn evaluation(&self) -> &Evaluation {
        &self.head.of
    }

    /// Returns what distinguishes the runs of this evaluation from those of every other.
    pub(super) fn id(&self) -> &str {
        &self.head.evaluation
    }

    /// Returns the result of an attempt, unless something else is expected of it now.
    pub(super) fn get(&self, attempt: &Attempt) -> Option<Line> {
        let lines = self.lines.lock().expect("no reader panics");
        lines.get(&attempt.id).filter(|it| it.expected == attempt.expected).cloned()
    }

    /// Adds a result.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written. The run itself is saved: the next evaluation finds it.
    pub(super) fn append(&self, line: Line) -> Result<(), CliError> {
        append(&self.file.lock().expect("no writer panics"), &line).map_err(|error| {
            let message = format!("cannot write `{}`", self.path.display());
            CliError::new(Exit::Unusable, message).because(error).with_help(
                "the runs are saved: the same command continues once the file can be written",
            )
        })?;
        self.lines.lock().expect("no reader panics").insert(line.run.clone(), line);
        Ok(())
    }
}

/// Reads a file of results.
///
/// # Errors
///
/// Fails if it cannot be read, or is no file of results.
pub(super) fn load(path: &Path) -> Result<(Evaluation, Vec<Line>), CliError> {
    let unreadable = |error: io::Error| CliError::read(path, error);
    let file = open_named(path).map_err(|error| unreadable(error.into()))?;
    let found = read(path, &file, unreadable)?.found;
    let (head, lines) = found.ok_or_else(|| no_results(path, 1))?;
    // The last of several results of a run is the one that counts.
    let last: BTreeMap<RunId, Line> = lines.into_iter().map(|it| (it.run.clone(), it)).collect();
    Ok((head.of, last.into_values().collect()))
}

/// What a file of results contains.
struct Content {
    /// The first line and the others; nothing if the file is empty.
    found: Option<(Head, Vec<Line>)>,
    /// The number of bytes of its whole lines.
    bytes: u64,
}

/// Reads the whole lines of a file. It is read line by line, so a large file of another kind is refused at its first line.
fn read(
    path: &Path,
    file: &File,
    unreadable: impl Fn(io::Error) -> CliError,
) -> Result<Content, CliError> {
    let limit = DataLimit::InputBytes;
    let mut file = BufReader::new(file);
    let mut content = Content { found: None, bytes: 0 };
    for number in 1.. {
        let mut line = Vec::new();
        let mut limited = file.by_ref().take(limit.value().saturating_add(1));
        limited.read_until(b'\n', &mut line).map_err(&unreadable)?;
        let refused = |error: serde_json::Error| no_results(path, number).because(error);
        limit.check(line.len() as u64).map_err(|it| no_results(path, number).because(it))?;
        if line.last() != Some(&b'\n') {
            if content.found.is_none() && !line.is_empty() {
                return Err(no_results(path, number));
            }
            break;
        }
        if let Some((_, lines)) = &mut content.found {
            lines.push(serde_json::from_slice(&line).map_err(refused)?);
        } else {
            let head: Head = serde_json::from_slice(&line).map_err(refused)?;
            if head.v != VERSION {
                let message = format!("a newer version of graphrun wrote `{}`", path.display());
                return Err(CliError::usage(message));
            }
            content.found = Some((head, Vec::new()));
        }
        content.bytes += line.len() as u64;
    }
    Ok(content)
}

fn no_results(path: &Path, line: usize) -> CliError {
    let message = format!("{}:{line}: this is no file of results", path.display());
    CliError::usage(message).with_help("name a file that `graphrun eval` has written")
}

fn append(mut file: &File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    file.write_all(text.as_bytes())
}

/// Returns a short digest of a value.
///
/// # Errors
///
/// Fails when the value cannot be represented as JSON.
pub(super) fn digest(value: &impl Serialize) -> Result<String, CliError> {
    let bytes = serde_json::to_vec(value).map_err(|error| CliError::write(error.into()))?;
    Ok(blake3::hash(&bytes).to_hex().chars().take(24).collect())
}
