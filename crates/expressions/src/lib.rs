//! The expressions of a workflow: a small, pure, typed language in the style of CEL.
//!
//! Lexer, parser and checker run when the workflow is loaded. A run only calls
//! [`Expression::evaluate`], which always terminates. CEL's bytes, unsigned numbers, timestamps and
//! comparisons with null are left out; `visits("node")` and some functions are additions.
//!
//! An expression passes through these modules:
//! - `lexer` and `parser`: the text as a tree (`syntax`);
//! - `checker`: its type, by `typing`, `operators`, `functions`, `ranges` and `sizes`, from the fields that are there ([`flow`]) and
//!   the facts of the run ([`facts`]);
//! - `known` and `guards`: the guarantees of a condition, for the nodes behind it;
//! - `satisfiability`: whether conditions are always true, never true, or exclude each other;
//! - `evaluate`: its value in a run.
//!
//! ```
//! use std::collections::{BTreeMap, BTreeSet};
//!
//! use graphrun_core::{
//!     id::ChannelName,
//!     state::{Channel, Reducer, Schema},
//! };
//! use graphrun_expressions::{
//!     Expression, ExpressionScope,
//!     flow::{guarantee::Guarantees, written::AssignedFields},
//! };
//!
//! let score = ChannelName::parse("score")?;
//! let field = Channel::new(score.clone(), serde_json::json!({"type": "integer"}), Reducer::Replace)?;
//! let schema = Schema::new([field])?;
//! let scope = ExpressionScope {
//!     schema: &schema,
//!     written: &AssignedFields::from_iter([score]),
//!     nodes: &BTreeSet::new(),
//!     item: None,
//!     variable: None,
//!     any_item: false,
//!     known: &Guarantees::NONE,
//!     output: false,
//!     types: &BTreeMap::new(),
//!     expected: None,
//! };
//! assert_eq!(Expression::compile("score >= 8", scope).unwrap().ty().to_string(), "bool");
//! let problems = Expression::compile("scroe >= 8", scope).unwrap_err();
//! assert_eq!(problems[0].help.as_deref(), Some("did you mean `score`?"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod access;
mod calls;
mod checker;
mod closed;
mod evaluate;
mod evaluate_error;
pub mod facts;
pub mod file;
pub mod flow;
mod functions;
mod guards;
pub mod item;
mod known;
mod lexer;
mod meter;
mod numbers;
mod operators;
mod output_path;
mod parser;
mod print;
pub mod problem;
mod ranges;
mod records;
mod route;
mod satisfiability;
mod sizes;
mod syntax;
#[cfg(test)]
mod tests;
pub mod typing;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use graphrun_core::{
    graph::{AccessSet, FactNeeds, NodeContext, RunFacts, Trigger, Visits},
    id::{ChannelName, NodeName},
    state::{Schema, State, Type},
};
use serde_json::Value;

use self::{
    evaluate::{Absent, Settings, TypedPlaces},
    flow::{guarantee::Guarantees, written::AssignedFields},
    problem::Problem,
};
pub use self::{
    evaluate_error::{EvaluateError, ExpressionError},
    functions::Function,
    known::{ByOutcome, FieldGuarantee, PresentValue, guarantees_after, present_after},
    lexer::{QuotedText, quoted_texts},
    operators::joined,
    output_path::OutputPathError,
    satisfiability::{CaseList, UncoveredState, exclude_each_other},
};

/// A checked expression over the state.
#[derive(Clone)]
pub struct Expression {
    source: String,
    root: syntax::Node,
    ty: Type,
    places: Arc<TypedPlaces>,
    reads: Vec<ChannelName>,
    /// The named types of the records that it makes.
    named: Vec<String>,
    /// The facts that a run must save for it.
    facts: FactNeeds,
    /// The guarantees if the expression is true.
    known: Guarantees,
    /// The guarantees if the expression is false.
    known_otherwise: Guarantees,
    /// The name of the dispatched item.
    item: Option<String>,
    /// The name of the value that is given with each evaluation.
    variable: Option<String>,
    conditions: Arc<satisfiability::Conditions>,
}

/// The values that an expression can read.
#[derive(Clone, Copy, Debug)]
pub struct ExpressionView<'a> {
    /// The state.
    pub state: &'a State,
    /// How often each node has run since its count was last reset.
    pub visits: &'a Visits,
    /// The item that was dispatched to the node, if one was.
    pub item: Option<&'a Value>,
    /// The output folder of the run, where `output.dir` may be used.
    pub output_dir: Option<&'a str>,
    /// The trigger of the task.
    pub trigger: &'a Trigger,
    /// The facts of the run.
    pub facts: &'a RunFacts,
}

impl<'a> ExpressionView<'a> {
    /// The values of an attempt.
    pub fn of(ctx: &'a NodeContext) -> Self {
        let item = ctx.input.item();
        let NodeContext { state, visits, trigger, facts, .. } = ctx;
        Self { state, visits, item, output_dir: None, trigger, facts }
    }

    /// Allows `output.dir`.
    #[must_use]
    pub fn with_output_dir(self, output_dir: &'a str) -> Self {
        Self { output_dir: Some(output_dir), ..self }
    }
}

/// The names that an expression may use.
#[derive(Clone, Copy, Debug)]
pub struct ExpressionScope<'a> {
    /// The fields of the state.
    pub schema: &'a Schema,
    /// The channels that are assigned at this point.
    pub written: &'a AssignedFields,
    /// The nodes whose visits can be counted.
    pub nodes: &'a BTreeSet<NodeName>,
    /// The name and the type of the item that is dispatched to the node.
    pub item: Option<(&'a str, &'a Type)>,
    /// The name and the type of a value that is given with each evaluation.
    pub variable: Option<(&'a str, &'a Type)>,
    /// Whether an unknown name may be the name of an item.
    pub any_item: bool,
    /// The guarantees that routes and the node's `when` have proved.
    pub known: &'a Guarantees,
    /// Whether `output.dir` is allowed.
    pub output: bool,
    /// The types of records that have a name.
    pub types: &'a BTreeMap<String, Type>,
    /// The type that the value is for. If it is optional, the value may be absent.
    pub expected: Option<&'a Type>,
}

impl Expression {
    /// Parses and checks a text.
    pub fn compile(source: &str, scope: ExpressionScope<'_>) -> Result<Self, Vec<Problem>> {
        let root = parser::parse(source).map_err(|problem| vec![problem])?;
        let checked = checker::check(&root, scope);
        if !checked.problems.is_empty() {
            return Err(checked.problems);
        }
        let places = TypedPlaces::of(&checked.types);
        let conditions = satisfiability::translate(&root, &checked.types, &places);
        let reads = checked.reads.into_iter().collect();
        let item = scope.item.map(|(name, _)| name.to_owned());
        let variable = scope.variable.map(|(name, _)| name.to_owned());
        Ok(Self {
            source: source.trim().to_owned(),
            root,
            ty: checked.ty,
            places: Arc::new(places),
            reads,
            named: checked.named.into_iter().collect(),
            facts: checked.facts,
            known: checked.known,
            known_otherwise: checked.known_otherwise,
            item,
            variable,
            conditions: Arc::new(conditions),
        })
    }

    /// Returns the value in a state. A field of the state is shared, not copied.
    ///
    /// # Errors
    ///
    /// Fails when a value is absent or differs from the type that the check assumed, and when a
    /// number leaves its range.
    pub fn evaluate(&self, view: &ExpressionView<'_>) -> Result<Arc<Value>, ExpressionError> {
        evaluate::evaluate(&self.root, view, self.settings(view)).map_err(|it| self.failed(it))
    }

    /// Returns a copy of the value in a state.
    ///
    /// # Errors
    ///
    /// Fails as [`evaluate`](Self::evaluate) does, and when the copy of a field takes too much
    /// memory.
    pub fn evaluate_owned(&self, view: &ExpressionView<'_>) -> Result<Value, ExpressionError> {
        let value = evaluate::evaluate_owned(&self.root, view, self.settings(view));
        value.map_err(|it| self.failed(it))
    }

    /// Returns the value in a state, with a value for the variable that the expression was read with.
    ///
    /// # Errors
    ///
    /// Fails as [`evaluate`](Self::evaluate) does.
    pub fn evaluate_with(
        &self,
        view: &ExpressionView<'_>,
        value: &Value,
    ) -> Result<Value, ExpressionError> {
        let variable = self.variable.as_deref().map(|it| (it, value));
        let settings = Settings { variable, ..self.settings(view) };
        evaluate::evaluate_owned(&self.root, view, settings).map_err(|it| self.failed(it))
    }

    fn failed(&self, reason: EvaluateError) -> ExpressionError {
        ExpressionError { expression: self.start(), reason }
    }

    /// Returns the source text, or its first characters, for a message.
    pub fn start(&self) -> String {
        const CHARACTERS_MAX: usize = 60;
        let mut start: String = self.source.chars().take(CHARACTERS_MAX).collect();
        if start.len() < self.source.len() {
            start.push('…');
        }
        start
    }

    fn settings<'a>(&'a self, view: &ExpressionView<'a>) -> Settings<'a> {
        let absent = match self.ty {
            Type::Optional(_) => Absent::IsNull,
            _ => Absent::IsError,
        };
        let item = self.item.as_deref().zip(view.item);
        Settings { item, variable: None, places: &self.places, absent }
    }

    /// Returns the source text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the type of its value. The type of a literal text is the enum of this one text.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// The channels it reads, sorted.
    pub fn reads(&self) -> &[ChannelName] {
        &self.reads
    }

    /// Returns the named types of the records that it makes.
    pub fn named_types(&self) -> &[String] {
        &self.named
    }

    /// Returns whether its value follows from fields of the state alone: it reads no item, no fact of the run and no
    /// count.
    pub fn reads_only_fields(&self) -> bool {
        access::reads_only_fields(&self.root, &self.reads)
    }

    /// Returns the facts that a run must save for it.
    pub fn facts(&self) -> &FactNeeds {
        &self.facts
    }

    /// Returns its access set.
    pub fn access_set(&self) -> AccessSet {
        access::access_set(&self.root, &self.reads, self.item.as_deref())
    }

    /// Returns the access set of a part of its value, such as `["verdict"]`.
    pub fn access_set_of(&self, path: &[String]) -> AccessSet {
        let part = access::part_of(&self.root, path);
        access::access_set(&part, &self.reads, self.item.as_deref())
    }

    /// Returns whether it reads the dispatched item.
    pub fn reads_item(&self) -> bool {
        !self.access_set().item_paths.is_empty()
    }

    /// Returns whether it is a plain path into the state and not computed.
    pub fn is_path(&self) -> bool {
        self.root.path().is_some_and(|path| {
            let first = path.split('.').next().unwrap_or_default();
            self.reads.iter().any(|it| it.as_str() == first)
        })
    }

    /// Returns the parts with the same outcome in every state although they are no literals: always true, never true,
    /// or without a value.
    pub fn constant_parts(&self) -> Vec<Problem> {
        let mut problems = satisfiability::constant_parts(&self.conditions);
        closed::note_valueless(&self.root, &self.places, &mut problems);
        problems
    }

    /// Returns the guarantees if it is true, such as that `note` is there for `has(note)`, and the range of `n` for `n <
    /// 10`.
    pub fn known(&self) -> &Guarantees {
        &self.known
    }

    /// Returns the guarantees if it is false, such as that `note` is there for `!has(note)`.
    pub fn known_otherwise(&self) -> &Guarantees {
        &self.known_otherwise
    }

    /// Returns its value, if it reads nothing and has one.
    pub fn constant(&self) -> Option<Value> {
        closed::evaluate_closed(&self.root, &self.places)?.ok()
    }

    /// Returns whether it is the literal `true` or `false`.
    pub fn is_constant(&self) -> bool {
        matches!(self.root.kind, syntax::NodeKind::Literal(Value::Bool(_)))
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({}: {})", self.source, self.ty)
    }
}
