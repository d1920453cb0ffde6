//! The flow model of a graph: an abstract graph of nodes, their targets and their writes.
//!
//! All things are small numbers, so that a thousand nodes with a thousand fields take a few
//! milliseconds. The code that builds a model leaves out unknown names. The model describes what
//! *may* happen: a route may choose each of its targets, a node with `catch` may fail, and a bound
//! may be used up once its node was visited. These analyses use it:
//!
//! - [`Concurrency`]: which nodes may run concurrently (in the same super-step), by pairs;
//! - [`together`]: the same by exploring all steps, which is exact; only for graphs with few
//!   situations;
//! - [`starving`]: which joins may wait forever;
//! - [`Assigned`]: which fields are written when a node starts, on every way or on some way.

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
    meetings::Concurrency,
    weave::{field_numbers, with_default},
};

/// The flow model of a graph. Nodes, joins and fields are numbers that start at zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowModel {
    pub(crate) nodes: Vec<FlowNode>,
    pub(crate) joins: Vec<Join>,
    /// The nodes of the first step.
    pub(crate) start: Vec<usize>,
    /// The node where the run continues at any time when it reaches a limit.
    pub(crate) after_limit: Option<usize>,
    /// The used workflows.
    pub(crate) scopes: Vec<Scope>,
    /// The number of fields.
    pub(crate) fields: usize,
    /// The fields that may be written before the first step.
    pub(crate) maybe_at_start: Bits,
    /// The fields that are written before the first step in every run.
    pub(crate) surely_at_start: Bits,
}

/// One node of the flow model.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowNode {
    /// The ways in which a task of it may end; exactly one happens.
    pub(crate) outcomes: Vec<Outcome>,
    /// The bound, if the node has one.
    pub(crate) bound: Option<Bound>,
    /// The nodes whose counts it resets.
    pub(crate) resets: Vec<usize>,
    /// The fields that it may write (may-assign).
    pub(crate) maybe: Bits,
    /// The fields that it writes whenever it finishes (must-assign).
    pub(crate) surely: Bits,
    /// The fields that it clears before it writes.
    pub(crate) clears: Bits,
    /// The nodes that run before it, if it waits for others.
    pub(crate) defers: Option<Deferral>,
}

/// The nodes for which a deferred node waits after the run has reached it.
#[derive(Clone, Debug)]
pub(crate) struct Deferral {
    /// The node runs when none of these runs.
    pub(crate) first: Bits,
    /// Of nodes that wait for each other, those with the higher rank run first.
    pub(crate) rank: (usize, bool),
}

/// The nodes of a used workflow. A transition out of it drops the remaining tasks in it, unless it
/// leaves from one of the last nodes.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) nodes: Bits,
    pub(crate) last: Vec<usize>,
}

/// A bound of visits, and its target once it is used up. Without a target the run, or this branch
/// of it, ends there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) exhausted: Arrow,
}

/// One way in which a task may end.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) ending: Ending,
    /// The decisions, each independent of the others.
    pub(crate) decisions: Vec<Decision>,
}

/// How a task ended. Only a finished task has written and cleared fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    Finished,
    /// It finished, and its code chose other targets than its edges.
    Chosen,
    /// It failed, and a `catch` leads on.
    Caught,
    /// Its condition was false.
    Skipped,
}

/// A decision: one of the alternatives is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    pub(crate) alternatives: Vec<Alternative>,
    /// Whether Rust code decides and the model only guesses; the code may be better. The last
    /// alternative is then the intended one.
    pub(crate) is_guess: bool,
}

/// The targets of one alternative, all at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alternative {
    pub(crate) arrows: Vec<Arrow>,
    /// The fields that are written if this alternative is taken, because its condition implies it.
    pub(crate) known: Vec<usize>,
}

/// One transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Arrow {
    /// To this node.
    Node(usize),
    /// One or more tasks are dispatched to this node.
    Tasks(usize),
    /// The node arrives at this join.
    Join(usize),
    /// This branch of the run ends.
    End,
    /// The run fails.
    Fail,
}

/// A join: a node that waits for several.
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
    /// Returns a decision without a choice.
    pub(crate) fn always(arrows: Vec<Arrow>) -> Self {
        Self::one_of(vec![Alternative::to(arrows)])
    }

    pub(crate) fn one_of(alternatives: Vec<Alternative>) -> Self {
        Self { alternatives, is_guess: false }
    }
}

impl Ending {
    /// Returns whether the node has made its writes.
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

impl FlowNode {
    /// Returns a node that writes none of the fields and leads nowhere.
    pub(crate) fn new(fields: usize) -> Self {
        let none = Bits::none(fields);
        Self { maybe: none.clone(), surely: none.clone(), clears: none, ..Self::default() }
    }

    /// Returns all arrows of the node.
    pub(crate) fn arrows(&self) -> impl Iterator<Item = Arrow> {
        let alternatives = self.outcomes.iter().flat_map(Outcome::alternatives);
        alternatives.flat_map(|it| it.arrows.iter().copied())
    }
}

impl Join {
    /// Returns the position of a node among those that the join awaits.
    pub(crate) fn position(&self, node: usize) -> Option<usize> {
        self.awaited.iter().position(|it| *it == node)
    }
}
