//! The built-in tools for memory: a search in a tier, and a new entry.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::state::Type;
use graphrun_memory::{Approval, Entry, Search};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{BuiltIn, Make, Needs, Tool, ToolContext, ToolError};
use crate::sections::memory::{MemoryWrite, TaskMemory, TaskMemoryError, Tiers, names};

/// The tools of this file.
pub(super) const TOOLS: &[BuiltIn] = &[SEARCH, ADD];

const SEARCH: BuiltIn = BuiltIn {
    name: "memory.search",
    about: "Searches a tier of the memory across runs; the best entries come first.",
    needs: Needs::Memory,
    make: Make::OfMemory(|tiers| MemoryTool::make::<SearchInput, FoundEntries>(&SEARCH, tiers)),
};

const ADD: BuiltIn = BuiltIn {
    name: "memory.add",
    about: "Adds an entry to a tier of the memory across runs; the same text again updates it.",
    needs: Needs::WritableMemory,
    make: Make::OfMemory(|tiers| MemoryTool::make::<Addition, AddOutput>(&ADD, tiers)),
};

/// The number of entries of a search that names none.
const LIMIT_DEFAULT: usize = 5;
/// The most entries of a search.
const LIMIT_MAX: usize = 50;

/// The input of a search.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchInput {
    /// The tier.
    tier: String,
    /// The words to look for. Without words, the newest entries are found.
    query: Option<String>,
    /// Only entries about this part of the project.
    module: Option<String>,
    /// The most entries. Default: 5, at most 50.
    limit: Option<usize>,
}

/// The output of a search.
#[derive(Serialize, JsonSchema)]
struct FoundEntries {
    /// The entries, the best first.
    entries: Vec<FoundEntry>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Entry")]
struct FoundEntry {
    /// Its id.
    id: String,
    /// Its text.
    text: String,
    /// Its value, if it is not just the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    /// The part of the project that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    /// How certain its writer was, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<f64>,
    /// Whether a person has approved it.
    approved: bool,
}

/// The input of an addition.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Addition {
    /// The tier.
    tier: String,
    /// The text, or the value where the tier has records.
    value: Value,
    /// The part of the project that it is about.
    module: Option<String>,
    /// How certain you are, from 0 to 1.
    confidence: Option<f64>,
}

/// The output of an addition.
#[derive(Serialize, JsonSchema)]
struct AddOutput {
    /// The id of the entry.
    id: String,
}

/// A tool whose schema lists the tiers.
struct MemoryTool {
    built_in: &'static BuiltIn,
    input: Value,
    output: Value,
}

impl MemoryTool {
    fn make<I: JsonSchema, O: JsonSchema>(
        built_in: &'static BuiltIn,
        tiers: &Tiers,
    ) -> Arc<dyn Tool> {
        let settings = SchemaSettings::draft2020_12;
        let input = settings().for_deserialize().into_generator().into_root_schema_for::<I>();
        let output = settings().for_serialize().into_generator().into_root_schema_for::<O>();
        let mut input = input.to_value();
        let names = names(tiers, built_in.needs == Needs::WritableMemory);
        let has_texts = |it: &&str| tiers[*it].ty == Type::String;
        if !names.is_empty() {
            input["properties"]["tier"]["enum"] = json!(names);
            if names.iter().all(has_texts) && built_in.needs == Needs::WritableMemory {
                input["properties"]["value"]["type"] = "string".into();
            }
        }
        Arc::new(Self { built_in, input, output: output.to_value() })
    }
}

#[async_trait]
impl Tool for MemoryTool {
    fn name(&self) -> &str {
        self.built_in.name
    }

    fn description(&self) -> &str {
        self.built_in.about
    }

    fn input_schema(&self) -> &Value {
        &self.input
    }

    fn output_schema(&self) -> &Value {
        &self.output
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<Value, ToolError> {
        let memory = ctx.memory.as_deref().ok_or_else(|| {
            ToolError::permanent("the workflow declares no `memory`, so there is nothing to use")
        })?;
        if self.built_in.needs == Needs::Memory {
            output(&search(memory, read(input)?, ctx).await?)
        } else {
            output(&add(memory, read(input)?, ctx).await?)
        }
    }
}

async fn search(
    memory: &TaskMemory,
    input: SearchInput,
    ctx: &ToolContext,
) -> Result<FoundEntries, ToolError> {
    let SearchInput { tier, query, module, limit } = input;
    let limit = limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
    let search = Search::of(tier, memory.memory.clock.now());
    let search = Search { caller: ctx.caller.clone(), query, module, limit, ..search };
    let (found, _) = memory.recall(search).await.map_err(failed)?;
    Ok(FoundEntries { entries: found.into_iter().map(FoundEntry::from).collect() })
}

async fn add(
    memory: &TaskMemory,
    input: Addition,
    ctx: &ToolContext,
) -> Result<AddOutput, ToolError> {
    let Addition { tier, value, module, confidence } = input;
    let values = vec![value];
    let key = ctx.key.clone();
    let ids = memory.remember(MemoryWrite { tier, values, module, confidence, key }).await;
    let id = ids.map_err(failed)?.pop().expect("one value becomes one entry");
    Ok(AddOutput { id: id.to_string() })
}

fn read<T: DeserializeOwned>(input: Value) -> Result<T, ToolError> {
    T::deserialize(input).map_err(ToolError::permanent)
}

fn output<T: Serialize>(output: &T) -> Result<Value, ToolError> {
    serde_json::to_value(output).map_err(ToolError::permanent)
}

fn failed(error: TaskMemoryError) -> ToolError {
    match error {
        TaskMemoryError::Store(error) if error.is_transient() => ToolError::transient(error),
        error => ToolError::permanent(error),
    }
}

impl From<Entry> for FoundEntry {
    fn from(entry: Entry) -> Self {
        let approved = entry.approval == Approval::Approved;
        let Entry { id, text, value, module, confidence, .. } = entry;
        Self { id: id.to_string(), text, value, module, confidence, approved }
    }
}

/// Returns whether some tools can use these tiers at all.
pub(crate) fn can_use(needs: Needs, tiers: &Tiers) -> bool {
    match needs {
        Needs::Memory => !tiers.is_empty(),
        Needs::WritableMemory => !names(tiers, true).is_empty(),
        Needs::Files | Needs::Folder => true,
    }
}
