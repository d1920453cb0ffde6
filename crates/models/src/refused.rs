//! Parameters that a provider has rejected by name, and rejected forms of structured output. The process remembers them
//! for each account and model, so that each costs one request.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{LazyLock, Mutex, PoisonError},
};

use serde_json::Value;

use super::{
    error::ModelError,
    provider::{OutputMode, Parameter, Profile, Protocol, SystemRole, TokenLimit},
};

/// The most models whose rejections are remembered. Beyond it, all are forgotten, and learnt again.
const MODELS_MAX: usize = 1024;

/// The words of a message about a parameter that a provider does not take.
const REJECTIONS: [&str; 18] = [
    "not support",
    "unsupported",
    "not permitted",
    "not allowed",
    "forbidden",
    "unknown",
    "unrecognized",
    "unexpected",
    "cannot find field",
    "not available",
    "not a valid",
    "invalid parameter",
    "no longer",
    "deprecated",
    "must be verified",
    "may only be set",
    "cannot both",
    "supported values are",
];

static KNOWN: LazyLock<Mutex<BTreeMap<String, RefusedParameters>>> = LazyLock::new(Mutex::default);

/// What a model of an account rejects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RefusedParameters {
    parameters: BTreeSet<Parameter>,
    token_limits: BTreeSet<TokenLimit>,
    /// The roles of instructions.
    roles: BTreeSet<SystemRole>,
    /// The form of output after rejections, for requests without tools and with them: some providers accept fewer forms
    /// beside tools.
    outputs: BTreeMap<bool, OutputMode>,
    /// The most tokens of an answer that it allows, if more were asked for.
    tokens_max: Option<u32>,
    /// Whether that number was learnt for the current request. A provider that names another one each time is asked once.
    has_learnt_tokens: bool,
}

impl RefusedParameters {
    /// Returns what the model of this name is known to reject.
    pub(super) fn known(name: &str) -> Self {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(name).cloned().unwrap_or_default();
        Self { has_learnt_tokens: false, ..known }
    }

    pub(super) fn has(&self, parameter: Parameter) -> bool {
        self.parameters.contains(&parameter)
    }

    /// Returns the role of the instructions, or the next one that the provider accepts.
    pub(super) fn system_role(&self, first: SystemRole) -> SystemRole {
        if self.roles.contains(&first) { SystemRole::User } else { first }
    }

    /// Returns the form of output to begin with, if the table of the provider begins with this one.
    pub(super) fn output(&self, has_tools: bool, first: OutputMode) -> OutputMode {
        self.outputs.get(&has_tools).map_or(first, |learnt| first.max(*learnt))
    }

    /// Learns that the provider rejects all forms of output before this one.
    pub(super) fn learn_output(&mut self, name: &str, has_tools: bool, output: OutputMode) {
        self.outputs.insert(has_tools, output);
        self.remember(name);
    }

    /// Returns the name of the token limit that the provider accepts, if any.
    pub(super) fn token_limit(&self, first: TokenLimit) -> Option<TokenLimit> {
        [first, first.other()].into_iter().find(|it| !self.token_limits.contains(it))
    }

    /// Learns from a rejection of this request. Returns the part of the request to leave out from now on; `None` if the
    /// rejection names none, or one that is known: it was sent nevertheless, and would be again.
    pub(super) fn learn(
        &mut self,
        name: &str,
        error: &ModelError,
        body: &Value,
        profile: &Profile,
    ) -> Option<&'static str> {
        let ModelError::BadRequest { status: 400 | 422, message } = error.reason() else {
            return None;
        };
        let message = message.to_lowercase();
        let is_less = |it: &u32| self.tokens_max.is_none_or(|most| *it < most);
        if let Some(most) = tokens_max(&message).filter(is_less).filter(|_| !self.has_learnt_tokens)
        {
            (self.tokens_max, self.has_learnt_tokens) = (Some(most), true);
            self.remember(name);
            return Some("max_tokens");
        }
        let thinks = has_word(&message, "thinking") && message.contains("input should be");
        if !thinks && !REJECTIONS.iter().any(|it| message.contains(it)) {
            return None;
        }
        if let Some(role) = sent_role(body).filter(|it| rejects_role(&message, *it)) {
            let is_new = self.roles.insert(role);
            self.remember(name);
            return is_new.then_some("role");
        }
        let is_sent = |name: &str| {
            let is_in = |it: &Value| it.get(name).is_some();
            is_in(body) || body.as_object().into_iter().flatten().any(|(_, it)| is_in(it))
        };
        let names_sent = |name: &str| is_sent(name) && has_word(&message, &name.to_lowercase());
        let limits = TokenLimit::ALL.iter().copied();
        // A message about one of the two names may recommend the other, and only one was sent.
        let is_chat = profile.protocol == Protocol::Chat;
        let limit = limits.into_iter().find(|it| is_chat && names_sent(it.as_str()));
        let (is_new, learnt) = if let Some(limit) = limit {
            (self.token_limits.insert(limit), limit.as_str())
        } else {
            let parameters = Parameter::ALL.iter().copied();
            let mut named = parameters.clone().filter(|it| names_sent(profile.name_of(*it)));
            // Of two that exclude each other, the first one stays.
            let excluded = usize::from(message.contains("cannot both"));
            // Messages often name the action instead.
            let is_meant = |parameter: &Parameter| {
                let word = match parameter {
                    Parameter::Stream => "streaming",
                    Parameter::ReasoningEffort => "thinking",
                    _ => return false,
                };
                has_word(&message, word) && is_sent(profile.name_of(*parameter))
            };
            let parameter = named.nth(excluded).or_else(|| parameters.clone().find(is_meant))?;
            (self.parameters.insert(parameter), parameter.as_str())
        };
        self.remember(name);
        is_new.then_some(learnt)
    }

    /// Adds the rejections to those of the process.
    fn remember(&self, name: &str) {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MODELS_MAX && !known.contains_key(name) {
            known.clear();
        }
        // Another request may have learnt something else in the meantime.
        let all = known.entry(name.to_owned()).or_default();
        all.parameters.extend(&self.parameters);
        all.token_limits.extend(&self.token_limits);
        all.roles.extend(&self.roles);
        for (has_tools, output) in &self.outputs {
            all.outputs.insert(*has_tools, all.output(*has_tools, *output));
        }
        all.tokens_max = [all.tokens_max, self.tokens_max].into_iter().flatten().min();
    }

    /// Returns the number of tokens to ask for at most.
    pub(super) fn most_tokens(&self, tokens: u32) -> u32 {
        self.tokens_max.map_or(tokens, |most| tokens.min(most))
    }

    /// Returns the rejected parameters as text: requests that differ in them have different keys.
    pub(super) fn key(&self) -> String {
        let parameters = self.parameters.iter().map(|it| it.as_str());
        let all = parameters.chain(self.token_limits.iter().map(|it| it.as_str()));
        let all = all.chain(self.roles.iter().map(|it| it.as_str()));
        let key: String = all.flat_map(|it| ["/without-", it]).collect();
        key + &self.tokens_max.map(|it| format!("/tokens-{it}")).unwrap_or_default()
    }
}

/// Returns the role of the instructions in a request, if they have one that a model may lack.
fn sent_role(body: &Value) -> Option<SystemRole> {
    let messages = ["messages", "input"].iter().find_map(|it| body.get(*it)?.as_array())?;
    let roles = [SystemRole::System, SystemRole::Developer];
    roles.into_iter().find(|role| messages.iter().any(|it| it["role"] == role.as_str()))
}

/// Returns whether a rejection is about this role, as in `'messages[0].role' does not support 'system' with this model`.
fn rejects_role(message: &str, role: SystemRole) -> bool {
    has_word(message, "role") && has_word(message, role.as_str())
}

/// Returns the most tokens that a provider allows, from its words `max_tokens: 32000 > 8192, which is the maximum …` or
/// `max_tokens is too large: 32000. This model supports at most 16384 completion tokens`.
fn tokens_max(message: &str) -> Option<u32> {
    let rest = match message.split_once("supports at most ") {
        Some((start, rest)) if start.contains("too large") => rest,
        _ => {
            let (_, rest) = message.split_once("max_tokens: ")?;
            let (asked, rest) = rest.split_once(" > ")?;
            asked.parse::<u32>().ok()?;
            rest
        }
    };
    let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok().filter(|it| *it > 0)
}

/// Returns whether a text has a word that is not part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rejection_names_a_parameter_that_was_sent() {
        let body = json!({
            "temperature": 0.5, "seed": 7, "stream": true, "max_tokens": 5,
            "tool_choice": "required", "parallel_tool_calls": false,
        });
        for (message, expected) in [
            (
                "Unsupported value: 'temperature' does not support 0.5 with this model.",
                Some("temperature"),
            ),
            (
                "[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"seed\"],\"msg\":\"Extra inputs are not permitted\"}]",
                Some("seed"),
            ),
            (
                "Invalid JSON payload received. Unknown name \"seed\": Cannot find field.",
                Some("seed"),
            ),
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                Some("max_tokens"),
            ),
            ("Streaming is not supported by this model: set stream to false", Some("stream")),
            ("Streaming is not supported.", Some("stream")),
            ("Your organization must be verified to stream this model.", Some("stream")),
            ("Unsupported parameter: 'top_p'", None),
            ("stream_options is not supported", None),
            ("Unsupported parameter: 'parallel_tool_calls'", Some("parallel_tool_calls")),
            ("deepseek-reasoner does not support this tool_choice", Some("tool_choice")),
            ("the seed of the discussion is a text", None),
        ] {
            let error = ModelError::BadRequest { status: 400, message: message.to_owned() };
            let learnt =
                RefusedParameters::default().learn(message, &error, &body, &Profile::default());
            assert_eq!(learnt, expected, "{message}");
        }
        // The other protocols have own names, and put parameters into an object.
        let body = json!({"generationConfig": {"topP": 0.5}, "max_tokens": 32000});
        let profile = Profile { protocol: Protocol::Gemini, ..Profile::default() };
        let message = "Unknown name \"topP\" at 'generation_config': Cannot find field.".to_owned();
        let error = ModelError::BadRequest { status: 400, message };
        let mut refused = RefusedParameters::default();
        assert_eq!(refused.learn("topP", &error, &body, &profile), Some("top_p"));
        let body = json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}, "max_tokens": 32000});
        let profile = Profile { protocol: Protocol::Anthropic, ..Profile::default() };
        let message = "tool_choice.disable_parallel_tool_use: Extra inputs are not permitted";
        let error = ModelError::BadRequest { status: 400, message: message.to_owned() };
        let learnt = refused.learn("parallel", &error, &body, &profile);
        assert_eq!(learnt, Some("parallel_tool_calls"));
        let message = "max_tokens: 32000 > 8192, which is the maximum allowed number".to_owned();
        let error = ModelError::BadRequest { status: 400, message };
        assert_eq!(refused.learn("most", &error, &body, &profile), Some("max_tokens"));
        assert_eq!((refused.most_tokens(32_000), refused.most_tokens(50)), (8192, 50));
        assert_eq!(
            refused.learn("most", &error, &body, &profile),
            None,
            "it was sent nevertheless"
        );
        let other = ModelError::BadRequest { status: 404, message: "unknown seed".into() };
        assert_eq!(
            RefusedParameters::default().learn("x", &other, &body, &Profile::default()),
            None
        );
    }

    /// Returns what a model learns from its first rejections of requests with this body.
    fn learnt_from(
        name: &str,
        body: &Value,
        protocol: Protocol,
        message: &str,
    ) -> Vec<&'static str> {
        let profile = Profile { protocol, ..Profile::default() };
        let error = ModelError::BadRequest { status: 400, message: message.to_owned() };
        let mut refused = RefusedParameters::default();
        (0..3).map_while(|_| refused.learn(name, &error, body, &profile)).collect()
    }

    #[test]
    fn the_documented_rejections_are_learnt_once() {
        let anthropic = json!({
            "temperature": 0.5, "top_p": 0.9, "max_tokens": 32000, "thinking": {"type": "adaptive"},
            "output_config": {"effort": "low"},
        });
        let gemini = json!({"generationConfig": {"thinkingConfig": {"thinkingLevel": "high"}}});
        let role = |role: &str| json!({"messages": [{"role": role, "content": "Be brief."}]});
        let chat =
            json!({"max_tokens": 32000, "reasoning_effort": "xhigh", "tool_choice": "required"});
        for (body, protocol, message, expected) in [
            (
                &anthropic,
                Protocol::Anthropic,
                "`temperature` may only be set to 1 when thinking is enabled",
                "temperature",
            ),
            (
                &anthropic,
                Protocol::Anthropic,
                "`temperature` and `top_p` cannot both be specified for this model",
                "top_p",
            ),
            (
                &anthropic,
                Protocol::Anthropic,
                "adaptive thinking is not supported on this model",
                "reasoning_effort",
            ),
            (
                &anthropic,
                Protocol::Anthropic,
                "thinking.type: Input should be 'enabled' or 'disabled'",
                "reasoning_effort",
            ),
            (
                &anthropic,
                Protocol::Anthropic,
                "max_tokens: 32000 > 31999, which is the maximum",
                "max_tokens",
            ),
            (
                &gemini,
                Protocol::Gemini,
                "Thinking level is not supported for this model",
                "reasoning_effort",
            ),
            (
                &chat,
                Protocol::Chat,
                "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.",
                "max_tokens",
            ),
            (
                &chat,
                Protocol::Chat,
                "Invalid value for 'reasoning_effort': 'xhigh'. Supported values are: 'low', 'medium', and 'high'.",
                "reasoning_effort",
            ),
            (
                &chat,
                Protocol::Chat,
                "`tool_choice` is not supported when thinking is enabled",
                "tool_choice",
            ),
            (
                &role("system"),
                Protocol::Chat,
                "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
                "role",
            ),
            (
                &role("developer"),
                Protocol::Chat,
                "Unsupported value: 'messages[0].role' does not support 'developer' with this model.",
                "role",
            ),
        ] {
            assert_eq!(learnt_from(message, body, protocol, message), [expected], "{message}");
        }
        // Another maximum each time.
        let mut refused = RefusedParameters::default();
        let mut learn = |most: u32| {
            let message = format!("max_tokens: {} > {most}, which is the maximum", most + 1);
            let error = ModelError::BadRequest { status: 400, message };
            refused.learn("less and less", &error, &chat, &Profile::default())
        };
        assert_eq!([learn(9), learn(8)], [Some("max_tokens"), None]);
    }

    #[test]
    fn a_rejected_token_limit_is_sent_under_its_other_name() {
        let mut refused = RefusedParameters::default();
        assert_eq!(refused.token_limit(TokenLimit::MaxTokens), Some(TokenLimit::MaxTokens));
        refused.token_limits.insert(TokenLimit::MaxTokens);
        assert_eq!(
            refused.token_limit(TokenLimit::MaxTokens),
            Some(TokenLimit::MaxCompletionTokens)
        );
        refused.token_limits.insert(TokenLimit::MaxCompletionTokens);
        assert_eq!(refused.token_limit(TokenLimit::MaxTokens), None);
    }
}
