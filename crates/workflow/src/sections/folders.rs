//! `folders`: folders of a run, each with a git worktree and a branch.

use std::collections::BTreeSet;

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{RunFacts, Trigger, Visits},
    id::{NodeName, RunId},
    state::{StateError, Type, Update},
};
use graphrun_expressions::typing::describe;
use thiserror::Error;

use super::hosts::check_used_host;
use crate::{
    Expression, ExpressionError, ExpressionView, Workflow,
    format::FolderKeys,
    lower::environment::{Environment, ExpressionUse, NodeScope},
    source::{
        reader::{SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The start of the default name of a branch, before the id of the run.
const BRANCH_DEFAULT: &str = "graphrun/";

/// A folder as it is declared.
#[derive(Clone, Debug)]
pub struct FolderDefinition {
    /// The path of the repository.
    pub from: Expression,
    /// The name of the branch of a run; `None` is `"graphrun/" + run.id`.
    pub branch: Option<Expression>,
}

/// A folder that a run asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderRequest {
    /// The name in the workflow.
    pub name: String,
    /// The path of the repository. A relative path starts at the current folder.
    pub from: String,
    /// The name of the branch to make.
    pub branch: String,
}

/// The folders of a run cannot be found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderRequestError {
    /// The input does not fit the state.
    #[error("the input does not fit")]
    Input(#[from] StateError),
    /// An expression has no value.
    #[error("the folder `{name}` cannot be found")]
    Value {
        /// The name of the folder.
        name: String,
        /// The reason.
        source: ExpressionError,
    },
}

impl Workflow {
    /// Returns the folders that a new run asks for.
    ///
    /// # Errors
    ///
    /// Fails when the input does not fit the state, and when an expression has no value.
    pub fn folder_requests(
        &self,
        input: &Update,
        run: &RunId,
    ) -> Result<Vec<FolderRequest>, FolderRequestError> {
        if self.folders.is_empty() {
            return Ok(Vec::new());
        }
        let state = self.schema.begin(input.clone())?;
        let workflow = self.name.as_str().into();
        let facts = RunFacts { run: Some(run.clone()), workflow, ..RunFacts::default() };
        let trigger = Trigger::Start;
        let visits = Visits::default();
        let view = ExpressionView {
            state: &state,
            visits: &visits,
            item: None,
            output_dir: None,
            trigger: &trigger,
            facts: &facts,
        };
        let request = |(name, folder): (&String, &FolderDefinition)| {
            let text = |expression: &Expression| match expression.evaluate(&view) {
                Ok(value) => Ok(value.as_str().unwrap_or_default().to_owned()),
                Err(source) => Err(FolderRequestError::Value { name: name.clone(), source }),
            };
            let branch = folder.branch.as_ref().map(text).transpose()?;
            let branch = branch.unwrap_or_else(|| format!("{BRANCH_DEFAULT}{run}"));
            Ok(FolderRequest { name: name.clone(), from: text(&folder.from)?, branch })
        };
        self.folders.iter().map(request).collect()
    }
}

/// Reads the names of `folders`, which nodes refer to.
pub(crate) fn read_names(report: &mut Report, top: &Section<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in super::entries(report, top, "folders") {
        if !is_name(&entry.key.text) {
            let message = format!("a folder cannot have the name `{}`", entry.key.text);
            let help = "use letters, digits, `_` and `-`, and begin with a letter";
            report.bad_value(&entry.key, message, help);
        }
        // An invalid name still counts as declared, so that the nodes that use it are not reported.
        names.insert(entry.key.text.clone());
    }
    names
}

/// The name becomes a part of a path and of a reference of git.
fn is_name(text: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_alphabetic())
        && text.chars().all(|it| it.is_ascii_alphanumeric() || "_-".contains(it))
}

/// Reads `folders`, with expressions over the input of a run.
pub(crate) fn read_folders(
    report: &mut Report,
    top: &Section<'_>,
    env: &Environment,
    start: Option<&NodeName>,
) -> Vec<(String, FolderDefinition)> {
    let mut folders = Vec::new();
    // Without a start there is an error already.
    let Some(start) = start else { return folders };
    let scope = NodeScope::of_list(env, start);
    for entry in top.get("folders").map(Yaml::entries).unwrap_or_default() {
        let definition = read_folder(report, &scope, &entry.key, &entry.value);
        folders.extend(definition.map(|it| (entry.key.text.clone(), it)));
    }
    folders
}

fn read_folder(
    report: &mut Report,
    scope: &NodeScope<'_>,
    key: &SpannedText,
    yaml: &Yaml,
) -> Option<FolderDefinition> {
    let what = format!("the folder `{}`", key.text);
    let section = Section::read::<FolderKeys>(report, yaml, &what)?;
    let help = "write `git: true`: each run has its own git worktree";
    let git = section.require(report, "git", help).and_then(|it| report.bool(it, "`git`"));
    if git == Some(false)
        && let Some(word) = section.get("git").and_then(Yaml::word)
    {
        report.bad_value(&word, "a folder of a run is a git worktree", "write `git: true`");
    }
    let help = "name the repository, as in `from: repo_path` or `from: '\"../service\"'`";
    let from = section.require(report, "from", help);
    let from = from.and_then(|it| read_text(report, scope, it, "`from`"));
    let branch = section.get("branch").map(|it| read_text(report, scope, it, "`branch`"));
    let branch = match branch {
        None => None,
        Some(branch) => Some(branch?),
    };
    Some(FolderDefinition { from: from?, branch })
}

/// Reads an expression for a text that is known before the first step.
fn read_text(
    report: &mut Report,
    scope: &NodeScope<'_>,
    yaml: &Yaml,
    what: &str,
) -> Option<Expression> {
    let expression = scope.expression_for(
        report,
        yaml,
        ExpressionUse::at(scope.env.flow.at_start()).of_type(&Type::String),
    )?;
    let span = report.span(&yaml.range);
    if !expression.ty().fits(&Type::String) {
        let message = format!("{what} is a text, and this is {}", describe(expression.ty()));
        report.push(Diagnostic::error("GR022", message).at(span, "another type"));
        return None;
    }
    if expression.facts().time {
        let message = format!("{what} is found before the run has a time");
        let diagnostic = Diagnostic::error("GR009", message).at(span, "not known yet");
        report.push(diagnostic.help("use the input and `run.id`"));
        return None;
    }
    Some(expression)
}

/// Reports folders and hosts of used workflows that this one does not have.
pub(crate) fn check_used(report: &mut Report, nodes: &Yaml, env: &Environment) {
    for (node, used) in &env.loaded {
        let entry = nodes.entries().iter().find(|it| it.key.text == node.as_str());
        let Some(entry) = entry else { continue };
        let path = entry.value.get("use").and_then(|it| it.get("workflow"));
        let span = report.span(&path.unwrap_or(&entry.value).range);
        for host in used.hosts.values() {
            let own = env.sections.hosts.get(&host.name);
            if own.is_some() {
                report.references.add("hosts", &host.name);
            }
            if let Some(diagnostic) = check_used_host(&used.name, host, own) {
                report.push(diagnostic.at(span.clone(), "this workflow"));
            }
        }
        for name in used.folders.keys() {
            if env.sections.folders.contains(name) {
                report.references.add("folders", name);
                continue;
            }
            let message =
                format!("`{}` works in the folder `{name}`, which is not declared here", used.name);
            let diagnostic = Diagnostic::error("GR077", message).at(span.clone(), "this workflow");
            let help = format!("declare `{name}` under `folders`; both work in the same worktree");
            report.push(diagnostic.help(help));
        }
    }
}
