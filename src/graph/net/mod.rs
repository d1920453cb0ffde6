//! The ways of a run as an abstract net: nodes, what each leads to, what each writes.
//!
//! Everything is a small number, so that a thousand nodes with a thousand fields take a few
//! milliseconds. Who makes a net leaves out what it cannot make sense of. A net says what *may*
//! happen: every route may go any of its ways, every node with `catch` may fail, and every bound
//! may be used up once its node was visited. What is asked of it:
//!
//! - [`Meetings`]: which nodes may run in the same super-step, by pairs;
//! - [`together`]: the same, step by step, which is exact, where there are not too many;
//! - [`starving`]: which joins may wait for ever;
//! - [`Assigned`]: which fields are written when a node starts, on every way or on some.

mod again;
mod assigned;
mod bits;
mod choices;
mod ending;
mod explore;
mod meetings;
mod reach;
mod weave;

pub(crate) use self::{
    assigned::{Assigned, Gap, GapKind},
    bits::Bits,
    explore::{Astray, Starving, starving, together},
    meetings::Meetings,
    weave::{field_numbers, with_default},
};

/// The net of a graph. Nodes, joins and fields are numbers from zero on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Net {
    pub(crate) nodes: Vec<NetNode>,
    pub(crate) joins: Vec<Join>,
    /// The nodes of the first step.
    pub(crate) start: Vec<usize>,
    /// The node that a run goes to when it reaches a limit, whatever it was doing.
    pub(crate) after_limit: Option<usize>,
    /// The used workflows.
    pub(crate) scopes: Vec<Scope>,
    /// How many fields there are.
    pub(crate) fields: usize,
    /// The fields that may be written before the first step.
    pub(crate) maybe_at_start: Bits,
    /// The fields that are written before the first step in every run.
    pub(crate) surely_at_start: Bits,
}

/// One node of a net.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetNode {
    /// How a task of it may end; exactly one of these happens.
    pub(crate) outcomes: Vec<Outcome>,
    /// Its bound, if it has one.
    pub(crate) bound: Option<Bound>,
    /// The nodes whose counts it sets back.
    pub(crate) resets: Vec<usize>,
    /// What it may write.
    pub(crate) maybe: Bits,
    /// What it writes whenever it finishes.
    pub(crate) surely: Bits,
    /// What it empties before it writes.
    pub(crate) clears: Bits,
    /// What it lets go first, if anything.
    pub(crate) defers: Option<Deferral>,
}

/// What a node lets go first once the run has come to it.
#[derive(Clone, Debug)]
pub(crate) struct Deferral {
    /// It runs when none of these does.
    pub(crate) first: Bits,
    /// Of nodes that let each other go first, those of a higher rank go.
    pub(crate) rank: (usize, bool),
}

/// The nodes of a used workflow. A way that leads out of it abandons what is left to do in it,
/// unless its last nodes go.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) nodes: Bits,
    pub(crate) last: Vec<usize>,
}

/// A bound of visits, and the node that the run goes to when it is used up. With none the run, or
/// its branch, ends there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) exhausted: Arrow,
}

/// One way in which a task may end.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) ending: Ending,
    /// What is decided, each independently of the others.
    pub(crate) decisions: Vec<Decision>,
}

/// How a task ended. Only one that finished has written and cleared anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    Finished,
    /// It finished, and chose in Rust to go elsewhere than its edges lead.
    Chosen,
    /// It failed, and the failure leads somewhere.
    Caught,
    /// It was not to run.
    Skipped,
}

/// One alternative is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    pub(crate) alternatives: Vec<Alternative>,
    /// Whether this is all that is known of something decided in Rust, which may know better: the
    /// last alternative is what it was made for.
    pub(crate) is_guess: bool,
}

/// Where a run goes on, all of it at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alternative {
    pub(crate) arrows: Vec<Arrow>,
    /// The fields that are written if this is taken, because its condition says so.
    pub(crate) known: Vec<usize>,
}

/// One thing that happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Arrow {
    /// This node is reached.
    Node(usize),
    /// Tasks are sent to this node, one or more of them.
    Tasks(usize),
    /// It arrives at this join.
    Join(usize),
    /// This branch of the run is done.
    End,
    /// The run has failed.
    Fail,
}

/// A node that waits for several.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    pub(crate) node: usize,
    pub(crate) awaited: Vec<usize>,
}

impl Alternative {
    pub(crate) fn to(arrows: Vec<Arrow>) -> Self {
        Self { arrows, known: Vec::new() }
    }
}

impl Decision {
    /// No choice at all.
    pub(crate) fn always(arrows: Vec<Arrow>) -> Self {
        Self::one_of(vec![Alternative::to(arrows)])
    }

    pub(crate) fn one_of(alternatives: Vec<Alternative>) -> Self {
        Self { alternatives, is_guess: false }
    }
}

impl Ending {
    /// Whether the node has written what it writes.
    pub(crate) fn has_written(self) -> bool {
        matches!(self, Self::Finished | Self::Chosen)
    }
}

impl Outcome {
    pub(crate) fn finished(decisions: Vec<Decision>) -> Self {
        Self { ending: Ending::Finished, decisions }
    }

    pub(crate) fn caught(to: Arrow) -> Self {
        Self { ending: Ending::Caught, decisions: vec![Decision::always(vec![to])] }
    }

    pub(crate) fn alternatives(&self) -> impl Iterator<Item = &Alternative> {
        self.decisions.iter().flat_map(|it| &it.alternatives)
    }
}

impl NetNode {
    /// A node over so many fields that writes nothing and leads nowhere.
    pub(crate) fn new(fields: usize) -> Self {
        let none = Bits::none(fields);
        Self { maybe: none.clone(), surely: none.clone(), clears: none, ..Self::default() }
    }

    /// Everything it may lead to.
    pub(crate) fn arrows(&self) -> impl Iterator<Item = Arrow> {
        let alternatives = self.outcomes.iter().flat_map(Outcome::alternatives);
        alternatives.flat_map(|it| it.arrows.iter().copied())
    }
}

impl Join {
    /// The place of a node among those waited for.
    pub(crate) fn position(&self, node: usize) -> Option<usize> {
        self.awaited.iter().position(|it| *it == node)
    }
}
