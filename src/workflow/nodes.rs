//! The nodes, one reader for each kind.

use std::path::{Component, Path};

use super::{
    AgentNode, AskNode, NodeDefinition, NodeKind, RunTestsNode, Runner, SetNode, TestOutput,
    Workflow, WriteFilesNode,
    lower::Lowering,
    policies::COMMON,
    prompt::LoadedPrompt,
    reader::{Data, Entry, Word, Yaml},
    report::suggestion,
    shape::Section,
    typing::{describe, fits, values_of},
};
use crate::{
    diagnostic::{Diagnostic, Place},
    id::{ChannelName, NodeName},
    state::{Reducer, Type},
};

/// Each kind of node, and the keys that only it takes.
const KINDS: &[(&str, &[&str])] = &[
    ("agent", &["prompt", "writes", "repair"]),
    ("run_tests", &["in", "writes"]),
    ("ask", &["show", "choices", "writes"]),
    ("set", &[]),
    ("write_files", &[]),
    ("node", &[]),
    ("parallel", &[]),
];

/// A node that is being read.
#[derive(Clone, Copy)]
struct Reading<'a, 'y> {
    name: &'a NodeName,
    key: &'a Word,
    section: &'a Section<'y>,
}

impl Lowering<'_> {
    pub(super) fn read_node(&mut self, entry: &Entry, name: &NodeName, workflow: &mut Workflow) {
        let Some(section) = self.node_section(entry) else { return };
        let policies = self.read_policies(name, &section);
        let reading = Reading { name, key: &entry.key, section: &section };
        let about = section.get("about").and_then(|it| self.report.word(it, "`about`"));
        let kind = self.read_kind(reading, policies.max_visits.is_some());
        if let Some(group) = self.heads.group_of(name) {
            if let Some(then) = section.key("then") {
                let message = format!("`{name}` is a branch of `{group}`, which says what follows");
                let place = self.report.place(&then.range);
                let finding = Diagnostic::error("GR039", message).at(place, "not here");
                self.report.push(finding.help(format!("move it to `{group}`")));
            }
        } else {
            let help = "say what follows, be it `then: end`";
            if let Some(then) = section.require(&mut self.report, "then", help) {
                self.read_then(name, then, workflow);
            }
        }
        let place = Place { file: self.report.file.clone(), range: entry.key.range.clone() };
        let about = about.map(|it| it.text);
        workflow.nodes.extend(
            kind.map(|kind| (name.clone(), NodeDefinition { kind, policies, place, about })),
        );
    }

    pub(super) fn read_parallel(
        &mut self,
        entry: &Entry,
        branches: &[NodeName],
        workflow: &mut Workflow,
    ) {
        let what = format!("the parallel `{}`", entry.key.text);
        let keys = ["parallel", "about", "then"];
        let Some(section) = Section::read(&mut self.report, &entry.value, &what, &keys) else {
            return;
        };
        if let Some(about) = section.get("about") {
            self.report.word(about, "`about`");
        }
        let help = "say what follows once all branches are done";
        if let Some(then) = section.require(&mut self.report, "then", help) {
            self.read_parallel_then(branches, then, workflow);
        }
    }

    /// The keys of a node, once it is clear that it is of one kind and takes them.
    fn node_section<'y>(&mut self, entry: &'y Entry) -> Option<Section<'y>> {
        let what = format!("the node `{}`", entry.key.text);
        let own = KINDS.iter().flat_map(|(kind, keys)| keys.iter().chain([kind]));
        let mut known: Vec<&str> = own.chain(COMMON).copied().collect();
        known.sort_unstable();
        known.dedup();
        let section = Section::read(&mut self.report, &entry.value, &what, &known)?;
        let kinds: Vec<&(&str, &[&str])> =
            KINDS.iter().filter(|(kind, _)| section.get(kind).is_some()).collect();
        let [(kind, own)] = kinds.as_slice() else {
            let names: Vec<&str> = kinds.iter().map(|(kind, _)| *kind).collect();
            let message = match names.as_slice() {
                [] => format!("{what} does nothing"),
                several => format!("{what} is several things: {}", several.join(", ")),
            };
            let place = self.report.place(&entry.key.range);
            let all: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
            let finding = Diagnostic::error("GR007", message).at(place, "must be of one kind");
            self.report.push(finding.help(format!("give it one of: {}", all.join(", "))));
            return None;
        };
        for key in section.keys().filter(|it| it.text != *kind) {
            let key_name = key.text.as_str();
            if !own.contains(&key_name) && !COMMON.contains(&key_name) {
                let owners = KINDS.iter().filter(|(_, keys)| keys.contains(&key_name));
                let owners: Vec<String> = owners.map(|(kind, _)| format!("`{kind}`")).collect();
                let message = format!("a node that is `{kind}` takes no key `{key_name}`");
                let place = self.report.place(&key.range);
                let finding = Diagnostic::error("GR003", message).at(place, "not a key here");
                self.report.push(finding.help(format!("it goes with {}", owners.join(" and "))));
            }
        }
        Some(section)
    }

    fn read_kind(&mut self, reading: Reading<'_, '_>, bounded: bool) -> Option<NodeKind> {
        let section = reading.section;
        if let Some(agent) = section.get("agent") {
            self.read_agent_node(reading, agent, bounded).map(NodeKind::Agent)
        } else if let Some(tests) = section.get("run_tests") {
            self.read_run_tests(reading, tests).map(NodeKind::RunTests)
        } else if let Some(question) = section.get("ask") {
            self.read_ask(reading, question, bounded).map(NodeKind::Ask)
        } else if let Some(sets) = section.get("set") {
            self.read_set(reading, sets).map(NodeKind::Set)
        } else if let Some(files) = section.get("write_files") {
            self.read_write_files(reading, files, bounded).map(NodeKind::WriteFiles)
        } else {
            self.read_custom(section.get("node")?)
        }
    }

    fn read_agent_node(
        &mut self,
        reading: Reading<'_, '_>,
        agent: &Yaml,
        bounded: bool,
    ) -> Option<AgentNode> {
        let Reading { name, section, .. } = reading;
        let agent = self.report.word(agent, "`agent`");
        let found = agent.as_ref().and_then(|it| self.agents.get(&it.text).cloned());
        match &agent {
            Some(word) if found.is_none() => {
                self.report.unknown("GR011", "agent", word, self.agents.keys().map(String::as_str));
            }
            Some(word) => self.uses("agents", &word.text),
            None => (),
        }
        let system = found.as_ref().and_then(|it| it.system.clone());
        let (prompt, again) = self.read_prompts(reading);
        for prompt in [&system, &prompt, &again].into_iter().flatten() {
            self.check_prompt(prompt, name, bounded);
        }
        let help = "name the field that its answer is written to";
        let writes = section.require(&mut self.report, "writes", help);
        let writes = writes.map(|it| self.report.channels(it, "`writes`", &self.schema));
        let repair = section.get("repair").and_then(|it| self.report.count(it, "`repair`", 0));
        let (agent, found) = (agent?, found?);
        Some(AgentNode {
            agent: agent.text,
            models: found.models,
            system: system.map(|it| it.prompt),
            prompt: prompt?.prompt,
            prompt_again: again.map(|it| it.prompt),
            temperature: found.temperature,
            writes: writes?,
            repairs_max: repair.unwrap_or(self.defaults.repairs_max),
        })
    }

    /// The prompt of a first visit, and that of later ones if it is another.
    fn read_prompts(
        &mut self,
        Reading { name, key, section }: Reading<'_, '_>,
    ) -> (Option<LoadedPrompt>, Option<LoadedPrompt>) {
        let Some(yaml) = section.get("prompt") else {
            let path = format!("prompts/{name}.md");
            let help = format!("write it to `{path}`, or say `prompt:` where it is");
            let path = Word { text: path, range: key.range.clone() };
            return (self.prompts.load_or(&mut self.report, &path, &help), None);
        };
        if !matches!(yaml.data, Data::Map(_)) {
            return (self.read_prompt(yaml), None);
        }
        let keys = ["text", "first", "again"];
        let Some(parts) = Section::read(&mut self.report, yaml, "`prompt`", &keys) else {
            return (None, None);
        };
        if let Some(text) = parts.get("text") {
            for part in parts.keys().filter(|it| it.text != "text") {
                self.report.bad_value(part, "`text` is the whole prompt", "leave one of them out");
            }
            return (LoadedPrompt::inline(&mut self.report, text, "`prompt`"), None);
        }
        let first = parts.require(&mut self.report, "first", "the prompt of the first visit");
        let again = parts.require(&mut self.report, "again", "the prompt of later visits");
        let first = first.and_then(|it| self.read_prompt(it));
        (first, again.and_then(|it| self.read_prompt(it)))
    }

    fn read_prompt(&mut self, yaml: &Yaml) -> Option<LoadedPrompt> {
        let path = self.report.word(yaml, "the path of a prompt")?;
        self.prompts.load(&mut self.report, &path)
    }

    fn read_run_tests(&mut self, reading: Reading<'_, '_>, tests: &Yaml) -> Option<RunTestsNode> {
        let Reading { name, section, .. } = reading;
        let keys = ["artifact", "runner", "attempt"];
        let parts = Section::read(&mut self.report, tests, "`run_tests`", &keys)?;
        let written = self.flow.before(name);
        let artifact = parts.require(&mut self.report, "artifact", "the field with the files");
        let artifact = artifact.and_then(|it| self.expression(it, &written));
        let runner = parts.require(&mut self.report, "runner", "write `runner: pytest`");
        let runner = runner.and_then(|it| self.read_runner(it));
        let attempt = parts.get("attempt").and_then(|it| {
            let attempt = self.expression(it, &written)?;
            self.expect_type(it, attempt.ty(), &Type::Int, "the number of an attempt");
            Some(attempt)
        });
        let help = "name one of `sandboxes`: code of a model runs nowhere else";
        let sandbox = section.require(&mut self.report, "in", help);
        let sandbox = sandbox.and_then(|it| self.report.word(it, "`in`"));
        let settings = sandbox.as_ref().and_then(|it| self.sandboxes.get(&it.text).cloned());
        match &sandbox {
            Some(word) if settings.is_none() => {
                let known = self.sandboxes.keys().map(String::as_str);
                self.report.unknown("GR015", "sandbox", word, known);
            }
            Some(word) => self.uses("sandboxes", &word.text),
            None => (),
        }
        let help = "say which output goes to which field: `writes: { result: test_result }`";
        let writes = section.require(&mut self.report, "writes", help);
        let writes = writes.map(|it| self.read_outputs(it)).unwrap_or_default();
        Some(RunTestsNode {
            artifact: artifact?,
            runner: runner?,
            attempt,
            sandbox: settings?,
            writes,
        })
    }

    fn read_runner(&mut self, yaml: &Yaml) -> Option<Runner> {
        let word = self.report.word(yaml, "`runner`")?;
        let found = Runner::ALL.into_iter().find(|it| it.as_str() == word.text);
        if found.is_none() {
            let help = suggestion(&word.text, Runner::ALL.map(Runner::as_str)).unwrap_or_default();
            self.report.bad_value(&word, format!("there is no runner `{}`", word.text), &help);
        }
        found
    }

    /// `field: output`, or just the names of fields that are called as their outputs.
    fn read_outputs(&mut self, yaml: &Yaml) -> Vec<(ChannelName, TestOutput)> {
        let mut pairs: Vec<(Word, Word)> = Vec::new();
        if let Data::Map(entries) = &yaml.data {
            for Entry { key, value } in entries {
                pairs.extend(self.report.word(value, "an output").map(|it| (key.clone(), it)));
            }
        } else {
            let words = self.report.words(yaml, "`writes`");
            pairs.extend(words.into_iter().map(|it| (it.clone(), it)));
        }
        let mut writes = Vec::new();
        for (field, output) in pairs {
            let channel = self.report.channel(&field, &self.schema);
            let found = TestOutput::ALL.into_iter().find(|it| it.as_str() == output.text);
            let Some(found) = found else {
                let names = TestOutput::ALL.map(TestOutput::as_str);
                let help = suggestion(&output.text, names).unwrap_or_default();
                let message = format!("a run of tests gives no `{}`", output.text);
                self.report.bad_value(&output, message, &help);
                continue;
            };
            if let Some(channel) = channel {
                self.check_output(&field, &channel, found);
                writes.push((channel, found));
            }
        }
        writes
    }

    fn check_output(&mut self, field: &Word, channel: &ChannelName, output: TestOutput) {
        let given = match output {
            TestOutput::Status => Type::Enum(vec!["passed".into(), "needs_review".into()]),
            TestOutput::Attempts => Type::Int,
            TestOutput::TestResult | TestOutput::CodeArtifact => return,
        };
        let declared = self.schema.channel(channel.as_str()).map_or(&Type::Any, |it| it.ty());
        if !fits(&given, declared) {
            let message =
                format!("`{}` is `{given}`, and `{channel}` is `{declared}`", output.as_str());
            let place = self.report.place(&field.range);
            self.report.push(Diagnostic::error("GR022", message).at(place, "another type"));
        }
    }

    fn read_ask(
        &mut self,
        reading: Reading<'_, '_>,
        question: &Yaml,
        bounded: bool,
    ) -> Option<AskNode> {
        let Reading { name, section, .. } = reading;
        let prompt = LoadedPrompt::inline(&mut self.report, question, "`ask`");
        if let Some(prompt) = &prompt {
            self.check_prompt(prompt, name, bounded);
        }
        let show = section.get("show");
        let show = show.map(|it| self.report.channels(it, "`show`", &self.schema));
        let writes = section.get("writes").and_then(|it| self.report.word(it, "`writes`"));
        let writes = writes.and_then(|it| self.report.channel(&it, &self.schema));
        let choices = section.get("choices").map(|it| self.report.words(it, "`choices`"));
        let choices = choices.unwrap_or_default();
        if let Some(channel) = &writes {
            self.check_choices(&choices, channel);
        }
        Some(AskNode {
            prompt: prompt?.prompt,
            show: show.unwrap_or_default(),
            choices: choices.into_iter().map(|it| it.text).collect(),
            writes,
        })
    }

    fn check_choices(&mut self, choices: &[Word], channel: &ChannelName) {
        let ty = self.schema.channel(channel.as_str()).map_or(Type::Any, |it| it.ty().clone());
        for choice in choices {
            if fits(&Type::Enum(vec![choice.text.clone()]), &ty) {
                continue;
            }
            let place = self.report.place(&choice.range);
            let finding = match values_of(&ty) {
                Some(values) => {
                    let message = format!("\"{}\" is never a value of `{ty}`", choice.text);
                    let help = suggestion(&choice.text, values.iter().map(String::as_str));
                    let finding = Diagnostic::error("GR023", message).at(place, "no such value");
                    Diagnostic { help, ..finding }
                }
                None => {
                    let message = format!("a choice is a text, and `{channel}` is `{ty}`");
                    Diagnostic::error("GR022", message).at(place, "another type")
                }
            };
            self.report.push(finding);
        }
    }

    fn read_set(&mut self, reading: Reading<'_, '_>, yaml: &Yaml) -> Option<SetNode> {
        let Data::Map(entries) = &yaml.data else {
            self.report.wrong_kind(yaml, "`set`", "a mapping from fields to expressions");
            return None;
        };
        let written = self.flow.before(reading.name);
        let mut sets = Vec::new();
        for Entry { key, value } in entries {
            let channel = self.report.channel(key, &self.schema);
            let expression = self.expression(value, &written);
            let (Some(channel), Some(expression)) = (channel, expression) else { continue };
            self.check_set(value, &channel, expression.ty());
            sets.push((channel, expression));
        }
        Some(SetNode { sets })
    }

    fn check_set(&mut self, yaml: &Yaml, channel: &ChannelName, ty: &Type) {
        let Some(declared) = self.schema.channel(channel.as_str()) else { return };
        let item = match (declared.reducer(), declared.ty()) {
            (Reducer::Append | Reducer::Union, Type::List(item)) => fits(ty, item),
            // A part of the value; the whole is checked once it is folded.
            (Reducer::Merge | Reducer::Messages | Reducer::Custom(_), _) => true,
            _ => false,
        };
        if !item {
            let declared = declared.ty().clone();
            self.expect_type(yaml, ty, &declared, &format!("`{channel}`"));
        }
    }

    fn expect_type(&mut self, yaml: &Yaml, ty: &Type, declared: &Type, what: &str) {
        if !fits(ty, declared) {
            let message = format!("{what} is `{declared}`, and this is {}", describe(ty));
            let place = self.report.place(&yaml.range);
            self.report.push(Diagnostic::error("GR022", message).at(place, "another type"));
        }
    }

    fn read_write_files(
        &mut self,
        reading: Reading<'_, '_>,
        yaml: &Yaml,
        bounded: bool,
    ) -> Option<WriteFilesNode> {
        let keys = ["to", "files", "documents", "report"];
        let parts = Section::read(&mut self.report, yaml, "`write_files`", &keys)?;
        let written = self.flow.before(reading.name);
        let to = parts.require(&mut self.report, "to", "write `to: output.dir`");
        let to = to.and_then(|it| {
            let to = self.expression_with_output(it, &written)?;
            self.expect_type(it, to.ty(), &Type::String, "a folder");
            Some(to)
        });
        let files = parts.get("files").and_then(|it| {
            let files = self.expression(it, &written)?;
            if !matches!(files.ty(), Type::List(_) | Type::Map(_) | Type::Any) {
                let message =
                    format!("`files` is a list of files, and this is {}", describe(files.ty()));
                let place = self.report.place(&it.range);
                self.report.push(Diagnostic::error("GR022", message).at(place, "no list"));
            }
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
        Some(WriteFilesNode { to: to?, files, documents, report: report.map(|it| it.prompt) })
    }

    fn read_custom(&mut self, yaml: &Yaml) -> Option<NodeKind> {
        let name = self.report.word(yaml, "`node`")?;
        if self.registry.custom(&name.text).is_some() {
            return Some(NodeKind::Custom(name.text));
        }
        let help = suggestion(&name.text, self.registry.nodes())
            .unwrap_or_else(|| "a Rust program registers nodes; none is registered".to_owned());
        let message = format!("no node `{}` is registered", name.text);
        let place = self.report.place(&name.range);
        self.report
            .push(Diagnostic::error("GR010", message).at(place, "not registered").help(help));
        None
    }
}
