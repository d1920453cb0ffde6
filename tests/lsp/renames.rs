//! Renames of names in places that the search can easily miss, and of names that other files share.

use super::{
    changes::{edited, fixed},
    *,
};

/// Returns the marked text after the name at its mark got another name, or the reason of a refusal.
fn renamed(editor: &mut Editor, name: &str, marked: &str, new: &str) -> Result<String, String> {
    let (text, position) = unmarked(marked);
    let uri = editor.uri(name);
    editor.open(&uri, &text);
    let params = json!({"textDocument": {"uri": uri}, "position": position, "newName": new});
    let answer = editor.ask("textDocument/rename", params);
    match answer["error"]["message"].as_str() {
        Some(message) => Err(message.to_owned()),
        None => Ok(edited(&text, &answer["result"]["changes"][&uri])),
    }
}

/// Returns a small workflow with a part in place of one of its lines.
fn workflow(part: &str, other: &str) -> String {
    const WORKFLOW: &str = r#"graphrun: 1
name: small
types: { open: { k: string } }
state: { a: string, b: string, c: { type: string, default: "" }, d: "open?", e: "open | closed" }
input: [a, b, d, e]
output: [c]
start: s1
nodes:
  s1: { set: { c: a + b + e }, when: b == a, then: s2 }
  s2: { set: { c: 'has(d) ? d.k : ""' }, then: end }
"#;
    assert_eq!(WORKFLOW.matches(part).count(), 1, "{part}");
    WORKFLOW.replacen(part, other, 1)
}

/// A text in an expression stays, with the escapes of YAML and those of the expression.
#[test]
fn a_rename_keeps_texts_in_quotes() {
    let mut editor = Editor::start();
    for (when, expected) in [
        (r"'b == ''a'' || b == a'", r"'b == ''a'' || b == z'"),
        (r#"b != "say \"a\" now" || a == b"#, r#"b != "say \"a\" now" || z == b"#),
        (r#"'b != "say \"a\" now" || a == b'"#, r#"'b != "say \"a\" now" || z == b'"#),
        (r#""b != \"say \\\"a\\\" now\" || a == b""#, r#""b != \"say \\\"a\\\" now\" || z == b""#),
        (r#""\x61 == b""#, r#""z == b""#),
        (r"'b == ''it\''s a'' || a == b'", r"'b == ''it\''s a'' || z == b'"),
    ] {
        let text = workflow("when: b == a", &format!("when: {when}"));
        let marked = text.replace("state: { a:", "state: { §a:");
        let expected = text
            .replace(when, expected)
            .replace("state: { a:", "state: { z:")
            .replace("[a, b", "[z, b")
            .replace("c: a +", "c: z +");
        assert_eq!(renamed(&mut editor, "w.yaml", &marked, "z").as_deref(), Ok(&*expected));
        assert_eq!(editor.diagnostics(&editor.uri("w.yaml")), [Value::Null; 0], "{text}");
    }
}

#[test]
fn a_rename_keeps_the_text_of_templates() {
    let mut editor = Editor::start();
    for (template, expected) in [
        (
            "\"{% raw %}{{ a }}{% endraw %} {{ a }} a\"",
            "\"{% raw %}{{ a }}{% endraw %} {{ z }} a\"",
        ),
        (r#""{{ 'it\\'s a' }} {{ a }}""#, r#""{{ 'it\\'s a' }} {{ z }}""#),
        (r#"'{{ "a }} a" ~ a }}'"#, r#"'{{ "a }} a" ~ z }}'"#),
    ] {
        let text = workflow("set: { c: a + b + e }", &format!("ask: {template}, writes: c"));
        let marked = text.replace("state: { a:", "state: { §a:");
        let new = renamed(&mut editor, "w.yaml", &marked, "z").unwrap();
        assert!(new.contains(expected), "{new}");
    }
}

#[test]
fn a_node_is_renamed_where_via_is_compared_with_it() {
    let mut editor = Editor::start();
    for (when, expected) in [
        ("via.node == \"s1\"", "via.node == \"x\""),
        ("'\"s1\" != via.node'", "'\"x\" != via.node'"),
        ("'via.node in [\"s2\", \"s1\"]'", "'via.node in [\"s2\", \"x\"]'"),
        ("a == \"s1\"", "a == \"s1\""),
    ] {
        let end = ", then: end }";
        let text = workflow(end, &format!(", when: {when}{end}"));
        let new = renamed(&mut editor, "w.yaml", &text.replace("start: s1", "start: §s1"), "x");
        let new = new.unwrap();
        assert!(new.contains(&format!("when: {expected},")), "{new}");
    }
    let template = "\"{% if via.node == 's1' %}s1{% endif %}\"";
    let text =
        workflow("set: { c: 'has(d) ? d.k : \"\"' }", &format!("ask: {template}, writes: c"));
    let new =
        renamed(&mut editor, "w.yaml", &text.replace("start: s1", "start: §s1"), "x").unwrap();
    assert!(new.contains("{% if via.node == 'x' %}s1{% endif %}"), "{new}");
}

#[test]
fn the_values_of_an_enum_stay_when_a_type_is_renamed() {
    let mut editor = Editor::start();
    let text = workflow("name: small", "name: small");
    let marked = text.replace("types: { open", "types: { §open");
    let expected = text.replace("types: { open", "types: { z").replace("d: \"open?\"", "d: \"z?\"");
    assert_eq!(renamed(&mut editor, "w.yaml", &marked, "z"), Ok(expected));
}

#[test]
fn a_comment_in_brackets_stays_when_a_name_is_renamed() {
    let mut editor = Editor::start();
    let text = workflow("input: [a, b, d, e]", "input: [\n  a # then a, b\n  , b, d, e\n]");
    let marked = text.replace(" b: string", " §b: string");
    let new = renamed(&mut editor, "w.yaml", &marked, "z").unwrap();
    assert!(new.contains("[\n  a # then a, b\n  , z, d"), "{new}");
}

/// The names of nodes in a workflow that uses this one, and in one that uses that.
#[test]
fn a_node_that_users_of_its_workflow_name_is_not_renamed() {
    let user = "graphrun: 1\nname: user\nstate: { a: string, c: string, n: { type: int, default: 0 } }\ninput: a\n\
        output: [c, n]\nstart: sub\nnodes:\n  \
        sub: { use: { workflow: w.yaml, in: { a: a, b: a, e: a }, out: { c: c } }, then: fin }\n  \
        fin: { set: { n: '1' }, then: end }\n";
    let outer = "graphrun: 1\nname: outer\nstate: { a: string, c: string, n: { type: int, default: 0 } }\ninput: a\n\
        output: [c, n]\nstart: whole\nnodes:\n  \
        whole: { use: { workflow: user.yaml, in: { a: a }, out: { c: c } }, then: fin }\n  \
        fin: { set: { n: visits(\"whole.sub.s1\") }, then: end }\n";
    let by_name = |name: &str| user.replace("n: '1'", &format!("n: {name}"));
    let cases = "graphrun_test: 1\ninput: { a: x }\ncases:\n  - { name: x, route: [sub, sub.s1, sub.s2, sub.end, fin] }\n";
    let prompt = user.replace("set: { n: '1' }", "render: prompts/sure.md, writes: c");
    for (files, expected) in [
        (&[("user.yaml", &*by_name("visits(\"sub.s1\")"))][..], Some(("user.yaml", "sub.s1"))),
        (&[("user.yaml", &*by_name("visits(\"sub.s2\")"))], None),
        // The text contains the name in a comment alone.
        (&[("user.yaml", &*by_name("'1' } # sub.s1").replace("# sub.s1 }", "# sub.s1"))], None),
        (&[("user.yaml", user), ("user.test.yaml", cases)], Some(("user.test.yaml", "sub.s1"))),
        (
            &[("user.yaml", &*prompt), ("prompts/sure.md", "{{ visits('sub.s1') }}")],
            Some(("sure.md", "sub.s1")),
        ),
        (&[("user.yaml", user), ("outer.yaml", outer)], Some(("outer.yaml", "whole.sub.s1"))),
        (&[("user.yaml", user)], None),
        // The name of a node in it.
        (
            &[("user.yaml", user), ("user.test.yaml", &*cases.replace("sub.s1", "sub.s1.x"))],
            Some(("user.test.yaml", "sub.s1")),
        ),
    ] {
        let mut editor = Editor::start();
        for (name, text) in files {
            editor.write(name, text);
        }
        let text = workflow("start: s1", "start: §s1");
        let result = renamed(&mut editor, "w.yaml", &text, "x");
        match expected {
            None => drop(result.unwrap()),
            Some((file, name)) => {
                let message = result.unwrap_err();
                let is_named = message.contains(file) && message.contains(&format!("`{name}`"));
                assert!(is_named, "{message}");
            }
        }
    }
    // A field that is neither input nor output.
    let mut editor = Editor::start();
    editor.write("user.yaml", user);
    let text = workflow("state: {", "state: { inner: { type: string, default: \"\" },");
    let marked = text.replace("{ inner", "{ §inner");
    drop(renamed(&mut editor, "w.yaml", &marked, "x").unwrap());
    let named =
        cases.replace("route: [sub, sub.s1, sub.s2, sub.end, fin]", "state: { sub.inner: x }");
    editor.write("user.test.yaml", &named);
    let message = renamed(&mut editor, "w.yaml", &marked, "x").unwrap_err();
    assert!(message.contains("user.test.yaml") && message.contains("`sub.inner`"), "{message}");
}

#[test]
fn a_node_with_inner_nodes_is_renamed_in_their_names() {
    let mut editor = Editor::start();
    editor.write("w.yaml", &workflow("name: small", "name: small"));
    let user = "graphrun: 1\nname: user\nstate: { a: string, c: string, n: { type: int, default: 0 } }\ninput: a\n\
        output: [c, n]\nstart: sub\nnodes:\n  \
        sub: { use: { workflow: w.yaml, in: { a: a, b: a, e: '\"open\"' }, out: { c: c } }, then: fin }\n  \
        fin: { set: { n: visits(\"sub.s1\") }, when: via.node != \"sub.end\", then: end }\n";
    let marked = user.replace("start: sub", "start: §sub");
    let expected =
        user.replace("start: sub", "start: x").replace("  sub:", "  x:").replace("\"sub.", "\"x.");
    assert_eq!(renamed(&mut editor, "user.yaml", &marked, "x"), Ok(expected));
}

#[test]
fn a_prompt_that_a_workflow_on_the_disk_has_is_not_changed() {
    let mut editor = Editor::start();
    editor.write("prompts/sure.md", "{{ a }}");
    let text = workflow("set: { c: a + b + e }", "render: prompts/sure.md, writes: c");
    let marked = text.replace("state: { a:", "state: { §a:");
    assert!(renamed(&mut editor, "w.yaml", &marked, "z").is_ok());
    editor.write("other.yaml", &text);
    let message = renamed(&mut editor, "w.yaml", &marked, "z").unwrap_err();
    assert!(message.contains("sure.md") && message.contains("other.yaml"), "{message}");
}

/// An editor shows a text without the mark, and counts from the first character behind it.
#[test]
fn a_byte_order_mark_moves_no_edit() {
    let mut editor = Editor::start();
    editor.write("prompts/sure.md", "\u{feff}{{ a }} {{ b }}\n");
    let text = workflow("set: { c: a + b + e }", "render: prompts/sure.md, writes: c");
    let (text, position) = unmarked(&text.replace("state: { a:", "state: { §a:"));
    let (uri, prompt) = (editor.uri("w.yaml"), editor.uri("prompts/sure.md"));
    editor.open(&uri, &text);
    let params = json!({"textDocument": {"uri": uri}, "position": position, "newName": "z"});
    let changes = editor.ask("textDocument/rename", params)["result"]["changes"].take();
    assert_eq!(edited("{{ a }} {{ b }}\n", &changes[&prompt]), "{{ z }} {{ b }}\n");

    // A mark before the first key, which declares names.
    let rest = "nodes:\n  s1: { set: { c: a }, then: end }\n";
    let text = format!(
        "\u{feff}state: {{ a: string, c: string }}\ngraphrun: 1\nname: w\ninput: a\noutput: c\nstart: s1\n{rest}"
    );
    let marked = text.replace("state: { a:", "state: { §a:");
    let new = renamed(&mut editor, "marked.yaml", &marked, "z").unwrap();
    assert!(new.starts_with("\u{feff}state: { z:") && new.contains("set: { c: z }"), "{new}");
}

#[test]
fn hover_and_completion_read_escaped_quotes() {
    let mut editor = Editor::start();
    let mut hover = |when: &str| editor.hover(&workflow("when: b == a", &format!("when: {when}")));
    assert!(hover("'visits(''s§1'') > 1'").starts_with("**s1**"));
    assert!(hover("\"visits(\\\"s§1\\\") > 1\"").starts_with("**s1**"));
    assert!(hover("'b == ''it\\''s'' || a§ == b'").starts_with("**a**"));
    assert!(!hover("'b == ''it\\''s a§'' || a == b'").contains("**a**"));
    let mut offers = |when: &str| {
        let text = workflow("when: b == a", &format!("when: {when}"));
        editor.completions(&text).join(" ")
    };
    assert_eq!(offers("'visits(''§'') > 1'"), "s1 s2");
    assert_eq!(offers("\"visits(\\\"§\\\") > 1\""), "s1 s2");
    assert_eq!(offers("via.node == \"§\""), "s1 s2");
    assert_eq!(offers("'e == ''§'''"), "open closed");
    assert!(offers("\"e == §\"").starts_with("'open' 'closed'"));
    assert!(offers("'e == §'").starts_with("\"open\" \"closed\""));
}

/// The text after the completion with a label at the mark.
fn completed(editor: &mut Editor, marked: &str, label: &str) -> String {
    let (text, _) = unmarked(marked);
    let items = editor.at_mark("completion", marked);
    let item = items.as_array().unwrap().iter().find(|it| it["label"] == label).unwrap();
    edited(&text, &json!([item["textEdit"]]))
}

#[test]
fn a_completed_key_replaces_the_key_under_the_cursor() {
    let mut editor = Editor::start();
    for (part, expected) in [
        ("    \"wh§\": ok\n", "    \"when\": ok\n"),
        ("    'wh§en': ok\n", "    'when': ok\n"),
        ("    \"wh§\n", "    \"when\": \n"),
        ("    wh§at: ok\n", "    when: ok\n"),
        ("    wh§at : ok\n", "    when : ok\n"),
        ("    wh§\n", "    when: \n"),
        ("    wh§ ok\n", "    when:  ok\n"),
    ] {
        let with = |part: &str| team("    max_visits: 3\n", &format!("    max_visits: 3\n{part}"));
        assert_eq!(completed(&mut editor, &with(part), "when"), with(expected), "{part}");
    }
    let text = team("set: { tries: 1 }", "se§t: { tries: 1 }");
    assert_eq!(completed(&mut editor, &text, "set"), TEAM);
    let text = team("set: { tries: 1 }", "set: { t§ries: 1 }");
    assert_eq!(
        completed(&mut editor, &text, "brief"),
        team("set: { tries: 1 }", "set: { brief: 1 }")
    );
}

/// An alias elsewhere refers to it.
#[test]
fn a_fix_keeps_the_anchor_of_a_value() {
    let mut editor = Editor::start();
    let text = workflow("then: s2 }", "then: &t edn }").replace(", then: end }", ", then: *t }");
    let (titles, changed) = fixed(&mut editor, "w.yaml", &text);
    assert_eq!(titles.first().map(String::as_str), Some("Replace by `end`"));
    assert_eq!(changed, text.replace("&t edn", "&t end"));
    let quoted = text.replace("&t edn", "&t \"edn\"");
    assert_eq!(fixed(&mut editor, "w.yaml", &quoted).1, quoted.replace("edn", "end"));
}

#[test]
fn fixes_are_bounded_and_of_the_wanted_kind() {
    let mut editor = Editor::start();
    let uri = editor.uri("w.yaml");
    let wrong = ", { when: a == b, to: edn }".repeat(40);
    let targets = format!("then: [{}, {{ to: end }}] }}", &wrong[2..]);
    let text = workflow("then: s2 }", &targets);
    editor.open(&uri, &text);
    let diagnostics = editor.diagnostics(&uri);
    let mut titles = |range: &Value, context: Value| -> Vec<String> {
        let document = json!({"uri": uri});
        let params = json!({"textDocument": document, "range": range, "context": context});
        let actions = editor.ask("textDocument/codeAction", params)["result"].take();
        let actions = actions.as_array().unwrap().iter();
        actions.map(|it| it["edit"]["changes"][&uri][0]["range"].to_string()).collect()
    };
    let last = diagnostics.iter().rfind(|it| it["code"] == "GR010").unwrap()["range"].clone();
    let whole = json!({"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}});
    assert_eq!(titles(&whole, json!({"diagnostics": []})).len(), 16);
    assert_eq!(titles(&last, json!({"diagnostics": []})), [last.to_string()]);
    let near = json!({"start": last["start"], "end": whole["end"]});
    assert_eq!(titles(&near, json!({"diagnostics": []})), [last.to_string()]);
    for (only, count) in
        [(json!(["quickfix"]), 1), (json!([""]), 1), (json!(["refactor", "quick"]), 0)]
    {
        let context = json!({"diagnostics": [], "only": only});
        assert_eq!(titles(&last, context.clone()).len(), count, "{context}");
    }
}
