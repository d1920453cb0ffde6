//! Checks the bounds of nodes that are inputs: `max_visits: FIELD`.
//!
//! Such a bound must be the same in a whole run, and its largest value must be known. Then each loop still ends, and
//! `plan` can compute the worst case.

use graphrun_core::{
    diagnostic::Diagnostic,
    id::{ChannelName, NodeName},
    state::{NumberRange, Type},
};

use crate::{
    flow::Sources,
    lower::draft::NodeDraft,
    source::{reader::Yaml, report::Report},
};

/// Reports each bound that is no fixed input with a range.
pub(crate) fn check_bounds(report: &mut Report, sources: Sources<'_>) {
    for node in sources.draft.nodes.values() {
        let Some(field) = &node.policies.bounds.visits_field else { continue };
        let Some(yaml) = node.section.get("max_visits") else { continue };
        if sources.incomplete_fields.contains(field) {
            continue;
        }
        let found = fault_of_range(sources, field)
            .or_else(|| fault_of_source(sources, field))
            .or_else(|| fault_of_writers(sources, field));
        if let Some(Fault { message, label, help }) = found {
            let span = report.span(&yaml.range);
            report.push(Diagnostic::error("GR135", message).at(span, label).help(help));
        }
    }
}

/// Why a field is no bound.
struct Fault {
    message: String,
    label: &'static str,
    help: String,
}

/// Checks that the field is a whole number whose largest value is known.
fn fault_of_range(sources: Sources<'_>, field: &ChannelName) -> Option<Fault> {
    let channel = sources.schema.channel(field.as_str())?;
    let Type::Int(range) = *channel.ty() else {
        return Some(Fault {
            message: format!("a number of visits is an `int`, and `{field}` is `{}`", channel.ty()),
            label: "no whole number",
            help: format!("write `{field}: {{ type: int, min: 1, max: 10 }}` in `state`"),
        });
    };
    let NumberRange { min, max } = range;
    let is_bound = |it: f64| (1.0..=f64::from(u32::MAX)).contains(&it);
    let lacks = match (min.is_some_and(is_bound), max.is_some_and(is_bound)) {
        (true, true) => return None,
        (_, false) => "the largest number of visits is not known",
        (false, true) => "the number of visits may be less than one",
    };
    let max = max.filter(|it| is_bound(*it)).unwrap_or(10.0);
    let min = min.filter(|it| is_bound(*it) && *it <= max).unwrap_or(1.0);
    Some(Fault {
        message: format!("{lacks}, because `{field}` takes {range}"),
        label: "no bound",
        help: format!(
            "a bound needs a `min` from 1 on and a `max`: `{field}: {{ type: int, min: {min}, max: {max} }}`"
        ),
    })
}

/// Checks that the value is given when a run starts.
fn fault_of_source(sources: Sources<'_>, field: &ChannelName) -> Option<Fault> {
    let named = sources.top.get("input").map(Yaml::words).unwrap_or_default();
    let is_unclear = named.iter().any(|it| sources.schema.channel(it).is_none());
    if sources.input.contains(field) || is_unclear {
        return None;
    }
    let mut inputs: Vec<&str> = sources.input.iter().map(ChannelName::as_str).collect();
    inputs.push(field.as_str());
    Some(Fault {
        message: format!("`{field}` is a bound, and no input"),
        label: "not given at the start of a run",
        help: format!("write `input: [{}]`, or a number here", inputs.join(", ")),
    })
}

/// Checks that the value stays the same in a run.
fn fault_of_writers(sources: Sources<'_>, field: &ChannelName) -> Option<Fault> {
    let writer = sources.draft.nodes.iter().find_map(|(name, node)| {
        let how = changes(sources, name, node, field)?;
        Some((name, how))
    });
    let (name, how) = writer?;
    Some(Fault {
        message: format!("`{name}` {how} `{field}`, which is a bound"),
        label: "may change in a run",
        help: format!("let `{name}` use another field, or write a number here"),
    })
}

fn changes(
    sources: Sources<'_>,
    name: &NodeName,
    node: &NodeDraft<'_>,
    field: &ChannelName,
) -> Option<&'static str> {
    if node.policies.on_finish.clears.contains(field) {
        return Some("clears");
    }
    if let Some((maybe, _)) = sources.written(name, node) {
        return maybe.contains(field).then_some("writes");
    }
    // The fields that a node of Rust writes may be unknown. Of other nodes the reason is reported.
    let custom = node.section.get("node").and_then(Yaml::text)?;
    let contract = sources.registry.custom(custom)?.describe().contract;
    contract.writes.is_none().then_some("declares no writes, and may change")
}
