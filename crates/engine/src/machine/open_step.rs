//! The tasks of the step that is not committed yet, with their common size, usage, questions and grants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    event::Usage,
    graph::{
        ErrorKind, Failure, GRANT_MEMO, Goto, ItemNeeds, Question, SavedValues, Timer, Transition,
    },
    id::{NodeName, Step, TaskId},
    state::{Update, measure},
};
use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    AttemptStats, TaskEvent,
    backoff::Wait,
    indexed::{IndexedActivation, IndexedPosition},
    task_state::{Phase, TaskState},
};
use crate::checkpoint::{Conversation, EntryHash, Outcome, TaskRecord, TaskUsage};

/// The tasks of a step, by their index in the frontier.
#[derive(Clone, Debug)]
pub(super) struct OpenStep {
    number: Step,
    tasks: Vec<TaskState>,
    /// The number of tasks whose records are not final.
    unsettled: usize,
    /// The number of tasks that run, sleep or were aborted. It is counted, because a step may have ten
    /// thousand tasks.
    busy: usize,
    /// The size in bytes of the updates and dispatches of this step.
    result_bytes: u64,
    /// The memory for the records of a step.
    spare: Vec<Arc<TaskRecord>>,
    /// The items of maps that waited for others and can begin.
    ready: BTreeSet<usize>,
    /// What people have allowed in this step for the rest of the run.
    grants: BTreeSet<String>,
    /// The nodes that run fewer tasks at once than they have.
    narrow_nodes: Vec<NarrowNode>,
    /// The usage of all tasks. Sums are kept, because each start of a task and each call of a model needs them, and a step may
    /// have ten thousand tasks.
    counted_usage: Usage,
    /// The end of its last task so far.
    last_end_ms: u64,
    /// The usage of this step by the nodes that have limits.
    limited_usage: BTreeMap<NodeName, TaskUsage>,
}

/// The tasks of a node that runs only some of them at once.
#[derive(Clone, Debug)]
struct NarrowNode {
    width: u64,
    tasks: Vec<usize>,
    /// The elapsed time of its tasks together.
    worked_ms: u64,
}

impl NarrowNode {
    fn has(&self, task: usize) -> bool {
        self.tasks.binary_search(&task).is_ok()
    }

    fn elapsed_ms(&self) -> u64 {
        self.worked_ms / self.width
    }
}

/// Returns the nodes of a position that run fewer tasks at once than they have.
fn narrow_nodes(graph: &CompiledGraph, position: &IndexedPosition) -> Vec<NarrowNode> {
    let mut found: BTreeMap<NodeIndex, NarrowNode> = BTreeMap::new();
    for (index, active) in position.frontier.iter().enumerate() {
        if let Some(width) = graph.policies_at(active.node).schedule.width_max {
            let width = width.max(1) as u64;
            let new = || NarrowNode { width, tasks: Vec::new(), worked_ms: 0 };
            found.entry(active.node).or_insert_with(new).tasks.push(index);
        }
    }
    found.into_values().filter(|it| it.tasks.len() as u64 > it.width).collect()
}

impl OpenStep {
    /// Returns the step after a position. Each task counts as busy until it has begun.
    pub(super) fn after(graph: &CompiledGraph, position: &IndexedPosition) -> Self {
        let number = position.step.next();
        let tasks = Vec::new();
        let spare = Vec::new();
        let ready = BTreeSet::new();
        let mut step = Self {
            number,
            tasks,
            unsettled: 0,
            busy: 0,
            result_bytes: 0,
            spare,
            ready,
            grants: BTreeSet::new(),
            narrow_nodes: Vec::new(),
            counted_usage: Usage::default(),
            last_end_ms: 0,
            limited_usage: BTreeMap::new(),
        };
        step.reset(graph, position);
        step
    }

    /// Replaces the step by the one after a position.
    pub(super) fn reset(&mut self, graph: &CompiledGraph, position: &IndexedPosition) {
        let mut items: Option<BTreeMap<NodeIndex, u64>> = None;
        let task = |active: &IndexedActivation| {
            let item = active.is_dispatched().then(|| {
                let next = items.get_or_insert_default().entry(active.node).or_default();
                std::mem::replace(next, *next + 1)
            });
            TaskState { item, ..TaskState::new(graph.name_at(active.node).clone()) }
        };
        self.tasks.clear();
        self.grants.clear();
        self.tasks.reserve_exact(position.frontier.len());
        self.tasks.extend(position.frontier.iter().map(task));
        (self.unsettled, self.busy) = (self.tasks.len(), self.tasks.len());
        (self.number, self.result_bytes) = (position.step.next(), 0);
        self.narrow_nodes = narrow_nodes(graph, position);
        (self.counted_usage, self.last_end_ms) = (Usage::default(), 0);
        let nodes = position.frontier.iter().map(|it| graph.at(it.node));
        let limited = nodes.filter(|(_, spec)| spec.policies.bounds.limits.is_some());
        self.limited_usage =
            limited.map(|(name, _)| (name.clone(), TaskUsage::default())).collect();
    }

    pub(super) fn id(&self, index: usize) -> TaskId {
        let index = u32::try_from(index).expect("a frontier is far smaller than 2³²");
        TaskId { step: self.number, index }
    }

    pub(super) fn index(&self, task: TaskId) -> Option<usize> {
        let index = usize::try_from(task.index).ok()?;
        (task.step == self.number && index < self.tasks.len()).then_some(index)
    }

    pub(super) fn tasks(&self) -> &[TaskState] {
        &self.tasks
    }

    /// Returns the indexes of the tasks that run, sleep or were aborted.
    pub(super) fn busy_tasks(&self) -> Vec<usize> {
        (0..self.tasks.len()).filter(|&it| self.tasks[it].phase.is_busy()).collect()
    }

    /// Returns whether every record is final.
    pub(super) fn is_complete(&self) -> bool {
        self.unsettled == 0
    }

    /// Returns whether a task is busy; otherwise the step waits for people, or has failed.
    pub(super) fn has_busy_task(&self) -> bool {
        self.busy > 0
    }

    /// Returns whether the step ends with the next finished task.
    pub(super) fn is_at_last_task(&self) -> bool {
        self.unsettled == 1
    }

    /// Returns the elapsed time of the step: the end of its last task, counting the items that it waited for. A node with
    /// fewer slots than tasks takes at least the sum of its tasks, divided by its slots.
    pub(super) fn elapsed_ms(&self) -> u64 {
        self.narrow_nodes.iter().map(NarrowNode::elapsed_ms).fold(self.last_end_ms, u64::max)
    }

    /// Returns the usage of all tasks, and the elapsed time of the step.
    pub(super) fn usage(&self) -> TaskUsage {
        let mut all = TaskUsage { elapsed_ms: self.elapsed_ms(), ..TaskUsage::default() };
        // In task order: a sum of costs depends on the order a little.
        for TaskState { used, .. } in &self.tasks {
            all.usage.add(&used.usage);
        }
        all
    }

    /// Returns the usage of all tasks, added up as their attempts ended. It costs no walk over the tasks.
    pub(super) fn counted_usage(&self) -> &Usage {
        &self.counted_usage
    }

    /// Returns the elapsed time of the step before the running attempt of a task.
    pub(super) fn elapsed_ms_before_attempt(&self, task: TaskId) -> u64 {
        let Some(index) = self.index(task) else { return 0 };
        let narrow = self.narrow_nodes.iter().find(|it| it.has(index));
        self.tasks[index].end_ms().max(narrow.map_or(0, NarrowNode::elapsed_ms))
    }

    /// Returns the reason of the first task that failed for good.
    pub(super) fn failure(&self) -> Option<String> {
        self.tasks.iter().find_map(|task| Some(task.final_failure()?.reason.clone()))
    }

    /// Adds the keys of all questions that the tasks have asked, and what people have allowed for the rest of the run.
    pub(super) fn extend_conversation(&self, people: &mut Conversation) {
        people.question_keys.extend(self.tasks.iter().flat_map(|it| &it.question_keys).cloned());
        people.grants.extend(self.grants.iter().cloned());
    }

    /// Returns the memos of a task, with the grants of the run.
    pub(super) fn memos_of(&self, index: usize, earlier: &BTreeSet<String>) -> SavedValues {
        let mut memos = self.tasks[index].memos.clone();
        for name in earlier.iter().chain(&self.grants) {
            memos.insert(format!("{GRANT_MEMO}{name}"), Value::Bool(true));
        }
        memos
    }

    /// Keeps a memo of a task. A grant is for all tasks.
    fn keep_memo(&mut self, index: usize, name: &str, value: &Value) {
        match name.strip_prefix(GRANT_MEMO) {
            Some(grant) => drop(self.grants.insert(grant.to_owned())),
            None => self.tasks[index].memos.insert(name.to_owned(), value.clone()),
        }
    }

    /// Returns the next deadline of an open question.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.tasks.iter().filter_map(TaskState::deadline).min()
    }

    /// Implements [`Machine::next_wait`](super::Machine::next_wait).
    pub(super) fn next_wait(&self) -> Option<Wait> {
        let mut next = None;
        for task in &self.tasks {
            match &task.phase {
                Phase::Running | Phase::Aborted => return None,
                Phase::Sleeping { wait, .. } => next = next.into_iter().chain([*wait]).min(),
                Phase::Blocked | Phase::AwaitingAnswer(_) | Phase::Failed(_) | Phase::Settled => {}
            }
        }
        next
    }

    /// Returns the tasks whose deadline has passed without an answer.
    pub(super) fn expired(&self, now: Timestamp) -> Vec<TaskId> {
        let is_over = |index: &usize| self.tasks[*index].deadline().is_some_and(|it| it <= now);
        (0..self.tasks.len()).filter(is_over).map(|it| self.id(it)).collect()
    }

    /// Returns whether a task waits for this event. Others are repeated or late.
    pub(super) fn expects(&self, index: usize, event: &TaskEvent) -> bool {
        let task = &self.tasks[index];
        match (event, &task.phase) {
            (TaskEvent::Woke { wake, .. }, phase) => {
                matches!(phase, Phase::Sleeping { wait, .. } if wait.wake == *wake)
            }
            (TaskEvent::Expired { .. }, _) => task.deadline().is_some(),
            (TaskEvent::Answered { key, .. }, Phase::AwaitingAnswer(question)) => {
                question.key == *key
            }
            (TaskEvent::Answered { .. }, _) => false,
            (event, phase) => {
                let is_current = |it: &AttemptStats| it.number == task.attempt;
                *phase == Phase::Running && event.attempt().is_some_and(is_current)
            }
        }
    }

    /// Adds the usage of an attempt that ended.
    pub(super) fn add_attempt(&mut self, index: usize, attempt: &AttemptStats) {
        self.tasks[index].used.add(attempt.used());
        self.count_usage(index, attempt.used());
    }

    /// Counts the usage of restored tasks.
    pub(super) fn count_restored_usage(&mut self) {
        for index in 0..self.tasks.len() {
            self.count_usage(index, self.tasks[index].used);
        }
    }

    /// Adds usage of a task to the sums of the step.
    fn count_usage(&mut self, index: usize, used: TaskUsage) {
        let task = &self.tasks[index];
        self.counted_usage.add(&used.usage);
        self.last_end_ms = self.last_end_ms.max(task.end_ms());
        if let Some(node) = self.narrow_nodes.iter_mut().find(|it| it.has(index)) {
            node.worked_ms = node.worked_ms.saturating_add(used.elapsed_ms);
        }
        if let Some(of_node) = self.limited_usage.get_mut(&task.node) {
            of_node.add(used);
        }
    }

    /// Returns the usage of a node with limits by the attempts of this step that have ended.
    pub(super) fn limited_usage_of(&self, node: &NodeName) -> TaskUsage {
        self.limited_usage.get(node).copied().unwrap_or_default()
    }

    /// Checks the size of an update and of dispatches of a task, and adds it to that of the step.
    ///
    /// Everything that a run keeps is checked before it is recorded. A refused value is a failure of its node,
    /// which can be caught or retried; refused by the database, the run could not continue. The results of a
    /// step are kept until its commit, so all of them together have a limit as well.
    pub(super) fn add_result(
        &mut self,
        update: &Update,
        transitions: &[Transition],
    ) -> Result<(), Failure> {
        let mut size: u64 = update.size();
        let mut items: u64 = 0;
        for transition in transitions {
            let Transition::Dispatch(dispatch) = transition else { continue };
            items += 1;
            DataLimit::MapItems.check(items).map_err(|it| too_large("the list of items", &it))?;
            let what = || format!("item {items} for `{}`", dispatch.node);
            size += measure(&dispatch.input).map_err(|it| too_large(&what(), &it))?;
        }
        let of_step = self.result_bytes.saturating_add(size);
        DataLimit::StateMemory
            .check(of_step)
            .map_err(|it| too_large("the updates and dispatches of this step so far", &it))?;
        self.result_bytes = of_step;
        Ok(())
    }

    /// Settles a task with its final outcome.
    pub(super) fn settle(&mut self, index: usize, outcome: Outcome) -> Arc<TaskRecord> {
        self.set_phase(index, Phase::Settled);
        let record = self.keep_record(index, outcome);
        self.release(index);
        record
    }

    /// Links items of a map to the items that they need: `items` are the indexes of their tasks.
    pub(super) fn link_items(&mut self, items: &[usize], needs: Result<ItemNeeds, Failure>) {
        let ItemNeeds { keys, needs, .. } = match needs {
            Ok(needs) => needs,
            Err(failure) => {
                for &item in items {
                    self.tasks[item].dependencies_mut().failure = Some(Box::new(failure.clone()));
                }
                return;
            }
        };
        for (&item, key) in items.iter().zip(keys) {
            self.tasks[item].dependencies_mut().key = key;
        }
        for (&item, needs) in items.iter().zip(needs) {
            self.tasks[item].dependencies_mut().unmet = needs.len();
            for need in needs {
                self.tasks[items[need]].dependencies_mut().dependents.push(item);
            }
        }
    }

    /// Blocks a task that needs others which are not settled. Returns whether it is blocked.
    pub(super) fn block(&mut self, index: usize) -> bool {
        let is_blocked = self.tasks[index].dependencies.as_ref().is_some_and(|it| it.unmet > 0);
        if is_blocked {
            self.set_phase(index, Phase::Blocked);
        }
        is_blocked
    }

    /// Takes a task that was blocked and can begin.
    pub(super) fn next_ready(&mut self) -> Option<usize> {
        let index = self.ready.pop_first()?;
        self.set_phase(index, Phase::Running);
        Some(index)
    }

    /// Returns the failure of a task that does not run because of the other items of its map, and the failed item.
    pub(super) fn failed_need(&self, index: usize) -> Option<(Failure, Option<&TaskRecord>)> {
        let item = self.tasks[index].dependencies.as_ref()?;
        if let Some(failure) = &item.failure {
            return Some((failure.as_ref().clone(), None));
        }
        let need = &self.tasks[item.failed_need?];
        let message = format!("the item {} that it needs failed", need.item_key());
        Some((Failure::new(ErrorKind::Dependency, message), need.record.as_deref()))
    }

    /// Informs the dependents of a settled task, and readies those that need no other.
    fn release(&mut self, index: usize) {
        let Some(settled) = &mut self.tasks[index].dependencies else { return };
        let dependents = std::mem::take(&mut settled.dependents);
        let task = &self.tasks[index];
        let end = task.end_ms();
        let record = &task.record;
        let is_failed =
            record.as_ref().is_some_and(|it| matches!(it.outcome, Outcome::Caught { .. }));
        for dependent in dependents {
            let TaskState { dependencies: Some(waiting), phase, .. } = &mut self.tasks[dependent]
            else {
                continue;
            };
            waiting.unmet -= 1;
            waiting.before_ms = waiting.before_ms.max(end);
            if is_failed {
                let first = waiting.failed_need.map_or(index, |it| it.min(index));
                waiting.failed_need = Some(first);
            }
            if waiting.unmet == 0 && *phase == Phase::Blocked {
                self.ready.insert(dependent);
            }
        }
    }

    /// Aborts a task that is not settled. It counts as busy, so that the run does not stop before the driver ends the step.
    pub(super) fn abort(&mut self, index: usize) -> Arc<TaskRecord> {
        self.set_phase(index, Phase::Aborted);
        self.keep_record(index, Outcome::Aborted)
    }

    /// Takes the result of a settled task, whose update does not fit beside the others of the step.
    pub(super) fn take_result(&mut self, index: usize) -> Option<Arc<TaskRecord>> {
        let result = self.tasks[index].record.take()?;
        let size = result.outcome.update().map_or(0, Update::size);
        self.result_bytes = self.result_bytes.saturating_sub(size);
        Some(result)
    }

    /// Fails a task for good.
    pub(super) fn fail(&mut self, index: usize, failure: Failure) -> TaskRecord {
        self.record_failure(index, Outcome::Failed { failure })
    }

    fn record_failure(&mut self, index: usize, outcome: Outcome) -> TaskRecord {
        let record = self.make_record(index, outcome);
        self.set_phase(index, Phase::failed(&record));
        record
    }

    /// Keeps the result of a node whose route failed. Only the decision is tried again.
    pub(super) fn leave_undecided(
        &mut self,
        index: usize,
        update: Update,
        goto: Goto,
        failure: Failure,
    ) -> TaskRecord {
        self.tasks[index].undecided = Some(Box::new((update.clone(), goto.clone())));
        self.record_failure(index, Outcome::Undecided { update, goto, failure })
    }

    /// Takes the result of a node whose targets are not decided.
    pub(super) fn take_undecided(&mut self, index: usize) -> Option<(Update, Goto)> {
        self.tasks[index].undecided.take().map(|it| *it)
    }

    /// Ends an attempt; the next one follows after a wait.
    pub(super) fn retry(&mut self, index: usize, failure: Failure, wait: Wait) -> TaskRecord {
        let Wait { wake, duration_ms: wait_ms } = wait;
        let task = &mut self.tasks[index];
        task.retries.add(&failure, wait_ms, task.used.elapsed_ms);
        let message = failure.message.clone();
        let record = self.make_record(index, Outcome::Retrying { failure, wait_ms, wake });
        self.tasks[index].attempt += 1;
        self.set_phase(index, Phase::Sleeping { wait, reason: Some(message) });
        record
    }

    /// Lets a task wait for a time. The same attempt continues after it.
    pub(super) fn set_timer(&mut self, index: usize, timer: Timer, wait: Wait) -> TaskRecord {
        let (Wait { wake, duration_ms: wait_ms }, Timer { key, reason, .. }) = (wait, timer);
        self.tasks[index].keep_timer(&key, wait);
        let phase = Phase::Sleeping { wait, reason: reason.clone() };
        let record = self.make_record(index, Outcome::TimerSet { key, wait_ms, wake, reason });
        self.set_phase(index, phase);
        record
    }

    /// Runs a task again, after its wait or with an answer.
    pub(super) fn run_again(&mut self, index: usize) {
        self.set_phase(index, Phase::Running);
    }

    /// Saves a memo: the result of a part of a node's work, which later attempts can read.
    pub(super) fn save_memo(
        &mut self,
        index: usize,
        until_now: &AttemptStats,
        name: String,
        value: Value,
    ) -> TaskRecord {
        self.keep_memo(index, &name, &value);
        let task = &mut self.tasks[index];
        // The attempt's usage is added when it ends. If it never ends, the usage known by now is recorded.
        let mut used = task.used;
        used.add(until_now.used());
        let TaskUsage { usage, elapsed_ms: ms } = used;
        let record = self.make_record(index, Outcome::MemoSaved { name, value });
        TaskRecord { ms, usage, ..record }
    }

    /// Lets a task wait for the answer to its question.
    pub(super) fn ask(&mut self, index: usize, question: Question) -> TaskRecord {
        self.set_phase(index, Phase::AwaitingAnswer(Box::new(question.clone())));
        self.tasks[index].question_keys.push(question.key.clone());
        self.make_record(index, Outcome::Asked { question })
    }

    /// Gives a task the answer to its question.
    pub(super) fn answer(
        &mut self,
        index: usize,
        key: String,
        answer: Value,
        by: Option<String>,
        question_hash: Option<EntryHash>,
    ) -> TaskRecord {
        self.run_again(index);
        self.tasks[index].answers.insert(key.clone(), answer.clone());
        self.make_record(index, Outcome::Answered { key, answer, by, question_hash })
    }

    /// Restores a task from its record. If a node is named, failed tasks of other nodes do not run again.
    pub(super) fn restore_task(
        &mut self,
        index: usize,
        record: TaskRecord,
        only: Option<&NodeName>,
    ) {
        if let Outcome::MemoSaved { name, value } = &record.outcome {
            self.keep_memo(index, name, value);
        }
        // A failure that follows a result replaces it.
        self.take_result(index);
        let (phase, result_bytes) = self.tasks[index].restore(record, only);
        self.result_bytes = self.result_bytes.saturating_add(result_bytes);
        let is_settled = phase == Phase::Settled;
        self.set_phase(index, phase);
        if is_settled {
            self.release(index);
        }
    }

    /// Returns the final records and those of aborted tasks, in task order.
    pub(super) fn records(&self) -> impl Iterator<Item = &TaskRecord> + Clone {
        self.tasks.iter().filter_map(|it| it.record.as_deref())
    }

    /// Returns the updates of the settled tasks with their indexes, in task order.
    pub(super) fn settled_updates(&self) -> impl Iterator<Item = (usize, &Update)> {
        let tasks = self.tasks.iter().enumerate();
        tasks.filter_map(|(index, task)| Some((index, task.record.as_deref()?.outcome.update()?)))
    }

    /// Returns the updates of the tasks that have finished, in task order, decided or not.
    pub(super) fn updates(&self) -> impl Iterator<Item = &Update> + Clone {
        self.tasks.iter().filter_map(|task| {
            let decided = task.record.as_deref().and_then(|it| it.outcome.update());
            decided.or(task.undecided.as_deref().map(|(update, _)| update))
        })
    }

    /// Takes the records of the complete step, in task order.
    pub(super) fn take_records(&mut self) -> Vec<Arc<TaskRecord>> {
        let count = self.tasks.len();
        let mut records = std::mem::take(&mut self.spare);
        records.extend(self.tasks.drain(..).filter_map(|it| it.record));
        assert_eq!(records.len(), count, "every task of the step is settled");
        records
    }

    /// Gives the memory of `take_records` back, to be used again.
    pub(super) fn recycle(&mut self, mut records: Vec<Arc<TaskRecord>>) {
        records.clear();
        self.spare = records;
    }

    fn make_record(&self, index: usize, outcome: Outcome) -> TaskRecord {
        self.tasks[index].make_record(self.id(index), outcome)
    }

    fn keep_record(&mut self, index: usize, outcome: Outcome) -> Arc<TaskRecord> {
        let record = Arc::new(self.make_record(index, outcome));
        self.tasks[index].record = Some(Arc::clone(&record));
        record
    }

    fn set_phase(&mut self, index: usize, phase: Phase) {
        let is_settled = phase == Phase::Settled;
        let is_busy = phase.is_busy();
        let before = std::mem::replace(&mut self.tasks[index].phase, phase);
        self.unsettled =
            self.unsettled + usize::from(before == Phase::Settled) - usize::from(is_settled);
        self.busy = self.busy + usize::from(is_busy) - usize::from(before.is_busy());
    }
}

/// Checks the size of a question to a person.
pub(super) fn check_question(question: &Question) -> Result<(), Failure> {
    let Question { key, prompt, schema, show, .. } = question;
    let parts =
        [("the prompt", &Value::from(prompt.as_str())), ("`show`", show), ("the schema", schema)];
    for (part, value) in parts {
        measure(value).map_err(|it| too_large(&format!("{part} of the question `{key}`"), &it))?;
    }
    Ok(())
}

fn too_large(what: &str, reached: &DataLimitReached) -> Failure {
    Failure::new(ErrorKind::Other, format!("{what} is {reached}"))
}
