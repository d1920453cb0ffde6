//! `reports`: files that show people the state of a run. They belong to no node: the program renders them after steps and
//! when a run stops, and nothing of them is part of the run.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    graph::{Input, RunFacts, Trigger, Visits},
    id::{ChannelName, NodeName},
    state::{Channel, State},
};
use graphrun_expressions::flow::{
    guarantee::Guarantees,
    written::{AssignedFields, Presence},
};
use graphrun_prompts::PromptScope;
use graphrun_sandbox::check_path;

use super::{entries, read_template};
use crate::{
    NodeDefinition, Prompt, PromptError, PromptView,
    format::ReportKeys,
    lower::{
        draft::WorkflowDraft,
        environment::{Environment, FIELDS, check_prompt_in},
    },
    source::{
        prompts::LoadedPrompt,
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
};

/// The value of `each`: the report is also rendered after each step.
const STEP: &str = "step";

/// A file that is rendered from the state of a run.
#[derive(Clone, Debug)]
pub struct ReportFile {
    /// Its path below the output folder of the run.
    pub path: String,
    /// The template.
    pub template: Prompt,
    /// Whether it is rendered after each step, and not only when the run stops.
    pub each_step: bool,
}

impl ReportFile {
    /// Renders the file in a state of the run.
    ///
    /// # Errors
    ///
    /// Fails when a filter refuses a value.
    pub fn render(
        &self,
        state: &State,
        visits: &Visits,
        facts: &RunFacts,
    ) -> Result<String, PromptError> {
        // No node renders it, so it has no visit, trigger or item; the check refuses their names.
        let trigger = &Trigger::Start;
        let input = &Input::State;
        let view = PromptView { state, visit: 0, max_visits: None, trigger, input, visits, facts };
        self.template.render(&view)
    }
}

/// Reads `reports`, once the nodes are known.
pub(crate) fn read_reports(
    report: &mut Report,
    top: &Section<'_>,
    env: &Environment,
    draft: &WorkflowDraft<'_>,
    definitions: &BTreeMap<NodeName, NodeDefinition>,
) -> Vec<ReportFile> {
    let entries = entries(report, top, "reports");
    if entries.is_empty() {
        return Vec::new();
    }
    for Entry { key, .. } in entries {
        check_not_delivered(report, key, definitions);
    }
    let written = assigned_throughout(env, draft);
    entries.iter().filter_map(|it| read_report(report, it, env, &written)).collect()
}

fn read_report(
    report: &mut Report,
    Entry { key, value }: &Entry,
    env: &Environment,
    written: &AssignedFields,
) -> Option<ReportFile> {
    check_name(report, key);
    let (loaded, each_step) = if matches!(value.data, Data::Map(_)) {
        let section =
            Section::read::<ReportKeys>(report, value, &format!("the report `{}`", key.text))?;
        let help = "write `render: PATH`, the path of its template";
        let template = section.require(report, "render", help);
        let loaded = template.and_then(|it| read_template(report, &env.prompts, it, "render"));
        (loaded, section.get("each").is_some_and(|it| check_each(report, it)))
    } else {
        (read_template(report, &env.prompts, value, "reports"), false)
    };
    let loaded = loaded?;
    check_template(report, env, &loaded, written);
    Some(ReportFile { path: key.text.clone(), template: loaded.into_prompt(), each_step })
}

fn check_name(report: &mut Report, key: &SpannedText) {
    if let Err(error) = check_path(&key.text) {
        let message = format!("`{}` cannot be the name of a report: {error}", key.text);
        report.bad_value(key, message, "write a name such as `progress.txt`");
    }
}

/// Refuses the name of a file that a node delivers: each would replace the other.
fn check_not_delivered(
    report: &mut Report,
    key: &SpannedText,
    definitions: &BTreeMap<NodeName, NodeDefinition>,
) {
    let mut delivering =
        definitions.iter().filter(|(_, it)| it.settings.delivered_names().contains(&&*key.text));
    if let Some((name, _)) = delivering.next() {
        let message = format!("`{}` is written by the node `{name}`, too", key.text);
        report.bad_value(key, message, "choose another name for one of them");
    }
}

fn check_each(report: &mut Report, yaml: &Yaml) -> bool {
    let Some(word) = report.word(yaml, "`each`") else { return false };
    if word.text != STEP {
        let message = format!("a report cannot be rendered for each `{}`", word.text);
        report.bad_value(&word, message, "write `each: step`, or remove it");
    }
    true
}

/// Returns the fields that have a value before the first step and never lose it.
fn assigned_throughout(env: &Environment, draft: &WorkflowDraft<'_>) -> AssignedFields {
    let cleared: BTreeSet<&ChannelName> =
        draft.nodes.values().flat_map(|it| &it.policies.on_finish.clears).collect();
    let start = env.flow.at_start();
    let stays = |it: &&Channel| it.default().is_some() || !cleared.contains(it.name());
    let assigned = |it: &&Channel| start.presence(it.name().as_str()) == Presence::Always;
    let fields = env.schema.channels().iter().filter(assigned).filter(stays);
    AssignedFields::throughout(fields.map(|it| it.name().clone()).collect())
}

/// Checks the template of a report, which no node renders.
fn check_template(
    report: &mut Report,
    env: &Environment,
    loaded: &LoadedPrompt,
    written: &AssignedFields,
) {
    for name in loaded.prompt.variables() {
        report.references.add(FIELDS, name);
    }
    let scope = PromptScope {
        schema: &env.schema,
        written,
        nodes: &env.nodes,
        node: None,
        bounded: false,
        item: None,
        any_item: false,
        known: &Guarantees::NONE,
    };
    check_prompt_in(report, loaded, scope);
}
