use proptest::prelude::*;

use super::*;
use crate::flow_model::{
    Alternative, Bound, Decision, Exclusions, explore::find_starving_joins, pairs::tests::model,
};

fn node(alternatives: Vec<Vec<Arrow>>) -> FlowNode {
    let decision = Decision::one_of(alternatives.into_iter().map(Alternative::to).collect());
    FlowNode { outcomes: vec![Outcome::finished(vec![decision])], ..FlowNode::new(0) }
}

/// `count` branches of three nodes, of which the second one is left out or leads to the third one, or elsewhere for the
/// last branch; the third ones meet.
fn branches(count: usize, elsewhere: Option<Arrow>) -> FlowModel {
    let numbers = |part: usize| (1 + part * count)..(1 + (part + 1) * count);
    let mut nodes = vec![node(vec![numbers(0).map(Arrow::Node).collect()])];
    let both = |at| node(vec![vec![Arrow::Node(at + count)], vec![Arrow::Node(at + 2 * count)]]);
    nodes.extend(numbers(0).map(both));
    nodes.extend(numbers(1).map(|at| node(vec![vec![Arrow::Node(at + count)]])));
    if let Some(elsewhere) = elsewhere {
        nodes[2 * count] = node(vec![vec![Arrow::Node(3 * count)], vec![elsewhere]]);
    }
    nodes.extend(numbers(2).map(|_| node(vec![vec![Arrow::Join(0)]])));
    nodes.push(node(vec![vec![Arrow::End]]));
    let joins = vec![Join { node: 1 + 3 * count, awaited: numbers(2).collect(), count }];
    FlowModel { nodes, joins, start: vec![0], ..FlowModel::default() }
}

#[test]
fn branches_of_a_wide_fork_are_checked_one_by_one() {
    let exclusions = Exclusions::default();
    for (elsewhere, starves) in
        [(None, false), (Some(Arrow::End), true), (Some(Arrow::Fail), false)]
    {
        let [few, many] = [4, 40].map(|it| branches(it, elsewhere));
        let explored = find_starving_joins(&few, &exclusions);
        assert!(explored.is_complete);
        assert_eq!(!explored.starving.is_empty(), starves, "{elsewhere:?}");
        assert!(!find_starving_joins(&many, &exclusions).is_complete);
        for model in [few, many] {
            let found = check_join_alone(&model, 0);
            let is_right = match &found {
                JoinVerdict::Starves(_) => starves,
                JoinVerdict::Completes => !starves,
                JoinVerdict::Unknown => false,
            };
            assert!(is_right, "{elsewhere:?}: {found:?}");
        }
    }
}

#[test]
fn what_was_found_before_the_exploration_gave_up_is_kept() {
    // A loop with partial joins whose situations are few, and whose combinations of choices are too many.
    let to = |nodes: &[usize]| nodes.iter().copied().map(Arrow::Node).collect::<Vec<_>>();
    let join = |it: usize| Arrow::Join(it);
    let bounded = |alternatives, exhausted| FlowNode {
        bound: Some(Bound { exhausted, has_limits: false }),
        ..node(alternatives)
    };
    let with = |mut arrows: Vec<Arrow>, joins: &[usize]| {
        arrows.extend(joins.iter().map(|it| join(*it)));
        arrows
    };
    let model = FlowModel {
        nodes: vec![
            bounded(
                vec![with(to(&[0, 1, 3, 4]), &[0, 1]), with(to(&[0]), &[0, 1])],
                Arrow::Node(1),
            ),
            node(vec![with(to(&[3]), &[0])]),
            node(vec![to(&[3])]),
            bounded(vec![with(to(&[4]), &[1])], Arrow::Node(4)),
            bounded(vec![to(&[0])], Arrow::Node(5)),
            bounded(vec![to(&[3]), to(&[0])], Arrow::End),
        ],
        joins: vec![
            Join { node: 2, awaited: vec![0, 1], count: 2 },
            Join { node: 5, awaited: vec![0, 3], count: 1 },
        ],
        start: vec![0],
        ..FlowModel::default()
    };
    let found = find_starving_joins(&model, &Exclusions::default());
    assert!(!found.is_complete);
    assert_eq!(found.starving.iter().map(|it| it.join).collect::<Vec<_>>(), [0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_projection_misses_no_join_that_waits_forever(model in model()) {
        let explored = find_starving_joins(&model, &Exclusions::default());
        for starving in explored.starving {
            let found = check_join_alone(&model, starving.join);
            prop_assert!(found != JoinVerdict::Completes, "{}", starving.join);
        }
    }
}

/// Without partial joins, projections are nearly as exact as the exploration.
#[test]
fn projections_cause_few_false_alarms() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut complete = 0;
    let mut alarms = 0;
    for _ in 0..600 {
        let tree = model().new_tree(&mut runner).unwrap();
        let model = proptest::strategy::ValueTree::current(&tree);
        let explored = find_starving_joins(&model, &Exclusions::default());
        if explored.is_complete && explored.starving.is_empty() {
            for join in 0..model.joins.len() {
                match check_join_alone(&model, join) {
                    JoinVerdict::Completes => complete += 1,
                    JoinVerdict::Starves(_) => alarms += 1,
                    JoinVerdict::Unknown => (),
                }
            }
        }
    }
    assert!(complete > 20 * alarms, "{complete} are complete, {alarms} are false alarms");
}
