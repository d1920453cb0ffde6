//! `diff`: writes the changes of a folder of the run as a patch.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{Command, Contract, ErrorKind, Node, NodeContext, NodeDescription, NodeError},
    id::ChannelName,
    state::{Type, Update},
};
use graphrun_folders::Against;
use graphrun_workflow::{
    Registry,
    kind::{
        CacheRefusal, Keys, Kind, MakeContext, NodeReader, NodeSettings, Yaml, suggestion,
        values::{FieldName, FolderName},
    },
};
use schemars::JsonSchema;

use super::in_folder::{failure, open_folder, require_folder};

/// The kind `diff`.
#[derive(Debug)]
pub(crate) struct DiffKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct DiffKeys {
    /// Writes the changes of a folder as a patch of at most 256 KiB.
    diff: DiffParts,
    /// The field that receives the patch.
    writes: FieldName,
}

/// The folder, and the older side of the patch.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct DiffParts {
    /// One of `folders`.
    folder: FolderName,
    /// `base`, all changes of the run, or `last_commit`, the changes since its last commit. Default: `base`.
    against: Option<AgainstName>,
}

graphrun_workflow::value_types! {
    /// The older side of a patch.
    AgainstName = {"enum": (Against::ALL.map(Against::as_str))};
}

/// A node that writes a patch.
#[derive(Clone, Debug)]
pub struct DiffNode {
    /// The folder.
    pub folder: String,
    /// The older side.
    pub against: Against,
    /// The field that receives the patch.
    pub writes: ChannelName,
}

impl Kind for DiffKind {
    fn key(&self) -> &'static str {
        "diff"
    }

    fn keys(&self) -> Keys {
        Keys::of::<DiffKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let parts = reader.parts()?;
        let folder = require_folder(reader, &parts);
        let against = match parts.get("against") {
            None => Some(Against::Base),
            Some(yaml) => read_against(reader, yaml),
        };
        let writes = reader.require("writes", "name the field that receives the patch");
        let writes = writes.and_then(|yaml| {
            let word = reader.report().word(yaml, "`writes`")?;
            let channel = reader.channel(&word)?;
            reader.expect_update(yaml, &channel, &Type::String);
            Some(channel)
        });
        Some(Arc::new(DiffNode { folder: folder?, against: against?, writes: writes? }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: the files of the folder change"))
    }
}

fn read_against(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Option<Against> {
    let word = reader.report().word(yaml, "`against`")?;
    let found = Against::ALL.into_iter().find(|it| it.as_str() == word.text);
    if found.is_none() {
        let help = suggestion(&word.text, Against::ALL.map(Against::as_str));
        let message = format!("a folder cannot be compared with `{}`", word.text);
        reader.report().bad_value(&word, message, &help.unwrap_or_default());
    }
    found
}

impl NodeSettings for DiffNode {
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
impl Node for DiffNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let folder = open_folder(&ctx, &self.folder).await?;
        let patch = folder.diff(self.against).await.map_err(|it| failure(&it))?;
        Ok(Update::default().write(self.writes.clone(), patch).into())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "diff",
            contract: Contract { reads: None, writes: Some(vec![self.writes.clone()]) },
            calls_max: Some(0),
            ..NodeDescription::default()
        }
    }
}
