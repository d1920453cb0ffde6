//! Parts of a node's work that run once, even if the process dies.

use graphrun_guard::data_limit::DataLimitReached;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::oneshot;

use super::{NodeContext, NodeError, TIMER_MEMO};
use crate::{
    event::Usage,
    state::{measure, measure_entry, to_json},
};

/// A result that the driver has yet to save.
#[derive(Debug)]
pub struct Memo {
    /// The name that the node gave it.
    pub name: String,
    /// The value.
    pub value: Value,
    /// The time of the attempt so far, in milliseconds.
    pub ms: u64,
    /// The usage of the attempt so far.
    pub usage: Usage,
    /// Signals that the result is durable.
    pub saved: oneshot::Sender<()>,
}

/// The begin of the names of memos that hold the journal of a nested run. Unlike others, they survive the failure of
/// their task: a retry continues the nested run.
pub const NESTED_MEMO: &str = "nested run ";

/// The begin of the names of memos that hold a [grant](NodeContext::grant): what a person has allowed for the rest of
/// the run. Unlike others, they are for all tasks of the run.
pub const GRANT_MEMO: &str = "grant ";

/// The begins of names that a node cannot give to a memo.
const RESERVED: [&str; 3] = [NESTED_MEMO, GRANT_MEMO, TIMER_MEMO];

impl NodeContext {
    /// Runs a part of the work, or returns its saved result. The result is saved with the run
    /// before this method returns. When the task runs again after a crash, a failed attempt or a
    /// question, the result is found by its name. Use it for work that is expensive (a paid
    /// request) or that must not happen twice. A part that was in progress when the process died
    /// starts again.
    ///
    /// A name stands for one part of a task. The parts of a task may run in any order, or
    /// concurrently. Once a task has failed for good, `retry` runs all of its parts again.
    ///
    /// # Errors
    ///
    /// Returns the error of the part; its result is not saved then. Fails if the result is not
    /// JSON, if the saved value does not fit `T`, or if two parts have one name.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, the result may or may not be saved.
    ///
    /// ```
    /// use graphrun_core::graph::{NodeContext, NodeError};
    ///
    /// async fn order(book: &str) -> Result<u32, NodeError> {
    /// #   let _ = book;
    ///     Ok(17)                                  // asks a service for an order number, and pays
    /// }
    ///
    /// async fn buy(ctx: &NodeContext) -> Result<u32, NodeError> {
    ///     let number = ctx.memo("order", order("Walden")).await?;
    ///     // The book is ordered once, even if a later part fails.
    ///     Ok(number)
    /// }
    /// ```
    #[doc(alias = "task")]
    pub async fn memo<T, F>(&self, name: &str, work: F) -> Result<T, NodeError>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, NodeError>>,
    {
        if let Some(known) = self.recall_memo(name)? {
            return Ok(known);
        }
        let result = work.await?;
        self.save_memo(name, &result).await?;
        Ok(result)
    }

    /// Returns the result saved under a name, if there is one.
    pub fn recall_memo<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, NodeError> {
        if let Some(begin) = RESERVED.into_iter().find(|it| name.starts_with(it)) {
            let message = format!("names of memos that begin with `{begin}` are reserved");
            return Err(NodeError::permanent(message));
        }
        // An attempt can use each name once.
        if !self.reporter.recalls_first(name) {
            let message = format!("two memos of this node are called `{name}`");
            return Err(NodeError::permanent(message));
        }
        let known = self.memos.get(name);
        known.map(|it| T::deserialize(it).map_err(NodeError::from)).transpose()
    }

    /// Saves a result under a name; once this returns, the result is durable. A result beyond a limit is a
    /// failure of the node.
    pub async fn save_memo<T: Serialize>(&self, name: &str, result: &T) -> Result<(), NodeError> {
        self.save_value(name, to_json(result)?).await
    }

    /// Saves an entry of the journal of a nested run.
    pub async fn save_nested(&self, name: &str, entry: Value) -> Result<(), NodeError> {
        self.save_measured(&format!("{NESTED_MEMO}{name}"), entry, measure_entry).await
    }

    /// Remembers for the rest of the run what a person has allowed, under a name; once this returns, it is durable.
    ///
    /// Tasks that start later see it, in this process and in others, also those of nested runs. A fork of the run does
    /// not have it. The name should contain a hash of the allowed thing, so that a changed workflow does not inherit it.
    ///
    /// # Errors
    ///
    /// Fails when the run ends before the grant is saved.
    pub async fn grant(&self, name: &str) -> Result<(), NodeError> {
        self.reporter.add_grant(name);
        self.save_value(&format!("{GRANT_MEMO}{name}"), Value::Bool(true)).await
    }

    /// Returns whether a person has allowed this for the rest of the run; see [`NodeContext::grant`].
    pub fn is_granted(&self, name: &str) -> bool {
        self.memos.get(&format!("{GRANT_MEMO}{name}")).is_some() || self.reporter.has_grant(name)
    }

    async fn save_value(&self, name: &str, value: Value) -> Result<(), NodeError> {
        self.save_measured(name, value, measure).await
    }

    async fn save_measured(
        &self,
        name: &str,
        value: Value,
        measure: fn(&Value) -> Result<u64, DataLimitReached>,
    ) -> Result<(), NodeError> {
        measure(&value)
            .map_err(|reached| NodeError::permanent(format!("the memo `{name}` is {reached}")))?;
        self.reporter.note(name, value).await
    }
}
