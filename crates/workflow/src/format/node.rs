//! The keys that nodes of every kind have.

use schemars::JsonSchema;

use super::{
    sections::{RetryKeys, TimeoutKeys},
    values::{
        Attempts, Catch, Dollars, Duration, Either, EventName, Expression, FieldName, Flag,
        MatchedValue, NamedMap, NodeRef, OneOrMany, Positive, TargetName, Text, VisitsMax,
    },
};

/// The keys that every node has; those of its kind are added.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct NodeKeys {
    /// The purpose of the node.
    about: Option<Text>,
    /// The next node: a name, a list of nodes that run in parallel, a list of cases (`when`, `to`)
    /// that are tried in order, or `{ match, to }` over an enum or a bool. `end` and `fail` are
    /// built in.
    then: Option<Then>,
    /// The nodes that this one waits for. It runs once when all of them have led to it, or `count` of them.
    join: Option<Either<NodeRef, Either<Vec<NodeRef>, JoinKeys>>>,
    /// The condition under which it runs; otherwise it is skipped and the run continues with
    /// `then`.
    when: Option<Expression>,
    /// Whether its result is cached and reused for identical inputs: `true`, or the greatest age of
    /// a result.
    cache: Option<Either<Flag, Either<Duration, CacheKeys>>>,
    /// Whether it waits until no other task is left to run.
    defer: Option<bool>,
    /// How often the node may run before its count is reset. Every loop needs such a bound: a number, or an `input`
    /// of the type `int` with `min` and `max`.
    max_visits: Option<VisitsMax>,
    /// The limits of all visits of the node in a run together.
    limits: Option<NodeLimitsKeys>,
    /// The target when `max_visits` or one of `limits` is used up.
    exhausted: Option<TargetName>,
    /// The nodes whose counts of visits are reset when this one finishes.
    resets: Option<OneOrMany<NodeRef>>,
    /// The fields that are emptied when this node finishes, before it writes.
    clears: Option<OneOrMany<FieldName>>,
    /// The event that is reported when the run reaches this node: a verb in the past tense.
    emits: Option<EventName>,
    /// The targets of failures, by their kinds.
    catch: Option<Catch>,
    /// The longest duration of an attempt, in all or without progress. For `ask`: how long the
    /// question waits for its answer, also while no process runs. Reaching it is a failure of the
    /// kind `timeout`.
    timeout: Option<Either<Duration, TimeoutKeys>>,
    /// The number of attempts of a failed call, including the first one.
    retry: Option<Either<Attempts, RetryKeys>>,
}

/// A node, several of them, cases in order, or a match.
type Then = Either<TargetName, Either<Vec<Either<TargetName, CaseKeys>>, MatchKeys>>;

/// A join of some of several nodes. The others continue beside it, and run it no second time.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct JoinKeys {
    /// The nodes, of which `count` are waited for.
    of: Option<Vec<NodeRef>>,
    /// How many of the nodes it waits for.
    count: Option<Positive>,
    /// The nodes, of which one is waited for.
    any: Option<Vec<NodeRef>>,
}

/// A case of a route.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct CaseKeys {
    /// The condition, such as `review.verdict == "approved"`; the last case has none.
    when: Option<Expression>,
    /// The target of the case.
    to: OneOrMany<TargetName>,
}

/// A route by value.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct MatchKeys {
    /// The matched expression: an enum or a bool.
    #[serde(rename = "match")]
    on: Option<Expression>,
    /// A target for each value. Without it, the values of the enum are the names of the targets.
    to: Option<NamedMap<MatchedValue, OneOrMany<TargetName>>>,
    /// The run fails; the field of the state is the reason.
    fail: Option<FieldName>,
}

/// How results are cached.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct CacheKeys {
    /// The greatest age of a result that is reused.
    #[serde(rename = "for")]
    age: Option<Duration>,
    /// The cache key, in place of all inputs of the node, such as `ticket.id`.
    key: Option<Expression>,
}

/// The limits of all visits of a node in a run together. At a limit it is not run again.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct NodeLimitsKeys {
    /// Calls of models, with those of retries and repairs. A request without an answer does not count.
    calls: Option<Positive>,
    /// Tokens of all its requests and replies.
    tokens: Option<Positive>,
    /// US dollars, as far as prices are known.
    usd: Option<Dollars>,
    /// Time at work.
    time: Option<Duration>,
}
