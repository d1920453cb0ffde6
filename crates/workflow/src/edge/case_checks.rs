//! Checks a list of cases as a whole: cases that are never reached, states that no case covers.

use std::ops::Range;

use graphrun_core::{diagnostic::Diagnostic, id::NodeName};
use graphrun_expressions::{CaseList, UncoveredState};

use crate::{
    Expression,
    source::{reader::Yaml, report::Report},
};

/// The conditions of a list of cases, in order.
#[derive(Debug, Default)]
pub(crate) struct CaseConditions<'a> {
    /// The place of each, and whether it has been reported as constant.
    pub(crate) list: Vec<(&'a Yaml, Expression, bool)>,
    /// Whether some condition is invalid.
    pub(crate) unknown: bool,
}

/// Checks that each case is reachable and that the cases cover every state.
pub(crate) fn check_cases(
    report: &mut Report,
    from: &NodeName,
    conditions: &CaseConditions<'_>,
    otherwise: Option<&Yaml>,
    last: &Range<usize>,
) {
    let expressions: Vec<&Expression> = conditions.list.iter().map(|it| &it.1).collect();
    let mut cases = CaseList::of(&expressions);
    let uncovered = cases.uncovered();
    let constant = (conditions.list.iter().enumerate()).filter(|(_, it)| it.2);
    // The check of each constant condition reports it at its own place.
    let passed: Vec<usize> = constant.map(|(at, _)| at).collect();
    let mut all_reached = passed.is_empty();
    for (at, (when, ..)) in conditions.list.iter().enumerate() {
        if !passed.contains(&at) {
            let takers = cases.takers(at, &passed);
            all_reached &= takers.is_empty();
            report_taken(report, when, &takers, conditions);
        }
    }
    match (otherwise, uncovered) {
        (Some(otherwise), UncoveredState::No) if all_reached => {
            let message = "the earlier cases cover everything";
            let span = report.span(&otherwise.range);
            let diagnostic = Diagnostic::warning("GR025", message).at(span, "never reached");
            report
                .push(diagnostic.help("remove it; the check ensures that every value has a case"));
        }
        (None, uncovered) if !conditions.unknown => {
            report_uncovered(report, from, &uncovered, last);
        }
        _ => (),
    }
}

fn report_taken(
    report: &mut Report,
    when: &Yaml,
    takers: &[usize],
    conditions: &CaseConditions<'_>,
) {
    const SHOWN_MAX: usize = 3;
    if takers.is_empty() {
        return;
    }
    let message = match takers {
        [_] => "an earlier case takes everything that it would take",
        _ => "earlier cases take everything that it would take",
    };
    let span = report.span(&when.range);
    let mut diagnostic = Diagnostic::error("GR025", message).at(span, "never reached");
    for taker in takers.iter().take(SHOWN_MAX) {
        let span = report.span(&conditions.list[*taker].0.range);
        diagnostic = diagnostic.at(span, "taken here");
    }
    let help = "cases are tried in order; put the narrower one first, or remove it";
    report.push(diagnostic.help(help));
}

fn report_uncovered(
    report: &mut Report,
    from: &NodeName,
    uncovered: &UncoveredState,
    last: &Range<usize>,
) {
    let example = match uncovered {
        UncoveredState::No => return,
        UncoveredState::Yes(example) => format!("no case holds when {example}"),
        UncoveredState::Perhaps(example) => {
            format!("possibly no case holds, for instance when {example}")
        }
        UncoveredState::Unknown => "the check cannot prove that a case always holds".to_owned(),
    };
    let label = format!("no route from `{from}` then");
    let diagnostic = Diagnostic::error("GR024", example).at(report.span(last), label);
    report.push(
        diagnostic.help("add a case for it, or a last one without a condition: `- { to: … }`"),
    );
}
