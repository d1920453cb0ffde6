//! The files beside a workflow that name it: its test cases, and the workflows that use it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    expressions::is_word,
    uri,
    workspace::{DocumentView, Workspace},
};
use crate::{
    beneath::{read_named, without_mark},
    data_limit::DataLimit,
    diagnostic::SourceFile,
    workflow::{
        FileKind, Outline, Part, Step,
        case_file::{Draft, SUFFIX},
        source_paths,
    },
};

/// The most workflows between one and a user of it.
const USERS_MAX: usize = 16;

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
        let mut found = self.workflows_beside(workflow);
        let is_used = |user: &Path, text: &str| {
            workflow.path.is_some_and(|it| !users(user, text, it).is_empty())
        };
        found.retain(|user, text| is_used(user, text));
        found.into_keys().collect()
    }

    /// Returns the other workflows that are open, or beside one, each with its text.
    pub(super) fn workflows_beside(
        &self,
        workflow: &DocumentView<'_>,
    ) -> BTreeMap<PathBuf, Arc<str>> {
        let is_yaml = |path: &Path| path.extension().is_some_and(|it| it == "yaml" || it == "yml");
        let mut found = self.beside(workflow, is_yaml);
        found.retain(|path, text| {
            FileKind::of(text) == Some(FileKind::Workflow) && workflow.path != Some(path.as_path())
        });
        found
    }

    /// Returns a file that names a node or a field of a workflow by its name in a workflow that uses it, and that name. The file is such a
    /// workflow, a prompt of it, or a file of its test cases.
    pub(super) fn inner_name(
        &self,
        workflow: &DocumentView<'_>,
        inner: &str,
    ) -> Option<(PathBuf, String)> {
        let files = self.workflows_beside(workflow);
        let mut open = vec![(workflow.path?.to_owned(), inner.to_owned(), 0)];
        let mut known = BTreeSet::new();
        while let Some((used, name, depth)) = open.pop() {
            for (user, text) in &files {
                for by in users(user, text, &used) {
                    let name = format!("{by}.{name}");
                    if depth == USERS_MAX || !known.insert((user.clone(), name.clone())) {
                        continue;
                    }
                    if let Some(file) = self.file_with(user, text, &name) {
                        return Some((file, name));
                    }
                    open.push((user.clone(), name, depth + 1));
                }
            }
        }
        None
    }

    /// Returns the file with a name, of those of a workflow.
    fn file_with(&self, workflow: &Path, text: &str, name: &str) -> Option<PathBuf> {
        let view = self.workflow_view(workflow, text);
        if has_name_in_values(text, &view.outline, name) {
            return Some(workflow.to_owned());
        }
        let prompts = view.prompts().into_iter().filter_map(|(path, _)| self.prompt(&view, &path));
        let prompts = prompts.filter(|(_, text)| has_name(text, name));
        let cases = self.cases_of(&view).into_iter();
        let cases = cases.filter(|(_, text)| has_name_in_values(text, &Outline::of(text), name));
        prompts.chain(cases).find_map(|(uri, _)| uri::to_path(&uri))
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
                found.insert(path, without_mark(text).into());
            }
        }
        found
    }
}

/// Returns the nodes of a workflow that use the one at a path.
fn users(user: &Path, text: &str, workflow: &Path) -> Vec<String> {
    let folder = user.parent().unwrap_or(Path::new(""));
    let key = |name: &str| Step::Key(name.to_owned());
    let outline = Outline::of(text);
    let user_of = |part: &Part| {
        let [section, Step::Key(node), used @ ..] = part.path.as_slice() else { return None };
        let is_use = used == [key("use")] || used == [key("use"), key("workflow")];
        let named = text.get(part.value.clone()?).filter(|_| is_use && *section == key("nodes"))?;
        let is_it = source_paths(folder, named.as_ref()).iter().any(|it| it == workflow);
        is_it.then(|| node.clone())
    };
    outline.parts().iter().filter_map(user_of).collect()
}

/// Returns whether a key or a value of a file contains a name.
fn has_name_in_values(text: &str, outline: &Outline, name: &str) -> bool {
    let scalars = outline.parts().iter().flat_map(|it| it.key.iter().chain(&it.value));
    scalars.filter_map(|it| text.get(it.clone())).any(|it| has_name(it, name))
}

/// Returns whether a text contains a name, alone or before the name of something in it, but not as the end of a longer one.
fn has_name(text: &str, name: &str) -> bool {
    let is_part = |it: char| is_word(it) || it == '-';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(|it| is_part(it) || it == '.')
            && !text[at + name.len()..].starts_with(is_part)
    })
}
