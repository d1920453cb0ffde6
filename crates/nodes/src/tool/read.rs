//! The kind `tool`: its keys, and how a node is read, with arguments that fit its input and an output
//! that fits the fields.

use std::{path::PathBuf, sync::Arc};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{ErrorKind, Node},
    id::ChannelName,
    state::Type,
};
use graphrun_workflow::{
    Expression, Registry,
    kind::{
        CacheRefusal, Data, EmbeddingUse, Entry, Keys, Kind, MakeContext, NodeReader, NodeSettings,
        SpannedText, Yaml, suggestion,
        values::{
            self, ArgumentName, Either, FieldName, FolderName, NamedMap, OneOrMany, ToolName,
        },
    },
    memory::Tiers,
    tool::{BuiltIn, DeclaredTool, ToolSignature},
};
use schemars::JsonSchema;
use serde_json::Value;

use super::{Call, constants::check_constant};
use crate::{
    checked::{CheckedTool, ToolSources},
    in_folder::{check_writing_tools, read_folder},
    memory::embeddings_of,
};

/// The kind `tool`.
#[derive(Debug)]
pub(crate) struct ToolKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ToolKeys {
    /// Calls a tool: a built-in one, one of `tools`, or one that a Rust program registers.
    tool: ToolName,
    /// Its arguments, by expressions.
    args: Option<NamedMap<ArgumentName, values::Expression>>,
    /// One of `folders`, in which a built-in tool works.
    folder: Option<FolderName>,
    /// A field for the whole output, or which part of it goes to which field.
    writes: Option<Either<OneOrMany<FieldName>, NamedMap<FieldName, OutputPath>>>,
}

graphrun_workflow::value_types! {
    /// A path into the output of a tool.
    OutputPath = {"type": "string"};
}

/// A node that calls a tool.
#[derive(Clone, Debug)]
pub struct ToolSettings {
    /// The name of the tool.
    pub tool: String,
    /// The tool, if the workflow declares it.
    pub declared: Vec<Arc<DeclaredTool>>,
    /// The folder that the built-in tools can read.
    pub root: PathBuf,
    /// The folder of the run in which a built-in tool works instead.
    pub folder: Option<String>,
    /// The tiers of memory that a built-in tool can use.
    pub tiers: Arc<Tiers>,
    /// The arguments by name.
    pub args: Vec<(String, Expression)>,
    /// The fields with the path of the output that each receives. An empty path is the whole
    /// output.
    pub writes: Vec<(ChannelName, Vec<String>)>,
}

impl Kind for ToolKind {
    fn key(&self) -> &'static str {
        "tool"
    }

    fn keys(&self) -> Keys {
        Keys::of::<ToolKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let value = reader.value();
        let word = reader.report().word(value, "`tool`")?;
        let tool = reader.tool(&word)?;
        let mut args = Vec::new();
        if let Some(yaml) = reader.get("args") {
            if !matches!(yaml.data, Data::Map(_)) {
                let wanted = "a mapping from names to expressions";
                reader.report().wrong_kind(yaml, "`args`", wanted);
            }
            for argument in yaml.entries() {
                let Entry { key, value } = argument;
                let input = Type::of_schema(&tool.input);
                // A tool need not accept null for an argument that may be omitted.
                let expression = match input.field(&key.text).map(Type::required) {
                    Some(expected) => reader.expression_for(value, expected),
                    None => reader.expression(value),
                };
                if let Some(expression) = &expression {
                    reader.refuse_named_secret(&key.text, &value.range, expression);
                }
                check_argument(reader, &tool, argument, expression.as_ref());
                args.extend(expression.map(|it| (key.text.clone(), it)));
            }
        }
        let given = reader.get("args").map(Yaml::entries).unwrap_or_default();
        check_missing(reader, &tool, &word, given);
        let writes = reader.get("writes").map(|it| read_tool_writes(reader, &tool, it));
        let root = reader.tools_root().to_owned();
        let folder = read_folder(reader);
        check_writing_tools(reader, std::slice::from_ref(&word.text));
        let writes = writes.unwrap_or_default();
        let declared = reader.declared_tools(std::slice::from_ref(&word.text));
        let tiers = reader.tiers();
        Some(Arc::new(ToolSettings {
            tool: word.text,
            declared,
            root,
            folder,
            tiers,
            args,
            writes,
        }))
    }

    fn refuses_cache(&self, value: &Yaml, registry: &Registry) -> Option<CacheRefusal> {
        CacheRefusal::of_built_in_tool(value.text()?, registry)
    }
}

impl NodeSettings for ToolSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        let root = self.root.as_path();
        let tiers = &*self.tiers;
        let declared = &self.declared[..];
        let tool = CheckedTool::find(ctx, &self.tool, ToolSources { root, tiers, declared })?;
        let services = ctx.services.clone();
        Ok(Arc::new(Call { definition: self.clone(), tool, services }))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(vec![
            ErrorKind::Tool,
            ErrorKind::Declined,
            ErrorKind::Folder,
            ErrorKind::Sandbox,
            ErrorKind::Recording,
        ])
    }

    fn needs_memory(&self) -> bool {
        BuiltIn::named(&self.tool).is_some_and(|it| it.needs.is_memory())
    }

    fn embeddings(&self) -> Option<EmbeddingUse<'_>> {
        embeddings_of([self.tool.as_str()], &self.tiers)
    }

    fn declared_tools(&self) -> &[Arc<DeclaredTool>] {
        &self.declared
    }
}

fn check_argument(
    reader: &mut NodeReader<'_>,
    tool: &ToolSignature,
    argument: &Entry,
    expression: Option<&Expression>,
) {
    let Entry { key, value } = argument;
    let input = Type::of_schema(&tool.input);
    let Type::Record(record) = &input else { return };
    let Some(field) = record.fields.iter().find(|it| it.name == key.text) else {
        // The schema may allow arguments that it does not list.
        if tool.input.get("additionalProperties") == Some(&Value::Bool(false)) {
            let message = format!("`{}` takes no argument `{}`", tool.name, key.text);
            let span = reader.report().span(&key.range);
            let help = suggestion(&key.text, record.fields.iter().map(|it| it.name.as_str()));
            let diagnostic = Diagnostic::error("GR114", message).at(span, "no such argument");
            reader.report().push(Diagnostic { help, ..diagnostic });
        }
        return;
    };
    if let Some(expression) = expression {
        let what = format!("the argument `{}`", key.text);
        reader.expect_type(value, expression.ty(), &field.ty, &what);
        if expression.ty().fits(&field.ty)
            && let Some(constant) = expression.constant()
        {
            check_constant(reader, tool, argument, &constant);
        }
    }
}

fn check_missing(
    reader: &mut NodeReader<'_>,
    tool: &ToolSignature,
    word: &SpannedText,
    given: &[Entry],
) {
    let required = tool.input.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let missing: Vec<String> = required
        .filter(|name| given.iter().all(|it| it.key.text != *name))
        .map(|it| format!("`{it}`"))
        .collect();
    if !missing.is_empty() {
        let message = format!("`{}` needs {}", tool.name, missing.join(" and "));
        let span = reader.report().span(&word.range);
        let diagnostic = Diagnostic::error("GR114", message).at(span, "an argument is missing");
        reader.report().push(diagnostic.help("write `args: { NAME: EXPRESSION }`"));
    }
}

/// Reads a field for the whole output, or fields with paths into it.
fn read_tool_writes(
    reader: &mut NodeReader<'_>,
    tool: &ToolSignature,
    yaml: &Yaml,
) -> Vec<(ChannelName, Vec<String>)> {
    let output = Type::of_schema(&tool.output);
    let mut writes = Vec::new();
    if !matches!(yaml.data, Data::Map(_)) {
        let Some(field) = reader.report().word(yaml, "`writes`") else { return writes };
        let channel = reader.channel(&field);
        if let Some(channel) = channel {
            reader.expect_output(&field, &channel, "the output of the tool", &output);
            writes.push((channel, Vec::new()));
        }
        return writes;
    }
    for Entry { key, value } in yaml.entries() {
        let channel = reader.channel(key);
        let Some(path) = reader.report().word(value, "a part of the output") else { continue };
        let parts: Vec<String> = path.text.split('.').map(str::to_owned).collect();
        let Some(ty) = part_of(&output, &parts) else {
            let message = format!("the output of `{}` has no `{}`", tool.name, path.text);
            let span = reader.report().span(&path.range);
            let known = match output.required() {
                Type::Record(record) => record.fields.iter().map(|it| it.name.as_str()).collect(),
                _ => Vec::new(),
            };
            let help = suggestion(&path.text, known);
            let diagnostic = Diagnostic::error("GR021", message).at(span, "no such field");
            reader.report().push(Diagnostic { help, ..diagnostic });
            continue;
        };
        if let Some(channel) = channel {
            reader.expect_output(key, &channel, &format!("`{}`", path.text), &ty);
            writes.push((channel, parts));
        }
    }
    writes
}

/// Returns the type at a path of the output. A part of an optional value is optional too.
pub(super) fn part_of(output: &Type, path: &[String]) -> Option<Type> {
    let mut ty = output.clone();
    for name in path {
        if *ty.required() == Type::Any {
            return Some(Type::Any);
        }
        let is_optional = matches!(ty, Type::Optional(_) | Type::Map(_));
        let part = ty.field(name)?.clone();
        ty = if is_optional { part.optional() } else { part };
    }
    Some(ty)
}
