//! Reads a file of cases against the graph of its workflow and reports all mistakes together.

use std::{collections::BTreeMap, path::PathBuf};

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, did_you_mean},
    graph::{Access, Graph},
    id::NodeName,
    state::{Type, Update},
};
use graphrun_models::Replay;
use jiff::Timestamp;

use super::{Answers, Beginning, Case, CaseFile, Draft, NOW, accesses};
use crate::{
    Workflow,
    format::{CaseFileKeys, TestCaseKeys},
    lower::is_version,
    source::{
        files::{Buffers, SourceFolder},
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The version of the format that this code reads.
const VERSION: &str = "1";

/// The state of turning a file of cases into a [`CaseFile`].
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) report: Report,
    pub(super) workflow: &'a Workflow,
    pub(super) graph: &'a Graph,
    pub(super) accesses: Vec<Access>,
    pub(super) folder: PathBuf,
}

/// The defaults for the cases of a file.
#[derive(Clone, Debug)]
struct Common<'y> {
    input: Option<&'y Yaml>,
    answers: BTreeMap<NodeName, Answers>,
    replay: Option<PathBuf>,
    now: Timestamp,
}

impl Draft {
    /// Checks the cases against their workflow, and the graph that was made of it; the diagnostics
    /// are warnings.
    ///
    /// # Errors
    ///
    /// Fails with every diagnostic when one of them is an error.
    pub fn check(
        self,
        workflow: &Workflow,
        graph: &Graph,
    ) -> Result<(CaseFile, Diagnostics), Diagnostics> {
        let Self { path, report, root } = self;
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        let mut reading =
            Reading { report, workflow, graph, accesses: accesses(workflow, graph), folder };
        let cases = root.as_ref().map(|it| reading.file(it)).unwrap_or_default();
        reading.report.into_diagnostics().or_ok(CaseFile { cases })
    }
}

impl Reading<'_> {
    fn file(&mut self, root: &Yaml) -> Vec<Case> {
        let Some(top) = Section::read::<CaseFileKeys>(&mut self.report, root, "a file of cases")
        else {
            return Vec::new();
        };
        let help = "begin with `graphrun_test: 1`";
        if let Some(version) = top.require(&mut self.report, "graphrun_test", help)
            && !is_version(version, VERSION)
        {
            let span = self.report.span(&version.range);
            let diagnostic = Diagnostic::error("GR008", "the version of the format is not known");
            self.report
                .push(diagnostic.at(span, "here").help("this program reads `graphrun_test: 1`"));
        }
        for key in ["workflow", "about"] {
            if let Some(yaml) = top.get(key) {
                self.report.word(yaml, &format!("`{key}`"));
            }
        }
        let common = Common {
            input: top.get("input"),
            answers: top.get("nodes").map(|it| self.answers(it, true)).unwrap_or_default(),
            replay: top.get("replay").and_then(|it| self.replay(it)),
            now: top.get("now").and_then(|it| self.now(it)).unwrap_or_else(usual_now),
        };
        let Some(cases) = top.require(&mut self.report, "cases", "a file of cases needs cases")
        else {
            return Vec::new();
        };
        let Data::List(items) = &cases.data else {
            self.report.wrong_kind(cases, "`cases`", "a list of cases");
            return Vec::new();
        };
        if items.is_empty() {
            self.report.wrong_kind(cases, "`cases`", "a list with a case at least");
        }
        let mut names = BTreeMap::new();
        items.iter().filter_map(|it| self.case(it, &common, &mut names)).collect()
    }

    fn case(
        &mut self,
        yaml: &Yaml,
        common: &Common<'_>,
        names: &mut BTreeMap<String, SpannedText>,
    ) -> Option<Case> {
        let section = Section::read::<TestCaseKeys>(&mut self.report, yaml, "a case")?;
        let name = section.require(
            &mut self.report,
            "name",
            "give the case a name that describes \
            it",
        );
        let name = name.and_then(|it| self.report.word(it, "`name`"));
        if let Some(name) = &name {
            self.refuse_name_twice(name, names);
        }
        let beginning = self.beginning(&section);
        let input = self.input(section.get("input"), common.input, &beginning, yaml);
        let now = section.get("now").and_then(|it| self.now(it)).unwrap_or(common.now);
        let until = section.get("until").map(|it| self.until(it)).unwrap_or_default();
        let own = section.get("nodes").map(|it| self.answers(it, false)).unwrap_or_default();
        let replay = section.get("replay").and_then(|it| self.replay(it));
        let steps = section.get("steps").and_then(|it| self.report.count(it, "`steps`", 1));
        let help = "describe the expected run: `expect: { route: […] }`";
        let expect = section.require(&mut self.report, "expect", help);
        let expect = expect.and_then(|it| self.expectation(it, &until));
        let name = name?;
        let mut answers = common.answers.clone();
        answers.extend(own);
        Some(Case {
            span: self.report.span(&name.range)?,
            name: name.text,
            input: input?,
            beginning,
            now,
            until,
            answers,
            replay: replay.or_else(|| common.replay.clone()),
            steps,
            expect: expect?,
        })
    }

    pub(super) fn refuse_name_twice(
        &mut self,
        name: &SpannedText,
        names: &mut BTreeMap<String, SpannedText>,
    ) {
        if let Some(first) = names.get(&name.text) {
            let diagnostic = Diagnostic::error("GR002", "two cases have the same name");
            let diagnostic = diagnostic.at(self.report.span(&name.range), "again");
            let diagnostic = diagnostic.at(self.report.span(&first.range), "first");
            self.report.push(diagnostic.help("give each case its own name"));
        } else {
            names.insert(name.text.clone(), name.clone());
        }
    }

    /// Reads the input of a run: the values of the case, then the defaults of the file.
    fn input(
        &mut self,
        own: Option<&Yaml>,
        common: Option<&Yaml>,
        beginning: &Beginning,
        case: &Yaml,
    ) -> Option<Update> {
        let mut update = Update::default();
        let mut fits = true;
        for yaml in [own, common].into_iter().flatten() {
            let Data::Map(entries) = &yaml.data else {
                self.report.wrong_kind(yaml, "`input`", "a mapping from fields to values");
                return None;
            };
            for Entry { key, value } in entries {
                if update.writes.iter().any(|(name, _)| name.as_str() == key.text) {
                    continue;
                }
                let input = &self.graph.input;
                if !input.iter().any(|it| it.as_str() == key.text) {
                    let known = input.iter().map(|it| it.as_str().to_owned()).collect::<Vec<_>>();
                    let known = known.iter().map(String::as_str);
                    self.report.unknown("GR021", "input of the workflow", key, known);
                    fits = false;
                    continue;
                }
                let schema = self.graph.schema.clone();
                let channel = schema.channel(&key.text)?;
                match self.written(channel, value) {
                    Some(value) => update = update.write(channel.name().clone(), value),
                    None => fits = false,
                }
            }
        }
        let schema = self.graph.schema.clone();
        for name in self.graph.input.clone() {
            let Some(channel) = schema.channel(name.as_str()) else { continue };
            let is_needed =
                channel.default().is_none() && !matches!(channel.ty(), Type::Optional(_));
            let is_needed = is_needed && !beginning.state.contains_key(&name);
            if fits && is_needed && !update.writes.iter().any(|(it, _)| *it == name) {
                let message = format!("the case has no input `{name}`");
                let start = case.range.start;
                let span = self.report.span(&(start..start + 1));
                let diagnostic = Diagnostic::error("GR006", message).at(span, "this case");
                self.report.push(diagnostic.help(format!("add `input: {{ {name}: … }}`")));
                fits = false;
            }
        }
        fits.then_some(update)
    }

    fn replay(&mut self, yaml: &Yaml) -> Option<PathBuf> {
        let word = self.report.word(yaml, "`replay`")?;
        let path = self.folder.join(&word.text);
        let folder = SourceFolder::of(&self.folder, Buffers::default());
        let checked = folder
            .check_file(word.text.as_ref())
            .map_err(|error| format!("the recording `{}` cannot be replayed: {error}", word.text));
        match checked.and_then(|()| Replay::load(&path).map_err(|it| it.to_string())) {
            Ok(replay) => {
                let nodes = || self.graph.nodes.keys();
                for unknown in unknown_nodes(&self.workflow.nested, nodes, &replay, &word.text) {
                    self.report.push(unknown.at(self.report.span(&word.range), "never used"));
                }
                Some(path)
            }
            Err(error) => {
                let span = self.report.span(&word.range);
                let diagnostic = Diagnostic::error("GR085", error);
                let diagnostic = diagnostic.at(span, "not a recording");
                let help = "a path starts at the folder of this file; `execute --record` makes one";
                self.report.push(diagnostic.help(help));
                None
            }
        }
    }

    /// Returns the node of that name, reported if there is none.
    pub(super) fn node(&mut self, word: &SpannedText) -> Option<NodeName> {
        if let Some((name, _)) = self.graph.nodes.get_key_value(word.text.as_str()) {
            return Some(name.clone());
        }
        if let Some(branches) = self.workflow.groups.get(word.text.as_str()) {
            let names: Vec<&str> = branches.iter().map(NodeName::as_str).collect();
            let message = format!("`{}` is a parallel, which is no node of a run", word.text);
            let span = self.report.span(&word.range);
            let diagnostic = Diagnostic::error("GR010", message).at(span, "does not run itself");
            self.report.push(diagnostic.help(format!("name its branches: {}", names.join(", "))));
            return None;
        }
        self.report.unknown("GR010", "node", word, self.graph.nodes.keys().map(NodeName::as_str));
        None
    }
}

/// Returns a warning for each node that a recording names and a workflow does not have. `file` is the name of the
/// recording.
pub fn unknown_nodes<'n, N: Iterator<Item = &'n NodeName>>(
    nested: &BTreeMap<NodeName, Workflow>,
    nodes: impl Fn() -> N,
    replay: &Replay,
    file: &str,
) -> Vec<Diagnostic> {
    let unknown = replay.nodes().into_iter().filter(|(node, _)| !has_node(nested, nodes(), node));
    let warning = |(node, line): (&str, usize)| {
        let message = format!("line {line} of `{file}` names `{node}`, which is no node");
        let meant = did_you_mean(node, nodes().map(NodeName::as_str));
        Diagnostic::warning("GR085", message).help(match meant {
            Some(name) => format!("did you mean `{name}`?"),
            None => {
                "a node of a nested run is named behind the node that runs it: `each.write`".into()
            }
        })
    };
    unknown.map(warning).collect()
}

/// Returns whether a name is that of a node, in the whole run or in the file of a nested run.
fn has_node<'n>(
    nested: &BTreeMap<NodeName, Workflow>,
    mut nodes: impl Iterator<Item = &'n NodeName>,
    name: &str,
) -> bool {
    let is_inner = |(outer, workflow): (&NodeName, &Workflow)| {
        let inner = name.strip_prefix(outer.as_str()).and_then(|it| it.strip_prefix('.'));
        let has = |it: &str| has_node(&workflow.nested, workflow.nodes.keys(), it);
        has(name) || inner.is_some_and(has)
    };
    nodes.any(|it| it.as_str() == name) || nested.iter().any(is_inner)
}

/// Returns the time at which a case runs that names none.
fn usual_now() -> Timestamp {
    NOW.parse().expect("it is a moment")
}
