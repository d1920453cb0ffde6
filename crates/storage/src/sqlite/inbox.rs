//! The inbox of a run.

use graphrun_engine::checkpoint::{InboxMessage, Message};
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    fault::Fault,
    payload::bytes,
    run::{Run, broken, collect},
};
use crate::journal::checksum::of_message;

impl Run {
    /// Adds a message, unless it is there.
    pub(super) fn post(&self, database: &Connection, message: &Message) -> Result<u64, Fault> {
        let sql = "SELECT number FROM inbox WHERE run = ? AND id = ?";
        let values = params![self.key, message.id];
        let before =
            database.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?;
        if let Some(number) = before {
            return Ok(number);
        }
        let json = serde_json::to_string(message).map_err(Fault::Unwritable)?;
        let sql = "INSERT INTO inbox (run, id, message, checksum) VALUES (?, ?, ?, ?)
                   RETURNING number";
        let values = params![self.key, message.id, json, of_message(self.id.as_str(), &json)];
        Ok(database.prepare_cached(sql)?.query_row(values, |row| row.get(0))?)
    }

    /// Returns the messages after a number.
    pub(super) fn inbox(
        &self,
        database: &Connection,
        after: u64,
    ) -> Result<Vec<InboxMessage>, Fault> {
        let sql = "SELECT number, message, checksum FROM inbox
                   WHERE run = ? AND number > ? ORDER BY number";
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        collect(database, sql, params![self.key, after], |row| {
            let number = row.get("number")?;
            let json: String = row.get("message")?;
            let what = format!("message {number}");
            if of_message(self.id.as_str(), &json) != bytes(row, "checksum")? {
                return Err(broken(self.id.as_str(), &what, "its checksum does not match"));
            }
            let message = serde_json::from_str(&json);
            let message = message.map_err(|error| broken(self.id.as_str(), &what, error))?;
            Ok(InboxMessage { number, message })
        })
    }
}
