//! `discard`: resets a folder of the run to its last commit.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Command, Contract, ErrorKind, Node, NodeContext, NodeDescription, NodeError},
};
use graphrun_workflow::{
    Registry,
    kind::{
        CacheRefusal, Keys, Kind, MakeContext, NodeReader, NodeSettings, Yaml, values::FolderName,
    },
};
use schemars::JsonSchema;

use super::in_folder::{failure, open_folder};

/// The kind `discard`.
#[derive(Debug)]
pub(crate) struct DiscardKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct DiscardKeys {
    /// Resets one of `folders` to its last commit: changed files are restored, and new files are removed.
    discard: FolderName,
}

/// A node that discards changes.
#[derive(Clone, Debug)]
pub struct DiscardNode {
    /// The folder.
    pub folder: String,
}

impl Kind for DiscardKind {
    fn key(&self) -> &'static str {
        "discard"
    }

    fn keys(&self) -> Keys {
        Keys::of::<DiscardKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let folder = reader.run_folder(reader.value())?;
        Some(Arc::new(DiscardNode { folder }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: it only changes files"))
    }
}

impl NodeSettings for DiscardNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(vec![ErrorKind::Folder])
    }

    fn detail(&self) -> Option<String> {
        Some(self.folder.clone())
    }
}

#[async_trait]
impl Node for DiscardNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let folder = open_folder(&ctx, &self.folder).await?;
        folder.discard().await.map_err(|it| failure(&it))?;
        Ok(Command::default())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "discard",
            contract: Contract { reads: None, writes: Some(Vec::new()) },
            calls_max: Some(0),
            ..NodeDescription::default()
        }
    }
}
