//! Looks for a world in which conditions have the wanted outcomes.
//!
//! It evaluates the formulas over the values decided so far, to the set of outcomes that are still
//! possible. It then decides the first term on which an outcome depends. So it never tries terms
//! that make no difference.

use super::{
    atoms::{Atom, Atoms},
    formula::{Ask, Formula, FormulaKind, Test},
};

/// How many terms a world may decide; it bounds the depth of the search.
const DECIDED_MAX: usize = 100;
/// The greatest cost of a search for one list of conditions, in visited parts: a fixed part, …
const COST_MIN: usize = 20_000;
/// … and this for each part.
const COST_PER_PART: usize = 200;
/// The most entries of a table of answers; larger ones are not built.
const ANSWERS_MAX: usize = 500_000;

/// The conditions over their common atoms.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) atoms: Vec<Atom>,
    conditions: Vec<Part>,
    cost_left: usize,
}

/// The decided value of each atom.
pub(super) type World = Vec<Option<usize>>;

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SearchResult {
    /// The conditions have these outcomes in this world. Undecided terms make no difference.
    World(World),
    /// No world has these outcomes.
    Never,
    /// The search would take too long.
    Unknown,
}

/// The index of a condition and its wanted outcome.
pub(super) type Wish = (usize, bool);

#[derive(Debug)]
enum Part {
    Known(bool),
    /// The atom, and the answer for each of its values.
    Test(usize, Vec<bool>),
    Not(Box<Self>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    Same(Box<[Self; 2]>),
    If(Box<[Self; 3]>),
}

/// The possible outcomes, and the first undecided atom that they depend on.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    holds: bool,
    fails: bool,
    /// It may have no value, because something is absent.
    absent: bool,
    pivot: Option<usize>,
}

impl Search {
    /// Returns `None` if the conditions are too large.
    pub(super) fn of(formulas: &[&Formula]) -> Option<Self> {
        let mut tests = Vec::new();
        for formula in formulas {
            collect(formula, &mut tests);
        }
        let atoms = Atoms::of(tests.iter().copied());
        let answers = tests.iter().filter_map(|it| atoms.find(it));
        let answers: usize = answers.map(|at| atoms.list[at].values.len()).sum();
        if answers > ANSWERS_MAX || atoms.list.iter().any(|it| it.values.is_empty()) {
            return None;
        }
        let conditions = formulas.iter().map(|it| part(it, &atoms)).collect::<Option<_>>()?;
        let parts: usize = formulas.iter().map(|it| it.size()).sum();
        let cost_left = COST_MIN + COST_PER_PART * parts;
        Some(Self { atoms: atoms.list, conditions, cost_left })
    }

    /// Finds a world that meets every wish. Callers put the wishes that are likely to fail first.
    pub(super) fn find(&mut self, wishes: &[Wish]) -> SearchResult {
        self.deepen(wishes, &mut vec![None; self.atoms.len()], 0)
    }

    /// Removes the atoms that make no difference to the wishes.
    pub(super) fn smallest(&mut self, wishes: &[Wish], mut world: World) -> World {
        for at in (0..world.len()).rev() {
            if let Some(value) = world[at].take()
                && !matches!(self.come_true(wishes, &world), Some((true, _)))
            {
                world[at] = Some(value);
            }
        }
        world
    }

    fn deepen(&mut self, wishes: &[Wish], world: &mut World, depth: usize) -> SearchResult {
        let pivot = match self.come_true(wishes, world) {
            None => return SearchResult::Never,
            Some((true, _)) => return SearchResult::World(world.clone()),
            Some((false, pivot)) => pivot,
        };
        let (Some(pivot), true) = (pivot, depth < DECIDED_MAX && self.cost_left > 0) else {
            return SearchResult::Unknown;
        };
        for value in 0..self.atoms[pivot].values.len() {
            world[pivot] = Some(value);
            if self.is_possible(pivot, world) {
                match self.deepen(wishes, world, depth + 1) {
                    SearchResult::Never => (),
                    found => return found,
                }
            }
        }
        world[pivot] = None;
        SearchResult::Never
    }

    /// Returns whether every world like this one meets all wishes; `None` if none meets some wish.
    fn come_true(&mut self, wishes: &[Wish], world: &World) -> Option<(bool, Option<usize>)> {
        let mut sure = true;
        let mut pivot = None;
        for (condition, wanted) in wishes {
            let mut cost = 0;
            let outcomes = self.outcomes(&self.conditions[*condition], world, &mut cost);
            self.cost_left = self.cost_left.saturating_sub(cost);
            let (wished, other) = match wanted {
                true => (outcomes.holds, outcomes.fails),
                false => (outcomes.fails, outcomes.holds),
            };
            if !wished {
                return None;
            }
            if other || outcomes.absent {
                sure = false;
                pivot = pivot.or(outcomes.pivot);
            }
        }
        Some((sure, pivot))
    }

    /// Returns whether the presence of a path is consistent with the paths above and below it.
    fn is_possible(&self, decided: usize, world: &World) -> bool {
        let holds = |at: usize| world[at].map(|value| value == PRESENT);
        if !self.atoms[decided].presence {
            return true;
        }
        if holds(decided) == Some(true) {
            return self.atoms[decided].guards.iter().all(|it| holds(*it) != Some(false));
        }
        let below = (self.atoms.iter().enumerate())
            .filter(|(_, it)| it.presence && it.guards.contains(&decided));
        below.map(|(at, _)| at).all(|it| holds(it) != Some(true))
    }

    fn outcomes(&self, part: &Part, world: &World, cost: &mut usize) -> Outcomes {
        *cost += 1;
        match part {
            Part::Known(it) => Outcomes::known(*it),
            Part::Test(atom, answers) => self.test(*atom, answers, world),
            Part::Not(of) => self.outcomes(of, world, cost).turned(),
            Part::And(both) => {
                let [left, right] = both.as_ref();
                let left = self.outcomes(left, world, cost);
                left.then(|it| {
                    if it { self.outcomes(right, world, cost) } else { Outcomes::known(false) }
                })
            }
            Part::Or(both) => {
                let [left, right] = both.as_ref();
                let left = self.outcomes(left, world, cost);
                left.then(|it| {
                    if it { Outcomes::known(true) } else { self.outcomes(right, world, cost) }
                })
            }
            Part::Same(both) => {
                let [left, right] = both.as_ref();
                let left = self.outcomes(left, world, cost);
                let right = self.outcomes(right, world, cost);
                left.then(|it| if it { right } else { right.turned() })
            }
            Part::If(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                let condition = self.outcomes(condition, world, cost);
                condition.then(|it| self.outcomes(if it { then } else { otherwise }, world, cost))
            }
        }
    }

    fn test(&self, atom: usize, answers: &[bool], world: &World) -> Outcomes {
        let mut outcomes = match world[atom] {
            Some(value) => Outcomes::known(answers[value]),
            None => Outcomes {
                holds: answers.contains(&true),
                fails: answers.contains(&false),
                absent: false,
                pivot: Some(atom),
            },
        };
        if self.atoms[atom].presence {
            // If a part above is absent, the path is absent, which is an answer.
            return outcomes;
        }
        for guard in &self.atoms[atom].guards {
            match world[*guard] {
                Some(PRESENT) => (),
                Some(_) => return Outcomes { absent: true, ..Outcomes::default() },
                None => {
                    outcomes.absent = true;
                    outcomes.pivot = outcomes.pivot.or(Some(*guard));
                }
            }
        }
        outcomes
    }
}

/// The value of a present path, among those of [`Ask::Present`].
const PRESENT: usize = 1;

impl Outcomes {
    fn known(holds: bool) -> Self {
        Self { holds, fails: !holds, absent: false, pivot: None }
    }

    fn turned(self) -> Self {
        Self { holds: self.fails, fails: self.holds, ..self }
    }

    /// Continues with each outcome that has a value.
    fn then(self, mut next: impl FnMut(bool) -> Self) -> Self {
        let mut all = Self { absent: self.absent, pivot: self.pivot, ..Self::default() };
        for outcome in [true, false] {
            if if outcome { self.holds } else { self.fails } {
                let next = next(outcome);
                all.holds |= next.holds;
                all.fails |= next.fails;
                all.absent |= next.absent;
                all.pivot = all.pivot.or(next.pivot);
            }
        }
        all
    }
}

fn part(formula: &Formula, atoms: &Atoms) -> Option<Part> {
    let of = |it: &Formula| part(it, atoms);
    let both = |it: &[Formula; 2]| Some(Box::new([of(&it[0])?, of(&it[1])?]));
    Some(match &formula.kind {
        FormulaKind::Literal(it) | FormulaKind::Known(it) => Part::Known(*it),
        FormulaKind::Test(test) => {
            let Test { ask, .. } = test.as_ref();
            let at = atoms.find(test)?;
            let answer =
                |ask: &Ask| atoms.list[at].values.iter().map(|it| ask.answer(it)).collect();
            Part::Test(at, answer(ask))
        }
        FormulaKind::Not(it) => Part::Not(Box::new(of(it)?)),
        FormulaKind::And(it) => Part::And(both(it)?),
        FormulaKind::Or(it) => Part::Or(both(it)?),
        FormulaKind::Same(it) => Part::Same(both(it)?),
        FormulaKind::If(it) => Part::If(Box::new([of(&it[0])?, of(&it[1])?, of(&it[2])?])),
    })
}

fn collect<'f>(formula: &'f Formula, tests: &mut Vec<&'f Test>) {
    if let FormulaKind::Test(test) = &formula.kind {
        tests.push(test);
    }
    for part in formula.parts() {
        collect(part, tests);
    }
}
