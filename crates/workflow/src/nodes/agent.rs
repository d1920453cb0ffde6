//! `agent`: asks a model.

use super::{PROMPT_KEYS, Reading};
use crate::{
    AgentNode,
    lower::Lowering,
    prompt::LoadedPrompt,
    reader::{Data, Yaml},
    shape::Section,
};

impl Lowering<'_> {
    pub(super) fn read_agent_node(
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
        for prompt in [&system, &prompt].into_iter().flatten() {
            self.check_prompt(prompt, name, bounded);
        }
        if let Some(again) = &again {
            self.check_prompt_again(again, name, bounded);
        }
        let help = "name the field for its answer";
        let writes = section.require(&mut self.report, "writes", help);
        let writes = writes.map(|it| self.report.channels(it, "`writes`", &self.schema));
        let repair = section.get("repair").and_then(|it| self.report.count(it, "`repair`", 0));
        let (agent, found) = (agent?, found?);
        Some(AgentNode {
            agent: agent.text,
            models: found.models,
            system: system.map(|it| self.prompt_of(it)),
            prompt: self.prompt_of(prompt?),
            prompt_again: again.map(|it| self.prompt_of(it)),
            temperature: found.temperature,
            tools: found.tools,
            tools_root: self.tools_root.clone(),
            tool_rounds_max: found.tool_rounds_max,
            writes: writes?,
            repairs_max: repair.unwrap_or(self.defaults.repairs_max),
        })
    }

    /// Reads the prompt of the first visit, and that of later ones if it differs.
    fn read_prompts(
        &mut self,
        Reading { key, section, .. }: Reading<'_, '_>,
    ) -> (Option<LoadedPrompt>, Option<LoadedPrompt>) {
        let Some(yaml) = section.get("prompt") else {
            return (self.prompts.load_default(&mut self.report, key), None);
        };
        if !matches!(yaml.data, Data::Map(_)) {
            return (self.read_prompt(yaml), None);
        }
        let Some(parts) = Section::read(&mut self.report, yaml, "`prompt`", PROMPT_KEYS) else {
            return (None, None);
        };
        if let Some(text) = parts.get("text") {
            for part in parts.keys().filter(|it| it.text != "text") {
                self.report.bad_value(part, "`text` is the whole prompt", "remove one of them");
            }
            return (LoadedPrompt::inline(&mut self.report, text, "`prompt`"), None);
        }
        let first = parts.require(&mut self.report, "first", "the prompt of the first visit");
        let again = parts.require(&mut self.report, "again", "the prompt of later visits");
        let first = first.and_then(|it| self.read_prompt(it));
        (first, again.and_then(|it| self.read_prompt(it)))
    }

    pub(crate) fn read_prompt(&mut self, yaml: &Yaml) -> Option<LoadedPrompt> {
        let path = self.report.word(yaml, "the path of a prompt")?;
        self.prompts.load(&mut self.report, &path)
    }
}
