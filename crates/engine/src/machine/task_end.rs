//! What follows when a task has finished, failed or asked.

use graphrun_core::{
    graph::{Command, ErrorKind, Failure, Goto, Question, Timer, Transition},
    id::ChannelName,
    state::Update,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Action, Machine, Wait, backoff, open_step::check_question, routing::misfit_failure,
    task_state::is_uncounted,
};
use crate::{budget, checkpoint::Outcome};

impl Machine {
    /// Handles the result of a node: checks it, evaluates the routes of the node and puts both into one
    /// record.
    pub(super) fn finish(&mut self, index: usize, command: Command, ended: Timestamp) {
        let Command { mut update, goto } = command;
        let routing = self.routing();
        let active = &self.position.frontier[index];
        let cleared = routing.check_clears(active.node, &update.clears);
        update.clears.extend(self.policies(index).on_finish.clears.iter().cloned());
        let checked = cleared
            .and_then(|()| routing.check_update(&update))
            .and_then(|()| routing.check_choice(active.node, &goto))
            .and_then(|()| self.open_step.add_result(&update, goto.chosen()));
        match checked {
            Ok(()) => self.decide(index, update, goto),
            // This is a failed attempt, and the node may be tried again.
            Err(failure) => self.retry_or_end(index, failure, ended),
        }
    }

    /// Decides where a finished node leads.
    ///
    /// A route that fails is no failure of its node: the result is kept, and no `catch` of the node applies.
    /// The routes are tried again when the run continues.
    pub(super) fn decide(&mut self, index: usize, update: Update, goto: Goto) {
        let routing = self.routing();
        let active = &self.position.frontier[index];
        let decided = routing.by_edges(active, &[&update], &goto).and_then(|transitions| {
            // The update was counted when the node finished, or when its record was restored.
            self.open_step.add_result(&Update::default(), &transitions)?;
            Ok(transitions)
        });
        match decided {
            Ok(mut transitions) => {
                transitions.extend(goto.into_chosen());
                self.settle(index, Outcome::Finished { update, transitions });
            }
            Err(failure) => {
                self.actions
                    .push(self.open_step.leave_undecided(index, update, goto, failure).into());
            }
        }
    }

    /// Handles a failed attempt: the node waits for its next attempt, or has failed.
    ///
    /// The end of the wait is saved, so that another process waits only for the rest of it.
    pub(super) fn retry_or_end(&mut self, index: usize, failure: Failure, ended: Timestamp) {
        let task = self.open_step.id(index);
        let state = &self.open_step.tasks()[index];
        let attempt = state.counted_attempts();
        let lasted = state.retried_for();
        let retry = self.policies(index).attempts.retry.for_failure(&failure);
        let attempts_max = retry.attempts_after(&failure);
        // Without a limit of time, and without retries, nothing else ends the waits.
        let is_free = is_uncounted(&failure) && retry.total.is_some() && attempts_max > 1;
        let is_last = !is_free && attempt >= attempts_max;
        let is_last = is_last || self.reached_node_limit(index).is_some();
        if is_last || retry.is_over(&failure, lasted) {
            return self.end_with_failure(index, failure);
        }
        let seed = format!("{}/{task}/{attempt}", self.run);
        let wait_ms = backoff::wait_ms(retry, &seed, attempt, failure.retry_after_ms);
        let wait = Wait::from(ended, wait_ms);
        let record = self.open_step.retry(index, failure, wait);
        self.actions.extend([record.into(), Action::Sleep { task, wait }]);
    }

    /// Handles a failure that ends its task. In this order: a `catch` leads on, the map of the item collects it, `exhausted`
    /// follows a limit of the node; otherwise the task has failed.
    pub(super) fn end_with_failure(&mut self, index: usize, failure: Failure) {
        let policies = self.policies(index);
        let active = &self.position.frontier[index];
        let items = policies.schedule.items.as_ref().filter(|_| active.is_dispatched());
        let for_all_items = items.is_some();
        let catch = policies.catch_of(&failure).map(|it| it.to.clone());
        let list = items.and_then(|it| it.failed.clone()).filter(|_| failure.ends_its_task());
        let is_over_limit = failure.is_node_limit();
        let exhausted = || policies.bounds.exhausted.clone().filter(|_| is_over_limit);
        if catch.is_none()
            && let Some(list) = list
        {
            return self.collect_failure(index, failure, list);
        }
        let Some(target) = catch.or_else(exhausted) else {
            return self.fail_for_good(index, failure);
        };
        let transitions = vec![Transition::To(target)];
        let update = Update::default();
        let caught = Outcome::Caught { failure, update, for_all_items, transitions };
        self.settle(index, caught);
    }

    /// Describes the limit that the node of a task has reached: with all tasks of the step so far, and without the
    /// attempts that run.
    pub(super) fn reached_node_limit(&self, index: usize) -> Option<String> {
        let policies = self.policies(index);
        let name = self.name_of_task(index);
        policies.bounds.limits.as_ref()?;
        let mut used = self.position.used.node_usage.get(name).copied().unwrap_or_default();
        used.add(self.open_step.limited_usage_of(name));
        budget::reached_by_node(name, policies, used)
    }

    /// Records the failure of an item in a list of the state. The item counts as finished.
    fn collect_failure(&mut self, index: usize, failure: Failure, failed: ChannelName) {
        let routing = self.routing();
        let active = &self.position.frontier[index];
        let record = self.failed_item(index, &failed, &failure);
        let update = Update::default().write(failed, vec![record]);
        let decided = routing
            .check_update(&update)
            .and_then(|()| routing.transitions(active, &[&update]))
            .and_then(|transitions| {
                self.open_step.add_result(&update, &transitions)?;
                Ok(transitions)
            });
        match decided {
            Ok(transitions) => {
                let for_all_items = false;
                self.settle(index, Outcome::Caught { failure, update, for_all_items, transitions });
            }
            // The first failure is the cause.
            Err(_) => self.fail_for_good(index, failure),
        }
    }

    /// Returns the record of a failed item, with the fields that the list declares.
    fn failed_item(&self, index: usize, list: &ChannelName, failure: &Failure) -> Value {
        let active = &self.position.frontier[index];
        let record = json!({
            "index": self.open_step.tasks()[index].item.unwrap_or_default(),
            "item": active.input.item(),
            "node": self.graph.name_at(active.node),
            "kind": failure.kind.as_str(),
            "message": failure.message,
        });
        self.graph.schema().cut(list, record)
    }

    /// Fails the tasks whose updates do not fit beside those of the tasks before them. Returns whether there is one.
    ///
    /// Each update fits alone, and was recorded: only all together show it. Another record of the task follows, and it fails
    /// like a task whose own update does not fit.
    pub(super) fn fail_misfits(&mut self) -> bool {
        let updates = self.open_step.settled_updates();
        let (tasks, updates): (Vec<usize>, Vec<&Update>) = updates.unzip();
        let misfits = self.graph.schema().misfits(&self.state, &updates);
        let is_any = !misfits.is_empty();
        let misfits = misfits.into_iter().map(|(at, error)| (tasks[at], misfit_failure(&error)));
        for (index, failure) in misfits.collect::<Vec<_>>() {
            match self.open_step.take_result(index).map(|it| it.outcome.clone()) {
                // The list of failed items has no room for it, and the first failure is the cause.
                Some(Outcome::Caught { failure, .. }) => self.fail_for_good(index, failure),
                _ => self.end_with_failure(index, failure),
            }
        }
        is_any
    }

    /// Handles a failure that no route of the node catches.
    pub(super) fn fail_for_good(&mut self, index: usize, failure: Failure) {
        self.actions.push(self.open_step.fail(index, failure).into());
    }

    /// Handles a question to a person: the task waits.
    pub(super) fn ask(&mut self, index: usize, question: Question) {
        match check_question(&question) {
            Ok(()) => self.actions.push(self.open_step.ask(index, question).into()),
            Err(failure) => self.end_with_failure(index, failure),
        }
    }

    /// Handles a wait of a node. Its end is saved, so that another process waits only for the rest of it.
    pub(super) fn set_timer(&mut self, index: usize, timer: Timer, ended: Timestamp) {
        let task = self.open_step.id(index);
        let wait = Wait::until(timer.end.after(ended), ended);
        let record = self.open_step.set_timer(index, timer, wait);
        self.actions.extend([record.into(), Action::Sleep { task, wait }]);
    }

    /// Fails a task whose question was not answered in time. If a nested run asked, the task runs again, so that the nested
    /// run can fail its own task, or continue after a wait.
    pub(super) fn expire(&mut self, index: usize) {
        let task = &self.open_step.tasks()[index];
        let Some(deadline) = task.deadline() else { return };
        if task.question().is_some_and(|it| it.nested.is_some()) {
            // The nested run must not find the time a little before it, which an early alarm may do.
            self.now = self.now.max(deadline);
            self.open_step.run_again(index);
            return self.actions.push(self.run_action(index));
        }
        let message = format!("no answer by {deadline:.0}");
        self.end_with_failure(index, Failure::new(ErrorKind::Timeout, message));
    }

    pub(super) fn settle(&mut self, index: usize, outcome: Outcome) {
        self.actions.push(self.open_step.settle(index, outcome).into());
    }
}
