//! `graphrun lsp`, driven as an editor drives it: framed messages on stdin and stdout.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod cases;
mod changes;
mod renames;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use graphrun::diagnostic::CODES;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::changes::{edited, fixed};

/// An editor with one server.
struct Editor {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    requests: i64,
    /// The last diagnostics about each document.
    diagnostics: BTreeMap<String, Vec<Value>>,
    folder: TempDir,
}

impl Editor {
    /// Starts a server that nothing was said to yet.
    fn silent() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
        command.args(["lsp", "--stdio"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let folder = tempfile::tempdir().unwrap();
        Self { child, stdin, stdout, requests: 0, diagnostics: BTreeMap::new(), folder }
    }

    fn start() -> Self {
        let mut editor = Self::silent();
        let answer = editor.ask("initialize", json!({"processId": null, "capabilities": {}}));
        assert_eq!(answer["result"]["capabilities"]["textDocumentSync"]["change"], 1);
        editor.tell("initialized", json!({}));
        editor
    }

    fn send(&mut self, message: &Value) {
        let body = message.to_string();
        let stdin = self.stdin.as_mut().unwrap();
        write!(stdin, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stdin.flush().unwrap();
    }

    fn tell(&mut self, method: &str, params: impl Into<Value>) {
        let params: Value = params.into();
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// The whole answer to a request; notes the diagnostics published before it.
    fn ask(&mut self, method: &str, params: impl Into<Value>) -> Value {
        let params: Value = params.into();
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.read();
            assert_eq!(message["jsonrpc"], "2.0", "{message}");
            if message["method"] == "textDocument/publishDiagnostics" {
                let params = &message["params"];
                let list = params["diagnostics"].as_array().unwrap().clone();
                self.diagnostics.insert(params["uri"].as_str().unwrap().to_owned(), list);
            } else {
                assert_eq!(message["id"], id, "{message}");
                return message;
            }
        }
    }

    /// One message; anything else on stdout is an error.
    fn read(&mut self) -> Value {
        let mut length = None;
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).unwrap();
            assert!(read > 0, "the server went away: {}", self.stderr());
            let Some(header) = line.strip_suffix("\r\n") else { panic!("no header: {line:?}") };
            match header.split_once(": ") {
                Some(("Content-Length", value)) => length = Some(value.parse().unwrap()),
                None if header.is_empty() => break,
                _ => panic!("no header: {line:?}"),
            }
        }
        let mut body = vec![0; length.unwrap()];
        self.stdout.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn uri(&self, name: &str) -> String {
        uri_of(&self.folder.path().join(name))
    }

    fn open(&mut self, uri: &str, text: &str) {
        let document = json!({"uri": uri, "languageId": "yaml", "version": 1, "text": text});
        self.tell("textDocument/didOpen", json!({"textDocument": document}));
    }

    fn change(&mut self, uri: &str, text: &str) {
        let document = json!({"uri": uri, "version": 2});
        let params = json!({"textDocument": document, "contentChanges": [{"text": text}]});
        self.tell("textDocument/didChange", params);
    }

    fn close(&mut self, uri: &str) {
        self.tell("textDocument/didClose", json!({"textDocument": {"uri": uri}}));
    }

    /// The current diagnostics, after all earlier messages are processed.
    fn diagnostics(&mut self, uri: &str) -> Vec<Value> {
        self.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": uri}}));
        self.diagnostics.get(uri).cloned().unwrap_or_default()
    }

    /// Asks about the place that is marked with `§` in the text, which is opened without it.
    fn at_mark(&mut self, method: &str, marked: &str) -> Value {
        let uri = self.uri("marked.yaml");
        let (text, position) = unmarked(marked);
        self.open(&uri, &text);
        let params = json!({"textDocument": {"uri": uri}, "position": position});
        self.ask(&format!("textDocument/{method}"), params)["result"].take()
    }

    fn hover(&mut self, marked: &str) -> String {
        let hover = self.at_mark("hover", marked);
        hover["contents"]["value"].as_str().unwrap_or_default().to_owned()
    }

    /// The labels that begin as it is typed, as an editor filters them.
    fn completions(&mut self, marked: &str) -> Vec<String> {
        let (text, position) = unmarked(marked);
        let items = self.at_mark("completion", marked);
        let fits = |item: &&Value| {
            let range = &item["textEdit"]["range"];
            assert_eq!(range["end"], position);
            let line = text.split('\n').nth(number(&position["line"])).unwrap();
            let units: Vec<u16> = line.encode_utf16().collect();
            let at = |it: &Value| number(&it["character"]);
            let typed = String::from_utf16_lossy(&units[at(&range["start"])..at(&range["end"])]);
            item["filterText"].as_str().unwrap().starts_with(&typed)
        };
        let items = items.as_array().unwrap().iter().filter(fits);
        items.map(|it| it["label"].as_str().unwrap().to_owned()).collect()
    }

    /// The text that a definition points at, in the same file, or the name of another file.
    fn definition(&mut self, marked: &str) -> String {
        let (text, _) = unmarked(marked);
        let location = self.at_mark("definition", marked);
        let Some(uri) = location["uri"].as_str() else { return "none".to_owned() };
        if uri != self.uri("marked.yaml") {
            return uri.rsplit('/').next().unwrap().to_owned();
        }
        let line = number(&location["range"]["start"]["line"]);
        format!("{line}: {}", within(&text, &location["range"]))
    }

    fn end(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        let code = self.child.wait().unwrap().code();
        (code, self.stderr())
    }
}

/// The address as VS Code writes it.
fn uri_of(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap();
    format!("file://{}", path.to_str().unwrap().replace(' ', "%20"))
}

/// A text without its mark, and the position of the mark in UTF-16 units.
fn unmarked(marked: &str) -> (String, Value) {
    let (before, behind) = marked.split_once('§').unwrap();
    let line = before.rsplit('\n').next().unwrap();
    let position =
        json!({"line": before.matches('\n').count(), "character": line.encode_utf16().count()});
    (format!("{before}{behind}"), position)
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// The text of a range that lies in one line.
fn within(text: &str, range: &Value) -> String {
    let start = &range["start"];
    let end = &range["end"];
    assert_eq!(start["line"], end["line"], "{range}");
    let line = text.split('\n').nth(number(&start["line"])).unwrap();
    let units: Vec<u16> = line.encode_utf16().collect();
    let at = |it: &Value| number(&it["character"]);
    String::from_utf16(&units[at(start)..at(end)]).unwrap()
}

/// A workflow that is right.
const TEAM: &str = r#"graphrun: 1
name: team
state:
  brief: { type: string, about: What the customer wants. }
  review: { verdict: approved | rework, notes: [{ text: string, level: minor | major }] }
  tries: { type: int, default: 0, merge: sum }
input: brief
models: { fast: openai/gpt-4.1-mini }
agents:
  writer: { model: fast, temperature: 0.2 }
start: write
nodes:
  write:
    about: Writes it.
    agent: writer
    prompt: { text: "{{ brief }} {{ visit }}" }
    writes: review
    max_visits: 3
    exhausted: fail
    then:
      - when: review.notes.exists(note, note.level == "major") && tries < 3
        to: count
      - { to: judge }
  count: { set: { tries: 1 }, then: write }
  judge:
    set: { tries: 'visits("write")' }
    then: { match: review.verdict, to: { approved: end, rework: fail } }
"#;

/// The workflow with one part replaced by another, which may have a mark.
fn team(part: &str, other: &str) -> String {
    assert_eq!(TEAM.matches(part).count(), 1, "{part}");
    TEAM.replacen(part, other, 1)
}

#[test]
fn a_server_follows_the_protocol_from_start_to_end() {
    let mut editor = Editor::silent();
    let early = editor.ask("textDocument/hover", json!({}));
    assert_eq!(early["error"]["code"], -32002, "{early}");
    let answer = editor.ask("initialize", json!({"capabilities": {}}));
    assert_eq!(answer["result"]["serverInfo"]["name"], "graphrun");
    assert_eq!(editor.ask("initialize", json!({}))["error"]["code"], -32600);
    assert_eq!(editor.ask("textDocument/moniker", json!({}))["error"]["code"], -32601);
    assert_eq!(editor.ask("textDocument/hover", json!({"x": 1}))["error"]["code"], -32602);
    let nowhere =
        json!({"textDocument": {"uri": "file:///x"}, "position": {"line": 9, "character": 9}});
    assert_eq!(editor.ask("textDocument/hover", nowhere)["result"], Value::Null);
    editor.tell("$/setTrace", json!({"value": "off"}));
    editor.tell("textDocument/didOpen", json!({"nonsense": true}));
    assert_eq!(editor.ask("shutdown", Value::Null)["result"], Value::Null);
    assert_eq!(editor.ask("textDocument/hover", json!({}))["error"]["code"], -32600);
    editor.tell("exit", Value::Null);
    assert_eq!(editor.end(), (Some(0), String::new()));
}

#[test]
fn a_server_that_was_not_shut_down_ends_with_1() {
    let mut editor = Editor::start();
    editor.tell("exit", Value::Null);
    assert_eq!(editor.end(), (Some(1), String::new()));
    assert_eq!(Editor::start().end(), (Some(1), String::new()), "the editor went away");
}

#[test]
fn a_diagnostic_has_its_range_and_goes_when_it_is_mended() {
    let mut editor = Editor::start();
    let uri = editor.uri("team.yaml");
    let wrong = team("then: write }", "then: wirte }");
    editor.open(&uri, &wrong);
    let diagnostics = editor.diagnostics(&uri);
    let [diagnostic] = diagnostics.as_slice() else { panic!("{diagnostics:#?}") };
    assert_eq!(within(&wrong, &diagnostic["range"]), "wirte");
    assert_eq!(diagnostic["range"]["start"], json!({"line": 23, "character": 36}));
    assert_eq!(diagnostic["range"]["end"], json!({"line": 23, "character": 41}));
    assert_eq!((&diagnostic["code"], &diagnostic["severity"]), (&json!("GR010"), &json!(1)));
    assert_eq!(diagnostic["source"], "graphrun");
    let message =
        "there is no node `wirte`\nhelp: did you mean `write`?\nmore: graphrun explain GR010";
    assert_eq!(diagnostic["message"], message);
    editor.change(&uri, TEAM);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0]);
    assert!(editor.diagnostics.contains_key(&uri), "nothing was published");
    editor.change(&uri, &wrong);
    assert_eq!(editor.diagnostics(&uri).len(), 1);
    editor.close(&uri);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0], "it is closed");
}

#[test]
fn a_second_marker_is_related_information() {
    let mut editor = Editor::start();
    let uri = editor.uri("team.yaml");
    let wrong = team("start: write\n", "start: write\nstart: judge\n");
    editor.open(&uri, &wrong);
    let diagnostics = editor.diagnostics(&uri);
    let twice = diagnostics.iter().find(|it| it["code"] == "GR002").unwrap();
    assert_eq!(twice["range"]["start"]["line"], 11);
    let related = &twice["relatedInformation"][0];
    assert_eq!((&related["location"]["uri"], &related["message"]), (&json!(uri), &json!("first")));
    assert_eq!(related["location"]["range"]["start"], json!({"line": 10, "character": 0}));
}

#[test]
fn positions_are_counted_in_utf_16_units() {
    let mut editor = Editor::start();
    let uri = editor.uri("größe 😀.yaml");
    let wrong = team("then: write }", "about: \"ä😀\", then: \"😀ü\" }");
    editor.open(&uri, &wrong);
    let diagnostics = editor.diagnostics(&uri);
    let unknown = diagnostics.iter().find(|it| it["code"] == "GR010").unwrap();
    assert_eq!(within(&wrong, &unknown["range"]), "\"😀ü\"");
    assert_eq!(unknown["range"]["start"], json!({"line": 23, "character": 50}));
    assert_eq!(unknown["range"]["end"], json!({"line": 23, "character": 55}));
    let marked = team("start: write", "about: \"ä😀ö\" # 😀\nstart: wri§te");
    assert!(editor.hover(&marked).starts_with("**write**: agent writer"));
    let marked = team("- when: ", "- when: brief == \"ä😀ö\" || revi§ew.verdict == \"rework\" || ");
    assert!(editor.hover(&marked).starts_with("**review**"));
}

#[test]
fn diagnostics_are_those_of_validate() {
    let mut files: Vec<PathBuf> =
        fs::read_dir("tests/workflow/wrong").unwrap().map(|it| it.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "yaml"));
    files.sort();
    assert!(files.len() > 40, "only {} files", files.len());
    // The examples of the codes include diagnostics that need a compiled graph.
    let mut editor = Editor::start();
    let of_workflows = CODES.iter().filter(|it| !it.wrong().starts_with("graphrun_test:"));
    files.extend(of_workflows.map(|it| editor.write(&format!("{}.yaml", it.as_str()), it.wrong())));
    let mut validate = Command::new(env!("CARGO_BIN_EXE_graphrun"));
    let output = validate.args(["validate", "--output", "json"]).args(&files).output().unwrap();
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut codes = BTreeSet::new();
    for file in &files {
        let uri = uri_of(file);
        // Whether a document is a workflow is seen by these.
        let text = fs::read_to_string(file).unwrap();
        if !text.lines().any(|it| it.starts_with("graphrun:")) {
            continue;
        }
        editor.open(&uri, &text);
        let mut found: Vec<(String, u64)> = editor
            .diagnostics(&uri)
            .iter()
            .map(|diagnostic| {
                (
                    diagnostic["code"].as_str().unwrap().to_owned(),
                    1 + diagnostic["range"]["start"]["line"].as_u64().unwrap(),
                )
            })
            .collect();
        let of_file = |it: &&Value| Path::new(it["file"].as_str().unwrap()) == file;
        let mut expected: Vec<(String, u64)> = all
            .iter()
            .filter(of_file)
            .map(|diagnostic| {
                (
                    diagnostic["code"].as_str().unwrap().to_owned(),
                    diagnostic["line"].as_u64().unwrap_or(1),
                )
            })
            .collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{}", file.display());
        codes.extend(found.into_iter().map(|(code, _)| code));
        editor.close(&uri);
    }
    let compiled = ["GR030", "GR031", "GR032", "GR033"];
    assert!(compiled.iter().all(|it| codes.contains(*it)), "{codes:?}");
}

#[test]
fn diagnostics_of_prompts_use_unsaved_prompts() {
    let mut editor = Editor::start();
    let workflow =
        team("prompt: { text: \"{{ brief }} {{ visit }}\" }", "prompt: prompts/write.md");
    editor.write("prompts/write.md", "Größe: {{ breif }}");
    // The folder above that of the workflow belongs to its project.
    editor.write("graphrun.toml", "");
    let uri = editor.uri("graphs/team.yaml");
    let prompt = editor.uri("prompts/write.md");
    editor.open(&uri, &workflow);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0]);
    let found = editor.diagnostics(&prompt);
    assert_eq!(found[0]["code"], "GR041");
    assert_eq!(within("Größe: {{ breif }}", &found[0]["range"]), "breif");
    editor.open(&prompt, "Größe: {{ brief }}");
    assert_eq!(editor.diagnostics(&prompt), [Value::Null; 0]);
    editor.change(&prompt, "Größe: {{ brif }}");
    assert_eq!(editor.diagnostics(&prompt).len(), 1);
    editor.write("prompts/write.md", "{{ brief }}");
    editor.close(&prompt);
    assert_eq!(editor.diagnostics(&prompt), [Value::Null; 0], "the file on the disk is right");
    editor.write("prompts/write.md", "{{ brif }}");
    editor.tell("workspace/didChangeWatchedFiles", json!({"changes": []}));
    assert_eq!(editor.diagnostics(&prompt).len(), 1);
    editor.close(&uri);
    assert_eq!(editor.diagnostics(&prompt), [Value::Null; 0], "no workflow uses it");
}

#[test]
fn a_file_that_is_no_workflow_is_left_alone() {
    let mut editor = Editor::start();
    for (name, text) in [
        ("compose.yaml", "services: { a: { image: b } }"),
        ("notes.md", "graphrun: 1"),
        ("pipeline.yaml", "start: a\nnodes:\n  a: { image: b }\n"),
        ("team.test.yaml", "suites:\n  graphrun: 1\n"),
    ] {
        let uri = editor.uri(name);
        editor.open(&uri, text);
        assert_eq!(editor.diagnostics(&uri), [Value::Null; 0], "{name}");
        if Path::new(name).extension().is_some_and(|it| it == "md") {
            continue;
        }
        for method in ["hover", "completion", "definition", "prepareRename", "documentSymbol"] {
            let position = json!({"line": 0, "character": 1});
            let params = json!({"textDocument": {"uri": uri}, "position": position});
            let answer = editor.ask(&format!("textDocument/{method}"), params);
            assert_eq!(answer["result"], Value::Null, "{name}: {method}");
        }
    }
}

#[test]
fn hover_describes_a_name() {
    let mut editor = Editor::start();
    let mut hover = |part: &str, marked: &str| editor.hover(&team(part, marked));
    insta::assert_snapshot!(hover("to: judge", "to: ju§dge"), @"
    **judge**: set

    - writes `tries`
    ");
    insta::assert_snapshot!(hover("start: write", "start: §write"), @"
    **write**: agent writer

    Writes it.

    - writes `review`
    - at most 3 visits, then `fail`
    ");
    insta::assert_snapshot!(hover("  judge:\n", "  jud§ge:\n"), @"
    **judge**: set

    - writes `tries`
    ");
    insta::assert_snapshot!(hover("exhausted: fail", "exhausted: fai§l"), @"**fail**: the run has failed.");
    insta::assert_snapshot!(hover("input: brief", "input: br§ief"), @"
    **brief**: `string`

    What the customer wants.
    ");
    insta::assert_snapshot!(hover("set: { tries: 1 }", "set: { tr§ies: 1 }"), @"
    **tries**: `int`

    reducer `sum`: The numbers are added.

    starts as `0`

    written by `count`, `judge`
    ");
    insta::assert_snapshot!(hover("  review: {", "  re§view: {"), @"
    **review**: `{verdict: approved | rework, notes: [{text: string, level: minor | major}]}`

    - `verdict`: `approved | rework`
    - `notes`: `[{text: string, level: minor | major}]`

    written by `write`
    ");
    insta::assert_snapshot!(hover("match: review.verdict", "match: review.ver§dict"), @"**review.verdict**: `approved | rework`");
    insta::assert_snapshot!(hover("match: review.verdict", "match: rev§iew.verdict").lines().next().unwrap(), @"**review**: `{verdict: approved | rework, notes: [{text: string, level: minor | major}]}`");
    insta::assert_snapshot!(hover("note.level == \"major\"", "note.le§vel == \"major\""), @"**note.level**: `minor | major`");
    insta::assert_snapshot!(hover("notes.exists(", "notes.exi§sts("), @"
    **list.exists(x, condition)**

    Whether the condition holds for an item.

    example: `items.exists(item, item.done)`
    ");
    insta::assert_snapshot!(hover("visits(\"write\")", "visits(\"wr§ite\")").lines().next().unwrap(), @"**write**: agent writer");
    insta::assert_snapshot!(hover("{{ brief }}", "{{ bri§ef }}").lines().next().unwrap(), @"**brief**: `string`");
    insta::assert_snapshot!(hover("{{ visit }}", "{{ vi§sit }}"), @"
    **visit**

    How often the node has run since its count was last reset, this time included.
    ");
    insta::assert_snapshot!(hover("agent: writer", "agent: wri§ter"), @"
    **writer**: agent

    - model `fast`
    - temperature `0.2`
    ");
    insta::assert_snapshot!(hover("model: fast", "model: fa§st"), @"**fast**: model `openai/gpt-4.1-mini`");
    insta::assert_snapshot!(hover("max_visits: 3", "max§_visits: 3"), @"
    **max_visits**

    How often the node may run before its count is reset. Every loop needs such a bound: a number, or an `input`
    of the type `int` with `min` and `max`.
    ");
    insta::assert_snapshot!(hover("merge: sum", "merge: su§m"), @"
    **sum**

    The numbers are added.
    ");
    insta::assert_snapshot!(hover("rework: fail", "rew§ork: fail"), @"if `review.verdict` is `rework`");
    assert_eq!(hover("name: team", "name: te§am"), hover("name: team", "na§me: team"));
    assert_eq!(hover("start: write\n", "start: write\n§\n"), "");
}

#[test]
fn hover_knows_the_types_while_the_file_is_broken() {
    let mut editor = Editor::start();
    let uri = editor.uri("marked.yaml");
    editor.open(&uri, TEAM);
    let broken = team("match: review.verdict", "match: review.ver§dict").replace("fail }", "fail");
    assert_eq!(editor.hover(&broken), "**review.verdict**: `approved | rework`");
    assert_eq!(editor.diagnostics(&uri)[0]["code"], "GR001");
}

#[test]
fn a_name_leads_to_its_declaration() {
    let mut editor = Editor::start();
    editor.write("prompts/write.md", "{{ brief }}");
    let mut definition = |part: &str, marked: &str| editor.definition(&team(part, marked));
    assert_eq!(definition("to: judge", "to: ju§dge"), "24: judge");
    assert_eq!(definition("start: write", "start: writ§e"), "12: write");
    assert_eq!(definition("agent: writer", "agent: §writer"), "9: writer");
    assert_eq!(definition("model: fast", "model: fas§t"), "7: fast");
    assert_eq!(definition("writes: review", "writes: revi§ew"), "4: review");
    assert_eq!(definition("match: review.verdict", "match: rev§iew.verdict"), "4: review");
    assert_eq!(definition("match: review.verdict", "match: review.ver§dict"), "4: verdict");
    assert_eq!(definition("note.level", "note.le§vel"), "4: level");
    assert_eq!(definition("tries < 3", "tri§es < 3"), "5: tries");
    assert_eq!(definition("visits(\"write\")", "visits(\"wri§te\")"), "12: write");
    assert_eq!(definition("{{ brief }}", "{{ brie§f }}"), "3: brief");
    assert_eq!(definition("to: judge", "to: nobo§dy"), "none");
    assert_eq!(definition("approved: end", "approved: e§nd"), "none");
    let prompt = "prompt: { text: \"{{ brief }} {{ visit }}\" }";
    assert_eq!(definition(prompt, "prompt: prompts/wri§te.md"), "write.md");
    assert_eq!(definition(prompt, "prompt: prompts/no§ne.md"), "none");
}

#[test]
fn completion_offers_only_fitting_names() {
    let mut editor = Editor::start();
    editor.write("prompts/write.md", "");
    editor.write("prompts/deep/again.md", "");
    let mut offers = |part: &str, marked: &str| editor.completions(&team(part, marked)).join(" ");
    assert_eq!(offers("to: judge", "to: §"), "write count judge end fail");
    assert_eq!(offers("to: judge", "to: [judge, w§"), "write");
    assert_eq!(offers("start: write", "start: §"), "write count judge");
    assert_eq!(offers("    exhausted: fail", "    exhausted: e§"), "end");
    assert_eq!(offers("agent: writer", "agent: §"), "writer");
    assert_eq!(offers("model: fast", "model: §"), "fast");
    assert_eq!(offers("writes: review", "writes: [§"), "brief review tries");
    assert_eq!(offers("writes: review", "writes:\n      - t§"), "tries");
    assert_eq!(offers("set: { tries: 1 }", "set: { §"), "brief review tries");
    let when = "review.notes.exists(note, note.level == \"major\") && tries < 3";
    assert_eq!(
        offers(when, "§"),
        "brief review tries via run usage remaining has( visits( usage( now( min( max( string( int( float("
    );
    assert_eq!(offers(when, "review.§"), "verdict notes size() keys() merge(");
    assert_eq!(
        offers(when, "review.verdict == §").split_once(" brief").unwrap().0,
        "\"approved\" \"rework\""
    );
    assert_eq!(offers(when, "review.verdict == \"re§"), "rework");
    assert_eq!(offers(when, "review.notes.exists(note, no§"), "note now(");
    assert_eq!(offers(when, "review.notes.exists(note, note.§"), "text level size() keys() merge(");
    assert_eq!(offers(when, "review.notes.filter(note, note.§"), "text level size() keys() merge(");
    assert_eq!(offers(when, "review.notes.exists(note, note.level == \"§"), "minor major");
    assert_eq!(
        offers(when, "review.notes.§"),
        "size() exists( all( exists_one( filter( map( first() last() slice( sortBy( minBy( maxBy( reverse() distinct() toMap("
    );
    assert_eq!(offers(when, "visits(\"§"), "write count judge");
    assert_eq!(offers("approved: end, rework: fail }", "§"), "approved rework");
    assert_eq!(offers("approved: end, rework: fail }", "approved: end, §"), "rework");
    assert_eq!(offers("{{ visit }}", "{{ vi§"), "via visit visits(");
    assert_eq!(offers("merge: sum", "merge: m§"), "min max merge messages");
    let prompt = "prompt: { text: \"{{ brief }} {{ visit }}\" }";
    assert_eq!(offers(prompt, "prompt: §"), "prompts/deep/again.md prompts/write.md");
    assert_eq!(offers(prompt, "prompt: prompts/w§"), "prompts/write.md");
    assert_eq!(offers("    exhausted: fail\n", "    catch: { rate§"), "rate_limit");
    assert_eq!(offers("state:\n", "state: Te§\n"), "TeamState");
    let optional =
        team(when, "brief.§").replace("brief: { type: string,", "brief: { type: string?,");
    let found = editor.completions(&optional);
    assert!(found.contains(&"orValue(".to_owned()), "{found:?}");
}

#[test]
fn completion_offers_the_nodes_of_used_workflows_for_visits() {
    let mut editor = Editor::start();
    let part = "graphrun: 1\nname: part\nstate: { n: { type: int, default: 0 } }\nstart: count\nnodes:\n  \
                count: { set: { n: 1 }, then: end }\n";
    fs::write(editor.folder.path().join("part.yaml"), part).unwrap();
    let text = "graphrun: 1\nname: whole\nstate: { n: { type: int, default: 0 } }\nstart: part\nnodes:\n  \
                part: { use: { workflow: part.yaml }, then: look }\n  \
                look: { set: { n: 'visits(\"§\")' }, then: end }\n";
    assert_eq!(editor.completions(text).join(" "), "part look part.count part.end");
}

#[test]
fn completion_offers_the_keys_of_the_section_that_are_not_there() {
    let mut editor = Editor::start();
    let mut offers = |part: &str, marked: &str| editor.completions(&team(part, marked));
    assert_eq!(offers("start: write\n", "start: write\no§\n"), ["output"]);
    assert_eq!(offers("agents:\n", "limits: { st§\nagents:\n"), ["steps"]);
    assert_eq!(
        offers("model: fast,", "model: fast, §"),
        [
            "command",
            "protocol",
            "in",
            "scripts",
            "secrets",
            "system",
            "top_p",
            "seed",
            "stop",
            "effort",
            "max_tokens",
            "headers",
            "extra_body",
            "tools",
            "max_tool_rounds",
            "tool_timeout",
            "tool_choice",
            "parallel_tools",
            "on_overflow",
            "cache",
            "about"
        ]
    );
    let of_agent = offers("    max_visits: 3\n", "    §\n");
    let has = |key: &str| of_agent.iter().any(|it| it == key);
    assert!(has("max_visits") && has("repair") && has("catch"), "{of_agent:?}");
    assert!(!has("then") && !has("writes"), "they are there: {of_agent:?}");
    assert!(!has("ask") && !has("choices") && !has("in"), "of other kinds: {of_agent:?}");
    let of_new = offers("nodes:\n", "nodes:\n  new:\n    §\n");
    let kinds = ["agent", "ask", "set", "parallel", "run_tests", "write_files", "node"];
    let of_new: BTreeSet<&str> = of_new.iter().map(String::as_str).collect();
    assert!(kinds.iter().all(|it| of_new.contains(it)), "{of_new:?}");
    assert_eq!(
        offers("      - { to: judge }", "      - { to: judge }\n      - { §"),
        ["when", "to"]
    );
}

#[test]
fn named_types_and_the_items_of_a_map_are_known() {
    let mut editor = Editor::start();
    let text = "graphrun: 1
name: fan
types: { Task: { title: string, size: small | big } }
state: { tasks: [Task], done: { type: [string], merge: append, default: [] } }
input: tasks
start: each
nodes:
  each: { map: { over: tasks, as: task, do: one }, then: end }
  one: { set: { done: task.title } }
";
    let with = |part: &str, other: &str| {
        assert_eq!(text.matches(part).count(), 1, "{part}");
        text.replacen(part, other, 1)
    };
    let uri = editor.uri("fan.yaml");
    editor.open(&uri, text);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0]);
    assert_eq!(editor.hover(&with("task.title", "task.tit§le")), "**task.title**: `string`");
    assert_eq!(editor.completions(&with("task.title", "ta§")), ["task", "tasks"]);
    assert_eq!(
        editor.completions(&with("task.title", "task.§")),
        ["title", "size", "size()", "keys()", "merge("]
    );
    assert_eq!(editor.completions(&with("task.title", "task.size == \"§")), ["small", "big"]);
    assert_eq!(editor.definition(&with("[Task]", "[Ta§sk]")), "2: Task");
    assert_eq!(editor.definition(&with("task.title", "task.tit§le")), "2: title");
    assert_eq!(editor.completions(&with("[Task]", "T§")), ["Task"]);
    assert_eq!(editor.completions(&with("do: one", "do: §")), ["each", "one"]);
    assert!(editor.hover(&with("do: one", "do: o§ne")).starts_with("**one**: set"));
}

#[test]
fn symbols_are_the_names_that_a_workflow_declares() {
    let mut editor = Editor::start();
    let uri = editor.uri("team.yaml");
    editor.open(&uri, TEAM);
    let answer = editor.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": uri}}));
    let sections = answer["result"].as_array().unwrap();
    let names: Vec<&str> = sections.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["state", "models", "agents", "nodes"]);
    let nodes = sections[3]["children"].as_array().unwrap();
    let shown: Vec<String> = nodes
        .iter()
        .map(|item| format!("{}: {}", item["name"], item["detail"]).replace('"', ""))
        .collect();
    assert_eq!(shown, ["write: agent writer", "count: set", "judge: set"]);
    let whole = &nodes[0]["range"];
    let name = &nodes[0]["selectionRange"];
    assert_eq!(within(TEAM, name), "write");
    assert_eq!((&whole["start"]["line"], &whole["end"]["line"]), (&json!(12), &json!(22)));
}

/// A generator of our own, so that a failure comes again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

#[test]
fn random_edits_never_break_the_server() {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ":",
        ": ",
        "\n",
        "\n  ",
        "- ",
        "\"",
        "'",
        "#",
        "|",
        ">",
        "&a",
        "*a",
        "!x",
        "😀",
        "ä",
        "\t",
        "then: ",
        "match: ",
        "{{ ",
        "{% for x in ",
        "== \"",
        "review.",
        "visits(\"",
        "\r\n",
        "\u{feff}",
        "null",
        "\\",
    ];
    let mut editor = Editor::start();
    let mut dice = Dice(1);
    for (number, original) in [TEAM.to_owned(), fs::read_to_string("graphs/dev_team.yaml").unwrap()]
        .into_iter()
        .enumerate()
    {
        let uri = editor.uri(&format!("{number}.yaml"));
        editor.open(&uri, &original);
        let mut chars: Vec<char> = original.chars().collect();
        for round in 0..100 {
            if round % 25 == 0 {
                chars = original.chars().collect();
            }
            let at = dice.below(chars.len());
            if dice.below(3) == 0 {
                let end = (at + dice.below(12)).min(chars.len());
                chars.drain(at..end);
            } else {
                let piece = PIECES[dice.below(PIECES.len())];
                chars.splice(at..at, piece.chars());
            }
            let text: String = chars.iter().collect();
            editor.change(&uri, &text);
            let line = dice.below(text.matches('\n').count() + 2);
            let position = json!({"line": line, "character": dice.below(90)});
            let params = json!({"textDocument": {"uri": uri}, "position": position});
            for method in ["hover", "completion", "definition"] {
                let answer = editor.ask(&format!("textDocument/{method}"), params.clone());
                assert!(answer.get("error").is_none(), "{method}: {answer} in\n{text}");
            }
            editor.diagnostics(&uri);
        }
        editor.change(&uri, &original);
        assert_eq!(
            editor.diagnostics(&uri).len(),
            usize::from(number == 1) * missing_prompts(&original)
        );
    }
    editor.ask("shutdown", Value::Null);
    editor.tell("exit", Value::Null);
    assert_eq!(editor.end(), (Some(0), String::new()));
}

/// In a folder without its prompts, every prompt that a workflow names is a diagnostic.
fn missing_prompts(text: &str) -> usize {
    text.matches("prompts/").count()
}

#[test]
fn test_cases_are_checked_against_their_workflow() {
    let mut editor = Editor::start();
    let workflow = editor.uri("team.yaml");
    let cases = editor.uri("team.test.yaml");
    editor.write("team.yaml", TEAM);
    let text = "graphrun_test: 1\ninput: { brief: x }\nnodes:\n  write: { review: { verdict: approved, notes: [] } }\n\
        cases:\n  - name: it is approved\n    expect: { status: done }\n";
    editor.open(&cases, text);
    assert_eq!(editor.diagnostics(&cases), [Value::Null; 0]);
    let wrong = text.replace("write: {", "wriet: {");
    editor.change(&cases, &wrong);
    let diagnostics = editor.diagnostics(&cases);
    assert_eq!(within(&wrong, &diagnostics[0]["range"]), "wriet", "{diagnostics:?}");
    let (titles, changed) = fixed(&mut editor, "team.test.yaml", &wrong);
    assert_eq!((titles[0].as_str(), changed.as_str()), ("Replace by `write`", text));
    // The unsaved workflow counts.
    editor.open(&cases, text);
    editor.open(&workflow, &TEAM.replace("verdict: approved | rework", "verdict: good | rework"));
    assert!(!editor.diagnostics(&cases).is_empty());
    editor.open(&workflow, TEAM);
    assert_eq!(editor.diagnostics(&cases), [Value::Null; 0]);
}

#[test]
fn a_prompt_file_is_understood_with_its_workflow() {
    let mut editor = Editor::start();
    let uri = editor.uri("team.yaml");
    let prompt = editor.uri("prompts/write.md");
    let template =
        "{{ brief }} {% for note in review.notes %}{{ note.level }}{% endfor %} {{ review. }}";
    editor.write("prompts/write.md", template);
    editor.open(&uri, TEAM);
    let text = team("prompt: { text: \"{{ brief }} {{ visit }}\" }", "prompt: prompts/write.md");
    editor.change(&uri, &text);
    editor.open(&prompt, template);
    let mut at = |method: &str, part: &str, extra: Value| {
        let character = template.find(part).unwrap() + part.len();
        let mut params = json!({"textDocument": {"uri": prompt}, "position": {"line": 0, "character": character}});
        params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        editor.ask(&format!("textDocument/{method}"), params)["result"].take()
    };
    let none = json!({});
    let hover = at("hover", "{{ note.lev", none.clone());
    assert_eq!(hover["contents"]["value"], "**note.level**: `minor | major`");
    assert_eq!(within(template, &hover["range"]), "note.level");
    let definition = at("definition", "{{ bri", none.clone());
    assert_eq!(
        (&definition["uri"], &definition["range"]["start"]["line"]),
        (&json!(uri), &json!(3))
    );
    let definition = at("definition", "{{ note.lev", none.clone());
    assert_eq!(within(&text, &definition["range"]), "level");
    let found = at("references", "{{ note.lev", json!({"context": {"includeDeclaration": true}}));
    assert_eq!(found.as_array().unwrap().len(), 3, "{found}");
    let offered = at("completion", "{{ review.", none.clone());
    let labels: Vec<&str> =
        offered.as_array().unwrap().iter().map(|it| it["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["verdict", "notes"]);
    let found = at("references", "{{ bri", json!({"context": {"includeDeclaration": true}}));
    assert_eq!(found.as_array().unwrap().len(), 3, "{found}");
    let edit = at("rename", "{{ bri", json!({"newName": "task"}));
    assert_eq!(edited(&text, &edit["changes"][&uri]), text.replace("brief", "task"));
    assert_eq!(edited(template, &edit["changes"][&prompt]), template.replace("brief", "task"));
    assert_eq!(at("hover", "{{ brief }} {", none), Value::Null);
}
