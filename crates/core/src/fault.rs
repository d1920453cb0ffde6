//! Injected faults: named failure points at which a process dies, fails, panics or waits when a
//! test requests it.
//!
//! Without the feature `failpoints` a point has no effect, and no fault can be planned.

use thiserror::Error;

#[cfg(feature = "failpoints")]
pub use self::plan::{PlanError, plan};

/// A failure point in the life of a run or of its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A new run is written but not committed.
    AcceptBeforeCommit,
    /// A new run is durable, but not yet reported.
    AcceptAfterCommit,
    /// A lease was acquired, but the run is not loaded yet.
    AcquireAfter,
    /// An attempt is about to run its node.
    TaskBeforeRun,
    /// A node has finished its work, but the result is not reported yet.
    TaskAfterRun,
    /// The record of a task is written but not committed.
    TaskInTransaction,
    /// The record of a task is durable, but has had no effect yet.
    TaskAfterCommit,
    /// A step is written but not committed.
    BarrierInTransaction,
    /// A step is durable, and the next one has not started.
    BarrierAfterCommit,
    /// A durable event is about to be published.
    EventPublish,
    /// An answer is written but not committed.
    ApprovalInTransaction,
    /// An answer is durable, but has had no effect yet.
    ApprovalAfterCommit,
    /// A lease is about to be renewed.
    LeaseRenew,
    /// A stop was requested, and the driver is about to wait for running nodes.
    ShutdownDrain,
    /// A new database is an empty file under another name.
    CreateBegun,
    /// A new database is complete, under another name.
    CreateFilled,
    /// A new database has its name, and the other name as well.
    CreateNamed,
    /// Entries of memory are written but not committed.
    MemoryInTransaction,
    /// Entries of memory are durable, but the node that wrote them is not told yet.
    MemoryAfterCommit,
}

/// The error of a failure point.
#[derive(Debug, Error)]
#[error("a fault was injected at `{0}`")]
pub struct InjectedFault(&'static str);

impl Point {
    /// All points in the life of a run.
    pub const ALL: [Self; 14] = [
        Self::AcceptBeforeCommit,
        Self::AcceptAfterCommit,
        Self::AcquireAfter,
        Self::TaskBeforeRun,
        Self::TaskAfterRun,
        Self::TaskInTransaction,
        Self::TaskAfterCommit,
        Self::BarrierInTransaction,
        Self::BarrierAfterCommit,
        Self::EventPublish,
        Self::ApprovalInTransaction,
        Self::ApprovalAfterCommit,
        Self::LeaseRenew,
        Self::ShutdownDrain,
    ];

    /// Every point in the opening of a database.
    pub const OPENING: [Self; 3] = [Self::CreateBegun, Self::CreateFilled, Self::CreateNamed];

    /// Every point in a write to the memory across runs.
    pub const REMEMBERING: [Self; 2] = [Self::MemoryInTransaction, Self::MemoryAfterCommit];

    /// Returns its name in a plan.
    pub fn name(self) -> &'static str {
        match self {
            Self::AcceptBeforeCommit => "accept.before_commit",
            Self::AcceptAfterCommit => "accept.after_commit",
            Self::AcquireAfter => "acquire.after",
            Self::TaskBeforeRun => "task.before_run",
            Self::TaskAfterRun => "task.after_run",
            Self::TaskInTransaction => "task.in_tx",
            Self::TaskAfterCommit => "task.after_commit",
            Self::BarrierInTransaction => "barrier.in_tx",
            Self::BarrierAfterCommit => "barrier.after_commit",
            Self::EventPublish => "event.publish",
            Self::ApprovalInTransaction => "approval.in_tx",
            Self::ApprovalAfterCommit => "approval.after_commit",
            Self::LeaseRenew => "lease.renew",
            Self::ShutdownDrain => "shutdown.drain",
            Self::CreateBegun => "create.begun",
            Self::CreateFilled => "create.filled",
            Self::CreateNamed => "create.named",
            Self::MemoryInTransaction => "memory.in_tx",
            Self::MemoryAfterCommit => "memory.after_commit",
        }
    }
}

/// Performs the planned action of a point, if there is one.
#[cfg(feature = "failpoints")]
pub fn hit(point: Point) -> Result<(), InjectedFault> {
    plan::hit(point)
}

/// Does nothing, because faults cannot be planned.
#[cfg(not(feature = "failpoints"))]
pub fn hit(_: Point) -> Result<(), InjectedFault> {
    Ok(())
}

/// Performs the planned actions of several points, one after the other.
pub fn hit_each(points: impl IntoIterator<Item = Point>) -> Result<(), InjectedFault> {
    points.into_iter().try_for_each(hit)
}

#[cfg(feature = "failpoints")]
mod plan {
    use std::{
        sync::{
            OnceLock,
            atomic::{AtomicU32, Ordering},
        },
        thread,
        time::Duration,
    };

    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };
    use thiserror::Error;

    use super::{InjectedFault, Point};

    /// The reason why a plan is invalid.
    #[derive(Debug, Error)]
    pub enum PlanError {
        /// A part of it cannot be parsed.
        #[error(
            "`{0}` is not a fault; write POINT=ACTION or POINT=ACTION@NTH, with `abort`, `panic`, `err`, \
             `pause` or `sleep(MS)`"
        )]
        Unreadable(String),
        /// A part of it names an unknown point.
        #[error("there is no point `{0}`")]
        UnknownPoint(String),
        /// This process already has a plan.
        #[error("this process has a plan already")]
        Planned,
    }

    static PLAN: OnceLock<Vec<Fault>> = OnceLock::new();

    struct Fault {
        point: Point,
        action: Action,
        /// The number of the hit that triggers it; `None` means every hit.
        nth: Option<u32>,
        hits: AtomicU32,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Action {
        /// The process is killed, as with `kill -9`.
        Abort,
        Panic,
        Fail,
        /// The thread waits for this duration.
        Sleep(Duration),
        /// The thread waits forever.
        Pause,
    }

    /// Plans faults for this process, such as `task.in_tx=abort@3,lease.renew=err`.
    ///
    /// # Errors
    ///
    /// Fails if the text cannot be parsed, or if the process already has a plan.
    pub fn plan(text: &str) -> Result<(), PlanError> {
        let faults = text.split(',').map(Fault::parse).collect::<Result<Vec<_>, _>>()?;
        PLAN.set(faults).map_err(|_| PlanError::Planned)
    }

    pub(super) fn hit(point: Point) -> Result<(), InjectedFault> {
        for fault in PLAN.get().into_iter().flatten().filter(|it| it.point == point) {
            let hits = fault.hits.fetch_add(1, Ordering::SeqCst) + 1;
            if fault.nth.is_none_or(|nth| nth == hits) {
                fault.action.perform(point)?;
            }
        }
        Ok(())
    }

    impl Fault {
        fn parse(text: &str) -> Result<Self, PlanError> {
            let unreadable = || PlanError::Unreadable(text.to_owned());
            let (point, action) = text.split_once('=').ok_or_else(unreadable)?;
            let (action, nth) = match action.split_once('@') {
                Some((action, nth)) => (action, Some(nth.parse().map_err(|_| unreadable())?)),
                None => (action, None),
            };
            let point = Point::ALL
                .into_iter()
                .chain(Point::OPENING)
                .chain(Point::REMEMBERING)
                .find(|it| it.name() == point)
                .ok_or_else(|| PlanError::UnknownPoint(point.to_owned()))?;
            let action = Action::parse(action).ok_or_else(unreadable)?;
            Ok(Self { point, action, nth, hits: AtomicU32::new(0) })
        }
    }

    impl Action {
        fn parse(text: &str) -> Option<Self> {
            Some(match text {
                "abort" => Self::Abort,
                "panic" => Self::Panic,
                "err" => Self::Fail,
                "pause" => Self::Pause,
                _ => {
                    let ms = text.strip_prefix("sleep(")?.strip_suffix(')')?;
                    Self::Sleep(Duration::from_millis(ms.parse().ok()?))
                }
            })
        }

        fn perform(self, point: Point) -> Result<(), InjectedFault> {
            match self {
                Self::Abort => {
                    // A successful signal ends the process before `kill` returns; an error needs no
                    // handling.
                    let _ = kill(Pid::this(), Signal::SIGKILL);
                    Ok(())
                }
                Self::Panic => panic!("a fault was injected at `{}`", point.name()),
                Self::Fail => Err(InjectedFault(point.name())),
                Self::Sleep(length) => {
                    thread::sleep(length);
                    Ok(())
                }
                Self::Pause => loop {
                    thread::park();
                },
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_plan_is_read_or_refused_with_the_part_that_is_wrong() {
            for point in Point::ALL.into_iter().chain(Point::OPENING).chain(Point::REMEMBERING) {
                let fault = Fault::parse(&format!("{}=sleep(5)@3", point.name())).unwrap();
                let sleep = Action::Sleep(Duration::from_millis(5));
                assert_eq!((fault.point, fault.action, fault.nth), (point, sleep, Some(3)));
            }
            assert_eq!(Fault::parse("lease.renew=err").unwrap().nth, None);
            for wrong in ["task.in_tx", "task.in_tx=die", "task.in_tx=abort@x", "here=abort"] {
                let error = Fault::parse(wrong).err().unwrap().to_string();
                let part = wrong.strip_suffix("=abort").unwrap_or(wrong);
                assert!(error.contains(&format!("`{part}`")), "{error}");
            }
        }
    }
}
