//! Nodes with scripted answers, and routes that record their choices.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use graphrun_core::words::count;

use super::{AFTER_ALL_WAITS, agents::Conversations, traces::RenderedPrompt};
use crate::{
    engine::{OpenQuestion, ShutdownHandle},
    graph::{
        AccessSet, Command, Edge, Graph, Node, NodeContext, NodeDescription, NodeError, Route,
        RouteChoice, RouteError, RouteTarget, RouteView, SideEffects, Spread, Transition,
    },
    id::{ChannelName, NodeName, TaskId},
    models::Replay,
    workflow::case_file::{Answer, Answers, Turns},
};

/// The scripted answers of one run, and the requests for them.
#[derive(Debug)]
pub(super) struct Script {
    answers: BTreeMap<NodeName, Answers>,
    /// Whether a recording answers for models.
    has_models: bool,
    /// The nodes whose prompts are compared.
    prompted: BTreeSet<NodeName>,
    /// Stops the run when it needs an answer that the test case does not have.
    pub(super) stop: ShutdownHandle,
    /// The conversations of agents with a scripted model.
    pub(super) conversations: Arc<Conversations>,
    requests: Mutex<Requests>,
}

/// The requests of a run to its script.
#[derive(Clone, Debug, Default)]
struct Requests {
    /// The tasks of each node in the order of their start, with their attempts.
    visits: BTreeMap<NodeName, Vec<(TaskId, u32)>>,
    /// The prompts of the nodes, by the visit.
    prompts: BTreeMap<NodeName, BTreeMap<usize, RenderedPrompt>>,
    gap: Option<Gap>,
    /// The edges that are routes, by index, and the targets that they chose.
    route_targets: BTreeSet<(usize, usize)>,
}

/// An answer that the run needed and the test case does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// The node has side effects and no answer.
    NoAnswer(NodeName),
    /// The node ran more often than it has answers.
    NoVisit(NodeName, usize),
}

/// The source of a node's result.
enum Turn<'a> {
    Given(&'a Answer),
    Itself,
    Missing,
}

impl Script {
    pub(super) fn new(answers: BTreeMap<NodeName, Answers>) -> Self {
        Self {
            answers,
            has_models: false,
            prompted: BTreeSet::new(),
            stop: ShutdownHandle::default(),
            conversations: Arc::default(),
            requests: Mutex::default(),
        }
    }

    /// Lets agents without an answer run as they are, with the answers of a recording.
    pub(super) fn with_recording(self, recording: Arc<Replay>) -> Self {
        let conversations = Arc::new(Conversations::of_recording(recording));
        Self { has_models: true, conversations, ..self }
    }

    /// Records the prompts of these nodes.
    pub(super) fn with_prompts_of(self, nodes: impl IntoIterator<Item = NodeName>) -> Self {
        Self { prompted: nodes.into_iter().collect(), ..self }
    }

    /// Returns the recorded prompts of each node, in the order of its visits.
    pub(super) fn prompts(&self) -> BTreeMap<NodeName, Vec<RenderedPrompt>> {
        let requests = self.requests();
        let texts = requests.prompts.iter();
        texts.map(|(node, it)| (node.clone(), it.values().cloned().collect())).collect()
    }

    /// Replaces the nodes of a graph, and makes its routes record their choices.
    pub(super) fn direct(self: &Arc<Self>, graph: &mut Graph) {
        for (name, spec) in &mut graph.nodes {
            let node = Arc::clone(spec.node());
            let script = Arc::clone(self);
            spec.set_node(Arc::new(StandIn { name: name.clone(), node, script }));
        }
        for (at, edge) in graph.edges.iter_mut().enumerate() {
            if let Edge::Route { route, .. } = edge {
                let watched =
                    WatchedRoute { at, route: Arc::clone(route), script: Arc::clone(self) };
                *route = Arc::new(watched);
            }
        }
    }

    /// Returns the choices of routes.
    pub(super) fn route_targets(&self) -> BTreeSet<(usize, usize)> {
        self.requests().route_targets.clone()
    }

    /// Returns the scripted answer to the question of a task.
    pub(super) fn scripted_answer(&self, asked: &OpenQuestion) -> Option<serde_json::Value> {
        let OpenQuestion { node, task, question, .. } = asked;
        let visits = &self.requests().visits;
        let at = visits.get(node)?.iter().position(|(it, _)| it == task)?;
        let attempt = visits[node][at].1;
        match self.given(node, at, attempt)? {
            Answer::Says(value) => Some(value.clone()),
            Answer::Calls(_) => self.conversations.decide(*task, question),
            Answer::Writes(_) | Answer::Fails(_) => None,
        }
    }

    /// Returns the answer that the run needed and the test case does not have.
    pub(super) fn gap(&self) -> Option<Gap> {
        self.requests().gap.clone()
    }

    /// Returns descriptions of the unused answers in lists of visits and attempts. Those for all cases of a file serve
    /// cases that stop earlier.
    pub(super) fn unused(&self) -> Vec<(NodeName, String)> {
        let requests = self.requests();
        let mut unused = Vec::new();
        for (node, answers) in self.answers.iter().filter(|(_, it)| !it.is_common) {
            let Turns::Visits(given) = &answers.turns else { continue };
            let made = requests.visits.get(node).map_or(&[][..], Vec::as_slice);
            if made.len() < given.len() {
                let given = count(given.len() as u64, "visit");
                let made = made.len();
                let text = format!("`{node}` has answers for {given}, and made {made}");
                unused.push((node.clone(), text));
            }
            for (at, (attempts, (_, made))) in given.iter().zip(made).enumerate() {
                if usize::try_from(*made).is_ok_and(|it| it < attempts.len()) {
                    let given = count(attempts.len() as u64, "attempt");
                    let text = format!("visit {} of `{node}` has {given}, and made {made}", at + 1);
                    unused.push((node.clone(), text));
                }
            }
        }
        unused
    }

    fn turn(
        &self,
        node: &NodeName,
        NodeDescription { side_effects, kind, .. }: NodeDescription,
        ctx: &NodeContext,
    ) -> Turn<'_> {
        let NodeContext { task, attempt, .. } = *ctx;
        let mut requests = self.requests();
        let visits = requests.visits.entry(node.clone()).or_default();
        let at = visits.iter().position(|(it, _)| *it == task).unwrap_or_else(|| {
            visits.push((task, attempt));
            visits.len() - 1
        });
        visits[at].1 = attempt;
        if let Some(answer) = self.given(node, at, attempt) {
            return Turn::Given(answer);
        }
        let runs_itself = match side_effects {
            SideEffects::Nothing => true,
            SideEffects::Models => self.has_models,
            // The tools of an agent have recorded results.
            SideEffects::World => self.has_models && kind == "agent",
        };
        if self.answers.contains_key(node) {
            requests.gap.get_or_insert(Gap::NoVisit(node.clone(), at + 1));
        } else if runs_itself {
            return Turn::Itself;
        } else {
            requests.gap.get_or_insert(Gap::NoAnswer(node.clone()));
        }
        Turn::Missing
    }

    /// Records the prompt of the last attempt at a visit, if it is compared.
    fn record_prompt(&self, name: &NodeName, node: &dyn Node, ctx: &NodeContext) {
        if !self.prompted.contains(name) {
            return;
        }
        let prompt = match node.preview(ctx) {
            Ok(preview) => {
                let parts = ["system", "prompt", "question"].into_iter();
                let parts = parts.filter_map(|it| preview.get(it)?.as_str());
                Ok(parts.collect::<Vec<_>>().join("\n\n"))
            }
            Err(NodeError::Failed(failure)) => Err(failure.message),
            Err(NodeError::Ask(question)) => Ok(question.prompt),
            Err(NodeError::Wait(timer)) => Ok(timer.key),
        };
        let mut requests = self.requests();
        let visits = requests.visits.get(name).map_or(&[][..], Vec::as_slice);
        if let Some(at) = visits.iter().position(|(it, _)| *it == ctx.task) {
            requests.prompts.entry(name.clone()).or_default().insert(at, prompt);
        }
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

    /// A poisoned lock is no problem: no code panics while it holds the lock, and each change is
    /// complete.
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node that may have a scripted answer.
struct StandIn {
    name: NodeName,
    node: Arc<dyn Node>,
    script: Arc<Script>,
}

#[async_trait]
impl Node for StandIn {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let ctx = NodeContext { began: AFTER_ALL_WAITS, ..ctx };
        let turn = self.script.turn(&self.name, self.node.describe(), &ctx);
        self.script.record_prompt(&self.name, self.node.as_ref(), &ctx);
        match turn {
            Turn::Given(Answer::Writes(update)) => Ok(update.clone().into()),
            Turn::Given(Answer::Fails(failure)) => Err(failure.clone().into()),
            Turn::Given(Answer::Calls(agent)) => {
                self.script.conversations.begin(&ctx, &self.name, agent);
                self.node.run(ctx).await
            }
            // The node asks; the driver of the test case finds the scripted answer and resumes the
            // run.
            Turn::Given(Answer::Says(_)) | Turn::Itself => self.node.run(ctx).await,
            Turn::Missing => {
                // A `catch` might handle a failure here and hide the gap, so the run stops instead.
                self.script.stop.abort();
                pending().await
            }
        }
    }

    fn describe(&self) -> NodeDescription {
        self.node.describe()
    }
}

/// A route that records its choices in the script.
#[derive(Debug)]
struct WatchedRoute {
    at: usize,
    route: Arc<dyn Route>,
    script: Arc<Script>,
}

impl Route for WatchedRoute {
    fn targets(&self) -> &[RouteTarget] {
        self.route.targets()
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

    fn excludes(&self, choice: usize, other: &dyn Route, other_choice: usize) -> bool {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>();
        other.is_some_and(|chosen| self.route.excludes(choice, chosen.route.as_ref(), other_choice))
    }

    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        let taken = self.route.taken(view)?;
        self.script
            .requests()
            .route_targets
            .extend(taken.into_iter().map(|target| (self.at, target)));
        self.route.decide(view)
    }

    fn taken(&self, view: &RouteView<'_>) -> Result<Vec<usize>, RouteError> {
        self.route.taken(view)
    }

    fn access_set(&self) -> Option<AccessSet> {
        self.route.access_set()
    }
}
