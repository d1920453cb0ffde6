//! The settings of requests that a workflow chooses: sampling, limits, and parts of a single provider.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::provider::Parameter;

/// The settings of a request. A parameter that the provider does not take is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RequestSettings {
    /// How freely the model answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of the likeliest tokens that it chooses from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The seed of its random choices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The texts that end the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How much it reasons: one of [`EFFORTS`](Self::EFFORTS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The most tokens the answer may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Whether the model may call several tools at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tools: Option<bool>,
    /// Whether the provider keeps the beginning of the conversation for the next request. Most do so unasked.
    #[serde(skip_serializing_if = "is_false")]
    pub cache_prompt: bool,
    /// Headers of the request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Parameters that only some providers know.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra_body: Map<String, Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl RequestSettings {
    /// The words for how much a model reasons.
    pub const EFFORTS: &'static [&'static str] =
        &["none", "minimal", "low", "medium", "high", "xhigh"];

    /// The parameters of a request that are not part of `extra_body`, because graphrun sets them.
    pub const OWN_PARAMETERS: &'static [&'static str] = &[
        "model",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "stream",
        "stream_options",
        "n",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "reasoning_effort",
        "max_tokens",
        "max_completion_tokens",
    ];

    /// Returns these settings, completed by `those`. Headers and parameters are completed one by one.
    #[must_use]
    pub fn or(self, those: Self) -> Self {
        let mut headers = those.headers;
        let mut extra_body = those.extra_body;
        headers.extend(self.headers);
        extra_body.extend(self.extra_body);
        Self {
            temperature: self.temperature.or(those.temperature),
            top_p: self.top_p.or(those.top_p),
            seed: self.seed.or(those.seed),
            stop: if self.stop.is_empty() { those.stop } else { self.stop },
            effort: self.effort.or(those.effort),
            max_tokens: self.max_tokens.or(those.max_tokens),
            parallel_tools: self.parallel_tools.or(those.parallel_tools),
            cache_prompt: self.cache_prompt || those.cache_prompt,
            headers,
            extra_body,
        }
    }

    /// Returns the parameters that are given, with their values.
    pub fn parameters(&self) -> impl Iterator<Item = (Parameter, Value)> {
        let stop = (!self.stop.is_empty()).then(|| Value::from(self.stop.clone()));
        [
            (Parameter::Temperature, self.temperature.map(Value::from)),
            (Parameter::TopP, self.top_p.map(Value::from)),
            (Parameter::Seed, self.seed.map(Value::from)),
            (Parameter::Stop, stop),
            (Parameter::ReasoningEffort, self.effort.clone().map(Value::from)),
        ]
        .into_iter()
        .filter_map(|(parameter, value)| Some((parameter, value?)))
    }
}
