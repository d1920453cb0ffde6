//! Parts of the work of a node that are done once, whatever becomes of the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::oneshot;

use super::{NodeContext, NodeError};
use crate::{event::Spent, state::measure};

/// What a task has noted down of its work: results of parts, by name.
#[derive(Clone, Debug, Default)]
pub struct Memos {
    known: BTreeMap<String, Value>,
    /// The names that this attempt has used.
    used: Arc<Mutex<BTreeSet<String>>>,
}

/// A result on its way to the journal.
#[derive(Debug)]
pub(crate) struct Memo {
    pub(crate) name: String,
    pub(crate) value: Value,
    /// What the attempt had taken by then.
    pub(crate) ms: u64,
    pub(crate) spent: Spent,
    /// Told once it is durable.
    pub(crate) saved: oneshot::Sender<()>,
}

impl Memos {
    pub(crate) fn new(known: BTreeMap<String, Value>) -> Self {
        Self { known, used: Arc::default() }
    }

    /// What is known under a name. A name is used once in an attempt.
    fn take(&self, name: &str) -> Result<Option<&Value>, NodeError> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.insert(name.to_owned()) {
            Ok(self.known.get(name))
        } else {
            Err(NodeError::permanent(format!("two memos of this node are called `{name}`")))
        }
    }
}

impl NodeContext {
    /// Does a part of the work, or gives what it gave before: its result is saved with the run
    /// before this returns, and is found again by its name when the task runs again, after a
    /// crash, a failed attempt or a question. So what is dear (a request that is charged for) or
    /// must not be done twice is done once; what the part itself had begun when the process died
    /// is begun again.
    ///
    /// A name stands for one part of a task. The parts of a task may be done in any order, or side
    /// by side. Once a task has failed for good, `retry` does all of it anew.
    ///
    /// # Errors
    ///
    /// Fails as the part does, which is then not saved; when the result is no JSON, or what was
    /// saved does not fit `T`; and when two parts have one name.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may or may not have saved the result.
    ///
    /// ```
    /// use graphrun::graph::{NodeContext, NodeError};
    ///
    /// async fn order(book: &str) -> Result<u32, NodeError> {
    /// #   let _ = book;
    ///     Ok(17)                                  // asks a service for an order number, and pays
    /// }
    ///
    /// async fn buy(ctx: &NodeContext) -> Result<u32, NodeError> {
    ///     let number = ctx.memo("order", order("Walden")).await?;
    ///     // Whatever fails from here on, the book is ordered once.
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

    /// What was saved under a name, if anything was.
    pub(crate) fn recall_memo<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, NodeError> {
        let known = self.memos.take(name)?;
        known.map(|it| T::deserialize(it).map_err(NodeError::from)).transpose()
    }

    /// Saves a result under a name; once this returns it is durable. One that is beyond a limit is the failure
    /// of the node.
    pub(crate) async fn save_memo<T: Serialize>(
        &self,
        name: &str,
        result: &T,
    ) -> Result<(), NodeError> {
        let value = serde_json::to_value(result)?;
        measure(&value).map_err(|reached| {
            NodeError::permanent(format!("the interim result `{name}` is {reached}"))
        })?;
        self.reporter.note(name, value).await
    }
}
