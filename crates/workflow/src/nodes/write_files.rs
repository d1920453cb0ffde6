//! `write_files`: writes files to a folder.

use graphrun_core::{diagnostic::Diagnostic, state::Type};
use graphrun_sandbox::check_path;

use super::{Reading, WRITE_FILES_KEYS, fits};
use crate::{
    WriteFilesNode,
    expression::{Expression, OutputPathError},
    lower::Lowering,
    reader::{Data, Entry, Yaml},
    shape::Section,
};

impl Lowering<'_> {
    pub(super) fn read_write_files(
        &mut self,
        reading: Reading<'_, '_>,
        yaml: &Yaml,
        bounded: bool,
    ) -> Option<WriteFilesNode> {
        let parts = Section::read(&mut self.report, yaml, "`write_files`", WRITE_FILES_KEYS)?;
        let written = self.flow.before(reading.name);
        let to = parts.require(&mut self.report, "to", "write `to: output.dir`");
        let to = to.and_then(|it| {
            let to = self.expression_with_output(it, &written)?;
            self.expect_type(it, to.ty(), &Type::String, "a folder");
            if fits(to.ty(), &Type::String) {
                self.check_output_path(it, &to);
            }
            Some(to)
        });
        let files = parts.get("files").and_then(|it| {
            let files = self.expression(it, &written)?;
            self.check_files(it, &files);
            Some(files)
        });
        let mut documents = Vec::new();
        if let Some(yaml) = parts.get("documents") {
            if !matches!(yaml.data, Data::Map(_)) {
                let wanted = "a mapping from names of files to expressions";
                self.report.wrong_kind(yaml, "`documents`", wanted);
            }
            for Entry { key, value } in yaml.entries() {
                if let Err(error) = check_path(&key.text) {
                    let message = format!("`{}` cannot be delivered: {error}", key.text);
                    self.report.bad_value(key, message, "write a name such as `review.json`");
                }
                let document = self.expression(value, &written);
                documents.extend(document.map(|it| (key.text.clone(), it)));
            }
        }
        let report = parts.get("report").and_then(|it| self.read_prompt(it));
        if let Some(report) = &report {
            self.check_prompt(report, reading.name, bounded);
        }
        let report = report.map(|it| self.prompt_of(it));
        Some(WriteFilesNode { to: to?, files, documents, report })
    }

    /// Refuses a folder that no run could accept.
    fn check_output_path(&mut self, yaml: &Yaml, to: &Expression) {
        let Err(error) = to.check_output_path() else { return };
        let message = match error {
            OutputPathError::Elsewhere => {
                format!("`{}` is not a path below `output.dir`", to.source())
            }
            OutputPathError::Beside(text) => {
                format!("`output.dir` followed by {text:?} names a folder beside the output folder")
            }
            OutputPathError::Below { path, error } => {
                format!("files cannot be delivered to {path:?} below `output.dir`: {error}")
            }
        };
        let finding =
            Diagnostic::error("GR056", message).at(self.report.place(&yaml.range), "here");
        let help = "write `output.dir`, or a path below it, as in `output.dir + \"/docs\"`";
        self.report.push(finding.help(help));
    }
}
