//! Finds and compiles the prompt files of a workflow, each once.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Component, Path},
    sync::Arc,
};

use graphrun_core::diagnostic::{Diagnostic, SourceFile, SourceSpan};
use graphrun_expressions::problem::{Problem, suggestion};
use graphrun_prompts::Prompt;

use crate::source::{
    files::{SourceFolder, SourcePath},
    reader::{SpannedText, Yaml},
    report::Report,
};

/// A prompt and the source of its places.
#[derive(Clone, Debug)]
pub struct LoadedPrompt {
    pub(crate) prompt: Prompt,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    File(Arc<SourceFile>),
    /// In the workflow itself.
    Inline(Yaml),
}

/// The prompts of a workflow. Each is read once, and its mistakes are reported once.
#[derive(Debug)]
pub(crate) struct PromptFiles {
    folder: SourceFolder,
    loaded: RefCell<BTreeMap<SourcePath, Option<LoadedPrompt>>>,
}

impl LoadedPrompt {
    /// Compiles a prompt in the workflow itself.
    pub(crate) fn inline(report: &mut Report, yaml: &Yaml, what: &str) -> Option<Self> {
        let word = report.word(yaml, what)?;
        let name = format!("{} ({what})", report.file.name);
        let origin = Origin::Inline(yaml.clone());
        compiled(report, &name, &word.text, origin)
    }

    /// Returns the prompt for a reader without an item.
    pub(crate) fn into_prompt(self) -> Prompt {
        self.prompt
    }

    /// Returns the place of some bytes of its text.
    pub(crate) fn span(&self, report: &Report, problem: &Problem) -> Option<SourceSpan> {
        self.origin.span(report, problem)
    }
}

impl Origin {
    fn span(&self, report: &Report, problem: &Problem) -> Option<SourceSpan> {
        match self {
            Self::File(file) => {
                Some(SourceSpan { file: Arc::clone(file), range: problem.range.clone() })
            }
            Self::Inline(yaml) => report.span(&yaml.within(&report.file.text, &problem.range)),
        }
    }
}

impl PromptFiles {
    pub(crate) fn new(folder: SourceFolder) -> Self {
        Self { folder, loaded: RefCell::default() }
    }

    /// Returns the folder of the workflow.
    pub(crate) fn folder(&self) -> &SourceFolder {
        &self.folder
    }

    /// Reads the prompt at a path of the workflow.
    pub(crate) fn load(&self, report: &mut Report, path: &SpannedText) -> Option<LoadedPrompt> {
        let relative = Path::new(&path.text);
        let stays = relative.components().all(|it| matches!(it, Component::Normal(_)));
        if !stays || path.text.is_empty() {
            let help = self.folder.help();
            report.bad_value(path, "the path of a prompt is relative and has no `..`", help);
            return None;
        }
        if let Some(found) = self.folder.find(relative) {
            return self.load_once(report, &found, path);
        }
        let near = if path.text.contains(char::is_whitespace) {
            Some("write a prompt in this file as `{ text: … }`".to_owned())
        } else {
            let candidates = self.folder.candidates(relative);
            candidates.iter().find_map(|it| self.nearby(it, relative))
        };
        let diagnostic = Diagnostic::error("GR013", format!("there is no prompt `{}`", path.text));
        let diagnostic = diagnostic.at(report.span(&path.range), "no such file");
        report.push(diagnostic.help(near.unwrap_or_else(|| self.folder.help().to_owned())));
        None
    }

    /// Reads the default prompt of a node.
    pub(crate) fn load_default(
        &self,
        report: &mut Report,
        node: &SpannedText,
    ) -> Option<LoadedPrompt> {
        let path = format!("prompts/{}.md", node.text);
        if let Some(found) = self.folder.find(Path::new(&path)) {
            return self.load_once(report, &found, node);
        }
        let diagnostic = Diagnostic::error("GR013", format!("`{}` has no prompt", node.text));
        let diagnostic = diagnostic.at(report.span(&node.range), "without `prompt`");
        report.push(
            diagnostic.help(format!("write it to `{path}`, or give its path with `prompt:`")),
        );
        None
    }

    fn load_once(
        &self,
        report: &mut Report,
        found: &SourcePath,
        named: &SpannedText,
    ) -> Option<LoadedPrompt> {
        let mut loaded = self.loaded.borrow_mut();
        let prompt = loaded.entry(found.clone());
        prompt.or_insert_with(|| self.read(report, found, named)).clone()
    }

    fn read(
        &self,
        report: &mut Report,
        found: &SourcePath,
        named: &SpannedText,
    ) -> Option<LoadedPrompt> {
        let name = found.shown.display().to_string();
        match self.folder.read(found) {
            Ok(text) => {
                let file = Arc::new(SourceFile { name: name.clone(), text });
                report.refuse_secret_in(&file.text, |range| SourceSpan {
                    file: Arc::clone(&file),
                    range,
                });
                let text = Arc::clone(&file);
                compiled(report, &name, &text.text, Origin::File(file))
            }
            Err(error) => {
                let help = self.folder.help_for(&error);
                let message = format!("the prompt `{name}` cannot be read: {error}");
                let diagnostic = Diagnostic::error("GR013", message);
                let diagnostic = diagnostic.at(report.span(&named.range), "named here");
                report.push(Diagnostic { help, ..diagnostic });
                None
            }
        }
    }

    /// Returns a suggestion from the existing files.
    fn nearby(&self, missing: &SourcePath, relative: &Path) -> Option<String> {
        let name = missing.shown.file_name()?.to_str()?;
        let mut names = self.folder.names_beside(missing);
        names.sort();
        let folder = relative.parent().unwrap_or(Path::new(""));
        let near = graphrun_core::diagnostic::did_you_mean(name, names.iter().map(String::as_str));
        match near {
            Some(near) => Some(format!("did you mean `{}`?", folder.join(near).display())),
            None => suggestion(name, names.iter().map(String::as_str)),
        }
    }
}

fn compiled(report: &mut Report, name: &str, text: &str, origin: Origin) -> Option<LoadedPrompt> {
    match Prompt::compile(name, text) {
        Ok(prompt) => Some(LoadedPrompt { prompt, origin }),
        Err(problem) => {
            let span = origin.span(report, &problem);
            report.push_problem(problem, span);
            None
        }
    }
}
