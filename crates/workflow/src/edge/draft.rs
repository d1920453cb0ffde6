//! Edges as they are written: their targets are resolved, and their expressions are not read yet.

use graphrun_core::{
    diagnostic::SourceSpan,
    graph::{Edge, RouteChoice, Target},
    id::{ChannelName, NodeName},
    state::Schema,
};
use graphrun_expressions::{
    ByOutcome, FieldGuarantee, PresentValue, flow::success::SuccessFields, guarantees_after,
    present_after,
};

use crate::source::reader::{SpannedText, Yaml};

/// An edge as it is written.
#[derive(Debug)]
pub(crate) enum EdgeDraft<'y> {
    /// One that does not depend on the state.
    Plain(Edge),
    /// One that does.
    Route { from: NodeName, route: RouteDraft<'y>, span: Option<SourceSpan> },
}

/// A route whose expressions are not read yet.
#[derive(Debug)]
pub(crate) enum RouteDraft<'y> {
    /// Cases that are tried in order.
    Cases { then: &'y Yaml, cases: Vec<CaseDraft<'y>> },
    /// A target for each value.
    Match { on: Option<&'y Yaml>, to: &'y SpannedText, arms: Vec<(SpannedText, Vec<Target>)> },
    /// A task for each item of the list of a `map`.
    Each { node: NodeName, after: Vec<Target> },
}

/// A case of a route.
#[derive(Debug)]
pub(crate) struct CaseDraft<'y> {
    pub(crate) item: &'y Yaml,
    pub(crate) when: Option<&'y Yaml>,
    /// Whether its condition has an unknown key, which is reported.
    pub(crate) is_incomplete: bool,
    pub(crate) to: Vec<Target>,
}

impl EdgeDraft<'_> {
    /// Returns whether it is a route behind one node with another one as a target.
    pub(crate) fn may_lead(&self, from: &NodeName, to: &NodeName) -> bool {
        let Self::Route { from: source, route, .. } = self else { return false };
        let leads = |choice: &RouteChoice| choice.to.iter().any(|it| it.node() == Some(to));
        source == from && route.choices().iter().any(leads)
    }
}

impl RouteDraft<'_> {
    /// Returns the guarantees that each decision proves; nothing, if none does.
    pub(crate) fn guarantees(
        &self,
        schema: &Schema,
        success: &SuccessFields,
    ) -> Vec<Vec<FieldGuarantee>> {
        let after = |condition: &str| guarantees_after(condition, schema, success);
        match self {
            Self::Cases { cases, .. } => {
                after_cases(cases.iter().map(|it| it.when.map(text_of)), after)
            }
            Self::Match { on, arms, .. } => {
                let on = after(on.map(text_of).unwrap_or_default());
                after_match(&on, arms.iter().map(|it| it.0.text.as_str()))
            }
            Self::Each { .. } => Vec::new(),
        }
    }

    /// Returns the possible decisions, of which exactly one is made.
    pub(crate) fn choices(&self) -> Vec<RouteChoice> {
        match self {
            Self::Cases { cases, .. } => {
                case_choices(cases.iter().map(|it| (it.when.map(text_of), &it.to)))
            }
            Self::Match { on, arms, .. } => {
                let on = on.map(text_of).unwrap_or_default();
                match_choices(on, arms.iter().map(|(value, to)| (value.text.as_str(), to)))
            }
            Self::Each { node, after } => {
                let to = vec![Target::Node(node.clone())];
                vec![
                    RouteChoice { to, is_dispatched: true, known: Vec::new() },
                    RouteChoice { to: after.clone(), ..RouteChoice::default() },
                ]
            }
        }
    }
}

fn text_of(yaml: &Yaml) -> &str {
    yaml.text().unwrap_or_default()
}

/// Returns the choices of cases with their conditions.
pub(crate) fn case_choices<'a>(
    cases: impl Iterator<Item = (Option<&'a str>, &'a Vec<Target>)>,
) -> Vec<RouteChoice> {
    let (conditions, targets): (Vec<_>, Vec<_>) = cases.unzip();
    let present = after_cases(conditions.into_iter(), present_after);
    targets.into_iter().zip(present).map(|(to, present)| choice(to, &present)).collect()
}

/// Returns the choices of a match over this expression, with the value of each.
pub(crate) fn match_choices<'a>(
    on: &str,
    arms: impl Iterator<Item = (&'a str, &'a Vec<Target>)>,
) -> Vec<RouteChoice> {
    let (values, targets): (Vec<_>, Vec<_>) = arms.unzip();
    let present = after_match(&present_after(on), values.into_iter());
    targets.into_iter().zip(present).map(|(to, present)| choice(to, &present)).collect()
}

/// Returns a choice that proves these values present.
fn choice(to: &[Target], present: &[PresentValue]) -> RouteChoice {
    let whole = present.iter().filter(|it| it.path == it.name);
    let known = whole.filter_map(|it| ChannelName::parse(&it.name).ok()).collect();
    RouteChoice { to: to.to_vec(), is_dispatched: false, known }
}

/// Returns what each case proves. A case is taken if its condition is true and all earlier ones are false.
fn after_cases<'a, T: Clone>(
    conditions: impl Iterator<Item = Option<&'a str>>,
    after: impl Fn(&str) -> ByOutcome<T>,
) -> Vec<Vec<T>> {
    let mut of_earlier: Vec<T> = Vec::new();
    let proved = |condition: Option<&str>| {
        let own = condition.map(&after).unwrap_or_default();
        let proved = of_earlier.iter().cloned().chain(own.if_true).collect();
        of_earlier.extend(own.if_false);
        proved
    };
    conditions.map(proved).collect()
}

/// Returns what each value of a matched expression proves. Only a condition proves something.
fn after_match<'a, T: Clone>(
    on: &ByOutcome<T>,
    values: impl Iterator<Item = &'a str>,
) -> Vec<Vec<T>> {
    let proved = |value: &str| match value {
        "true" => on.if_true.clone(),
        "false" => on.if_false.clone(),
        _ => Vec::new(),
    };
    values.map(proved).collect()
}
