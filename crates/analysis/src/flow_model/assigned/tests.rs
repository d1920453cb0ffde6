use proptest::prelude::*;

use super::*;
use crate::flow_model::{
    Arrow, Decision, Deferral, FlowNode, Outcome,
    explore::walk,
    pairs::tests::{from_numbers, model},
};

const FIELDS: usize = 3;

fn fields() -> impl Strategy<Value = Bits> {
    prop::collection::vec(0..FIELDS, 0..FIELDS).prop_map(|it| from_numbers(FIELDS, &it))
}

/// Models without bounds whose nodes write and clear fields, fail and are skipped.
fn writing() -> impl Strategy<Value = FlowModel> {
    let ending = prop_oneof![
        4 => Just(Ending::Finished),
        1 => Just(Ending::Caught),
        1 => Just(Ending::Skipped),
    ];
    let node = (fields(), fields(), fields(), prop::collection::vec(ending, 2));
    let limit_ends = prop::bool::weighted(0.2);
    (model(), prop::collection::vec(node, 8), fields(), fields(), limit_ends).prop_map(
        |(mut model, nodes, may_assign, must_assign, limit_ends)| {
            for (node, (may_assign, must_assign, clears, endings)) in
                model.nodes.iter_mut().zip(nodes)
            {
                let outcomes = std::mem::take(&mut node.outcomes).into_iter().zip(endings);
                let outcomes = outcomes.map(|(it, ending)| Outcome { ending, ..it }).collect();
                let may_assign = may_assign.with(&must_assign);
                let bound = None;
                let defers = node.defers.take();
                *node = FlowNode {
                    outcomes,
                    bound,
                    may_assign,
                    must_assign,
                    clears,
                    defers,
                    ..FlowNode::new(FIELDS)
                };
            }
            let may_assign_at_start = may_assign.with(&must_assign);
            FlowModel {
                fields: FIELDS,
                may_assign_at_start,
                must_assign_at_start: must_assign,
                after_limit: model.after_limit.or(limit_ends.then_some(Arrow::End)),
                ..model
            }
        },
    )
}

/// Returns a node that leads to nodes, and writes and clears the one field.
fn node(to: &[usize], must_assign: &[usize], clears: &[usize]) -> FlowNode {
    let arrows = to.iter().map(|it| Arrow::Node(*it)).collect();
    let must_assign = from_numbers(1, must_assign);
    FlowNode {
        outcomes: vec![Outcome::finished(vec![Decision::always(arrows)])],
        may_assign: must_assign.clone(),
        must_assign,
        clears: from_numbers(1, clears),
        ..FlowNode::new(1)
    }
}

/// Returns a model of one field, which has a value at the start or not.
fn model_of(nodes: Vec<FlowNode>, start: Vec<usize>, at_start: &[usize]) -> FlowModel {
    let at_start = from_numbers(1, at_start);
    FlowModel {
        nodes,
        fields: 1,
        start,
        may_assign_at_start: at_start.clone(),
        must_assign_at_start: at_start,
        ..FlowModel::default()
    }
}

/// Not the first node that clears the field, after which another one writes it.
#[test]
fn a_gap_names_the_concurrent_node_that_clears_the_field() {
    let nodes = vec![
        node(&[1], &[], &[0]),
        node(&[2, 3], &[0], &[]),
        node(&[4], &[], &[]),
        node(&[], &[], &[0]),
        node(&[], &[], &[]),
    ];
    let model = model_of(nodes, vec![0], &[]);
    let assigned = DefiniteAssignment::of(&model);
    assert!(!assigned.must_be_assigned_before(4).contains(0));
    let gap = assigned.gap(&model, 4, 0).unwrap();
    assert_eq!((gap.from, gap.kind), (Some(2), GapKind::Cleared(3)));
}

#[test]
fn a_deferred_first_node_follows_the_nodes_that_clear_fields() {
    let deferral = Deferral { first: from_numbers(2, &[1]), rank: (0, false) };
    let deferred = FlowNode { defers: Some(deferral), ..node(&[], &[], &[]) };
    let model = model_of(vec![deferred, node(&[], &[], &[0])], vec![0, 1], &[0]);
    let assigned = DefiniteAssignment::of(&model);
    assert!(!assigned.must_be_assigned_before(0).contains(0));
    let gap = assigned.gap(&model, 0, 0).unwrap();
    assert_eq!((gap.from, gap.kind), (None, GapKind::Cleared(1)));
}

#[test]
fn a_node_that_waits_for_all_work_has_the_writes_of_branches() {
    let deferral = Deferral { first: from_numbers(4, &[0, 1, 2, 3]), rank: (0, true) };
    let last = |is_deferred: bool| FlowNode {
        defers: is_deferred.then(|| deferral.clone()),
        ..node(&[], &[], &[])
    };
    // The first node leads to two others, of which one writes the field; both lead to the last one.
    let nodes =
        |last| vec![node(&[1, 2], &[], &[]), node(&[3], &[0], &[]), node(&[3], &[], &[]), last];
    let is_must_assigned = |nodes| {
        let model = model_of(nodes, vec![0], &[]);
        DefiniteAssignment::of(&model).must_be_assigned_before(3).contains(0)
    };
    assert!(is_must_assigned(nodes(last(true))));
    assert!(!is_must_assigned(nodes(last(false))));
    let mut failing = nodes(last(true));
    failing[1].outcomes.push(Outcome::caught(Arrow::Node(3)));
    assert!(!is_must_assigned(failing));
    let mut cleared = nodes(last(true));
    cleared[2] = node(&[3], &[], &[0]);
    assert!(!is_must_assigned(cleared));
}

proptest! {
    /// On every path, the must-assigned fields of a node are written there, also those that are must-assigned because a
    /// node has been visited once or twice.
    #[test]
    fn must_assigned_fields_are_written_on_every_path(
        model in writing(),
        choices in prop::collection::vec(any::<usize>(), 1..100),
    ) {
        let assigned = DefiniteAssignment::of(&model);
        let count = model.nodes.len();
        let since: Vec<AssignmentAfterVisit> = (0..count).map(|it| assigned.since(&model, it)).collect();
        let next: Vec<AssignmentAfterVisit> =
            since.iter().enumerate().map(|(at, it)| assigned.since_next(&model, at, it)).collect();
        for (at, since) in since.iter().enumerate() {
            prop_assert_eq!(assigned.since_itself(&model, at), since.must_be_assigned_before(at));
        }
        let mut choices = choices.iter().cycle();
        let mut choose = |below: usize| choices.next().map_or(0, |it| it % below);
        let walk = walk(&model, &mut choose);
        let at_end = model.written_at_end();
        let mut written = model.must_assign_at_start.clone();
        let mut visits = vec![0; count];
        for step in &walk.steps {
            let is_written = at_end.iter().all(|it| written.contains(it));
            prop_assert!(is_written || model.after_limit != Some(Arrow::End), "at a limit before {step:?} with {written:?}");
            for (node, _) in step {
                visits[*node] += 1;
            }
            for &(node, _) in step {
                let has = |fields: &Bits| fields.iter().all(|it| written.contains(it));
                let shown = |why: &str| format!("{why} at {node} in {step:?} with {written:?}");
                prop_assert!(has(assigned.must_be_assigned_before(node)), "{}", shown("always"));
                for visited in 0..count {
                    let is_own = visited == node;
                    let proved = match (visits[visited], is_own) {
                        (1, false) | (2.., true) => since[visited].must_be_assigned_before(node),
                        (2.., false) => next[visited].must_be_assigned_before(node),
                        _ => continue,
                    };
                    prop_assert!(proved.is_some_and(|it| has(&it)), "{}", shown(&format!("after {visited}")));
                    if is_own {
                        let own = model.written_by_itself(node);
                        prop_assert!(has(&own), "{}", shown("by itself"));
                    }
                }
            }
            let finished = |(node, endings): &(usize, Vec<Ending>)| {
                endings.iter().any(|it| it.has_written()).then_some(&model.nodes[*node])
            };
            for it in step.iter().filter_map(finished) {
                written.remove(&it.clears);
            }
            for it in step.iter().filter_map(finished) {
                written.add(&it.must_assign);
            }
        }
        let is_written = at_end.iter().all(|it| written.contains(it));
        prop_assert!(is_written || !walk.is_done, "at the end of {:?} with {written:?}", walk.steps);
    }
}
