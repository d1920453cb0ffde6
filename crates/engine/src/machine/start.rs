//! How a machine begins: a new run, a new turn, or where a run was saved.

use std::sync::Arc;

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    graph::RunFacts,
    id::RunId,
    state::{Change, State, StateError, Update},
};
use jiff::Timestamp;

use super::{
    Action, FirstStep, Machine, RestoreError, RunSettings, SavedStep, fit,
    frontier::first_frontier,
    inbox::Inbox,
    indexed::IndexedPosition,
    open_step::OpenStep,
    task_state::{Phase, TaskState},
};
use crate::checkpoint::{Checkpoint, Commit, EarlierTurns, InboxMessage, Position};

impl Machine {
    /// Starts a run.
    ///
    /// # Errors
    ///
    /// Fails when the input does not fit the state.
    pub fn start(
        graph: CompiledGraph,
        settings: RunSettings,
        run: RunId,
        input: Update,
    ) -> Result<FirstStep, StateError> {
        let state = graph.schema().begin(input)?;
        // Defaults are saved with the input: a later change of the schema does not affect a run that has
        // started.
        let changes = state.as_changes().collect();
        let began = step_began(&graph, settings.now);
        let position = at_entry(&graph, Position { began, ..Position::default() });
        Ok(Self::at(graph, settings, run, position, state, Vec::new()).enter(changes))
    }

    /// Starts a run at a position of its graph, in the state that it would have there. Without next tasks it starts at
    /// the first nodes.
    ///
    /// # Errors
    ///
    /// Fails when the checkpoint does not fit the graph.
    pub fn start_at(
        graph: CompiledGraph,
        settings: RunSettings,
        run: RunId,
        checkpoint: Checkpoint,
    ) -> Result<FirstStep, RestoreError> {
        let (position, state) = checkpoint.into_parts();
        fit::check(&graph, &position, &[])?;
        let changes = state.as_changes().collect();
        let position = Position { began: step_began(&graph, settings.now), ..position };
        let mut position = IndexedPosition::of(&graph, position)?;
        if position.frontier.is_empty() {
            first_frontier(&graph, &mut position);
        }
        Ok(Self::at(graph, settings, run, position, state, Vec::new()).enter(changes))
    }

    /// Begins a new turn of a run that has ended, with its input as an update. The limits and the visit counts begin
    /// anew; the totals and the state are kept.
    ///
    /// # Errors
    ///
    /// Fails when the input does not fit the state.
    pub fn turn(
        graph: CompiledGraph,
        settings: RunSettings,
        run: RunId,
        ended: Checkpoint,
        input: &Update,
    ) -> Result<FirstStep, StateError> {
        let (position, state) = ended.into_parts();
        let schema = graph.schema();
        schema.check(input)?;
        let (state, changes) = schema.apply(state, [input])?;
        let earlier = EarlierTurns {
            turns: position.earlier.turns + 1,
            steps: position.step.next().0,
            usage: position.total_usage(),
            elapsed_ms: position.earlier.elapsed_ms + position.used.elapsed_ms,
        };
        let position = Position {
            step: position.step.next(),
            earlier,
            people: position.people,
            began: step_began(&graph, settings.now),
            ..Position::default()
        };
        let position = at_entry(&graph, position);
        Ok(Self::at(graph, settings, run, position, state, Vec::new()).enter(changes))
    }

    /// Enters the graph at the next nodes of the position, with the changes that led to the state there.
    fn enter(mut self, changes: Vec<Change>) -> FirstStep {
        let commit = Commit { position: self.position(), changes };
        self.emit();
        if let Some(stop) = self.breakpoint_stop(&[]) {
            self.actions.push(stop);
        } else if self.begin_step() {
            self.advance();
        }
        let actions = self.take_actions();
        FirstStep { machine: self, commit, actions }
    }

    /// Restores a run from where it was saved, and returns the remaining actions. The next step starts even
    /// if it has a breakpoint: the run has already stopped there, or was resumed.
    ///
    /// # Errors
    ///
    /// Fails when the saved run does not fit the graph.
    pub fn restore(
        graph: CompiledGraph,
        settings: RunSettings,
        run: RunId,
        saved: SavedStep,
    ) -> Result<(Self, Vec<Action>), RestoreError> {
        let has_no_records = saved.records.is_empty();
        let mut machine = Self::with_records(graph, settings, run, saved)?;
        machine.continue_step(has_no_records);
        let actions = machine.take_actions();
        Ok((machine, actions))
    }

    /// Continues the open step from its restored tasks. `has_no_records` says that none of them was saved.
    fn continue_step(&mut self, has_no_records: bool) {
        if self.open_step.tasks().iter().all(TaskState::is_at_beginning) {
            // A record shows that the step has begun. Messages then wait for its end, so that all of its tasks read one
            // state.
            if has_no_records {
                self.process_inbox_anew();
            }
            // No task needs a continuation, so the step begins anew. Its limits are checked again: they may have changed.
            if let Some(reached) = self.limit_before_step()
                && self.can_route_to_exhausted()
            {
                return self.route_at_limit(&reached);
            }
            if !self.begin_step() {
                return;
            }
        } else {
            for index in self.open_step.busy_tasks() {
                self.continue_task(index);
            }
        }
        self.advance();
    }

    /// Continues a task from its restored state.
    fn continue_task(&mut self, index: usize) {
        match self.open_step.tasks()[index].phase {
            Phase::Running => self.begin_task(index),
            Phase::Sleeping { wait, .. } => {
                self.actions.push(Action::Sleep { task: self.open_step.id(index), wait });
            }
            Phase::Blocked
            | Phase::Aborted
            | Phase::AwaitingAnswer(_)
            | Phase::Failed(_)
            | Phase::Settled => (),
        }
    }

    /// Returns the machine with the saved records, before any task starts.
    pub(crate) fn with_records(
        graph: CompiledGraph,
        settings: RunSettings,
        run: RunId,
        saved: SavedStep,
    ) -> Result<Self, RestoreError> {
        let SavedStep { checkpoint, records, messages, retry_only } = saved;
        fit::check(&graph, &checkpoint.position, &records)?;
        let (position, state) = checkpoint.into_parts();
        let position = IndexedPosition::of(&graph, position)?;
        let mut machine = Self::at(graph, settings, run, position, state, messages);
        for record in records {
            let index = machine.open_step.index(record.task);
            let index = index.ok_or(RestoreError::Record(record.task))?;
            machine.open_step.restore_task(index, record, retry_only.as_ref());
        }
        machine.open_step.count_restored_usage();
        Ok(machine)
    }

    fn at(
        graph: CompiledGraph,
        settings: RunSettings,
        run: RunId,
        position: IndexedPosition,
        state: State,
        messages: Vec<InboxMessage>,
    ) -> Self {
        let RunSettings { limits, breakpoints, is_in_process, now } = settings;
        let open_step = OpenStep::after(&graph, &position);
        // Messages from before a migration to this graph come first.
        let messages = [position.people.pending_messages.clone(), messages].concat();
        let inbox = Inbox::new(position.people.last_message, messages);
        let state = Arc::new(state);
        let workflow = graph.definition().name.as_str().into();
        let facts = RunFacts { run: Some(run.clone()), workflow, ..RunFacts::default() };
        let facts = Arc::new(facts);
        let mut machine = Self {
            graph,
            limits,
            breakpoints,
            run,
            position,
            state,
            open_step,
            inbox,
            is_in_process,
            now,
            facts,
            actions: Vec::new(),
        };
        machine.note_facts();
        machine.link_items();
        machine
    }
}

/// Returns the beginning of a step that starts now, if the graph needs it.
pub(crate) fn step_began(graph: &CompiledGraph, now: Timestamp) -> Option<Timestamp> {
    graph.definition().facts.time.then_some(now)
}

/// Returns a position whose next tasks are the first nodes of the graph, except those that wait for others.
fn at_entry(graph: &CompiledGraph, position: Position) -> IndexedPosition {
    let mut position = IndexedPosition::of(graph, position).expect("the position names no node");
    first_frontier(graph, &mut position);
    position
}
