//! Reads the expectations of a case: names are known, values fit, and they do not contradict each
//! other.

use graphrun_core::{
    diagnostic::Diagnostic,
    event::Status,
    id::{ChannelName, NodeName},
    state::{Channel, Schema},
    words::count,
};
use graphrun_expressions::problem::suggestion;
use serde_json::Value;

use super::{Expectation, ExpectedValue, PromptParts, Stage, read::Reading};
use crate::{
    format::ExpectKeys,
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        shape::Section,
    },
};

/// The statuses with which a run can end in a case. A case is never interrupted.
pub(crate) const STATUSES: [Status; 4] =
    [Status::Done, Status::Failed, Status::Paused, Status::Limit];

impl Reading<'_> {
    /// Reads `expect` of a case whose run stops before some nodes, or at its end.
    pub(super) fn expectation(
        &mut self,
        yaml: &Yaml,
        until: &[ExpectedValue<NodeName>],
    ) -> Option<Expectation> {
        let section = Section::read::<ExpectKeys>(&mut self.report, yaml, "`expect`")?;
        if section.keys().next().is_none() {
            let message = "`expect` names nothing that the run must show";
            let span = self.report.span(&yaml.range);
            let diagnostic = Diagnostic::error("GR005", message).at(span, "empty");
            self.report.push(diagnostic.help("write `expect: { status: done }`"));
            return None;
        }
        let span = section.keys().next().and_then(|it| self.report.span(&it.range))?;
        let status = match section.get("status") {
            Some(status) => self.status(status)?,
            None if until.is_empty() => ExpectedValue { value: Status::Done, span },
            None => ExpectedValue { value: Status::Paused, span },
        };
        let reason = section.get("reason").and_then(|it| self.report.word(it, "`reason`"));
        let reason = reason.and_then(|it| self.at(&it, it.text.clone()));
        let route = section.get("route").and_then(|it| self.route(it));
        let state = section.get("state").map(|it| self.state(it)).unwrap_or_default();
        let unset = section.get("unset").map(|it| self.unset(it)).unwrap_or_default();
        let visits = section.get("visits").map(|it| self.visits(it)).unwrap_or_default();
        let events = section.get("events").map(|it| self.events(it)).unwrap_or_default();
        let never = section.get("never").map(|it| self.nodes(it, "`never`")).unwrap_or_default();
        let prompts = section.get("prompts").map(|it| self.prompts(it)).unwrap_or_default();
        let expect =
            Expectation { status, reason, route, state, unset, visits, events, never, prompts };
        self.refuse_contradictions(&expect, until);
        Some(expect)
    }

    fn at<T>(&self, word: &SpannedText, value: T) -> Option<ExpectedValue<T>> {
        Some(ExpectedValue { value, span: self.report.span(&word.range)? })
    }

    fn status(&mut self, yaml: &Yaml) -> Option<ExpectedValue<Status>> {
        let word = self.report.word(yaml, "`status`")?;
        if let Some(status) = STATUSES.into_iter().find(|it| it.as_str() == word.text) {
            return self.at(&word, status);
        }
        let help = suggestion(&word.text, STATUSES.map(Status::as_str)).unwrap_or_default();
        self.report.bad_value(&word, format!("no run stops as `{}`", word.text), &help);
        None
    }

    /// Returns a list of steps: a node, a list of nodes that run together, or `…` for any steps.
    fn route(&mut self, yaml: &Yaml) -> Option<ExpectedValue<Vec<Stage>>> {
        let Data::List(items) = &yaml.data else {
            self.report.wrong_kind(yaml, "`route`", "a list of steps");
            return None;
        };
        let mut stages = Vec::new();
        for item in items {
            if matches!(item.text(), Some("…" | "...")) {
                stages.push(Stage::Any);
                continue;
            }
            let words = self.report.words(item, "a step of `route`");
            let mut nodes: Vec<NodeName> = words.iter().filter_map(|it| self.node(it)).collect();
            nodes.sort();
            stages.push(Stage::Step(nodes));
        }
        Some(ExpectedValue { value: stages, span: self.report.span(&yaml.range)? })
    }

    fn state(&mut self, yaml: &Yaml) -> Vec<ExpectedValue<(Vec<String>, Value)>> {
        let Data::Map(entries) = &yaml.data else {
            self.report.wrong_kind(yaml, "`state`", "a mapping from fields to values");
            return Vec::new();
        };
        entries.iter().filter_map(|it| self.value_at(it)).collect()
    }

    fn value_at(
        &mut self,
        Entry { key, value }: &Entry,
    ) -> Option<ExpectedValue<(Vec<String>, Value)>> {
        let schema = self.graph.schema.clone();
        let path = path_of(&key.text, &schema);
        let first = SpannedText { text: path[0].clone(), range: key.range.clone() };
        let name = self.report.channel(&first, &schema)?;
        let mut ty = schema.channel(name.as_str())?.ty();
        for part in &path[1..] {
            if *ty.required() == graphrun_core::state::Type::Any {
                break;
            }
            let Some(field) = ty.field(part) else {
                let message = format!("`{ty}` has no field `{part}`");
                let span = self.report.span(&key.range);
                let diagnostic = Diagnostic::error("GR021", message).at(span, "no such field");
                let known = match ty.required() {
                    graphrun_core::state::Type::Record(it) => {
                        it.fields.iter().map(|it| it.name.as_str()).collect()
                    }
                    _ => Vec::new(),
                };
                let help = suggestion(part, known);
                self.report.push(Diagnostic { help, ..diagnostic });
                return None;
            };
            ty = field;
        }
        let value = self.expected(&name, ty, value)?;
        self.at(key, (path, value))
    }

    fn unset(&mut self, yaml: &Yaml) -> Vec<ExpectedValue<ChannelName>> {
        let schema = self.graph.schema.clone();
        let words = self.report.words(yaml, "`unset`");
        let find = |word: &SpannedText| {
            let channel = self.report.channel(word, &schema)?;
            self.at(word, channel)
        };
        words.iter().filter_map(find).collect()
    }

    fn visits(&mut self, yaml: &Yaml) -> Vec<ExpectedValue<(NodeName, usize)>> {
        let Data::Map(entries) = &yaml.data else {
            self.report.wrong_kind(yaml, "`visits`", "a mapping from nodes to numbers");
            return Vec::new();
        };
        let read = |Entry { key, value }: &Entry| {
            let node = self.node(key)?;
            let number = self.report.count(value, "how often it runs", 0)?;
            self.at(key, (node, number))
        };
        entries.iter().filter_map(read).collect()
    }

    fn prompts(&mut self, yaml: &Yaml) -> Vec<ExpectedValue<(NodeName, PromptParts)>> {
        let Data::Map(entries) = &yaml.data else {
            self.report.wrong_kind(yaml, "`prompts`", "a mapping from nodes to texts");
            return Vec::new();
        };
        let read = |Entry { key, value }: &Entry| {
            let node = self.node(key)?;
            let parts = if let Data::List(items) = &value.data {
                let texts = items.iter().map(|it| self.report.word(it, "a part of a prompt"));
                PromptParts::Visits(
                    texts.map(|word| word.map(|it| it.text)).collect::<Option<_>>()?,
                )
            } else {
                PromptParts::Each(self.report.word(value, "a part of a prompt")?.text)
            };
            self.at(key, (node, parts))
        };
        entries.iter().filter_map(read).collect()
    }

    pub(super) fn nodes(&mut self, yaml: &Yaml, what: &str) -> Vec<ExpectedValue<NodeName>> {
        let words = self.report.words(yaml, what);
        let find = |it: &SpannedText| {
            let node = self.node(it)?;
            self.at(it, node)
        };
        words.iter().filter_map(find).collect()
    }

    fn events(&mut self, yaml: &Yaml) -> Vec<ExpectedValue<String>> {
        let told: Vec<String> =
            self.graph.nodes.values().filter_map(|it| it.policies.emits.clone()).collect();
        let words = self.report.words(yaml, "`events`");
        let mut events = Vec::new();
        for word in words {
            if told.contains(&word.text) {
                events.extend(self.at(&word, word.text.clone()));
                continue;
            }
            let message = format!("no node emits `{}`", word.text);
            let span = self.report.span(&word.range);
            let diagnostic = Diagnostic::error("GR084", message).at(span, "never emitted");
            let help = suggestion(&word.text, told.iter().map(String::as_str));
            let help = help.unwrap_or_else(|| "give the node `emits: NAME`".to_owned());
            self.report.push(diagnostic.help(help));
        }
        events
    }

    /// Refuses expectations that contradict each other: they would fail with every workflow.
    fn refuse_contradictions(&mut self, expect: &Expectation, until: &[ExpectedValue<NodeName>]) {
        let mut found = Vec::new();
        let status = &expect.status;
        if let Some(stop) = until.first().filter(|_| status.value != Status::Paused) {
            let message = format!(
                "a run that stops before `{}` is paused, and not {}",
                stop.value,
                status.value.as_str()
            );
            found.push((message, &status.span, Some(&stop.span)));
        }
        let route = expect.route.as_ref();
        let runs = |node: &NodeName| {
            let steps = route.iter().flat_map(|it| &it.value).filter_map(|it| match it {
                Stage::Step(nodes) => Some(nodes),
                Stage::Any => None,
            });
            steps.filter(|it| it.contains(node)).count()
        };
        // Items that wait for others run in later steps of the same visit.
        let has_items = |node: &NodeName| self.graph.nodes[node].policies.schedule.items.is_some();
        let is_open = route.is_none_or(|it| it.value.contains(&Stage::Any));
        for never in &expect.never {
            if runs(&never.value) > 0 {
                let message = format!("`{}` is in the route and under `never`", never.value);
                found.push((message, &never.span, route.map(|it| &it.span)));
            }
        }
        for visits in &expect.visits {
            let (node, number) = &visits.value;
            let in_route = runs(node);
            let differs = if is_open && !has_items(node) {
                in_route > *number
            } else {
                !is_open && in_route == 0 && *number > 0
            };
            if differs {
                let message = format!(
                    "`{node}` is in the route {}, but {} expected",
                    count(in_route as u64, "time"),
                    if *number == 1 {
                        "1 visit is".to_owned()
                    } else {
                        format!("{number} visits are")
                    }
                );
                found.push((message, &visits.span, route.map(|it| &it.span)));
            }
            if let Some(never) = expect.never.iter().find(|it| it.value == *node && *number > 0) {
                let message = format!("`{node}` is under `visits` and under `never`");
                found.push((message, &visits.span, Some(&never.span)));
            }
        }
        for unset in &expect.unset {
            let said = expect.state.iter().find(|it| it.value.0[0] == unset.value.as_str());
            if let Some(said) = said {
                let message =
                    format!("`{}` is expected to be unset and to have a value", unset.value);
                found.push((message, &unset.span, Some(&said.span)));
            }
        }
        // The reason is the limit that led to `exhausted`.
        let may_have_reason = self.graph.limits.exhausted.is_some();
        if let (Status::Done, Some(reason), false) =
            (expect.status.value, &expect.reason, may_have_reason)
        {
            let message = "a run that is done has no reason".to_owned();
            found.push((message, &reason.span, Some(&expect.status.span)));
        }
        for (message, span, other) in found {
            let diagnostic = Diagnostic::error("GR083", message);
            let diagnostic = diagnostic.at(Some(span.clone()), "cannot hold");
            let diagnostic = diagnostic.at(other.cloned(), "together with this");
            self.report.push(diagnostic.help("remove one of the two"));
        }
    }
}

/// Returns the field that a text names, and the path into it. Fields of used workflows have dots in their names:
/// `inner.review.verdict` is `verdict` of `inner.review`, if there is such a field.
fn path_of(text: &str, schema: &Schema) -> Vec<String> {
    let mut dots = text.match_indices('.').map(|(at, _)| at).chain([text.len()]);
    let longest = dots.rfind(|at| schema.channel(&text[..*at]).is_some());
    let first = text.find('.').unwrap_or(text.len());
    let is_used = |it: &Channel| it.name().strip_scope(&text[..first]).is_some();
    let first = if schema.channels().iter().any(is_used) { text.len() } else { first };
    let end = longest.unwrap_or(first);
    let rest = text[end..].split('.').skip(1).map(str::to_owned);
    [text[..end].to_owned()].into_iter().chain(rest).collect()
}
