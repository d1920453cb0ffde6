//! The edges behind a node: unconditional edges, and routes that depend on the state.

use std::{collections::BTreeMap, sync::Arc};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Edge, Route, Target},
    id::NodeName,
    state::Type,
};

use super::{
    Expression, Workflow,
    cases::Conditions,
    expression::known_after,
    lower::Lowering,
    reader::{Data, Entry, SpannedText, Yaml},
    report::suggestion,
    route::{Case, Cases, Match},
    shape::Section,
};
/// The keys of a case.
pub(super) const CASE_KEYS: &[&str] = &["when", "to"];
/// The keys of a route by value.
pub(super) const MATCH_KEYS: &[&str] = &["match", "to"];

impl Lowering<'_> {
    pub(super) fn read_then(&mut self, from: &NodeName, then: &Yaml, workflow: &mut Workflow) {
        let place = self.report.place(&then.range);
        let route: Option<Arc<dyn Route>> = match &then.data {
            Data::Map(_) => self.read_match(from, then).map(|it| Arc::new(it) as _),
            Data::List(items) if has_cases(items) => {
                Some(Arc::new(self.read_cases(from, then, items)))
            }
            Data::Null | Data::Scalar { .. } | Data::List(_) => {
                let targets = self.read_targets(then, "`then`");
                self.lead(from, targets, place.as_ref(), workflow);
                return;
            }
        };
        let from = from.clone();
        workflow.edges.extend(route.map(|route| Edge::Route { from, route, place }));
    }

    pub(super) fn read_targets(&mut self, yaml: &Yaml, what: &str) -> Vec<Target> {
        let words = self.report.words(yaml, what);
        words.iter().flat_map(|it| self.declarations.resolve(&mut self.report, it)).collect()
    }

    fn read_cases(&mut self, from: &NodeName, then: &Yaml, items: &[Yaml]) -> Cases {
        let written = self.flow.after(from);
        let given = self.given.clone();
        let mut cases = Vec::new();
        let mut conditions = Conditions::default();
        let mut otherwise: Option<&Yaml> = None;
        for item in items {
            if let Some(otherwise) = otherwise {
                let finding =
                    Diagnostic::error("GR025", "a case after the last one is never reached");
                let finding = finding.at(self.report.place(&item.range), "never reached");
                self.report.push(finding.at(self.report.place(&otherwise.range), "always taken"));
            }
            let Some(case) = Section::read(&mut self.report, item, "a case", CASE_KEYS) else {
                continue;
            };
            let to = case.require(&mut self.report, "to", "give the case a target");
            let to = to.map(|it| self.read_targets(it, "`to`")).unwrap_or_default();
            let Some(when) = case.get("when") else {
                if case.has_or_means("when") {
                    // The condition is invalid, which is reported, but still counts as one.
                    conditions.unknown = true;
                    continue;
                }
                otherwise = otherwise.or(Some(item));
                cases.push(Case { when: None, to });
                continue;
            };
            let Some(condition) = self.expression(when, &written) else {
                conditions.unknown = true;
                let (_, otherwise) = known_after(when.text().unwrap_or_default());
                self.given.extend(otherwise);
                continue;
            };
            // The next case is tried if this condition is false.
            self.given = condition.presumed_otherwise().to_vec();
            self.check_condition(when, &condition);
            if otherwise.is_none() {
                let constant = condition.is_constant() || !condition.constant_parts().is_empty();
                conditions.list.push((when, condition.clone(), constant));
            }
            cases.push(Case { when: Some(condition), to });
        }
        self.given = given;
        let last = items.last().map_or(&then.range, |it| &it.range);
        self.check_cases(from, &conditions, otherwise, last);
        Cases::new(cases)
    }

    pub(super) fn check_condition(&mut self, yaml: &Yaml, condition: &Expression) {
        let place = self.report.place(&yaml.range);
        if !matches!(condition.ty(), Type::Bool | Type::Any) {
            let message = format!("a condition is true or false, and this is `{}`", condition.ty());
            let finding = Diagnostic::error("GR022", message).at(place, "not a bool");
            self.report.push(finding.help("compare it with a value"));
        } else if condition.is_constant() {
            let message = format!("the condition is always `{}`", condition.source());
            let finding = Diagnostic::error("GR025", message).at(place, "reads no field");
            self.report.push(finding.help("remove the case, or its condition"));
        }
    }

    fn read_match(&mut self, from: &NodeName, then: &Yaml) -> Option<Match> {
        let (subject, to, entries) = self.match_parts(then)?;
        let written = self.flow.after(from);
        let on = subject.and_then(|it| self.expression(it, &written));
        let values = match (&on, subject) {
            (Some(on), Some(subject)) => self.values_to_match(subject, on),
            _ => None,
        };
        let (mut arms, mut unknown) = (BTreeMap::new(), 0);
        for Entry { key, value } in &entries {
            let targets = self.read_targets(value, "a target");
            if values.as_ref().is_none_or(|it| it.contains(&key.text)) {
                arms.insert(key.text.clone(), targets);
            } else if let (Some(values), Some(on)) = (&values, &on) {
                let message = format!("\"{}\" is never a value of `{}`", key.text, on.source());
                let place = self.report.place(&key.range);
                let finding = Diagnostic::error("GR023", message).at(place, "no such value");
                let help = suggestion(&key.text, values.iter().map(String::as_str));
                self.report.push(Diagnostic { help, ..finding });
                unknown += 1;
            }
        }
        let missing: Vec<String> =
            values.iter().flatten().filter(|it| !arms.contains_key(*it)).cloned().collect();
        // Each unknown value may be a misspelling of a missing one.
        if missing.len() > unknown {
            let message = format!("no target for {}", missing.join(", "));
            let place = self.report.place(&to.range);
            let finding = Diagnostic::error("GR024", message).at(place, "not every value");
            self.report.push(finding.help(format!("add `{}: …`", missing[0])));
        }
        // The arms keep the order of the file, which is also the order in drawings.
        let order: Vec<String> = entries.iter().map(|it| it.key.text.clone()).collect();
        Some(Match::new(on?, arms, &order))
    }

    /// The matched expression, the key of the targets, and the targets.
    fn match_parts<'y>(
        &mut self,
        then: &'y Yaml,
    ) -> Option<(Option<&'y Yaml>, &'y SpannedText, Vec<&'y Entry>)> {
        if let Some((subject, arms)) = arms_beside_match(then) {
            let (key, place) = (&arms[0].key, self.report.place(&arms[0].key.range));
            let message = format!("the target of `{}` is not below `to`", key.text);
            let finding = Diagnostic::error("GR006", message).at(place, "`to` is missing");
            let shown: Vec<String> = arms.iter().map(|it| format!("{}: …", it.key.text)).collect();
            let help = format!("write `to: {{ {} }}`", shown.join(", "));
            self.report.push(finding.help(help));
            return Some((Some(&subject.value), &subject.key, arms));
        }
        let section = Section::read(&mut self.report, then, "`then`", MATCH_KEYS)?;
        let help = "name the value to match: `match: review.verdict`";
        let subject = section.require(&mut self.report, "match", help);
        let to = section.require(&mut self.report, "to", "a target for each value")?;
        if !matches!(to.data, Data::Map(_)) {
            self.report.wrong_kind(to, "`to`", "a mapping from values to targets");
            return None;
        }
        Some((subject, section.key("to")?, to.entries().iter().collect()))
    }

    /// The values that need a target in a match.
    fn values_to_match(&mut self, subject: &Yaml, on: &Expression) -> Option<Vec<String>> {
        match on.ty() {
            Type::Enum(values) => Some(values.clone()),
            Type::Bool => Some(vec!["true".to_owned(), "false".to_owned()]),
            other => {
                let message = format!("a match is over an enum or a bool, and this is `{other}`");
                let finding = Diagnostic::error("GR022", message);
                let finding = finding.at(self.report.place(&subject.range), "too many values");
                self.report.push(finding.help("use a list of cases: `- { when: …, to: … }`"));
                None
            }
        }
    }
}

/// A `match` without `to` whose targets are beside it, which is a common mistake.
fn arms_beside_match(then: &Yaml) -> Option<(&Entry, Vec<&Entry>)> {
    let entries = then.entries();
    let subject = entries.iter().find(|it| it.key.text == "match")?;
    let arms: Vec<&Entry> = entries.iter().filter(|it| it.key.text != "match").collect();
    let is_target = |it: &&Entry| matches!(it.value.data, Data::Scalar { .. } | Data::List(_));
    let has_to = arms.iter().any(|it| it.key.text == "to");
    let beside = !has_to && !arms.is_empty() && arms.iter().all(is_target);
    beside.then_some((subject, arms))
}

/// Whether the next node depends on the state.
pub(super) fn is_conditional(then: &Yaml) -> bool {
    match &then.data {
        Data::Map(_) => true,
        Data::List(items) => has_cases(items),
        Data::Null | Data::Scalar { .. } => false,
    }
}

fn has_cases(items: &[Yaml]) -> bool {
    items.iter().any(|it| matches!(it.data, Data::Map(_)))
}
