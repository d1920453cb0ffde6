//! Nodes that answer as a case says, and routes that tell which way they took.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use crate::{
    engine::Stop,
    graph::{
        Command, Contract, Edge, Graph, Hop, Node, NodeContext, NodeError, Route, RouteChoice,
        RouteError, RouteView, Sights, Spread, Touches, Way,
    },
    id::{ChannelName, NodeName, TaskId},
    workflow::case_file::{Answer, Answers, Turns},
};

/// What nodes answer in one run, and what was asked of them.
#[derive(Debug)]
pub(super) struct Script {
    answers: BTreeMap<NodeName, Answers>,
    /// Whether a recording answers for models.
    has_models: bool,
    /// Stops the run when it needs what the case does not give.
    pub(super) stop: Stop,
    told: Mutex<Told>,
}

/// What a run asked of its script.
#[derive(Clone, Debug, Default)]
struct Told {
    /// The tasks of each node in the order in which they began, with their attempts.
    visits: BTreeMap<NodeName, Vec<(TaskId, u32)>>,
    gap: Option<Gap>,
    /// The edges that are routes, by position, and their ways that were taken.
    ways: BTreeSet<(usize, usize)>,
}

/// What a run needed and the case did not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// The node touches the world and has no answer.
    NoAnswer(NodeName),
    /// The node ran more often than it has answers.
    NoVisit(NodeName, usize),
}

/// What a node does when it runs.
enum Turn<'a> {
    Given(&'a Answer),
    Itself,
    Missing,
}

impl Script {
    pub(super) fn new(answers: BTreeMap<NodeName, Answers>, has_models: bool) -> Self {
        Self { answers, has_models, stop: Stop::default(), told: Mutex::default() }
    }

    /// Puts nodes in the place of those of a graph, and has its routes tell which way they took.
    pub(super) fn direct(self: &Arc<Self>, graph: &mut Graph) {
        for (name, spec) in &mut graph.nodes {
            let (node, script) = (Arc::clone(&spec.node), Arc::clone(self));
            spec.node = Arc::new(StandIn { name: name.clone(), node, script });
        }
        for (at, edge) in graph.edges.iter_mut().enumerate() {
            if let Edge::Route { route, .. } = edge {
                let watched = Watched { at, route: Arc::clone(route), script: Arc::clone(self) };
                *route = Arc::new(watched);
            }
        }
    }

    /// The ways that routes took.
    pub(super) fn ways(&self) -> BTreeSet<(usize, usize)> {
        self.told().ways.clone()
    }

    /// What the case says to the question of a task.
    pub(super) fn said(&self, node: &NodeName, task: TaskId) -> Option<serde_json::Value> {
        let visits = &self.told().visits;
        let at = visits.get(node)?.iter().position(|(it, _)| *it == task)?;
        let attempt = visits[node][at].1;
        match self.given(node, at, attempt)? {
            Answer::Says(value) => Some(value.clone()),
            Answer::Writes(_) | Answer::Fails(_) => None,
        }
    }

    /// What the run needed and the case did not give.
    pub(super) fn gap(&self) -> Option<Gap> {
        self.told().gap.clone()
    }

    /// The answers that nobody asked for, in words: a list of them is one of all visits.
    pub(super) fn unused(&self) -> Vec<(NodeName, String)> {
        let told = self.told();
        let mut unused = Vec::new();
        for (node, answers) in &self.answers {
            let Turns::Visits(given) = &answers.turns else { continue };
            let made = told.visits.get(node).map_or(&[][..], Vec::as_slice);
            if made.len() < given.len() {
                let (given, made) = (given.len(), made.len());
                let text = format!("`{node}` has answers for {given} visits, and made {made}");
                unused.push((node.clone(), text));
            }
            for (at, (attempts, (_, made))) in given.iter().zip(made).enumerate() {
                if usize::try_from(*made).is_ok_and(|it| it < attempts.len()) {
                    let text = format!(
                        "visit {} of `{node}` has {} attempts, and made {made}",
                        at + 1,
                        attempts.len()
                    );
                    unused.push((node.clone(), text));
                }
            }
        }
        unused
    }

    fn turn(&self, node: &NodeName, touches: Touches, task: TaskId, attempt: u32) -> Turn<'_> {
        let mut told = self.told();
        let visits = told.visits.entry(node.clone()).or_default();
        let at = visits.iter().position(|(it, _)| *it == task).unwrap_or_else(|| {
            visits.push((task, attempt));
            visits.len() - 1
        });
        visits[at].1 = attempt;
        if let Some(answer) = self.given(node, at, attempt) {
            return Turn::Given(answer);
        }
        let runs_itself = match touches {
            Touches::Nothing => true,
            Touches::Models => self.has_models,
            Touches::World => false,
        };
        if self.answers.contains_key(node) {
            told.gap.get_or_insert(Gap::NoVisit(node.clone(), at + 1));
        } else if runs_itself {
            return Turn::Itself;
        } else {
            told.gap.get_or_insert(Gap::NoAnswer(node.clone()));
        }
        Turn::Missing
    }

    fn given(&self, node: &NodeName, visit: usize, attempt: u32) -> Option<&Answer> {
        match &self.answers.get(node)?.turns {
            Turns::Always(answer) => Some(answer),
            Turns::Visits(visits) => {
                let attempts = visits.get(visit)?;
                let attempt = usize::try_from(attempt).unwrap_or(usize::MAX);
                attempts.get(attempt.saturating_sub(1)).or(attempts.last())
            }
        }
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node of which a case may say what it answers.
struct StandIn {
    name: NodeName,
    node: Arc<dyn Node>,
    script: Arc<Script>,
}

#[async_trait]
impl Node for StandIn {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        match self.script.turn(&self.name, self.node.touches(), ctx.task, ctx.attempt) {
            Turn::Given(Answer::Writes(update)) => Ok(update.clone().into()),
            Turn::Given(Answer::Fails(failure)) => Err(failure.clone().into()),
            // It asks; whoever runs the case finds what a person says and resumes the run.
            Turn::Given(Answer::Says(_)) | Turn::Itself => self.node.run(ctx).await,
            Turn::Missing => {
                // A failure might be caught, and hide what is missing. So the run goes no further.
                self.script.stop.now();
                pending().await
            }
        }
    }

    fn contract(&self) -> Contract {
        self.node.contract()
    }

    fn writes_always(&self) -> Option<Vec<ChannelName>> {
        self.node.writes_always()
    }

    fn calls_max(&self) -> Option<u64> {
        self.node.calls_max()
    }

    fn kind(&self) -> &'static str {
        self.node.kind()
    }

    fn touches(&self) -> Touches {
        self.node.touches()
    }
}

/// A route that tells its script which way it took.
#[derive(Debug)]
struct Watched {
    at: usize,
    route: Arc<dyn Route>,
    script: Arc<Script>,
}

impl Route for Watched {
    fn ways(&self) -> &[Way] {
        self.route.ways()
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        self.route.reads()
    }

    fn spread(&self) -> Spread {
        self.route.spread()
    }

    fn choices(&self) -> Option<Vec<RouteChoice>> {
        self.route.choices()
    }

    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Hop>, RouteError> {
        let taken = self.route.taken(view)?;
        self.script.told().ways.extend(taken.into_iter().map(|way| (self.at, way)));
        self.route.decide(view)
    }

    fn taken(&self, view: &RouteView<'_>) -> Result<Vec<usize>, RouteError> {
        self.route.taken(view)
    }

    fn sights(&self) -> Option<Sights> {
        self.route.sights()
    }
}
