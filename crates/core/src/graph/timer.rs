//! Waits of a node that no process has to be active for.

use std::time::Duration;

use jiff::Timestamp;

use super::{NodeContext, NodeError};

/// The begin of the names of memos that hold the end of a wait.
pub const TIMER_MEMO: &str = "timer ";

/// A wait that a node asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// The key of the wait, unique in the task.
    pub key: String,
    /// When it ends.
    pub end: TimerEnd,
    /// Why the node waits, if that is not obvious: the reason of a nested run.
    pub reason: Option<String>,
}

/// When a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerEnd {
    /// This long after the node asked for it.
    After(Duration),
    /// At this time.
    At(Timestamp),
}

impl NodeContext {
    /// Waits for a time. The end of the wait is saved with the run: if the process dies, the resumed run waits only for the
    /// rest, and if the wait is longer than the engine allows, the run pauses until then.
    ///
    /// The first call ends the node; pass the error on with `?`. After the wait the node starts from its beginning, and this
    /// call returns. Waits are found by key, so a node may wait several times, with a key each. A wait counts as no attempt.
    ///
    /// # Errors
    ///
    /// Returns the wait itself as an error until it is over. Fails if this attempt has used the key before.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use graphrun_core::graph::{NodeContext, NodeError};
    ///
    /// async fn poll(ctx: NodeContext) -> Result<(), NodeError> {
    ///     ctx.wait_for("settle", Duration::from_secs(3600))?;
    ///     // An hour later, in this process or in another one.
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "sleep")]
    pub fn wait_for(&self, key: &str, duration: Duration) -> Result<(), NodeError> {
        self.wait(key, TimerEnd::After(duration))
    }

    /// Waits until a time, as [`wait_for`](Self::wait_for) does. A time in the past is over at once.
    ///
    /// # Errors
    ///
    /// Returns the wait itself as an error until it is over. Fails if this attempt has used the key before.
    pub fn wait_until(&self, key: &str, time: Timestamp) -> Result<(), NodeError> {
        self.wait(key, TimerEnd::At(time))
    }

    fn wait(&self, key: &str, end: TimerEnd) -> Result<(), NodeError> {
        let name = format!("{TIMER_MEMO}{key}");
        if !self.reporter.recalls_first(&name) {
            let message = format!("two waits of this node are called `{key}`");
            return Err(NodeError::permanent(message));
        }
        let saved = self.memos.get(&name).and_then(|it| it.as_str()?.parse::<Timestamp>().ok());
        let end = saved.map_or(end, TimerEnd::At);
        if end.after(self.began) <= self.began {
            return Ok(());
        }
        Err(NodeError::Wait(Box::new(Timer { key: key.to_owned(), end, reason: None })))
    }
}

impl TimerEnd {
    /// Returns the time at which a wait ends that begins at this moment.
    pub fn after(self, moment: Timestamp) -> Timestamp {
        match self {
            Self::After(duration) => moment.checked_add(duration).unwrap_or(Timestamp::MAX),
            Self::At(time) => time,
        }
    }
}
