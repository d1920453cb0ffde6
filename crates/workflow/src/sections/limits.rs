//! `limits` and `defaults`.

use graphrun_core::graph::Limits;

use crate::{
    Defaults,
    format::{DefaultsKeys, LimitsKeys},
    lower::declarations::Declarations,
    node::policies::read_catch,
    source::{reader::Yaml, report::Report, shape::Section},
};

/// The default number of repairs of an answer.
const REPAIRS: u32 = 2;

/// Reads the defaults of nodes.
pub(crate) fn read_defaults(
    report: &mut Report,
    top: &Section<'_>,
    declarations: &Declarations,
) -> Defaults {
    let section = top.get("defaults");
    let section = section.and_then(|it| Section::read::<DefaultsKeys>(report, it, "`defaults`"));
    let get = |key| section.as_ref().and_then(|it| it.get(key));
    let retry = get("retry").and_then(|it| report.retry(it));
    let timeout = get("timeout").and_then(|it| report.timeout(it)).unwrap_or_default();
    let catch = get("catch").map(|it| read_catch(report, declarations, it));
    let repairs_max = get("repair").and_then(|it| report.count(it, "`repair`", 0));
    Defaults {
        retry: retry.unwrap_or_default(),
        timeout: timeout.total,
        idle_timeout: timeout.idle,
        catch: catch.unwrap_or_default(),
        repairs_max: repairs_max.unwrap_or(REPAIRS),
    }
}

/// Reads the limits of a run.
pub(crate) fn read_limits(
    report: &mut Report,
    top: &Section<'_>,
    declarations: &Declarations,
) -> Limits {
    let section = top.get("limits");
    let section = section.and_then(|it| Section::read::<LimitsKeys>(report, it, "`limits`"));
    let Some(section) = section else { return Limits::default() };
    let steps = section.get("steps").and_then(|it| report.count(it, "`steps`", 1));
    let concurrency = section.get("concurrency");
    let concurrency = concurrency.and_then(|it| report.count(it, "`concurrency`", 1));
    let exhausted = section.get("exhausted");
    let usual = Limits::default();
    Limits {
        span: top.key("limits").and_then(|it| report.span(&it.range)),
        steps: steps.unwrap_or(usual.steps),
        calls: section.get("calls").and_then(|it| report.count(it, "`calls`", 1)),
        tokens: section.get("tokens").and_then(|it| report.count(it, "`tokens`", 1)),
        usd: section.get("usd").and_then(|it| report.dollars(it)),
        time: section.get("time").and_then(|it| report.duration(it, "`time`")),
        concurrency: concurrency.unwrap_or(usual.concurrency),
        exhausted: exhausted.and_then(|it| declarations.read_target(report, it, "`exhausted`")),
    }
}

impl Report {
    pub(crate) fn dollars(&mut self, yaml: &Yaml) -> Option<f64> {
        let fits = |it: &f64| it.is_finite() && *it > 0.0;
        self.number(yaml, "`usd`", "an amount above 0", fits)
    }
}
