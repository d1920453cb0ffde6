//! Checks whether a node's result may be saved: the limits on values, on the state and on one step.
//!
//! Everything that a run keeps passes through here before it is recorded. A refused value is a failure of its
//! node, which can be caught or retried; refused by the database, the run could not continue.

use graphrun_core::{
    graph::{ErrorKind, Failure, Question, Transition},
    state::{Update, measure},
};
use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use serde_json::Value;

use super::Machine;
impl Machine {
    /// Checks the size of a task's updates and dispatches, and returns it in bytes.
    ///
    /// The results of a step are kept until its commit, so all of them together have a limit as well.
    pub(super) fn size_of_result(
        &self,
        update: &Update,
        transitions: &[Transition],
    ) -> Result<u64, Failure> {
        let mut size: u64 = update.size();
        let mut items: u64 = 0;
        for transition in transitions {
            let Transition::Dispatch(dispatch) = transition else { continue };
            items += 1;
            DataLimit::MapItems.check(items).map_err(|it| refused("the list of items", &it))?;
            let what = || format!("item {items} for `{}`", dispatch.node);
            size += measure(&dispatch.input).map_err(|it| refused(&what(), &it))?;
        }
        let of_step = self.written.saturating_add(size);
        DataLimit::StateMemory
            .check(of_step)
            .map_err(|it| refused("the updates and dispatches of this step so far", &it))?;
        Ok(size)
    }
}

/// Checks a question to a person.
pub(super) fn check_question(question: &Question) -> Result<(), Failure> {
    let Question { key, prompt, schema, show, .. } = question;
    let parts =
        [("the prompt", &Value::from(prompt.as_str())), ("`show`", show), ("the schema", schema)];
    for (part, value) in parts {
        measure(value).map_err(|it| refused(&format!("{part} of the question `{key}`"), &it))?;
    }
    Ok(())
}

fn refused(what: &str, reached: &DataLimitReached) -> Failure {
    Failure::new(ErrorKind::Other, format!("{what} is {reached}"))
}
