//! The names that a template has defined, in the order of their definition.
//!
//! What a body means depends on the names around it. A digest of them is kept beside each name, so a call need not list
//! them to find out whether the body was checked with the same names.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
};

use graphrun_core::state::Type;

use super::checker::Meaning;

/// The names, with the meanings that the place of an expression gives them.
#[derive(Clone)]
pub(super) struct Variables<'t> {
    all: Vec<Rc<Variable<'t>>>,
    /// How many of them the task gives.
    given: usize,
    /// How many of them are outside of the macro whose body is checked.
    outside: usize,
    digests: Digests,
    /// Whether the types of the values make a difference to a body.
    has_types: bool,
}

/// A name that a template has defined, or that a task gives it.
pub(super) struct Variable<'t> {
    pub(super) name: String,
    pub(super) meaning: Meaning<'t>,
    /// The digests of this name alone.
    own: Digests,
    /// The digests of the names before it.
    before: Digests,
}

/// A number for some names and their meanings. Equal names have equal digests. Others have equal ones too rarely to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest(u128);

#[derive(Clone, Copy, Default)]
struct Digests {
    /// The digest of the names as a macro sees them: it sees other macros, and no values.
    seen: Digest,
    /// The digest of the names with the types of their values.
    meanings: Digest,
}

impl Digest {
    pub(super) fn of(name: &str, meaning: &str) -> Self {
        let half = |at: u8| {
            let mut hasher = DefaultHasher::new();
            (at, name, meaning).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Self(half(0) << 64 | half(1))
    }

    /// Returns the digest of all names together.
    pub(super) fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, it| Self(sum.0.wrapping_add(it.0)))
    }

    /// Returns the digest with a further name in place of a former one.
    fn with(self, added: Self, former: Self) -> Self {
        Self(self.0.wrapping_sub(former.0).wrapping_add(added.0))
    }
}

impl Digests {
    /// Returns the digests where the names have no other meaning than for a macro.
    fn seen(seen: Digest) -> Self {
        Self { seen, meanings: seen }
    }
}

impl<'t> Variables<'t> {
    /// Returns the names that a task gives.
    pub(super) fn new(given: Vec<(String, Type)>, has_types: bool) -> Self {
        let mut variables = Self {
            all: Vec::new(),
            given: given.len(),
            outside: 0,
            digests: Digests::default(),
            has_types,
        };
        for (name, ty) in given {
            variables.bind(&name, Meaning::Value(ty));
        }
        variables
    }

    /// Returns the meaning of a name.
    pub(super) fn meaning(&self, name: &str) -> Option<&Meaning<'t>> {
        let at = self.position(name)?;
        let meaning = &self.all[at].meaning;
        let is_seen = match meaning {
            Meaning::Macro(it) => !it.is_block(),
            Meaning::Value(_) | Meaning::Outside => false,
        };
        let is_inside = at < self.given || at >= self.outside;
        Some(if is_inside || is_seen { meaning } else { &Meaning::Outside })
    }

    /// Returns whether the template has defined a name, in place of one that the task gives.
    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.position(name).is_some_and(|at| at >= self.given)
    }

    /// Gives a name a meaning.
    pub(super) fn bind(&mut self, name: &str, meaning: Meaning<'t>) {
        let seen = match &meaning {
            Meaning::Macro(it) if !it.is_block() => Digest::of(name, &format!("{:?}", it.id())),
            _ if self.all.len() < self.given => Digest::of(name, "given"),
            _ => Digest::of(name, "outside"),
        };
        let own = match &meaning {
            Meaning::Value(ty) if self.has_types => {
                Digests { seen, meanings: Digest::of(name, &format!("value {ty}")) }
            }
            Meaning::Macro(it) if it.is_block() => {
                Digests { seen, meanings: Digest::of(name, &format!("{:?}", it.id())) }
            }
            _ => Digests::seen(seen),
        };
        let former = self.position(name).map(|at| match self.all[at].own {
            own if at < self.outside => Digests::seen(own.seen),
            own => own,
        });
        let former = former.unwrap_or_default();
        let before = self.digests;
        self.digests = Digests {
            seen: before.seen.with(own.seen, former.seen),
            meanings: before.meanings.with(own.meanings, former.meanings),
        };
        self.all.push(Rc::new(Variable { name: name.to_owned(), meaning, own, before }));
    }

    /// Returns how many names there are, those that another one hides included.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|it| it.name.as_str())
    }

    /// Removes the names after the first ones, and returns them.
    pub(super) fn split_off(&mut self, first: usize) -> Vec<Rc<Variable<'t>>> {
        if let Some(it) = self.all.get(first) {
            self.digests = it.before;
        }
        self.all.split_off(first)
    }

    /// Returns the first names as the body of a macro sees them.
    pub(super) fn in_macro(&self, first: usize) -> Self {
        let digests = Digests::seen(self.seen(first));
        Self { all: self.all[..first].to_vec(), outside: first, digests, ..*self }
    }

    /// Returns the digest of the first names as the body of a macro sees them.
    pub(super) fn seen(&self, first: usize) -> Digest {
        self.all.get(first).map_or(self.digests, |it| it.before).seen
    }

    /// Returns the digest of all names and their meanings.
    pub(super) fn digest(&self) -> Digest {
        self.digests.meanings
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.all.iter().rposition(|it| it.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(names: &[(&str, Type)]) -> Variables<'static> {
        let mut variables = Variables::new(Vec::new(), true);
        for (name, ty) in names {
            variables.bind(name, Meaning::Value(ty.clone()));
        }
        variables
    }

    #[test]
    fn equal_names_have_one_digest() {
        let a = ("a", Type::Bool);
        let b = ("b", Type::String);
        let former = ("a", Type::String);
        let digest = |names: &[_]| with(names).digest();
        assert_eq!(digest(&[a.clone(), b.clone()]), digest(&[b.clone(), a.clone()]));
        assert_eq!(
            digest(&[former.clone(), b.clone(), a.clone()]),
            digest(&[a.clone(), b.clone()])
        );
        assert_ne!(digest(&[former.clone(), b.clone()]), digest(&[a.clone(), b.clone()]));
        assert_ne!(digest(std::slice::from_ref(&a)), digest(&[a, b]));
    }

    #[test]
    fn a_macro_does_not_see_the_types_of_values() {
        let one = with(&[("a", Type::Bool), ("b", Type::String)]);
        let other = with(&[("a", Type::String), ("b", Type::String)]);
        assert_eq!(one.seen(2), other.seen(2));
        assert_ne!(one.seen(1), one.seen(2));
        let seen = one.in_macro(1);
        assert!(matches!(seen.meaning("a"), Some(Meaning::Outside)));
        assert!(seen.meaning("b").is_none());
        assert_eq!(seen.digest(), other.in_macro(1).digest());
    }

    #[test]
    fn removed_names_are_in_no_digest() {
        let mut variables = with(&[("a", Type::Bool)]);
        let before = variables.digest();
        variables.bind("a", Meaning::Value(Type::String));
        variables.bind("b", Meaning::Outside);
        assert_eq!(variables.split_off(1).len(), 2);
        assert_eq!(variables.digest(), before);
        assert!(matches!(variables.meaning("a"), Some(Meaning::Value(Type::Bool))));
    }
}
