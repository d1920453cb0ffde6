//! Routes: the state decides what runs next.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{Dispatch, Hop, Input, Sights, Target, node::fields_of};
use crate::{
    id::{ChannelName, NodeName},
    state::{State, StateError, ViewError},
};

/// Decides from the state where to go.
///
/// It is asked when a task finishes, and sees the state of the step with the task's own writes,
/// never those of siblings. It must be pure.
pub trait Route: fmt::Debug + Send + Sync {
    /// Every way it may take, so that checks and drawings are complete.
    fn ways(&self) -> &[Way];

    /// The channels it looks at; `None` if it may look at any.
    fn reads(&self) -> Option<&[ChannelName]>;

    /// How many of its ways it takes at once, so that the worst case is known.
    ///
    /// The default claims nothing.
    fn spread(&self) -> Spread {
        Spread::Items
    }

    /// Everything it may decide, one of which is taken each time, so that what goes together is
    /// known; `None` if any of its ways go together, as far as its spread allows.
    fn choices(&self) -> Option<Vec<RouteChoice>> {
        None
    }

    /// Decides.
    ///
    /// # Errors
    ///
    /// Fails when the state is not what the route was made for.
    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Hop>, RouteError>;

    /// Which of its [ways](Self::ways) a decision takes, by their positions.
    ///
    /// The default cannot tell ways to one target apart, and names all of them.
    ///
    /// # Errors
    ///
    /// Fails when it cannot decide.
    fn taken(&self, view: &RouteView<'_>) -> Result<Vec<usize>, RouteError> {
        let hops = self.decide(view)?;
        let is_taken = |way: &Way| hops.iter().any(|it| it.target() == way.to);
        let ways = self.ways().iter().enumerate().filter(|(_, way)| is_taken(way));
        Ok(ways.map(|(at, _)| at).collect())
    }

    /// What of the channels that it reads decides, so that a test knows what has to be said and
    /// what may be tried; `None` if any of it may.
    fn sights(&self) -> Option<Sights> {
        None
    }
}

/// One way that a route may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where it leads.
    pub to: Target,
    /// The condition in words, for drawings.
    pub label: Option<String>,
}

/// One thing that a route may decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteChoice {
    /// Where it leads, all at once; nowhere is the end of this branch.
    pub to: Vec<Target>,
    /// Whether items are dispatched to these nodes, one or more.
    pub is_dispatched: bool,
    /// The channels that are written whenever this is taken, because the route has asked.
    pub known: Vec<ChannelName>,
}

/// How many of its ways a route takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spread {
    /// One at most.
    One,
    /// Any of them together, each once.
    Several,
    /// Any of them together, each as often as there are items to dispatch.
    Items,
}

/// What a route sees.
#[derive(Clone, Copy, Debug)]
pub struct RouteView<'a> {
    /// The state of the step with the task's own writes.
    pub state: &'a State,
    /// How often each node has run since its count was last reset.
    pub visits: &'a BTreeMap<NodeName, u32>,
    /// What started the node.
    pub input: &'a Input,
}

/// A route could not decide.
#[derive(Debug, Error)]
pub enum RouteError {
    /// The state has not the form the route expects.
    #[error("the route cannot read the state")]
    View(#[from] ViewError),
    /// What its task wrote cannot be folded into the state.
    #[error("the writes before the route cannot be folded")]
    State(#[source] StateError),
    /// The route named something that it had not declared.
    #[error("the route chose `{0}`, which it had not declared")]
    Undeclared(String),
    /// It panicked.
    #[error("the {what} panicked: {message}")]
    Panicked {
        /// Whether it is a route or a condition.
        what: &'static str,
        /// What the panic said.
        message: String,
    },
    /// An expression could not be evaluated.
    #[error("the condition `{expression}` failed: {reason}")]
    Expression {
        /// The expression.
        expression: String,
        /// Why.
        reason: String,
    },
}

/// Makes a route of a function over a typed view of the state.
///
/// The function names nodes by text, or `end` or `fail`; it returns one name, several, or
/// [`Dispatch`]es.
pub fn route_fn<F, S, C>(targets: impl IntoIterator<Item = Target>, choose: F) -> RouteFn<F, S, C>
where
    F: Fn(&S) -> C + Send + Sync,
    S: DeserializeOwned + JsonSchema,
    C: Choice,
{
    let ways = targets.into_iter().map(|to| Way { to, label: None }).collect();
    let reads = fields_of::<S>(SchemaSettings::for_deserialize)
        .map(|fields| fields.into_iter().map(|it| it.channel).collect());
    RouteFn { choose, ways, reads, types: PhantomData }
}

/// A route made by [`route_fn`].
pub struct RouteFn<F, S, C> {
    choose: F,
    ways: Vec<Way>,
    reads: Option<Vec<ChannelName>>,
    types: PhantomData<fn(&S) -> C>,
}

impl<F, S, C> Route for RouteFn<F, S, C>
where
    F: Fn(&S) -> C + Send + Sync,
    S: DeserializeOwned + JsonSchema,
    C: Choice,
{
    fn ways(&self) -> &[Way] {
        &self.ways
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        self.reads.as_deref()
    }

    fn spread(&self) -> Spread {
        C::SPREAD
    }

    fn choices(&self) -> Option<Vec<RouteChoice>> {
        // A name is always one of the ways; a list of them may be empty.
        let choice = |it: &Way| RouteChoice { to: vec![it.to.clone()], ..RouteChoice::default() };
        (C::SPREAD == Spread::One).then(|| self.ways.iter().map(choice).collect())
    }

    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Hop>, RouteError> {
        (self.choose)(&view.state.read::<S>()?).into_hops(&self.ways)
    }
}

impl<F, S, C> fmt::Debug for RouteFn<F, S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteFn").field("ways", &self.ways).finish_non_exhaustive()
    }
}

/// What a route function may return.
pub trait Choice {
    /// How many ways it takes at once.
    const SPREAD: Spread = Spread::Items;

    /// The hops, each to one of the declared ways.
    ///
    /// # Errors
    ///
    /// Fails when something else is named.
    fn into_hops(self, ways: &[Way]) -> Result<Vec<Hop>, RouteError>;
}

impl Choice for &str {
    const SPREAD: Spread = Spread::One;

    fn into_hops(self, ways: &[Way]) -> Result<Vec<Hop>, RouteError> {
        let declared = ways.iter().find(|it| it.to.to_string() == self);
        match declared {
            Some(way) => Ok(vec![Hop::To(way.to.clone())]),
            None => Err(RouteError::Undeclared(self.to_owned())),
        }
    }
}

impl Choice for Dispatch {
    fn into_hops(self, ways: &[Way]) -> Result<Vec<Hop>, RouteError> {
        if ways.iter().any(|it| it.to.node() == Some(&self.node)) {
            Ok(vec![Hop::Dispatch(self)])
        } else {
            Err(RouteError::Undeclared(self.node.to_string()))
        }
    }
}

impl<C: Choice> Choice for Vec<C> {
    const SPREAD: Spread = match C::SPREAD {
        Spread::One => Spread::Several,
        several => several,
    };

    fn into_hops(self, ways: &[Way]) -> Result<Vec<Hop>, RouteError> {
        let mut hops = Vec::new();
        for choice in self {
            hops.extend(choice.into_hops(ways)?);
        }
        Ok(hops)
    }
}
