//! The outcomes of nodes that affect where a run continues: all values of enums and booleans that a
//! condition reads, numbers around those it names, and each kind of failure that is caught.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use serde_json::Value;

use super::{
    AFTER_ALL_WAITS,
    combinations::{Combinations, combinations},
    keyed_items::KeyedItems,
    leaves::Leaves,
    placed::placed,
};
use crate::{
    compile::CompiledGraph,
    engine::machine::Task,
    graph::{
        Access, Command, ErrorKind, Failure, NodeContext, NodeDescription, NodeError,
        ProvidedValues, Question, Reporter, SavedValues, SideEffects,
    },
    id::{ChannelName, NodeName, RunId},
    state::{Channel, Type, Update, complete, smallest},
    workflow::{
        Workflow,
        case_file::{accesses, computed},
    },
};

/// The maximum number of values of one field.
const VALUES_MAX: usize = 256;
/// The number of items of a map that fail together in a run: the lists that are tried have at least so many items.
const FAILURES_MAX: u32 = 2;
/// The field of a failure in a list with its kind.
const KIND: &str = "kind";
/// The maximum number of outcomes of one node.
const OUTCOMES_MAX: usize = 1_024;

/// A possible outcome of a node.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// A description; empty if there is no choice.
    pub(super) label: String,
    pub(super) result: Result<Command, Failure>,
    /// Whether it is a failure that the workflow expects, because a `catch` handles it.
    pub(super) is_expected: bool,
    /// Whether its attempt uses up the limits of its node.
    pub(super) uses_up_limits: bool,
}

impl Outcome {
    fn new(label: String, result: Result<Command, Failure>) -> Self {
        Self { label, result, is_expected: false, uses_up_limits: false }
    }
}

/// The outcomes of nodes, computed once for each node.
#[derive(Debug)]
pub(super) struct Outcomes<'a> {
    graph: &'a CompiledGraph,
    accesses: Vec<Access>,
    keyed_items: KeyedItems,
    /// The nodes whose tasks are nested runs. Any result that fits their fields is an outcome of them.
    nested: BTreeSet<NodeName>,
    made: BTreeMap<NodeName, Vec<Outcome>>,
    /// The possible messages to a run, once they are needed.
    messages: Option<Vec<(String, ChannelName, Value)>>,
    /// Descriptions of the cases that could not be tried.
    pub(super) gaps: BTreeSet<String>,
    /// Whether there were more outcomes than it returned.
    pub(super) is_sampled: bool,
    /// Descriptions of the values that were not tried and may lead to more nodes.
    pub(super) untried: BTreeSet<String>,
}

/// A value with its description.
type Named = (String, Value);

impl<'a> Outcomes<'a> {
    pub(super) fn new(definition: &Workflow, graph: &'a CompiledGraph) -> Self {
        let mut accesses = accesses(definition, graph.definition());
        // A division fails at zero, or where a constant is added to zero.
        let failing = computed(definition, graph.definition()).into_iter();
        let failing = failing.filter(|it| it.from.may_fail).flat_map(|it| it.from.fields);
        accesses.extend(failing.map(|mut it| {
            it.numbers.push(0);
            it
        }));
        let keyed_items = KeyedItems::of(graph.definition());
        let nested = definition.nested.keys().cloned().collect();
        Self {
            graph,
            accesses,
            keyed_items,
            nested,
            made: BTreeMap::new(),
            messages: None,
            gaps: BTreeSet::new(),
            is_sampled: false,
            untried: BTreeSet::new(),
        }
    }

    /// Returns the possible inputs of a run.
    pub(super) fn inputs(&mut self) -> Vec<(String, Update)> {
        let graph = self.graph;
        let is_needed = |name: &&ChannelName| {
            let channel = graph.schema().channel(name.as_str());
            channel.is_some_and(|it| it.default().is_none() || self.looks_at(it.name()))
        };
        let channels: Vec<ChannelName> =
            graph.definition().input.iter().filter(is_needed).cloned().collect();
        self.updates("the input", &channels, &[])
    }

    /// Returns the possible messages to a run, with their channels: those that affect a decision.
    pub(super) fn messages(&mut self) -> Vec<(String, ChannelName, Value)> {
        if let Some(made) = &self.messages {
            return made.clone();
        }
        let schema = self.graph.schema().clone();
        let mut messages = Vec::new();
        for name in &self.graph.definition().inbox {
            let Some(channel) = schema.channel(name.as_str()).filter(|_| self.looks_at(name))
            else {
                continue;
            };
            self.untried.insert(format!("more than one message to `{name}`"));
            for (label, list) in self.channel_values(channel, true) {
                let Value::Array(mut items) = list else { continue };
                messages.extend(items.pop().map(|it| (label, name.clone(), it)));
            }
        }
        self.messages = Some(messages.clone());
        messages
    }

    /// Returns the possible outcomes of the node of a task.
    pub(super) fn of(&mut self, run: &RunId, task: &Task) -> Vec<Outcome> {
        let graph = self.graph;
        let spec = graph.node(&task.node).expect("the rules run only nodes of the graph");
        let is_nested = self.nested.contains(&task.node);
        let description = spec.describe();
        // A wait reads only times, and the values that are tried are rather none.
        let computes =
            description.side_effects == SideEffects::Nothing && description.kind != "wait";
        if !is_nested && computes {
            // The result depends on the state, so it cannot be cached.
            return self.computed(run, task);
        }
        if let Some(made) = self.made.get(&task.node) {
            return made.clone();
        }
        let NodeDescription { contract, writes_always, writes_one, .. } = description;
        let Some(writes) = &contract.writes else {
            self.gaps.insert(format!(
                "`{}` does not declare its writes; the exploration assumes none",
                task.node
            ));
            let label = String::new();
            let result = Ok(Command::default());
            return vec![Outcome::new(label, result)];
        };
        for field in
            writes_always.iter().flat_map(|it| writes.iter().filter(|field| !it.contains(field)))
        {
            if self.looks_at(field) {
                let node = &task.node;
                self.untried.insert(format!("an outcome of `{node}` without a value of `{field}`"));
            }
        }
        let updates = self.updates(&format!("`{}`", task.node), writes, writes_one);
        let finished = |(label, update): (String, Update)| Outcome::new(label, Ok(update.into()));
        let mut outcomes: Vec<Outcome> = updates.into_iter().map(finished).collect();
        outcomes.extend(self.failures(&task.node));
        if spec.policies.bounds.limits.is_some() {
            let used_up = outcomes.clone().into_iter().map(|outcome| Outcome {
                label: joined(&outcome.label, "its limits are used up"),
                uses_up_limits: true,
                ..outcome
            });
            outcomes.extend(used_up);
        }
        self.made.insert(task.node.clone(), outcomes.clone());
        outcomes
    }

    /// Returns each kind of failure that the node catches; one kind represents `any`. Of an item of a map that collects
    /// failures, also each kind that a decision names.
    fn failures(&mut self, node: &NodeName) -> Vec<Outcome> {
        let spec = self.graph.node(node).expect("the rules run only nodes of the graph");
        let caught = spec.policies.catch.iter().map(|it| it.kind.unwrap_or(ErrorKind::Other));
        let mut kinds: Vec<ErrorKind> = caught.collect();
        let items = spec.policies.schedule.items.as_ref();
        if let Some(list) = items.and_then(|it| it.failed.as_ref()) {
            let accesses = self.accesses.iter().filter(|it| it.channel == *list);
            let named = accesses.clone().flat_map(|it| &it.texts);
            let named = named.filter_map(|it| ErrorKind::named(it)).chain([ErrorKind::Other]);
            let named: BTreeSet<ErrorKind> = named.collect();
            let is_new = |it: &ErrorKind| {
                !kinds.contains(it) && Failure::new(*it, String::new()).ends_its_task()
            };
            let new: Vec<ErrorKind> = named.into_iter().filter(is_new).collect();
            kinds.extend(new);
            if accesses.clone().any(|it| !is_tried(it)) {
                self.untried.insert(format!(
                    "every failure of `{node}` in `{list}`: the tried ones are few of many"
                ));
            }
        }
        kinds.into_iter().map(|it| failure(node, it)).collect()
    }

    /// Runs a node without side effects, and answers its question with each distinct valid answer.
    fn computed(&mut self, run: &RunId, task: &Task) -> Vec<Outcome> {
        let result = match self.run(run, task, SavedValues::default()) {
            Some(Err(NodeError::Ask(question))) => return self.answered(run, task, &question),
            other => other,
        };
        self.outcome(task, String::new(), result).into_iter().collect()
    }

    fn answered(&mut self, run: &RunId, task: &Task, question: &Question) -> Vec<Outcome> {
        let written =
            self.graph.node(&task.node).and_then(|it| it.describe().contract.writes.as_ref());
        let channel = written.into_iter().flatten().next().cloned();
        let accesses: Vec<Access> = self.accesses.clone();
        let accesses = accesses.into_iter().filter(|it| Some(&it.channel) == channel.as_ref());
        let accesses: Vec<Access> = accesses.collect();
        let what = format!("an answer to `{}`", task.node);
        let values =
            self.values(&what, &question.schema, &accesses, &|it| question.check(it).is_ok());
        let mut outcomes = Vec::new();
        for (label, value) in values {
            let answers = [(question.key.clone(), value)].into_iter().collect();
            let result = self.run(run, task, answers);
            outcomes.extend(self.outcome(task, label, result));
        }
        // A question can only fail by its deadline, if it has one.
        let catch = self.graph.node(&task.node).map(|it| it.policies.catch.as_slice());
        let mut kinds = catch.unwrap_or_default().iter().map(|it| it.kind);
        let is_caught = kinds.any(|kind| kind.is_none_or(|it| it == ErrorKind::Timeout));
        if question.deadline.is_some() && is_caught {
            outcomes.push(failure(&task.node, ErrorKind::Timeout));
        }
        outcomes
    }

    fn outcome(
        &mut self,
        task: &Task,
        label: String,
        result: Option<Result<Command, NodeError>>,
    ) -> Option<Outcome> {
        let result = match result {
            Some(Ok(command)) => Ok(command),
            // A retry would have the same result.
            Some(Err(NodeError::Failed(failure))) => Err(Failure { transient: false, ..*failure }),
            Some(Err(NodeError::Ask(_) | NodeError::Wait(_))) => {
                self.gaps.insert(format!("`{}` asks more than one question", task.node));
                return None;
            }
            None => {
                self.gaps.insert(format!("`{}` waits for something", task.node));
                return None;
            }
        };
        Some(Outcome::new(label, result))
    }

    fn run(
        &self,
        run: &RunId,
        task: &Task,
        answers: SavedValues,
    ) -> Option<Result<Command, NodeError>> {
        let spec = self.graph.node(&task.node).expect("the rules run only nodes of the graph");
        let reporter = Reporter::default();
        let ctx = NodeContext {
            facts: task.facts.clone(),
            provided: ProvidedValues::default(),
            run: run.clone(),
            task: task.id,
            node: task.node.clone(),
            original: None,
            attempt: task.attempt,
            visits: task.visits.clone(),
            max_visits: spec.policies.bounds.max_visits_in(&task.state),
            began: AFTER_ALL_WAITS,
            timeout: spec.policies.attempts.timeout,
            idle_timeout: spec.policies.attempts.idle_timeout,
            state: task.state.clone(),
            input: task.input.clone(),
            trigger: task.trigger.clone(),
            cancel: reporter.cancel(),
            answers,
            memos: SavedValues::default(),
            reporter,
        };
        spec.node().run(ctx).now_or_never()
    }

    /// Returns all combinations of values for some fields, of which some are lists with one item.
    fn updates(
        &mut self,
        what: &str,
        writes: &[ChannelName],
        writes_one: &[ChannelName],
    ) -> Vec<(String, Update)> {
        let schema = self.graph.schema().clone();
        let channels = writes.iter().filter_map(|it| schema.channel(it.as_str()));
        let values: Vec<(&ChannelName, Vec<Named>)> = channels
            .map(|channel| {
                (channel.name(), self.channel_values(channel, writes_one.contains(channel.name())))
            })
            .filter(|(_, values)| !values.is_empty())
            .collect();
        let lengths: Vec<usize> = values.iter().map(|(_, it)| it.len()).collect();
        let chosen = combinations(&lengths, OUTCOMES_MAX);
        let chosen = self.all_or_some(chosen, what, "outcomes");
        let update = |choice: Vec<usize>| {
            let none = (String::new(), Update::default());
            values.iter().zip(choice).fold(none, |(label, update), ((name, values), at)| {
                let (more, value) = &values[at];
                (joined(&label, more), update.write(ChannelName::clone(name), value.clone()))
            })
        };
        chosen.into_iter().map(update).collect()
    }

    /// Returns the chosen combinations, and reports if they are not all.
    fn all_or_some(
        &mut self,
        Combinations { chosen, is_all }: Combinations,
        what: &str,
        noun: &str,
    ) -> Vec<Vec<usize>> {
        if !is_all {
            self.is_sampled = true;
            let count = chosen.len();
            self.gaps.insert(format!("{what} has more than {count} {noun}; {count} were tried"));
        }
        chosen
    }

    fn channel_values(&mut self, channel: &Channel, has_one_item: bool) -> Vec<Named> {
        let name = channel.name();
        let mut schema = channel.schema().clone();
        if has_one_item {
            (schema["minItems"], schema["maxItems"]) = (1.into(), 1.into());
        }
        let accesses: Vec<Access> =
            self.accesses.iter().filter(|it| it.channel == *name).cloned().collect();
        let what = format!("the field `{name}`");
        let has_size =
            |value: &Value| !has_one_item || value.as_array().is_some_and(|it| it.len() == 1);
        let fits = |it: &Value| has_size(it) && channel.check(it).is_ok();
        self.values(&what, &schema, &accesses, &fits)
    }

    /// Returns the values of a schema that the access sets distinguish.
    fn values(
        &mut self,
        what: &str,
        schema: &Value,
        accesses: &[Access],
        fits: &dyn Fn(&Value) -> bool,
    ) -> Vec<Named> {
        let ty = Type::of_schema(schema);
        let mut leaves = Leaves::of(&ty, accesses, smallest(schema).ok().as_ref());
        let name = |path: &[String]| access_name(accesses, path);
        let lengths: Vec<usize> = leaves.combined.values().map(Vec::len).collect();
        let chosen = combinations(&lengths, VALUES_MAX);
        let is_all = chosen.is_all;
        let chosen = self.all_or_some(chosen, what, "values");
        let value = |choice: Vec<usize>| {
            let none = (String::new(), None);
            let parts = leaves.combined.iter().zip(&choice);
            let (label, base) = parts.fold(none, |(label, base), ((path, values), &at)| {
                let value = &values[at];
                let shown = format!("{} {value}", name(path));
                (joined(&label, &shown), Some(placed(base, path, value.clone())))
            });
            (label, base, choice)
        };
        let mut partial: Vec<(String, Option<Value>, Vec<usize>)> =
            chosen.into_iter().map(value).collect();
        for (path, value) in &leaves.alone {
            let shown = format!("{} {value}", name(path));
            partial.push((shown, Some(placed(None, path, value.clone())), Vec::new()));
        }
        let mut named: Vec<Named> = Vec::new();
        let mut tried: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); lengths.len()];
        for (label, base, choice) in partial {
            let made = match base {
                Some(base) => complete(schema, base, &mut |_| true),
                None => smallest(schema),
            };
            let value = match made {
                Ok(value) => value,
                Err(problem) => {
                    self.gaps.insert(format!("cannot make a value for {what}: {problem}"));
                    continue;
                }
            };
            for (form, value) in self.keyed_items.forms(&ty, value) {
                // A number beside one that a condition names may be out of range.
                if !fits(&value) {
                    continue;
                }
                for (tried, at) in tried.iter_mut().zip(&choice) {
                    tried.insert(*at);
                }
                if named.iter().all(|(_, it)| *it != value) {
                    named.push((joined(&label, form), value));
                }
            }
        }
        if is_all {
            leaves.note_lost(&ty, accesses, &tried);
        }
        self.untried.extend(leaves.untried.iter().map(|path| {
            format!("every value of `{}`: the tried values are few of many", name(path))
        }));
        if named.is_empty()
            && let Ok(value) = smallest(schema)
            && fits(&value)
        {
            named.push((format!("{what} = {value}"), value));
        }
        if named.is_empty() {
            self.gaps.insert(format!("no valid value for {what} was found"));
        }
        named
    }

    fn looks_at(&self, channel: &ChannelName) -> bool {
        self.accesses.iter().any(|it| it.channel == *channel)
    }
}

/// Returns a failure that the node catches.
fn failure(node: &NodeName, kind: ErrorKind) -> Outcome {
    let label = format!("fails: {kind}");
    let result = Err(Failure::new(kind, format!("`{node}` fails: {kind}")));
    Outcome { is_expected: true, ..Outcome::new(label, result) }
}

/// Returns whether the failures that are tried show both results of a decision about a list of failures: about their kinds,
/// or about their number, if two are enough.
fn is_tried(access: &Access) -> bool {
    let kind = || vec![KIND.to_owned()];
    let reads_kinds =
        access.item_parts.as_ref().is_some_and(|it| it.iter().all(|it| *it == kind()));
    let are_kinds = access.texts.iter().all(|it| ErrorKind::named(it).is_some());
    let are_small = access.numbers.iter().all(|it| *it < i64::from(FAILURES_MAX));
    (!access.is_whole || reads_kinds) && are_kinds && are_small && access.fractions.is_empty()
}

fn access_name(accesses: &[Access], path: &[String]) -> String {
    let channel = accesses.first().map(|it| it.channel.to_string());
    channel.into_iter().chain(path.iter().cloned()).collect::<Vec<_>>().join(".")
}

fn joined(label: &str, more: &str) -> String {
    match (label, more) {
        ("", only) | (only, "") => only.to_owned(),
        (label, more) => format!("{label}, {more}"),
    }
}
