//! `memory`: the tiers of knowledge that lasts across runs, and the access of a node to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    state::{Field, Record, Type, schema_problem, validator_for},
};
use graphrun_guard::redact::redact_value;
use graphrun_memory::{
    Approval, Batch, ENTRIES_MAX, Embedding, Entry, EntryId, Memory, NewEntry, Search, Source,
    StoreError, Vector,
};
use graphrun_models::EmbeddingRequest;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::entries;
use crate::{
    format::TierKeys,
    source::{
        reader::{Data, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The section.
pub(crate) const MEMORY: &str = "memory";

/// The most entries that get a missing vector in one search.
const ADDED_VECTORS_MAX: usize = 64;

/// The most calls of a model for the vectors of one search: that of its text, and those that entries lack.
pub const SEARCH_CALLS_MAX: u64 = 2;

/// The access to a tier: the nodes of a run read it, or also write it.
const READ: &str = "read";
const WRITE: &str = "write";

/// The tiers of a workflow, by name.
pub type Tiers = BTreeMap<String, Tier>;

/// A tier as it is declared: a part of memory with separate rules.
#[derive(Clone, Debug)]
pub struct Tier {
    /// Whether only people write it.
    pub is_read_only: bool,
    /// How long an entry is kept, unless a person approves it.
    pub keep: Option<Duration>,
    /// Whether a person is asked to approve its entries.
    pub approve: bool,
    /// The type of its values.
    pub ty: Type,
    /// The JSON Schema of its values.
    pub schema: Value,
    /// The model that makes vectors of its entries, as `provider/model`.
    pub embeddings: Option<String>,
}

impl Default for Tier {
    fn default() -> Self {
        let schema = json!({"type": "string"});
        let keep = None;
        let embeddings = None;
        Self { is_read_only: false, keep, approve: false, ty: Type::String, schema, embeddings }
    }
}

/// The access of one task to the memory of its workflow.
#[derive(Clone, Debug)]
pub struct TaskMemory {
    /// The memory.
    pub memory: Memory,
    /// The tiers that the workflow declares.
    pub tiers: Arc<Tiers>,
    /// The workflow, the run and the node, which entries name as their source.
    pub source: Source,
    /// Makes the vectors of texts.
    pub embedder: Arc<dyn Embedder>,
}

/// Makes the vectors of texts for a task.
#[async_trait]
pub trait Embedder: fmt::Debug + Send + Sync {
    /// Returns a vector for each text, by the model of this name. A text has none if the model cannot make it; the task
    /// then reports that with `consequence`, and continues. A text that the model refuses has a vector [without a
    /// direction](Vector::of_refused_text).
    ///
    /// # Errors
    ///
    /// Fails when a recording has no answer, or cannot be written.
    async fn embed(
        &self,
        model: &str,
        texts: &[String],
        consequence: &str,
    ) -> Result<Vec<Option<Vector>>, StoreError>;
}

/// What a task writes to memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryWrite {
    /// The tier.
    pub tier: String,
    /// The values, an entry each.
    pub values: Vec<Value>,
    /// The part of a project that they are about.
    pub module: Option<String>,
    /// How certain the task is, from 0 to 1.
    pub confidence: Option<f64>,
    /// An idempotency key.
    pub key: String,
}

/// A task cannot use the memory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TaskMemoryError {
    /// The workflow declares no such tier.
    #[error("the workflow has no tier `{0}`")]
    NoTier(String),
    /// Only people write the tier.
    #[error("only people write the tier `{0}`")]
    ReadOnly(String),
    /// A value does not fit the type of the tier.
    #[error("the value does not fit the tier `{tier}`: {problem}")]
    Type {
        /// The tier.
        tier: String,
        /// The problem.
        problem: String,
    },
    /// The confidence is not between 0 and 1.
    #[error("the confidence is {0}, which is not between 0 and 1")]
    Confidence(f64),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TaskMemory {
    /// Searches a tier. The second part of the result counts the entries that were left out, because they do not fit
    /// the type of the tier.
    ///
    /// # Errors
    ///
    /// Fails when there is no such tier, and when the store fails.
    pub async fn recall(&self, search: Search) -> Result<(Vec<Entry>, usize), TaskMemoryError> {
        let tier = self.tier(&search.tier)?;
        let search = match &tier.embeddings {
            Some(model) => self.with_vector(search, model).await?,
            None => search,
        };
        let mut found = self.memory.store.search(&search).await?;
        let count = found.len();
        found.retain(|it| tier.check(&it.value()).is_ok());
        let skipped = count - found.len();
        Ok((found, skipped))
    }

    /// Writes values. Keys and other secrets in them are removed.
    ///
    /// # Errors
    ///
    /// Fails when there is no such tier or only people write it, when a value does not fit, and when the store fails.
    pub async fn remember(&self, what: MemoryWrite) -> Result<Vec<EntryId>, TaskMemoryError> {
        let MemoryWrite { tier: name, values, module, confidence, key } = what;
        let tier = self.tier(&name)?;
        if tier.is_read_only {
            return Err(TaskMemoryError::ReadOnly(name));
        }
        if let Some(confidence) = confidence.filter(|it| !(0.0..=1.0).contains(it)) {
            return Err(TaskMemoryError::Confidence(confidence));
        }
        // Before the vectors, which cost something.
        if values.len() > ENTRIES_MAX {
            return Err(StoreError::TooMany(values.len()).into());
        }
        let mut entries = Vec::new();
        for mut value in values {
            redact_value(&mut value);
            if let Err(problem) = tier.check(&value) {
                return Err(TaskMemoryError::Type { tier: name, problem });
            }
            let approval = if tier.approve { Approval::Pending } else { Approval::None };
            let keep = tier.keep;
            let module = module.clone();
            let entry = NewEntry::of(name.clone(), value, self.source.clone());
            let entry = NewEntry { module, confidence, approval, keep, ..entry };
            entry.check()?;
            entries.push(entry);
        }
        if let Some(model) = &tier.embeddings {
            let texts: Vec<String> = entries.iter().map(|it| it.text.clone()).collect();
            let consequence = "the entries are saved without vectors";
            let vectors = self.embedder.embed(model, &texts, consequence).await?;
            for (entry, vector) in entries.iter_mut().zip(vectors) {
                entry.embedding = vector.map(|vector| Embedding { model: model.clone(), vector });
            }
        }
        let batch = Batch { key, entries, now: self.memory.clock.now() };
        Ok(self.memory.store.put(&batch).await?)
    }

    /// Adds the vector of its text to a search. Entries that have no vector of the model get one first: those of people,
    /// imported ones, and those of a time when the model was another one or did not answer.
    async fn with_vector(&self, search: Search, model: &str) -> Result<Search, StoreError> {
        let Some(query) = search.query.clone().filter(|_| !search.is_for_newest()) else {
            return Ok(search);
        };
        let consequence = format!("entries of `{}` are ranked by their words alone", search.tier);
        let mut vectors = self.embedder.embed(model, &[query], &consequence).await?;
        let vector = vectors.pop().flatten().filter(Vector::has_direction);
        let Some(vector) = vector else { return Ok(search) };
        let store = &self.memory.store;
        let lacking = store.without_vector(&search.tier, model, ADDED_VECTORS_MAX).await?;
        if !lacking.is_empty() {
            let texts: Vec<String> = lacking.iter().map(|it| it.text.clone()).collect();
            let texts = cut_to_one_request(texts);
            let consequence = format!("some entries of `{}` have no vectors", search.tier);
            let vectors = self.embedder.embed(model, &texts, &consequence).await?;
            let added = lacking.into_iter().zip(vectors).filter_map(|(entry, vector)| {
                Some((entry.id, Embedding { model: model.to_owned(), vector: vector? }))
            });
            store.set_vectors(&added.collect::<Vec<_>>()).await?;
        }
        Ok(search.embedding(Embedding { model: model.to_owned(), vector }))
    }

    fn tier(&self, name: &str) -> Result<&Tier, TaskMemoryError> {
        self.tiers.get(name).ok_or_else(|| TaskMemoryError::NoTier(name.to_owned()))
    }
}

/// Returns the first texts that fit into one request.
fn cut_to_one_request(texts: Vec<String>) -> Vec<String> {
    let first = EmbeddingRequest::batches("", &texts).first().map_or(0, |it| it.texts.len());
    texts.into_iter().take(first).collect()
}

/// Returns the models that make vectors when a task searches some tier, or adds to some tier.
pub fn embedding_models(tiers: &Tiers, writes: bool) -> BTreeSet<&str> {
    let used = tiers.values().filter(|it| !writes || !it.is_read_only);
    used.filter_map(|it| it.embeddings.as_deref()).collect()
}

impl Tier {
    /// Returns the type of an entry in expressions, and of the items that a recall writes.
    pub fn entry_type(&self) -> Type {
        let field = |name, ty| Field::new(name, ty);
        let text = || Type::String;
        let fields = vec![
            field("id", text()),
            field("text", text()),
            field("value", self.ty.clone()),
            field("module", text().optional()),
            field("confidence", Type::FLOAT.optional()),
            field("approved", Type::Bool),
            field("workflow", text().optional()),
            field("run", text().optional()),
            field("node", text().optional()),
            field("person", text().optional()),
            field("created", text()),
            field("updated", text()),
        ];
        Type::Record(Arc::new(Record { name: Some("entry".into()), fields, is_closed: true }))
    }

    /// Checks that a value fits the type of the tier.
    ///
    /// # Errors
    ///
    /// Fails with the place of the first problem in the value.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        // Most tiers have texts.
        if self.ty == Type::String && value.is_string() {
            return Ok(());
        }
        let validator = validator_for(&self.schema).map_err(|it| it.to_string())?;
        validator.validate(value).map_err(|error| schema_problem(&error))
    }
}

/// Returns an entry as a value of its [type](Tier::entry_type).
pub fn entry_value(entry: &Entry) -> Value {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            fields.insert(name.to_owned(), value);
        }
    };
    add("id", entry.id.as_str().into());
    add("text", entry.text.clone().into());
    add("value", entry.value());
    add("module", entry.module.clone().into());
    add("confidence", entry.confidence.into());
    add("approved", (entry.approval == Approval::Approved).into());
    match &entry.source {
        Source::Run { workflow, run, node } => {
            add("workflow", workflow.clone().into());
            add("run", run.clone().into());
            add("node", node.clone().into());
        }
        Source::Person { name } => add("person", name.clone().into()),
    }
    add("created", entry.created.to_string().into());
    add("updated", entry.updated.to_string().into());
    Value::Object(fields)
}

/// Reads the tiers. Their types were read with those of the state.
pub(crate) fn read_tiers(
    report: &mut Report,
    top: &Section<'_>,
    schemas: &BTreeMap<String, Value>,
    find_model: &mut dyn FnMut(&mut Report, &Yaml) -> Vec<String>,
) -> Arc<Tiers> {
    let mut tiers = Tiers::new();
    for entry in entries(report, top, MEMORY) {
        let name = &entry.key.text;
        let is_name = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
        if !name.starts_with(|it: char| it.is_ascii_alphabetic()) || !name.chars().all(is_name) {
            let message = format!("a tier cannot have the name `{name}`");
            let help = "use letters, digits, `_` and `-`, and begin with a letter";
            report.bad_value(&entry.key, message, help);
        }
        // An invalid tier still counts as declared, so that the nodes that use it are not reported.
        let mut tier = read_tier(report, name, &entry.value).unwrap_or_default();
        if let Some(yaml) = entry.value.get("embeddings") {
            tier.embeddings = read_embeddings(report, yaml, find_model);
        }
        if entry.value.get("type").is_some() {
            // A type that is reported counts as `any`, so that the uses of the tier are not reported too.
            tier.schema = schemas.get(name).cloned().unwrap_or_else(|| json!({}));
            tier.ty = Type::of_schema(&tier.schema);
        }
        tiers.insert(name.clone(), tier);
    }
    Arc::new(tiers)
}

fn read_tier(report: &mut Report, name: &str, yaml: &Yaml) -> Option<Tier> {
    if !matches!(yaml.data, Data::Map(_)) {
        let is_read_only = read_access(report, yaml)?;
        return Some(Tier { is_read_only, ..Tier::default() });
    }
    let section = Section::read::<TierKeys>(report, yaml, &format!("the tier `{name}`"))?;
    let access = section.get("access").and_then(|it| read_access(report, it));
    let keep = section.get("keep").and_then(|it| report.duration(it, "`keep`"));
    let approve = section.get("approve").and_then(|it| report.bool(it, "`approve`"));
    let is_read_only = access.unwrap_or_default();
    for key in ["keep", "approve"].into_iter().filter_map(|it| section.key(it)) {
        if is_read_only {
            let message = format!("`{}` is for entries that runs write", key.text);
            report.bad_value(key, message, "remove it: what people write stays");
        }
    }
    Some(Tier { is_read_only, keep, approve: approve.unwrap_or_default(), ..Tier::default() })
}

/// Returns the model for the vectors of a tier. A list of models is refused.
fn read_embeddings(
    report: &mut Report,
    yaml: &Yaml,
    find_model: &mut dyn FnMut(&mut Report, &Yaml) -> Vec<String>,
) -> Option<String> {
    let word = report.word(yaml, "`embeddings`")?;
    let models = find_model(report, yaml);
    if let [first, _, ..] = &models[..] {
        let message = format!("`{}` is a list of models", word.text);
        let help = format!(
            "name one model, as in `{first}`: vectors of different models cannot be compared"
        );
        report.bad_value(&word, message, &help);
        return None;
    }
    models.into_iter().next()
}

/// Returns whether only people write a tier.
fn read_access(report: &mut Report, yaml: &Yaml) -> Option<bool> {
    let word = report.word(yaml, "the access to a tier")?;
    match word.text.as_str() {
        READ => Some(true),
        WRITE => Some(false),
        _ => {
            let message = format!("`{}` is not an access to a tier", word.text);
            report.bad_value(&word, message, "write `read` or `write`");
            None
        }
    }
}

/// Returns the types of the tiers as they are written, by tier.
pub(crate) fn tier_types<'y>(top: &Section<'y>) -> impl Iterator<Item = (&'y str, &'y Yaml)> {
    let tiers = top.get(MEMORY).map(Yaml::entries).unwrap_or_default();
    tiers.iter().filter_map(|it| Some((it.key.text.as_str(), it.value.get("type")?)))
}

/// Returns the names of the tiers that runs may write, or of all.
pub(crate) fn names(tiers: &Tiers, writable: bool) -> BTreeSet<&str> {
    let fits = |it: &Tier| !writable || !it.is_read_only;
    tiers.iter().filter(|(_, it)| fits(it)).map(|(name, _)| name.as_str()).collect()
}

/// Reports a name of no tier, or of one that only people write.
pub(crate) fn check_tier(
    report: &mut Report,
    tiers: &Tiers,
    word: &SpannedText,
    writes: bool,
) -> Option<Tier> {
    let Some(tier) = tiers.get(&word.text) else {
        report.unknown("GR058", "tier", word, tiers.keys().map(String::as_str));
        return None;
    };
    report.references.add(MEMORY, &word.text);
    if writes && tier.is_read_only {
        let message = format!("only people write the tier `{}`", word.text);
        let span = report.span(&word.range);
        let diagnostic = Diagnostic::error("GR059", message).at(span, "cannot be written here");
        let writable = names(tiers, true);
        let help = match writable.first() {
            Some(other) => format!("name another tier, such as `{other}`"),
            None => {
                "declare a tier that runs write, such as `discovered: { keep: 48h }`".to_owned()
            }
        };
        report.push(diagnostic.help(help));
        return None;
    }
    Some(tier.clone())
}
