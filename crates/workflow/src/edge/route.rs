//! The routes of a workflow as values that the engine evaluates.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_core::{
    graph::{
        AccessSet, Condition, Dispatch, ItemOrder, Route, RouteChoice, RouteError, RouteTarget,
        RouteView, Spread, Starts, Target, Transition,
    },
    id::{ChannelName, NodeName},
    state::{Type, plain_text},
};
use graphrun_expressions::exclude_each_other;
use graphrun_guard::data_limit::DataLimit;
use serde_json::Value;

use super::draft::{case_choices, match_choices};
use crate::Expression;

/// Cases that are tried in order.
#[derive(Debug)]
pub(crate) struct Cases {
    tried: Vec<RouteCase>,
    targets: Vec<RouteTarget>,
    reads: Vec<ChannelName>,
}

#[derive(Debug)]
pub(crate) struct RouteCase {
    /// The condition; `None` always holds.
    pub(crate) when: Option<Expression>,
    pub(crate) to: Vec<Target>,
}

/// A target for each value.
#[derive(Debug)]
pub(crate) struct Match {
    on: Expression,
    /// For each value the condition that it is the matched one, and the outcome of the condition.
    conditions: BTreeMap<String, (Expression, bool)>,
    arms: BTreeMap<String, Vec<Target>>,
    targets: Vec<RouteTarget>,
}

/// A task for each item of a list.
#[derive(Debug)]
pub(crate) struct Each {
    over: Expression,
    node: NodeName,
    after: Vec<Target>,
    targets: Vec<RouteTarget>,
    order: Option<Arc<dyn ItemOrder>>,
}

impl Each {
    /// Sends each item of `over` to `node`; without items the run continues at `after`.
    pub(crate) fn new(over: Expression, node: NodeName, after: Vec<Target>) -> Self {
        let to = Target::Node(node.clone());
        let mut targets =
            vec![RouteTarget { to, label: Some(format!("each of {}", over.source())) }];
        targets.extend(self::targets(&after, "none"));
        Self { over, node, after, targets, order: None }
    }

    /// Refuses items that cannot be in this order.
    pub(crate) fn in_order(self, order: Option<Arc<dyn ItemOrder>>) -> Self {
        Self { order, ..self }
    }
}

impl Cases {
    pub(crate) fn new(cases: Vec<RouteCase>) -> Self {
        let label = |case: &RouteCase| match &case.when {
            Some(when) => when.source().to_owned(),
            None => "else".to_owned(),
        };
        let targets = cases.iter().flat_map(|it| targets(&it.to, &label(it))).collect();
        let read = cases.iter().filter_map(|it| it.when.as_ref()).flat_map(Expression::reads);
        let reads: BTreeSet<ChannelName> = read.cloned().collect();
        Self { targets, reads: reads.into_iter().collect(), tried: cases }
    }

    /// Returns the first case that holds.
    fn first(&self, view: &RouteView<'_>) -> Result<usize, RouteError> {
        for (at, case) in self.tried.iter().enumerate() {
            let holds = match &case.when {
                Some(when) => when.holds(view)?,
                None => true,
            };
            if holds {
                return Ok(at);
            }
        }
        // Loading ensures a case for every state. Ending silently here would hide a failure of that
        // check.
        let conditions = self.tried.iter().filter_map(|it| it.when.as_ref());
        let conditions: Vec<&str> = conditions.map(Expression::source).collect();
        let expression = conditions.join(", ");
        Err(RouteError::Expression { expression, reason: "no case holds".to_owned() })
    }
}

impl Match {
    /// A match whose targets are in the order of the given values. `conditions` are those that a value is the matched one,
    /// each with its outcome, as far as they can be expressed.
    pub(crate) fn new(
        on: Expression,
        arms: BTreeMap<String, Vec<Target>>,
        order: &[String],
        conditions: BTreeMap<String, (Expression, bool)>,
    ) -> Self {
        let arm = |value: &String| arms.get(value).map(|to| targets(to, value));
        let targets = order.iter().filter_map(arm).flatten().collect();
        Self { on, conditions, arms, targets }
    }

    /// Returns the arm of the value, with its targets.
    fn arm(&self, view: &RouteView<'_>) -> Result<(&str, &[Target]), RouteError> {
        let value = self.on.evaluate_for_route(view)?;
        let word = plain_text(&value);
        let arm = self.arms.get_key_value(&word).map(|(word, to)| (word.as_str(), to.as_slice()));
        arm.ok_or_else(|| self.on.route_error(format!("no target for `{word}`")))
    }
}

/// Returns the outcomes of conditions with which a route makes a choice; `None` if it may depend on more than fields.
fn decided_by(route: &dyn Route, choice: usize) -> Option<Vec<(&Expression, bool)>> {
    let route: &dyn Any = route;
    let outcomes: Vec<(&Expression, bool)> = if let Some(cases) = route.downcast_ref::<Cases>() {
        let tried = cases.tried.iter().take(choice + 1).enumerate();
        tried.filter_map(|(at, it)| Some((it.when.as_ref()?, at == choice))).collect()
    } else {
        let it: &Match = route.downcast_ref()?;
        let (condition, outcome) = it.conditions.get(it.arms.keys().nth(choice)?)?;
        vec![(condition, *outcome)]
    };
    outcomes.iter().all(|it| it.0.reads_only_fields()).then_some(outcomes)
}

/// Returns whether two routes never make these choices on the same values.
fn choices_exclude(one: &dyn Route, choice: usize, other: &dyn Route, other_choice: usize) -> bool {
    let outcomes = decided_by(one, choice).zip(decided_by(other, other_choice));
    outcomes.is_some_and(|(one, other)| exclude_each_other(&[one, other].concat()))
}

impl Route for Cases {
    fn targets(&self) -> &[RouteTarget] {
        &self.targets
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        Some(&self.reads)
    }

    fn spread(&self) -> Spread {
        spread(self.tried.iter().map(|it| &it.to))
    }

    fn choices(&self) -> Option<Vec<RouteChoice>> {
        let cases = self.tried.iter();
        Some(case_choices(cases.map(|it| (it.when.as_ref().map(Expression::source), &it.to))))
    }

    fn excludes(&self, choice: usize, other: &dyn Route, other_choice: usize) -> bool {
        choices_exclude(self, choice, other, other_choice)
    }

    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        Ok(transitions(&self.tried[self.first(view)?].to))
    }

    fn taken(&self, view: &RouteView<'_>) -> Result<Vec<usize>, RouteError> {
        let at = self.first(view)?;
        let start = self.tried[..at].iter().map(|it| it.to.len()).sum();
        Ok((start..start + self.tried[at].to.len()).collect())
    }

    fn access_set(&self) -> Option<AccessSet> {
        let mut set = AccessSet::default();
        self.tried
            .iter()
            .filter_map(|it| it.when.as_ref())
            .for_each(|it| set.extend(it.access_set()));
        Some(set)
    }
}

impl Route for Match {
    fn targets(&self) -> &[RouteTarget] {
        &self.targets
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        Some(self.on.reads())
    }

    fn spread(&self) -> Spread {
        spread(self.arms.values())
    }

    fn choices(&self) -> Option<Vec<RouteChoice>> {
        let arms = self.arms.iter().map(|(value, to)| (value.as_str(), to));
        Some(match_choices(self.on.source(), arms))
    }

    fn excludes(&self, choice: usize, other: &dyn Route, other_choice: usize) -> bool {
        choices_exclude(self, choice, other, other_choice)
    }

    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        let (_, to) = self.arm(view)?;
        Ok(transitions(to))
    }

    fn taken(&self, view: &RouteView<'_>) -> Result<Vec<usize>, RouteError> {
        let (word, _) = self.arm(view)?;
        let targets = self.targets.iter().enumerate();
        Ok(targets.filter(|(_, it)| it.label.as_deref() == Some(word)).map(|(at, _)| at).collect())
    }

    fn access_set(&self) -> Option<AccessSet> {
        Some(self.on.access_set())
    }
}

fn targets(to: &[Target], label: &str) -> Vec<RouteTarget> {
    to.iter().map(|to| RouteTarget { to: to.clone(), label: Some(label.to_owned()) }).collect()
}

/// The route takes one case or arm, with all of its targets.
fn spread<'a>(mut choices: impl Iterator<Item = &'a Vec<Target>>) -> Spread {
    if choices.all(|it| it.len() < 2) { Spread::One } else { Spread::Several }
}

fn transitions(to: &[Target]) -> Vec<Transition> {
    to.iter().cloned().map(Transition::To).collect()
}

impl Route for Each {
    fn targets(&self) -> &[RouteTarget] {
        &self.targets
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        Some(self.over.reads())
    }

    fn choices(&self) -> Option<Vec<RouteChoice>> {
        let each = RouteChoice {
            to: vec![Target::Node(self.node.clone())],
            is_dispatched: true,
            known: Vec::new(),
        };
        let none = RouteChoice { to: self.after.clone(), ..RouteChoice::default() };
        Some(vec![each, none])
    }

    fn starts(&self) -> Starts {
        match self.over.ty().required() {
            Type::List(item) => Starts::Item((**item).clone()),
            _ => Starts::Unknown,
        }
    }

    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        let over = self.over.evaluate_for_route(view)?;
        match over.as_ref() {
            Value::Array(items) if items.is_empty() => Ok(transitions(&self.after)),
            Value::Array(items) => {
                // The check comes before a task is made for each item.
                DataLimit::MapItems.check(items.len() as u64).map_err(|reached| {
                    self.over.route_error(format!("its {} items are {reached}", items.len()))
                })?;
                if let Some(order) = &self.order {
                    let needs = order.needs(&items.iter().collect::<Vec<_>>(), view)?;
                    if let Some(missing) = needs.missing {
                        return Err(self.over.route_error(missing));
                    }
                }
                let dispatch = |input: &Value| Dispatch::new(self.node.clone(), input.clone());
                Ok(items.iter().map(|it| Transition::Dispatch(dispatch(it))).collect())
            }
            other => Err(self.over.route_error(format!("`{other}` is not a list"))),
        }
    }

    fn taken(&self, view: &RouteView<'_>) -> Result<Vec<usize>, RouteError> {
        let is_empty = self.over.evaluate_for_route(view)?.as_array().is_some_and(Vec::is_empty);
        Ok(if is_empty { (1..self.targets.len()).collect() } else { vec![0] })
    }

    fn access_set(&self) -> Option<AccessSet> {
        Some(self.over.access_set())
    }
}
