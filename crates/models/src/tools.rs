//! Tools as models see them: the offered tools and the calls.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::structured::{ExpectedKind, extract_candidates};

/// A tool that a model may call before it answers.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name of the tool. Characters that providers do not accept are replaced in requests.
    pub name: String,
    /// The purpose of the tool, for the model to choose by.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub schema: Value,
}

/// Whether a model may or must call the offered tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model may call tools.
    #[default]
    Auto,
    /// The model must call a tool.
    Required,
    /// The model must call the tool of this name.
    Tool(String),
    /// The model must answer now. The request still contains the tools of earlier calls, because
    /// some providers require them.
    None,
}

impl ToolChoice {
    /// Returns whether the model may call tools.
    pub fn allows_calls(&self) -> bool {
        *self != Self::None
    }

    /// Returns whether the model must call a tool.
    pub fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Tool(_))
    }
}

/// A call requested by a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// The id that the result refers to. Some providers leave it empty or use it twice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The tool, by the name of the offer.
    pub name: String,
    /// The arguments as the model wrote them; usually JSON.
    #[serde(default)]
    pub arguments: String,
    /// Data specific to this provider, which it requires back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

impl ToolCall {
    /// Reads the arguments: none at all, JSON, or JSON in a text.
    ///
    /// # Errors
    /// Returns a description of the problem that the model can act on.
    ///
    /// ```
    /// use graphrun_models::ToolCall;
    ///
    /// let call = |arguments: &str| ToolCall {
    ///     id: String::new(),
    ///     name: "now".into(),
    ///     arguments: arguments.into(),
    ///     extra: None,
    /// };
    /// assert_eq!(call("").input()?, serde_json::json!({}));
    /// assert_eq!(call(r#""{\"zone\": \"UTC\"}""#).input()?["zone"], "UTC");
    /// assert!(call("tomorrow").input().is_err());
    /// assert!(call(r#"{"zone": "UTC"}{"zone": "CET"}"#).input().is_err());
    /// # Ok::<(), String>(())
    /// ```
    pub fn input(&self) -> Result<Value, String> {
        if matches!(self.arguments.trim(), "" | "null") {
            return Ok(Value::Object(Map::new()));
        }
        let mut found =
            extract_candidates(&self.arguments, ExpectedKind::Object).map_err(|problem| {
                let why = serde_json::from_str::<Value>(&self.arguments);
                let why = why.map_or_else(|it| it.to_string(), |_| problem);
                format!("the arguments are not a JSON object: {why}")
            })?;
        if found.len() > 1 {
            let reason =
                "the arguments are several JSON objects that differ; call the tool once for each";
            return Err(reason.to_owned());
        }
        Ok(found.swap_remove(0).value)
    }
}
