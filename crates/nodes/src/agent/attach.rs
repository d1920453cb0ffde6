//! `attach`: files that a model is sent beside its prompt, from the folder of the workflow or from the state.

use std::path::Path;

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{NodeContext, NodeError},
    state::Type,
};
use graphrun_guard::data_limit::DataLimit;
use graphrun_models::Attachment;
use graphrun_workflow::{
    Expression, ExpressionView,
    kind::{Data, NodeReader, SpannedText, Yaml, file_type},
};
use serde_json::{Value, json};

/// A file, or a value with files.
#[derive(Clone, Debug)]
pub enum AttachedFile {
    /// A file in the folder of the workflow.
    Fixed(Attachment),
    /// An expression for a file, a list of files, or nothing.
    Value(Box<Expression>),
}

/// Reads the value of `attach`.
pub(super) fn read(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Option<Vec<AttachedFile>> {
    let entries = match &yaml.data {
        Data::List(entries) => entries.as_slice(),
        _ => std::slice::from_ref(yaml),
    };
    // All mistakes are reported, not only the first.
    let read: Vec<Option<AttachedFile>> =
        entries.iter().map(|it| AttachedFile::read(reader, it)).collect();
    read.into_iter().collect()
}

impl AttachedFile {
    fn read(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Option<Self> {
        let word = reader.report().word(yaml, "an entry of `attach`")?;
        if is_path(reader, &word.text) {
            return read_fixed(reader, &word).map(Self::Fixed);
        }
        let expected = file_type().optional();
        let value = reader.expression_for(yaml, &expected)?;
        let files = Type::List(Box::new(file_type())).optional();
        if *value.ty().required() == Type::Any
            || !(value.ty().fits(&expected) || value.ty().fits(&files))
        {
            let span = reader.report().span(&yaml.range);
            let message = format!("`{}` is no file: it is `{}`", word.text, value.ty());
            let diagnostic = Diagnostic::error("GR022", message).at(span, "not a file");
            let help = "attach a field of the type `file`, `file?` or `[file]`, or the path of a file beside the \
                        workflow";
            reader.report().push(diagnostic.help(help));
            return None;
        }
        Some(Self::Value(Box::new(value)))
    }

    fn fingerprint(&self) -> Value {
        match self {
            Self::Fixed(file) => json!(file),
            Self::Value(value) => json!(value.source()),
        }
    }
}

/// Returns the files for one request.
pub(super) fn attachments(
    attached: &[AttachedFile],
    ctx: &NodeContext,
) -> Result<Vec<Attachment>, NodeError> {
    let mut files = Vec::new();
    for entry in attached {
        let value = match entry {
            AttachedFile::Fixed(file) => {
                files.push(file.clone());
                continue;
            }
            AttachedFile::Value(value) => value.evaluate(&ExpressionView::of(ctx))?,
        };
        let values = match &*value {
            Value::Null => &[][..],
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            let file = Attachment::of_value(value);
            files.push(
                file.map_err(|it| NodeError::permanent(format!("cannot attach a file: {it}")))?,
            );
        }
    }
    Ok(files)
}

pub(super) fn fingerprint(attached: &[AttachedFile]) -> Value {
    attached.iter().map(AttachedFile::fingerprint).collect()
}

/// Returns whether an entry is the path of a file: it does not begin with the name of a value, and is more than a name.
fn is_path(reader: &NodeReader<'_>, text: &str) -> bool {
    let end = text.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(text.len());
    text.contains(['.', '/']) && !reader.has_value(&text[..end])
}

fn read_fixed(reader: &mut NodeReader<'_>, word: &SpannedText) -> Option<Attachment> {
    // One byte more shows that the file is too large.
    let bytes_max = DataLimit::AttachmentBytes.value().saturating_add(1);
    let content =
        reader.open_folder().and_then(|it| it.read_start(Path::new(&word.text), bytes_max));
    let file = content.map_err(|it| it.to_string()).and_then(|(content, _)| {
        Attachment::of_file(&word.text, &content).map_err(|it| it.to_string())
    });
    let reason = match file {
        Ok(file) => return Some(file),
        Err(reason) => reason,
    };
    let message = format!("the file `{}` cannot be attached: {reason}", word.text);
    let span = reader.report().span(&word.range);
    let diagnostic = Diagnostic::error("GR052", message).at(span, "named here");
    let help = "name a file in the folder of the workflow, or a field of the type `file`";
    reader.report().push(diagnostic.help(help));
    None
}
