//! `merge`: merges the commits of a run into a branch of the user, or those of its tasks into the branch of the run.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    event::Report,
    graph::{Command, Contract, ErrorKind, Node, NodeContext, NodeDescription, NodeError},
    id::ChannelName,
    state::{Type, Update},
};
use graphrun_folders::{CommitRequest, ExclusiveFolder, FolderError, MergeConflict};
use graphrun_workflow::{
    Expression, ExpressionView, Registry,
    kind::{
        CacheRefusal, Keys, Kind, MakeContext, NodeReader, NodeSettings, Section, Yaml,
        values::{self, Either, FieldName, FolderName, NamedMap, OneOrMany},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    in_folder::{failure, open_folder, require_folder},
    outputs::read_outputs,
};

/// The kind `merge`.
#[derive(Debug)]
pub(crate) struct MergeKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct MergeKeys {
    /// Merges the commits of a folder into a branch that is checked out nowhere, or commits of nested runs into the folder.
    merge: MergeParts,
    /// Which output goes to which field.
    writes: Option<Either<OneOrMany<FieldName>, NamedMap<FieldName, OutputName>>>,
}

/// The folder, and the branch or the commits.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct MergeParts {
    /// One of `folders`.
    folder: FolderName,
    /// The branch that receives the commits of the folder, by an expression, as in `'"main"'`.
    into: Option<values::Expression>,
    /// The commits that the folder receives, by an expression of a list of hashes. They are merged in this order.
    from: Option<values::Expression>,
    /// The message of a merge commit, by an expression.
    message: Option<values::Expression>,
}

graphrun_workflow::value_types! {
    /// An output of a merge.
    OutputName = {"type": "string", "examples": ["id", "conflicts"]};
}

/// A node that merges.
#[derive(Clone, Debug)]
pub struct MergeNode {
    /// The folder.
    pub folder: String,
    /// The commits, and their target.
    pub side: MergeSide,
    /// The message of a merge commit.
    pub message: Option<Expression>,
    /// The fields with the output that each receives.
    pub writes: Vec<(ChannelName, MergeOutput)>,
}

/// The direction of a merge.
#[derive(Clone, Debug)]
pub enum MergeSide {
    /// The commits of the folder, into this branch of the user.
    Into(Expression),
    /// These commits, into the folder.
    From(Expression),
}

/// An output of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOutput {
    /// The hash of the last commit of the branch.
    Id,
    /// The commits that were left out because they conflict. Without this output, a conflict is a failure.
    Conflicts,
}

/// A commit in conflict, in the output.
#[derive(Deserialize, JsonSchema, Serialize)]
struct LeftOut {
    commit: String,
    files: Vec<String>,
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
        let side = read_side(reader, &parts);
        let message = parts.get("message").map(|it| reader.text_expression(it, "a message"));
        let conflicts = Type::of::<Vec<LeftOut>>();
        let known = [
            ("id", Type::String, MergeOutput::Id),
            ("conflicts", conflicts, MergeOutput::Conflicts),
        ];
        // Nothing is left out of a merge into a branch of the user.
        let known = if matches!(side, Some(MergeSide::Into(_))) { &known[..1] } else { &known[..] };
        let writes = reader.get("writes");
        let writes = writes.map(|it| read_outputs(reader, it, "a merge", known));
        let message = match message {
            None => None,
            Some(message) => Some(message?),
        };
        let writes = writes.unwrap_or_default();
        Some(Arc::new(MergeNode { folder: folder?, side: side?, message, writes }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: each run has its own commits"))
    }
}

/// Reads `into` or `from`.
fn read_side(reader: &mut NodeReader<'_>, parts: &Section<'_>) -> Option<MergeSide> {
    match (parts.get("into"), parts.get("from")) {
        (Some(yaml), None) => {
            let branch = reader.text_expression(yaml, "a branch")?;
            check_branch(reader, yaml, &branch);
            Some(MergeSide::Into(branch))
        }
        (None, Some(yaml)) => {
            let commits = reader.expression(yaml)?;
            let texts = Type::List(Box::new(Type::String));
            reader.expect_type(yaml, commits.ty(), &texts, "`from`");
            Some(MergeSide::From(commits))
        }
        (found, _) => {
            let (at, message) = match found {
                None => (reader.value(), "a merge needs a branch or commits"),
                Some(yaml) => (yaml, "a merge has one direction"),
            };
            let span = reader.report().span(&at.range);
            let diagnostic = Diagnostic::error("GR006", message).at(span, "`into` or `from`");
            let help = "write `into: target`, a branch of the repository, or `from: commits`, a list of hashes";
            reader.report().push(diagnostic.help(help));
            None
        }
    }
}

/// Reports a constant that cannot be the name of a branch. Whether the repository has the branch is known in a run.
fn check_branch(reader: &mut NodeReader<'_>, yaml: &Yaml, branch: &Expression) {
    let Some(name) = branch.constant() else { return };
    let Some(name) = name.as_str().filter(|it| !is_branch_name(it)) else { return };
    let span = reader.report().span(&yaml.range);
    let message = format!("{name:?} is not the name of a branch");
    let diagnostic = Diagnostic::error("GR009", message).at(span, "no branch can have it");
    reader.report().push(diagnostic.help("write a name as git allows it, such as `'\"main\"'`"));
}

/// Returns whether git allows a branch of this name (`git check-ref-format`).
fn is_branch_name(name: &str) -> bool {
    let is_refused = |it: char| it.is_ascii_control() || " ~^:?*[\\".contains(it);
    let is_part = |name: &str| {
        !name.is_empty() && !name.starts_with('.') && name.strip_suffix(".lock").is_none()
    };
    !name.contains(is_refused)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.starts_with('-')
        && !name.ends_with('.')
        && !["@", "HEAD"].contains(&name)
        && name.split('/').all(is_part)
}

impl NodeSettings for MergeNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(vec![ErrorKind::Folder, ErrorKind::Conflict, ErrorKind::Secret])
    }

    fn detail(&self) -> Option<String> {
        Some(self.folder.clone())
    }
}

#[async_trait]
impl Node for MergeNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let view = ExpressionView::of(&ctx);
        let message = self.message.as_ref().map(|it| it.evaluate(&view)).transpose()?;
        let message = message.as_ref().and_then(|it| it.as_str());
        let folder = open_folder(&ctx, &self.folder).await?;
        let task = ctx.idempotency_key();
        let (id, conflicts) = match &self.side {
            MergeSide::Into(branch) => {
                let branch = branch.evaluate(&view)?;
                let branch = branch.as_str().unwrap_or_default();
                let message =
                    message.map_or_else(|| format!("Merge a run into {branch}"), str::to_owned);
                let request = CommitRequest { message: &message, task: &task };
                let id = folder.merge(branch, request).await.map_err(|it| failure(&it))?;
                ctx.report(Report::Note { message: format!("`{branch}` is at {id}") }).await;
                (id, Vec::new())
            }
            MergeSide::From(commits) => {
                let commits = commits.evaluate(&view)?;
                let commits: Vec<String> =
                    commits.as_array().into_iter().flatten().filter_map(text).collect();
                let request = CommitRequest {
                    message: message.unwrap_or("Merge the work of a task"),
                    task: &task,
                };
                self.merge_commits(&ctx, &folder, &commits, request).await?
            }
        };
        let mut update = Update::default();
        for (channel, output) in &self.writes {
            let value = match output {
                MergeOutput::Id => Value::from(id.as_str()),
                MergeOutput::Conflicts => json!(conflicts),
            };
            update = update.write(channel.clone(), value);
        }
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        let writes = self.writes.iter().map(|(channel, _)| channel.clone());
        NodeDescription {
            kind: "merge",
            contract: Contract { reads: None, writes: Some(writes.collect()) },
            calls_max: Some(0),
            ..NodeDescription::default()
        }
    }
}

impl MergeNode {
    /// Merges commits into the folder. A conflict is a failure, before anything is merged, unless a field receives it.
    async fn merge_commits(
        &self,
        ctx: &NodeContext,
        folder: &ExclusiveFolder,
        commits: &[String],
        request: CommitRequest<'_>,
    ) -> Result<(String, Vec<LeftOut>), NodeError> {
        let merge = folder.prepare_merge(commits, request).await.map_err(|it| failure(&it))?;
        let takes_conflicts = self.writes.iter().any(|(_, it)| *it == MergeOutput::Conflicts);
        if let Some(MergeConflict { commit, files }) = merge.conflicts.first()
            && !takes_conflicts
        {
            let error = FolderError::Conflict {
                branch: commit.clone(),
                into: self.folder.clone(),
                files: files.clone(),
            };
            return Err(failure(&error));
        }
        folder.merge_commits(&merge).await.map_err(|it| failure(&it))?;
        let merged = commits.len() - merge.conflicts.len();
        let left_out = merge.conflicts.len();
        let message = format!("merged {merged} commits, {left_out} in conflict: {}", merge.id);
        ctx.report(Report::Note { message }).await;
        let conflicts = merge.conflicts.into_iter();
        let conflicts = conflicts.map(|MergeConflict { commit, files }| LeftOut { commit, files });
        Ok((merge.id, conflicts.collect()))
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::is_branch_name;

    #[test]
    fn names_that_git_refuses_are_no_branches() {
        for name in ["main", "auto/fix-1", "release/2.0", "größe", "a.b", "-x/y", "a@b"] {
            assert_eq!(is_branch_name(name), name != "-x/y", "{name}");
        }
        let refused = ["", "a b", "a..b", "/a", "a/", "a//b", ".a", "a/.b", "a.lock", "a.", "a~1"];
        for name in refused.into_iter().chain(["a^", "a:b", "a?", "a*", "a[", "a\\b", "a@{b", "@"])
        {
            assert!(!is_branch_name(name), "{name:?}");
        }
    }
}
