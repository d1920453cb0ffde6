//! The files beside a workflow that name it: its test cases, and the workflows that use it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::workspace::{DocumentView, Workspace};
use crate::{
    beneath::read_named,
    data_limit::DataLimit,
    diagnostic::SourceFile,
    workflow::{
        FileKind, Outline, Step,
        case_file::{Draft, SUFFIX},
        source_paths,
    },
};

impl Workspace {
    /// Returns the files of test cases for a workflow, each with its text: the open ones, and those beside it.
    pub(super) fn cases_of(&self, workflow: &DocumentView<'_>) -> Vec<(String, Arc<str>)> {
        let is_cases = |it: &Path| it.to_string_lossy().ends_with(SUFFIX);
        let mut found = self.beside(workflow, is_cases);
        found.retain(|cases, text| {
            let file = SourceFile { name: cases.display().to_string(), text: text.to_string() };
            Some(Draft::of(cases, Arc::new(file)).workflow().as_path()) == workflow.path
        });
        found.into_iter().map(|(cases, text)| (self.uri_of(&cases), text)).collect()
    }

    /// Returns the workflows that use one: the open ones, and those beside it.
    pub(super) fn users_of(&self, workflow: &DocumentView<'_>) -> Vec<PathBuf> {
        let is_yaml = |path: &Path| path.extension().is_some_and(|it| it == "yaml" || it == "yml");
        let mut found = self.beside(workflow, is_yaml);
        found.retain(|user, text| {
            FileKind::of(text) == Some(FileKind::Workflow)
                && workflow.path.is_some_and(|it| uses(user, text, it))
        });
        found.into_keys().collect()
    }

    /// Returns the files with certain names that are open, or beside a workflow, each with its text.
    fn beside(
        &self,
        workflow: &DocumentView<'_>,
        is_wanted: impl Fn(&Path) -> bool,
    ) -> BTreeMap<PathBuf, Arc<str>> {
        let Some(folder) = workflow.folder() else { return BTreeMap::new() };
        let mut found = self.open_texts();
        found.retain(|path, _| is_wanted(path));
        let beside = fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
        for path in beside.filter(|it| is_wanted(it)) {
            if !found.contains_key(&path)
                && let Ok(text) = read_named(&path, DataLimit::FileBytes)
            {
                found.insert(path, text.into());
            }
        }
        found
    }
}

/// Returns whether a workflow uses the one at a path.
fn uses(user: &Path, text: &str, workflow: &Path) -> bool {
    let folder = user.parent().unwrap_or(Path::new(""));
    Outline::of(text).parts().iter().any(|part| {
        let is_use = part.path.iter().rev().take(2).any(|it| *it == Step::Key("use".into()));
        let word = part.value.clone().and_then(|it| text.get(it)).filter(|_| is_use);
        word.is_some_and(|cases| {
            source_paths(folder, cases.as_ref()).iter().any(|it| it == workflow)
        })
    })
}
