//! A tool whose input and output are checked at each call, for every caller.

use std::{panic::AssertUnwindSafe, path::Path, sync::Arc};

use futures_util::FutureExt as _;
use graphrun_core::{
    diagnostic::Diagnostic,
    event::CONTENT_TARGET,
    state::{panic_text, schema_problem, validator_for},
};
use graphrun_guard::redact::redact;
use graphrun_workflow::{
    Approval,
    kind::{MakeContext, ToolResults},
    memory::Tiers,
    tool::{BuiltIn, CommandTool, DeclaredTool, Needs, Tool, ToolAction, ToolContext, ToolError},
};
use jsonschema::Validator;
use serde_json::Value;
use tracing::{Instrument, Level, field, info_span, trace};

use crate::declared::CallableTool;

/// The largest output of a tool, in bytes of JSON.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// The most problems of a value that are reported.
const PROBLEMS_MAX: usize = 5;
/// The most characters of each problem.
const PROBLEM_CHARACTERS_MAX: usize = 300;

/// A tool with its compiled schemas.
#[derive(Debug)]
pub(super) struct CheckedTool {
    pub(super) tool: Arc<dyn Tool>,
    /// Whether it is known to ask no model: a built-in tool or one of the workflow, and not one of the program.
    pub(super) asks_no_model: bool,
    /// How it uses files of the folder of its node.
    pub(super) file_use: FileUse,
    /// When a person is asked before a call.
    pub(super) approve: Approval,
    /// What the workflow declares about the tool; null for one that it does not declare.
    pub(super) fingerprint: Value,
    /// The results in place of its calls.
    results: Option<Arc<dyn ToolResults>>,
    input: Validator,
    output: Validator,
}

/// How a tool uses files of the folder of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileUse {
    /// It has no access to them, as far as graphrun can see.
    None,
    /// It reads them.
    Reads,
    /// It changes them.
    Changes,
}

impl FileUse {
    fn of_built_in(tool: BuiltIn) -> Self {
        match tool.needs {
            Needs::Files => Self::Reads,
            Needs::Folder => Self::Changes,
            Needs::Memory | Needs::WritableMemory => Self::None,
        }
    }

    /// A command gets a copy of the folder.
    fn of_declared(tool: &DeclaredTool) -> Self {
        match &tool.action {
            ToolAction::Command(CommandTool { folder: Some(_), .. }) => Self::Reads,
            ToolAction::Command(_) | ToolAction::Request(_) | ToolAction::Server(_) => Self::None,
        }
    }
}

/// The parts of a workflow that its tools are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToolSources<'a> {
    /// The folder that the built-in tools read.
    pub(super) root: &'a Path,
    /// The tiers of memory.
    pub(super) tiers: &'a Tiers,
    /// The tools that the workflow declares.
    pub(super) declared: &'a [Arc<DeclaredTool>],
}

impl CheckedTool {
    /// Finds the tool of a node.
    pub(super) fn find(
        ctx: &MakeContext<'_>,
        tool: &str,
        sources: ToolSources<'_>,
    ) -> Result<Self, Diagnostic> {
        let node = ctx.name;
        let ToolSources { root, tiers, declared } = sources;
        let declared = declared.iter().find(|it| it.signature.name == tool).cloned();
        let registered = ctx.registry.find_tool(tool);
        let is_built_in = declared.is_none() && registered.is_none();
        let built_in = BuiltIn::named(tool).filter(|_| is_built_in);
        let file_use = match &declared {
            Some(declared) => FileUse::of_declared(declared),
            None => built_in.map_or(FileUse::None, FileUse::of_built_in),
        };
        let asks_no_model = declared.is_some() || registered.is_none();
        let approve = declared.as_ref().map_or(Approval::Never, |it| it.approve);
        let fingerprint = declared.as_ref().map_or(Value::Null, |it| it.fingerprint());
        let found = declared
            .map(|declared| Arc::new(CallableTool::new(declared, ctx.services)) as Arc<dyn Tool>)
            .or(registered)
            .or_else(|| built_in.map(|it| it.make(root, tiers)))
            .ok_or_else(|| {
                let message = format!("node `{node}` names `{tool}`, which is not registered");
                Diagnostic::error("GR110", message)
                    .at(Some(ctx.span.clone()), "no such tool in Rust")
                    .help("register it with `Registry::tool`, in the program that loads the file")
            })?;
        let results = ctx.services.tool_results.clone();
        let results = results.filter(|it| !is_built_in || !it.keeps_built_in());
        let checked = Self::new(found, asks_no_model);
        let checked = checked.map(|it| Self { file_use, approve, fingerprint, results, ..it });
        checked.map_err(|reason| {
            let message = format!("the tool `{tool}` of node `{node}` cannot be called: {reason}");
            Diagnostic::error("GR114", message)
                .at(Some(ctx.span.clone()), "called here")
                .help("correct the schema, in the program that registers the tool")
        })
    }

    /// Fails if one of the tool's schemas is invalid.
    fn new(tool: Arc<dyn Tool>, asks_no_model: bool) -> Result<Self, String> {
        let compile = |what: &str, schema: &Value| {
            validator_for(schema).map_err(|error| format!("the schema of its {what}: {error}"))
        };
        let input = compile("input", tool.input_schema())?;
        let output = compile("output", tool.output_schema())?;
        let approve = Approval::Never;
        let fingerprint = Value::Null;
        let file_use = FileUse::None;
        Ok(Self {
            tool,
            asks_no_model,
            file_use,
            approve,
            fingerprint,
            results: None,
            input,
            output,
        })
    }

    /// Calls the tool, if the input fits.
    pub(super) async fn call(
        &self,
        input: Value,
        tool_ctx: &ToolContext,
    ) -> Result<Value, ToolError> {
        let span = info_span!("tool", tool = self.tool.name(), error = field::Empty);
        let has_reader = tracing::enabled!(target: CONTENT_TARGET, Level::TRACE);
        let arguments = has_reader.then(|| input.to_string());
        let called = self.call_within(input, tool_ctx).instrument(span.clone()).await;
        if called.is_err() {
            span.record("error", true);
        }
        if let Some(arguments) = arguments {
            let result = called.as_ref().ok().map(field::display);
            span.in_scope(|| trace!(target: CONTENT_TARGET, arguments, result, "call"));
        }
        called
    }

    /// Fails if the input does not fit the schema of the tool.
    pub(super) fn check_input(&self, input: &Value) -> Result<(), ToolError> {
        check("the input", &self.input, input)
    }

    async fn call_within(&self, input: Value, tool_ctx: &ToolContext) -> Result<Value, ToolError> {
        self.check_input(&input)?;
        let given = |it: &Arc<dyn ToolResults>| it.result(&*self.tool, &input, tool_ctx);
        let given = self.results.as_ref().and_then(given);
        // A tool that panics ends its call, and not the conversation of a model with all its other calls.
        let called = AssertUnwindSafe(async {
            match given {
                Some(result) => result,
                None => self.tool.call(input, tool_ctx).await,
            }
        });
        let called = called.catch_unwind();
        let output = called.await.map_err(|panic| {
            ToolError::permanent(format!("it panicked: {}", panic_text(panic.as_ref())))
        })??;
        let bytes = output.to_string().len();
        if bytes > OUTPUT_BYTES_MAX {
            let message = format!("it gave {bytes} bytes, more than {OUTPUT_BYTES_MAX}");
            return Err(ToolError::permanent(message));
        }
        check("the output", &self.output, &output)?;
        Ok(output)
    }
}

fn check(what: &str, validator: &Validator, value: &Value) -> Result<(), ToolError> {
    let problem = |error: jsonschema::ValidationError<'_>| {
        let problem = schema_problem(&error);
        // Keys are removed before truncation, because a part of a key would not be recognised.
        redact(&problem).chars().take(PROBLEM_CHARACTERS_MAX).collect()
    };
    let problems: Vec<String> =
        validator.iter_errors(value).take(PROBLEMS_MAX).map(problem).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let problems = problems.join("; ");
    Err(ToolError::permanent(format!("{what} does not fit its schema: {problems}")))
}
