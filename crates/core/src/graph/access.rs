//! Access sets of routes and conditions: the parts of the state that affect a decision, as opposed
//! to those that only pass through.

use std::cmp::Ordering;

use crate::id::{ChannelName, NodeName};

/// The access set of a route or a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSet {
    /// The parts of the state.
    pub fields: Vec<Access>,
    /// The nodes whose visit counts it reads.
    pub visits: Vec<NodeName>,
    /// The paths that it reads within the item that was dispatched to its node; an empty path is the whole item.
    pub item_paths: Vec<Vec<String>>,
    /// The integers that this item, or a part of it, may be compared with.
    pub item_numbers: Vec<i64>,
    /// The numbers with a fraction that it may be compared with.
    pub item_fractions: Vec<Fraction>,
    /// The strings that it may be compared with.
    pub item_texts: Vec<String>,
    /// Whether the decision may depend on more than the presence of values and on comparisons with these constants.
    pub is_opaque: bool,
    /// Whether some values may give no result: it divides.
    pub may_fail: bool,
    /// Whether it reads facts of the run that follow from no state: its id, the time, usage, limits, and errors.
    pub reads_facts: bool,
}

/// A part of the state that a route or a condition reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// The field.
    pub channel: ChannelName,
    /// The path within the field, such as `verdict`; empty for the field itself.
    pub path: Vec<String>,
    /// Whether all values below may matter as well: code reads the part, or it is a list.
    pub is_whole: bool,
    /// The paths within the items of a whole list that matter; `None` if all do.
    pub item_parts: Option<Vec<Vec<String>>>,
    /// Whether only its presence matters, and not its value.
    pub is_presence: bool,
    /// The integers that it may be compared with.
    pub numbers: Vec<i64>,
    /// The numbers with a fraction that it may be compared with.
    pub fractions: Vec<Fraction>,
    /// The strings that it may be compared with.
    pub texts: Vec<String>,
}

/// A number with a fraction. Such numbers are ordered as [`f64::total_cmp`] does.
#[derive(Clone, Copy, Debug)]
pub struct Fraction(pub f64);

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fraction {}

impl AccessSet {
    /// Adds another access set.
    pub fn extend(&mut self, other: Self) {
        self.fields.extend(other.fields);
        self.visits.extend(other.visits);
        self.item_paths.extend(other.item_paths);
        self.item_numbers.extend(other.item_numbers);
        self.item_fractions.extend(other.item_fractions);
        self.item_texts.extend(other.item_texts);
        self.is_opaque |= other.is_opaque;
        self.may_fail |= other.may_fail;
        self.reads_facts |= other.reads_facts;
    }
}

impl Access {
    /// Returns the access to a whole field, for cases without further information.
    pub fn whole(channel: ChannelName) -> Self {
        Self {
            channel,
            path: Vec::new(),
            is_whole: true,
            item_parts: None,
            is_presence: false,
            numbers: Vec::new(),
            fractions: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Returns whether the value at a path of a channel may affect the decision.
    pub fn is_below(&self, channel: &ChannelName, path: &[String]) -> bool {
        !self.is_presence
            && self.channel == *channel
            && (self.path.starts_with(path) || self.is_whole && self.reads_inside(path))
    }

    /// Returns whether a value at or below the path of a whole value matters.
    fn reads_inside(&self, path: &[String]) -> bool {
        let Some(inside) = path.strip_prefix(self.path.as_slice()) else { return false };
        inside.is_empty()
            || self.item_parts.as_ref().is_none_or(|parts| {
                parts.iter().any(|it| it.starts_with(inside) || inside.starts_with(it))
            })
    }
}
