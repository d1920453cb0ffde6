//! Follows an engine at work: shows its events, passes signals on, and writes the reports of its steps.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::{
    drive::{LEAVE_AFTER, Run, unwind},
    report_files::WriteOccasion,
};
use crate::{
    cli::{
        output::progress::Views,
        process::signals::{Signal, Signals},
    },
    engine::{RunEnd, RunError, ShutdownHandle},
    event::{Deltas, EventSink, Events, MessageDelta, RunEvent},
};

/// How often the live view updates the elapsed time.
const TICK: Duration = Duration::from_millis(100);

/// The most pieces of answers that are shown before an event.
const DELTAS_AT_ONCE_MAX: usize = 1024;

/// An engine that drives a run.
pub(super) type EngineTask = AbortOnDropHandle<Result<RunEnd, RunError>>;

/// Follows an engine at work: its events go to the views, and signals go to it.
#[derive(Debug)]
pub(super) struct Follower<'r> {
    run: &'r Run<'r>,
    pub(super) views: Views,
    events: Events,
    /// The pieces of models' answers, if a view shows them.
    deltas: Option<Deltas>,
    pub(super) shutdown: ShutdownHandle,
    /// The first signal.
    pub(super) signal: Option<Signal>,
    /// When the run is left even if its end is not saved.
    left_at: Option<Instant>,
    /// Whether the engine has saved an entry.
    pub(super) is_saved: bool,
    /// Whether an event has changed the reports since they were written.
    is_due: bool,
}

impl<'r> Follower<'r> {
    pub(super) fn new(run: &'r Run<'r>, sink: &mut EventSink) -> Self {
        Self {
            run,
            views: Views::new(run.globals, &run.caption()),
            events: sink.subscribe(),
            deltas: Views::want_deltas(run.globals).then(|| sink.subscribe_deltas()),
            shutdown: ShutdownHandle::default(),
            signal: None,
            left_at: None,
            is_saved: false,
            is_due: false,
        }
    }

    /// Shows the events of the engine and passes signals on to it, until it has ended. Returns none if it does not end
    /// after a signal to stop at once, because its storage does not answer.
    pub(super) async fn follow(
        &mut self,
        mut task: EngineTask,
        signals: &mut Signals,
    ) -> Option<Result<RunEnd, RunError>> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut is_open = true;
        loop {
            tokio::select! {
                biased;
                // First: an engine that is faster than the terminal always has a next event.
                signal = signals.next() => self.stop(signal),
                _ = ticks.tick() => self.views.tick(),
                event = self.events.recv(), if is_open => match event {
                    Some(event) => self.show(&event),
                    None => is_open = false,
                },
                // After its last event.
                result = &mut task, if !is_open => return Some(result.unwrap_or_else(unwind)),
                () = until(self.left_at) => return None,
                // After all events that wait: a report shows the last of their steps.
                () = std::future::ready(()), if self.is_due => {
                    self.is_due = false;
                    self.run.write_reports(WriteOccasion::Step, &mut self.views).await;
                }
                // Last: a model that sends many pieces must not keep the others waiting.
                Some(delta) = next_delta(&mut self.deltas) => self.views.show_delta(&delta),
            }
        }
    }

    fn show(&mut self, event: &RunEvent) {
        // The engine saves entries before it emits their events.
        self.is_saved = true;
        // The pieces of an answer come before the event of its end.
        let waiting = self.deltas.iter_mut().flat_map(waiting_deltas);
        waiting.for_each(|it| self.views.show_delta(&it));
        self.views.show(event);
        self.is_due |= self.run.reports.are_changed_by(&event.event);
    }

    /// Stops the engine: at the first signal after its running nodes, at the next one at once.
    fn stop(&mut self, signal: Signal) {
        let paint = self.run.globals.stderr;
        if self.signal.is_none() {
            self.views.note(&paint.loud(signal.announcement()));
            self.signal = Some(signal);
            self.shutdown.drain();
        } else {
            self.views.note(&paint.loud("stopping at once"));
            self.shutdown.abort();
            let is_repeated = self.left_at.is_some();
            self.left_at =
                Some(Instant::now() + if is_repeated { Duration::ZERO } else { LEAVE_AFTER });
        }
    }
}

/// Waits until a moment; forever if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Returns the pieces of models' answers that wait to be shown. Their number is bounded, so that events are shown
/// meanwhile.
fn waiting_deltas(deltas: &mut Deltas) -> impl Iterator<Item = MessageDelta> {
    std::iter::from_fn(|| deltas.try_recv()).take(DELTAS_AT_ONCE_MAX)
}

/// Returns the next piece of a model's answer; waits for ever without a reader, and returns `None` after the run.
async fn next_delta(deltas: &mut Option<Deltas>) -> Option<MessageDelta> {
    match deltas {
        Some(deltas) => deltas.recv().await,
        None => std::future::pending().await,
    }
}
