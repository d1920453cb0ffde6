//! What is read of a run. Nothing is believed that its checksum does not cover.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use serde_json::Value;

use super::{
    fault::Fault,
    payload::{Payload, Slot, damaged},
    write::{RunKey, Standing},
};
use crate::{
    checkpoint::{CheckpointError, Position, RunInfo, RunSummary, TaskRecord},
    event::Stamped,
    id::{ChannelName, NameError, RunId, Step, TaskId},
    state::{Change, ChangeKind},
    storage::rules::{ID_PREFIX_LENGTH_MIN, ambiguous, apply},
};

/// The columns of a payload, wherever there is one in a row.
const PAYLOAD: [&str; 2] = ["payload", "checksum"];

/// A run that is in the database.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) key: RunKey,
    id: RunId,
}

impl Run {
    /// The run with this id.
    pub(super) fn find(database: &Connection, id: &RunId) -> Result<Self, Fault> {
        let found = Self::select(database, "WHERE id = ?", [id.as_str()])?;
        found.into_iter().next().ok_or_else(|| unknown(id.as_str()))
    }

    /// The run with this id, this name, or an id that alone begins like this.
    pub(super) fn search(database: &Connection, text: &str) -> Result<Self, Fault> {
        for condition in ["WHERE id = ?", "WHERE name = ?"] {
            if let Some(run) = Self::select(database, condition, [text])?.pop() {
                return Ok(run);
            }
        }
        if text.len() < ID_PREFIX_LENGTH_MIN {
            return Err(unknown(text));
        }
        // `~` sorts after every character of an id.
        let begins = "WHERE id >= ?1 AND id < ?1 || '~' ORDER BY id";
        let mut found = Self::select(database, begins, [text])?;
        match (found.pop(), found.as_slice()) {
            (None, _) => Err(unknown(text)),
            (Some(only), []) => Ok(only),
            (Some(last), _) => {
                let all = found.iter().chain([&last]);
                let ids: Vec<String> = all.map(|it| it.id.to_string()).collect();
                Err(ambiguous(text, &ids).into())
            }
        }
    }

    /// Every run, the newest first.
    pub(super) fn all(database: &Connection) -> Result<Vec<Self>, Fault> {
        Self::select(database, "ORDER BY key DESC", [])
    }

    fn select(database: &Connection, rest: &str, params: impl Params) -> Result<Vec<Self>, Fault> {
        collect(database, &format!("SELECT key, id FROM runs {rest}"), params, |row| {
            let id: String = row.get("id")?;
            let damage = |error: NameError| damaged(&id, "the id", error.into());
            Ok(Self { key: row.get("key")?, id: RunId::parse(&id).map_err(damage)? })
        })
    }

    pub(super) fn summary(&self, database: &Connection) -> Result<RunSummary, Fault> {
        let sql = "SELECT info, info_checksum, standing, standing_checksum FROM runs WHERE key = ?";
        let read = |row: &Row<'_>| {
            let id = self.id.as_str();
            let info: RunInfo = Payload::read(id, Slot::Info, row, ["info", "info_checksum"])?;
            let columns = ["standing", "standing_checksum"];
            let standing: Standing = Payload::read(id, Slot::Standing, row, columns)?;
            Ok((info, standing))
        };
        let (info, Standing { status, reason }) = self.one(database, sql, [self.key], read)?;
        Ok(RunSummary { info, status, reason, step: self.last_step(database)? })
    }

    /// The last step that was committed.
    pub(super) fn last_step(&self, database: &Connection) -> Result<Step, Fault> {
        let sql = "SELECT step FROM positions WHERE run = ? ORDER BY step DESC LIMIT 1";
        self.one(database, sql, [self.key], |row| Ok(Step(row.get("step")?)))
    }

    /// Where the run stands.
    pub(super) fn position(&self, database: &Connection) -> Result<Position, Fault> {
        let sql = "SELECT step, payload, checksum FROM positions
                   WHERE run = ? ORDER BY step DESC LIMIT 1";
        self.one(database, sql, [self.key], |row| {
            let step = Step(row.get("step")?);
            Payload::read(self.id.as_str(), Slot::Position(step), row, PAYLOAD)
        })
    }

    /// Fails if a step was never committed.
    pub(super) fn require_step(&self, database: &Connection, step: Step) -> Result<(), Fault> {
        let sql = "SELECT 1 FROM positions WHERE run = ? AND step = ?";
        match database.query_row(sql, params![self.key, step.0], |_| Ok(())).optional()? {
            Some(()) => Ok(()),
            None => Err(CheckpointError::UnknownStep { run: self.id.clone(), step }.into()),
        }
    }

    /// The values after a step: for each channel the last change that is whole, and what was
    /// appended since then.
    pub(super) fn values_at(
        &self,
        database: &Connection,
        step: Step,
    ) -> Result<BTreeMap<ChannelName, Value>, Fault> {
        let sql = "SELECT changes.channel, changes.step, payload, checksum
                   FROM changes LEFT JOIN (
                       SELECT channel, max(step) AS step FROM changes
                       WHERE run = ?1 AND step <= ?2 AND whole = 1 GROUP BY channel
                   ) AS base ON base.channel = changes.channel
                   WHERE run = ?1 AND changes.step BETWEEN ifnull(base.step, 0) AND ?2
                   ORDER BY changes.channel, changes.step";
        let changes = collect(database, sql, params![self.key, step.0], |row| {
            let (name, step): (String, u64) = (row.get("channel")?, row.get("step")?);
            let slot = Slot::Change { channel: &name, step: Step(step) };
            let damage = |error: NameError| damaged(self.id.as_str(), slot, error.into());
            let channel = ChannelName::parse(&name).map_err(damage)?;
            let kind: ChangeKind = Payload::read(self.id.as_str(), slot, row, PAYLOAD)?;
            Ok((Change { channel, kind }, Step(step)))
        })?;
        let mut values = BTreeMap::new();
        for (change, step) in changes {
            let channel = change.channel.clone();
            apply(&mut values, change).map_err(|error| {
                let slot = Slot::Change { channel: channel.as_str(), step };
                damaged(self.id.as_str(), slot, error.into())
            })?;
        }
        Ok(values)
    }

    /// The records of a step and of those after it.
    pub(super) fn records_from(
        &self,
        database: &Connection,
        step: Step,
    ) -> Result<Vec<TaskRecord>, Fault> {
        let sql = "SELECT step, task, payload, checksum FROM records
                   WHERE run = ? AND step >= ? ORDER BY step, key";
        collect(database, sql, params![self.key, step.0], |row| {
            let task = TaskId { step: Step(row.get("step")?), index: row.get("task")? };
            Payload::read(self.id.as_str(), Slot::Record(task), row, PAYLOAD)
        })
    }

    /// The events after a number.
    pub(super) fn events_after(
        &self,
        database: &Connection,
        after: u64,
    ) -> Result<Vec<Stamped>, Fault> {
        let sql = "SELECT seq, payload, checksum FROM events
                   WHERE run = ? AND seq > ? ORDER BY seq";
        collect(database, sql, params![self.key, after], |row| {
            Payload::read(self.id.as_str(), Slot::Event(row.get("seq")?), row, PAYLOAD)
        })
    }

    /// The number of the last event.
    pub(super) fn last_seq(&self, database: &Connection) -> Result<u64, Fault> {
        let sql = "SELECT ifnull(max(seq), 0) FROM events WHERE run = ?";
        Ok(database.query_row(sql, [self.key], |row| row.get(0))?)
    }

    /// The one row that must be there.
    fn one<T>(
        &self,
        database: &Connection,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        collect(database, sql, params, read)?
            .pop()
            .ok_or_else(|| damaged(self.id.as_str(), "the position", "it is missing".into()))
    }
}

/// Checks that tables and indexes agree, and that no row belongs to a run that is not there.
pub(super) fn verify(database: &Connection) -> Result<(), Fault> {
    let found: String = database.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(Fault::Damaged(found));
    }
    let orphan = |row: &Row<'_>| row.get::<_, String>("table");
    match database.query_row("PRAGMA foreign_key_check", [], orphan).optional()? {
        Some(table) => Err(Fault::Damaged(format!("`{table}` has a row without a run"))),
        None => Ok(()),
    }
}

fn collect<T>(
    database: &Connection,
    sql: &str,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut statement = database.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn unknown(run: &str) -> Fault {
    CheckpointError::UnknownRun(run.to_owned()).into()
}
