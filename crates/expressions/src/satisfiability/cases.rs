//! Satisfiability of lists of cases and of the parts of one condition.

use std::collections::HashSet;

use super::{
    super::Expression,
    atoms::{Atom, is_below},
    formula::{Formula, FormulaKind},
    search::{Search, SearchResult, Wish, World},
    translate::Conditions,
};
use crate::problem::Problem;

/// The most values that an example shows.
const SHOWN_MAX: usize = 6;

/// Conditions that are tried in order.
#[derive(Debug)]
pub struct CaseList {
    /// `None` if the conditions are too many or too large for a search.
    search: Option<Search>,
    count: usize,
}

/// Whether there are states in which no case holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UncoveredState {
    /// No.
    No,
    /// Yes; this is one, in words.
    Yes(String),
    /// Possibly this one, in words. It combines values that may exclude each other.
    Perhaps(String),
    /// The search was too long.
    Unknown,
}

impl CaseList {
    /// A list of cases with these conditions.
    pub fn of(conditions: &[&Expression]) -> Self {
        let formulas: Option<Vec<&Formula>> =
            conditions.iter().map(|it| it.conditions.whole.as_ref()).collect();
        let search = formulas.and_then(|it| Search::of(&it));
        Self { search, count: conditions.len() }
    }

    /// Checks whether every state has a case.
    pub fn uncovered(&mut self) -> UncoveredState {
        let Some(search) = &mut self.search else { return UncoveredState::Unknown };
        let wishes: Vec<Wish> = (0..self.count).map(|it| (it, false)).collect();
        match search.find(&wishes) {
            SearchResult::Never => UncoveredState::No,
            SearchResult::Unknown => UncoveredState::Unknown,
            SearchResult::World(world) => {
                let world = search.smallest(&wishes, world);
                let shown = shown(&search.atoms, &world);
                match shown {
                    None => UncoveredState::Unknown,
                    Some(text) if is_of_a_state(&search.atoms, &world) => UncoveredState::Yes(text),
                    Some(text) => UncoveredState::Perhaps(text),
                }
            }
        }
    }

    /// Returns the earlier cases that make a case unreachable, as few as possible; none if it is
    /// reachable.
    pub fn takers(&mut self, case: usize, passed: &[usize]) -> Vec<usize> {
        let Some(search) = &mut self.search else { return Vec::new() };
        let before: Vec<usize> = (0..case).filter(|it| !passed.contains(it)).collect();
        let never = |search: &mut Search, before: &[usize]| {
            let wishes = std::iter::once((case, true)).chain(before.iter().map(|it| (*it, false)));
            search.find(&wishes.collect::<Vec<_>>()) == SearchResult::Never
        };
        if !never(search, &before) {
            return Vec::new();
        }
        if let Some(one) = before.iter().find(|it| never(search, &[**it])) {
            return vec![*one];
        }
        let mut takers = before;
        for at in (0..takers.len()).rev() {
            let one = takers.remove(at);
            if !never(search, &takers) {
                takers.insert(at, one);
            }
        }
        takers
    }

    #[cfg(test)]
    pub(super) fn search(&mut self) -> Option<&mut Search> {
        self.search.as_mut()
    }
}

/// Returns whether some conditions never have these outcomes in the same state.
pub fn exclude_each_other(outcomes: &[(&Expression, bool)]) -> bool {
    let conditions: Vec<&Expression> = outcomes.iter().map(|it| it.0).collect();
    let wishes: Vec<Wish> = outcomes.iter().enumerate().map(|(at, it)| (at, it.1)).collect();
    let list = CaseList::of(&conditions);
    list.search.is_some_and(|mut it| it.find(&wishes) == SearchResult::Never)
}

/// Reports the innermost parts of conditions that are always true or never true.
pub(crate) fn constant_parts(conditions: &Conditions) -> Vec<Problem> {
    let mut problems = Vec::new();
    for condition in conditions.whole.iter().chain(&conditions.inside) {
        note_constants(condition, &mut problems);
    }
    let mut spans = HashSet::new();
    // A condition may be a part of two others.
    problems.retain(|it: &Problem| spans.insert(it.range.clone()));
    problems
}

fn note_constants(formula: &Formula, problems: &mut Vec<Problem>) {
    let before = problems.len();
    for part in formula.parts() {
        // `a != b` is the opposite of a part with the same text.
        let parts =
            if part.range == formula.range { part.parts() } else { std::slice::from_ref(part) };
        for part in parts {
            note_constants(part, problems);
        }
    }
    if problems.len() > before || matches!(formula.kind, FormulaKind::Literal(_)) {
        return;
    }
    let Some(mut search) = Search::of(&[formula]) else { return };
    let mut never = |outcome| search.find(&[(0, outcome)]) == SearchResult::Never;
    let outcome = match (never(true), never(false)) {
        (true, false) => "never",
        (false, true) => "always",
        // A part that never has a value is neither always true nor never true.
        (true, true) | (false, false) => return,
    };
    let message = format!("this condition is {outcome} true");
    let range = formula.range.clone();
    let problem = Problem::new("GR027", range, message, format!("{outcome} true"));
    problems.push(problem.help("remove it, or correct it"));
}

fn shown(atoms: &[Atom], world: &World) -> Option<String> {
    let decided = atoms.iter().zip(world);
    let decided = decided.filter_map(|(atom, value)| Some(atom.describe(&atom.values[(*value)?])));
    let mut shown: Vec<String> = decided.collect();
    if shown.len() > SHOWN_MAX {
        shown.truncate(SHOWN_MAX);
        shown.push("so on".to_owned());
    }
    let last = shown.pop()?;
    Some(if shown.is_empty() { last } else { format!("{} and {last}", shown.join(", ")) })
}

/// Returns whether one state can have all the decided values: their fields are different and independent.
fn is_of_a_state(atoms: &[Atom], world: &World) -> bool {
    let decided = atoms.iter().zip(world).filter(|(_, value)| value.is_some());
    let decided: Vec<&Atom> = decided.map(|(atom, _)| atom).collect();
    let overlap = |a: &Atom, b: &Atom| {
        let paths = a.term.reads.iter().flat_map(|a| b.term.reads.iter().map(move |b| (a, b)));
        paths.into_iter().any(|(a, b)| is_below(a, b) || is_below(b, a))
    };
    decided.iter().enumerate().all(|(at, atom)| {
        let others = decided[..at].iter().filter(|it| !it.presence && !atom.presence);
        atom.term.free && others.into_iter().all(|it| !overlap(atom, it))
    })
}
