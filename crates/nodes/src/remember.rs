//! `remember`: writes entries to a tier of the memory across runs.
//!
//! The memory and the journal cannot commit together. So a task that is repeated after a crash writes under the same key,
//! which the store knows.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    event::Report,
    graph::{Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeDescription, NodeError},
    state::{NumberRange, Type, Update},
};
use graphrun_memory::ENTRIES_MAX;
use graphrun_models::EmbeddingRequest;
use graphrun_workflow::{
    Expression, ExpressionView, Registry,
    kind::{
        CacheRefusal, EmbeddingUse, Keys, Kind, MakeContext, NodeReader, NodeSettings, Services,
        Yaml, describe,
        values::{self, TierName},
    },
    memory::{MemoryWrite, Tier, Tiers},
};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{
    memory::{self, failure, task_memory},
    recall::{ReportedError, read_optional},
};

/// The kind `remember`.
#[derive(Debug)]
pub(crate) struct RememberKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RememberKeys {
    /// Writes a value to the memory across runs, by an expression. Each item of a list becomes an entry.
    remember: values::Expression,
    /// One of the tiers of `memory`.
    #[serde(rename = "as")]
    tier: TierName,
    /// The part of a project that the value is about, by an expression.
    module: Option<values::Expression>,
    /// How certain it is, by an expression: a number from 0 to 1.
    confidence: Option<values::Expression>,
}

/// A node that writes to memory.
#[derive(Clone, Debug)]
pub struct RememberSettings {
    /// The value.
    pub value: Expression,
    /// The tier.
    pub tier: String,
    /// Whether the value is a list with an entry for each item.
    pub is_list: bool,
    /// The part of a project that the value is about.
    pub module: Option<Expression>,
    /// How certain it is.
    pub confidence: Option<Expression>,
    /// The tiers of the workflow.
    pub tiers: Arc<Tiers>,
}

/// A node that runs.
#[derive(Debug)]
struct Remember {
    definition: RememberSettings,
    services: Services,
}

impl Kind for RememberKind {
    fn key(&self) -> &'static str {
        "remember"
    }

    fn keys(&self) -> Keys {
        Keys::of::<RememberKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let help = "name one of the tiers of `memory`, as in `as: discovered`";
        let tier = reader.require("as", help).and_then(|it| reader.tier(it, true));
        let yaml = reader.value();
        let declared = tier.as_ref().map_or(Type::Any, |(_, it)| it.ty.clone());
        // An absent value is remembered as nothing.
        let value = reader.expression_for(yaml, &Type::Optional(Box::new(declared)));
        if let (Some(value), Some((name, tier))) = (&value, &tier)
            && let Some(mismatch) = type_mismatch(value.ty(), name, tier)
        {
            let help =
                format!("remember a `{0}` or a list of `{0}`, or give the tier a `type`", tier.ty);
            let span = reader.report().span(&yaml.range);
            let diagnostic = Diagnostic::error("GR022", mismatch).at(span, "another type");
            reader.report().push(diagnostic.help(help));
        }
        let module = read_optional(reader, "module", "a module");
        let confidence = match reader.get("confidence") {
            None => Ok(None),
            Some(yaml) => read_confidence(reader, yaml).map(Some).ok_or(ReportedError),
        };
        let (value, (tier, declared)) = (value?, tier?);
        let ty = value.ty().required();
        let is_list = !ty.fits(&declared.ty) && matches!(ty, Type::List(_));
        let module = module.ok()?;
        let confidence = confidence.ok()?;
        let tiers = reader.tiers();
        Some(Arc::new(RememberSettings { value, tier, is_list, module, confidence, tiers }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: a cached result would write nothing"))
    }
}

fn read_confidence(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Option<Expression> {
    let confidence = reader.expression(yaml)?;
    let share = Type::Float(NumberRange { min: Some(0.0), max: Some(1.0) });
    let ty = confidence.ty();
    if ty.fits(&Type::FLOAT) && ty.out_of_range(&share).is_some() {
        let span = reader.report().span(&yaml.range);
        let message = "`confidence` is a number from 0 to 1, and this may be another one";
        let diagnostic = Diagnostic::error("GR120", message).at(span, "out of range");
        let help = "keep it in the range with `min` and `max`: `max(0, min(1, …))`";
        reader.report().push(diagnostic.help(help));
    } else {
        reader.expect_type(yaml, ty, &share, "`confidence`");
    }
    Some(confidence)
}

/// Returns the message about a value that is neither a value of the tier nor a list of these.
fn type_mismatch(ty: &Type, name: &str, tier: &Tier) -> Option<String> {
    let ty = ty.required();
    let fits = ty.fits(&tier.ty) || matches!(ty, Type::List(item) if item.fits(&tier.ty));
    let message = || {
        format!("the values of the tier `{name}` are `{}`, and this is {}", tier.ty, describe(ty))
    };
    (!fits).then(message)
}

impl NodeSettings for RememberSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        let services = ctx.services.clone();
        Ok(Arc::new(Remember { definition: self.clone(), services }))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(memory::FAILURES.to_vec())
    }

    fn needs_memory(&self) -> bool {
        true
    }

    fn embeddings(&self) -> Option<EmbeddingUse<'_>> {
        let model = self.tiers.get(&self.tier)?.embeddings.as_deref();
        let calls = EmbeddingRequest::batches_max(if self.is_list { ENTRIES_MAX } else { 1 });
        let calls = u64::try_from(calls).unwrap_or(u64::MAX);
        EmbeddingUse::of(model.into_iter().collect(), calls)
    }

    fn detail(&self) -> Option<String> {
        Some(self.tier.clone())
    }
}

impl Remember {
    fn remembered(&self, ctx: &NodeContext) -> Result<MemoryWrite, NodeError> {
        let RememberSettings { value, tier, is_list, module, confidence, .. } = &self.definition;
        let view = ExpressionView::of(ctx);
        let mut values = match value.evaluate_owned(&view)? {
            Value::Null => Vec::new(),
            Value::Array(items) if *is_list => items,
            value => vec![value],
        };
        // A model that has nothing to remember often answers with an empty text.
        values.retain(|it| it.as_str().is_none_or(|text| !text.trim().is_empty()));
        let evaluate = |it: &Option<Expression>| -> Result<Option<Arc<Value>>, NodeError> {
            Ok(it.as_ref().map(|it| it.evaluate(&view)).transpose()?)
        };
        Ok(MemoryWrite {
            tier: tier.clone(),
            values,
            module: evaluate(module)?.and_then(|it| it.as_str().map(str::to_owned)),
            confidence: evaluate(confidence)?.and_then(|it| it.as_f64()),
            key: ctx.idempotency_key(),
        })
    }
}

#[async_trait]
impl Node for Remember {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let RememberSettings { tier, tiers, .. } = &self.definition;
        let memory = task_memory(&ctx, &self.services, tiers).ok_or_else(|| {
            let message = format!("the workflow has no tier `{tier}`");
            Failure::new(ErrorKind::Other, message)
        })?;
        let remembered = memory.remember(self.remembered(&ctx)?).await;
        let ids = remembered.map_err(|it| failure(&it))?;
        let entries = if ids.len() == 1 { "entry" } else { "entries" };
        let message = format!("remembered {} {entries} in `{tier}`", ids.len());
        ctx.report(Report::Note { message }).await;
        Ok(Update::default().into())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "remember",
            contract: Contract { reads: None, writes: Some(Vec::new()) },
            calls_max: Some(self.definition.embeddings().map_or(0, |it| it.calls_max)),
            fingerprint: json!(self.definition.embeddings().map(|it| it.models)),
            ..NodeDescription::default()
        }
    }
}
