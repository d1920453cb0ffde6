//! `merge`: merges the commits of a run into a branch of the user.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    event::Report,
    graph::{Command, Contract, Node, NodeContext, NodeDescription, NodeError},
    id::ChannelName,
    state::{Type, Update},
};
use graphrun_folders::CommitRequest;
use graphrun_workflow::{
    Expression, ExpressionView, Registry,
    kind::{
        CacheRefusal, Keys, Kind, MakeContext, NodeReader, NodeSettings, Yaml,
        values::{self, Either, FieldName, FolderName, Named, OneOrMany},
    },
};
use schemars::JsonSchema;

use super::in_folder::{failure, open_folder, read_outputs, read_text, require_folder};

/// The kind `merge`.
#[derive(Debug)]
pub(crate) struct MergeKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct MergeKeys {
    /// Merges the commits of a folder into a branch that is checked out nowhere.
    merge: MergeParts,
    /// Which output goes to which field.
    writes: Option<Either<OneOrMany<FieldName>, Named<FieldName, OutputName>>>,
}

/// The folder and the branch.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct MergeParts {
    /// One of `folders`.
    folder: FolderName,
    /// The branch, by an expression, as in `'"main"'`.
    into: values::Expression,
    /// The message of a merge commit, by an expression.
    message: Option<values::Expression>,
}

graphrun_workflow::value_types! {
    /// An output of a merge.
    OutputName = {"type": "string", "examples": ["id"]};
}

/// A node that merges.
#[derive(Clone, Debug)]
pub struct MergeNode {
    /// The folder.
    pub folder: String,
    /// The branch that receives the commits.
    pub into: Expression,
    /// The message of a merge commit.
    pub message: Option<Expression>,
    /// The fields that receive the hash of the branch's new commit.
    pub writes: Vec<ChannelName>,
}

impl Kind for MergeKind {
    fn key(&self) -> &'static str {
        "merge"
    }

    fn keys(&self) -> Keys {
        Keys::of::<MergeKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let parts = reader.parts()?;
        let folder = require_folder(reader, &parts);
        let help = "name the branch, as in `into: '\"main\"'` or `into: target`";
        let into = parts.require(reader.report(), "into", help);
        let into = into.and_then(|it| read_text(reader, it, "a branch"));
        let message = parts.get("message").map(|it| read_text(reader, it, "a message"));
        let known = [("id", Type::String, ())];
        let writes = reader.get("writes");
        let writes = writes.map(|it| read_outputs(reader, it, "a merge", &known));
        let writes = writes.into_iter().flatten().map(|(channel, ())| channel).collect();
        let message = match message {
            None => None,
            Some(message) => Some(message?),
        };
        Some(Arc::new(MergeNode { folder: folder?, into: into?, message, writes }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: each run has its own commits"))
    }
}

impl NodeSettings for MergeNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn detail(&self) -> Option<String> {
        Some(self.folder.clone())
    }
}

#[async_trait]
impl Node for MergeNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let view = ExpressionView::of(&ctx);
        let into = self.into.evaluate(&view)?;
        let into = into.as_str().unwrap_or_default();
        let message = self.message.as_ref().map(|it| it.evaluate(&view)).transpose()?;
        let default = format!("Merge a run into {into}");
        let message = message.as_ref().and_then(|it| it.as_str()).unwrap_or(&default);
        let (folder, task) = (open_folder(&ctx, &self.folder).await?, ctx.idempotency_key());
        let request = CommitRequest { message, task: &task };
        let id = folder.merge(into, request).await.map_err(|it| failure(&it))?;
        ctx.report(Report::Note { message: format!("`{into}` is at {id}") }).await;
        let written = self.writes.iter();
        let update = written.fold(Update::default(), |it, to| it.write(to.clone(), id.clone()));
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "merge",
            contract: Contract { reads: None, writes: Some(self.writes.clone()) },
            calls_max: Some(0),
            ..NodeDescription::default()
        }
    }
}
