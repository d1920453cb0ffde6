//! Computes which tasks wrote each item of a list. The outline of a journal names the writers of a field only, so this
//! reads the values as well.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::steps::Writer;
use crate::{
    checkpoint::{Checkpointer, Detail, ENTRIES_AT_ONCE, Entry, Outcome, TaskRecord, last_records},
    cli::error::CliError,
    id::{RunId, Step},
    state::ChangeKind,
};

/// The writers of the items of some lists of a run.
#[derive(Debug, Default)]
pub(crate) struct ItemWriters {
    lists: BTreeMap<String, ListHistory>,
    /// The records of the open step.
    open: Vec<TaskRecord>,
}

/// A list, and the writers of each index so far, oldest first.
#[derive(Debug, Default)]
struct ListHistory {
    items: Vec<Value>,
    writers: Vec<Vec<Writer>>,
}

/// What a task wrote to a list.
struct Write<'a> {
    writer: Writer,
    items: Vec<&'a Value>,
}

impl ItemWriters {
    /// Reads the writers of these fields.
    ///
    /// # Errors
    ///
    /// Fails when the journal cannot be read.
    pub(crate) async fn read(
        checkpointer: &dyn Checkpointer,
        run: &RunId,
        fields: BTreeSet<String>,
    ) -> Result<Self, CliError> {
        let lists = fields.into_iter().map(|it| (it, ListHistory::default())).collect();
        let mut all = Self { lists, open: Vec::new() };
        let mut after = 0;
        if all.lists.is_empty() {
            return Ok(all);
        }
        loop {
            let page = checkpointer.entries(run, after, ENTRIES_AT_ONCE, Detail::Whole).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after = last.number;
            for logged in page {
                all.add(logged.entry);
            }
        }
    }

    /// Returns the writers of an item, oldest first.
    pub(crate) fn of(&self, field: &str, index: usize) -> &[Writer] {
        self.lists.get(field).and_then(|it| it.writers.get(index)).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, entry: Entry) {
        let turn = entry.begun_turn();
        let by_hand = entry.written_by_hand().to_vec();
        self.open.extend(entry.records);
        let Some(commit) = entry.commit else { return };
        let open = std::mem::take(&mut self.open);
        let mut records: Vec<&TaskRecord> = last_records(&open).collect();
        let is_migration = entry.migration.is_some() && turn.is_none();
        if let Some(migration) = entry.migration {
            // The next step takes in the results that tasks had before the migration.
            records.clear();
            self.open = migration.records;
        }
        for change in commit.changes {
            let field = change.channel.as_str();
            let Some(list) = self.lists.get_mut(field) else { continue };
            let step = commit.position.step;
            let mut writes: Vec<Write<'_>> =
                records.iter().filter_map(|it| Write::of(it, field, step)).collect();
            if writes.is_empty() || by_hand.iter().any(|it| it == field) {
                let writer = Writer { is_migration, turn, ..Writer::without_task(step) };
                let items = items_behind(&writes, &change.kind);
                writes.push(Write { writer, items });
            }
            list.apply(&change.kind, &writes);
        }
    }
}

impl<'a> Write<'a> {
    fn of(record: &'a TaskRecord, field: &str, step: Step) -> Option<Self> {
        let Outcome::Finished { update, .. } = &record.outcome else { return None };
        let clears = update.clears.iter().any(|it| it.as_str() == field);
        let written = update.writes.iter().find(|it| it.0.as_str() == field).map(|it| &*it.1);
        let items = match written {
            Some(Value::Array(items)) => items.iter().collect(),
            Some(item) => vec![item],
            None if clears => Vec::new(),
            None => return None,
        };
        let node = Some(record.node.clone());
        let task = Some(record.task);
        Some(Self { writer: Writer { node, task, ..Writer::without_task(step) }, items })
    }
}

impl ListHistory {
    fn apply(&mut self, change: &ChangeKind, writes: &[Write<'_>]) {
        match change {
            ChangeKind::Appended(items) => self.append(items.clone(), writes),
            ChangeKind::Set(value) => match &**value {
                Value::Array(items) => self.replace(items.clone(), writes),
                _ => self.replace(Vec::new(), writes),
            },
            ChangeKind::Cleared => self.replace(Vec::new(), writes),
        }
    }

    /// Items are appended in the order of the tasks, unless the reducer leaves some out.
    fn append(&mut self, items: Vec<Value>, writes: &[Write<'_>]) {
        let written = || writes.iter().flat_map(|it| it.items.iter().map(move |item| (it, *item)));
        let is_plain = written().map(|it| it.1).eq(&items);
        let mut in_order = written();
        for item in items {
            let writers = match in_order.next().filter(|_| is_plain) {
                Some((write, _)) => vec![write.writer.clone()],
                None => writers_of(Some(&item), writes),
            };
            self.add_writers(self.items.len(), writers);
            self.items.push(item);
        }
    }

    /// An item that keeps its value keeps its writers.
    fn replace(&mut self, items: Vec<Value>, writes: &[Write<'_>]) {
        for index in 0..items.len().max(self.items.len()) {
            let old = self.items.get(index);
            let new = items.get(index);
            if old != new {
                self.add_writers(index, writers_of(new, writes));
            }
        }
        self.items = items;
    }

    fn add_writers(&mut self, index: usize, writers: Vec<Writer>) {
        if self.writers.len() <= index {
            self.writers.resize(index + 1, Vec::new());
        }
        self.writers[index].extend(writers);
    }
}

/// Returns the items that a person has written: those behind the items of the tasks, whose updates come first.
fn items_behind<'a>(writes: &[Write<'_>], change: &'a ChangeKind) -> Vec<&'a Value> {
    let items = match change {
        ChangeKind::Appended(items) => items.as_slice(),
        ChangeKind::Set(value) => value.as_array().map_or(&[][..], Vec::as_slice),
        ChangeKind::Cleared => &[],
    };
    let of_tasks = writes.iter().map(|it| it.items.len()).sum();
    let appended = matches!(change, ChangeKind::Appended(_));
    items.iter().skip(if appended { of_tasks } else { 0 }).collect()
}

/// Returns the tasks that wrote this item; all tasks if none did, since a reducer computed it.
fn writers_of(item: Option<&Value>, writes: &[Write<'_>]) -> Vec<Writer> {
    let exact = writes.iter().filter(|it| item.is_some_and(|item| it.items.contains(&item)));
    let exact: Vec<Writer> = exact.map(|it| it.writer.clone()).collect();
    if exact.is_empty() { writes.iter().map(|it| it.writer.clone()).collect() } else { exact }
}
