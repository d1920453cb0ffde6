//! The kind `write_files`: its keys, and how a node is read.

use std::sync::Arc;

use graphrun_core::{diagnostic::Diagnostic, graph::Node};
use graphrun_sandbox::check_path;
use graphrun_workflow::{
    Expression, Prompt,
    kind::{
        CacheRefusal, Data, Entry, Keys, Kind, MakeContext, NodeReader, NodeSettings, Yaml,
        values::{self, FileName, Named, PromptPath},
    },
};
use schemars::JsonSchema;

use super::WriteFiles;

/// The kind `write_files`.
#[derive(Debug)]
pub(crate) struct WriteFilesKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct WriteFilesKeys {
    /// Writes files to a folder.
    write_files: WriteFilesParts,
}

/// Files and the folder they are written to.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct WriteFilesParts {
    /// The folder: `output.dir`.
    to: values::Expression,
    /// The files, each with its path and content.
    files: Option<values::Expression>,
    /// The names of files with the values that are written to them as JSON.
    documents: Option<Named<FileName, values::Expression>>,
    /// The path of a prompt that is rendered to `report.md`.
    report: Option<PromptPath>,
}

/// A node that writes files.
#[derive(Clone, Debug)]
pub struct WriteFilesNode {
    /// The folder.
    pub to: Expression,
    /// The files, each with its path and content.
    pub files: Option<Expression>,
    /// The names of files with the values that are written to them as JSON.
    pub documents: Vec<(String, Expression)>,
    /// The template that is rendered to `report.md`.
    pub report: Option<Prompt>,
}

impl Kind for WriteFilesKind {
    fn key(&self) -> &'static str {
        "write_files"
    }

    fn keys(&self) -> Keys {
        Keys::of::<WriteFilesKeys>()
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let parts = reader.parts()?;
        let to = parts.require(reader.report(), "to", "write `to: output.dir`");
        let to = to.and_then(|it| reader.output_folder(it));
        let files = parts.get("files").and_then(|it| reader.files(it));
        let mut documents = Vec::new();
        if let Some(yaml) = parts.get("documents") {
            if !matches!(yaml.data, Data::Map(_)) {
                let wanted = "a mapping from names of files to expressions";
                reader.report().wrong_kind(yaml, "`documents`", wanted);
            }
            for Entry { key, value } in yaml.entries() {
                if let Err(error) = check_path(&key.text) {
                    let message = format!("`{}` cannot be delivered: {error}", key.text);
                    reader.report().bad_value(key, message, "write a name such as `review.json`");
                }
                let document = reader.expression(value);
                documents.extend(document.map(|it| (key.text.clone(), it)));
            }
        }
        let report = parts.get("report").and_then(|it| reader.load_prompt(it));
        if let Some(report) = &report {
            reader.check_prompt(report);
        }
        let report = report.map(|it| reader.finish_prompt(it));
        Some(Arc::new(WriteFilesNode { to: to?, files, documents, report }))
    }

    fn refuses_cache(&self, _: &Yaml) -> Option<CacheRefusal> {
        let help = "omit it: files exist only if they are written";
        Some(CacheRefusal::of_kind(self, help))
    }
}

impl NodeSettings for WriteFilesNode {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(WriteFiles {
            definition: self.clone(),
            output_dir: ctx.services.output_dir.clone(),
            replace: ctx.services.replace,
        }))
    }

    fn needs_output_dir(&self) -> bool {
        true
    }
}
