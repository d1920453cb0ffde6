//! What routes and conditions look at: what decides where a run goes is told apart here from what
//! only passes through it.

use crate::id::{ChannelName, NodeName};

/// What a route or a condition looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sights {
    /// The parts of the state.
    pub fields: Vec<Sight>,
    /// The nodes whose visits it counts.
    pub visits: Vec<NodeName>,
    /// Whether it looks at the item that was dispatched to its node.
    pub has_item: bool,
    /// The whole numbers that this item, or a part of it, may be compared with.
    pub item_numbers: Vec<i64>,
    /// The texts that it may be compared with.
    pub item_texts: Vec<String>,
}

/// A part of the state that a route or a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sight {
    /// The field.
    pub channel: ChannelName,
    /// The way into it, such as `verdict`; empty for the field itself.
    pub path: Vec<String>,
    /// Whether all below may matter as well: it is looked at by code, or is a list.
    pub is_whole: bool,
    /// Whether only its being there matters, and not its value.
    pub is_presence: bool,
    /// The whole numbers that it may be compared with.
    pub numbers: Vec<i64>,
    /// The texts that it may be compared with.
    pub texts: Vec<String>,
}

impl Sights {
    /// Everything that something else looks at as well.
    pub(crate) fn extend(&mut self, other: Self) {
        self.fields.extend(other.fields);
        self.visits.extend(other.visits);
        self.has_item |= other.has_item;
        self.item_numbers.extend(other.item_numbers);
        self.item_texts.extend(other.item_texts);
    }
}

impl Sight {
    /// All of a field, of which nothing more is known.
    pub fn whole(channel: ChannelName) -> Self {
        Self {
            channel,
            path: Vec::new(),
            is_whole: true,
            is_presence: false,
            numbers: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Whether the value at a path of a channel makes a difference to it.
    pub fn is_below(&self, channel: &ChannelName, path: &[String]) -> bool {
        !self.is_presence
            && self.channel == *channel
            && (self.path.starts_with(path) || self.is_whole && path.starts_with(&self.path))
    }
}
