//! The writes of a run: its beginning, its entries, and the renewals of its lease.

use std::time::Duration;

use graphrun_core::{
    fault::{self, Point, hit_each},
    id::RunId,
};
use graphrun_engine::{
    checkpoint::{Entry, LeaseRequest, LeaseToken, RunInfo},
    storage::rules::{Head, beginning, check_fence, stops_run},
};
use rusqlite::Connection;

use super::{
    fault::Fault,
    run::{Run, now},
    tools::Tools,
};
use crate::{
    head::{EncodedEntry, NextEntry, StoredHead},
    journal::{Reader, Row, encode, info_after},
    lease::Lease,
};

/// A write to save.
#[derive(Clone, Copy, Debug)]
pub(super) enum Write<'a> {
    /// A run that is not saved yet.
    Run(NewRun<'a>),
    /// An entry, by the owner of its run.
    Entry(&'a LeaseToken, &'a Entry),
    /// The renewal of a lease for a duration.
    Renewal(&'a LeaseToken, Duration),
}

/// A run that is not saved yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRun<'a> {
    pub(super) info: &'a RunInfo,
    /// The stored form of the info.
    pub(super) json: &'a [u8],
    pub(super) request: &'a LeaseRequest,
    pub(super) first: &'a Entry,
}

/// A write that is checked and encoded, but not written yet.
pub(super) enum EncodedWrite<'a> {
    Run { new: NewRun<'a>, head: Head, row: Row },
    Entry { entry: &'a Entry, run: Run, lease: Lease, encoded: EncodedEntry },
    Renewal { run: Run, stored: StoredHead },
}

impl<'a> Write<'a> {
    /// Returns the name of saving it for messages.
    pub(super) fn action(self) -> String {
        match self {
            Self::Run(new) => format!("create run `{}`", new.info.id),
            Self::Entry(token, entry) => entry.action(&token.run),
            Self::Renewal(token, _) => format!("renew the lease of run `{}`", token.run),
        }
    }

    /// Returns its run.
    pub(super) fn run(&self) -> &RunId {
        match self {
            Self::Run(new) => &new.info.id,
            Self::Entry(token, _) | Self::Renewal(token, _) => &token.run,
        }
    }

    /// Returns whether it stops or suspends its run.
    pub(super) fn stops_run(self) -> bool {
        matches!(self, Self::Entry(_, entry) if stops_run(entry))
    }

    /// Returns whether it may use the reserve, so that the run is not lost.
    pub(super) fn may_use_reserve(self) -> bool {
        self.stops_run() || matches!(self, Self::Renewal(..))
    }

    /// Saves it in a transaction that saves nothing else.
    pub(super) fn save(
        self,
        database: &Connection,
        tools: &mut Tools,
    ) -> Result<LeaseToken, Fault> {
        tools.heads.begin(database)?;
        self.encode(database, tools)?.put(database, tools)
    }

    /// Checks and encodes it. This only reads, so that a refusal affects nothing else in the transaction.
    pub(super) fn encode(
        self,
        database: &Connection,
        Tools { codec, heads, open_steps }: &mut Tools,
    ) -> Result<EncodedWrite<'a>, Fault> {
        match self {
            Self::Run(new) => {
                Run::require_new(database, new.info)?;
                let head = Head::first(new.first)?;
                let id = &new.info.id;
                let before = beginning(&new.info.id, new.json);
                let open = Reader::trusted(id, Vec::new());
                let row = encode(codec, new.first, &head, before, &open)?;
                Ok(EncodedWrite::Run { new, head, row })
            }
            Self::Entry(token, entry) => {
                let (run, stored) = heads.take(database, &token.run)?;
                let next = NextEntry::new(token, &stored, entry, open_steps)?;
                let open =
                    next.needed_rows().map(|it| run.journal(database).rows(it)).transpose()?;
                let encoded = next.encode::<Fault>(open, codec)?;
                Ok(EncodedWrite::Entry { entry, run, lease: stored.lease, encoded })
            }
            Self::Renewal(token, ttl) => {
                let (run, stored) = heads.take(database, &token.run)?;
                check_fence(stored.lease.info().as_ref(), token.fence)?;
                let lease = stored.lease.renewed(now(database)?, ttl);
                Ok(EncodedWrite::Renewal { run, stored: StoredHead { lease, ..stored } })
            }
        }
    }
}

impl EncodedWrite<'_> {
    /// Writes it, and returns the lease of the run.
    pub(super) fn put(
        self,
        database: &Connection,
        Tools { heads, open_steps, .. }: &mut Tools,
    ) -> Result<LeaseToken, Fault> {
        let (run, stored) = match self {
            Self::Run { new: NewRun { info, json, request, .. }, head, row } => {
                let run = Run::insert(database, info, json)?;
                run.journal(database).insert(&row)?;
                let stored = run.begin(database, head, row.hash, request)?;
                fault::hit(Point::AcceptBeforeCommit)?;
                (run, stored)
            }
            Self::Entry { entry, run, lease, encoded } => {
                let EncodedEntry { row, head, before_open, finished } = encoded;
                run.journal(database).insert(&row)?;
                hit_each(entry.points_in_transaction())?;
                if let Some(migration) = &entry.migration {
                    let info = run.info(database)?;
                    let info = info_after(&info, migration).map_err(Fault::Unwritable)?;
                    run.put_info(database, &info)?;
                }
                run.put(database, &head, before_open, row.hash)?;
                open_steps.note(&run.id, row.hash, entry, finished);
                let mut stored = StoredHead { head, before_open, hash: row.hash, lease };
                if stops_run(entry) {
                    stored.lease = stored.lease.released();
                    run.put_lease(database, &stored.lease)?;
                }
                (run, stored)
            }
            Self::Renewal { run, stored } => {
                run.put_lease(database, &stored.lease)?;
                (run, stored)
            }
        };
        let token = LeaseToken { run: run.id.clone(), fence: stored.lease.fence };
        if stored.lease.is_held() {
            heads.note(run, stored);
        }
        Ok(token)
    }
}
