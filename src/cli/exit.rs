//! The exit codes. Scripts rely on them; a code never changes its meaning.

use std::process::ExitCode;

use crate::event::Status;

/// The exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Exit {
    /// Success.
    Done = 0,
    /// The run failed.
    Failed = 1,
    /// Wrong usage, or the workflow is invalid.
    Usage = 2,
    /// The run waits for a person, or for a time that a provider has named.
    Paused = 3,
    /// A limit stopped the run.
    Limit = 4,
    /// A provider, credentials, the sandbox or the database cannot be used, or the result cannot be written.
    Unusable = 5,
    /// The run does not exist, or cannot be resumed.
    NotResumable = 6,
    /// Ctrl-C, or SIGINT.
    Interrupted = 130,
    /// SIGTERM, or SIGHUP: the terminal was closed.
    Terminated = 143,
}

/// The table of exit codes in `--help`.
pub(super) const TABLE: &str = "\
Exit codes:
  0    done
  1    the run failed
  2    wrong usage, or the workflow is invalid
  3    paused: waiting for a person, or for a time
  4    stopped by a limit (steps, tokens, cost, time); resumable
  5    provider, credentials, configuration or output unusable
  6    the run cannot be resumed, or does not exist
  130  interrupted by Ctrl-C; resumable
  143  terminated; resumable";

impl Exit {
    /// Returns the exit code for a run that stopped or suspended.
    pub(super) fn of(status: Status) -> Self {
        match status {
            Status::Done => Self::Done,
            // The saved status of a stopped run is `Running` only if it was not stopped properly.
            Status::Failed | Status::Running => Self::Failed,
            Status::Paused => Self::Paused,
            Status::Limit => Self::Limit,
            Status::Interrupted => Self::Interrupted,
        }
    }
}

impl Exit {
    /// Returns the worse of two exit codes, for a command that resumes several runs.
    pub(super) fn worse(self, other: Self) -> Self {
        if other.severity() > self.severity() { other } else { self }
    }

    /// Returns how urgently a person is needed: not for a run that waits, soon for one that stopped, first for one that
    /// could not even be resumed.
    fn severity(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Paused => 1,
            Self::Limit => 2,
            Self::Failed => 3,
            Self::Unusable => 4,
            Self::NotResumable => 5,
            Self::Usage => 6,
            Self::Interrupted | Self::Terminated => 7,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_table_under_its_number() {
        let codes = [
            (Exit::Done, 0),
            (Exit::Failed, 1),
            (Exit::Usage, 2),
            (Exit::Paused, 3),
            (Exit::Limit, 4),
            (Exit::Unusable, 5),
            (Exit::NotResumable, 6),
            (Exit::Interrupted, 130),
            (Exit::Terminated, 143),
        ];
        let rows: Vec<u8> = TABLE
            .lines()
            .skip(1)
            .map(|row| row.split_whitespace().next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(rows, codes.map(|(_, number)| number));
        for (exit, number) in codes {
            assert_eq!(exit as u8, number, "{exit:?}");
        }
    }

    #[test]
    fn a_run_at_rest_has_the_code_of_its_status() {
        let cases = [
            (Status::Done, 0),
            (Status::Failed, 1),
            (Status::Paused, 3),
            (Status::Limit, 4),
            (Status::Interrupted, 130),
        ];
        for (status, number) in cases {
            assert_eq!(Exit::of(status) as u8, number, "{status:?}");
        }
    }
}
