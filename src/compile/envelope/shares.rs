//! Which of the tokens that a visit makes goes where.
//!
//! What one task may lead to in one step needs tokens of its own. What excludes each other, as the
//! choices of a route or a failure and everything else, may share one. The first token is the one
//! that the visit has used up, passed on: it goes where most is still to come, for what ends soon
//! meets nothing later on.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    leads::{Choices, Lead},
    tokens::Arrival,
};

/// Where a node leads.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// Its failures, one of them instead of everything else.
    pub(super) caught: Vec<Lead>,
    /// Its edges, each in one of several ways.
    pub(super) edges: Vec<Choices>,
}

/// The tokens of a visit, by where they go.
#[derive(Debug, Default)]
pub(super) struct Shares {
    numbers: BTreeMap<(usize, Arrival), usize>,
    /// Whether edges or items may lead to several nodes in one step.
    pub(super) splits: bool,
}

/// The tokens that the choices of one edge share.
#[derive(Debug, Default)]
struct Shared {
    tokens: Vec<usize>,
    /// For each choice, which of these are taken, and the first that is not.
    taken: BTreeMap<usize, (BTreeSet<usize>, usize)>,
}

/// Where a lead is made: edges, and which of their choices.
type Places = BTreeMap<usize, BTreeSet<usize>>;

impl Departures {
    /// Every node that it leads to.
    pub(super) fn leads(&self) -> impl Iterator<Item = &Lead> {
        self.caught.iter().chain(self.edges.iter().flatten().flatten())
    }
}

impl Shares {
    /// Shares the tokens of a visit; those of its edges begin with a number, and what most is still to
    /// come after has the first.
    pub(super) fn of(
        departures: &Departures,
        is_wide: bool,
        first: usize,
        heights: &[usize],
    ) -> Self {
        let mut found: Vec<((usize, Arrival), Places)> = Vec::new();
        let mut known: BTreeMap<(usize, Arrival), usize> = BTreeMap::new();
        let mut note = |lead: &Lead, place: Option<(usize, usize)>| {
            let key = (lead.to, lead.by);
            let at = *known.entry(key).or_insert_with(|| {
                found.push((key, Places::new()));
                found.len() - 1
            });
            if let Some((edge, choice)) = place {
                found[at].1.entry(edge).or_default().insert(choice);
            }
        };
        for (edge, choices) in departures.edges.iter().enumerate() {
            for (choice, leads) in choices.iter().enumerate() {
                for lead in leads {
                    note(lead, Some((edge, choice)));
                }
            }
        }
        for lead in &departures.caught {
            note(lead, None);
        }
        found.sort_by_key(|((to, _), _)| Reverse(heights[*to]));

        let mut next = first..;
        let mut by_edge: BTreeMap<usize, Shared> = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        for (key, places) in found {
            let mut new = || next.next().unwrap_or(usize::MAX);
            let number = match places.first_key_value() {
                // Its items may each go another way.
                _ if is_wide => new(),
                None => 0,
                Some((edge, choices)) if places.len() == 1 => {
                    by_edge.entry(*edge).or_default().take(choices, new)
                }
                Some(_) => new(),
            };
            numbers.insert(key, number);
        }
        Self { numbers, splits: next.start > first + 1 }
    }

    /// Which token of the visit goes there; the first is passed on, the others are new.
    pub(super) fn number(&self, to: usize, by: Arrival) -> usize {
        self.numbers.get(&(to, by)).copied().unwrap_or(0)
    }
}

impl Shared {
    /// A token that none of these choices has taken.
    fn take(&mut self, choices: &BTreeSet<usize>, new: impl FnOnce() -> usize) -> usize {
        let free = |it: &usize| self.taken.get(it).map_or(0, |(_, free)| *free);
        let mut at = choices.iter().map(free).max().unwrap_or(0);
        let is_taken = |at: &usize| {
            choices.iter().any(|it| self.taken.get(it).is_some_and(|(taken, _)| taken.contains(at)))
        };
        while is_taken(&at) {
            at += 1;
        }
        if at == self.tokens.len() {
            self.tokens.push(new());
        }
        for choice in choices {
            let (taken, free) = self.taken.entry(*choice).or_default();
            taken.insert(at);
            while taken.contains(free) {
                *free += 1;
            }
        }
        self.tokens[at]
    }
}
