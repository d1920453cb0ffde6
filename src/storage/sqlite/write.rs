//! Rows to be written. They are made ready before a transaction begins, to keep that short.

use rusqlite::{Connection, ErrorCode, OptionalExtension, named_params, params};
use serde::{Deserialize, Serialize};

use super::{
    fault::Fault,
    payload::{Payload, Slot},
};
use crate::{
    checkpoint::{CheckpointError, Commit, RunInfo, TaskRecord},
    event::{Stamped, Status},
    id::{ChannelName, RunId, Step, TaskId},
    state::{Change, ChangeKind},
    storage::rules::Refusal,
};

/// The row of a run in its database.
pub(super) type RunKey = i64;

#[derive(Debug)]
pub(super) struct NewRun {
    id: String,
    name: String,
    info: Payload,
    standing: NewStanding,
}

/// How a run stands, as it is written.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Standing {
    pub(super) status: Status,
    pub(super) reason: Option<String>,
}

#[derive(Debug)]
pub(super) struct NewStanding(Payload);

#[derive(Debug)]
pub(super) struct NewStep {
    step: Step,
    position: Payload,
    changes: Vec<NewChange>,
}

#[derive(Debug)]
struct NewChange {
    channel: ChannelName,
    whole: bool,
    payload: Payload,
}

#[derive(Debug)]
pub(super) struct NewRecord {
    task: TaskId,
    is_final: bool,
    payload: Payload,
}

#[derive(Debug)]
pub(super) struct NewEvents(Vec<(u64, Payload)>);

impl NewRun {
    pub(super) fn of(info: &RunInfo) -> Result<Self, Fault> {
        Ok(Self {
            id: info.id.to_string(),
            name: info.name.clone(),
            info: Payload::of(info.id.as_str(), Slot::Info, info)?,
            standing: NewStanding::of(&info.id, Status::Running, None)?,
        })
    }

    pub(super) fn insert(&self, database: &Connection) -> Result<RunKey, Fault> {
        for (column, value) in [("id", &self.id), ("name", &self.name)] {
            let sql = format!("SELECT 1 FROM runs WHERE {column} = ?");
            if database.query_row(&sql, [value], |_| Ok(())).optional()?.is_some() {
                return Err(CheckpointError::Exists(value.clone()).into());
            }
        }
        database
            .prepare_cached(
                "INSERT INTO runs (id, name, info, info_checksum, standing, standing_checksum)
                 VALUES (:id, :name, :info, :info_checksum, :standing, :standing_checksum)",
            )?
            .insert(named_params! {
                ":id": self.id,
                ":name": self.name,
                ":info": self.info.json,
                ":info_checksum": self.info.checksum,
                ":standing": self.standing.0.json,
                ":standing_checksum": self.standing.0.checksum,
            })
            .map_err(Fault::from)
    }
}

impl NewStanding {
    pub(super) fn of(run: &RunId, status: Status, reason: Option<&str>) -> Result<Self, Fault> {
        let standing = Standing { status, reason: reason.map(str::to_owned) };
        Payload::of(run.as_str(), Slot::Standing, &standing).map(Self)
    }

    pub(super) fn update(&self, database: &Connection, run: RunKey) -> Result<(), Fault> {
        database
            .prepare_cached("UPDATE runs SET standing = ?, standing_checksum = ? WHERE key = ?")?
            .execute(params![self.0.json, self.0.checksum, run])?;
        Ok(())
    }
}

impl NewStep {
    pub(super) fn of(run: &RunId, commit: &Commit) -> Result<Self, Fault> {
        let step = commit.position.step;
        let changes = commit.changes.iter().map(|it| NewChange::of(run, step, it));
        Ok(Self {
            step,
            position: Payload::of(run.as_str(), Slot::Position(step), &commit.position)?,
            changes: changes.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn step(&self) -> Step {
        self.step
    }

    pub(super) fn insert(&self, database: &Connection, run: RunKey) -> Result<(), Fault> {
        database
            .prepare_cached(
                "INSERT INTO positions (run, step, payload, checksum) VALUES (?, ?, ?, ?)",
            )?
            .execute(params![run, self.step.0, self.position.json, self.position.checksum])?;
        let mut insert = database.prepare_cached(
            "INSERT INTO changes (run, channel, step, whole, payload, checksum)
             VALUES (?, ?, ?, ?, ?, ?)",
        )?;
        for NewChange { channel, whole, payload } in &self.changes {
            let name = channel.as_str();
            insert
                .execute(params![run, name, self.step.0, whole, payload.json, payload.checksum])
                .map_err(|error| taken(error, || Refusal::ChangedTwice(channel.clone())))?;
        }
        Ok(())
    }
}

impl NewChange {
    fn of(run: &RunId, step: Step, change: &Change) -> Result<Self, Fault> {
        let slot = Slot::Change { channel: change.channel.as_str(), step };
        Ok(Self {
            channel: change.channel.clone(),
            whole: match change.kind {
                ChangeKind::Set(_) | ChangeKind::Cleared => true,
                ChangeKind::Appended(_) => false,
            },
            payload: Payload::of(run.as_str(), slot, &change.kind)?,
        })
    }
}

impl NewRecord {
    pub(super) fn of(run: &RunId, record: &TaskRecord) -> Result<Self, Fault> {
        Ok(Self {
            task: record.task,
            is_final: record.outcome.is_final(),
            payload: Payload::of(run.as_str(), Slot::Record(record.task), record)?,
        })
    }

    pub(super) fn step(&self) -> Step {
        self.task.step
    }

    pub(super) fn insert(&self, database: &Connection, run: RunKey) -> Result<(), Fault> {
        let Self { task, is_final, payload } = self;
        database
            .prepare_cached(
                "INSERT INTO records (run, step, task, final, payload, checksum)
                 VALUES (?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                run,
                task.step.0,
                task.index,
                is_final,
                payload.json,
                payload.checksum
            ])
            .map_err(|error| taken(error, || Refusal::FinishedTwice(*task)))?;
        Ok(())
    }
}

impl NewEvents {
    pub(super) fn of(run: &RunId, events: &[Stamped]) -> Result<Self, Fault> {
        let payload = |event: &Stamped| {
            let payload = Payload::of(run.as_str(), Slot::Event(event.seq), event)?;
            Ok((event.seq, payload))
        };
        events.iter().map(payload).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn insert(&self, database: &Connection, run: RunKey) -> Result<(), Fault> {
        let mut insert = database.prepare_cached(
            "INSERT INTO events (run, seq, payload, checksum) VALUES (?, ?, ?, ?)",
        )?;
        for (seq, payload) in &self.0 {
            insert
                .execute(params![run, seq, payload.json, payload.checksum])
                .map_err(|error| taken(error, || Refusal::EventTwice(*seq)))?;
        }
        Ok(())
    }
}

/// Says what it means that the key of a row is taken.
fn taken(error: rusqlite::Error, meaning: impl FnOnce() -> Refusal) -> Fault {
    if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) {
        meaning().into()
    } else {
        error.into()
    }
}
