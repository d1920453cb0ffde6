//! The results of calls, as tools of a workflow return them.

use graphrun_sandbox::clean_text;
use serde_json::{Value, json};

use crate::McpError;

/// Returns the result of a call: its structured content if the tool has a type of results, and else its texts. Some servers
/// send a tool without a type of results only structured content, which is then the text.
pub(super) fn of_call(mut result: Value, is_structured: bool) -> Result<Value, McpError> {
    let mut text = texts(&result["content"]);
    let structured = &result["structuredContent"];
    if text.is_empty() && !structured.is_null() {
        text = structured.to_string();
    }
    if result["isError"] == Value::Bool(true) {
        let message =
            if text.is_empty() { "the tool failed without a reason".to_owned() } else { text };
        return Err(McpError::Failed { message });
    }
    Ok(if is_structured { result["structuredContent"].take() } else { text.into() })
}

/// Returns the text of a prompt: the texts of its messages. If some are answers of a model, each begins with its role.
pub(super) fn of_prompt(result: &Value) -> Value {
    let messages: Vec<&Value> = result["messages"].as_array().into_iter().flatten().collect();
    let is_talk = messages.iter().any(|it| it["role"] != "user");
    let text = |message: &&Value| {
        let content = &message["content"];
        let text = if content.is_array() {
            texts(content)
        } else {
            texts(&Value::Array(vec![content.clone()]))
        };
        match message["role"].as_str().filter(|_| is_talk) {
            Some(role) => format!("{role}: {text}"),
            None => text,
        }
    };
    messages.iter().map(text).collect::<Vec<_>>().join("\n\n").into()
}

/// Returns resources or templates of their URIs, as a list of the workflow.
pub(super) fn of_list(listed: &[Value], uri: &str, is_allowed: impl Fn(&str) -> bool) -> Value {
    let text = |it: &Value| it.as_str().map(clean_text);
    let entry = |item: &Value| {
        let address = text(&item[uri]).filter(|it| is_allowed(it))?;
        let mut entry = json!({"uri": address, "name": text(&item["name"]).unwrap_or_default()});
        for (key, value) in [("about", "description"), ("media_type", "mimeType")] {
            if let Some(value) = text(&item[value]) {
                entry[key] = value.into();
            }
        }
        Some(entry)
    };
    listed.iter().filter_map(entry).collect::<Vec<_>>().into()
}

/// Returns the text of a resource.
pub(super) fn of_resource(result: &Value) -> Value {
    texts(&result["contents"]).into()
}

/// Returns the texts among some parts, each beginning a line. Another part is named, since a model could not read it.
fn texts(parts: &Value) -> String {
    let part = |item: &Value| {
        let resource = item.get("resource").unwrap_or(item);
        if let Some(text) = resource["text"].as_str() {
            return text.to_owned();
        }
        let kind = item["type"].as_str().unwrap_or("resource");
        let about = ["uri", "mimeType"].map(|key| resource[key].as_str()).into_iter().flatten();
        let words: Vec<&str> = std::iter::once(kind).chain(about).collect();
        format!("[{}]", words.join(" "))
    };
    parts.as_array().into_iter().flatten().map(part).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn structured_content_alone_is_the_text() {
        let result = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(of_call(result.clone(), false).unwrap(), json!(r#"{"a":1}"#));
        assert_eq!(of_call(result, true).unwrap(), json!({"a": 1}));
        let failed = json!({"structuredContent": {"reason": "busy"}, "isError": true});
        let error = of_call(failed, false).unwrap_err();
        assert_eq!(error.to_string(), r#"{"reason":"busy"}"#);
        assert_eq!(of_call(json!({"content": []}), false).unwrap(), json!(""));
    }

    #[test]
    fn a_prompt_is_a_text_with_roles_if_it_is_a_talk() {
        let user = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
        let plain = json!({"messages": [user("one"), user("two")]});
        assert_eq!(of_prompt(&plain), json!("one\n\ntwo"));
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let talk = json!({"messages": [user("one"), {"role": "assistant", "content": [image]}]});
        assert_eq!(of_prompt(&talk), json!("user: one\n\nassistant: [image image/png]"));
        assert_eq!(of_prompt(&json!({})), json!(""));
    }

    #[test]
    fn a_list_has_the_allowed_resources_only() {
        let listed = [
            json!({"uri": "note://a", "name": "a", "mimeType": "text/plain", "size": 3}),
            json!({"uri": "note://b", "name": "b"}),
            json!({"name": "without an address"}),
        ];
        let all = of_list(&listed, "uri", |_| true);
        assert_eq!(all[1], json!({"uri": "note://b", "name": "b"}));
        let some = of_list(&listed, "uri", |it| it.ends_with('a'));
        assert_eq!(some, json!([{"uri": "note://a", "name": "a", "media_type": "text/plain"}]));
    }

    #[test]
    fn texts_of_a_list_have_no_escape_sequences() {
        let name = "\u{1b}[31mred\u{1b}[0m \u{202e}gnp.exe\u{1b}]0;title\u{7}";
        let listed = [json!({"uri": "note://a", "name": name})];
        let list = of_list(&listed, "uri", |_| true);
        assert_eq!(list, json!([{"uri": "note://a", "name": "red gnp.exe"}]));
    }
}
