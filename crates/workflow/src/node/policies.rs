//! The policies of a node: retries, bounds, resets, clears and routes for failures.

use std::time::Duration;

use graphrun_core::{
    diagnostic::{Diagnostic, did_you_mean},
    graph::{
        Attempts, Backoff, Bounds, Catch, Defer, ErrorKind, NodeLimits, OnFinish, Policies,
        Schedule,
    },
    id::{ChannelName, NodeName},
    state::{Schema, Type},
    words::duration,
};

use super::structure::{FAILED, MAP};
use crate::{
    Defaults, Registry,
    edge::then::fail_reason,
    format::{NodeLimitsKeys, RetryKeys, TimeoutKeys},
    lower::declarations::Declarations,
    source::{
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// More tries than this count as a mistake.
pub(crate) const ATTEMPTS_MAX: u32 = 20;

/// The names that the policies of a node may use, and the defaults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyScope<'r, 'd> {
    pub(crate) registry: &'r Registry,
    pub(crate) declarations: &'d Declarations,
    pub(crate) schema: &'d Schema,
    pub(crate) defaults: &'d Defaults,
}

/// The longest duration of an attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timeouts {
    pub(crate) total: Option<Duration>,
    pub(crate) idle: Option<Duration>,
}

/// Reads the field in `then: { fail: FIELD }`.
fn read_fail_reason(report: &mut Report, then: &Yaml, schema: &Schema) -> Option<ChannelName> {
    let field = fail_reason(then)?;
    let word = report.word(field, "`fail`")?;
    let name = report.channel(&word, schema)?;
    let ty = schema.channel(name.as_str())?.ty().required();
    if !ty.fits(&Type::String) {
        let message = format!("the reason of a failure is a text, and `{name}` is `{ty}`");
        let diagnostic =
            Diagnostic::error("GR022", message).at(report.span(&word.range), "no text");
        report.push(diagnostic.help("name a field of the type `string`, which `set` can compute"));
    }
    Some(name)
}

/// Reads the policies of a node.
pub(crate) fn read_policies(
    report: &mut Report,
    scope: PolicyScope<'_, '_>,
    name: &NodeName,
    section: &Section<'_>,
) -> Policies {
    let PolicyScope { registry, declarations, schema, defaults } = scope;
    let asks = registry.kinds_of(section.yaml()).any(|it| it.kind.asks());
    let timeout = section.get("timeout").and_then(|it| report.timeout(it)).unwrap_or_default();
    if let (Some(key), true, true) = (section.key("timeout"), asks, timeout.idle.is_some()) {
        let message = "`idle` does not apply to a question: it has a total time";
        report.bad_value(key, message, "write `timeout: 24h`");
    }
    let bound = section.get("max_visits").and_then(|it| read_bound(report, it, schema));
    let (max_visits, visits_field) = bound.unzip();
    let exhausted = section.get("exhausted");
    let exhausted = exhausted.and_then(|it| declarations.read_target(report, it, "`exhausted`"));
    let limits = section.get("limits").and_then(|it| report.node_limits(it));
    let is_bounded = section.has_or_means("max_visits") || section.has_or_means("limits");
    if let (Some(key), false) = (section.key("exhausted"), is_bounded) {
        let message = format!("`{name}` has a target for used-up visits, but no number of visits");
        let span = report.span(&key.range);
        let diagnostic =
            Diagnostic::error("GR006", message).at(span, "without `max_visits` or `limits`");
        report.push(
            diagnostic.help("add `max_visits: 3`, or `limits` of the node: `limits: { usd: 1 }`"),
        );
    }
    let retry = section.get("retry").and_then(|it| report.retry(it));
    let resets = section.get("resets").map(|it| read_resets(report, declarations, it));
    let clears = section.get("clears").map(|it| report.channels(it, "`clears`", schema));
    let emits = section.get("emits").and_then(|it| report.word(it, "`emits`"));
    let emits = emits.and_then(|it| report.node_name(&it)).map(|it| it.to_string());
    let defer = section.get("defer").and_then(|it| report.bool(it, "`defer`")).unwrap_or(false);
    let catch = section.get("catch").map(|it| read_catch(report, declarations, it));
    let mut catch = catch.unwrap_or_default();
    let map = declarations.maps.iter().find(|(_, node)| *node == name).map(|it| it.0);
    let collects = section.get(MAP).is_some_and(|it| it.get(FAILED).is_some());
    if let Some(map) = map {
        for key in ["catch", "join", "defer"].into_iter().filter_map(|it| section.key(it)) {
            let message = match key.text.as_str() {
                "catch" => format!("`{map}` decides what follows a failure of `{name}`"),
                _ => format!("`{map}` decides when `{name}` runs"),
            };
            let diagnostic =
                Diagnostic::error("GR039", message).at(report.span(&key.range), "not here");
            report.push(diagnostic.help(format!("move it to `{map}`")));
        }
        catch.clear();
    }
    if collects && catch.iter().any(|it| it.kind.is_none()) {
        let key = section.key("catch");
        let span = key.and_then(|it| report.span(&it.range));
        let message = format!("`{name}` collects failed items, so `any` catches none of them");
        let diagnostic = Diagnostic::error("GR039", message).at(span, "never used");
        report.push(diagnostic.help("remove `any`, or `failed` of the map"));
    }
    // An empty mapping opts out of the defaults.
    let opts_out = section.get("catch").is_some_and(|it| it.entries().is_empty());
    let own = catch.len();
    if map.is_none() && !collects && !opts_out {
        catch = with_defaults(catch, &defaults.catch, name);
    }
    Policies {
        attempts: Attempts {
            retry: retry.unwrap_or_else(|| defaults.retry.clone()),
            // The default timeout of nodes does not apply to people.
            timeout: timeout.total.or(defaults.timeout.filter(|_| !asks)),
            idle_timeout: timeout.idle.or(defaults.idle_timeout).filter(|_| !asks),
        },
        bounds: Bounds { max_visits, visits_field: visits_field.flatten(), limits, exhausted },
        inherits_catch: catch.len() > own,
        catch,
        on_finish: OnFinish {
            resets: resets.unwrap_or_default(),
            clears: clears.unwrap_or_default(),
            // Only code clears fields by its own choice.
            may_clear: Vec::new(),
            fail_reason: section.get("then").and_then(|it| read_fail_reason(report, it, schema)),
        },
        schedule: Schedule { defer: defer.then_some(Defer::Siblings), ..Schedule::default() },
        emits,
    }
}

/// Reads `max_visits`: a number, or a field with the number and its largest value. `bounds` checks that the field is an
/// input.
fn read_bound(
    report: &mut Report,
    yaml: &Yaml,
    schema: &Schema,
) -> Option<(u32, Option<ChannelName>)> {
    // Any other text is rather a wrong number than a misspelt field.
    let fields = || schema.channels().iter().map(|it| it.name().as_str());
    let is_field = |word: &str| {
        let is_name = word.starts_with(|it: char| it.is_ascii_alphabetic());
        is_name && (schema.channel(word).is_some() || did_you_mean(word, fields()).is_some())
    };
    let is_computed =
        |it: &str| it.parse::<f64>().is_err() && it.contains(['.', '(', '+', '-', '*']);
    if yaml.text().is_some_and(|it| !is_field(it) && is_computed(it)) {
        let diagnostic = report.of_wrong_kind(yaml, "`max_visits`", "a whole number from 1 on");
        let help = "or name an input of the type `int` with a `min` from 1 on and a `max`: `max_visits: rounds`";
        report.push(diagnostic.help(help));
        return None;
    }
    if !yaml.text().is_some_and(is_field) {
        return Some((report.count(yaml, "`max_visits`", 1)?, None));
    }
    let word = report.word(yaml, "`max_visits`")?;
    let name = report.channel(&word, schema)?;
    let channel = schema.channel(name.as_str())?;
    if *channel.ty() == Type::Any {
        // Its type is reported.
        return Some((1, Some(name)));
    }
    let max = channel.ty().range().and_then(|it| it.max).unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked with the field"
    )]
    let max = max as u32;
    Some((max.max(1), Some(name)))
}

fn read_resets(report: &mut Report, declarations: &Declarations, yaml: &Yaml) -> Vec<NodeName> {
    let mut resets = Vec::new();
    for word in report.words(yaml, "`resets`") {
        for target in declarations.named(report, &word) {
            let message = format!("`{}` has no visits to reset", word.text);
            resets.extend(report.only_node(&word, target, &message, "name a node"));
        }
    }
    resets
}

/// Reads the targets of failures.
pub(crate) fn read_catch(
    report: &mut Report,
    declarations: &Declarations,
    yaml: &Yaml,
) -> Vec<Catch> {
    let Data::Map(entries) = &yaml.data else {
        report.wrong_kind(yaml, "`catch`", "a mapping from kinds of errors to nodes");
        return Vec::new();
    };
    let mut catch = Vec::new();
    for Entry { key, value } in entries {
        // The target of an unknown kind counts as reachable, so that nothing is reported about it.
        let found = if key.text == "any" { None } else { report.error_kind(key, Some("any")) };
        if let Some(to) = declarations.read_target(report, value, "the target of a `catch`") {
            catch.push(Catch { kind: found, to });
        }
    }
    // `any` applies to the remaining kinds, wherever it is written.
    catch.sort_by_key(|it| it.kind.is_none());
    catch
}

/// Adds the default routes for kinds that the node does not catch itself. The targets of these routes get none: their
/// failures would lead back to them.
fn with_defaults(mut catch: Vec<Catch>, defaults: &[Catch], name: &NodeName) -> Vec<Catch> {
    if defaults.iter().any(|it| it.to.node() == Some(name)) {
        return catch;
    }
    Catch::complete(&mut catch, defaults);
    catch
}

impl Report {
    fn node_limits(&mut self, yaml: &Yaml) -> Option<NodeLimits> {
        let section = Section::read::<NodeLimitsKeys>(self, yaml, "`limits`")?;
        Some(NodeLimits {
            calls: section.get("calls").and_then(|it| self.count(it, "`calls`", 1)),
            tokens: section.get("tokens").and_then(|it| self.count(it, "`tokens`", 1)),
            usd: section.get("usd").and_then(|it| self.dollars(it)),
            time: section.get("time").and_then(|it| self.duration(it, "`time`")),
        })
    }

    /// Reads a duration, or one in all and one without progress.
    pub(crate) fn timeout(&mut self, yaml: &Yaml) -> Option<Timeouts> {
        if !matches!(yaml.data, Data::Map(_)) {
            let total = self.duration(yaml, "`timeout`")?;
            return Some(Timeouts { total: Some(total), idle: None });
        }
        let section = Section::read::<TimeoutKeys>(self, yaml, "`timeout`")?;
        let mut read = |key| section.get(key).and_then(|it| self.duration(it, &format!("`{key}`")));
        let total = read("total");
        let idle = read("idle");
        if let (Some(word), Some(total), Some(idle)) = (section.key("idle"), total, idle)
            && idle >= total
        {
            let message = "`idle` is not shorter than the total time";
            self.bad_value(word, message, "shorten `idle`, or remove it");
        }
        Some(Timeouts { total, idle })
    }

    /// Reads a kind of error. `more` is a word that is allowed as well.
    fn error_kind(&mut self, word: &SpannedText, more: Option<&str>) -> Option<ErrorKind> {
        let found = ErrorKind::named(&word.text);
        if found.is_none() {
            let known = ErrorKind::ALL.map(ErrorKind::as_str).into_iter().chain(more);
            self.unknown("GR017", "kind of error", word, known);
        }
        found
    }

    /// Reads exit codes: one, or a list of them.
    fn exit_codes(&mut self, yaml: &Yaml) -> Vec<i32> {
        let one = std::slice::from_ref(yaml);
        let items = if let Data::List(items) = &yaml.data { items } else { one };
        let wanted = "an exit code from 1 to 255";
        let fits = |it: &i32| (1..=255).contains(it);
        if items.is_empty() {
            self.wrong_kind(yaml, "`exit_codes`", wanted);
        }
        items.iter().filter_map(|it| self.number(it, "`exit_codes`", wanted, fits)).collect()
    }

    pub(crate) fn retry(&mut self, yaml: &Yaml) -> Option<Backoff> {
        let mut retry = Backoff::default();
        let wanted = format!("a number of attempts from 1 to {ATTEMPTS_MAX}");
        let fits = |it: &u32| (1..=ATTEMPTS_MAX).contains(it);
        if !matches!(yaml.data, Data::Map(_)) {
            retry.attempts_max = Some(self.number(yaml, "`retry`", &wanted, fits)?);
            return Some(retry);
        }
        let section = Section::read::<RetryKeys>(self, yaml, "`retry`")?;
        let attempts = section.require(self, "attempts", "write `attempts: 3`")?;
        retry.attempts_max = Some(self.number(attempts, "`attempts`", &wanted, fits)?);
        if let Some(initial) = section.get("initial") {
            retry.initial = self.duration(initial, "`initial`")?;
        }
        if let Some(max) = section.get("max") {
            retry.max = self.duration(max, "`max`")?;
        }
        if section.get("initial").or(section.get("max")).is_some() {
            // The author has chosen how long the waits are.
            retry.total = None;
        }
        if retry.max < retry.initial {
            let word = section.key("max").or(section.key("initial"))?;
            let initial = duration(retry.initial);
            let max = duration(retry.max);
            let usual =
                if section.get("max").is_some() { "" } else { ", which is the default of `max`" };
            let message =
                format!("the first wait, {initial}, is longer than the longest one, {max}{usual}");
            let help = format!("write `max: {initial}` or more, or a shorter `initial`");
            self.bad_value(word, message, &help);
        }
        if let Some(codes) = section.get("exit_codes") {
            retry.exit_codes = self.exit_codes(codes);
        }
        let Some(on) = section.get("on") else { return Some(retry) };
        let words = self.words(on, "`on`");
        if let (Some(key), Data::List(items)) = (section.key("on"), &on.data)
            && items.is_empty()
        {
            self.bad_value(
                key,
                "`on` names no kind of error",
                "write `on: [timeout]`, or remove `on`",
            );
        }
        let kinds: Vec<_> = words.iter().filter_map(|it| self.error_kind(it, None)).collect();
        Some(retry.on(kinds))
    }
}
