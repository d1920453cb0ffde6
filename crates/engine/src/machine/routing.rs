//! Evaluates conditions, updates and routes on the state at the start of a step.

use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    graph::{
        Edge, ErrorKind, Failure, Goto, Input, ItemNeeds, ItemOrder, Route, RouteError, RouteView,
        RunFacts, Spread, Target, Transition, Trigger, Visits,
    },
    id::{ChannelName, NodeName},
    state::{ReduceError, State, StateError, Update, contained},
};

use serde_json::Value;

use super::indexed::IndexedActivation;

/// The state at the start of a step, on which all its conditions and routes are evaluated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Routing<'a> {
    pub(super) graph: &'a CompiledGraph,
    pub(super) state: &'a State,
    pub(super) visits: &'a Visits,
    pub(super) facts: &'a RunFacts,
}

impl Routing<'_> {
    fn view<'v>(
        &'v self,
        state: &'v State,
        input: &'v Input,
        trigger: &'v Trigger,
    ) -> RouteView<'v> {
        RouteView { state, visits: self.visits, input, trigger, facts: self.facts }
    }

    /// Returns the condition of a node if it is false, so that the node is skipped.
    pub(super) fn false_condition(
        &self,
        IndexedActivation { node, input, trigger, .. }: &IndexedActivation,
    ) -> Result<Option<String>, Failure> {
        let spec = self.graph.spec_at(*node);
        let Some(when) = &spec.when else { return Ok(None) };
        let view = self.view(self.state, input, trigger);
        let holds = without_panic("condition", || when.holds(&view));
        Ok((!holds.map_err(|it| route_failure(&it))?).then(|| when.text().to_owned()))
    }

    /// Returns the needs of the items of a map, which a route of the map has accepted.
    pub(super) fn needs(
        &self,
        order: &dyn ItemOrder,
        items: &[&Value],
        trigger: &Trigger,
    ) -> Result<ItemNeeds, Failure> {
        let view = self.view(self.state, &Input::State, trigger);
        let needs = without_panic("order of items", || order.needs(items, &view));
        needs.map_err(|it| route_failure(&it))
    }

    /// Returns whether a task is not skipped. A task whose condition cannot be evaluated fails, so it counts
    /// as running.
    pub(super) fn will_run(&self, active: &IndexedActivation) -> bool {
        !matches!(self.false_condition(active), Ok(Some(_)))
    }

    /// Checks an update.
    ///
    /// This folds the updates that a reducer may refuse, and checks the size of the state for the rest. A
    /// refusal here is a failure of this node, which can be caught or retried. Several updates of a step that do not fit
    /// together are found at its end ([`Machine::fail_misfits`](super::Machine::fail_misfits)).
    pub(super) fn check_update(&self, update: &Update) -> Result<(), Failure> {
        self.try_update(update).map_err(|error| update_failure(&error))
    }

    fn try_update(&self, update: &Update) -> Result<(), StateError> {
        let schema = self.graph.schema();
        schema.check(update)?;
        let may_refuse = |name: &ChannelName| {
            schema.channel(name.as_str()).is_some_and(|it| it.reducer().may_refuse())
        };
        let own = update.limited_to(may_refuse);
        if own.is_empty() {
            return schema.check_room(self.state, update, |_| true);
        }
        let mut state = self.state.clone();
        schema.fold(&mut state, [&own])?;
        schema.check_room(&state, update, |it| !may_refuse(it))
    }

    /// Checks that the choice of a node is declared. A refusal is a failure of the node.
    pub(super) fn check_choice(&self, index: NodeIndex, goto: &Goto) -> Result<(), Failure> {
        if *goto == Goto::Edges {
            return Ok(());
        }
        let node = self.graph.name_at(index);
        let may_choose = |target: &Target, by_dispatch: bool| {
            self.graph.leaving_at(index).any(|edge| match edge {
                Edge::May { to, is_dispatched, .. } => {
                    *is_dispatched == by_dispatch && to.contains(target)
                }
                Edge::Then { .. } | Edge::Join { .. } | Edge::Route { .. } => false,
            })
        };
        let chosen = goto.chosen();
        if !goto.follows_edges() && chosen.is_empty() && !may_choose(&Target::End, false) {
            let message = format!(
                "`{node}` chose to end its branch, which is not declared with `goto` to `end`"
            );
            return Err(Failure::new(ErrorKind::Other, message));
        }
        for transition in chosen {
            let target = transition.target();
            let undeclared = match transition {
                Transition::To(_) if may_choose(&target, false) => continue,
                Transition::Dispatch(_) if may_choose(&target, true) => continue,
                Transition::Dispatch(_) => {
                    format!(
                        "dispatched an item to `{target}`, which is not declared with `dispatches`"
                    )
                }
                // Only edges lead to a join, so that it waits for each of its nodes.
                Transition::To(_) | Transition::Join(_) => {
                    format!("chose to go to `{target}`, which is not declared with `goto`")
                }
            };
            return Err(Failure::new(ErrorKind::Other, format!("`{node}` {undeclared}")));
        }
        Ok(())
    }

    /// Checks that a node clears only channels that it declares.
    pub(super) fn check_clears(
        &self,
        index: NodeIndex,
        clears: &[ChannelName],
    ) -> Result<(), Failure> {
        let (node, on_finish) =
            (self.graph.name_at(index), &self.graph.policies_at(index).on_finish);
        let Some(undeclared) = clears.iter().find(|it| on_finish.cleared().all(|may| may != *it))
        else {
            return Ok(());
        };
        let message = format!(
            "`{node}` clears `{undeclared}`, which is not declared with `may_clear` or `clears`"
        );
        Err(Failure::new(ErrorKind::Other, message))
    }

    /// Returns where the edges lead after the result of a node, if its choice follows them; see
    /// [`Self::transitions`].
    pub(super) fn by_edges(
        &self,
        active: &IndexedActivation,
        updates: &[&Update],
        goto: &Goto,
    ) -> Result<Vec<Transition>, Failure> {
        // The graph may have changed since the node made its choice.
        self.check_choice(active.node, goto)?;
        if goto.follows_edges() { self.transitions(active, updates) } else { Ok(Vec::new()) }
    }

    /// Returns where the edges of a finished task lead, on the state with these updates one after the other.
    /// A failure is one of a route: the node has finished.
    pub(super) fn transitions(
        &self,
        active: &IndexedActivation,
        updates: &[&Update],
    ) -> Result<Vec<Transition>, Failure> {
        let node = self.graph.name_at(active.node);
        let mut transitions = Vec::new();
        for edge in self.graph.leaving_at(active.node) {
            match edge {
                Edge::May { .. } => (),
                Edge::Then { to, .. } => transitions.push(Transition::To(to.clone())),
                Edge::Join { to, .. } if self.graph.arrives_by_route(node, to) => (),
                Edge::Join { to, .. } => transitions.push(Transition::Join(to.clone())),
                Edge::Route { route, .. } => {
                    let decided = self.evaluate(route.as_ref(), active, updates);
                    let decided = decided.map_err(|it| route_failure(&it))?;
                    transitions.extend(decided.into_iter().map(|it| self.arriving(node, it)));
                }
            }
        }
        Ok(transitions)
    }

    /// Turns a transition to a join that waits for this node into an arrival.
    fn arriving(&self, node: &NodeName, transition: Transition) -> Transition {
        match transition {
            Transition::To(Target::Node(to)) if self.graph.arrives_by_route(node, &to) => {
                Transition::Join(to)
            }
            other => other,
        }
    }

    /// A route reads the state of the step with the update of the finished task, never with those of
    /// siblings.
    fn evaluate(
        &self,
        route: &dyn Route,
        active: &IndexedActivation,
        updates: &[&Update],
    ) -> Result<Vec<Transition>, RouteError> {
        let is_read = |it: &ChannelName| route.reads().is_none_or(|reads| reads.contains(it));
        let mut changed: Option<State> = None;
        for own in updates.iter().map(|it| it.limited_to(is_read)).filter(|it| !it.is_empty()) {
            let state = changed.get_or_insert_with(|| self.state.clone());
            self.graph.schema().fold(state, [&own]).map_err(RouteError::State)?;
        }
        let state = changed.as_ref().unwrap_or(self.state);
        let view = self.view(state, &active.input, &active.trigger);
        let decided = without_panic("route", || as_declared(route, route.decide(&view)?))?;
        let takes_item = |it: &&NodeName| self.graph.takes_item(it);
        match decided.iter().filter_map(node_without_item).find(takes_item) {
            Some(node) => Err(RouteError::WithoutItem(node.to_string())),
            None => Ok(decided),
        }
    }
}

/// Runs code of an author of a graph, and returns a panic as an error.
fn without_panic<T>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, RouteError>,
) -> Result<T, RouteError> {
    contained(work).unwrap_or_else(|message| Err(RouteError::Panicked { what, message }))
}

/// Returns the failure of a route or condition that could not be evaluated.
fn route_failure(error: &RouteError) -> Failure {
    let kind = match error {
        RouteError::Panicked { .. } => ErrorKind::Panic,
        RouteError::State(source) => update_failure(source).kind,
        _ => ErrorKind::Other,
    };
    Failure::of(kind, error)
}

/// Returns the failure of a node whose update the state refused.
/// Returns the failure of a task whose update does not fit beside those of other tasks of its step.
pub(super) fn misfit_failure(error: &StateError) -> Failure {
    let failure = update_failure(error);
    let message =
        format!("it does not fit beside the other results of the step: {}", failure.message);
    Failure { message, ..failure }
}

fn update_failure(error: &StateError) -> Failure {
    let kind = match error {
        StateError::Reduce { source: ReduceError::Panicked { .. }, .. } => ErrorKind::Panic,
        _ => ErrorKind::Other,
    };
    Failure::of(kind, error)
}

/// Returns the node that a transition leads to by its name alone, without an item.
fn node_without_item(transition: &Transition) -> Option<&NodeName> {
    match transition {
        Transition::To(target) => target.node(),
        Transition::Dispatch(_) | Transition::Join(_) => None,
    }
}

/// Checks that the targets are declared: checks, drawings and the worst case rely on the declaration.
fn as_declared(
    route: &dyn Route,
    transitions: Vec<Transition>,
) -> Result<Vec<Transition>, RouteError> {
    let spread = route.spread();
    for (at, transition) in transitions.iter().enumerate() {
        let target = transition.target();
        let is_declared = route.targets().iter().any(|it| it.to == target);
        let has_room = match transition {
            Transition::To(_) => spread != Spread::One || at == 0,
            Transition::Dispatch(_) => spread == Spread::Items,
            // Only the rules turn a choice into an arrival.
            Transition::Join(_) => return Err(RouteError::Undeclared(target.to_string())),
        };
        if !is_declared {
            return Err(RouteError::Undeclared(target.to_string()));
        }
        if !has_room {
            return Err(RouteError::Spread { target: target.to_string(), spread });
        }
    }
    Ok(transitions)
}
