//! Conditions of nodes: the state decides whether a node runs or is skipped.

use std::{any::Any, fmt, marker::PhantomData};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{AccessSet, RouteError, RouteView, route::StateView};
use crate::{id::ChannelName, state::Type};

/// Decides whether a node runs.
///
/// The engine evaluates it before the first attempt of the node in a step, on the state at the
/// start of that step. It must be pure.
pub trait Condition: Any + fmt::Debug + Send + Sync {
    /// Returns the condition in words; it explains to people why a node was skipped.
    fn text(&self) -> &str;

    /// The channels it reads; `None` if it may read any.
    fn reads(&self) -> Option<&[ChannelName]>;

    /// Returns the channels that must be written before it decides, because its code cannot read the state without
    /// them.
    fn needs(&self) -> &[ChannelName] {
        &[]
    }

    /// Returns the Rust type that it reads from the state, so that `compile` can compare it with the channels.
    fn view_type(&self) -> Option<&Type> {
        None
    }

    /// Returns the access set: which parts of the channels that it reads affect the decision; `None` if any part may.
    fn access_set(&self) -> Option<AccessSet> {
        None
    }

    /// Returns whether this condition and another one read nothing but channels, and never both hold for the same
    /// values of these. By default that is not known.
    fn excludes(&self, _other: &dyn Condition) -> bool {
        false
    }

    /// Decides.
    ///
    /// # Errors
    ///
    /// Fails if the state does not have the form that the condition expects.
    fn holds(&self, view: &RouteView<'_>) -> Result<bool, RouteError>;
}

/// Makes a condition from a function over a typed view of the state.
pub fn condition_fn<F, S>(text: &str, holds: F) -> ConditionFn<F, S>
where
    F: Fn(&S) -> bool + Send + Sync,
    S: DeserializeOwned + JsonSchema,
{
    ConditionFn { text: text.to_owned(), holds, view: StateView::of::<S>(), types: PhantomData }
}

/// A condition made by [`condition_fn`].
pub struct ConditionFn<F, S> {
    text: String,
    holds: F,
    view: StateView,
    types: PhantomData<fn(&S)>,
}

impl<F, S> Condition for ConditionFn<F, S>
where
    F: Fn(&S) -> bool + Send + Sync + 'static,
    S: DeserializeOwned + JsonSchema + 'static,
{
    fn text(&self) -> &str {
        &self.text
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        self.view.reads()
    }

    fn needs(&self) -> &[ChannelName] {
        self.view.needs()
    }

    fn view_type(&self) -> Option<&Type> {
        Some(self.view.ty())
    }

    fn holds(&self, view: &RouteView<'_>) -> Result<bool, RouteError> {
        Ok((self.holds)(&view.state.read::<S>()?))
    }
}

impl<F, S> fmt::Debug for ConditionFn<F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConditionFn").field(&self.text).finish()
    }
}
