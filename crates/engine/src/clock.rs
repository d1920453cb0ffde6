//! The source of the current time.

use std::{fmt, sync::Arc};

use jiff::Timestamp;

/// A source of the current time: the system clock, or another one for tests.
///
/// ```
/// use graphrun_engine::Clock;
/// use jiff::Timestamp;
///
/// let stopped = Clock::new(|| Timestamp::UNIX_EPOCH);
/// assert_eq!(stopped.now(), Timestamp::UNIX_EPOCH);
/// ```
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Creates a clock that returns the result of a function.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}
