//! What is written where an expression or a prompt is read, and on which way it is not.

use std::{ops::Range, sync::Arc};

use super::flow::Paths;

/// The fields that are written at one point of a workflow. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Written(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Before a node, or after it, where its own routes are asked.
    Paths { paths: Arc<Paths>, node: usize, after: bool },
    /// Before the first step.
    Start(Arc<Paths>),
    /// The same everywhere.
    #[cfg(test)]
    Fixed(std::collections::BTreeSet<crate::id::ChannelName>),
}

/// Whether a field is written at one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// On every way to it.
    Always,
    /// On some ways, and not on this one.
    Sometimes(Option<Without>),
    /// On none.
    Never,
}

/// A way on which a field is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Without {
    /// The place in the workflow file that says most about it.
    pub(crate) place: Range<usize>,
    /// What happens there.
    pub(crate) text: String,
}

impl Written {
    pub(super) fn before(paths: &Arc<Paths>, node: usize) -> Self {
        Self(Source::Paths { paths: Arc::clone(paths), node, after: false })
    }

    pub(super) fn after(paths: &Arc<Paths>, node: usize) -> Self {
        Self(Source::Paths { paths: Arc::clone(paths), node, after: true })
    }

    pub(super) fn at_start(paths: &Arc<Paths>) -> Self {
        Self(Source::Start(Arc::clone(paths)))
    }

    /// Whether a field is written, and if not always, when not.
    pub(crate) fn presence(&self, field: &str) -> Presence {
        let ask = |paths: &Paths, ask: &dyn Fn(usize) -> Presence| {
            paths.field(field).map_or(Presence::Never, ask)
        };
        match &self.0 {
            Source::Paths { paths, node, after: false } => {
                ask(paths, &|it| paths.before(*node, it))
            }
            Source::Paths { paths, node, after: true } => ask(paths, &|it| paths.after(*node, it)),
            Source::Start(paths) => ask(paths, &|it| paths.at_start(it)),
            #[cfg(test)]
            Source::Fixed(fields) if fields.contains(field) => Presence::Always,
            #[cfg(test)]
            Source::Fixed(_) => Presence::Never,
        }
    }
}

#[cfg(test)]
impl FromIterator<crate::id::ChannelName> for Written {
    fn from_iter<I: IntoIterator<Item = crate::id::ChannelName>>(fields: I) -> Self {
        Self(Source::Fixed(fields.into_iter().collect()))
    }
}
