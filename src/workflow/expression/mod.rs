//! The expressions of a workflow: a small, pure, typed language in the style of CEL.
//!
//! Lexer, parser and checker run when the workflow is loaded; what is left for a run is
//! [`Expression::evaluate`], which is total. What CEL has and this has not: null, literals of
//! maps, items by number, unsigned numbers, conversions. `visits("node")` is ours.

mod calls;
mod checker;
mod closed;
mod evaluate;
mod known;
mod lexer;
mod meter;
mod numbers;
mod operators;
mod output_path;
mod parser;
mod print;
mod sights;
mod syntax;
#[cfg(test)]
mod tests;
mod worlds;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde_json::Value;

pub use self::evaluate::EvaluateError;
pub(crate) use self::{
    known::known_after,
    output_path::OutputPathError,
    worlds::{CaseList, Uncovered},
};
use super::{report::Problem, written::Written};
use crate::{
    graph::Sights,
    id::{ChannelName, NodeName},
    state::{Schema, State, Type},
};

/// A checked expression over the state.
#[derive(Clone)]
pub struct Expression {
    source: String,
    root: syntax::Node,
    ty: Type,
    reads: Vec<ChannelName>,
    /// The paths that are there when it is true.
    presumed: Vec<String>,
    /// The paths that are there when it is false.
    presumed_otherwise: Vec<String>,
    /// What it calls the dispatched item.
    item: Option<String>,
    conditions: Arc<worlds::Conditions>,
}

/// What an expression sees.
#[derive(Clone, Copy, Debug)]
pub struct ExpressionView<'a> {
    /// The state.
    pub state: &'a State,
    /// How often each node has run since its count was last reset.
    pub visits: &'a BTreeMap<NodeName, u32>,
    /// The item that was dispatched to the node, if one was.
    pub item: Option<&'a Value>,
    /// The output folder of the run, where `output.dir` may be used.
    pub output_dir: Option<&'a str>,
}

/// What an expression may speak of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpressionScope<'a> {
    pub(crate) schema: &'a Schema,
    /// The channels that are written by then.
    pub(crate) written: &'a Written,
    /// The nodes whose visits can be counted.
    pub(crate) nodes: &'a BTreeSet<NodeName>,
    /// The name and the type of the item that is dispatched to the node.
    pub(crate) item: Option<(&'a str, &'a Type)>,
    /// Whether an unknown name may be that of an item.
    pub(crate) any_item: bool,
    /// The paths that are there because the `when` of the node asks for them.
    pub(crate) given: &'a [String],
    /// Whether `output.dir` means something.
    pub(crate) output: bool,
}

impl Expression {
    /// Parses and checks a text.
    pub(crate) fn compile(source: &str, scope: ExpressionScope<'_>) -> Result<Self, Vec<Problem>> {
        let root = parser::parse(source).map_err(|problem| vec![problem])?;
        let checked = checker::check(&root, scope);
        if !checked.problems.is_empty() {
            return Err(checked.problems);
        }
        let conditions = Arc::new(worlds::translate(&root, &checked.types));
        let reads = checked.reads.into_iter().collect();
        let item = scope.item.map(|(name, _)| name.to_owned());
        Ok(Self {
            source: source.trim().to_owned(),
            root,
            ty: checked.ty,
            reads,
            presumed: checked.presumed,
            presumed_otherwise: checked.presumed_otherwise,
            item,
            conditions,
        })
    }

    /// The value in a state. It is shared with the state where it is a field of it.
    ///
    /// # Errors
    ///
    /// Fails when a value is absent or not of the type that the check was told, and when a number
    /// leaves its range.
    pub fn evaluate(&self, view: &ExpressionView<'_>) -> Result<Arc<Value>, EvaluateError> {
        let item = self.item.as_deref().zip(view.item);
        evaluate::evaluate(&self.root, view, item)
    }

    /// The value in a state, as a copy.
    ///
    /// # Errors
    ///
    /// Fails as [`evaluate`](Self::evaluate) does, and when the copy of a field takes too much memory.
    pub fn evaluate_owned(&self, view: &ExpressionView<'_>) -> Result<Value, EvaluateError> {
        let item = self.item.as_deref().zip(view.item);
        evaluate::evaluate_owned(&self.root, view, item)
    }

    /// The text it was written as.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The type of its value. That of a text in quotes is the enum of this one text.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// The channels it looks at, sorted.
    pub fn reads(&self) -> &[ChannelName] {
        &self.reads
    }

    /// What decides its value.
    pub(crate) fn sights(&self) -> Sights {
        sights::sights(&self.root, &self.reads, self.item.as_deref())
    }

    /// Whether its value is what stands at a path of the state, and not computed.
    pub(crate) fn is_path(&self) -> bool {
        self.root.path().is_some_and(|path| {
            let first = path.split('.').next().unwrap_or_default();
            self.reads.iter().any(|it| it.as_str() == first)
        })
    }

    /// The parts that are the same in every state though they look as if they were not: always or
    /// never true, or without a value.
    pub(crate) fn constant_parts(&self) -> Vec<Problem> {
        let mut problems = worlds::constant_parts(&self.conditions);
        closed::note_valueless(&self.root, &mut problems);
        problems
    }

    /// The paths that are there when it is true, such as `note` where it asks `has(note)`.
    pub(crate) fn presumed(&self) -> &[String] {
        &self.presumed
    }

    /// The paths that are there when it is false, such as `note` where it asks `!has(note)`.
    pub(crate) fn presumed_otherwise(&self) -> &[String] {
        &self.presumed_otherwise
    }

    /// Whether it is `true` or `false` as it stands.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(self.root.kind, syntax::Kind::Literal(Value::Bool(_)))
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({}: {})", self.source, self.ty)
    }
}
