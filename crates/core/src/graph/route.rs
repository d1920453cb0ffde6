//! Routes: the state decides what runs next.

use std::{any::Any, fmt, marker::PhantomData};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{
    AccessSet, Dispatch, DispatchOf, Input, Next, RunFacts, Target, Transition, Trigger, Visits,
    function::fields_of,
};
use crate::{
    id::ChannelName,
    state::{State, StateError, Type, ViewError},
};

/// Decides from the state which targets run next.
///
/// The engine evaluates it when a task finishes, on the state of the step with that task's writes
/// and without those of its siblings. It must be pure.
pub trait Route: Any + fmt::Debug + Send + Sync {
    /// Returns all targets it may choose, so that checks and drawings are complete.
    fn targets(&self) -> &[RouteTarget];

    /// Returns the channels it reads; `None` if it may read any.
    fn reads(&self) -> Option<&[ChannelName]>;

    /// Returns the channels that must be written before it decides, because its code cannot read the state without them.
    fn needs(&self) -> &[ChannelName] {
        &[]
    }

    /// Returns the Rust type that it reads from the state, so that `compile` can compare it with the channels.
    fn view_type(&self) -> Option<&Type> {
        None
    }

    /// Returns how many of its targets it may choose at once, for the worst case.
    ///
    /// The default is the most general: any of them, with any number of dispatches.
    fn spread(&self) -> Spread {
        Spread::Items
    }

    /// Returns its possible decisions, of which it makes exactly one, so that checks know which
    /// targets run together. `None` if any combination of its targets may run, within its spread.
    fn choices(&self) -> Option<Vec<RouteChoice>> {
        None
    }

    /// Returns whether a [choice](Self::choices) of this route and one of another route depend on channels alone, and are
    /// never made on the same values of these. By default that is not known.
    fn excludes(&self, _choice: usize, _other: &dyn Route, _other_choice: usize) -> bool {
        false
    }

    /// Returns the input of the tasks it starts, so that `compile` can check that their nodes take it.
    fn starts(&self) -> Starts {
        Starts::Unknown
    }

    /// Makes the decision.
    ///
    /// # Errors
    ///
    /// Fails if the state does not have the form that the route expects.
    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Transition>, RouteError>;

    /// Returns the indexes of the [targets](Self::targets) that a decision takes.
    ///
    /// The default cannot distinguish cases that share a target, and returns all of them.
    ///
    /// # Errors
    ///
    /// Fails if the decision fails.
    fn taken(&self, view: &RouteView<'_>) -> Result<Vec<usize>, RouteError> {
        let transitions = self.decide(view)?;
        let is_taken = |target: &RouteTarget| transitions.iter().any(|it| it.target() == target.to);
        let targets = self.targets().iter().enumerate().filter(|(_, it)| is_taken(it));
        Ok(targets.map(|(at, _)| at).collect())
    }

    /// Returns the access set: which parts of its channels affect the decision, so that a test
    /// knows which answers it needs and which it may try. `None` if any part may.
    fn access_set(&self) -> Option<AccessSet> {
        None
    }
}

/// One target that a route may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTarget {
    /// The target.
    pub to: Target,
    /// The condition in words, for drawings.
    pub label: Option<String>,
}

/// One possible decision of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteChoice {
    /// The targets, all at once; none means the end of this branch.
    pub to: Vec<Target>,
    /// Whether one or more items are dispatched to these nodes.
    pub is_dispatched: bool,
    /// The channels that are certainly written if this is taken, because the condition implies it.
    pub known: Vec<ChannelName>,
}

/// The input of the tasks that a route starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Starts {
    /// The state alone.
    State,
    /// An item of this type for each task.
    Item(Type),
    /// Either.
    Unknown,
}

/// How many of its targets a route may choose at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spread {
    /// At most one.
    One,
    /// Any of them together, each at most once.
    Several,
    /// Any of them together, each once for every dispatched item.
    Items,
}

/// The input of a route.
#[derive(Clone, Copy, Debug)]
pub struct RouteView<'a> {
    /// The state of the step with the task's own writes.
    pub state: &'a State,
    /// How often each node has run since its count was last reset.
    pub visits: &'a Visits,
    /// The input of the task.
    pub input: &'a Input,
    /// The trigger of the task.
    pub trigger: &'a Trigger,
    /// The facts of the run at the start of the step.
    pub facts: &'a RunFacts,
}

/// The reason why a route could not decide.
#[derive(Debug, Error)]
pub enum RouteError {
    /// The state does not have the form that the route expects.
    #[error("the route cannot read the state")]
    View(#[from] ViewError),
    /// The writes of its task cannot be folded into the state.
    #[error("the writes before the route cannot be folded")]
    State(#[source] StateError),
    /// The route chose a target that it had not declared.
    #[error("the route chose `{0}`, which it does not declare")]
    Undeclared(String),
    /// The route chose more than its spread allows.
    #[error("the choice of `{target}` is beyond the spread of the route, `{spread:?}`")]
    Spread {
        /// The target that it chose beside others, or to which it dispatched an item.
        target: String,
        /// The spread that it declares.
        spread: Spread,
    },
    /// The route chose a node by its name alone, and the node takes an item.
    #[error("the route chose `{0}` without the item that it takes")]
    WithoutItem(String),
    /// An item cannot be written as JSON.
    #[error("the item for `{node}` cannot be written as JSON: {reason}")]
    Item {
        /// The node that it was for.
        node: String,
        /// The reason.
        reason: String,
    },
    /// The route, a condition or the order of items panicked.
    #[error("the {what} panicked: {message}")]
    Panicked {
        /// `route`, `condition` or `order of items`.
        what: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// An expression could not be evaluated.
    #[error("{reason} (in `{expression}`)")]
    Expression {
        /// The expression, or its first characters.
        expression: String,
        /// The reason.
        reason: String,
    },
}

/// Makes a route from a function over a typed view of the state.
///
/// The function returns the name of a node, `end` or `fail`, several of them, or [`Dispatch`]es.
pub fn route_fn<F, S, C>(targets: impl IntoIterator<Item = Target>, choose: F) -> RouteFn<F, S, C>
where
    F: Fn(&S) -> C + Send + Sync,
    S: DeserializeOwned + JsonSchema,
    C: IntoChoice,
{
    let targets = targets.into_iter().map(|to| RouteTarget { to, label: None }).collect();
    RouteFn { choose, targets, view: StateView::of::<S>(), types: PhantomData }
}

/// A route made by [`route_fn`].
pub struct RouteFn<F, S, C> {
    choose: F,
    targets: Vec<RouteTarget>,
    view: StateView,
    types: PhantomData<fn(&S) -> C>,
}

/// The part of the state that a Rust type reads.
pub(super) struct StateView {
    reads: Option<Vec<ChannelName>>,
    needs: Vec<ChannelName>,
    ty: Type,
}

impl StateView {
    pub(super) fn of<S: JsonSchema>() -> Self {
        let fields = fields_of::<S>(SchemaSettings::for_deserialize);
        let needs = fields.iter().flatten().filter(|it| it.required);
        Self {
            needs: needs.map(|it| it.channel.clone()).collect(),
            reads: fields.map(|fields| fields.into_iter().map(|it| it.channel).collect()),
            ty: Type::of::<S>(),
        }
    }

    pub(super) fn reads(&self) -> Option<&[ChannelName]> {
        self.reads.as_deref()
    }

    pub(super) fn needs(&self) -> &[ChannelName] {
        &self.needs
    }

    pub(super) fn ty(&self) -> &Type {
        &self.ty
    }
}

impl<F, S, C> Route for RouteFn<F, S, C>
where
    F: Fn(&S) -> C + Send + Sync + 'static,
    S: DeserializeOwned + JsonSchema + 'static,
    C: IntoChoice + 'static,
{
    fn targets(&self) -> &[RouteTarget] {
        &self.targets
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

    fn spread(&self) -> Spread {
        C::SPREAD
    }

    fn choices(&self) -> Option<Vec<RouteChoice>> {
        // A single name is always one of the targets; a list of names may be empty.
        let choice =
            |it: &RouteTarget| RouteChoice { to: vec![it.to.clone()], ..RouteChoice::default() };
        (C::SPREAD == Spread::One).then(|| self.targets.iter().map(choice).collect())
    }

    fn starts(&self) -> Starts {
        C::starts()
    }

    fn decide(&self, view: &RouteView<'_>) -> Result<Vec<Transition>, RouteError> {
        (self.choose)(&view.state.read::<S>()?).into_transitions(&self.targets)
    }
}

impl<F, S, C> fmt::Debug for RouteFn<F, S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteFn").field("targets", &self.targets).finish_non_exhaustive()
    }
}

/// The types that a route function may return.
///
/// The name of a target (`&str`, `String`), an item for one ([`dispatch`](super::dispatch)), a mix of both ([`Next`]),
/// and an option, an array or a list of these; no target means the end of this branch.
#[diagnostic::on_unimplemented(
    message = "a route cannot return `{Self}`",
    note = "it returns the name of a target, a `dispatch(…)`, a `Next`, or an option or a list of one of them"
)]
pub trait IntoChoice {
    /// How many targets it may choose at once.
    const SPREAD: Spread = Spread::Items;

    /// Returns the input of the tasks it starts.
    fn starts() -> Starts {
        Starts::Unknown
    }

    /// Returns the transitions, each to a declared target.
    ///
    /// # Errors
    ///
    /// Fails for a target that is not declared.
    fn into_transitions(self, targets: &[RouteTarget]) -> Result<Vec<Transition>, RouteError>;
}

impl IntoChoice for &str {
    const SPREAD: Spread = Spread::One;

    fn starts() -> Starts {
        Starts::State
    }

    fn into_transitions(self, targets: &[RouteTarget]) -> Result<Vec<Transition>, RouteError> {
        let declared = targets.iter().find(|it| it.to.is_named(self));
        match declared {
            Some(target) => Ok(vec![Transition::To(target.to.clone())]),
            None => Err(RouteError::Undeclared(self.to_owned())),
        }
    }
}

impl IntoChoice for String {
    const SPREAD: Spread = Spread::One;

    fn starts() -> Starts {
        Starts::State
    }

    fn into_transitions(self, targets: &[RouteTarget]) -> Result<Vec<Transition>, RouteError> {
        self.as_str().into_transitions(targets)
    }
}

impl IntoChoice for Dispatch {
    fn into_transitions(self, targets: &[RouteTarget]) -> Result<Vec<Transition>, RouteError> {
        if targets.iter().any(|it| it.to.node() == Some(&self.node)) {
            Ok(vec![Transition::Dispatch(self)])
        } else {
            Err(RouteError::Undeclared(self.node.to_string()))
        }
    }
}

impl<T: JsonSchema + ?Sized> IntoChoice for DispatchOf<T> {
    fn starts() -> Starts {
        Starts::Item(Self::item_type())
    }

    fn into_transitions(self, targets: &[RouteTarget]) -> Result<Vec<Transition>, RouteError> {
        self.into_dispatch()?.into_transitions(targets)
    }
}

impl IntoChoice for Next {
    fn into_transitions(self, targets: &[RouteTarget]) -> Result<Vec<Transition>, RouteError> {
        match self {
            Self::To(name) => name.into_transitions(targets),
            Self::Dispatch(dispatch) => dispatch.into_dispatch()?.into_transitions(targets),
        }
    }
}

impl<C: IntoChoice> IntoChoice for Option<C> {
    const SPREAD: Spread = several(C::SPREAD);

    fn starts() -> Starts {
        C::starts()
    }

    fn into_transitions(self, targets: &[RouteTarget]) -> Result<Vec<Transition>, RouteError> {
        self.map_or_else(|| Ok(Vec::new()), |it| it.into_transitions(targets))
    }
}

impl<C: IntoChoice, const N: usize> IntoChoice for [C; N] {
    const SPREAD: Spread = several(C::SPREAD);

    fn starts() -> Starts {
        C::starts()
    }

    fn into_transitions(self, targets: &[RouteTarget]) -> Result<Vec<Transition>, RouteError> {
        all(self, targets)
    }
}

impl<C: IntoChoice> IntoChoice for Vec<C> {
    const SPREAD: Spread = several(C::SPREAD);

    fn starts() -> Starts {
        C::starts()
    }

    fn into_transitions(self, targets: &[RouteTarget]) -> Result<Vec<Transition>, RouteError> {
        all(self, targets)
    }
}

/// Returns the spread of any number of choices, each with this one.
const fn several(each: Spread) -> Spread {
    match each {
        Spread::One => Spread::Several,
        several => several,
    }
}

fn all<C: IntoChoice>(
    choices: impl IntoIterator<Item = C>,
    targets: &[RouteTarget],
) -> Result<Vec<Transition>, RouteError> {
    let mut transitions = Vec::new();
    for choice in choices {
        transitions.extend(choice.into_transitions(targets)?);
    }
    Ok(transitions)
}
