//! What a kind may use while one of its nodes is read.

use std::{ops::Range, path::Path, sync::Arc, time::Duration};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::Backoff,
    id::{ChannelName, NodeName},
    state::{Schema, Type},
};
use graphrun_expressions::{
    OutputPathError,
    flow::written::Presence,
    typing::{Misfit, describe},
};
use graphrun_guard::beneath::{BeneathError, Folder};
use graphrun_models::RequestSettings;
use graphrun_sandbox::{SourceFile, check_path};

use super::RegisteredKind;
use crate::{
    Defaults, Expression, HostSettings, Prompt, SandboxSettings,
    edge::then::MatchArms,
    format::{MappingKeys as _, values::RequestKeys},
    lower::environment::NodeScope,
    sections::{
        agents::Agent,
        fixed_files::read_scripts,
        memory::{Tier, Tiers, check_tier},
        read_template, request_settings,
        tools::find_tool,
        types::refuse_private,
    },
    source::{
        prompts::LoadedPrompt,
        reader::{Data, Entry, SpannedText, Yaml},
        report::Report,
        shape::Section,
    },
    tool::{BuiltIn, DeclaredTool, ToolSignature},
};

/// The field of an artifact with its files.
const FILES: &str = "files";

/// A node that is read: its keys, and the declarations that they may refer to.
///
/// The reader reports mistakes instead of failing at the first one. A method that reads a value has reported the reason when
/// it returns `None`; [`get`](Self::get), [`key`](Self::key) and the like return `None` where nothing is written.
#[derive(Debug)]
pub struct NodeReader<'a> {
    pub(crate) scope: &'a NodeScope<'a>,
    pub(crate) report: &'a mut Report,
    /// The name of the node as it is written.
    pub(crate) name_key: &'a SpannedText,
    pub(crate) section: &'a Section<'a>,
    pub(crate) kind: &'a RegisteredKind,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: &'a Backoff,
}

/// The keys of the node.
impl<'a> NodeReader<'a> {
    /// Returns the name of the node.
    pub fn name(&self) -> &'a NodeName {
        self.scope.name
    }

    /// Returns the value of the kind's key.
    pub fn value(&self) -> &'a Yaml {
        self.get(self.kind.key()).expect("a node is read by the kind whose key it has")
    }

    /// Returns the value of a key.
    ///
    /// # Panics
    ///
    /// Panics if the struct with the keys of the kind has no such key, because a node could never
    /// have it.
    pub fn get(&self, key: &str) -> Option<&'a Yaml> {
        self.assert_declared(key);
        self.section.get(key)
    }

    fn assert_declared(&self, key: &str) {
        let kind = self.kind.key();
        assert!(self.kind.takes(key), "the kind `{kind}` reads `{key}`, which it does not declare");
    }

    /// Returns a key with its place. It may also be a key that nodes of all kinds have.
    pub fn key(&self, key: &str) -> Option<&'a SpannedText> {
        self.section.key(key)
    }

    /// Returns the value of a key that the node must have. `help` is what to write.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    pub fn require(&mut self, key: &str, help: &str) -> Option<&'a Yaml> {
        self.assert_declared(key);
        self.section.require(self.report(), key, help)
    }

    /// Reads the mapping under the kind's key. The struct with the kind's keys has the known ones.
    pub fn parts(&mut self) -> Option<Section<'a>> {
        self.parts_of(self.kind.key())
    }

    /// Reads the mapping under a key. The struct with the kind's keys has the known ones.
    pub fn parts_of(&mut self, key: &str) -> Option<Section<'a>> {
        let known = self.kind.keys_within(key);
        let yaml = self.get(key)?;
        Section::read_known(self.report, yaml, &format!("`{key}`"), &known)
    }

    /// Reads a mapping that is an item of a list. The known keys are given, because a struct with the keys of the kind
    /// describes only mappings under its own keys.
    pub fn section<'y>(
        &mut self,
        yaml: &'y Yaml,
        what: &str,
        known: &[&str],
    ) -> Option<Section<'y>> {
        Section::read_known(self.report, yaml, what, known)
    }

    /// Returns the `timeout` of the node, if its kind [asks](super::Kind::asks) a person.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns the retry policy of the node.
    pub fn retry(&self) -> &'a Backoff {
        self.retry
    }

    /// Returns the diagnostics, to read simple values and to report mistakes.
    pub fn report(&mut self) -> &mut Report {
        self.report
    }
}

/// The fields of the state.
impl NodeReader<'_> {
    /// Returns the fields of the state.
    pub fn schema(&self) -> &Schema {
        &self.scope.env.schema
    }

    /// Returns the type of a field.
    pub fn type_of(&self, channel: &ChannelName) -> &Type {
        self.schema().channel(channel.as_str()).map_or(&Type::Any, |it| it.ty())
    }

    /// Reads the name of a field.
    pub fn channel(&mut self, word: &SpannedText) -> Option<ChannelName> {
        self.report.channel(word, &self.scope.env.schema)
    }

    /// Reads the name of a field, or a list of names.
    pub fn channels(&mut self, yaml: &Yaml, what: &str) -> Vec<ChannelName> {
        self.report.channels(yaml, what, &self.scope.env.schema)
    }

    /// Returns whether an update of a field adds items to a list.
    pub fn is_list_that_grows(&self, channel: &ChannelName) -> bool {
        let channel = self.schema().channel(channel.as_str());
        channel.is_some_and(|it| {
            it.reducer().grows_list() && matches!(it.ty().required(), Type::List(_))
        })
    }

    /// Reports fields that only nodes can use.
    pub fn refuse_private(&mut self, yaml: &Yaml, what: &str) {
        refuse_private(self.report, yaml, what, &self.scope.env.schema);
    }

    /// Reads the pairs of `writes`: `field: output`, or just fields with the names of their
    /// outputs.
    pub fn pairs(&mut self, yaml: &Yaml) -> Vec<(SpannedText, SpannedText)> {
        let report = &mut *self.report;
        if let Data::Map(entries) = &yaml.data {
            let pair = |Entry { key, value }: &Entry| {
                Some((key.clone(), report.word(value, "an output")?))
            };
            return entries.iter().filter_map(pair).collect();
        }
        let words = report.words(yaml, "`writes`");
        words.into_iter().map(|it| (it.clone(), it)).collect()
    }
}

/// Expressions.
impl NodeReader<'_> {
    /// Returns whether an expression of the node can begin with this name: a field of the state, or the item.
    pub fn has_value(&self, name: &str) -> bool {
        let is_item = self.scope.item.is_some_and(|it| it.name == name);
        is_item || self.schema().channel(name).is_some()
    }

    /// Reads an expression, which may use the fields that are assigned when the node starts.
    pub fn expression(&mut self, yaml: &Yaml) -> Option<Expression> {
        self.scope.expression(self.report, yaml)
    }

    /// Reads an expression for a value of a type. If the type is optional, the value may be absent.
    pub fn expression_for(&mut self, yaml: &Yaml, expected: &Type) -> Option<Expression> {
        let expected = self.scope.before().of_type(expected);
        self.scope.expression_for(self.report, yaml, expected)
    }

    /// Reads a condition that may use a variable of this name besides the fields that are assigned when the node starts.
    /// [`Expression::evaluate_with`] gives it a value.
    pub fn condition_on(&mut self, yaml: &Yaml, name: &str, ty: &Type) -> Option<Expression> {
        if self.schema().channel(name).is_some() {
            let message =
                format!("the state has a field `{name}`, which means something else here");
            let span = self.report.span(&yaml.range);
            let diagnostic = Diagnostic::error("GR016", message).at(span, "two meanings");
            self.report.push(diagnostic.help(format!("give the field `{name}` another name")));
            return None;
        }
        let condition = self.scope.expression_for(
            self.report,
            yaml,
            self.scope.before().with_variable(name, ty),
        )?;
        self.expect_type(yaml, condition.ty(), &Type::Bool, "a condition");
        Some(condition)
    }

    /// Reads an expression for an update of a field.
    pub fn expression_for_update(
        &mut self,
        yaml: &Yaml,
        channel: &ChannelName,
    ) -> Option<Expression> {
        let is_part = self
            .schema()
            .channel(channel.as_str())
            .is_some_and(|it| it.reducer().update_form().is_checked_folded());
        // Only the reducer knows the form of a part.
        if is_part {
            return self.expression(yaml);
        }
        let expected = self.type_of(channel).clone();
        self.expression_for(yaml, &expected)
    }

    /// Reads a folder at or below `output.dir`.
    pub fn output_folder(&mut self, yaml: &Yaml) -> Option<Expression> {
        let to =
            self.scope.expression_for(self.report, yaml, self.scope.before().with_output_dir())?;
        self.expect_type(yaml, to.ty(), &Type::String, "a folder");
        if to.ty().fits(&Type::String) {
            self.check_output_path(yaml, &to);
        }
        Some(to)
    }

    /// Refuses a folder that no run could accept.
    fn check_output_path(&mut self, yaml: &Yaml, to: &Expression) {
        let Err(error) = to.check_output_path(check_path) else { return };
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
        let report = self.report();
        let diagnostic = Diagnostic::error("GR056", message).at(report.span(&yaml.range), "here");
        let help = "write `output.dir`, or a path below it, as in `output.dir + \"/docs\"`";
        report.push(diagnostic.help(help));
    }

    /// Reads an expression for a text. `what` is the subject of a message about another type.
    pub fn text_expression(&mut self, yaml: &Yaml, what: &str) -> Option<Expression> {
        let text = self.expression(yaml)?;
        self.expect_type(yaml, text.ty(), &Type::String, what);
        Some(text)
    }

    /// Reads an expression for a list of files.
    pub fn files(&mut self, yaml: &Yaml) -> Option<Expression> {
        let files = self.expression(yaml)?;
        if let Some((message, label)) = misfit_of_files(files.ty()) {
            let span = self.report().span(&yaml.range);
            let diagnostic = Diagnostic::error("GR022", message).at(span, label);
            self.report().push(diagnostic.help("an item is `{ path: …, content: … }`, both texts"));
        }
        Some(files)
    }

    /// Reads an expression for an artifact, which is a record with files.
    pub fn artifact(&mut self, yaml: &Yaml) -> Option<Expression> {
        let artifact = self.expression(yaml)?;
        let ty = artifact.ty();
        let problem = match ty {
            Type::Any => None,
            Type::Map(value) => misfit_of_files(value.required()),
            Type::Record(record) => match ty.field(FILES) {
                Some(Type::Optional(_)) => {
                    let message = format!("the `{FILES}` of {} may be absent", describe(ty));
                    Some((message, "not always files"))
                }
                Some(files) => misfit_of_files(files),
                None if !record.is_closed => None,
                None => Some((format!("{} has no field `{FILES}`", describe(ty)), "no files")),
            },
            other => {
                let shown = describe(other);
                Some((
                    format!("an artifact is a record with files, and this is {shown}"),
                    "no files",
                ))
            }
        };
        if let Some((message, label)) = problem {
            let span = self.report().span(&yaml.range);
            let diagnostic = Diagnostic::error("GR022", message).at(span, label);
            let help = "an artifact is `{ files: [{ path: …, content: … }] }`";
            self.report().push(diagnostic.help(help));
        }
        Some(artifact)
    }

    /// Reports a value whose type does not fit the declared one. `what` is the subject of the
    /// message.
    pub fn expect_type(&mut self, yaml: &Yaml, ty: &Type, declared: &Type, what: &str) {
        if ty.fits(declared) {
            return;
        }
        let misfit = Misfit::of(ty, declared, what, yaml.text().unwrap_or_default());
        self.report_misfit(&yaml.range, misfit);
    }

    /// Reports a value whose type cannot be an update of a field.
    pub fn expect_update(&mut self, yaml: &Yaml, channel: &ChannelName, ty: &Type) {
        self.expect_update_by(yaml, yaml.text().unwrap_or_default(), channel, ty);
    }

    /// Does the same for the value of an expression. A constant must also fit the parts of the schema that are no part of
    /// its type, such as the length of a text.
    pub fn expect_update_of(
        &mut self,
        yaml: &Yaml,
        channel: &ChannelName,
        expression: &Expression,
    ) {
        let ty = expression.ty();
        self.expect_update(yaml, channel, ty);
        let field = self.schema().channel(channel.as_str());
        let Some(field) = field.filter(|it| it.takes(ty)) else { return };
        let Some(value) = expression.constant().filter(|it| !it.is_null()) else { return };
        let written = field.write_of(Arc::new(value), || Some(ty.clone()));
        let Err(problems) = field.check(&written) else { return };
        let message =
            format!("this does not fit the schema of `{channel}`: {}", problems.join("; "));
        let report = self.report();
        let diagnostic =
            Diagnostic::error("GR022", message).at(report.span(&yaml.range), "refused in each run");
        report.push(diagnostic.help("change the value, or the schema of the field"));
    }

    /// Does the same for a value of this expression, if it is one.
    pub(crate) fn expect_update_by(
        &mut self,
        yaml: &Yaml,
        source: &str,
        channel: &ChannelName,
        ty: &Type,
    ) {
        let Some(field) = self.schema().channel(channel.as_str()) else { return };
        if field.takes(ty) {
            return self.expect_whole_value(&yaml.range, channel, ty);
        }
        let types = field.update_types();
        let declared = meant(&types, ty);
        let mut misfit = Misfit::of(ty, declared, &format!("`{channel}`"), source);
        let adds = self.schema().channel(channel.as_str()).is_some_and(|it| it.reducer().adds());
        if adds && ty.out_of_range(declared).is_some() {
            misfit.message =
                format!("`{channel}` adds up its updates, and the sum may leave its range");
            misfit.help = Some(format!(
                "remove `min` or `max` of `{channel}`, or remove `merge` and write the sum with `min(…)` or `max(…)`"
            ));
        }
        self.report_misfit(&yaml.range, misfit);
    }

    /// Reports a part of a record that is merged into a field without a certain value, and leaves some of its fields missing.
    fn expect_whole_value(&mut self, range: &Range<usize>, field: &ChannelName, ty: &Type) {
        let NodeScope { env, name, known, .. } = self.scope;
        let before = env.flow.before(name).presence_given(field.as_str(), known);
        let channel = env.schema.channel(field.as_str());
        let missing = channel.and_then(|it| it.missing_field(ty, before == Presence::Always));
        let Some(missing) = missing else { return };
        let message = format!("this may leave `{field}` without its `{missing}`");
        let report = self.report();
        let diagnostic =
            Diagnostic::error("GR022", message).at(report.span(range), "only a part of it");
        report.push(diagnostic.help(format!(
            "write `{missing}`, too, or make it optional in its type; a part needs a complete value before it, such as a \
             default of `{field}`"
        )));
    }

    fn report_misfit(&mut self, range: &Range<usize>, misfit: Misfit) {
        let Misfit { code, message, label, help } = misfit;
        let span = self.report.span(range);
        let diagnostic = Diagnostic::error(code, message).at(span, label);
        self.report.push(Diagnostic { help, ..diagnostic });
    }

    /// Reports an output of a node, such as "`stdout`", that cannot be an update of a field, also if it is
    /// [cut](graphrun_core::state::Channel::cut) to the field.
    pub fn expect_output(
        &mut self,
        field: &SpannedText,
        channel: &ChannelName,
        output: &str,
        ty: &Type,
    ) {
        let Some(declared) = self.schema().channel(channel.as_str()) else { return };
        let types = declared.update_types();
        if declared.takes(ty) || types.iter().any(|it| ty.fits_cut(it)) {
            return self.expect_whole_value(&field.range, channel, ty);
        }
        let declared = meant(&types, ty);
        if ty.out_of_range(declared).is_some() {
            let misfit = Misfit::of(ty, declared, &format!("`{channel}`"), "");
            self.report_misfit(&field.range, misfit);
            return;
        }
        let message = format!("{output} is {}, and `{channel}` is `{declared}`", describe(ty));
        let report = self.report();
        let span = report.span(&field.range);
        report.push(Diagnostic::error("GR022", message).at(span, "another type"));
    }

    /// Reports a literal text under the name of a secret.
    pub fn refuse_named_secret(
        &mut self,
        name: &str,
        range: &Range<usize>,
        expression: &Expression,
    ) {
        self.report.refuse_named_secret(name, range, expression);
    }
}

/// Prompts. A prompt is loaded, then checked for the visits that use it, and finished.
impl NodeReader<'_> {
    /// Loads the template under a key: a path, or `{ text: … }`.
    pub fn load_template(&mut self, yaml: &Yaml, key: &str) -> Option<LoadedPrompt> {
        read_template(self.report, &self.scope.env.prompts, yaml, key)
    }

    /// Loads a prompt that is written in the workflow.
    pub fn load_inline_prompt(&mut self, yaml: &Yaml, what: &str) -> Option<LoadedPrompt> {
        LoadedPrompt::inline(self.report, yaml, what)
    }

    /// Loads the prompt of a node that names none: `prompts/NODE.md`.
    pub fn load_default_prompt(&mut self) -> Option<LoadedPrompt> {
        // A misspelt key is reported, and was meant to name one.
        if self.section.has_or_means("prompt") {
            return None;
        }
        self.scope.env.prompts.load_default(self.report, self.name_key)
    }

    /// Checks a prompt of any visit.
    pub fn check_prompt(&mut self, prompt: &LoadedPrompt) {
        self.scope.check_prompt(self.report, prompt, false, self.is_bounded());
    }

    /// Checks the prompt of all visits but the first.
    pub fn check_prompt_again(&mut self, prompt: &LoadedPrompt) {
        self.scope.check_prompt(self.report, prompt, true, self.is_bounded());
    }

    /// Returns the prompt for this node.
    pub fn finish_prompt(&self, prompt: LoadedPrompt) -> Prompt {
        self.scope.finish_prompt(prompt)
    }

    fn is_bounded(&self) -> bool {
        self.section.has_or_means("max_visits")
    }
}

/// The sections of the workflow, and what the program registers.
impl NodeReader<'_> {
    /// Returns the `defaults` of the workflow.
    pub fn defaults(&self) -> &Defaults {
        &self.scope.env.defaults
    }

    /// Returns the agent of a name.
    pub fn agent(&mut self, word: &SpannedText) -> Option<Agent> {
        let agents = &self.scope.env.sections.agents;
        let found = agents.get(&word.text).cloned();
        match &found {
            None => {
                self.report.unknown("GR011", "agent", word, agents.keys().map(String::as_str));
            }
            Some(_) => self.report.references.add("agents", &word.text),
        }
        found
    }

    /// Checks that a match has an arm for each value of its subject, and for no other. `what` is what an arm names.
    pub fn check_arms(&mut self, arms: &MatchArms<'_>, what: &str) {
        arms.check(self.report, what);
    }

    /// Returns the settings of requests to these models that stand in the node. The kind has their keys.
    pub fn request_settings(&mut self, models: &[String]) -> RequestSettings {
        let section = self.section;
        let providers = self.scope.env.registry.known_providers();
        request_settings::read(self.report, |key| section.get(key), models, providers)
    }

    /// Reports settings of requests in a node that asks no model. The kind has their keys.
    pub fn refuse_request_settings(&mut self, agent: &str) {
        for key in RequestKeys::keys().iter().filter_map(|it| self.section.key(it)) {
            let message = format!("`{}` is about a model, and `{agent}` is a program", key.text);
            let help = "remove it, or pass an option to the program in its `command`";
            self.report.bad_value(key, message, help);
        }
    }

    /// Returns the sandbox that the key `in` of the node names.
    pub fn sandbox(&mut self) -> Option<SandboxSettings> {
        let help = "name one of `sandboxes`: generated code runs only in a sandbox";
        let sandbox = self.require("in", help)?;
        let sandboxes = &self.scope.env.sections.sandboxes;
        let word = self.report.word(sandbox, "`in`")?;
        let settings = sandboxes.get(&word.text).cloned();
        if settings.is_none() {
            let hosts = self.scope.env.sections.hosts.keys();
            let known = sandboxes.keys().chain(hosts).map(String::as_str);
            self.report.unknown("GR015", "sandbox", &word, known);
        } else {
            self.report.references.add("sandboxes", &word.text);
        }
        settings
    }

    /// Returns the host that the key `in` of the node names, if it names one.
    pub fn host(&mut self) -> Option<HostSettings> {
        let word = self.get("in").and_then(Yaml::word)?;
        let host = self.scope.env.sections.hosts.get(&word.text)?;
        self.report.references.add("hosts", &word.text);
        Some(host.clone())
    }

    /// Reads the name of one of `folders`.
    pub fn run_folder(&mut self, yaml: &Yaml) -> Option<String> {
        let word = self.report.word(yaml, "`folder`")?;
        self.run_folder_of(word)
    }

    /// Returns the name of one of `folders`.
    pub(crate) fn run_folder_of(&mut self, word: SpannedText) -> Option<String> {
        self.scope.env.sections.find_folder(self.report, word)
    }

    /// Reads the name of one of the tiers of `memory`. If the node `writes` it, runs may do so.
    pub fn tier(&mut self, yaml: &Yaml, writes: bool) -> Option<(String, Tier)> {
        let word = self.report.word(yaml, "a tier")?;
        let tier = check_tier(self.report, &self.scope.env.sections.memory, &word, writes)?;
        Some((word.text, tier))
    }

    /// Returns the tiers of `memory`.
    pub fn tiers(&self) -> Arc<Tiers> {
        Arc::clone(&self.scope.env.sections.memory)
    }

    /// Returns the name and the types of a tool: declared, registered or built in.
    pub fn tool(&mut self, word: &SpannedText) -> Option<ToolSignature> {
        find_tool(self.report, &self.scope.env.registry, &self.scope.env.sections, word)
    }

    /// Returns the built-in tool of a name, unless the program registered another one with it.
    pub fn built_in_tool(&self, name: &str) -> Option<BuiltIn> {
        self.scope.env.registry.find_built_in_tool(name)
    }

    /// Returns those of the named tools that the workflow declares.
    pub fn declared_tools(&self, names: &[String]) -> Vec<Arc<DeclaredTool>> {
        let tools = &self.scope.env.sections.tools;
        names.iter().filter_map(|it| tools.get(it).cloned()).collect()
    }

    /// Returns the folder that the built-in tools can read.
    pub fn tools_root(&self) -> &Path {
        &self.scope.env.sections.tools_root
    }

    /// Reads the scripts of a command: files beside the workflow, with their contents.
    pub fn scripts(&mut self, yaml: &Yaml) -> Vec<SourceFile> {
        read_scripts(self.report, &self.open_folder(), yaml)
    }

    /// Opens the folder of the workflow.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be opened.
    pub fn open_folder(&self) -> Result<Folder, BeneathError> {
        self.scope.env.prompts.folder().open_folder()
    }
}

/// Returns the one of several types that a value which fits none of them is meant for.
fn meant<'t>(types: &'t [Type], ty: &Type) -> &'t Type {
    types.iter().find(|it| ty.out_of_range(it).is_some()).unwrap_or(&types[0])
}

/// Returns why a value of this type is no list of files.
fn misfit_of_files(files: &Type) -> Option<(String, &'static str)> {
    match files {
        Type::Any => None,
        Type::List(item) => misfit_of_file(item).map(|it| (it, "other items")),
        other => {
            let shown = describe(other);
            Some((format!("`{FILES}` is a list of files, and this is {shown}"), "no list"))
        }
    }
}

/// Returns why a value of this type is no file with a path and a content.
fn misfit_of_file(item: &Type) -> Option<String> {
    let Type::Record(record) = item else {
        let is_open = matches!(item, Type::Any | Type::Map(_));
        return (!is_open)
            .then(|| format!("`files` is a list of files, and an item is {}", describe(item)));
    };
    let is_text = |it: &Type| matches!(it, Type::String | Type::Enum(_) | Type::Any);
    let lacks = |names: &[&str]| {
        let field = names.iter().find_map(|it| item.field(it));
        field.map_or(record.is_closed, |it| !is_text(it))
    };
    let lacking = [&["path", "file_path"][..], &["content"]].into_iter().find(|it| lacks(it))?;
    let optional = lacking.iter().find(|it| matches!(item.field(it), Some(Type::Optional(_))));
    Some(match optional {
        Some(name) => {
            format!("the `{name}` of an item of `files` may be absent: it is {}", describe(item))
        }
        None => {
            format!("an item of `files` has no text `{}`: it is {}", lacking[0], describe(item))
        }
    })
}
