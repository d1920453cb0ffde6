//! Finds and compiles the prompt files of a workflow, each once.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use super::Prompt;
use crate::{
    diagnostic::{Diagnostic, Place, SourceFile},
    workflow::{
        reader::{Word, Yaml},
        report::{Problem, Report, suggestion},
        source::Buffers,
    },
};

/// A prompt and the text that its places point into.
#[derive(Clone, Debug)]
pub(crate) struct LoadedPrompt {
    pub(crate) prompt: Prompt,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    File(Arc<SourceFile>),
    /// Written in the workflow itself.
    Inline(Yaml),
}

/// The prompts that were read so far.
#[derive(Debug)]
pub(crate) struct PromptFiles {
    folder: PathBuf,
    buffers: Buffers,
    loaded: BTreeMap<PathBuf, Option<LoadedPrompt>>,
}

impl LoadedPrompt {
    /// Compiles a text that is written in the workflow.
    pub(crate) fn inline(report: &mut Report, yaml: &Yaml, what: &str) -> Option<Self> {
        let word = report.word(yaml, what)?;
        let name = format!("{} ({what})", report.file.name);
        let origin = Origin::Inline(yaml.clone());
        compiled(report, &name, &word.text, origin)
    }

    /// The place of some bytes of its text.
    pub(crate) fn place(&self, report: &Report, problem: &Problem) -> Option<Place> {
        self.origin.place(report, problem)
    }
}

impl Origin {
    fn place(&self, report: &Report, problem: &Problem) -> Option<Place> {
        match self {
            Self::File(file) => {
                Some(Place { file: Arc::clone(file), range: problem.range.clone() })
            }
            Self::Inline(yaml) => report.place(&yaml.within(&report.file.text, &problem.range)),
        }
    }
}

impl PromptFiles {
    pub(crate) fn new(folder: &Path, buffers: Buffers) -> Self {
        Self { folder: folder.to_owned(), buffers, loaded: BTreeMap::new() }
    }

    /// The folder of the workflow.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads the prompt at a path that is written in the workflow.
    pub(crate) fn load(&mut self, report: &mut Report, path: &Word) -> Option<LoadedPrompt> {
        const HELP: &str = "a path starts at the folder of the workflow or the one above";
        let relative = Path::new(&path.text);
        let stays = relative.components().all(|it| matches!(it, Component::Normal(_)));
        if !stays || path.text.is_empty() {
            report.bad_value(path, "the path of a prompt is relative and has no `..`", HELP);
            return None;
        }
        let candidates = prompt_paths(&self.folder, relative);
        if let Some(found) = candidates.iter().find(|it| self.buffers.has_file(it)) {
            return self.load_once(report, found, path);
        }
        let near = if path.text.contains(char::is_whitespace) {
            Some("a prompt that is written here is `{ text: … }`".to_owned())
        } else {
            candidates.iter().find_map(|it| nearby(it, relative))
        };
        let finding = Diagnostic::error("GR013", format!("there is no prompt `{}`", path.text));
        let finding = finding.at(report.place(&path.range), "no such file");
        report.push(finding.help(near.unwrap_or_else(|| HELP.to_owned())));
        None
    }

    /// Reads the prompt that a node has if it does not say which.
    pub(crate) fn load_default(
        &mut self,
        report: &mut Report,
        node: &Word,
    ) -> Option<LoadedPrompt> {
        let path = format!("prompts/{}.md", node.text);
        let candidates = prompt_paths(&self.folder, Path::new(&path));
        if let Some(found) = candidates.iter().find(|it| self.buffers.has_file(it)) {
            return self.load_once(report, found, node);
        }
        let finding = Diagnostic::error("GR013", format!("`{}` has no prompt", node.text));
        let finding = finding.at(report.place(&node.range), "without `prompt`");
        report.push(finding.help(format!("write it to `{path}`, or say `prompt:` where it is")));
        None
    }

    fn load_once(
        &mut self,
        report: &mut Report,
        found: &Path,
        named: &Word,
    ) -> Option<LoadedPrompt> {
        if !self.loaded.contains_key(found) {
            let prompt = read(report, found, named, &self.buffers);
            self.loaded.insert(found.to_owned(), prompt);
        }
        self.loaded.get(found).cloned().flatten()
    }
}

/// Where the file of a prompt may be, whose path is written in a workflow of a folder.
pub(crate) fn prompt_paths(folder: &Path, relative: &Path) -> [PathBuf; 2] {
    [folder.join(relative), above(folder).join(relative)]
}

fn read(
    report: &mut Report,
    found: &Path,
    named: &Word,
    buffers: &Buffers,
) -> Option<LoadedPrompt> {
    let name = found.display().to_string();
    match buffers.read(found) {
        Ok(text) => {
            let file = Arc::new(SourceFile { name: name.clone(), text });
            report.refuse_secret_in(&file.text, |range| Place { file: Arc::clone(&file), range });
            let text = Arc::clone(&file);
            compiled(report, &name, &text.text, Origin::File(file))
        }
        Err(error) => {
            let message = format!("the prompt `{name}` cannot be read: {error}");
            let place = report.place(&named.range);
            report.push(Diagnostic::error("GR013", message).at(place, "named here"));
            None
        }
    }
}

fn compiled(report: &mut Report, name: &str, text: &str, origin: Origin) -> Option<LoadedPrompt> {
    match Prompt::compile(name, text) {
        Ok(prompt) => Some(LoadedPrompt { prompt, origin }),
        Err(problem) => {
            let place = origin.place(report, &problem);
            report.push_problem(problem, place);
            None
        }
    }
}

/// The folder above; `graphs/x.yaml` and `prompts/y.md` stand side by side.
fn above(folder: &Path) -> PathBuf {
    match folder.components().next_back() {
        Some(Component::Normal(_)) => folder.parent().unwrap_or(folder).to_owned(),
        _ => folder.join(".."),
    }
}

/// A suggestion out of the files that are there instead.
fn nearby(missing: &Path, relative: &Path) -> Option<String> {
    let name = missing.file_name()?.to_str()?;
    let files = fs::read_dir(missing.parent()?).ok()?;
    let mut names: Vec<String> =
        files.filter_map(|it| it.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    let folder = relative.parent().unwrap_or(Path::new(""));
    let near = crate::diagnostic::did_you_mean(name, names.iter().map(String::as_str));
    match near {
        Some(near) => Some(format!("did you mean `{}`?", folder.join(near).display())),
        None => suggestion(name, names.iter().map(String::as_str)),
    }
}
