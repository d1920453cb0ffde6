//! `commit`: commits the changes of a folder of the run.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    event::Report,
    graph::{Command, Contract, ErrorKind, Node, NodeContext, NodeDescription, NodeError},
    id::ChannelName,
    state::{Type, Update},
};
use graphrun_folders::CommitRequest;
use graphrun_workflow::{
    Expression, ExpressionView, Registry,
    kind::{
        CacheRefusal, Keys, Kind, MakeContext, NodeReader, NodeSettings, Yaml,
        values::{self, Either, FieldName, FolderName, NamedMap, OneOrMany},
    },
};
use schemars::JsonSchema;
use serde_json::Value;

use super::{
    in_folder::{failure, open_folder, require_folder},
    outputs::read_outputs,
};

/// The kind `commit`.
#[derive(Debug)]
pub(crate) struct CommitKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct CommitKeys {
    /// Commits all changes of a folder to the branch of the run.
    commit: CommitParts,
    /// Which output goes to which field.
    writes: Option<Either<OneOrMany<FieldName>, NamedMap<FieldName, OutputName>>>,
}

/// The folder and the message of a commit.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct CommitParts {
    /// One of `folders`.
    folder: FolderName,
    /// The message, by an expression. The id of the run is added.
    message: values::Expression,
}

graphrun_workflow::value_types! {
    /// An output of a commit.
    OutputName = {"type": "string", "examples": ["id", "changed"]};
}

/// A node that commits.
#[derive(Clone, Debug)]
pub struct CommitNode {
    /// The folder.
    pub folder: String,
    /// The message.
    pub message: Expression,
    /// The fields with the output that each receives.
    pub writes: Vec<(ChannelName, CommitOutput)>,
}

/// An output of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutput {
    /// The hash of the last commit of the branch.
    Id,
    /// Whether the node made it; otherwise nothing had changed since the last commit of the run.
    Changed,
}

impl Kind for CommitKind {
    fn key(&self) -> &'static str {
        "commit"
    }

    fn keys(&self) -> Keys {
        Keys::of::<CommitKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let parts = reader.parts()?;
        let folder = require_folder(reader, &parts);
        let help = "write `message: task.title`, an expression";
        let message = parts.require(reader.report(), "message", help);
        let message = message.and_then(|it| reader.text_expression(it, "a message"));
        let known = [
            ("id", Type::String, CommitOutput::Id),
            ("changed", Type::Bool, CommitOutput::Changed),
        ];
        let writes = reader.get("writes");
        let writes = writes.map(|it| read_outputs(reader, it, "a commit", &known));
        let writes = writes.unwrap_or_default();
        Some(Arc::new(CommitNode { folder: folder?, message: message?, writes }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: each run has its own commits"))
    }
}

impl NodeSettings for CommitNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(vec![ErrorKind::Folder, ErrorKind::Secret])
    }

    fn detail(&self) -> Option<String> {
        Some(self.folder.clone())
    }
}

#[async_trait]
impl Node for CommitNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let message = self.message.evaluate(&ExpressionView::of(&ctx))?;
        let message = message.as_str().unwrap_or_default();
        let folder = open_folder(&ctx, &self.folder).await?;
        let task = ctx.idempotency_key();
        let request = CommitRequest { message, task: &task };
        let commit = folder.commit(request).await.map_err(|it| failure(&it))?;
        let verb = if commit.changed { "committed" } else { "nothing changed since" };
        ctx.report(Report::Note { message: format!("{verb} {}", commit.id) }).await;
        let mut update = Update::default();
        for (channel, output) in &self.writes {
            let value: Value = match output {
                CommitOutput::Id => commit.id.clone().into(),
                CommitOutput::Changed => commit.changed.into(),
            };
            update = update.write(channel.clone(), value);
        }
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        let writes = self.writes.iter().map(|(channel, _)| channel.clone()).collect();
        NodeDescription {
            kind: "commit",
            contract: Contract { reads: None, writes: Some(writes) },
            calls_max: Some(0),
            ..NodeDescription::default()
        }
    }
}
