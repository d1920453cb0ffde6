use super::*;
use crate::compile::VisitBound;

fn node(name: &str, is_dispatched: bool, calls_max: Option<u64>) -> PlannedNode {
    let why = VisitBound::Rounds {
        max_visits: 2,
        is_first_free: true,
        resets: Vec::new(),
        after_limit: false,
    };
    let node = NodeWorstCase {
        visits_max: 2,
        is_dispatched,
        attempts_max: u64::MAX,
        calls_max,
        time_max: None,
        why,
    };
    PlannedNode::new(NodeName::parse(name).unwrap(), "node", &node, &Rates::default())
}

#[test]
fn unknown_values_are_never_shown_as_zero() {
    let nodes = vec![node("own", false, None), node("map", true, Some(12))];
    let mut plan = Plan {
        workflow: "odd".into(),
        steps_max: u64::MAX,
        calls_max: 12,
        calls_unknown: vec![NodeName::parse("own").unwrap()],
        tokens_max: None,
        cost_usd_max: None,
        totals: KnownTotals::default(),
        time_ms_max: None,
        largest: LargestNodes::of(&nodes),
        unknown: Vec::new(),
        limits: PlannedLimits::new(&Limits::default()),
        models: BTreeMap::new(),
        warnings: Vec::new(),
        nodes,
    };
    plan.unknown = plan.unknowns(&Rates::default());
    insta::assert_snapshot!(plan.draw(Paint::new(false)), @r"
    NODE  RUNS       ATTEMPTS                   MODEL CALLS  WHY
    own   2          too many to count          ?            2 visits
    map   2 × items  too many to count × items  12 × items   2 visits

    super-steps  too many to count                           mostly `own`  limit: 100
    model calls  12 for one item of each and those of `own`  mostly `map`
    tokens       ?
    cost         ?
    time         ?
    not known: tokens and cost: `own` may call models, with an unknown number of calls
    not known: time: `own`, `map` without `timeout`
    ");
}
