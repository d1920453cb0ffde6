//! `recall`: reads entries of a tier of the memory across runs.
//!
//! The result is the node's update, so it is part of the journal: a resumed run, a fork and a replay of the records see
//! the same entries, also if the memory has changed since.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    event::Report,
    graph::{Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeDescription, NodeError},
    id::ChannelName,
    state::{Type, Update},
};
use graphrun_memory::{ENTRIES_MAX, Entry, Filter, Search};
use graphrun_workflow::{
    Expression, ExpressionView, Registry,
    kind::{
        CacheRefusal, EmbeddingUse, Keys, Kind, MakeContext, NodeReader, NodeSettings, Services,
        Yaml, describe,
        values::{self, FieldName, Positive, TierName},
    },
    memory::{SEARCH_CALLS_MAX, Tier, Tiers, entry_value},
};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::memory::{self, failure, task_memory};

/// The name of an entry in `where`.
const ENTRY: &str = "entry";

/// The number of entries of a node that names none.
const LIMIT_DEFAULT: u32 = 10;

/// The kind `recall`.
#[derive(Debug)]
pub(crate) struct RecallKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RecallKeys {
    /// Reads entries of one of the tiers of `memory`, the best first.
    recall: TierName,
    /// The text to look for, by an expression: an entry needs one of its words. Default: the newest entries.
    query: Option<values::Expression>,
    /// Only entries of this module, by an expression.
    module: Option<values::Expression>,
    /// The condition on an entry, which is called `entry`.
    #[serde(rename = "where")]
    condition: Option<values::Expression>,
    /// The most entries. Default: 10.
    limit: Option<Positive>,
    /// The field that receives the entries: a list of the tier's values, or of records with fields of an entry.
    writes: FieldName,
}

/// A node that reads memory.
#[derive(Clone, Debug)]
pub struct RecallSettings {
    /// The tier.
    pub tier: String,
    /// The text to look for.
    pub query: Option<Expression>,
    /// The module of the entries.
    pub module: Option<Expression>,
    /// The condition on an entry.
    pub condition: Option<Expression>,
    /// The most entries.
    pub limit: u32,
    /// The field that receives the entries.
    pub writes: ChannelName,
    /// Whether the field receives the values alone.
    pub values_only: bool,
    /// The tiers of the workflow.
    pub tiers: Arc<Tiers>,
}

/// A node that runs.
#[derive(Debug)]
struct Recall {
    definition: RecallSettings,
    services: Services,
}

impl Kind for RecallKind {
    fn key(&self) -> &'static str {
        "recall"
    }

    fn keys(&self) -> Keys {
        Keys::of::<RecallKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let tier = reader.tier(reader.value(), false);
        let query = read_optional(reader, "query", "`query`");
        let module = read_optional(reader, "module", "a module");
        // An unknown tier is reported already, and its entries may have any type.
        let entry = tier.as_ref().map_or(Type::Any, |(_, it)| it.entry_type());
        let condition = match reader.get("where") {
            None => Ok(None),
            Some(yaml) => reader.condition_on(yaml, ENTRY, &entry).map(Some).ok_or(ReportedError),
        };
        let limit = reader.get("limit").and_then(|it| read_limit(reader, it));
        let writes = reader.require("writes", "name the field that receives the entries")?;
        let word = reader.report().word(writes, "`writes`")?;
        let channel = reader.channel(&word)?;
        let tier = tier?;
        let values_only = takes_values(reader.type_of(&channel), &tier.1);
        let item = if values_only { tier.1.ty.clone() } else { tier.1.entry_type() };
        let output = format!("what `{}` recalls", tier.0);
        reader.expect_output(&word, &channel, &output, &Type::List(Box::new(item)));
        Some(Arc::new(RecallSettings {
            tier: tier.0,
            query: query.ok()?,
            module: module.ok()?,
            condition: condition.ok()?,
            limit: limit.unwrap_or(LIMIT_DEFAULT),
            writes: channel,
            values_only,
            tiers: reader.tiers(),
        }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: the memory may have changed since"))
    }
}

/// A value is invalid, and that is reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedError;

/// Reads an optional expression of a text.
pub(super) fn read_optional(
    reader: &mut NodeReader<'_>,
    key: &str,
    what: &str,
) -> Result<Option<Expression>, ReportedError> {
    match reader.get(key) {
        None => Ok(None),
        Some(yaml) => reader.text_expression(yaml, what).map(Some).ok_or(ReportedError),
    }
}

fn read_limit(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Option<u32> {
    let limit: u32 = reader.report().count(yaml, "`limit`", 1)?;
    if limit as usize > ENTRIES_MAX {
        let word = reader.report().word(yaml, "`limit`")?;
        let message = format!("`limit` is {limit}, more than {ENTRIES_MAX}");
        let help = format!("recall at most {ENTRIES_MAX} entries");
        reader.report().bad_value(&word, message, &help);
        return None;
    }
    Some(limit)
}

/// Returns whether a field receives the values of entries, rather than the entries.
fn takes_values(field: &Type, tier: &Tier) -> bool {
    match field.required() {
        Type::List(item) => *item.required() != Type::Any && tier.ty.fits_cut(item),
        _ => false,
    }
}

impl NodeSettings for RecallSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        let services = ctx.services.clone();
        Ok(Arc::new(Recall { definition: self.clone(), services }))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(memory::FAILURES.to_vec())
    }

    fn needs_memory(&self) -> bool {
        true
    }

    fn embeddings(&self) -> Option<EmbeddingUse<'_>> {
        // Without a text, the newest entries are found.
        self.query.as_ref()?;
        let model = self.tiers.get(&self.tier)?.embeddings.as_deref();
        EmbeddingUse::of(model.into_iter().collect(), SEARCH_CALLS_MAX)
    }

    fn detail(&self) -> Option<String> {
        Some(self.tier.clone())
    }
}

impl Recall {
    /// Returns the search. `unreadable` counts the entries on which the condition fails because their values do not fit the type
    /// of the tier.
    fn search(
        &self,
        ctx: &NodeContext,
        unreadable: &Arc<AtomicUsize>,
    ) -> Result<Search, NodeError> {
        let RecallSettings { tier, query, module, condition, limit, tiers, .. } = &self.definition;
        let view = ExpressionView::of(ctx);
        let text = |it: &Option<Expression>| -> Result<Option<String>, NodeError> {
            let Some(expression) = it else { return Ok(None) };
            Ok(expression.evaluate(&view)?.as_str().map(str::to_owned))
        };
        let filter = match condition {
            None => Filter::default(),
            Some(condition) => {
                let condition = condition.clone();
                let ctx = ctx.clone();
                let declared = tiers.get(tier).cloned();
                let unreadable = Arc::clone(unreadable);
                Filter::new(move |entry: &Entry| {
                    let view = ExpressionView::of(&ctx);
                    let value = entry.value();
                    match condition.evaluate_with(&view, &entry_value(entry)) {
                        Ok(fits) => Ok(fits == Value::Bool(true)),
                        // An entry of an earlier workflow may lack the field.
                        Err(_) if declared.as_ref().is_some_and(|it| it.check(&value).is_err()) => {
                            unreadable.fetch_add(1, Relaxed);
                            Ok(false)
                        }
                        Err(error) => Err(error.to_string()),
                    }
                })
            }
        };
        Ok(Search {
            caller: ctx.full_name().to_string(),
            tier: tier.clone(),
            module: text(module)?,
            query: text(query)?,
            embedding: None,
            filter,
            limit: *limit as usize,
            now: self.services.memory.clock.now(),
        })
    }
}

#[async_trait]
impl Node for Recall {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let RecallSettings { tier, writes, values_only, tiers, .. } = &self.definition;
        let memory = task_memory(&ctx, &self.services, tiers).ok_or_else(|| {
            let message = format!("the workflow has no tier `{tier}`");
            Failure::new(ErrorKind::Other, message)
        })?;
        let in_condition = Arc::new(AtomicUsize::new(0));
        let recalled = memory.recall(self.search(&ctx, &in_condition)?).await;
        let (entries, unreadable) = recalled.map_err(|it| failure(&it))?;
        let unreadable = unreadable + in_condition.load(Relaxed);
        if unreadable > 0 {
            let ty = tiers.get(tier).map(|it| describe(&it.ty)).unwrap_or_default();
            let (many, are) = match unreadable {
                1 => ("1 entry".to_owned(), "was left out, because its value is"),
                _ => (format!("{unreadable} entries"), "were left out, because their values are"),
            };
            let message = format!("{many} of the tier `{tier}` {are} not {ty}");
            ctx.report(Report::Warning { message }).await;
        }
        let value = |it: &Entry| if *values_only { it.value() } else { entry_value(it) };
        let values: Vec<Value> = entries.iter().map(value).collect();
        let values = ctx.state.schema().cut(writes, values.into());
        Ok(Update::default().write(writes.clone(), values).into())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "recall",
            contract: Contract { reads: None, writes: Some(vec![self.definition.writes.clone()]) },
            calls_max: Some(self.definition.embeddings().map_or(0, |it| it.calls_max)),
            fingerprint: json!(self.definition.embeddings().map(|it| it.models)),
            ..NodeDescription::default()
        }
    }
}
