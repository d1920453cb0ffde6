//! A used workflow: maps the names that its nodes, routes and conditions use to names of the outer
//! graph.
//!
//! A used workflow is not a separate run. Its nodes and channels become part of the outer graph,
//! with the name of the use as a prefix. Thus all checks, checkpoints, drawings and counts of a
//! graph include it.

mod within;

use std::{any::Any, borrow::Cow, sync::Arc};

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::{
    Access, AccessSet, Command, Condition, Contract, Dispatch, Goto, Node, NodeContext,
    NodeDescription, NodeError, NodeTypes, Read, Route, RouteChoice, RouteError, RouteTarget,
    RouteView, RunFacts, Spread, Starts, Target, Transition, Trigger, Visits,
};
use crate::{
    event::Usage,
    id::{ChannelName, NodeName},
    state::{Field, Record, Schema, State, Type, Update},
};

/// The position of an inner graph in an outer one.
#[derive(Clone, Debug)]
pub struct Scope {
    name: NodeName,
    schema: Schema,
    /// The target in the outer graph for a failure of the inner one.
    fail: Target,
}

impl Scope {
    /// Makes the scope of a graph over `schema` that is used as `name`; its failure leads to
    /// `fail`.
    pub fn new(name: NodeName, schema: Schema, fail: Target) -> Self {
        Self { name, schema, fail }
    }

    /// Returns the name of the node that is reached when the inner graph is done.
    pub fn end(&self) -> NodeName {
        self.node_name(&NodeName::parse("end").expect("a word is a name"))
    }

    /// Returns the outer name of an inner node.
    pub fn node_name(&self, name: &NodeName) -> NodeName {
        name.within(&self.name)
    }

    /// Returns the outer name of an inner channel.
    pub fn channel_name(&self, name: &ChannelName) -> ChannelName {
        name.within(&self.name)
    }

    /// Returns the outer target of an inner one.
    pub fn target(&self, target: &Target) -> Target {
        match target {
            Target::Node(name) => Target::Node(self.node_name(name)),
            Target::End => Target::Node(self.end()),
            Target::Fail => self.fail.clone(),
        }
    }

    /// Wraps an inner node for the outer graph.
    pub fn node(&self, inner: Arc<dyn Node>) -> Arc<dyn Node> {
        Arc::new(ScopedNode { inner, scope: self.clone() })
    }

    /// Wraps an inner route for the outer graph.
    pub fn route(&self, inner: Arc<dyn Route>) -> Arc<dyn Route> {
        let outside =
            |it: &RouteTarget| RouteTarget { to: self.target(&it.to), label: it.label.clone() };
        let targets = inner.targets().iter().map(outside).collect();
        let reads = inner.reads().map(|it| self.channel_names(it));
        let needs = self.channel_names(inner.needs());
        let view = inner.view_type().map(|it| self.view(it));
        Arc::new(ScopedRoute { inner, scope: self.clone(), targets, reads, needs, view })
    }

    /// Wraps an inner condition for the outer graph.
    pub fn condition(&self, inner: Arc<dyn Condition>) -> Arc<dyn Condition> {
        let reads = inner.reads().map(|it| self.channel_names(it));
        let needs = self.channel_names(inner.needs());
        let view = inner.view_type().map(|it| self.view(it));
        Arc::new(ScopedCondition { inner, scope: self.clone(), reads, needs, view })
    }

    /// Returns an inner access set with outer names.
    pub fn access_set(&self, inner: AccessSet) -> AccessSet {
        let field = |it: Access| Access { channel: self.channel_name(&it.channel), ..it };
        AccessSet {
            fields: inner.fields.into_iter().map(field).collect(),
            visits: inner.visits.iter().map(|it| self.node_name(it)).collect(),
            ..inner
        }
    }

    fn channel_names(&self, names: &[ChannelName]) -> Vec<ChannelName> {
        names.iter().map(|it| self.channel_name(it)).collect()
    }

    /// Returns a type over the state with the outer names of its fields.
    fn view(&self, ty: &Type) -> Type {
        let Type::Record(record) = ty else { return ty.clone() };
        let field = |it: &Field| {
            let name = match ChannelName::parse(&it.name) {
                Ok(name) => self.channel_name(&name).to_string(),
                Err(_) => it.name.clone(),
            };
            Field { name, ..it.clone() }
        };
        let fields = record.fields.iter().map(field).collect();
        Type::Record(Arc::new(Record { fields, ..Record::clone(record) }))
    }

    fn state(&self, outside: &State) -> State {
        outside.within(&self.schema, |it| self.channel_name(it))
    }

    fn visits<'a>(
        &'a self,
        outside: &'a Visits,
    ) -> impl Iterator<Item = (NodeName, u32)> + use<'a> {
        let within = |(name, count): (&NodeName, u32)| {
            let name = NodeName::parse_path(name.strip_scope(self.name.as_str())?).ok()?;
            Some((name, count))
        };
        outside.iter().filter_map(within)
    }

    /// Returns the facts of the run with inner names.
    fn facts<'a>(&self, outside: &'a RunFacts) -> Cow<'a, RunFacts> {
        if outside.node_usage.is_empty() {
            return Cow::Borrowed(outside);
        }
        let within = |(name, usage): (&NodeName, &Usage)| {
            let name = NodeName::parse_path(name.strip_scope(self.name.as_str())?).ok()?;
            Some((name, *usage))
        };
        let node_usage = outside.node_usage.iter().filter_map(within).collect();
        Cow::Owned(RunFacts { node_usage, ..outside.clone() })
    }

    /// Returns the trigger of an inner task as the inner graph knows it: what leads into the graph is its start.
    fn trigger<'a>(&self, outside: &'a Trigger) -> Cow<'a, Trigger> {
        let Some(node) = outside.node() else { return Cow::Borrowed(outside) };
        if *node == self.name {
            return Cow::Owned(Trigger::Start);
        }
        let within = node.strip_scope(self.name.as_str());
        match within.and_then(|it| NodeName::parse_path(it).ok()) {
            Some(node) => Cow::Owned(outside.clone().with_node(node)),
            None => Cow::Borrowed(outside),
        }
    }

    /// Gives a function the view of a route or a condition with inner names.
    fn with_view<T>(&self, outside: &RouteView<'_>, read: impl FnOnce(&RouteView<'_>) -> T) -> T {
        let state = self.state(outside.state);
        let visits = self.visits(outside.visits).collect();
        let facts = self.facts(outside.facts);
        let trigger = self.trigger(outside.trigger);
        read(&RouteView {
            state: &state,
            visits: &visits,
            facts: &facts,
            trigger: &trigger,
            ..*outside
        })
    }

    fn transition(&self, transition: Transition) -> Transition {
        match transition {
            Transition::To(target) => Transition::To(self.target(&target)),
            Transition::Join(name) => Transition::Join(self.node_name(&name)),
            Transition::Dispatch(it) => {
                Transition::Dispatch(Dispatch { node: self.node_name(&it.node), ..it })
            }
        }
    }

    fn transitions(&self, transitions: Vec<Transition>) -> Vec<Transition> {
        transitions.into_iter().map(|it| self.transition(it)).collect()
    }

    fn command(&self, Command { update, goto }: Command) -> Command {
        let Update { clears, writes } = update;
        let writes = writes.into_iter().map(|(name, value)| (self.channel_name(&name), value));
        let goto = match goto {
            Goto::Edges => Goto::Edges,
            Goto::Also(transitions) => Goto::Also(self.transitions(transitions)),
            Goto::Instead(transitions) if transitions.is_empty() => {
                Goto::Instead(vec![Transition::To(Target::Node(self.end()))])
            }
            Goto::Instead(transitions) => Goto::Instead(self.transitions(transitions)),
        };
        let clears = self.channel_names(&clears);
        Command { update: Update { clears, writes: writes.collect() }, goto }
    }
}

struct ScopedNode {
    inner: Arc<dyn Node>,
    scope: Scope,
}

impl ScopedNode {
    /// Returns the context of the inner node.
    fn within(&self, ctx: NodeContext) -> NodeContext {
        // The node keeps its full name, so that two uses of one workflow stay distinct.
        let own = [(ctx.node.clone(), ctx.visit())];
        let visits: Visits = self.scope.visits(&ctx.visits).chain(own).collect();
        let state = Arc::new(self.scope.state(&ctx.state));
        let facts = match self.scope.facts(&ctx.facts) {
            Cow::Borrowed(_) => Arc::clone(&ctx.facts),
            Cow::Owned(facts) => Arc::new(facts),
        };
        let trigger = self.scope.trigger(&ctx.trigger).into_owned();
        NodeContext { state, visits: Arc::new(visits), facts, trigger, ..ctx }
    }
}

#[async_trait]
impl Node for ScopedNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        Ok(self.scope.command(self.inner.run(self.within(ctx)).await?))
    }

    fn describe(&self) -> NodeDescription {
        let inner = self.inner.describe();
        let Contract { reads, writes } = inner.contract;
        let all = || self.scope.schema.channels().iter().map(|it| it.name().clone()).collect();
        let read = |Read { channel, required }: Read| {
            let channel = self.scope.channel_name(&channel);
            Read { channel, required }
        };
        let contract = Contract {
            reads: reads.map(|it| it.into_iter().map(read).collect()),
            // A node without declared writes can still write only channels of the inner graph.
            writes: Some(self.scope.channel_names(&writes.unwrap_or_else(all))),
        };
        let writes_always = inner.writes_always.map(|it| self.scope.channel_names(&it));
        let writes_one = self.scope.channel_names(&inner.writes_one);
        let types = inner.types.map(|types| {
            Arc::new(NodeTypes {
                reads: types.reads.iter().map(|it| self.scope.view(it)).collect(),
                items: types.items.clone(),
                writes: types.writes.as_ref().map(|it| self.scope.view(it)),
            })
        });
        NodeDescription { contract, writes_always, writes_one, types, ..inner }
    }

    fn preview(&self, ctx: &NodeContext) -> Result<Map<String, Value>, NodeError> {
        self.inner.preview(&self.within(ctx.clone()))
    }

    fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        self.inner.cache_key(&self.within(ctx.clone()))
    }
}

#[derive(Debug)]
struct ScopedRoute {
    inner: Arc<dyn Route>,
    scope: Scope,
    targets: Vec<RouteTarget>,
    reads: Option<Vec<ChannelName>>,
    needs: Vec<ChannelName>,
    view: Option<Type>,
}

impl Route for ScopedRoute {
    fn targets(&self) -> &[RouteTarget] {
        &self.targets
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        self.reads.as_deref()
    }

    fn needs(&self) -> &[ChannelName] {
        &self.needs
    }

    fn view_type(&self) -> Option<&Type> {
        self.view.as_ref()
    }

    fn spread(&self) -> Spread {
        self.inner.spread()
    }

    fn choices(&self) -> Option<Vec<RouteChoice>> {
        let outside = |RouteChoice { to, is_dispatched, known }| RouteChoice {
            to: to.iter().map(|it| self.scope.target(it)).collect(),
            is_dispatched,
            known: self.scope.channel_names(&known),
        };
        Some(self.inner.choices()?.into_iter().map(outside).collect())
    }

    fn excludes(&self, choice: usize, other: &dyn Route, other_choice: usize) -> bool {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>().filter(|it| it.scope.name == self.scope.name);
        other.is_some_and(|it| self.inner.excludes(choice, it.inner.as_ref(), other_choice))
    }

    fn starts(&self) -> Starts {
        self.inner.starts()
    }

    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        let transitions = self.scope.with_view(view, |it| self.inner.decide(it))?;
        Ok(self.scope.transitions(transitions))
    }

    fn taken(&self, view: &RouteView<'_>) -> Result<Vec<usize>, RouteError> {
        self.scope.with_view(view, |it| self.inner.taken(it))
    }

    fn access_set(&self) -> Option<AccessSet> {
        Some(self.scope.access_set(self.inner.access_set()?))
    }
}

#[derive(Debug)]
struct ScopedCondition {
    inner: Arc<dyn Condition>,
    scope: Scope,
    reads: Option<Vec<ChannelName>>,
    needs: Vec<ChannelName>,
    view: Option<Type>,
}

impl Condition for ScopedCondition {
    fn text(&self) -> &str {
        self.inner.text()
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        self.reads.as_deref()
    }

    fn needs(&self) -> &[ChannelName] {
        &self.needs
    }

    fn view_type(&self) -> Option<&Type> {
        self.view.as_ref()
    }

    fn access_set(&self) -> Option<AccessSet> {
        Some(self.scope.access_set(self.inner.access_set()?))
    }

    fn excludes(&self, other: &dyn Condition) -> bool {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>().filter(|it| it.scope.name == self.scope.name);
        other.is_some_and(|it| self.inner.excludes(it.inner.as_ref()))
    }

    fn holds(&self, view: &RouteView<'_>) -> Result<bool, RouteError> {
        self.scope.with_view(view, |it| self.inner.holds(it))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        graph::{
            Cancel, Input, ProvidedValues, Reporter, SavedValues, Trigger, dispatch, route_fn,
        },
        id::{RunId, Step, TaskId},
        state::Type,
    };

    struct Keyed;

    #[async_trait]
    impl Node for Keyed {
        async fn run(&self, _ctx: NodeContext) -> Result<Command, NodeError> {
            Ok(Update::default().into())
        }

        fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
            Ok(json!(ctx.visit()))
        }
    }

    fn name(text: &str) -> NodeName {
        NodeName::parse_path(text).unwrap()
    }

    fn scope() -> Scope {
        Scope::new(name("review"), Schema::default(), Target::Fail)
    }

    fn context() -> NodeContext {
        NodeContext {
            run: RunId::parse("r").unwrap(),
            task: TaskId { step: Step(1), index: 0 },
            node: name("review.lint"),
            original: None,
            attempt: 1,
            visits: Arc::new([(name("review.lint"), 3)].into_iter().collect()),
            max_visits: None,
            began: jiff::Timestamp::UNIX_EPOCH,
            timeout: None,
            idle_timeout: None,
            state: Arc::new(Schema::default().empty()),
            input: Input::State,
            trigger: Trigger::Start,
            cancel: Cancel::default(),
            answers: SavedValues::default(),
            memos: SavedValues::default(),
            reporter: Reporter::default(),
            facts: Arc::default(),
            provided: ProvidedValues::default(),
        }
    }

    #[test]
    fn a_node_keeps_its_own_cache_key() {
        let node = scope().node(Arc::new(Keyed));
        assert_eq!(node.cache_key(&context()).unwrap(), json!(3));
    }

    #[test]
    fn a_route_keeps_the_type_of_its_items() {
        let targets = [Target::Node(name("lint"))];
        let route = route_fn(targets, |_: &Map<String, Value>| [dispatch("lint", "a.rs")]);
        assert_eq!(scope().route(Arc::new(route)).starts(), Starts::Item(Type::String));
    }
}
