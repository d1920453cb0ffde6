//! A drawing for programs: nodes, edges, groups and, if there is one, the run over it.
//!
//! Names stay as they are: keys may be added, none is renamed. The shape has a JSON Schema.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Arrow, Bound, Drawing, DrawnNode, DrawnRun, Group, Reason, Visits};
use crate::id::NodeName;

/// The version of this form.
const VERSION: u32 = 1;

/// What is to be seen of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DrawingDocument {
    /// The version of this form.
    pub v: u32,
    /// The name of the workflow.
    pub workflow: String,
    /// What it is for.
    pub about: Option<String>,
    /// The nodes from the first to the last: each after those that lead to it, loops aside.
    pub nodes: Vec<NodeDocument>,
    /// Every way, in the order in which they are declared.
    pub edges: Vec<EdgeDocument>,
    /// The nodes that belong together; outer groups come before those in them.
    pub groups: Vec<GroupDocument>,
    /// The run that is laid over it, if one was asked for.
    pub run: Option<RunDocument>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NodeDocument {
    /// Its name, which is unique.
    pub name: String,
    /// The word for what it does; null if edges lead to it and there is no such node.
    pub kind: Option<String>,
    /// Who or what does it, such as the name of an agent.
    pub detail: Option<String>,
    /// What it is for.
    pub about: Option<String>,
    /// The condition without which it is skipped.
    pub when: Option<String>,
    /// Whether it lets others go first.
    pub defer: bool,
    /// The innermost group that it is in.
    pub group: Option<String>,
    /// The longest way to it, loops aside; null if no way leads to it.
    pub layer: Option<u64>,
    /// How often it may run before its count is reset.
    pub max_visits: Option<u32>,
    /// The nodes whose counts start anew when it finishes.
    pub resets: Vec<String>,
    /// What the run did here; null without a run, and if the run did not come here.
    pub visits: Option<VisitsDocument>,
}

/// A way from a node to another, or from or to the outside.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EdgeDocument {
    /// The node it leaves; null is the run itself.
    pub from: Option<String>,
    /// The node it leads to, or `end` or `fail`, which no node is called.
    pub to: String,
    /// Why a run takes it.
    pub kind: EdgeKind,
    /// The condition or the value of a `route`, the kind of failure of a `catch`.
    pub label: Option<String>,
    /// For a `join`, all nodes that are waited for.
    pub awaits: Vec<String>,
    /// Whether it closes a loop.
    pub back: bool,
    /// What bounds the loop that it closes: one node that each round passes, or if there is none,
    /// all that a round may pass.
    pub bounds: Vec<BoundDocument>,
    /// How often the run took it, or another one of this kind between the same nodes, which
    /// what is saved of a run does not tell apart; null without a run.
    pub taken: Option<u64>,
}

/// Why a run takes a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// The run begins here.
    Start,
    /// Whenever the node has finished.
    Then,
    /// When all of `awaits` have finished.
    Join,
    /// When the state says so.
    Route,
    /// When the node itself says so.
    Goto,
    /// When the bound of the node is used up.
    Exhausted,
    /// When the node fails, in the way that `label` says, or in any.
    Catch,
    /// When a limit of the run is reached.
    Limit,
}

/// A node that ends a loop after some visits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BoundDocument {
    /// The node.
    pub node: String,
    /// How often it may run before its count is reset.
    pub max_visits: u32,
}

/// Nodes that belong together: the branches of a `parallel`, the nodes of a used workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GroupDocument {
    /// Its name.
    pub name: String,
    /// The group it is in.
    pub parent: Option<String>,
    /// The nodes that are in it and in no group within it.
    pub nodes: Vec<String>,
}

/// The run that is laid over a drawing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunDocument {
    /// The identity.
    pub run: String,
    /// The name people call it by.
    pub name: String,
    /// `running`, `done`, `failed`, `paused`, `limit` or `interrupted`.
    pub status: String,
    /// Why, if it is not done.
    pub reason: Option<String>,
    /// The committed steps.
    pub steps: u64,
    /// What of the run is not in the drawing, because the workflow has changed since.
    pub notes: Vec<String>,
}

/// What a run did at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VisitsDocument {
    /// The steps in which it ran.
    pub steps: u64,
    /// The tasks; more than the steps where several were dispatched to it in one.
    pub tasks: u64,
    /// The attempts of all tasks.
    pub attempts: u64,
    /// The attempts that failed.
    pub failures: u64,
    /// The tasks that were not to run, by the condition of the node; they are among no others.
    pub skipped: u64,
    /// `next`, `waiting` or `failed` if the run has not gone on from here.
    pub standing: Option<String>,
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
        (Reason::Join(_), _) => EdgeKind::Join,
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
    let awaits = match &arrow.reason {
        Reason::Join(all) => texts(all),
        _ => Vec::new(),
    };
    EdgeDocument {
        from: arrow.from.as_ref().map(ToString::to_string),
        to: arrow.to.to_string(),
        kind,
        label,
        awaits,
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
        standing: visits.standing.map(|it| it.as_str().to_owned()),
    }
}

fn texts(names: &[NodeName]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
