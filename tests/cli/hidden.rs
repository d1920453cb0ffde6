//! Control characters and direction marks from any source never reach a terminal unescaped.

use std::fs;

use serde_json::{Value, json};

use crate::cli::program::{Ended, Place};

/// Characters that move the cursor, change the title, hide text, or reverse it.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;x\u{7}\u{8}\u{7f}\u{9b}31m\u{202e}b\u{2066}\u{200f}\u{61c}\u{200b}\u{feff}\u{e0041}c";

const WORKFLOW: &str = r#"
graphrun: 1
name: hidden
about: "ABOUT"
state: { brief: string, answer: string, choice: string }
input: [brief]
output: [answer, choice]
start: first
nodes:
  first: { about: "ABOUT", set: { answer: brief }, then: help }
  help: { ask: "ABOUT {{ brief }}", writes: choice, then: end }
"#;

fn is_hidden(character: char) -> bool {
    let is_invisible = matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    is_invisible || character.is_control() && !matches!(character, '\n' | '\t')
}

fn check(what: &str, ended: &Ended) {
    for text in [&ended.stdout, &ended.stderr] {
        let hidden = text.chars().find(|it| is_hidden(*it));
        assert_eq!(hidden, None, "{what}: {ended}");
    }
}

/// Creates a workflow with hostile texts in all places that accept one.
fn place() -> Place {
    let place = Place::new();
    // YAML accepts control characters only as escapes.
    let escaped: String = HOSTILE
        .chars()
        .map(|letter| {
            if letter.is_ascii_graphic() {
                letter.to_string()
            } else {
                format!("\\U{:08x}", u32::from(letter))
            }
        })
        .collect();
    let workflow = WORKFLOW.replace("ABOUT", &escaped);
    fs::write(place.path("hidden.yaml"), &workflow).unwrap();
    fs::write(place.path("wrong.yaml"), workflow.replace("then: help", "then: h\u{202e}elp"))
        .unwrap();
    fs::write(place.path("raw.yaml"), WORKFLOW.replace("ABOUT", HOSTILE)).unwrap();
    fs::write(place.path(&format!("{}.yaml", HOSTILE.replace('/', ""))), "x: [").unwrap();
    place
}

#[test]
fn no_command_shows_a_hidden_character_as_it_is() {
    let place = place();
    let input = format!("brief={HOSTILE}");
    let file = format!("{HOSTILE}.yaml");
    let database = format!("sqlite:{HOSTILE}.db");
    let commands: Vec<Vec<&str>> = vec![
        vec!["validate", "hidden.yaml"],
        vec!["execute", "hidden.yaml", "-i", &input, "--run-id", "mine"],
        vec!["execute", "hidden.yaml", "-i", &input, "--progress", "plain", "--color", "always"],
        vec!["execute", "hidden.yaml", "-i", HOSTILE],
        vec!["execute", "hidden.yaml", "-i", &input, "--run-id", HOSTILE],
        vec!["execute", &file],
        vec!["validate", &file],
        vec!["validate", "raw.yaml"],
        vec!["validate", "wrong.yaml"],
        vec!["validate", "wrong.yaml", "--output", "json"],
        vec!["validate", "wrong.yaml", "--output", "sarif"],
        vec!["validate", "wrong.yaml", "--output", "github"],
        vec!["plan", "hidden.yaml"],
        vec!["graph", "hidden.yaml"],
        vec!["graph", "hidden.yaml", "--format", "mermaid"],
        vec!["graph", "hidden.yaml", "--format", "dot"],
        vec!["graph", "hidden.yaml", "--format", "svg"],
        vec!["graph", HOSTILE],
        vec!["runs", "list"],
        vec!["runs", "show", "mine"],
        vec!["runs", "show", "mine", "--output", "json"],
        vec!["runs", "state", "mine"],
        vec!["runs", "events", "mine"],
        vec!["runs", "events", "mine", "--output", "jsonl"],
        vec!["runs", "history", "mine"],
        vec!["runs", "export", "mine"],
        vec!["runs", "show", HOSTILE],
        vec!["runs", "list", "--db", &database],
        vec!["doctor", "--db", &database],
        vec!["explain", HOSTILE],
        vec!["message", "mine", HOSTILE],
        vec!["completions", HOSTILE],
        vec![HOSTILE],
        vec!["approve", "mine", HOSTILE],
        vec!["resume", "mine", "--answer", &input],
        vec!["test", HOSTILE],
        vec!["init", HOSTILE],
    ];
    for args in commands {
        let ended = place.run(&args);
        if args.len() == 2 && args[1] == "hidden.yaml" {
            assert_eq!(ended.code, 0, "{args:?}: {ended}");
        }
        if args.contains(&"--color") {
            let plain = |text: &str| text.replace("\u{1b}[0m", "").replace("\u{1b}[3", "");
            let text = plain(&ended.stderr).replace("\u{1b}[1m", "").replace("\u{1b}[2m", "");
            let mut hidden = text.chars().filter(|it| is_hidden(*it));
            assert_eq!(hidden.next(), None, "{args:?}: {text:?}");
            continue;
        }
        check(&format!("{args:?}"), &ended);
    }
}

#[test]
fn json_keeps_the_values_of_hidden_characters() {
    let place = place();
    let input = format!("brief={HOSTILE}");
    let ended =
        place.run(["execute", "hidden.yaml", "-i", &input, "--run-id", "mine", "--output", "json"]);
    assert_eq!(ended.code, 3, "{ended}");
    check("execute", &ended);
    let state = place.run(["runs", "state", "mine"]);
    check("state", &state);
    let state: Value = state.json();
    assert_eq!(state["brief"], json!(HOSTILE));
    assert_eq!(state["answer"], json!(HOSTILE));
}
