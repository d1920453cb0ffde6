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
    let ways = outcomes.map(|it| product(it, exclusions, |_| 0));
    Some(distinct(ways.collect::<Option<Vec<_>>>()?.concat()))
}

/// Like [`combinations_of`], without choices that certainly fail and without guessed choices.
pub(super) fn hopeful_combinations_of(
    model: &FlowModel,
    exclusions: &Exclusions,
    failing: &Bits,
    node: usize,
) -> Option<Vec<Combination>> {
    let outcomes = model.nodes[node].outcomes.iter().filter(|it| it.ending != Ending::Chosen);
    let fails = |it: &Arrow| match *it {
        Arrow::Fail => true,
        Arrow::Node(to) | Arrow::Tasks(to) => failing.contains(to),
        Arrow::End | Arrow::Join(_) => false,
    };
    // A guessed target counts as chosen, unless the run fails there.
    let skipped = |it: &Decision| {
        let taken = it.alternatives.last().filter(|_| it.is_guess);
        let is_hopeful = taken.is_some_and(|it| !it.arrows.iter().any(fails));
        if is_hopeful { it.alternatives.len() - 1 } else { 0 }
    };
    let ways = outcomes.map(|it| product(it, exclusions, skipped));
    let mut all = ways.collect::<Option<Vec<_>>>()?.concat();
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
    let mut ways = vec![nothing];
    for decision in decisions {
        let alternatives = decision.alternatives.iter().enumerate().skip(skipped(decision));
        let mut more = Vec::new();
        for way in &ways {
            for (at, Alternative { arrows, .. }) in alternatives.clone() {
                let mut way = way.clone();
                way.arrows.extend(arrows);
                let choice = decision.edge.map(|it| (it, at));
                way.chosen.extend(choice.filter(|it| exclusions.matters(*it)));
                more.push(way);
            }
        }
        ways = more;
        if ways.len() > COMBINATIONS_MAX {
            return None;
        }
    }
    Some(ways)
}

fn distinct(mut ways: Vec<Combination>) -> Vec<Combination> {
    // After a failure the other tasks of the step lead nowhere.
    ways.retain(|it| !it.arrows.contains(&Arrow::Fail));
    for way in &mut ways {
        way.arrows.remove(&Arrow::End);
    }
    ways.sort_by(|a, b| (&a.arrows, &a.chosen, a.ending).cmp(&(&b.arrows, &b.chosen, b.ending)));
    ways.dedup_by(|a, b| (&a.arrows, &a.chosen) == (&b.arrows, &b.chosen));
    ways
}

/// Returns the combined choices of several tasks of a node, each of which may see other values.
pub(super) fn subsets(ways: &[Combination]) -> Vec<Combination> {
    let mut all: Vec<Combination> = Vec::new();
    for way in ways {
        let with = |it: &Combination| Combination {
            ending: it.ending,
            arrows: it.arrows.union(&way.arrows).copied().collect(),
            chosen: BTreeSet::new(),
        };
        let more: Vec<Combination> = all.iter().map(with).collect();
        all.extend(more);
        all.push(Combination { chosen: BTreeSet::new(), ..way.clone() });
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
            let is_fine = |it: &Arrow| match *it {
                Arrow::Node(to) | Arrow::Tasks(to) => saved.contains(to),
                Arrow::End | Arrow::Join(_) => true,
                Arrow::Fail => false,
            };
            let ends = |outcome: &Outcome| {
                let any =
                    |it: &Decision| it.alternatives.iter().any(|it| it.arrows.iter().all(is_fine));
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
