//! Which fields are assigned where an expression or a prompt is read, and on which path one is not.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use graphrun_core::id::ChannelName;

use super::{guarantee::Guarantees, paths::Paths, success::SuccessFields};

/// The fields that are assigned at one point of a workflow. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AssignedFields(Source);

#[derive(Clone, Debug)]
enum Source {
    /// At a node.
    Paths { paths: Arc<Paths>, node: usize, when: Moment },
    /// Before the first step.
    Start(Arc<Paths>),
    /// All fields, wherever they are.
    Everything,
    /// Between any two steps of any run: these fields.
    Throughout(Arc<BTreeSet<ChannelName>>),
    /// At every place: these fields, and no other.
    Fixed(Arc<BTreeSet<ChannelName>>),
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    Before,
    /// After the node, where its routes are evaluated.
    After,
}

/// Whether a field is assigned at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is assigned on every path.
    Always,
    /// It is assigned on some paths only.
    Sometimes,
    /// It is assigned on no path.
    Never,
}

/// A path on which a field is not assigned, as a diagnostic describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentGap {
    /// The most informative place in the workflow file.
    pub span: Range<usize>,
    /// What happens there.
    pub text: String,
    /// The key that makes a node wait for the writer.
    pub help: Option<String>,
}

impl AssignedFields {
    pub(super) fn before(paths: &Arc<Paths>, node: usize) -> Self {
        Self(Source::Paths { paths: Arc::clone(paths), node, when: Moment::Before })
    }

    pub(super) fn after(paths: &Arc<Paths>, node: usize) -> Self {
        Self(Source::Paths { paths: Arc::clone(paths), node, when: Moment::After })
    }

    pub(super) fn at_start(paths: &Arc<Paths>) -> Self {
        Self(Source::Start(Arc::clone(paths)))
    }

    /// All fields, for a check of values that does not ask for their presence.
    pub fn everything() -> Self {
        Self(Source::Everything)
    }

    /// The fields that are assigned in every state of a run.
    pub fn throughout(fields: BTreeSet<ChannelName>) -> Self {
        Self(Source::Throughout(Arc::new(fields)))
    }

    /// Returns whether this is at the start or the end of a node.
    pub fn is_at(&self, name: &str) -> bool {
        matches!(&self.0, Source::Paths { paths, node, .. } if paths.is_called(*node, name))
    }

    /// Returns the fields that show the success of commands, if there are any.
    pub fn success(&self) -> Option<&SuccessFields> {
        match &self.0 {
            Source::Paths { paths, .. } | Source::Start(paths) => Some(paths.success()),
            Source::Everything | Source::Throughout(_) | Source::Fixed(_) => None,
        }
    }

    /// Returns whether a field is assigned.
    pub fn presence(&self, field: &str) -> Presence {
        self.presence_given(field, &Guarantees::NONE)
    }

    /// Returns whether a field is assigned because every path to the node has assigned it, rather than the node itself.
    pub fn is_brought(&self, field: &str) -> bool {
        let Source::Paths { paths, node, when } = &self.0 else { return false };
        let is_before = paths.field(field).is_some_and(|field| match when {
            Moment::Before => true,
            Moment::After => !paths.always_writes(*node, field),
        });
        is_before
            && self.presence(field) == Presence::Always
            && Self::before(paths, *node).presence(field) == Presence::Always
    }

    /// Returns whether a field is assigned where some nodes have run.
    pub fn presence_given(&self, field: &str, known: &Guarantees) -> Presence {
        let ask = |paths: &Paths, ask: &dyn Fn(usize) -> Presence| {
            paths.field(field).map_or(Presence::Never, ask)
        };
        match &self.0 {
            Source::Paths { paths, node, when } => ask(paths, &|field| match when {
                Moment::Before => paths.before(*node, field, known),
                Moment::After => paths.after(*node, field, known),
            }),
            Source::Start(paths) => ask(paths, &|it| paths.at_start(it)),
            Source::Everything => Presence::Always,
            Source::Throughout(fields) if fields.contains(field) => Presence::Always,
            Source::Throughout(_) => Presence::Sometimes,
            Source::Fixed(fields) if fields.contains(field) => Presence::Always,
            Source::Fixed(_) => Presence::Never,
        }
    }

    /// Describes a path on which a field is not assigned, if it is assigned on others.
    pub fn gap(&self, field: &str) -> Option<AssignmentGap> {
        let Source::Paths { paths, node, when } = &self.0 else { return None };
        let field = paths.field(field)?;
        match when {
            Moment::Before => paths.gap_before(*node, field),
            Moment::After => paths.gap_after(*node, field),
        }
    }
}

/// These fields at every place, and no other.
impl FromIterator<ChannelName> for AssignedFields {
    fn from_iter<I: IntoIterator<Item = ChannelName>>(fields: I) -> Self {
        Self(Source::Fixed(Arc::new(fields.into_iter().collect())))
    }
}
