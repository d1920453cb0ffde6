//! Runs that live as long as their process: for tests, and for runs that are never resumed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use graphrun_core::{
    event::Status,
    id::{ChannelName, RunId, Step, TaskId},
    state::{Change, ChangeKind},
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    SavedNestedRun, TaskJournal,
    rules::{
        Head, ID_PREFIX_LENGTH_MIN, Refusal, apply, beginning, check_fence, check_post,
        finished_after, misfit, stops_run,
    },
};
use crate::checkpoint::{
    CheckpointError, Commit, Detail, Entry, EntryHash, InboxMessage, JournalEntry, LeaseInfo,
    LeaseRequest, LeaseToken, Message, RunHistory, RunInbox, RunInfo, RunJournal, RunLeases,
    RunList, RunListItem, RunMaintenance, RunStatus, RunSummary, SavedCheckpoint, SavedRun,
    TaskRecord, Turns,
};

/// Keeps runs in memory.
///
/// It has the same rules as `SqliteStorage`, except that all runs are lost
/// with the process.
#[derive(Debug, Default)]
pub struct InMemoryStorage {
    /// In the order of creation.
    runs: Mutex<Vec<StoredRun>>,
    /// Whether it keeps only the last checkpoint of a run that stopped, and nothing of a run that is done
    /// and no thread.
    keeps_last_only: bool,
    /// The task whose nested run it contains. It saves each entry before the entry takes effect.
    task: Option<TaskJournal>,
}

#[derive(Debug)]
struct StoredRun {
    info: RunInfo,
    /// The original `info`.
    started_as: RunInfo,
    head: Head,
    /// Never empty; the first entry contains step zero.
    entries: Vec<Entry>,
    /// The hashes of the entries that have been read as history, from the first one.
    hashes: Vec<EntryHash>,
    /// The values after the commit of one of the entries, and how many entries there are up to it.
    kept: (usize, BTreeMap<ChannelName, Value>),
    /// The tasks of the open step whose records are final.
    finished: BTreeSet<TaskId>,
    /// The number of the last lease.
    fence: u64,
    lease: Option<LeaseInfo>,
    inbox: Vec<InboxMessage>,
}

impl InMemoryStorage {
    /// Makes a storage for the runs of an engine without storage: of a run that stops it keeps only what a resumption
    /// needs, and nothing of a run that is done.
    pub(crate) fn of_process() -> Self {
        Self { keeps_last_only: true, ..Self::default() }
    }

    /// Makes the storage of a nested run from the entries that its task has saved.
    pub(crate) fn of_task(
        task: TaskJournal,
        saved: Option<SavedNestedRun>,
    ) -> Result<Self, CheckpointError> {
        let runs = saved.map(StoredRun::of_task).transpose()?.into_iter().collect();
        Ok(Self { runs: Mutex::new(runs), keeps_last_only: false, task: Some(task) })
    }

    /// Adds a run that stopped, with its last checkpoint and the entry that stopped it.
    pub(crate) fn keep(&self, info: RunInfo, last: Commit, end: Entry, seq: u64, now: Timestamp) {
        let running = || RunStatus { status: Status::Running, reason: None };
        let run_status = end.run_status.clone().unwrap_or_else(running);
        let run = StoredRun {
            started_as: info.clone(),
            head: Head {
                number: 2,
                step: last.position.step,
                seq,
                run_status,
                updated: now.to_string(),
                turns: Turns::at(&last.position),
            },
            finished: finished_after(BTreeSet::new(), &end),
            entries: vec![last.into(), end],
            hashes: Vec::new(),
            kept: Default::default(),
            fence: 0,
            lease: None,
            inbox: Vec::new(),
            info,
        };
        let mut runs = self.runs();
        runs.retain(|it| it.info.id != run.info.id);
        runs.push(run);
    }

    /// The lock is never held across an await, and every write checks before it changes anything.
    /// So a panic of another holder leaves nothing half-done.
    fn runs(&self) -> MutexGuard<'_, Vec<StoredRun>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        id: &RunId,
        work: impl FnOnce(&mut StoredRun) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        let mut runs = self.runs();
        let run = runs.iter_mut().find(|it| it.info.id == *id);
        work(run.ok_or_else(|| CheckpointError::UnknownRun(id.to_string()))?)
    }
}

impl SavedNestedRun {
    /// Returns the run as a storage loads it.
    pub(crate) fn load(self) -> Result<SavedRun, CheckpointError> {
        StoredRun::of_task(self)?.load()
    }
}

#[async_trait]
impl RunJournal for InMemoryStorage {
    async fn create(
        &self,
        info: &RunInfo,
        request: &LeaseRequest,
        first: &Entry,
    ) -> Result<LeaseToken, CheckpointError> {
        if let Some(task) = &self.task {
            task.save_first(info, first).await?;
        }
        let mut runs = self.runs();
        for new in [info.id.as_str(), &info.name] {
            if runs.iter().any(|StoredRun { info, .. }| info.id.as_str() == new || info.name == new)
            {
                return Err(CheckpointError::Exists(new.to_owned()));
            }
        }
        let mut run = StoredRun::first(info, first.clone())
            .map_err(|refusal| refusal.explain(format!("create run `{}`", info.id)))?;
        let token = run.grant_lease(request);
        runs.push(run);
        Ok(token)
    }

    async fn append(&self, token: &LeaseToken, entry: &Entry) -> Result<(), CheckpointError> {
        if let Some(task) = &self.task {
            task.save(entry).await?;
        }
        self.with(&token.run, |run| {
            run.append(token, entry)
                .map_err(|refusal| refusal.explain(entry.action(&token.run)))?;
            if self.keeps_last_only && stops_run(entry) { run.forget_history() } else { Ok(()) }
        })?;
        let is_done = entry.run_status.as_ref().is_some_and(|it| it.status == Status::Done);
        if self.keeps_last_only && is_done {
            self.runs().retain(|it| it.info.id != token.run || it.info.is_thread);
        }
        Ok(())
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        self.with(run, |run| run.load())
    }

    async fn keep_values(
        &self,
        token: &LeaseToken,
        saved: &SavedRun,
    ) -> Result<(), CheckpointError> {
        self.with(&token.run, |run| {
            check_fence(run.lease.as_ref(), token.fence).map_err(|error| {
                error.explain(format!("keep the values of run `{}`", token.run))
            })?;
            let last = run.entries.iter().rposition(|it| it.commit.is_some());
            if let Some(last) = last.filter(|_| run.head.step == saved.position.step) {
                run.kept = (last + 1, saved.values.clone());
            }
            Ok(())
        })
    }
}

#[async_trait]
impl RunLeases for InMemoryStorage {
    async fn acquire(
        &self,
        run: &RunId,
        request: &LeaseRequest,
    ) -> Result<LeaseToken, CheckpointError> {
        self.with(run, |run| match run.current_lease() {
            Some(lease) if Some(lease.fence) != request.replaces_fence => {
                let lease = Box::new(lease.clone());
                Err(CheckpointError::Owned { run: run.info.id.clone(), lease })
            }
            _ => Ok(run.grant_lease(request)),
        })
    }

    async fn renew(&self, token: &LeaseToken, ttl: Duration) -> Result<(), CheckpointError> {
        let action = || format!("renew the lease of run `{}`", token.run);
        self.with(&token.run, |run| {
            check_fence(run.lease.as_ref(), token.fence).map_err(|it| it.explain(action()))?;
            if let Some(lease) = &mut run.lease {
                lease.until = end_of(ttl);
            }
            Ok(())
        })
    }

    async fn release(&self, token: &LeaseToken) -> Result<(), CheckpointError> {
        self.with(&token.run, |run| {
            run.lease.take_if(|it| it.fence == token.fence);
            Ok(())
        })
    }
}

#[async_trait]
impl RunInbox for InMemoryStorage {
    async fn post(&self, run: &RunId, message: &Message) -> Result<u64, CheckpointError> {
        message.check(run)?;
        if let Some(number) = check_post(self, run, message).await? {
            return Ok(number);
        }
        self.with(run, |run| {
            if let Some(before) = run.inbox.iter().find(|it| it.message.id == message.id) {
                return Ok(before.number);
            }
            // A forked run may start from the position of another run, which had read more
            // messages.
            let processed = run.entries.iter().filter_map(|it| it.commit.as_ref());
            let processed = processed.map(|it| it.position.people.last_message).max().unwrap_or(0);
            let last = run.inbox.last().map_or(0, |it| it.number);
            let number = processed.max(last) + 1;
            run.inbox.push(InboxMessage { number, message: message.clone() });
            Ok(number)
        })
    }

    async fn inbox(&self, run: &RunId, after: u64) -> Result<Vec<InboxMessage>, CheckpointError> {
        self.with(run, |run| Ok(run.inbox.iter().filter(|it| it.number > after).cloned().collect()))
    }
}

#[async_trait]
impl RunList for InMemoryStorage {
    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        let runs = self.runs();
        let exact = runs
            .iter()
            .find(|it| it.info.id.as_str() == id_or_name)
            .or_else(|| runs.iter().find(|it| it.info.name == id_or_name));
        if let Some(run) = exact {
            return Ok(run.summary());
        }
        let begins = |run: &&StoredRun| {
            id_or_name.len() >= ID_PREFIX_LENGTH_MIN && run.info.id.as_str().starts_with(id_or_name)
        };
        match runs.iter().filter(begins).collect::<Vec<_>>().as_slice() {
            [] => Err(CheckpointError::UnknownRun(id_or_name.to_owned())),
            [only] => Ok(only.summary()),
            several => {
                let mut ids: Vec<String> =
                    several.iter().map(|it| it.info.id.to_string()).collect();
                ids.sort();
                Err(CheckpointError::AmbiguousRun { prefix: id_or_name.to_owned(), ids })
            }
        }
    }

    async fn page(
        &self,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunListItem>, CheckpointError> {
        let runs = self.runs();
        let end = match before {
            None => runs.len(),
            Some(id) => {
                let at = runs.iter().position(|it| it.info.id == *id);
                at.ok_or_else(|| CheckpointError::UnknownRun(id.to_string()))?
            }
        };
        Ok(runs[..end].iter().rev().take(limit).map(|it| Ok(it.summary())).collect())
    }

    async fn ids(&self) -> Result<Vec<RunId>, CheckpointError> {
        Ok(self.runs().iter().rev().map(|it| it.info.id.clone()).collect())
    }
}

#[async_trait]
impl RunHistory for InMemoryStorage {
    async fn entries(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<JournalEntry>, CheckpointError> {
        self.with(run, |run| {
            let first = usize::try_from(after).unwrap_or(usize::MAX).min(run.entries.len());
            let end = first.saturating_add(limit).min(run.entries.len());
            run.hash_entries(end).map_err(|source| unwritable(&run.info.id, source))?;
            let entries = run.entries[first..end].iter().zip(&run.hashes[first..end]);
            let entries = (first as u64 + 1..).zip(entries);
            let logged = entries.map(|(number, (entry, hash))| {
                let logged = JournalEntry { number, hash: *hash, entry: entry.clone() };
                match detail {
                    Detail::Whole => logged,
                    Detail::WithoutValues => logged.without_values(),
                }
            });
            Ok(logged.collect())
        })
    }

    async fn checkpoint_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<SavedCheckpoint, CheckpointError> {
        self.with(run, |run| run.checkpoint_at(step))
    }
}

#[async_trait]
impl RunMaintenance for InMemoryStorage {
    async fn remove(&self, run: &RunId) -> Result<(), CheckpointError> {
        let mut runs = self.runs();
        let at = runs.iter().position(|it| it.info.id == *run);
        let at = at.ok_or_else(|| CheckpointError::UnknownRun(run.to_string()))?;
        if let Some(lease) = runs[at].current_lease() {
            let lease = Box::new(lease.clone());
            return Err(CheckpointError::Owned { run: run.clone(), lease });
        }
        runs.remove(at);
        Ok(())
    }
}

impl StoredRun {
    fn first(info: &RunInfo, first: Entry) -> Result<Self, Refusal> {
        Ok(Self {
            head: Head::first(&first)?,
            info: info.clone(),
            started_as: info.clone(),
            entries: vec![first],
            hashes: Vec::new(),
            kept: Default::default(),
            finished: BTreeSet::new(),
            fence: 0,
            lease: None,
            inbox: Vec::new(),
        })
    }

    /// Makes a nested run from the entries that its task has saved.
    fn of_task(saved: SavedNestedRun) -> Result<Self, CheckpointError> {
        let SavedNestedRun { info, entries } = saved;
        let action = || format!("load the nested run `{}`", info.id);
        let mut entries = entries.into_iter();
        let first = entries.next().unwrap_or_default();
        let mut run = Self::first(&info, first).map_err(|it| it.explain(action()))?;
        for entry in entries {
            run.follow(&entry).map_err(|it| it.explain(action()))?;
        }
        Ok(run)
    }

    fn load(&self) -> Result<SavedRun, CheckpointError> {
        let SavedCheckpoint { position, values } = self.checkpoint_at(self.head.step)?;
        Ok(SavedRun {
            summary: self.summary(),
            position,
            values,
            records: self.open_records().cloned().collect(),
            last_seq: self.head.seq,
            last_entry: self.head.number,
            entries_read: (self.entries.len() - self.kept.0) as u64,
        })
    }

    /// Returns the owner, if the lease has not expired.
    fn current_lease(&self) -> Option<&LeaseInfo> {
        self.lease.as_ref().filter(|it| it.is_current(Timestamp::now()))
    }

    fn grant_lease(&mut self, request: &LeaseRequest) -> LeaseToken {
        self.fence += 1;
        let owner = request.owner.clone();
        let until = end_of(request.ttl);
        self.lease = Some(LeaseInfo { owner, fence: self.fence, until });
        LeaseToken { run: self.info.id.clone(), fence: self.fence }
    }

    fn append(&mut self, token: &LeaseToken, entry: &Entry) -> Result<(), Refusal> {
        check_fence(self.lease.as_ref(), token.fence)?;
        self.follow(entry)
    }

    fn follow(&mut self, entry: &Entry) -> Result<(), Refusal> {
        self.head = self.head.after(entry, |task| self.finished.contains(&task))?;
        self.finished = finished_after(std::mem::take(&mut self.finished), entry);
        if let Some(migration) = &entry.migration {
            self.info = self.info.clone().on(migration.to.clone());
        }
        if stops_run(entry) {
            self.lease = None;
        }
        self.entries.push(entry.clone());
        Ok(())
    }

    /// Replaces the entries by the last checkpoint and the records of the open step.
    fn forget_history(&mut self) -> Result<(), CheckpointError> {
        let SavedCheckpoint { position, values } = self.checkpoint_at(self.head.step)?;
        let set = |(channel, value)| Change { channel, kind: ChangeKind::Set(Arc::new(value)) };
        let changes = values.into_iter().map(set).collect();
        let records = self.open_records().cloned().collect();
        let run_status = Some(self.head.run_status.clone());
        let end = Entry { records, run_status, ..Entry::default() };
        self.entries = vec![Commit { position, changes }.into(), end];
        self.hashes.clear();
        self.kept = Default::default();
        self.head.number = 2;
        Ok(())
    }

    /// Hashes the entries up to this number that have no hash yet. A history is read in pages, and each hash is computed once.
    fn hash_entries(&mut self, end: usize) -> serde_json::Result<()> {
        let mut hash = match self.hashes.last() {
            Some(last) => *last,
            None => beginning(&self.info.id, &serde_json::to_vec(&self.started_as)?),
        };
        for (number, entry) in (1..).zip(&self.entries).take(end).skip(self.hashes.len()) {
            hash = hash_after(hash, number, entry)?;
            self.hashes.push(hash);
        }
        Ok(())
    }

    /// Returns the records of the step that is not committed.
    fn open_records(&self) -> impl Iterator<Item = &TaskRecord> {
        let records = self.entries.iter().flat_map(|it| it.records.iter().chain(it.carried()));
        records.filter(|it| it.task.step > self.head.step)
    }

    fn summary(&self) -> RunSummary {
        RunSummary {
            info: self.info.clone(),
            status: self.head.run_status.status,
            reason: self.head.run_status.reason.clone(),
            step: self.head.step,
            lease: self.lease.clone(),
            updated: self.head.updated.clone(),
            turns: self.info.is_thread.then_some(self.head.turns),
        }
    }

    fn checkpoint_at(&self, step: Step) -> Result<SavedCheckpoint, CheckpointError> {
        let run = &self.info.id;
        let (kept, values) = &self.kept;
        let last_kept = kept.checked_sub(1).and_then(|it| self.entries[it].commit.as_ref());
        let (after, mut values) = match last_kept {
            Some(last) if last.position.step == step => {
                let position = last.position.clone();
                let values = values.clone();
                return Ok(SavedCheckpoint { position, values });
            }
            Some(last) if last.position.step < step => (*kept, values.clone()),
            _ => (0, BTreeMap::new()),
        };
        let commits = self.entries[after..].iter().filter_map(|it| it.commit.as_ref());
        for Commit { position, changes } in commits {
            for change in changes {
                apply(&mut values, change.clone())
                    .map_err(|error| misfit(run, &change.channel, position.step, error))?;
            }
            if position.step == step {
                return Ok(SavedCheckpoint { position: position.clone(), values });
            }
        }
        Err(CheckpointError::UnknownStep { run: run.clone(), step })
    }
}

/// Returns the hash of an entry and of the hash before it.
fn hash_after(before: EntryHash, number: u64, entry: &Entry) -> serde_json::Result<EntryHash> {
    let Entry { records, commit, migration, run_status, events } = entry;
    let commit = commit.as_ref().map(|it| (&it.position, &it.changes));
    let json = serde_json::to_vec(&(number, records, commit, migration, run_status, events))?;
    Ok(EntryHash(blake3::Hasher::new().update(&before.0).update(&json).finalize().into()))
}

fn unwritable(run: &RunId, source: serde_json::Error) -> CheckpointError {
    CheckpointError::Storage { action: format!("write run `{run}` as JSON"), source: source.into() }
}

fn end_of(ttl: Duration) -> Timestamp {
    Timestamp::now().checked_add(ttl).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use graphrun_core::event::{EVENT_VERSION, Event, RunEvent};

    use super::*;
    use crate::checkpoint::Position;

    /// A history is read in pages: each page would otherwise cost as much as the whole history.
    #[tokio::test]
    async fn a_page_of_a_history_hashes_only_entries_without_a_hash() {
        let info = RunInfo::new("pages");
        let stored = || {
            let first = Commit { position: Position::default(), changes: Vec::new() };
            let mut run = StoredRun::first(&info, first.into()).unwrap();
            for seq in 1..10 {
                let event = Event::RunResumed { step: Step(seq) };
                let (v, ts, run_id) = (EVENT_VERSION, String::new(), info.id.clone());
                let events = vec![RunEvent { v, seq, ts, run: run_id, event }];
                run.follow(&Entry { events, ..Entry::default() }).unwrap();
            }
            InMemoryStorage { runs: Mutex::new(vec![run]), ..InMemoryStorage::default() }
        };
        let hashed = |storage: &InMemoryStorage| storage.runs()[0].hashes.len();
        let storage = stored();
        let mut pages = Vec::new();
        for (after, hashes) in [(4, 7), (0, 7), (3, 7), (6, 9), (9, 10), (10, 10), (99, 10)] {
            let page = storage.entries(&info.id, after, 3, Detail::Whole).await.unwrap();
            assert_eq!(hashed(&storage), hashes, "after {after}");
            if after % 3 == 0 {
                pages.extend(page);
            }
        }
        let whole = stored().entries(&info.id, 0, usize::MAX, Detail::Whole).await.unwrap();
        assert_eq!(
            whole.iter().map(|it| it.number).collect::<Vec<_>>(),
            (1..=10).collect::<Vec<_>>()
        );
        assert_eq!(pages, whole);
    }
}
