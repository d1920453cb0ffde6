//! Data flow: the fields that may be assigned, and those that must be assigned, when a node runs.
//!
//! It reads the file before the lowering, because the checks of expressions and prompts need it. It
//! skips invalid parts; the lowering reports those.

mod paths;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_analysis::flow_model::{
    Alternative, Arrow, Assigned, Bits, Bound, Decision, Deferral, Ending, FlowModel, FlowNode,
    Join, Outcome, field_numbers, with_default,
};
use graphrun_core::{
    graph::{Node, Target},
    id::{ChannelName, NodeName},
    state::Schema,
};

pub(super) use self::paths::Paths;
use super::{
    Workflow,
    declarations::{Declarations, Follows},
    expression::known_after,
    reader::{Data, Entry, Yaml},
    registry::Registry,
    written::AssignedFields,
};
/// The assigned fields before and after each node.
#[derive(Debug)]
pub(super) struct Flow {
    nodes: BTreeMap<NodeName, usize>,
    paths: Arc<Paths>,
}

/// The inputs of the data flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'a> {
    pub(super) root: &'a Yaml,
    pub(super) declarations: &'a Declarations,
    pub(super) schema: &'a Schema,
    pub(super) input: &'a [ChannelName],
    pub(super) registry: &'a Registry,
    /// The used workflows, by the node that uses them.
    pub(super) loaded: &'a BTreeMap<NodeName, Workflow>,
}

impl Flow {
    /// Computes the flow. The checks never report a `vague` field as unassigned.
    pub(super) fn of(sources: Sources<'_>, vague: &BTreeSet<ChannelName>) -> Self {
        let Sources { root, declarations, .. } = sources;
        let names: Vec<NodeName> = declarations.nodes.iter().cloned().collect();
        let nodes: BTreeMap<NodeName, usize> =
            names.iter().enumerate().map(|(at, it)| (it.clone(), at)).collect();
        let range = |it: Option<&Yaml>| it.map_or(0..0, |it| it.range.clone());
        let start = range(root.get("start"));
        let limit = range(root.get("limits").and_then(|it| it.get("exhausted")));
        let mut places = vec![start.clone(); names.len()];
        for entry in root.get("nodes").map(Yaml::entries).unwrap_or_default() {
            if let Some(at) = nodes.get(entry.key.text.as_str()) {
                places[*at] = entry.key.range.clone();
            }
        }
        let fields = field_numbers(sources.schema);
        let builder =
            FlowModelBuilder { sources, nodes: &nodes, fields: &fields, net: FlowModel::default() };
        let net = builder.build(vague);
        let assigned = Assigned::of(&net);
        let paths = Paths { net, assigned, fields, names, places, start, limit };
        Self { nodes, paths: Arc::new(paths) }
    }

    /// The fields that are assigned whenever a run is done.
    pub(super) fn at_end(&self) -> BTreeSet<ChannelName> {
        let written = self.paths.net.written_at_end();
        let fields = self.paths.fields.iter().filter(|(_, at)| written.contains(**at));
        fields.map(|(name, _)| name.clone()).collect()
    }

    /// The fields that are assigned when a node starts.
    pub(super) fn before(&self, node: &NodeName) -> AssignedFields {
        match self.nodes.get(node) {
            Some(node) => AssignedFields::before(&self.paths, *node),
            None => AssignedFields::at_start(&self.paths),
        }
    }

    /// The fields that are assigned when a node starts that has run before since its count was last
    /// reset.
    pub(super) fn before_again(&self, node: &NodeName) -> AssignedFields {
        match self.nodes.get(node) {
            Some(node) => AssignedFields::before_again(&self.paths, *node),
            None => AssignedFields::at_start(&self.paths),
        }
    }

    /// The fields that are assigned when a node has finished.
    pub(super) fn after(&self, node: &NodeName) -> AssignedFields {
        match self.nodes.get(node) {
            Some(node) => AssignedFields::after(&self.paths, *node),
            None => AssignedFields::at_start(&self.paths),
        }
    }
}

/// Makes the flow model of a file.
struct FlowModelBuilder<'a> {
    sources: Sources<'a>,
    nodes: &'a BTreeMap<NodeName, usize>,
    fields: &'a BTreeMap<ChannelName, usize>,
    net: FlowModel,
}

impl FlowModelBuilder<'_> {
    fn build(mut self, vague: &BTreeSet<ChannelName>) -> FlowModel {
        let Sources { root, declarations, schema, input, .. } = self.sources;
        self.net.begin(schema, input);
        self.doubt_the_start(vague);
        self.net.nodes = vec![FlowNode::new(self.net.fields); self.nodes.len()];
        self.net.start = root.get("start").map(|it| self.named(it)).unwrap_or_default();
        let limit = root.get("limits").and_then(|it| it.get("exhausted"));
        self.net.after_limit = limit.and_then(|it| self.named(it).first().copied());
        let entries = root.get("nodes").map(Yaml::entries).unwrap_or_default();
        for (node, awaited) in &declarations.joins {
            let awaited: Vec<usize> = awaited.iter().map(|it| self.nodes[it]).collect();
            self.join(self.nodes[node], &awaited);
        }
        let mut then: Vec<Vec<Decision>> = vec![Vec::new(); self.nodes.len()];
        for entry in entries {
            self.follow(entry, &mut then);
        }
        for entry in entries {
            if let Some((name, at)) = self.nodes.get_key_value(entry.key.text.as_str()) {
                let then = std::mem::take(&mut then[*at]);
                self.net.nodes[*at] = self.node((*at, name), &entry.value, then);
            }
        }
        self.net
    }

    /// Fields that were probably meant as assigned before the first step count as assigned.
    fn doubt_the_start(&mut self, vague: &BTreeSet<ChannelName>) {
        let input = self.sources.root.get("input").map(words).unwrap_or_default();
        let mut doubted = Bits::none(self.net.fields);
        if input.iter().any(|it| !self.fields.contains_key(*it)) {
            doubted = Bits::all(self.net.fields);
        }
        for at in vague.iter().filter_map(|it| self.fields.get(it)) {
            doubted.insert(*at);
        }
        self.net.maybe_at_start.add(&doubted);
        self.net.surely_at_start.add(&doubted);
    }

    /// Adds the decisions behind a node, a `map` or a `parallel`.
    fn follow(&mut self, Entry { key, value }: &Entry, then: &mut [Vec<Decision>]) {
        let declarations = self.sources.declarations;
        let head = declarations.nodes.get(key.text.as_str());
        let group = declarations.groups.get_key_value(key.text.as_str()).map(|(name, _)| name);
        let Some(name) = head.or(group) else { return };
        let decision = match (declarations.follows(name), value.get("then")) {
            (Follows::Then | Follows::Next(_), Some(written)) => self.decision(written),
            (Follows::Next(next), None) => {
                let next = declarations.starts(&next).into_iter();
                let arrow = |it: NodeName| Arrow::Node(self.nodes[&it]);
                Decision::always(next.map(arrow).collect())
            }
            _ => return,
        };
        let ends: Vec<usize> = declarations.ends(name).iter().map(|it| self.nodes[it]).collect();
        if let (Some(map), Some(_)) = (self.nodes.get(name), declarations.maps.get(name)) {
            let mut alternatives = self.leading(*map, decision.clone()).alternatives;
            alternatives.extend(ends.iter().map(|it| Alternative::to(vec![Arrow::Tasks(*it)])));
            then[*map].push(Decision::one_of(alternatives));
        }
        let decision = match group {
            Some(_) => {
                let mut decision = self.gathering(&ends, decision);
                if declarations.vague.contains(name) {
                    // A branch that does not exist may have assigned every field.
                    let all = decision.alternatives.iter_mut();
                    all.for_each(|it| it.known.extend(0..self.net.fields));
                }
                decision
            }
            None => decision,
        };
        for end in ends {
            then[end].push(self.leading(end, decision.clone()));
        }
    }

    /// Whether a node has a `join` with an unknown node.
    fn waits_for_unknown(&self, node: usize) -> bool {
        let Declarations { vague, joins, .. } = self.sources.declarations;
        let waits = |it: &&NodeName| self.nodes.get(*it) == Some(&node) && joins.contains_key(*it);
        vague.iter().any(|it| waits(&it))
    }

    /// An edge to a join that awaits this node becomes an arrival.
    fn leading(&self, from: usize, mut decision: Decision) -> Decision {
        for Alternative { arrows, known } in &mut decision.alternatives {
            let waits = |it: &Arrow| matches!(*it, Arrow::Node(to) if self.waits_for_unknown(to));
            if arrows.iter().any(waits) {
                // The other awaited nodes may have assigned every field.
                known.extend(0..self.net.fields);
            }
            for arrow in arrows {
                let awaits =
                    |it: &Join| *arrow == Arrow::Node(it.node) && it.awaited.contains(&from);
                if let Some(at) = self.net.joins.iter().position(awaits) {
                    *arrow = Arrow::Join(at);
                }
            }
        }
        decision
    }

    /// The decision behind a `parallel`, which waits for all of its branches.
    fn gathering(&mut self, ends: &[usize], mut decision: Decision) -> Decision {
        let arrows = decision.alternatives.iter_mut().flat_map(|it| &mut it.arrows);
        for arrow in arrows {
            if let Arrow::Node(node) = *arrow {
                *arrow = Arrow::Join(self.join(node, ends));
            }
        }
        decision
    }

    fn node(&self, (at, name): (usize, &NodeName), yaml: &Yaml, then: Vec<Decision>) -> FlowNode {
        let fields = self.net.fields;
        let arrow = |it: &Yaml| self.arrows(it).first().copied();
        let exhausted = yaml.get("exhausted").and_then(arrow);
        let bounded = yaml.get("max_visits").is_some() || exhausted.is_some();
        let (maybe, surely) = self.writes(name, yaml);
        let clears = yaml.get("clears").and_then(|it| self.fields(&words(it)));
        let clears = clears.map(|mut it| {
            it.remove(&with_default(self.sources.schema));
            it
        });
        let mut outcomes = vec![Outcome::finished(then)];
        if yaml.get("when").is_some() {
            let decisions = outcomes[0].decisions.clone();
            outcomes.push(Outcome { ending: Ending::Skipped, decisions });
        }
        outcomes.extend(self.caught(at, yaml).into_iter().map(Outcome::caught));
        FlowNode {
            outcomes,
            bound: bounded.then(|| Bound { exhausted: exhausted.unwrap_or(Arrow::Fail) }),
            resets: yaml.get("resets").map(|it| self.named(it)).unwrap_or_default(),
            maybe,
            surely,
            // If a part of the workflow is unknown, clears count as nothing: the order of
            // assignments and clears is then unknown too.
            clears: clears
                .filter(|_| self.sources.declarations.vague.is_empty())
                .unwrap_or_else(|| Bits::none(fields)),
            defers: (yaml.get("defer").and_then(Yaml::text) == Some("true"))
                .then(|| Deferral { first: Bits::all(self.nodes.len()), rank: (0, true) }),
        }
    }

    /// A node with two joins counts as one join over all awaited nodes.
    fn join(&mut self, node: usize, awaited: &[usize]) -> usize {
        let joins = &mut self.net.joins;
        let at = joins.iter().position(|it| it.node == node).unwrap_or(joins.len());
        if at == joins.len() {
            joins.push(Join { node, awaited: Vec::new() });
        }
        for node in awaited {
            if !joins[at].awaited.contains(node) {
                joins[at].awaited.push(*node);
            }
        }
        at
    }

    /// The value of `then`, in any of its forms.
    fn decision(&self, then: &Yaml) -> Decision {
        let alternatives: Vec<Alternative> = match &then.data {
            Data::Map(_) => {
                let to = then.get("to").map(Yaml::entries).unwrap_or_default();
                to.iter().map(|it| Alternative::to(self.arrows(&it.value))).collect()
            }
            Data::List(items) if items.iter().any(|it| matches!(it.data, Data::Map(_))) => {
                self.cases(items)
            }
            Data::List(_) | Data::Scalar { .. } => vec![Alternative::to(self.arrows(then))],
            Data::Null => Vec::new(),
        };
        Decision::one_of(alternatives)
    }

    /// Cases are tried in order: a case is taken if its condition is true and all earlier ones are
    /// false.
    fn cases(&self, items: &[Yaml]) -> Vec<Alternative> {
        let mut known: Vec<usize> = Vec::new();
        let mut cases = Vec::new();
        for item in items {
            let when = item.get("when").and_then(Yaml::text).map(known_after);
            let (holds, fails) = when.unwrap_or_default();
            let fields = |names: Vec<String>| {
                let found = |it: String| self.fields.get(it.as_str()).copied();
                names.into_iter().filter_map(found).collect::<Vec<usize>>()
            };
            if let Some(to) = item.get("to") {
                let mut known = known.clone();
                known.extend(fields(holds));
                cases.push(Alternative { arrows: self.arrows(to), known });
            }
            known.extend(fields(fails));
        }
        cases
    }

    /// The targets of failures: the node's own `catch` first, then `defaults` for other kinds.
    fn caught(&self, at: usize, yaml: &Yaml) -> Vec<Arrow> {
        let own = yaml.get("catch").map(Yaml::entries).unwrap_or_default();
        let defaults = self.sources.root.get("defaults").and_then(|it| it.get("catch"));
        let mut caught: Vec<Arrow> = own.iter().flat_map(|it| self.arrows(&it.value)).collect();
        for default in defaults.map(Yaml::entries).unwrap_or_default() {
            let is_covered =
                own.iter().any(|it| it.key.text == default.key.text || it.key.text == "any");
            if !is_covered {
                let to = self.arrows(&default.value);
                caught.extend(to.into_iter().filter(|it| *it != Arrow::Node(at)));
            }
        }
        caught
    }

    /// The may-assign and must-assign sets of a node that finishes.
    fn writes(&self, name: &NodeName, yaml: &Yaml) -> (Bits, Bits) {
        if let Some(custom) = yaml.get("node").and_then(Yaml::text) {
            let node = self.sources.registry.custom(custom);
            return self.writes_of(node.as_deref());
        }
        if let Some(used) = yaml.get("use") {
            return self.writes_of_use(name, used);
        }
        let declarations = self.sources.declarations;
        let is_vague = declarations.vague.contains(name) && !declarations.joins.contains_key(name);
        let kinds = self.sources.registry.kinds().iter();
        let kinds = kinds.filter(|it| yaml.get(it.key()).is_some());
        let mut keys: BTreeSet<&str> = ["writes"].into();
        let mut lacks_writes = false;
        for kind in kinds {
            lacks_writes |= kind.requires("writes") && yaml.get("writes").is_none();
            keys.extend(kind.keys_of_written_fields());
        }
        if is_vague || lacks_writes {
            return self.known(None, None);
        }
        let written: Vec<&str> =
            keys.into_iter().filter_map(|it| yaml.get(it)).flat_map(words).collect();
        self.known(self.fields(&written), self.fields(&written))
    }

    /// The fields taken from a used workflow. Fields that it assigns on every way are certain.
    fn writes_of_use(&self, name: &NodeName, used: &Yaml) -> (Bits, Bits) {
        let Some(out) = used.get("out") else {
            return (Bits::none(self.net.fields), Bits::none(self.net.fields));
        };
        let loaded = self.sources.loaded.get(name);
        let is_sure = |it: &&Entry| {
            let settled = |workflow: &Workflow| {
                it.value.text().is_some_and(|field| workflow.settled.contains(field))
            };
            // A workflow that failed to load causes no further findings.
            loaded.is_none_or(settled)
        };
        let surely = out.entries().iter().filter(is_sure).map(|it| it.key.text.as_str());
        self.known(self.fields(&keys(out)), self.fields(&surely.collect::<Vec<_>>()))
    }

    fn writes_of(&self, node: Option<&dyn Node>) -> (Bits, Bits) {
        let described = node.map(Node::describe).unwrap_or_default();
        let maybe = described.contract.writes;
        let surely = described.writes_always.or_else(|| maybe.clone());
        let fields = |it: Option<Vec<ChannelName>>| {
            self.fields(&it?.iter().map(ChannelName::as_str).collect::<Vec<_>>())
        };
        self.known(fields(maybe), fields(surely))
    }

    /// A node without a valid `writes` counts as assigning every field, so that no reader of its
    /// fields is reported.
    fn known(&self, maybe: Option<Bits>, surely: Option<Bits>) -> (Bits, Bits) {
        let all = || Bits::all(self.net.fields);
        maybe.zip(surely).unwrap_or_else(|| (all(), all()))
    }

    /// The set of these fields, or `None` if one is unknown.
    fn fields(&self, names: &[&str]) -> Option<Bits> {
        let mut found = Bits::none(self.net.fields);
        for name in names {
            found.insert(*self.fields.get(*name)?);
        }
        Some(found)
    }

    /// The nodes named by a text or a list of texts.
    fn named(&self, yaml: &Yaml) -> Vec<usize> {
        let node = |it: Arrow| match it {
            Arrow::Node(node) => Some(node),
            _ => None,
        };
        self.arrows(yaml).into_iter().filter_map(node).collect()
    }

    fn arrows(&self, yaml: &Yaml) -> Vec<Arrow> {
        let targets =
            words(yaml).into_iter().filter_map(|it| self.sources.declarations.targets(it));
        let arrow = |it: Target| match it {
            Target::Node(name) => self.nodes.get(&name).map(|it| Arrow::Node(*it)),
            Target::End => Some(Arrow::End),
            Target::Fail => Some(Arrow::Fail),
        };
        targets.flatten().filter_map(arrow).collect()
    }
}

/// A text, the texts of a list, or the keys of a mapping.
fn words(yaml: &Yaml) -> Vec<&str> {
    match &yaml.data {
        Data::Map(_) => keys(yaml),
        Data::List(_) => yaml.items().iter().filter_map(Yaml::text).collect(),
        Data::Scalar { .. } | Data::Null => yaml.text().into_iter().collect(),
    }
}

fn keys(yaml: &Yaml) -> Vec<&str> {
    yaml.entries().iter().map(|it| it.key.text.as_str()).collect()
}
