//! The results of calls, as tools of a workflow return them.

use serde_json::Value;

use crate::McpError;

/// Returns the result of a call: its structured content if the tool has a type of results, and else its texts.
pub(super) fn of_call(mut result: Value, is_structured: bool) -> Result<Value, McpError> {
    let text = texts(&result["content"]);
    if result["isError"] == Value::Bool(true) {
        let message =
            if text.is_empty() { "the tool failed without a reason".to_owned() } else { text };
        return Err(McpError::Failed { message });
    }
    Ok(if is_structured { result["structuredContent"].take() } else { text.into() })
}

/// Returns the text of a resource.
pub(super) fn of_resource(result: &Value) -> Value {
    texts(&result["contents"]).into()
}

/// Returns the texts among some parts, each beginning a line. Another part is named, since a model could not read it.
fn texts(parts: &Value) -> String {
    let part = |it: &Value| {
        let resource = it.get("resource").unwrap_or(it);
        if let Some(text) = resource["text"].as_str() {
            return text.to_owned();
        }
        let kind = it["type"].as_str().unwrap_or("resource");
        let about = ["uri", "mimeType"].map(|key| resource[key].as_str()).into_iter().flatten();
        let words: Vec<&str> = std::iter::once(kind).chain(about).collect();
        format!("[{}]", words.join(" "))
    };
    parts.as_array().into_iter().flatten().map(part).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_joined_and_other_parts_are_named() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
            {"type": "resource_link", "uri": "file:///b"},
        ]);
        let text = "one\n[image image/png]\ntwo\n[resource_link file:///b]";
        let result = json!({"content": content, "structuredContent": {"a": 1}});
        assert_eq!(of_call(result.clone(), false).unwrap(), json!(text));
        assert_eq!(of_call(result, true).unwrap(), json!({"a": 1}));
        let failed = json!({"content": content, "isError": true});
        assert_eq!(of_call(failed, true).unwrap_err().to_string(), text);
        let read = json!({"contents": [{"uri": "a", "text": "x"}, {"uri": "b", "blob": "AAAA"}]});
        assert_eq!(of_resource(&read), json!("x\n[resource b]"));
    }
}
