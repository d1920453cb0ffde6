//! Builds the flow model of a draft.
//!
//! It leaves out names without a node or field; the checks of names report them.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    graph::{Defer, RouteChoice, RouteTarget, Spread, Target},
    id::{ChannelName, NodeName},
    state::Schema,
};

use super::{
    Alternative, Arrow, Bits, Bound, Decision, Deferral, Draft, DraftEdge, DraftNode, Ending,
    FlowModel, FlowNode, Join, Outcome, Scope,
};
impl FlowModel {
    /// Builds the flow model of a draft. Nodes and fields keep their order as numbers.
    pub fn of(draft: &Draft<'_>) -> Self {
        let names = draft.nodes.keys().enumerate().map(|(at, it)| (*it, at)).collect();
        let fields = field_numbers(draft.schema);
        let numbers = |channels: &Vec<ChannelName>| {
            channels.iter().map(|it| fields.get(it).copied()).collect()
        };
        let facts = draft.facts.iter().map(numbers).collect();
        let mut model = Self::default();
        model.begin(draft);
        let with_default = with_default(draft.schema, model.fields);
        let routed = draft.routed_arrivals();
        let mut builder = Builder { draft, names, fields, facts, routed, with_default, model };
        builder.build();
        builder.model
    }

    /// Records the fields that are written before the first step.
    fn begin(&mut self, Draft { schema, input, given, facts, .. }: &Draft<'_>) {
        self.fields = schema.channels().len() + facts.len();
        let mut must_assign = Bits::none(self.fields);
        let mut may_assign = must_assign.clone();
        for (at, channel) in schema.channels().iter().enumerate() {
            let is_input = input.contains(channel.name());
            let is_given = channel.default().is_some() || given.contains(channel.name());
            if is_given || (is_input && channel.is_needed_as_input()) {
                must_assign.insert(at);
            }
            if is_given || is_input {
                may_assign.insert(at);
            }
        }
        (self.may_assign_at_start, self.must_assign_at_start) = (may_assign, must_assign);
    }
}

/// Returns the number of each field.
pub fn field_numbers(schema: &Schema) -> BTreeMap<ChannelName, usize> {
    schema.channels().iter().enumerate().map(|(at, it)| (it.name().clone(), at)).collect()
}

/// Returns the fields with a default, as a set of this length; clearing such a field restores its default.
fn with_default(schema: &Schema, length: usize) -> Bits {
    let mut fields = Bits::none(length);
    for (at, channel) in schema.channels().iter().enumerate() {
        if channel.default().is_some() {
            fields.insert(at);
        }
    }
    fields
}

/// Returns a decision between nothing and this alternative.
fn guess(taken: Alternative) -> Decision {
    let alternatives = vec![Alternative::default(), taken];
    Decision { alternatives, edge: None, is_guess: true }
}

struct Builder<'d, 'a> {
    draft: &'d Draft<'a>,
    names: BTreeMap<&'a NodeName, usize>,
    fields: BTreeMap<ChannelName, usize>,
    /// The fields that each fact is about, as far as there are such fields.
    facts: Vec<Vec<Option<usize>>>,
    /// The nodes whose routes decide whether they arrive, each with the join.
    routed: BTreeSet<(&'a NodeName, &'a NodeName)>,
    with_default: Bits,
    model: FlowModel,
}

impl<'a> Builder<'_, 'a> {
    fn build(&mut self) {
        let draft = self.draft;
        self.model.start = draft.start.iter().filter_map(|it| self.number(it)).collect();
        self.model.after_limit = draft.after_limit.and_then(|it| self.arrow(it));
        let mut leaving: BTreeMap<&NodeName, Vec<(usize, &DraftEdge<'_>)>> = BTreeMap::new();
        let mut arriving: BTreeMap<&NodeName, Vec<Arrival>> = BTreeMap::new();
        for (number, edge) in draft.edges.iter().enumerate() {
            if let DraftEdge::Join { from, to, count } = *edge {
                self.join(from, to, count, &mut arriving);
            }
            if let Some(from) = edge.source() {
                leaving.entry(from).or_default().push((number, edge));
            }
        }
        self.model.scopes = self.scopes();
        for (name, node) in &draft.nodes {
            let edges = leaving.remove(name).unwrap_or_default();
            let joins = arriving.remove(name).unwrap_or_default();
            let node = self.node(name, node, &edges, &joins);
            self.model.nodes.push(node);
        }
        self.keep_maps();
    }

    /// Only a node that runs for nothing but items ends once for all of its tasks.
    fn keep_maps(&mut self) {
        let model = &self.model;
        let exhausted = model.nodes.iter().filter_map(|it| Some(it.bound?.exhausted));
        let arrows = model.nodes.iter().flat_map(FlowNode::arrows).chain(exhausted);
        let alone = arrows.filter_map(|it| if let Arrow::Node(to) = it { Some(to) } else { None });
        let joins = model.joins.iter().map(|it| it.node);
        let starts = model.start.iter().copied().chain(model.node_after_limit());
        let others: Vec<usize> = alone.chain(joins).chain(starts).collect();
        for node in others {
            self.model.nodes[node].ends_once = false;
        }
    }

    fn number(&self, name: &NodeName) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Adds a join. A node with several joins counts as one that waits for all of their nodes.
    fn join(
        &mut self,
        from: &'a [NodeName],
        to: &NodeName,
        count: usize,
        arriving: &mut BTreeMap<&'a NodeName, Vec<Arrival>>,
    ) {
        let Some(node) = self.number(to) else { return };
        let at = self.model.joins.iter().position(|it| it.node == node);
        let at = at.unwrap_or_else(|| {
            self.model.joins.push(Join { node, awaited: Vec::new(), count: 0 });
            self.model.joins.len() - 1
        });
        self.model.joins[at].count += count;
        for name in from {
            let awaited = &mut self.model.joins[at].awaited;
            if let Some(from) = self.names.get(name)
                && !awaited.contains(from)
            {
                awaited.push(*from);
                let is_routed = self.routed.contains(&(name, to));
                arriving.entry(name).or_default().push(Arrival { join: at, is_routed });
            }
        }
    }

    fn node(
        &self,
        name: &NodeName,
        DraftNode { policies, has_condition, may_assign, must_assign }: &DraftNode<'_>,
        edges: &[(usize, &DraftEdge<'_>)],
        joins: &[Arrival],
    ) -> FlowNode {
        let mut decisions = Vec::new();
        let mut chosen = Vec::new();
        for (number, edge) in edges {
            match edge {
                DraftEdge::Then { to, .. } => {
                    decisions.extend(self.arrow(to).map(|it| Decision::always(vec![it])));
                }
                DraftEdge::Choice { choices, proved, .. } => {
                    let decision = self.choice(choices, proved);
                    let decision = Decision { edge: Some(*number), ..decision };
                    decisions.push(self.arriving(decision, joins));
                }
                DraftEdge::Guess { targets, spread, .. } => {
                    decisions.extend(self.guesses(targets, *spread, joins));
                }
                DraftEdge::May { to, is_dispatched, .. } => {
                    let arrows = to.iter().filter_map(|it| self.sent(it, *is_dispatched));
                    chosen.extend(arrows.map(|it| guess(Alternative::to(vec![it]))));
                }
                DraftEdge::Join { .. } => (),
            }
        }
        let always = joins.iter().filter(|it| !it.is_routed);
        decisions.extend(always.map(|it| Decision::always(vec![Arrow::Join(it.join)])));
        let mut outcomes = Vec::new();
        if *has_condition {
            outcomes.push(Outcome { ending: Ending::Skipped, decisions: decisions.clone() });
        }
        if !chosen.is_empty() {
            // The code of the node may ignore the edges, or use them as well.
            let instead = Outcome { ending: Ending::Chosen, decisions: chosen.clone() };
            outcomes.push(instead);
            decisions.extend(chosen);
        }
        outcomes.push(Outcome::finished(decisions));
        let caught = policies.catch.iter().filter_map(|it| self.arrow(&it.to));
        outcomes.extend(caught.map(Outcome::caught));
        let exhausted = policies.bounds.exhausted.as_ref().and_then(|it| self.arrow(it));
        let may_end_early = policies.bounds.limits.is_some() && policies.schedule.items.is_some();
        outcomes.extend(exhausted.filter(|_| may_end_early).map(Outcome::exhausted));
        // Nothing is known about a node without declared writes; it counts as writing all fields.
        let fields = |channels: &Option<Vec<ChannelName>>| match channels {
            Some(fields) => self.fields(fields),
            None => self.every_field(),
        };
        let mut may_assign = fields(may_assign);
        let collects = policies.schedule.items.as_ref().and_then(|it| it.failed.as_ref());
        if let Some(failed) = collects.and_then(|it| self.fields.get(it)) {
            may_assign.insert(*failed);
        }
        let decided = outcomes.iter().flat_map(|it| &it.decisions);
        let has_choice = decided.into_iter().any(|it| it.alternatives.len() > 1);
        // A field that the node may clear counts as cleared: no later node can rely on it.
        let cleared: Vec<ChannelName> = policies.on_finish.cleared().cloned().collect();
        let mut clears = self.cleared(&cleared);
        clears.add(&self.ended_facts(&may_assign, &cleared));
        FlowNode {
            outcomes,
            // The limits of a node are used up like its visits.
            bound: policies.bounds.is_bounded().then(|| Bound {
                exhausted: exhausted.unwrap_or(Arrow::Fail),
                has_limits: policies.bounds.limits.is_some(),
            }),
            resets: policies.on_finish.resets.iter().filter_map(|it| self.number(it)).collect(),
            may_assign,
            must_assign: fields(must_assign),
            clears,
            defers: policies.schedule.defer.as_ref().map(|it| self.deferral(name, it)),
            ends_once: policies.schedule.items.is_some() && !has_choice,
        }
    }

    fn deferral(&self, name: &NodeName, defer: &Defer) -> Deferral {
        let (scope, is_last) = match defer {
            Defer::Siblings => (name.scope(), false),
            Defer::Scope(scope) => (Some(scope.as_str()), true),
        };
        let depth = scope.map_or(0, |it| it.split('.').count());
        Deferral { first: self.inside(scope), rank: (depth, !is_last) }
    }

    /// Returns the nodes of a used workflow, or all nodes.
    fn inside(&self, scope: Option<&str>) -> Bits {
        let mut nodes = Bits::none(self.names.len());
        for (name, at) in &self.names {
            if scope.is_none_or(|it| name.strip_scope(it).is_some()) {
                nodes.insert(*at);
            }
        }
        nodes
    }

    fn scopes(&self) -> Vec<Scope> {
        let outer = |it: &&'a str| it.rsplit_once('.').map(|(outer, _)| outer);
        let names = self.names.keys().filter_map(|it| it.scope());
        let all: BTreeSet<&str> =
            names.flat_map(|it| std::iter::successors(Some(it), outer)).collect();
        let scope = |scope: &str| {
            let is_last = |(name, node): &(&&NodeName, &DraftNode<'_>)| {
                name.scope() == Some(scope)
                    && matches!(&node.policies.schedule.defer, Some(Defer::Scope(it)) if it.as_str() == scope)
            };
            let last = self.draft.nodes.iter().filter(is_last);
            Scope {
                nodes: self.inside(Some(scope)),
                last: last.filter_map(|(name, _)| self.number(name)).collect(),
            }
        };
        all.into_iter().map(scope).collect()
    }

    fn fields(&self, names: &[ChannelName]) -> Bits {
        let mut found = Bits::none(self.model.fields);
        for name in names {
            if let Some(at) = self.fields.get(name) {
                found.insert(*at);
            }
        }
        found
    }

    /// Returns the fields that are unwritten after they are cleared.
    fn cleared(&self, names: &[ChannelName]) -> Bits {
        let mut cleared = self.fields(names);
        cleared.remove(&self.with_default);
        cleared
    }

    fn every_field(&self) -> Bits {
        let mut fields = Bits::none(self.model.fields);
        for at in self.fields.values() {
            fields.insert(*at);
        }
        fields
    }

    /// Returns the facts that end when a node writes or clears these fields.
    fn ended_facts(&self, written: &Bits, cleared: &[ChannelName]) -> Bits {
        let mut ended = Bits::none(self.model.fields);
        let cleared = self.fields(cleared);
        for (at, of) in self.facts.iter().enumerate() {
            let is_changed = |it: usize| written.contains(it) || cleared.contains(it);
            if of.iter().any(|it| it.is_none_or(is_changed)) {
                ended.insert(self.fields.len() + at);
            }
        }
        ended
    }

    fn arrow(&self, to: &Target) -> Option<Arrow> {
        match to {
            Target::Node(name) => self.number(name).map(Arrow::Node),
            Target::End => Some(Arrow::End),
            Target::Fail => Some(Arrow::Fail),
        }
    }

    fn sent(&self, to: &Target, is_dispatched: bool) -> Option<Arrow> {
        self.arrow(to).map(|arrow| match arrow {
            Arrow::Node(node) if is_dispatched => Arrow::Tasks(node),
            other => other,
        })
    }

    /// Turns targets that are joins into arrivals.
    fn arriving(&self, mut decision: Decision, joins: &[Arrival]) -> Decision {
        for arrow in decision.alternatives.iter_mut().flat_map(|it| &mut it.arrows) {
            if let Some(arrival) = self.arrival(*arrow, joins) {
                *arrow = Arrow::Join(arrival.join);
            }
        }
        decision
    }

    /// Returns the arrival that a route chooses by the name of the join.
    fn arrival<'j>(&self, arrow: Arrow, joins: &'j [Arrival]) -> Option<&'j Arrival> {
        joins.iter().find(|it| arrow == Arrow::Node(self.model.joins[it.join].node))
    }

    fn choice(&self, choices: &[RouteChoice], proved: &[Vec<usize>]) -> Decision {
        let alternative = |(at, choice): (usize, &RouteChoice)| {
            let facts = proved.get(at).into_iter().flatten().map(|it| self.fields.len() + it);
            Alternative {
                arrows: choice
                    .to
                    .iter()
                    .filter_map(|to| self.sent(to, choice.is_dispatched))
                    .collect(),
                known: choice
                    .known
                    .iter()
                    .filter_map(|it| self.fields.get(it).copied())
                    .chain(facts)
                    .collect(),
            }
        };
        Decision::one_of(choices.iter().enumerate().map(alternative).collect())
    }

    fn guesses(&self, targets: &[RouteTarget], spread: Spread, joins: &[Arrival]) -> Vec<Decision> {
        let named = targets.iter().filter_map(|it| self.arrow(&it.to));
        let alternative = |it| Alternative::to(vec![it]);
        let decisions: Vec<Decision> = match spread {
            Spread::One => {
                let none = [Alternative::default()];
                vec![Decision::one_of(named.map(alternative).chain(none).collect())]
            }
            Spread::Several => named.map(|it| guess(alternative(it))).collect(),
            Spread::Items => {
                // Tasks also stand for the choice of a node by its name, unless that is an arrival.
                let sent = targets.iter().filter_map(|it| self.sent(&it.to, true));
                let arrivals = named.filter(|it| self.arrival(*it, joins).is_some());
                sent.chain(arrivals).map(|it| guess(alternative(it))).collect()
            }
        };
        decisions.into_iter().map(|it| self.arriving(it, joins)).collect()
    }
}

/// The arrival of a node at a join that awaits it.
struct Arrival {
    join: usize,
    /// Whether a route of the node decides if it arrives.
    is_routed: bool,
}
