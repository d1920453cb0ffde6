//! Encodes an entry as a row.

use std::{borrow::Cow, io, slice, sync::Arc};

use graphrun_core::{
    event::RunEvent,
    id::{ChannelName, RunId, TaskId},
    state::{Change, ChangeKind},
};
use graphrun_engine::{
    checkpoint::{CheckpointError, Commit, Entry, EntryHash, Migration, RunInfo, TaskRecord},
    storage::rules::Head,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    Body, Changes, Codec, ItemsPart, Meta, Reader, Row, StoredChange, StoredEvent, ValuePlace,
    check_depth, codec::Content,
};

/// Returns the stored form of the info of a run.
pub(crate) fn info(info: &RunInfo) -> Result<Vec<u8>, CheckpointError> {
    let json = serde_json::to_vec(info).map_err(|error| unwritable(&info.id, error))?;
    check_depth(&json).map_err(|error| unpackable(&info.id, error))?;
    Ok(json)
}

/// Returns the row of an entry that follows the entry with the hash `before`: `head` is the head after the entry, `open`
/// the entries since the last commit.
pub(crate) fn encode<'a>(
    codec: &mut Codec,
    entry: &'a Entry,
    head: &Head,
    before: EntryHash,
    open: &Reader<'_>,
) -> Result<Row, CheckpointError> {
    let mut data = Vec::new();
    // No entry refers to them before their step is committed.
    let mut written = if entry.commit.is_some() { open.written(codec)? } else { Vec::new() };
    let records = entry.records.iter().map(|it| without_values(it, &mut data, &mut written));
    let mut meta = Meta {
        records: records.collect(),
        run_status: entry.run_status.as_ref().map(Cow::Borrowed),
        ..Meta::default()
    };
    if let Some(migration) = &entry.migration {
        // The step that takes in the migrated records does not refer to their values, so reading
        // later entries never needs an entry before the last step.
        let carried = migration.records.iter();
        let records = carried.map(|it| without_values(it, &mut data, &mut Vec::new())).collect();
        meta.migration = Some(Box::new(Migration {
            from: migration.from.clone(),
            to: migration.to.clone(),
            mapping: migration.mapping.clone(),
            records,
        }));
    }
    let mut changes = None;
    if let Some(Commit { position, changes: made }) = &entry.commit {
        meta.position = Some(Cow::Borrowed(position));
        written.sort_by_key(|it| it.task);
        let mut stored = Changes::new();
        for change in made {
            stored.push((change.channel.clone(), how(change, &written, &mut data)));
        }
        changes = Some(stored);
    }
    let stored_event = |emitted: &'a RunEvent| {
        let ts = Cow::Borrowed(emitted.ts.as_str());
        let event = Cow::Borrowed(&emitted.event);
        StoredEvent { v: emitted.v, ts, event }
    };
    meta.events = entry.events.iter().map(stored_event).collect();

    let body = pack(codec, changes.as_ref(), &meta, &data);
    let body = body.map_err(|error| unpackable(open.run(), error))?;
    let number = head.number;
    let step = head.step;
    let seq = head.seq;
    let mut row = Row { number, step, seq, body, hash: before };
    row.hash = row.hash_after(before);
    Ok(row)
}

fn pack(
    codec: &mut Codec,
    changes: Option<&Changes>,
    meta: &Meta<'_>,
    data: &[Datum<'_>],
) -> io::Result<Body> {
    let mut bytes = Vec::new();
    if let Some(changes) = changes {
        codec.pack(Content::Form, changes, &mut bytes)?;
    }
    let begin = bytes.len();
    codec.pack(Content::Form, meta, &mut bytes)?;
    let end = bytes.len();
    codec.pack(Content::Values, &data, &mut bytes)?;
    Ok(Body::of(bytes, changes.is_some(), begin..end))
}

/// A value that a task wrote, and its place.
#[derive(Debug)]
pub(super) struct TaskValue {
    pub(super) task: TaskId,
    pub(super) channel: ChannelName,
    pub(super) value: Arc<Value>,
    pub(super) place: ValuePlace,
}

/// A value of the data.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Datum<'a> {
    One(&'a Value),
    List(&'a [Value]),
}

/// Returns a record after moving its values to the data.
///
/// A commit refers only to values of final records, so `written` has only those.
fn without_values<'a>(
    record: &'a TaskRecord,
    data: &mut Vec<Datum<'a>>,
    written: &mut Vec<TaskValue>,
) -> TaskRecord {
    let Some(update) = record.outcome.update() else { return record.clone() };
    for (channel, value) in &update.writes {
        if record.outcome.is_final() {
            let channel = channel.clone();
            let place = (0, data.len());
            written.push(TaskValue { task: record.task, channel, value: Arc::clone(value), place });
        }
        data.push(Datum::One(value));
    }
    let none = Arc::new(Value::Null);
    // The values are shared, so this copies none.
    let mut record = record.clone();
    for (_, value) in record.outcome.update_mut().into_iter().flat_map(|it| &mut it.writes) {
        *value = Arc::clone(&none);
    }
    record
}

/// Returns a change that refers to written values by place, or contains its own value if no written
/// value is equal.
fn how<'a>(change: &'a Change, written: &[TaskValue], data: &mut Vec<Datum<'a>>) -> StoredChange {
    let mut of_channel = written.iter().filter(|it| it.channel == change.channel);
    let mut add = |datum| {
        data.push(datum);
        (0, data.len() - 1)
    };
    match &change.kind {
        ChangeKind::Cleared => StoredChange::Cleared,
        ChangeKind::Set(value) => {
            let same =
                of_channel.rfind(|it| Arc::ptr_eq(&it.value, value) || is_same(&it.value, value));
            StoredChange::Set(same.map_or_else(|| add(Datum::One(value)), |it| it.place))
        }
        ChangeKind::Appended(items) => {
            StoredChange::Appended(parts(items, of_channel).unwrap_or_else(|| {
                let (number, index) = add(Datum::List(items));
                vec![(number, index, true)]
            }))
        }
    }
}

/// Returns appended items as consecutive written values, if they are equal to those.
fn parts<'a>(
    items: &[Value],
    written: impl Iterator<Item = &'a TaskValue>,
) -> Option<Vec<ItemsPart>> {
    let mut rest = items;
    let mut parts = Vec::new();
    for TaskValue { value, place: (number, index), .. } in written {
        let (items, is_list) = match value.as_ref() {
            Value::Array(list) if begins_with(rest, list) => (list.as_slice(), true),
            item => (slice::from_ref(item), false),
        };
        if !begins_with(rest, items) {
            return None;
        }
        rest = &rest[items.len()..];
        parts.push((*number, *index, is_list));
    }
    (rest.is_empty() && !parts.is_empty()).then_some(parts)
}

fn begins_with(all: &[Value], first: &[Value]) -> bool {
    first.len() <= all.len() && all.iter().zip(first).all(|(a, b)| is_same(a, b))
}

/// Returns whether two values have the same JSON text. Equal values may differ in text: equality
/// ignores the order of keys and the sign of a zero.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && begins_with(a, b),
        (Value::Object(a), Value::Object(b)) => {
            let same =
                |((x, a), (y, b)): ((&String, &Value), (&String, &Value))| x == y && is_same(a, b);
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        (Value::Number(x), Value::Number(y)) => x == y && x.to_string() == y.to_string(),
        _ => a == b,
    }
}

fn unwritable(run: &RunId, error: serde_json::Error) -> CheckpointError {
    CheckpointError::Storage { action: format!("write run `{run}` as JSON"), source: error.into() }
}

fn unpackable(run: &RunId, error: io::Error) -> CheckpointError {
    CheckpointError::Storage { action: format!("pack run `{run}`"), source: error.into() }
}
