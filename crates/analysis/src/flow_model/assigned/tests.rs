use proptest::prelude::*;

use super::*;
use crate::flow_model::{
    FlowNode, Outcome,
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
    (model(), prop::collection::vec(node, 8), fields(), fields()).prop_map(
        |(mut model, nodes, maybe, surely)| {
            for (node, (maybe, surely, clears, endings)) in model.nodes.iter_mut().zip(nodes) {
                let outcomes = std::mem::take(&mut node.outcomes).into_iter().zip(endings);
                let outcomes = outcomes.map(|(it, ending)| Outcome { ending, ..it }).collect();
                let (maybe, bound) = (maybe.with(&surely), None);
                let defers = node.defers.take();
                *node = FlowNode {
                    outcomes,
                    bound,
                    maybe,
                    surely,
                    clears,
                    defers,
                    ..FlowNode::new(FIELDS)
                };
            }
            let maybe_at_start = maybe.with(&surely);
            FlowModel { fields: FIELDS, maybe_at_start, surely_at_start: surely, ..model }
        },
    )
}

proptest! {
    /// On every way, the fields that are certain at a node are written there, also those that are certain because a node
    /// has been visited once or twice.
    #[test]
    fn certain_fields_are_written_on_every_way(
        model in writing(),
        choices in prop::collection::vec(any::<usize>(), 1..100),
    ) {
        let assigned = Assigned::of(&model);
        let count = model.nodes.len();
        let since: Vec<Since> = (0..count).map(|it| assigned.since(&model, it)).collect();
        let next: Vec<Since> =
            since.iter().enumerate().map(|(at, it)| assigned.since_next(&model, at, it)).collect();
        let mut choices = choices.iter().cycle();
        let mut choose = |below: usize| choices.next().map_or(0, |it| it % below);
        let mut steps = walk(&model, &mut choose);
        let mut written = model.surely_at_start.clone();
        let mut visits = vec![0; count];
        for step in steps.drain(..) {
            for (node, _) in &step {
                visits[*node] += 1;
            }
            for &(node, _) in &step {
                let has = |certain: &Bits| certain.iter().all(|it| written.contains(it));
                let shown = |why: &str| format!("{why} at {node} in {step:?} with {written:?}");
                prop_assert!(has(assigned.surely_before(node)), "{}", shown("always"));
                for visited in 0..count {
                    let is_own = visited == node;
                    let proved = match (visits[visited], is_own) {
                        (1, false) | (2.., true) => since[visited].surely_before(node),
                        (2.., false) => next[visited].surely_before(node),
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
                written.add(&it.surely);
            }
        }
    }
}
