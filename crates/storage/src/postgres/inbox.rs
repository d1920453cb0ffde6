//! The inbox of a run.

use async_trait::async_trait;
use graphrun_core::id::RunId;
use graphrun_engine::checkpoint::{InboxMessage, Message};

use super::{
    fault::Fault,
    run::{Run, StoredRun, broken, number, signed},
    session::{Mode, Session, Work, get},
};
use crate::journal::checksum::of_message;

/// Adds a message, unless it is there.
pub(super) struct Post {
    pub(super) run: RunId,
    pub(super) message: Message,
}

/// Reads the messages after a number.
pub(super) struct Inbox {
    pub(super) run: RunId,
    pub(super) after: u64,
}

#[async_trait]
impl Work for Post {
    type Output = u64;

    async fn attempt(&self, session: &Session) -> Result<u64, Fault> {
        let Self { run, message } = self;
        let key = Run::lock(session, run).await?.run.key;
        let sql = "SELECT number FROM inbox WHERE run = $1 AND id = $2";
        if let Some(row) = session.first(sql, &[&key, &message.id]).await? {
            return number(run, &row, "number");
        }
        let json = serde_json::to_string(message).map_err(Fault::Unwritable)?;
        let sum = of_message(run.as_str(), &json);
        let sql = "INSERT INTO inbox (run, id, message, checksum) VALUES ($1, $2, $3, $4)
                   RETURNING number";
        let row = session.first(sql, &[&key, &message.id, &json, &sum.as_slice()]).await?;
        let row = row.ok_or_else(|| broken(run, "a message", "it is missing"))?;
        number(run, &row, "number")
    }
}

#[async_trait]
impl Work for Inbox {
    type Output = Vec<InboxMessage>;

    const MODE: Mode = Mode::Read;

    async fn attempt(&self, session: &Session) -> Result<Vec<InboxMessage>, Fault> {
        let run = StoredRun::by_id(session, &self.run).await?.run;
        let sql = "SELECT number, message, checksum FROM inbox
                   WHERE run = $1 AND number > $2 ORDER BY number";
        let rows = session.query(sql, &[&run.key, &signed(self.after)?]).await?;
        let read = |row: &tokio_postgres::Row| {
            let number = number(&run.id, row, "number")?;
            let json: &str = get(row, "message")?;
            let what = format!("message {number}");
            if of_message(run.id.as_str(), json) != get::<&[u8]>(row, "checksum")? {
                return Err(broken(&run.id, &what, "its checksum does not match"));
            }
            let message = serde_json::from_str(json);
            let message = message.map_err(|error| broken(&run.id, &what, error))?;
            Ok(InboxMessage { number, message })
        };
        rows.iter().map(read).collect()
    }
}
