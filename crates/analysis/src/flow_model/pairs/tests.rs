use proptest::prelude::*;

use super::*;
use crate::flow_model::{
    Alternative, Arrow, Bound, Decision, Deferral, Exclusions, FlowNode, Join, Outcome, explore,
};

/// Returns the set of these numbers, below a length.
pub(in crate::flow_model) fn from_numbers(length: usize, numbers: &[usize]) -> Bits {
    let mut bits = Bits::none(length);
    bits.extend(numbers);
    bits
}

fn arrow(nodes: usize, joins: usize) -> impl Strategy<Value = Arrow> {
    let join = move |it: usize| if joins == 0 { Arrow::End } else { Arrow::Join(it % joins) };
    prop_oneof![
        6 => (0..nodes).prop_map(Arrow::Node),
        1 => (0..nodes).prop_map(Arrow::Tasks),
        2 => any::<usize>().prop_map(join),
        1 => Just(Arrow::End),
        1 => Just(Arrow::Fail),
    ]
}

fn node(nodes: usize, joins: usize) -> impl Strategy<Value = FlowNode> {
    let alternative = prop::collection::vec(arrow(nodes, joins), 0..4).prop_map(Alternative::to);
    let decision = prop::collection::vec(alternative, 1..3).prop_map(Decision::one_of);
    let outcome = prop::collection::vec(decision, 0..3).prop_map(Outcome::finished);
    // Mostly a node waits for all others.
    let some = prop::collection::vec(0..nodes, 0..nodes);
    let others = prop_oneof![Just((0..nodes).collect::<Vec<_>>()), some];
    let defers = (others, any::<bool>());
    (
        prop::collection::vec(outcome, 1..3),
        prop::option::weighted(0.3, arrow(nodes, 0)),
        prop::collection::vec(0..nodes, 0..2),
        prop::option::weighted(0.1, defers),
    )
        .prop_map(move |(outcomes, bound, resets, defers)| FlowNode {
            outcomes,
            bound: bound.map(|exhausted| Bound { exhausted, has_limits: false }),
            resets,
            defers: defers.map(|(others, is_first)| Deferral {
                first: from_numbers(nodes, &others),
                rank: (0, is_first),
            }),
            ..FlowNode::new(0)
        })
}

pub(in crate::flow_model) fn model() -> impl Strategy<Value = FlowModel> {
    (2..8usize, 0..3usize).prop_flat_map(|(nodes, joins)| {
        let join = (0..nodes, prop::collection::btree_set(0..nodes, 1..4), 1..4usize);
        let join = join.prop_map(|(node, awaited, count)| Join {
            node,
            count: count.min(awaited.len()),
            awaited: awaited.into_iter().collect(),
        });
        (
            prop::collection::vec(node(nodes, joins), nodes),
            prop::collection::vec(join, joins),
            prop::collection::vec(0..nodes, 1..3),
            prop::option::weighted(0.2, 0..nodes),
        )
            .prop_map(|(nodes, joins, start, after_limit)| FlowModel {
                nodes,
                joins,
                start,
                after_limit: after_limit.map(Arrow::Node),
                ..FlowModel::default()
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn every_meeting_of_every_run_is_found(model in model()) {
        let found = Concurrency::between(&model).all(&model);
        for (node, others) in explore(&model, &Exclusions::default()).into_iter().flat_map(|it| it.beside).enumerate() {
            let mut missed = others;
            missed.remove(&found[node]);
            prop_assert!(missed.is_empty(), "{} meets {:?}", node, missed);
        }
    }
}

/// Returns the number of steps of the analysis, and the number of pairs that it finds.
fn work(model: &FlowModel) -> (usize, usize) {
    let reach = Reach::of(model);
    let mut walk = Walk::new(model, &reach, Places::of(model));
    walk.run();
    let work = walk.work();
    (work, walk.met().all(model).iter().map(|it| it.iter().count()).sum())
}

fn all_to_all(count: usize) -> FlowModel {
    let node = FlowNode {
        outcomes: vec![Outcome::finished(
            (0..count).map(|it| Decision::always(vec![Arrow::Node(it)])).collect(),
        )],
        ..FlowNode::new(0)
    };
    FlowModel { nodes: vec![node; count], start: vec![0], ..FlowModel::default() }
}

/// Returns a fork, its branches, and a join that leads to the next fork.
fn parallels(stages: usize, branches: usize) -> FlowModel {
    let mut model = FlowModel { start: vec![0], ..FlowModel::default() };
    let to = |arrows| FlowNode {
        outcomes: vec![Outcome::finished(vec![Decision::always(arrows)])],
        ..FlowNode::new(0)
    };
    for stage in 0..stages {
        let fork = model.nodes.len();
        let all: Vec<usize> = (fork + 1..=fork + branches).collect();
        model.nodes.push(to(all.iter().map(|it| Arrow::Node(*it)).collect()));
        model.nodes.extend(vec![to(vec![Arrow::Join(stage)]); branches]);
        model.joins.push(Join { node: fork + branches + 1, count: all.len(), awaited: all });
    }
    model.nodes.push(to(vec![Arrow::End]));
    model
}

#[test]
fn a_complete_graph_takes_one_step_per_pair() {
    for count in [50, 100, 200] {
        let (work, pairs) = work(&all_to_all(count));
        assert_eq!(pairs, count * (count - 1), "all of {count} meet");
        assert!(work <= 6 * pairs, "{work} steps for {pairs} pairs");
    }
}

#[test]
fn sequential_forks_take_the_sum_of_their_parts() {
    let (one, pairs) = work(&parallels(1, 100));
    assert_eq!(pairs, 100 * 99);
    assert!(one <= 6 * pairs, "{one} steps for {pairs} pairs");
    let (all, all_pairs) = work(&parallels(20, 100));
    assert_eq!(all_pairs, 20 * pairs);
    assert!(all <= 20 * one, "{all} steps for {all_pairs} pairs");
}
