//! The combined choices that a task of a node may make.

use std::collections::BTreeSet;

use super::{
    Alternative, Arrow, Bits, Decision, Ending, FlowModel, Outcome,
    exclusions::{Choice, Exclusions},
};

/// With more possibilities than this, the analysis gives up.
pub(super) const COMBINATIONS_MAX: usize = 1_000;

/// One combination of choices of a task.
#[derive(Clone, Debug)]
pub(super) struct Combination {
    pub(super) ending: Ending,
    pub(super) arrows: BTreeSet<Arrow>,
    /// The choices of routes that exclude others.
    pub(super) chosen: BTreeSet<Choice>,
}

/// Returns the combined choices of a node; `None` if there are too many.
pub(super) fn combinations_of(
    model: &FlowModel,
    exclusions: &Exclusions,
    node: usize,
) -> Option<Vec<Combination>> {
    let outcomes = model.nodes[node].outcomes.iter();
    let combinations = outcomes.map(|it| product(it, exclusions, |_| 0));
    Some(distinct(combinations.collect::<Option<Vec<_>>>()?.concat()))
}

/// Like [`combinations_of`], without choices that must fail and without guessed choices.
pub(super) fn hopeful_combinations_of(
    model: &FlowModel,
    exclusions: &Exclusions,
    failing: &Bits,
    node: usize,
) -> Option<Vec<Combination>> {
    let outcomes = model.nodes[node].outcomes.iter().filter(|it| it.ending != Ending::Chosen);
    let fails = |arrow: &Arrow| match *arrow {
        Arrow::Fail => true,
        Arrow::Node(to) | Arrow::Tasks(to) => failing.contains(to),
        Arrow::End | Arrow::Join(_) => false,
    };
    // A guessed target counts as chosen, unless the run fails there.
    let skipped = |decision: &Decision| {
        let taken = decision.alternatives.last().filter(|_| decision.is_guess);
        let is_hopeful = taken.is_some_and(|it| !it.arrows.iter().any(fails));
        if is_hopeful { decision.alternatives.len() - 1 } else { 0 }
    };
    let combinations = outcomes.map(|it| product(it, exclusions, skipped));
    let mut all = combinations.collect::<Option<Vec<_>>>()?.concat();
    all.retain(|it| !it.arrows.iter().any(fails));
    Some(distinct(all))
}

/// Combines the alternatives of each decision, without the first ones that are `skipped`.
fn product(
    Outcome { ending, decisions }: &Outcome,
    exclusions: &Exclusions,
    skipped: impl Fn(&Decision) -> usize,
) -> Option<Vec<Combination>> {
    let nothing = Combination { ending: *ending, arrows: BTreeSet::new(), chosen: BTreeSet::new() };
    let mut combinations = vec![nothing];
    for decision in decisions {
        let alternatives = decision.alternatives.iter().enumerate().skip(skipped(decision));
        let mut more = Vec::new();
        for before in &combinations {
            for (at, Alternative { arrows, .. }) in alternatives.clone() {
                let mut longer = before.clone();
                longer.arrows.extend(arrows);
                let choice = decision.edge.map(|it| (it, at));
                longer.chosen.extend(choice.filter(|it| exclusions.matters(*it)));
                more.push(longer);
            }
        }
        combinations = more;
        if combinations.len() > COMBINATIONS_MAX {
            return None;
        }
    }
    Some(combinations)
}

fn distinct(mut all: Vec<Combination>) -> Vec<Combination> {
    // After a failure the other tasks of the step lead nowhere.
    all.retain(|it| !it.arrows.contains(&Arrow::Fail));
    for combination in &mut all {
        combination.arrows.remove(&Arrow::End);
    }
    all.sort_by(|a, b| (&a.arrows, &a.chosen, a.ending).cmp(&(&b.arrows, &b.chosen, b.ending)));
    all.dedup_by(|a, b| (&a.arrows, &a.chosen) == (&b.arrows, &b.chosen));
    all
}

/// Returns the combined choices of several tasks of a node, each of which may see other values.
pub(super) fn subsets(of_one: &[Combination]) -> Vec<Combination> {
    let mut all: Vec<Combination> = Vec::new();
    for next in of_one {
        let with = |earlier: &Combination| Combination {
            ending: earlier.ending,
            arrows: earlier.arrows.union(&next.arrows).copied().collect(),
            chosen: BTreeSet::new(),
        };
        let more: Vec<Combination> = all.iter().map(with).collect();
        all.extend(more);
        all.push(Combination { chosen: BTreeSet::new(), ..next.clone() });
        all.sort_by(|a, b| a.arrows.cmp(&b.arrows));
        all.dedup_by(|a, b| a.arrows == b.arrows);
        if all.len() > COMBINATIONS_MAX {
            break;
        }
    }
    all
}

/// Returns the nodes after which the run always fails.
pub(super) fn failing_nodes(model: &FlowModel) -> Bits {
    let count = model.nodes.len();
    let mut saved = Bits::none(count);
    loop {
        let mut is_changed = false;
        for at in 0..count {
            let is_fine = |arrow: &Arrow| match *arrow {
                Arrow::Node(to) | Arrow::Tasks(to) => saved.contains(to),
                Arrow::End | Arrow::Join(_) => true,
                Arrow::Fail => false,
            };
            let ends = |outcome: &Outcome| {
                let any = |decision: &Decision| {
                    decision.alternatives.iter().any(|it| it.arrows.iter().all(is_fine))
                };
                outcome.decisions.iter().all(any)
            };
            let node = &model.nodes[at];
            let bound = node.bound.is_some_and(|it| is_fine(&it.exhausted));
            if !saved.contains(at) && (bound || node.outcomes.iter().any(ends)) {
                is_changed |= saved.insert(at);
            }
        }
        if !is_changed {
            break;
        }
    }
    let mut failing = Bits::all(count);
    failing.remove(&saved);
    failing
}
