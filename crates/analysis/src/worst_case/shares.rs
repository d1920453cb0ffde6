//! Distributes the tokens that a visit creates.
//!
//! Targets that one task may reach in one step need separate tokens. Alternatives may share a
//! token, such as the choices of a route, or a failure and all other outcomes. The first token is
//! the one that the visit has used up, passed on. It goes to the target with the most nodes after
//! it, because a target near the end meets no others later.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    leads::{Choices, Lead},
    tokens::Arrival,
};

/// The targets of a node.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// The targets of its failures; one of them replaces all others.
    pub(super) caught: Vec<Lead>,
    /// Its edges, each with its choices.
    pub(super) edges: Vec<Choices>,
}

/// The tokens of a visit, by their targets.
#[derive(Debug, Default)]
pub(super) struct Shares {
    numbers: BTreeMap<(usize, Arrival), usize>,
    /// Whether edges or items may lead to several nodes in one step.
    pub(super) splits: bool,
}

/// The tokens that the choices of one edge share.
#[derive(Debug, Default)]
struct SharedTokens {
    tokens: Vec<usize>,
    /// For each choice, the taken tokens, and the first free one.
    taken: BTreeMap<usize, (BTreeSet<usize>, usize)>,
}

/// The edges that have a lead, each with the choices that contain it.
type LeadChoices = BTreeMap<usize, BTreeSet<usize>>;

impl Departures {
    /// Returns all leads.
    pub(super) fn leads(&self) -> impl Iterator<Item = &Lead> {
        self.caught.iter().chain(self.edges.iter().flatten().flatten())
    }
}

impl Shares {
    /// Distributes the tokens of a visit. Tokens of its edges are numbered from `first`; the target
    /// with the most nodes after it gets the first one.
    pub(super) fn of(
        departures: &Departures,
        is_wide: bool,
        first: usize,
        heights: &[usize],
    ) -> Self {
        let mut found: Vec<((usize, Arrival), LeadChoices)> = Vec::new();
        let mut known: BTreeMap<(usize, Arrival), usize> = BTreeMap::new();
        let mut note = |lead: &Lead, place: Option<(usize, usize)>| {
            let key = (lead.to, lead.by);
            let at = *known.entry(key).or_insert_with(|| {
                found.push((key, LeadChoices::new()));
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
        let mut by_edge: BTreeMap<usize, SharedTokens> = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        for (key, places) in found {
            let mut new = || next.next().unwrap_or(usize::MAX);
            let number = match places.first_key_value() {
                // Each of its items may choose another target.
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

    /// Returns the number of the token that goes to a target; the first is passed on, the others
    /// are new.
    pub(super) fn number(&self, to: usize, by: Arrival) -> usize {
        self.numbers.get(&(to, by)).copied().unwrap_or(0)
    }
}

impl SharedTokens {
    /// Returns a token that none of these choices has taken.
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
