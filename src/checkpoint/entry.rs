//! What is saved at a time.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use super::{Commit, Migration, Outcome, TaskRecord};
use crate::{
    event::{Stamped, Status},
    fault::Point,
    id::RunId,
};

/// An entry of the journal of a run: what becomes true at once, or not at all.
///
/// Its parts follow each other in this order. A step that one task completes is one entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// What became of tasks of the step that is not committed yet.
    pub records: Vec<TaskRecord>,
    /// The step that these and the records before complete.
    pub commit: Option<Commit>,
    /// How the run was carried over to another workflow, if that is what the step is. It has no
    /// records before it.
    pub migration: Option<Box<Migration>>,
    /// How the run stands from now on, if that changes.
    pub standing: Option<Standing>,
    /// What is told of it.
    pub events: Vec<Stamped>,
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The word for it.
    pub status: Status,
    /// Why, if it is not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An entry in its place in the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// Its number, from one, without gaps.
    pub number: u64,
    /// What proves it, and all entries before it.
    pub link: Link,
    /// What was saved.
    pub entry: Entry,
}

/// The hash of an entry and of the link before it: equal links are proof of equal histories.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link(pub [u8; 32]);

/// A text is not the link of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a link is 64 hexadecimal digits")]
pub struct NoLink;

impl Entry {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.commit.is_none()
            && self.migration.is_none()
            && self.standing.is_none()
            && self.events.is_empty()
    }

    /// The records of the step that is open after it, if it commits one.
    pub fn carried(&self) -> &[TaskRecord] {
        self.migration.as_ref().map_or(&[], |it| &it.records)
    }

    /// The points within the transaction that adds it.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn points_in_transaction(&self) -> impl Iterator<Item = Point> {
        self.points([
            Point::ApprovalInTransaction,
            Point::TaskInTransaction,
            Point::BarrierInTransaction,
        ])
    }

    /// The points once it is durable.
    pub(crate) fn points_after_commit(&self) -> impl Iterator<Item = Point> {
        self.points([Point::ApprovalAfterCommit, Point::TaskAfterCommit, Point::BarrierAfterCommit])
    }

    fn points(&self, [approval, task, barrier]: [Point; 3]) -> impl Iterator<Item = Point> {
        let is_answer = |it: &TaskRecord| matches!(it.outcome, Outcome::Answered { .. });
        let approves = self.records.iter().any(is_answer);
        let tasks = !self.records.iter().all(is_answer);
        let points = [(approval, approves), (task, tasks), (barrier, self.commit.is_some())];
        points.into_iter().filter_map(|(point, is_hit)| is_hit.then_some(point))
    }

    /// What saving it is called, such as "save step 3 of run `R1`".
    pub fn action(&self, run: &RunId) -> String {
        match (&self.commit, self.records.as_slice(), &self.standing) {
            (Some(commit), ..) => format!("save step {} of run `{run}`", commit.position.step),
            (None, [record], _) => {
                format!("save the outcome of task {} of run `{run}`", record.task)
            }
            (None, [first, .., last], _) => {
                format!("save the outcomes of tasks {} to {} of run `{run}`", first.task, last.task)
            }
            (None, [], Some(standing)) => {
                format!("save that run `{run}` is {}", standing.status.as_str())
            }
            (None, [], None) => format!("save the events of run `{run}`"),
        }
    }
}

impl From<TaskRecord> for Entry {
    fn from(record: TaskRecord) -> Self {
        Self { records: vec![record], ..Self::default() }
    }
}

impl From<Commit> for Entry {
    fn from(commit: Commit) -> Self {
        Self { commit: Some(commit), ..Self::default() }
    }
}

impl From<Standing> for Entry {
    fn from(standing: Standing) -> Self {
        Self { standing: Some(standing), ..Self::default() }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|it| write!(f, "{it:02x}"))
    }
}

impl FromStr for Link {
    type Err = NoLink;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(NoLink);
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| NoLink)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Link {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_as_it_is_written_and_nothing_else_is() {
        let link = Link(std::array::from_fn(|at| u8::try_from(at * 7).unwrap()));
        assert_eq!(link.to_string().parse(), Ok(link));
        for wrong in ["", "00", &"g".repeat(64), &"+1".repeat(32), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<Link>(), Err(NoLink), "{wrong}");
        }
    }
}
