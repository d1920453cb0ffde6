//! Which fields are assigned where an expression or a prompt is read, and on which way one is not.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use graphrun_analysis::flow_model::Bits;
use graphrun_core::id::ChannelName;

use super::flow::Paths;
/// The fields that are assigned at one point of a workflow. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AssignedFields(Source);

#[derive(Clone, Debug)]
enum Source {
    /// At a node.
    Paths { paths: Arc<Paths>, node: usize, when: When },
    /// Before the first step.
    Start(Arc<Paths>),
    /// All fields, wherever they are.
    Everything,
    /// Between any two steps of any run: these fields.
    Throughout(Arc<BTreeSet<ChannelName>>),
    /// The same everywhere.
    #[cfg(test)]
    Fixed(BTreeSet<ChannelName>),
}

#[derive(Clone, Debug)]
enum When {
    Before,
    /// Before any visit but the first; these fields are assigned by then.
    BeforeAgain(Arc<Bits>),
    /// After the node, where its routes are evaluated.
    After,
}

/// Whether a field is assigned at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It is assigned on every way.
    Always,
    /// It is assigned on some ways only.
    Sometimes,
    /// It is assigned on no way.
    Never,
}

/// A way on which a field is not assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Without {
    /// The most informative place in the workflow file.
    pub(crate) place: Range<usize>,
    /// What happens there.
    pub(crate) text: String,
}

impl AssignedFields {
    pub(super) fn before(paths: &Arc<Paths>, node: usize) -> Self {
        Self(Source::Paths { paths: Arc::clone(paths), node, when: When::Before })
    }

    pub(super) fn before_again(paths: &Arc<Paths>, node: usize) -> Self {
        let when = When::BeforeAgain(Arc::new(paths.written_again(node)));
        Self(Source::Paths { paths: Arc::clone(paths), node, when })
    }

    pub(super) fn after(paths: &Arc<Paths>, node: usize) -> Self {
        Self(Source::Paths { paths: Arc::clone(paths), node, when: When::After })
    }

    pub(super) fn at_start(paths: &Arc<Paths>) -> Self {
        Self(Source::Start(Arc::clone(paths)))
    }

    /// All fields, for a check of values that does not ask for their presence.
    pub(crate) fn everything() -> Self {
        Self(Source::Everything)
    }

    /// The fields that are assigned in every state of a run.
    pub(super) fn throughout(fields: BTreeSet<ChannelName>) -> Self {
        Self(Source::Throughout(Arc::new(fields)))
    }

    /// Returns whether a field is assigned.
    pub(crate) fn presence(&self, field: &str) -> Presence {
        let ask = |paths: &Paths, ask: &dyn Fn(usize) -> Presence| {
            paths.field(field).map_or(Presence::Never, ask)
        };
        match &self.0 {
            Source::Paths { paths, node, when } => ask(paths, &|it| match when {
                When::BeforeAgain(written) if written.contains(it) => Presence::Always,
                When::Before | When::BeforeAgain(_) => paths.before(*node, it),
                When::After => paths.after(*node, it),
            }),
            Source::Start(paths) => ask(paths, &|it| paths.at_start(it)),
            Source::Everything => Presence::Always,
            Source::Throughout(fields) if fields.contains(field) => Presence::Always,
            Source::Throughout(_) => Presence::Sometimes,
            #[cfg(test)]
            Source::Fixed(fields) if fields.contains(field) => Presence::Always,
            #[cfg(test)]
            Source::Fixed(_) => Presence::Never,
        }
    }

    /// Describes a way on which a field is not assigned, if it is assigned only sometimes.
    pub(crate) fn without(&self, field: &str) -> Option<Without> {
        let Source::Paths { paths, node, when } = &self.0 else { return None };
        let field = paths.field(field)?;
        match when {
            When::Before | When::BeforeAgain(_) => paths.without_before(*node, field),
            When::After => paths.without_after(*node, field),
        }
    }
}

#[cfg(test)]
impl FromIterator<ChannelName> for AssignedFields {
    fn from_iter<I: IntoIterator<Item = ChannelName>>(fields: I) -> Self {
        Self(Source::Fixed(fields.into_iter().collect()))
    }
}
