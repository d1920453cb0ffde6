//! The kind `write_files`: its keys, and how a node is read.

use std::{collections::BTreeSet, sync::Arc};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{ErrorKind, Node},
};
use graphrun_sandbox::check_path;
use graphrun_workflow::{
    Expression, Prompt, Registry,
    kind::{
        CacheRefusal, Data, Entry, Keys, Kind, MakeContext, NodeReader, NodeSettings, Section,
        Yaml,
        values::{self, Either, FileName, FolderName, NamedMap, PromptPath, TemplateKeys},
    },
};
use schemars::JsonSchema;

use super::{REPORT, WriteFiles};

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
    to: Option<values::Expression>,
    /// Instead of `to`: one of `folders`, whose files are replaced.
    folder: Option<FolderName>,
    /// The files, each with its path and content.
    files: Option<values::Expression>,
    /// The names of files with the values that are written to them as JSON.
    documents: Option<NamedMap<FileName, values::Expression>>,
    /// The names of files with the templates that are rendered to them: each a path, or `{ text: … }`.
    texts: Option<NamedMap<FileName, Either<PromptPath, TemplateKeys>>>,
    /// The template that is rendered to `report.md`: a path, or `{ text: … }`.
    report: Option<Either<PromptPath, TemplateKeys>>,
}

/// A node that writes files.
#[derive(Clone, Debug)]
pub struct WriteFilesSettings {
    /// The destination.
    pub to: Destination,
    /// The files, each with its path and content.
    pub files: Option<Expression>,
    /// The names of files with the values that are written to them as JSON.
    pub documents: Vec<(String, Expression)>,
    /// The names of files with the templates that are rendered to them.
    pub texts: Vec<(String, Prompt)>,
    /// The template that is rendered to `report.md`.
    pub report: Option<Prompt>,
}

/// The destination of files.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A folder at or below the output folder of the run.
    Output(Box<Expression>),
    /// A folder of the run with a history.
    Folder(String),
}

impl Kind for WriteFilesKind {
    fn key(&self) -> &'static str {
        "write_files"
    }

    fn keys(&self) -> Keys {
        Keys::of::<WriteFilesKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let parts = reader.parts()?;
        let to = match (parts.get("folder"), parts.key("to")) {
            (Some(folder), None) => reader.run_folder(folder).map(Destination::Folder),
            (Some(_), Some(to)) => {
                let message = "`write_files` has both `folder` and `to`";
                reader.report().bad_value(to, message, "remove one of them");
                None
            }
            (None, _) => {
                let to = parts.require(reader.report(), "to", "write `to: output.dir`");
                to.and_then(|it| reader.output_folder(it))
                    .map(|it| Destination::Output(Box::new(it)))
            }
        };
        let files = parts.get("files").and_then(|it| reader.files(it));
        let mut names = BTreeSet::new();
        let mut documents = Vec::new();
        for Entry { key, value } in named_files(reader, &parts, "documents", &mut names) {
            let document = reader.expression(value);
            documents.extend(document.map(|it| (key.text.clone(), it)));
        }
        let mut texts = Vec::new();
        for Entry { key, value } in named_files(reader, &parts, "texts", &mut names) {
            texts.extend(read_text(reader, value, "texts").map(|it| (key.text.clone(), it)));
        }
        let report = parts.get("report").and_then(|report| {
            if let Some(key) = parts.key("report").filter(|_| names.contains(REPORT)) {
                let message = format!("`report` is written to `{REPORT}`, too");
                reader.report().bad_value(key, message, "remove one of them");
            }
            read_text(reader, report, "report")
        });
        Some(Arc::new(WriteFilesSettings { to: to?, files, documents, texts, report }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        let help = "omit it: files exist only if they are written";
        Some(CacheRefusal::of_kind(self, help))
    }
}

/// Returns the entries of a mapping from the names of files, and checks the names. No other mapping of the node has
/// one of them.
fn named_files<'a>(
    reader: &mut NodeReader<'a>,
    parts: &Section<'a>,
    key: &str,
    names: &mut BTreeSet<&'a str>,
) -> &'a [Entry] {
    let Some(yaml) = parts.get(key) else { return &[] };
    if !matches!(yaml.data, Data::Map(_)) {
        let wanted = "a mapping from names of files";
        reader.report().wrong_kind(yaml, &format!("`{key}`"), wanted);
    }
    for Entry { key, .. } in yaml.entries() {
        if let Err(error) = check_path(&key.text) {
            let message = format!("`{}` cannot be delivered: {error}", key.text);
            reader.report().bad_value(key, message, "write a name such as `review.json`");
        } else if !names.insert(&key.text) {
            let message = format!("`{}` is a document already", key.text);
            reader.report().bad_value(key, message, "choose another name for one of them");
        }
    }
    yaml.entries()
}

fn read_text(reader: &mut NodeReader<'_>, yaml: &Yaml, key: &str) -> Option<Prompt> {
    let prompt = reader.load_template(yaml, key)?;
    reader.check_prompt(&prompt);
    Some(reader.finish_prompt(prompt))
}

impl NodeSettings for WriteFilesSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(WriteFiles {
            definition: self.clone(),
            output_dir: ctx.services.output_dir.clone(),
            replace: ctx.services.replace,
        }))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(vec![match self.to {
            Destination::Output(_) => ErrorKind::Delivery,
            Destination::Folder(_) => ErrorKind::Folder,
        }])
    }

    fn needs_output_dir(&self) -> bool {
        matches!(self.to, Destination::Output(_))
    }

    fn delivered_names(&self) -> Vec<&str> {
        match &self.to {
            Destination::Output(to) if to.source().trim() == "output.dir" => {
                let documents = self.documents.iter().map(|(name, _)| name.as_str());
                let texts = self.texts.iter().map(|(name, _)| name.as_str());
                documents.chain(texts).chain(self.report.as_ref().map(|_| REPORT)).collect()
            }
            Destination::Output(_) | Destination::Folder(_) => Vec::new(),
        }
    }
}
