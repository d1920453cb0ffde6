//! A drawing as data for programs: nodes, edges, groups and, if there is one, the run over it.
//!
//! The form is stable: later versions may add keys, and rename none. It has a JSON Schema.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Arrow, Bound, Drawing, DrawnNode, DrawnRun, Group, Reason, Visits};
use crate::id::NodeName;

/// The version of this form.
const VERSION: u32 = 1;

/// A drawing of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DrawingDocument {
    /// The version of this form.
    pub v: u32,
    /// The name of the workflow.
    pub workflow: String,
    /// Its purpose.
    pub about: Option<String>,
    /// The nodes from the first to the last: each after those that lead to it, except in loops.
    pub nodes: Vec<NodeDocument>,
    /// All edges, in the order of their declaration.
    pub edges: Vec<EdgeDocument>,
    /// The groups of nodes; outer groups come before inner ones.
    pub groups: Vec<GroupDocument>,
    /// The run over the drawing, if one was requested.
    pub run: Option<RunDocument>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NodeDocument {
    /// Its name, which is unique.
    pub name: String,
    /// The word for its kind; null for a name that edges lead to without a node.
    pub kind: Option<String>,
    /// The agent, source or custom name of the node.
    pub detail: Option<String>,
    /// Its purpose.
    pub about: Option<String>,
    /// The condition under which it runs; without it the node is skipped.
    pub when: Option<String>,
    /// Whether it waits until other nodes have run.
    pub defer: bool,
    /// Its innermost group.
    pub group: Option<String>,
    /// The length of the longest path to it, without loops; null if no path leads to it.
    pub layer: Option<u64>,
    /// The maximum number of visits before its count is reset.
    pub max_visits: Option<u32>,
    /// The nodes whose counts are reset when it finishes.
    pub resets: Vec<String>,
    /// The visits of the run; null without a run, and if the run did not reach this node.
    pub visits: Option<VisitsDocument>,
}

/// An edge from a node to another, or from or to the outside.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EdgeDocument {
    /// The node that it leaves; null for the run itself.
    pub from: Option<String>,
    /// The node that it leads to, or `end` or `fail`; no node has these names.
    pub to: String,
    /// Why a run takes it.
    pub kind: EdgeKind,
    /// The condition or the value of a `route`, the kind of failure of a `catch`.
    pub label: Option<String>,
    /// For a `join`, all awaited nodes.
    pub awaits: Vec<String>,
    /// For a `join`, how many of the awaited nodes let it run; else null.
    pub count: Option<u64>,
    /// Whether it closes a loop.
    pub back: bool,
    /// The bounds of the loop that it closes: one node that each round passes, or else all bounded
    /// nodes that a round may pass.
    pub bounds: Vec<BoundDocument>,
    /// How often the run took it, or another edge of this kind between the same nodes; the saved
    /// data of a run does not distinguish these. Null without a run.
    pub taken: Option<u64>,
}

/// Why a run takes an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// When the run starts.
    Start,
    /// Always when the node has finished.
    Then,
    /// When `count` of `awaits` have finished.
    Join,
    /// When the state decides so.
    Route,
    /// When the node itself decides so.
    Goto,
    /// When the bound of the node is used up.
    Exhausted,
    /// When the node fails, with the kind in `label` or with any kind.
    Catch,
    /// When a limit of the run is reached.
    Limit,
}

/// A node that ends a loop after some visits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BoundDocument {
    /// The node.
    pub node: String,
    /// The maximum number of visits before its count is reset.
    pub max_visits: u32,
}

/// A group of nodes: the branches of a `parallel`, the nodes of a used workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GroupDocument {
    /// Its name.
    pub name: String,
    /// The group that contains it.
    pub parent: Option<String>,
    /// The nodes that are directly in it, and in no inner group.
    pub nodes: Vec<String>,
}

/// The run over a drawing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunDocument {
    /// The id of the run.
    pub run: String,
    /// The name of the run.
    pub name: String,
    /// `running`, `done`, `failed`, `paused`, `limit` or `interrupted`.
    pub status: String,
    /// The reason, if the run is not done or has reached a limit.
    pub reason: Option<String>,
    /// The committed steps.
    pub steps: u64,
    /// The parts of the run that are missing in the drawing, because the workflow has changed
    /// since.
    pub notes: Vec<String>,
}

/// The visits of a run at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VisitsDocument {
    /// The steps in which it ran.
    pub steps: u64,
    /// The tasks; more than the steps if one step dispatched several to it.
    pub tasks: u64,
    /// The attempts of all tasks.
    pub attempts: u64,
    /// The attempts that failed.
    pub failures: u64,
    /// The tasks that the condition of the node skipped; the other counts exclude them.
    pub skipped: u64,
    /// `next`, `waiting` or `failed` if the run has not continued from here.
    pub status: Option<String>,
}

pub(super) fn of(drawing: &Drawing) -> DrawingDocument {
    DrawingDocument {
        v: VERSION,
        workflow: drawing.name.clone(),
        about: drawing.about.clone(),
        nodes: drawing.nodes.iter().map(|it| node(drawing, it)).collect(),
        edges: drawing.arrows.iter().map(edge).collect(),
        groups: drawing.groups.iter().map(group).collect(),
        run: drawing.run.as_ref().map(run),
    }
}

fn node(drawing: &Drawing, node: &DrawnNode) -> NodeDocument {
    NodeDocument {
        name: node.name.to_string(),
        kind: node.kind.map(str::to_owned),
        detail: node.detail.clone(),
        about: node.about.clone(),
        when: node.when.clone(),
        defer: node.defer,
        group: drawing.group_of(&node.name).map(|it| it.name.clone()),
        layer: node.layer.and_then(|it| u64::try_from(it).ok()),
        max_visits: node.max_visits,
        resets: texts(&node.resets),
        visits: node.visits.map(visits),
    }
}

fn edge(arrow: &Arrow) -> EdgeDocument {
    let kind = match (&arrow.reason, &arrow.from) {
        (Reason::Always, None) => EdgeKind::Start,
        (Reason::Always, Some(_)) => EdgeKind::Then,
        (Reason::Join { .. }, _) => EdgeKind::Join,
        (Reason::Route(_), _) => EdgeKind::Route,
        (Reason::Goto, _) => EdgeKind::Goto,
        (Reason::Exhausted, None) => EdgeKind::Limit,
        (Reason::Exhausted, Some(_)) => EdgeKind::Exhausted,
        (Reason::Catch(_) | Reason::Failures { .. }, _) => EdgeKind::Catch,
    };
    let label = match &arrow.reason {
        Reason::Route(label) => label.clone(),
        Reason::Catch(kind) => kind.map(|it| it.to_string()),
        _ => None,
    };
    let (awaits, count) = match &arrow.reason {
        Reason::Join { of, count } => (texts(of), u64::try_from(*count).ok()),
        _ => (Vec::new(), None),
    };
    EdgeDocument {
        from: arrow.from.as_ref().map(ToString::to_string),
        to: arrow.to.to_string(),
        kind,
        label,
        awaits,
        count,
        back: arrow.back,
        bounds: arrow.bounds.iter().map(bound).collect(),
        taken: arrow.taken,
    }
}

fn bound(bound: &Bound) -> BoundDocument {
    BoundDocument { node: bound.node.to_string(), max_visits: bound.max_visits }
}

fn group(group: &Group) -> GroupDocument {
    GroupDocument {
        name: group.name.clone(),
        parent: group.parent.clone(),
        nodes: texts(&group.nodes),
    }
}

fn run(run: &DrawnRun) -> RunDocument {
    RunDocument {
        run: run.id.to_string(),
        name: run.name.clone(),
        status: run.status.as_str().to_owned(),
        reason: run.reason.clone(),
        steps: run.steps,
        notes: run.notes.clone(),
    }
}

fn visits(visits: Visits) -> VisitsDocument {
    VisitsDocument {
        steps: visits.steps,
        tasks: visits.tasks,
        attempts: visits.attempts,
        failures: visits.failures,
        skipped: visits.skipped,
        status: visits.status.map(|it| it.as_str().to_owned()),
    }
}

fn texts(names: &[NodeName]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
