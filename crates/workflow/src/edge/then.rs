//! `then`: the routes behind a node, which depend on the state.
//!
//! A route is read in two parts. [`read_then`] reads its targets, from which the data flow is
//! computed; [`RouteDraft::compile`] then reads its expressions with the data flow.

use std::{collections::BTreeMap, sync::Arc};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Route, Target},
    state::{Schema, Type},
};
use graphrun_expressions::{flow::guarantee::Guarantee, present_after, problem::suggestion};
use serde_json::Value;

use super::{
    case_checks::{CaseConditions, check_cases},
    draft::{CaseDraft, RouteDraft},
    route::{Cases, Each, Match, RouteCase},
};
use crate::{
    Expression,
    format::{CaseKeys, MatchKeys},
    lower::{declarations::Declarations, environment::NodeScope},
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

const FAIL: &str = "fail";
/// The most arms of a match whose conditions are compared with those of other routes.
const CONDITIONS_MAX: usize = 64;

/// The subject of a match and its arms, as they are written.
#[derive(Clone, Copy, Debug)]
pub struct MatchArms<'y> {
    /// The subject in the file.
    pub subject: &'y Yaml,
    /// The expression that the subject is.
    pub on: &'y Expression,
    /// The key of the arms.
    pub to: &'y SpannedText,
    /// The value of each arm.
    pub keys: &'y [&'y SpannedText],
}

/// Returns the field with the reason, if the `then` is `{ fail: FIELD }`.
pub(crate) fn fail_reason(then: &Yaml) -> Option<&Yaml> {
    match then.entries() {
        [entry] if entry.key.text == FAIL => Some(&entry.value),
        _ => None,
    }
}

/// Returns whether the next node depends on the state.
pub(crate) fn is_conditional(then: &Yaml) -> bool {
    match &then.data {
        Data::Map(_) => fail_reason(then).is_none(),
        Data::List(items) => items.iter().any(|it| matches!(it.data, Data::Map(_))),
        Data::Null | Data::Scalar { .. } => false,
    }
}

/// Reads the targets of a `then` that depends on the state.
pub(crate) fn read_then<'y>(
    report: &mut Report,
    declarations: &Declarations,
    schema: &Schema,
    then: &'y Yaml,
) -> Option<RouteDraft<'y>> {
    if matches!(then.data, Data::List(_)) {
        let cases = read_cases(report, declarations, then.items());
        return Some(RouteDraft::Cases { then, cases });
    }
    if let Some(when) = then.get("when").filter(|_| then.get("match").is_none()) {
        report_single_case(report, then, when);
        return None;
    }
    if let Some(route) = match_of_names(report, declarations, schema, then) {
        return Some(route);
    }
    let (on, to, entries) = match_parts(report, then)?;
    let arm = |Entry { key, value }: &'y Entry| {
        (key.clone(), declarations.read_targets(report, value, "a target"))
    };
    Some(RouteDraft::Match { on, to, arms: entries.into_iter().map(arm).collect() })
}

/// Reports a case outside of a list.
fn report_single_case(report: &mut Report, then: &Yaml, when: &Yaml) {
    let text = |key: &str, default| then.get(key).and_then(Yaml::text).unwrap_or(default);
    let (to, otherwise) = (text("to", "NODE"), text("else", "end"));
    let when = when.text().unwrap_or("…");
    let message = "`then` with a condition is a list of cases, not a mapping";
    let diagnostic = Diagnostic::error("GR005", message);
    let diagnostic = diagnostic.at(report.span(&then.range), "a case outside of a list");
    report.push(
        diagnostic
            .help(format!("write `then: [{{ when: {when}, to: {to} }}, {{ to: {otherwise} }}]`")),
    );
}

/// Returns a `match` without targets over an enum: its values are the names of the targets. Only the type of a field is
/// known before the data flow, so the subject is a field or a part of one.
fn match_of_names<'y>(
    report: &mut Report,
    declarations: &Declarations,
    schema: &Schema,
    then: &'y Yaml,
) -> Option<RouteDraft<'y>> {
    let [Entry { key: to, value: on }] = then.entries() else { return None };
    let mut path = on.text().filter(|_| to.text == "match")?.trim().split('.');
    let root = schema.channel(path.next()?)?.ty().clone();
    let ty = path.try_fold(root, |ty, name| ty.field(name).cloned())?;
    let Type::Enum(values) = ty.required() else { return None };
    let mut arms = Vec::new();
    let mut missing = Vec::new();
    for value in values {
        let key = SpannedText { text: value.clone(), range: on.range.clone() };
        let targets = declarations.targets(value);
        if targets.is_none() {
            missing.push(value.as_str());
        }
        arms.push((key, targets.unwrap_or_default()));
    }
    if let Some(first) = missing.first() {
        let message = format!("no node is called {}", missing.join(", "));
        let diagnostic = Diagnostic::error("GR024", message);
        let diagnostic = diagnostic.at(report.span(&on.range), "not every value is a node");
        report.push(diagnostic.help(format!("give each value a target: `to: {{ {first}: … }}`")));
    }
    Some(RouteDraft::Match { on: Some(on), to, arms })
}

/// Returns the targets in a `then` that is reported already.
pub(crate) fn targets_within(declarations: &Declarations, then: &Yaml) -> Vec<Target> {
    let cases = then.items().iter().filter_map(|it| it.get("to"));
    let arms = then.get("to").map(Yaml::entries).unwrap_or_default().iter().map(|it| &it.value);
    let single = ["to", "else"].into_iter().filter_map(|it| then.get(it));
    let words = cases.chain(arms).chain(single).flat_map(|it| it.items().iter().chain([it]));
    words.filter_map(Yaml::text).filter_map(|it| declarations.targets(it)).flatten().collect()
}

fn read_cases<'y>(
    report: &mut Report,
    declarations: &Declarations,
    items: &'y [Yaml],
) -> Vec<CaseDraft<'y>> {
    let mut cases = Vec::new();
    let mut otherwise: Option<&Yaml> = None;
    for item in items {
        if let Some(otherwise) = otherwise {
            let diagnostic =
                Diagnostic::error("GR025", "a case after the last one is never reached");
            let diagnostic = diagnostic.at(report.span(&item.range), "never reached");
            report.push(diagnostic.at(report.span(&otherwise.range), "always taken"));
        }
        let Some(case) = Section::read::<CaseKeys>(report, item, "a case") else { continue };
        let to = case.require(report, "to", "give the case a target");
        let to = to.map(|it| declarations.read_targets(report, it, "`to`")).unwrap_or_default();
        let when = case.get("when");
        let is_incomplete = when.is_none() && case.has_or_means("when");
        if when.is_none() && !is_incomplete {
            otherwise = otherwise.or(Some(item));
        }
        cases.push(CaseDraft { item, when, is_incomplete, to });
    }
    cases
}

/// Returns the matched expression, the key of the targets, and the targets.
fn match_parts<'y>(
    report: &mut Report,
    then: &'y Yaml,
) -> Option<(Option<&'y Yaml>, &'y SpannedText, Vec<&'y Entry>)> {
    if let Some((subject, arms)) = arms_beside_match(then) {
        let key = &arms[0].key;
        let span = report.span(&arms[0].key.range);
        let message = format!("the target of `{}` is not below `to`", key.text);
        let diagnostic = Diagnostic::error("GR006", message).at(span, "`to` is missing");
        let shown: Vec<String> = arms.iter().map(|it| format!("{}: …", it.key.text)).collect();
        let help = format!("write `to: {{ {} }}`", shown.join(", "));
        report.push(diagnostic.help(help));
        return Some((Some(&subject.value), &subject.key, arms));
    }
    let section = Section::read::<MatchKeys>(report, then, "`then`")?;
    if let Some(fail) = section.key(FAIL) {
        let help = "write `then: { fail: FIELD }`, or route to a node that does";
        report.bad_value(fail, "`fail` with a reason stands alone", help);
    }
    let help = "name the value to match: `match: review.verdict`";
    let subject = section.require(report, "match", help);
    let to = section.require(
        report,
        "to",
        "give each value a target; only an enum whose values are nodes needs none",
    )?;
    if !matches!(to.data, Data::Map(_)) {
        report.wrong_kind(to, "`to`", "a mapping from values to targets");
        return None;
    }
    Some((subject, section.key("to")?, to.entries().iter().collect()))
}

/// Returns a `match` without `to` whose targets are beside it, which is a common mistake.
fn arms_beside_match(then: &Yaml) -> Option<(&Entry, Vec<&Entry>)> {
    let entries = then.entries();
    let subject = entries.iter().find(|it| it.key.text == "match")?;
    let arms: Vec<&Entry> = entries.iter().filter(|it| it.key.text != "match").collect();
    let is_target = |it: &&Entry| matches!(it.value.data, Data::Scalar { .. } | Data::List(_));
    let has_to = arms.iter().any(|it| it.key.text == "to");
    let beside = !has_to && !arms.is_empty() && arms.iter().all(is_target);
    beside.then_some((subject, arms))
}

impl RouteDraft<'_> {
    /// Reads the expressions of a route behind the node of `scope`.
    pub(crate) fn compile(
        &self,
        report: &mut Report,
        scope: &NodeScope<'_>,
    ) -> Option<Arc<dyn Route>> {
        match self {
            Self::Cases { then, cases } => {
                Some(Arc::new(compile_cases(report, scope, then, cases)))
            }
            Self::Match { on, to, arms } => {
                Some(Arc::new(compile_match(report, scope, *on, to, arms)?))
            }
            Self::Each { node, after } => {
                let list = scope.env.maps.get(scope.name)?;
                let each = Each::new(list.over.clone()?, node.clone(), after.clone());
                Some(Arc::new(each.in_order(list.item.order.clone())))
            }
        }
    }
}

fn compile_cases(
    report: &mut Report,
    scope: &NodeScope<'_>,
    then: &Yaml,
    drafts: &[CaseDraft<'_>],
) -> Cases {
    let mut scope = scope.clone();
    let mut cases = Vec::new();
    let mut conditions = CaseConditions::default();
    let mut otherwise: Option<&Yaml> = None;
    for CaseDraft { item, when, is_incomplete, to } in drafts {
        let to = to.clone();
        let Some(when) = when else {
            if *is_incomplete {
                conditions.unknown = true;
            } else {
                otherwise = otherwise.or(Some(item));
                cases.push(RouteCase { when: None, to });
            }
            continue;
        };
        let Some(condition) = scope.expression_for(report, when, scope.after()) else {
            conditions.unknown = true;
            let present = present_after(when.text().unwrap_or_default()).if_false;
            scope.known.extend(present.into_iter().map(|it| Guarantee::Present(it.path)));
            continue;
        };
        // The next case is tried if this condition is false.
        scope.known = condition.known_otherwise().clone();
        check_condition(report, when, &condition);
        if otherwise.is_none() {
            let constant = condition.is_constant() || !condition.constant_parts().is_empty();
            conditions.list.push((when, condition.clone(), constant));
        }
        cases.push(RouteCase { when: Some(condition), to });
    }
    let last = then.items().last().map_or(&then.range, |it| &it.range);
    check_cases(report, scope.name, &conditions, otherwise, last);
    Cases::new(cases)
}

/// Checks that an expression can be a condition.
pub(crate) fn check_condition(report: &mut Report, yaml: &Yaml, condition: &Expression) {
    let span = report.span(&yaml.range);
    if !matches!(condition.ty(), Type::Bool | Type::Any) {
        let message = format!("a condition is true or false, and this is `{}`", condition.ty());
        let diagnostic = Diagnostic::error("GR022", message).at(span, "not a bool");
        report.push(diagnostic.help("compare it with a value"));
    } else if condition.is_constant() {
        let message = format!("the condition is always `{}`", condition.source());
        let diagnostic = Diagnostic::error("GR025", message).at(span, "reads no field");
        report.push(diagnostic.help("remove the case, or its condition"));
    }
}

fn compile_match(
    report: &mut Report,
    scope: &NodeScope<'_>,
    subject: Option<&Yaml>,
    to: &SpannedText,
    drafts: &[(SpannedText, Vec<Target>)],
) -> Option<Match> {
    let on = subject.and_then(|it| scope.expression_for(report, it, scope.after()));
    let keys: Vec<&SpannedText> = drafts.iter().map(|it| &it.0).collect();
    let values = match (&on, subject) {
        // The type of its value is unknown.
        (Some(on), _) if on.reads().iter().any(|it| scope.env.incomplete_fields.contains(it)) => {
            None
        }
        (Some(on), Some(subject)) => {
            MatchArms { subject, on, to, keys: &keys }.check(report, "target")
        }
        _ => None,
    };
    let is_value =
        |key: &str| values.as_ref().is_none_or(|values| values.iter().any(|it| it == key));
    let arms = drafts.iter().filter(|(key, _)| is_value(&key.text));
    let arms: BTreeMap<_, _> = arms.map(|(key, to)| (key.text.clone(), to.clone())).collect();
    // The arms keep the order of the file, which is also the order in drawings.
    let order: Vec<String> = drafts.iter().map(|(key, _)| key.text.clone()).collect();
    let on = on?;
    let condition = |value: &String| {
        let (text, outcome) = match on.ty() {
            Type::Bool => (on.source().to_owned(), value == "true"),
            _ => (format!("({}) == {}", on.source(), Value::from(value.as_str())), true),
        };
        Some((value.clone(), (scope.compile(&text, scope.after()).ok()?, outcome)))
    };
    // Each is compiled with the types of the whole match, which is too much for thousands of values.
    let conditions = arms.keys().filter(|_| arms.len() <= CONDITIONS_MAX);
    let conditions = conditions.filter_map(condition).collect();
    Some(Match::new(on, arms, &order, conditions))
}

impl MatchArms<'_> {
    /// Checks that there is an arm for each value, and for no other. Returns the values. `what` is what an arm leads to.
    pub(crate) fn check(&self, report: &mut Report, what: &str) -> Option<Vec<String>> {
        let Self { on, to, keys, .. } = self;
        let values = self.values(report)?;
        let mut unknown = 0;
        for key in keys.iter().filter(|it| !values.contains(&it.text)) {
            let message = format!("\"{}\" is never a value of `{}`", key.text, on.source());
            let diagnostic = Diagnostic::error("GR023", message);
            let diagnostic = diagnostic.at(report.span(&key.range), "no such value");
            let help = suggestion(&key.text, values.iter().map(String::as_str));
            report.push(Diagnostic { help, ..diagnostic });
            unknown += 1;
        }
        let is_missing = |value: &&String| !keys.iter().any(|it| it.text == **value);
        let missing: Vec<&str> = values.iter().filter(is_missing).map(String::as_str).collect();
        // Each unknown value may be a misspelling of a missing one.
        if missing.len() > unknown {
            let message = format!("no {what} for {}", missing.join(", "));
            let diagnostic = Diagnostic::error("GR024", message);
            let diagnostic = diagnostic.at(report.span(&to.range), "not every value");
            report.push(diagnostic.help(format!("add `{}: …`", missing[0])));
        }
        Some(values)
    }

    /// Returns the values that need an arm.
    fn values(&self, report: &mut Report) -> Option<Vec<String>> {
        match self.on.ty() {
            Type::Enum(values) => Some(values.clone()),
            Type::Bool => Some(vec!["true".to_owned(), "false".to_owned()]),
            other => {
                let message = format!("a match is over an enum or a bool, and this is `{other}`");
                let diagnostic = Diagnostic::error("GR022", message);
                let diagnostic = diagnostic.at(report.span(&self.subject.range), "too many values");
                report.push(diagnostic.help("use a list of cases: `- { when: …, to: … }`"));
                None
            }
        }
    }
}
