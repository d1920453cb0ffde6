//! The kinds that give a workflow its structure: `map`, `use` and `parallel`, which run other nodes,
//! and `node`, which runs one that a program registers.
//!
//! They are kinds like all others, and every registry has them. They stay beside the format because
//! the names, the data flow and the edges of a workflow depend on them.

mod custom;
mod map;
mod order;
mod parallel;
mod use_workflow;

use std::sync::Arc;

pub use self::{
    custom::{Custom, CustomSettings},
    map::{Map, MapSettings},
    parallel::Parallel,
    use_workflow::{EnterNode, LeaveNode, NestedUse, Use},
};
pub(crate) use self::{
    map::{
        FAILED, ITEMS, Item, MAP, MapList, READS_OF_ITEMS, read_lists, read_of_item,
        warn_of_unread_items,
    },
    use_workflow::fields_of_use,
};
use crate::kind::Kind;

/// Returns the kinds of this module.
pub(crate) fn kinds() -> [Arc<dyn Kind>; 4] {
    [Arc::new(Map), Arc::new(Use), Arc::new(Custom), Arc::new(Parallel)]
}
