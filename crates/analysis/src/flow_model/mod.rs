//! The flow model of a graph: an abstract graph of nodes, their targets and their writes.
//!
//! All things are small numbers, so that a thousand nodes with a thousand fields take a few
//! milliseconds. For example, `write: { agent: …, writes: draft, max_visits: 3, exhausted: fail }` is a node with the
//! outcomes "finished, with `draft` written" and "failed", and a bound whose target is `fail`. The code that builds a model leaves out unknown names. The model describes what
//! *may* happen: a route may choose each of its targets, a node with `catch` may fail, and a bound
//! may be used up once its node was visited. These analyses use it:
//!
//! - [`Concurrency`]: which nodes may run concurrently (in the same super-step), by pairs;
//! - [`explore`](explore()): the same by exploring all steps, which is exact; only for graphs with few
//!   situations;
//! - [`find_starving_joins`]: which joins may wait forever; with too many situations, [`check_join_alone`] decides about one join;
//! - [`DefiniteAssignment`]: which fields are written when a node starts, on every path or on some path.

mod assigned;
mod bits;
mod build;
mod choices;
mod draft;
mod ending;
mod exclusions;
mod explore;
mod pairs;
mod projection;
mod reach;
mod revisits;
mod settled;

pub use self::{
    assigned::{AssignmentAfterVisit, DefiniteAssignment, Gap, GapKind},
    bits::Bits,
    build::field_numbers,
    draft::{Draft, DraftEdge, DraftNode},
    exclusions::Exclusions,
    explore::{
        JoinVerdict, Situations, StarvedJoin, StarvingJoins, WrongChoice, explore,
        find_starving_joins,
    },
    pairs::Concurrency,
    projection::check_join_alone,
};

/// The flow model of a graph. Nodes, joins and fields are numbers that start at zero.
#[derive(Clone, Debug, Default)]
pub struct FlowModel {
    /// The nodes, by number.
    pub nodes: Vec<FlowNode>,
    /// The joins.
    pub joins: Vec<Join>,
    /// The nodes of the first step.
    pub start: Vec<usize>,
    /// Where the run goes when it reaches a limit, at any time. Without it, the run stops there.
    pub after_limit: Option<Arrow>,
    /// The used workflows.
    pub(crate) scopes: Vec<Scope>,
    /// The number of fields.
    pub fields: usize,
    /// The fields that may be written before the first step.
    pub may_assign_at_start: Bits,
    /// The fields that are written before the first step in every run.
    pub must_assign_at_start: Bits,
}

/// One node of the flow model.
#[derive(Clone, Debug, Default)]
pub struct FlowNode {
    /// How a task of it may end; exactly one happens.
    pub outcomes: Vec<Outcome>,
    /// The bound, if the node has one.
    pub bound: Option<Bound>,
    /// The nodes whose counts it resets.
    pub resets: Vec<usize>,
    /// The fields that it may write (may-assign).
    pub may_assign: Bits,
    /// The fields that it writes whenever it finishes (must-assign).
    pub must_assign: Bits,
    /// The fields that it clears before it writes.
    pub clears: Bits,
    /// The nodes that run before it, if it waits for others.
    pub defers: Option<Deferral>,
    /// Whether all of its tasks of a step lead to one place, as those for the items of a map: the first failure decides
    /// for all of them.
    pub(crate) ends_once: bool,
}

/// The nodes for which a deferred node waits after the run has reached it.
#[derive(Clone, Debug)]
pub struct Deferral {
    /// The node runs when none of these runs.
    pub first: Bits,
    /// Of nodes that wait for each other, those with the higher rank run first.
    pub rank: (usize, bool),
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
pub struct Bound {
    /// The target after the last visit.
    pub exhausted: Arrow,
    /// Whether the node has limits, which count the usage of all visits of a run.
    pub has_limits: bool,
}

/// How a task may end, and where it leads then.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the node ends.
    pub ending: Ending,
    /// The decisions, each independent of the others.
    pub decisions: Vec<Decision>,
}

/// How a task ended. Only a finished task has written and cleared fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// With a result.
    Finished,
    /// It finished, and its code chose other targets than its edges.
    Chosen,
    /// It failed, and a `catch` leads on.
    Caught,
    /// It is a map whose node reached a limit before all items had begun, and `exhausted` leads on.
    Exhausted,
    /// Its condition was false.
    Skipped,
}

/// A decision: one of the alternatives is taken.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// One of these is taken.
    pub alternatives: Vec<Alternative>,
    /// The number of the edge whose route decides, if its choices are declared.
    pub(crate) edge: Option<usize>,
    /// Whether Rust code decides and the model only guesses; the code may be better. The last
    /// alternative is then the intended one.
    pub(crate) is_guess: bool,
}

/// The targets of one alternative, all at once.
#[derive(Clone, Debug, Default)]
pub struct Alternative {
    /// All of these are taken.
    pub arrows: Vec<Arrow>,
    /// The fields that are written if this alternative is taken, because its condition implies it.
    pub known: Vec<usize>,
}

/// One transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arrow {
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
pub struct Join {
    /// The node that waits.
    pub node: usize,
    /// The nodes that it awaits.
    pub awaited: Vec<usize>,
    /// The number of arrivals that let it run.
    pub count: usize,
}

impl Alternative {
    /// Takes these arrows, and changes no field.
    pub fn to(arrows: Vec<Arrow>) -> Self {
        Self { arrows, known: Vec::new() }
    }
}

impl Decision {
    /// Returns a decision without a choice.
    pub fn always(arrows: Vec<Arrow>) -> Self {
        Self::one_of(vec![Alternative::to(arrows)])
    }

    /// Takes one of several alternatives.
    pub fn one_of(alternatives: Vec<Alternative>) -> Self {
        Self { alternatives, edge: None, is_guess: false }
    }
}

impl Ending {
    /// Returns whether the node has made its writes.
    pub(crate) fn has_written(self) -> bool {
        matches!(self, Self::Finished | Self::Chosen)
    }
}

impl Outcome {
    /// The node ended with a result.
    pub fn finished(decisions: Vec<Decision>) -> Self {
        Self { ending: Ending::Finished, decisions }
    }

    /// The node failed, and the failure is caught.
    pub fn caught(to: Arrow) -> Self {
        Self { ending: Ending::Caught, decisions: vec![Decision::always(vec![to])] }
    }

    /// A limit was reached amid the items of a map.
    pub(crate) fn exhausted(to: Arrow) -> Self {
        Self { ending: Ending::Exhausted, decisions: vec![Decision::always(vec![to])] }
    }

    pub(crate) fn alternatives(&self) -> impl Iterator<Item = &Alternative> {
        self.decisions.iter().flat_map(|it| &it.alternatives)
    }
}

impl FlowModel {
    /// Returns the node where the run continues when it reaches a limit.
    pub(crate) fn node_after_limit(&self) -> Option<usize> {
        if let Some(Arrow::Node(node)) = self.after_limit { Some(node) } else { None }
    }

    /// Returns the fields that some of the nodes clear and may leave unwritten.
    pub(crate) fn cleared_by(&self, nodes: impl Iterator<Item = usize>) -> Bits {
        let mut all = Bits::none(self.fields);
        for node in nodes.map(|it| &self.nodes[it]).filter(|it| !it.clears.is_empty()) {
            let mut cleared = node.clears.clone();
            cleared.remove(&node.must_assign);
            all.add(&cleared);
        }
        all
    }
}

impl FlowNode {
    /// Returns a node that writes none of the fields and leads nowhere.
    pub fn new(fields: usize) -> Self {
        let none = Bits::none(fields);
        Self {
            may_assign: none.clone(),
            must_assign: none.clone(),
            clears: none,
            ..Self::default()
        }
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

    /// Returns whether it runs before all of its nodes have arrived.
    pub(crate) fn is_partial(&self) -> bool {
        self.count < self.awaited.len()
    }
}
