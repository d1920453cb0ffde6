//! Continues a saved run from its position, or retries its failed tasks.

use graphrun_core::{
    event::{EventSink, Status},
    fault::{self, Point},
    id::{NodeName, RunId},
};

use super::{
    Answers, Engine, RunEnd, RunError, Stop, check_retry,
    compare::{Compared, compare, suggest},
    driver::{Driver, Resumption},
    lease::Lease,
    log::Log,
    superstep::{Action, Event, Machine, Terms},
};
use crate::checkpoint::{Checkpoint, CheckpointError, InboxMessage, Outline, SavedRun};

/// A saved run that is ready to continue.
struct Prepared {
    machine: Machine,
    actions: Vec<Action>,
    last_seq: u64,
    /// The changes of its workflow, as text.
    changes: Vec<String>,
}

impl Engine {
    /// Continues a saved run. Finished tasks do not run again. A question whose deadline has passed fails its
    /// node as `timeout` at once.
    ///
    /// # Errors
    ///
    /// Fails when there is no such run, it has ended, another process owns it, an answer matches no open
    /// question, or the run cannot be loaded or saved.
    ///
    /// # Cancel safety
    ///
    /// As [`Engine::start`].
    pub async fn resume(
        &self,
        run: &RunId,
        answers: impl Into<Answers> + Send,
        events: EventSink,
        stop: &Stop,
    ) -> Result<RunEnd, RunError> {
        let lease = Lease::acquire(&self.checkpointer, run, self.lease).await?;
        let prepared = self.prepare_to_resume(run, answers.into()).await;
        let (lease, prepared) = lease.or_give_back(prepared).await?;
        self.drive_prepared(lease, prepared, events, stop).await
    }

    async fn prepare_to_resume(&self, run: &RunId, answers: Answers) -> Result<Prepared, RunError> {
        fault::hit(Point::AcquireAfter).map_err(CheckpointError::injected)?;
        let saved = self.checkpointer.load(run).await?;
        let last_seq = saved.last_seq;
        // A process may have died after the last step, before the final status was saved.
        if saved.position.frontier.is_empty() && saved.summary.status != Status::Running {
            self.matched(run, &[], answers).await?;
            return Err(RunError::NothingToDo(saved.summary.status));
        }
        let messages = self.new_messages(&saved).await?;
        let changes = self.changes_since(&saved, &messages)?;
        let messages = if self.graph.graph().inbox.is_empty() { Vec::new() } else { messages };
        let (mut machine, mut actions) = self.restore(saved, messages, None)?;
        let open = machine.open_questions();
        let answered = self.matched(run, &open, answers).await?;
        let late = machine.expired(self.clock.now()).into_iter();
        for event in answered.into_iter().chain(late.map(|task| Event::Expired { task })) {
            // The machine wanted to stop because these answers were missing.
            actions.retain(|it| !matches!(it, Action::Stop(_)));
            actions.extend(machine.apply(event));
        }
        Ok(Prepared { machine, actions, last_seq, changes })
    }

    async fn drive_prepared(
        &self,
        lease: Lease,
        prepared: Prepared,
        events: EventSink,
        stop: &Stop,
    ) -> Result<RunEnd, RunError> {
        let Prepared { machine, actions, last_seq, changes } = prepared;
        let log = Log::new(machine.run().clone(), (events, last_seq), self.clock.clone());
        let resumption = Resumption { machine, lease, log, changes };
        Driver::resume(self, resumption, stop).await?.drive(actions).await
    }

    /// Checks whether a saved run can continue with the current graph.
    ///
    /// # Errors
    ///
    /// Fails with [`RunError::Broken`] if it cannot, and when the run cannot be loaded.
    pub async fn check_changes(&self, run: &RunId) -> Result<(), RunError> {
        let saved = self.checkpointer.load(run).await?;
        let messages = self.new_messages(&saved).await?;
        self.changes_since(&saved, &messages).map(drop)
    }

    /// Retries the failed tasks of a failed run: all of them, or those of one node. Finished tasks are kept.
    ///
    /// # Errors
    ///
    /// Fails when the run did not fail or none of its tasks did, and as [`Engine::resume`].
    ///
    /// # Cancel safety
    ///
    /// As [`Engine::start`].
    pub async fn retry(
        &self,
        run: &RunId,
        node: Option<&NodeName>,
        events: EventSink,
        stop: &Stop,
    ) -> Result<RunEnd, RunError> {
        let lease = Lease::acquire(&self.checkpointer, run, self.lease).await?;
        let prepared = self.prepare_to_retry(run, node).await;
        let (lease, prepared) = lease.or_give_back(prepared).await?;
        self.drive_prepared(lease, prepared, events, stop).await
    }

    async fn prepare_to_retry(
        &self,
        run: &RunId,
        node: Option<&NodeName>,
    ) -> Result<Prepared, RunError> {
        let saved = self.checkpointer.load(run).await?;
        check_retry(&saved, node)?;
        let last_seq = saved.last_seq;
        let changes = self.changes_since(&saved, &self.new_messages(&saved).await?)?;
        let (machine, actions) = self.restore(saved, Vec::new(), node)?;
        Ok(Prepared { machine, actions, last_seq, changes })
    }

    fn restore(
        &self,
        saved: SavedRun,
        messages: Vec<InboxMessage>,
        only: Option<&NodeName>,
    ) -> Result<(Machine, Vec<Action>), RunError> {
        let run = saved.summary.info.id;
        let changed = |source| RunError::Changed { run: run.clone(), source };
        let state = self.graph.schema().restore(saved.values).map_err(|it| changed(it.into()))?;
        let checkpoint = Checkpoint { position: saved.position, state };
        let (graph, terms) = (self.graph.clone(), Terms { messages, ..self.terms() });
        let saved = (checkpoint, saved.records);
        Machine::restore_only(graph, terms, run.clone(), saved, only).map_err(changed)
    }

    /// Returns the inbox messages that are not processed yet, if the run or the graph accepts messages.
    pub(super) async fn new_messages(
        &self,
        saved: &SavedRun,
    ) -> Result<Vec<InboxMessage>, RunError> {
        let old = saved.summary.info.graph.as_deref();
        if self.graph.graph().inbox.is_empty() && old.is_none_or(|it| !it.accepts_messages()) {
            return Ok(Vec::new());
        }
        Ok(self
            .checkpointer
            .inbox(&saved.summary.info.id, saved.position.people.last_message)
            .await?)
    }

    /// Describes the changes of the graph since the run was started.
    fn changes_since(
        &self,
        saved: &SavedRun,
        messages: &[InboxMessage],
    ) -> Result<Vec<String>, RunError> {
        let Some(old) = &saved.summary.info.graph else { return Ok(Vec::new()) };
        let new = &Outline::of(&self.graph);
        if **old == *new {
            return Ok(Vec::new());
        }
        let compared = Compared { old, new, graph: &self.graph, saved, messages };
        let differences = compare(compared, None);
        if differences.iter().any(|it| it.breaks.is_some()) {
            let (run, remedies) = (saved.summary.info.id.clone(), suggest(compared));
            return Err(RunError::Broken { run, differences, remedies });
        }
        Ok(differences.into_iter().map(|it| it.what).collect())
    }
}
