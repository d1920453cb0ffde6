//! The changes that an editor makes: renames with their references, fixes and layout.

use super::*;

/// The texts of the places that name the same as the marked place, each with its line.
fn references(editor: &mut Editor, marked: &str, with_declaration: bool) -> Vec<String> {
    let uri = editor.uri("marked.yaml");
    let (text, position) = unmarked(marked);
    editor.open(&uri, &text);
    let context = json!({"includeDeclaration": with_declaration});
    let params = json!({"textDocument": {"uri": uri}, "position": position, "context": context});
    let answer = editor.ask("textDocument/references", params)["result"].take();
    let place = |place: &Value| {
        let line = number(&place["range"]["start"]["line"]);
        if place["uri"] == json!(uri) {
            format!("{line}: {}", within(&text, &place["range"]))
        } else {
            format!("{} {line}", place["uri"].as_str().unwrap().rsplit('/').next().unwrap())
        }
    };
    answer.as_array().into_iter().flatten().map(place).collect()
}

/// The text after the edits of an answer to one document.
pub(super) fn edited(text: &str, edits: &Value) -> String {
    let offset = |position: &Value| {
        let line = number(&position["line"]);
        let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let rest: Vec<u16> = text[start..].encode_utf16().collect();
        start + String::from_utf16_lossy(&rest[..number(&position["character"])]).len()
    };
    let mut edits: Vec<(usize, usize, &str)> = edits
        .as_array()
        .unwrap()
        .iter()
        .map(|edit| {
            let range = &edit["range"];
            (offset(&range["start"]), offset(&range["end"]), edit["newText"].as_str().unwrap())
        })
        .collect();
    edits.sort_unstable();
    let mut changed = text.to_owned();
    for (start, end, new) in edits.into_iter().rev() {
        changed.replace_range(start..end, new);
    }
    changed
}

#[test]
fn references_are_found_in_the_workflow_and_in_its_prompts() {
    let mut editor = Editor::start();
    editor.write(
        "prompts/write.md",
        "First\n{{ brief }} {% for brief in review.notes %}{{ brief }}{% endfor %}",
    );
    let prompt = "prompt: { text: \"{{ brief }} {{ visit }}\" }";
    let with_file = |marked: &str| marked.replace(prompt, "prompt: prompts/write.md");
    let mut of = |part: &str, marked: &str| references(&mut editor, &team(part, marked), true);
    assert_eq!(of("to: judge", "to: ju§dge"), ["22: judge", "24: judge"]);
    assert_eq!(of("  judge:\n", "  §judge:\n"), ["22: judge", "24: judge"]);
    assert_eq!(
        of("start: write", "start: w§rite"),
        ["10: write", "12: write", "23: write", "25: write"]
    );
    assert_eq!(of("agent: writer", "agent: wri§ter"), ["9: writer", "14: writer"]);
    assert_eq!(of("model: fast", "model: §fast"), ["7: fast", "9: fast"]);
    assert_eq!(of("tries < 3", "tri§es < 3"), ["5: tries", "20: tries", "23: tries", "25: tries"]);
    // `note` belongs to the expression alone.
    assert_eq!(of("note.level", "no§te.level"), [""; 0]);
    let marked = with_file(&team("input: brief", "input: br§ief"));
    assert_eq!(references(&mut editor, &marked, true), ["3: brief", "6: brief", "write.md 1"]);
    assert_eq!(references(&mut editor, &marked, false), ["6: brief", "write.md 1"]);
}

/// An expression stands in the place of a list here.
#[test]
fn the_expression_of_the_choices_of_a_question_is_found() {
    let mut editor = Editor::start();
    let marked = "graphrun: 1
name: asks
state: { opt§ions: '[string]', answer: string? }
input: options
output: answer
start: ask
nodes:
  ask: { ask: Which one?, choices: 'options.map(it, it + \"!\")', writes: answer, then: end }
";
    let found = references(&mut editor, marked, true);
    assert_eq!(found, ["2: options", "3: options", "7: options"]);
}

#[test]
fn a_pipe_in_place_of_a_prompt_is_not_read() {
    let mut editor = Editor::start();
    let path = editor.write("prompts/write.md", "");
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let prompt = "prompt: { text: \"{{ brief }} {{ visit }}\" }";
    let marked = team("input: brief", "input: br§ief").replace(prompt, "prompt: prompts/write.md");
    assert_eq!(references(&mut editor, &marked, true), ["3: brief", "6: brief"]);
}

#[test]
fn a_rename_changes_every_place_and_nothing_else() {
    let mut editor = Editor::start();
    let uri = editor.uri("marked.yaml");
    let prompt = editor.uri("prompts/write.md");
    let template = "{{ tries }}: {{ brief }} tries {{ visits('write') }}";
    editor.write("prompts/write.md", template);
    let text = team("prompt: { text: \"{{ brief }} {{ visit }}\" }", "prompt: prompts/write.md");
    editor.open(&uri, &text);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0]);
    let mut rename = |part: &str, new: &str| {
        let line = text.lines().position(|it| it.contains(part)).unwrap();
        let character = text.lines().nth(line).unwrap().find(part).unwrap() + part.len();
        let position = json!({"line": line, "character": character});
        let place = json!({"textDocument": {"uri": uri}, "position": position});
        let can = editor.ask("textDocument/prepareRename", place.clone())["result"].take();
        let mut params = place;
        params["newName"] = json!(new);
        (can, editor.ask("textDocument/rename", params))
    };
    let (can, answer) = rename("  tries", "attempts");
    assert_eq!(within(&text, &can), "tries");
    let changes = &answer["result"]["changes"];
    let expected = text.replace("tries", "attempts");
    assert_eq!(edited(&text, &changes[&uri]), expected);
    assert_eq!(
        edited(template, &changes[&prompt]),
        "{{ attempts }}: {{ brief }} tries {{ visits('write') }}"
    );
    let (_, answer) = rename("start: write", "draft");
    let changes = &answer["result"]["changes"];
    let new = edited(&text, &changes[&uri]);
    for part in
        ["start: draft", "\n  draft:\n", "then: draft }", "visits(\"draft\")", "agent: writer"]
    {
        assert!(new.contains(part), "{part} is missing in {new}");
    }
    assert!(edited(template, &changes[&prompt]).contains("visits('draft')"));
    for (part, new, reason) in [
        ("start: write", "judge", "there is `judge` already"),
        ("start: write", "end", "another meaning"),
        ("start: write", "a b", "a b"),
        ("  tries", "via", "`via` means something else"),
        ("  tries", "new-tries", "cannot contain `-`"),
        ("exhausted: fail", "x", "not declared"),
        ("graphrun", "x", "no name"),
    ] {
        let (_, answer) = rename(part, new);
        let message = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(reason), "{part}: {answer}");
    }
    let (can, _) = rename("graphrun", "x");
    assert_eq!(can, Value::Null);
}

/// The file of a node without `prompt`, in another workflow, too.
#[test]
fn a_rename_reaches_default_prompts_and_refuses_shared_ones() {
    let mut editor = Editor::start();
    let (uri, prompt) = (editor.uri("marked.yaml"), editor.uri("prompts/write.md"));
    let template = "{{ brief }} {{ tries }}";
    editor.write("prompts/write.md", template);
    let text = team("    prompt: { text: \"{{ brief }} {{ visit }}\" }\n", "");
    editor.open(&uri, &text);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0]);
    let line = text.lines().position(|it| it.contains("  tries:")).unwrap();
    let params = json!({
        "textDocument": {"uri": uri},
        "position": {"line": line, "character": 3},
        "newName": "attempts",
    });
    let changes = editor.ask("textDocument/rename", params.clone())["result"]["changes"].take();
    assert_eq!(edited(template, &changes[&prompt]), "{{ brief }} {{ attempts }}");
    editor.open(&editor.uri("other.yaml"), &text);
    let refused = editor.ask("textDocument/rename", params);
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("prompts/write.md") && message.contains("other.yaml"), "{refused}");
}

/// A workflow with a named type, whose fields are named in expressions, prompts and records.
const TASKS: &str = r#"graphrun: 1
name: tasks
types:
  Task: { title: string, by: { title: string } }
state:
  tasks: [Task]
  best: { type: Task, default: { title: a, by: { title: b } } }
  titles: { type: [string], merge: append, default: [] }
  title: { type: string, default: "title" }
input: tasks
output: [best, titles, title]
start: pick
nodes:
  pick:
    set: { best: 'Task{ title: tasks.map(it, it.title).join(title), by: { title: "title" } }', title: best.by.title }
    then: each
  each: { map: { over: tasks, as: task, do: one }, then: say }
  one: { set: { titles: task.title } }
  say: { render: prompts/say.md, writes: title, then: end }
"#;

#[test]
fn a_field_of_a_named_type_is_renamed_in_every_place() {
    let mut editor = Editor::start();
    let uri = editor.uri("tasks.yaml");
    let prompt = editor.uri("prompts/say.md");
    let template = "{{ best.title }} of {{ best.by.title }}: title {{ title }} {% for it in tasks %}{{ it.title }}{% endfor %}";
    editor.write("prompts/say.md", template);
    editor.open(&uri, TASKS);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0]);
    editor.open(&prompt, template);
    let position = |text: &str, behind: &str| {
        let at = text.find(behind).unwrap() + behind.len();
        let line = text[..at].matches('\n').count();
        json!({"line": line, "character": at - text[..at].rfind('\n').map_or(0, |it| it + 1)})
    };
    let mut rename = |uri: &str, text: &str, behind: &str| {
        let document = json!({"uri": uri});
        let params = json!({"textDocument": document, "position": position(text, behind), "newName": "name"});
        editor.ask("textDocument/rename", params)
    };
    let mut new = TASKS.to_owned();
    for (old, changed) in [
        ("Task: { title", "Task: { name"),
        ("default: { title", "default: { name"),
        ("Task{ title", "Task{ name"),
        ("it.title", "it.name"),
        ("titles: task.title", "titles: task.name"),
    ] {
        assert_eq!(new.matches(old).count(), 1, "{old}");
        new = new.replace(old, changed);
    }
    let new_template = template.replace("best.title", "best.name").replace("it.title", "it.name");
    for (from, text, behind) in
        [(&uri, TASKS, "Task: { tit"), (&uri, TASKS, "it.tit"), (&prompt, template, "best.tit")]
    {
        let changes = rename(from, text, behind)["result"]["changes"].take();
        assert_eq!(edited(TASKS, &changes[&uri]), new, "{behind}");
        assert_eq!(edited(template, &changes[&prompt]), new_template, "{behind}");
    }
    let changes = rename(&prompt, template, "best.by.tit")["result"]["changes"].take();
    assert_eq!(edited(template, &changes[&prompt]), template.replace("by.title", "by.name"));
    // The result of a call has a type that the search does not know.
    let by_call = TASKS.replace("title: best.by.title }", "title: '(tasks + [best])[0].title' }");
    let by_call = by_call.replace("(tasks + [best])[0].title", "(true ? best : best).title");
    editor.change(&uri, &by_call);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0]);
    let params = json!({"textDocument": {"uri": uri}, "position": position(&by_call, "Task: { tit"), "newName": "name"});
    let answer = editor.ask("textDocument/rename", params);
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("also depends on `title`: change the name by hand"), "{answer}");
}

#[test]
fn a_named_type_is_found_and_renamed_in_every_place() {
    let mut editor = Editor::start();
    editor.write("prompts/say.md", "{{ best.title }}");
    let marked = TASKS.replace("tasks: [Task]", "tasks: [Ta§sk]");
    assert!(editor.hover(&marked).starts_with("**Task**: type"), "{}", editor.hover(&marked));
    let places = references(&mut editor, &marked, true);
    assert_eq!(places, ["3: Task", "5: Task", "6: Task", "14: Task"]);
    let uri = editor.uri("tasks.yaml");
    editor.open(&uri, TASKS);
    let position = json!({"line": 5, "character": 12});
    let params = json!({"textDocument": {"uri": uri}, "position": position, "newName": "Job"});
    let answer = editor.ask("textDocument/rename", params);
    let changed = edited(TASKS, &answer["result"]["changes"][&uri]);
    assert_eq!(changed, TASKS.replace("Task", "Job"));

    // An escape of YAML is a part of the name.
    let escaped = TASKS
        .replace("'Task{", "\"\\x54ask{")
        .replace("title: \"title\" } }'", "title: 'title' } }\"");
    editor.change(&uri, &escaped);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0]);
    let params = json!({"textDocument": {"uri": uri}, "position": position, "newName": "Job"});
    let answer = editor.ask("textDocument/rename", params);
    let changed = edited(&escaped, &answer["result"]["changes"][&uri]);
    assert_eq!(changed, escaped.replace("\\x54ask", "Job").replace("Task", "Job"));
}

#[test]
fn a_name_that_other_files_or_values_share_is_not_renamed() {
    let mut editor = Editor::start();
    let part = "graphrun: 1\nname: part\nstate: { text: string, short: string, own: string }\ninput: text\n\
        output: short\nstart: cut\nnodes:\n  cut: { set: { short: text, own: text }, then: end }\n";
    let user = "graphrun: 1\nname: user\nstate: { a: string, b: string }\ninput: a\noutput: b\nstart: u\n\
        nodes:\n  u: { use: { workflow: part.yaml, in: { text: a }, out: { b: short } }, then: end }\n";
    let by_enum = "graphrun: 1\nname: by_enum\nstate: { next: left | right }\noutput: next\nstart: go\nnodes:\n  \
        go: { set: { next: '\"left\"' }, then: { match: next } }\n  left: { set: { next: '\"right\"' }, then: end }\n  \
        right: { set: { next: '\"left\"' }, then: end }\n";
    editor.write("user.yaml", user);
    editor.write("part.yaml", part);
    for (name, text, at, refused) in [
        ("part.yaml", part, "{ text", "user.yaml"),
        ("part.yaml", part, "short", "user.yaml"),
        ("part.yaml", part, "own", ""),
        ("by_enum.yaml", by_enum, "  left", "an enum has the value `left`"),
        ("by_enum.yaml", by_enum, "  go", ""),
    ] {
        let uri = editor.uri(name);
        editor.open(&uri, text);
        let at = text.find(at).unwrap() + at.len();
        let line = text[..at].matches('\n').count();
        let start = text[..at].rfind('\n').unwrap() + 1;
        let position = json!({"line": line, "character": at - start});
        let params =
            json!({"textDocument": {"uri": uri}, "position": position, "newName": "other"});
        let answer = editor.ask("textDocument/rename", params);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(refused), "{name}: {answer}");
        assert_eq!(message.is_empty(), refused.is_empty(), "{name}: {answer}");
    }
}

/// The titles of the fixes for a text, and the text after the first one.
pub(super) fn fixed(editor: &mut Editor, name: &str, text: &str) -> (Vec<String>, String) {
    let uri = editor.uri(name);
    editor.open(&uri, text);
    let diagnostics = editor.diagnostics(&uri);
    let mut titles = Vec::new();
    let mut changed = text.to_owned();
    for diagnostic in &diagnostics {
        let params = json!({
            "textDocument": {"uri": uri}, "range": diagnostic["range"], "context": {"diagnostics": []}
        });
        let actions = editor.ask("textDocument/codeAction", params)["result"].take();
        for action in actions.as_array().unwrap() {
            if titles.is_empty() {
                assert_eq!(action["kind"], "quickfix");
                assert_eq!(action["diagnostics"][0]["code"], diagnostic["code"]);
                changed = edited(text, &action["edit"]["changes"][&uri]);
            }
            titles.push(action["title"].as_str().unwrap().to_owned());
        }
    }
    editor.close(&uri);
    (titles, changed)
}

#[test]
fn a_fix_is_offered_if_it_mends_the_file() {
    let mut editor = Editor::start();
    for (part, wrong, title, mended) in [
        ("then: write }", "then: wirte }", "Replace by `write`", "then: write }"),
        ("agent: writer", "agent: wrter", "Replace by `writer`", "agent: writer"),
        ("writes: review", "writes: reveiw", "Replace by `review`", "writes: review"),
        ("max_visits: 3", "max_visit: 3", "Replace by `max_visits`", "max_visits: 3"),
        ("tries < 3", "tris < 3", "Replace by `tries`", "tries < 3"),
        ("== \"major\"", "== \"majr\"", "Replace by `major`", "== \"major\""),
        ("merge: sum", "merge: smu", "Replace by `sum`", "merge: sum"),
        (
            "{{ brief }} {{ visit }}",
            "{{ breif }} {{ visit }}",
            "Replace by `brief`",
            "{{ brief }} {{ visit }}",
        ),
        ("then: write }", "retry: 3, then: write }", "Remove `retry`", "then: write }"),
        ("then: write }", "then: write, retry: 3 }", "Remove `retry`", "then: write }"),
        (
            "then: write }",
            "then: write, retry: { attempts: 3, on: [\"tool\"] } }",
            "Remove `retry`",
            "then: write }",
        ),
        (
            "then: write }",
            "retry: { attempts: 3 }, then: write }",
            "Remove `retry`",
            "then: write }",
        ),
        (
            "{{ brief }} {{ visit }}",
            "{brief} {{ brief }} {{ visit }}",
            "Replace by `{{ brief }}`",
            "{{ brief }} {{ brief }} {{ visit }}",
        ),
    ] {
        let text = team(part, wrong);
        let (titles, changed) = fixed(&mut editor, "team.yaml", &text);
        assert_eq!(titles.first().map(String::as_str), Some(title), "{wrong}");
        assert_eq!(changed, text.replacen(wrong, mended, 1), "{wrong}");
    }
    // The advice does not always mend the file.
    let (titles, _) = fixed(&mut editor, "team.yaml", &team("start: write\n", ""));
    assert_eq!(titles, [""; 0]);
}

/// A name of another kind leads to the name that fits.
#[test]
fn a_fix_is_offered_for_a_name_of_another_kind() {
    let mut editor = Editor::start();
    editor.write("prompts/say.md", "{{ title }}");
    for (text, part, wrong, new) in [
        (TEAM, "agent: writer", "agent: write", "writer"),
        (TEAM, "then: write }", "then: writer }", "write"),
        (TEAM, "then: write }", "then: review }", "write"),
        (TEAM, "to: judge", "to: tries", "count"),
        (TEAM, "tries < 3", "judge < 3", "tries"),
        (TEAM, "start: write", "start: review", "write"),
        (TEAM, "{ match: review.verdict", "{ match: write.verdict", "review"),
        (TASKS, "best: { type: Task", "best: { type: tasks", "Task"),
        (TASKS, "tasks: [Task]", "tasks: [pick]", "Task"),
    ] {
        assert_eq!(text.matches(part).count(), 1, "{part}");
        let (titles, _) = fixed(&mut editor, "team.yaml", &text.replacen(part, wrong, 1));
        let title = format!("Replace by `{new}`");
        assert!(titles.contains(&title), "{wrong}: {titles:?}");
    }
}

#[test]
fn a_document_is_laid_out_as_by_the_command() {
    let mut editor = Editor::start();
    let uri = editor.uri("team.yaml");
    let mut format = |text: &str| {
        editor.open(&uri, text);
        let params = json!({"textDocument": {"uri": uri}, "options": {"tabSize": 8}});
        editor.ask("textDocument/formatting", params)["result"].take()
    };
    assert_eq!(format(TEAM), json!([]));
    let crooked = TEAM.replace("{ tries: 1 }", "{tries:   1}").replace("about: W", "about:   W");
    assert_eq!(edited(&crooked, &format(&crooked)), TEAM);
    assert_eq!(format("graphrun: 1\na: [1\n"), Value::Null, "it cannot be read");
    assert_eq!(format("services: {a:   1}\n"), Value::Null, "it is not ours");
}
