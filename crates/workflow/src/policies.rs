//! The policies of a node: retries, bounds, resets, clears and routes for failures.

use std::time::Duration;

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Backoff, Catch, Defer, ErrorKind, NodeLimits, Policies, Target},
    id::NodeName,
};

use super::{
    Expression,
    kind::RegisteredKind,
    lower::Lowering,
    reader::{Data, Entry, Yaml},
    shape::Section,
};
/// More tries than this count as a mistake.
pub(super) const ATTEMPTS_MAX: u32 = 20;

/// The keys of `retry`.
pub(super) const RETRY_KEYS: &[&str] = &["attempts", "initial", "max"];

/// The keys of `timeout`.
pub(super) const TIMEOUT_KEYS: &[&str] = &["total", "idle"];

/// The keys of the limits of a node.
pub(super) const NODE_LIMITS_KEYS: &[&str] = &["tokens", "usd", "time"];

/// The keys that every node takes.
pub(super) const COMMON: &[&str] = &[
    "about",
    "then",
    "max_visits",
    "exhausted",
    "limits",
    "resets",
    "clears",
    "emits",
    "catch",
    "timeout",
    "retry",
    "when",
    "cache",
    "defer",
    "join",
];

/// The longest duration of an attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timeouts {
    pub(super) total: Option<Duration>,
    pub(super) idle: Option<Duration>,
}

impl Lowering {
    pub(super) fn read_policies(
        &mut self,
        name: &NodeName,
        section: &Section<'_>,
        kinds: &[RegisteredKind],
    ) -> Policies {
        let asks = kinds.iter().any(|it| it.kind.asks() && section.get(it.key()).is_some());
        let timeout = section.get("timeout").and_then(|it| self.read_timeout(it));
        let timeout = timeout.unwrap_or_default();
        if let (Some(key), true, true) = (section.key("timeout"), asks, timeout.idle.is_some()) {
            let message = "`idle` does not apply to a question: it has a total time";
            self.report.bad_value(key, message, "write `timeout: 24h`");
        }
        let max_visits =
            section.get("max_visits").and_then(|it| self.report.count(it, "`max_visits`", 1));
        let exhausted = section.get("exhausted").and_then(|it| self.read_target(it, "`exhausted`"));
        let limits = section.get("limits").and_then(|it| self.read_node_limits(it));
        let is_bounded = section.has_or_means("max_visits") || section.has_or_means("limits");
        if let (Some(key), false) = (section.key("exhausted"), is_bounded) {
            let message =
                format!("`{name}` has a target for used-up visits, but no number of visits");
            let place = self.report.place(&key.range);
            let finding = Diagnostic::error("GR006", message).at(place, "without `max_visits`");
            self.report.push(finding.help("add `max_visits: 3`"));
        }
        let retry = section.get("retry").and_then(|it| self.read_retry(it));
        let resets = section.get("resets").map(|it| self.read_resets(it)).unwrap_or_default();
        let clears = section.get("clears");
        let clears = clears.map(|it| self.report.channels(it, "`clears`", &self.schema));
        let emits = section.get("emits").and_then(|it| self.report.word(it, "`emits`"));
        let defer = section.get("defer").and_then(|it| self.report.bool(it, "`defer`"));
        let catch = section.get("catch").map(|it| self.read_catch(it)).unwrap_or_default();
        Policies {
            retry: retry.unwrap_or_else(|| self.defaults.retry.clone()),
            // The default timeout of nodes does not apply to people.
            timeout: timeout.total.or(self.defaults.timeout.filter(|_| !asks)),
            idle_timeout: timeout.idle.or(self.defaults.idle_timeout).filter(|_| !asks),
            max_visits,
            limits,
            exhausted,
            resets,
            clears: clears.unwrap_or_default(),
            catch: self.with_default_catch(name, catch),
            emits: emits.and_then(|it| self.report.node_name(&it)).map(|it| it.to_string()),
            defer: defer.unwrap_or(false).then_some(Defer::Siblings),
            width_max: None,
        }
    }

    /// Reads the condition under which a node runs.
    pub(super) fn read_when(&mut self, name: &NodeName, yaml: &Yaml) -> Option<Expression> {
        let written = self.flow.before(name);
        let condition = self.expression(yaml, &written)?;
        self.check_condition(yaml, &condition);
        Some(condition)
    }

    fn read_node_limits(&mut self, yaml: &Yaml) -> Option<NodeLimits> {
        let section = Section::read(&mut self.report, yaml, "`limits`", NODE_LIMITS_KEYS)?;
        Some(NodeLimits {
            tokens: section.get("tokens").and_then(|it| self.report.count(it, "`tokens`", 1)),
            usd: section.get("usd").and_then(|it| self.read_dollars(it)),
            time: section.get("time").and_then(|it| self.report.duration(it, "`time`")),
        })
    }

    /// Reads a duration, or one in all and one without progress.
    pub(super) fn read_timeout(&mut self, yaml: &Yaml) -> Option<Timeouts> {
        if !matches!(yaml.data, Data::Map(_)) {
            let total = self.report.duration(yaml, "`timeout`")?;
            return Some(Timeouts { total: Some(total), idle: None });
        }
        let section = Section::read(&mut self.report, yaml, "`timeout`", TIMEOUT_KEYS)?;
        let mut read =
            |key| section.get(key).and_then(|it| self.report.duration(it, &format!("`{key}`")));
        let (total, idle) = (read("total"), read("idle"));
        if let (Some(word), Some(total), Some(idle)) = (section.key("idle"), total, idle)
            && idle >= total
        {
            let message = "`idle` is not shorter than the total time";
            self.report.bad_value(word, message, "shorten `idle`, or remove it");
        }
        Some(Timeouts { total, idle })
    }

    /// Reads the single target of a key.
    pub(super) fn read_target(&mut self, yaml: &Yaml, what: &str) -> Option<Target> {
        let word = self.report.word(yaml, what)?;
        self.declarations.resolve_one(&mut self.report, &word)
    }

    pub(super) fn read_retry(&mut self, yaml: &Yaml) -> Option<Backoff> {
        let mut retry = Backoff::default();
        let wanted = format!("a number of attempts from 1 to {ATTEMPTS_MAX}");
        let fits = |it: &u32| (1..=ATTEMPTS_MAX).contains(it);
        if !matches!(yaml.data, Data::Map(_)) {
            retry.attempts_max = self.report.number(yaml, "`retry`", &wanted, fits)?;
            return Some(retry);
        }
        let section = Section::read(&mut self.report, yaml, "`retry`", RETRY_KEYS)?;
        let attempts = section.require(&mut self.report, "attempts", "write `attempts: 3`")?;
        retry.attempts_max = self.report.number(attempts, "`attempts`", &wanted, fits)?;
        if let Some(initial) = section.get("initial") {
            retry.initial = self.report.duration(initial, "`initial`")?;
        }
        if let Some(max) = section.get("max") {
            retry.max = self.report.duration(max, "`max`")?;
        }
        if retry.max < retry.initial {
            let word = section.key("max").or(section.key("initial"))?;
            self.report.bad_value(word, "the first wait is longer than the longest one", "");
        }
        Some(retry)
    }

    pub(super) fn read_catch(&mut self, yaml: &Yaml) -> Vec<Catch> {
        let Data::Map(entries) = &yaml.data else {
            let wanted = "a mapping from kinds of errors to nodes";
            self.report.wrong_kind(yaml, "`catch`", wanted);
            return Vec::new();
        };
        let mut catch = Vec::new();
        for Entry { key, value } in entries {
            let found = ErrorKind::named(&key.text);
            if found.is_none() && key.text != "any" {
                let known = ErrorKind::ALL.map(ErrorKind::as_str).into_iter().chain(["any"]);
                self.report.unknown("GR017", "kind of error", key, known);
                continue;
            }
            if let Some(to) = self.read_target(value, "the target of a `catch`") {
                catch.push(Catch { kind: found, to });
            }
        }
        // `any` applies to the remaining kinds, wherever it is written.
        catch.sort_by_key(|it| it.kind.is_none());
        catch
    }

    /// Adds the defaults for kinds that the node does not catch itself.
    ///
    /// A node is not caught by itself: at the target of a default, its own failure is the failure
    /// of the run.
    fn with_default_catch(&self, name: &NodeName, mut catch: Vec<Catch>) -> Vec<Catch> {
        for default in &self.defaults.catch {
            let covered = catch.iter().any(|it| it.kind == default.kind || it.kind.is_none());
            if !covered && default.to.node() != Some(name) {
                catch.push(default.clone());
            }
        }
        catch
    }

    fn read_resets(&mut self, yaml: &Yaml) -> Vec<NodeName> {
        let mut resets = Vec::new();
        for word in self.report.words(yaml, "`resets`") {
            for target in self.declarations.named(&mut self.report, &word) {
                match target {
                    Target::Node(node) => resets.push(node),
                    Target::End | Target::Fail => {
                        let message = format!("`{}` has no visits to reset", word.text);
                        self.report.bad_value(&word, message, "name a node");
                    }
                }
            }
        }
        resets
    }
}
