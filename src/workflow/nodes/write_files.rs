//! `write_files`: files are written to a folder.

use std::path::{Component, Path};

use super::{Reading, WRITE_FILES_KEYS};
use crate::{
    state::Type,
    workflow::{
        WriteFilesNode,
        lower::Lowering,
        reader::{Data, Entry, Yaml},
        shape::Section,
    },
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
                let stays = Path::new(&key.text).components();
                if !{ stays }.all(|it| matches!(it, Component::Normal(_))) {
                    let message = format!("`{}` is no path below the folder", key.text);
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
}
