use std::collections::BTreeMap;

use clap::error::ErrorKind;

use crate::docs::page;

/// The languages of blocks that hold command lines.
const SHELLS: &[&str] = &["sh", "console"];

#[test]
fn every_command_line_in_a_block_is_accepted() {
    let mut count = 0;
    let mut refused = Vec::new();
    for page in page::all() {
        for block in page.blocks().iter().filter(|it| SHELLS.contains(&it.language)) {
            for line in command_lines(block.code, block.language == "console") {
                count += 1;
                if let Err(error) = graphrun::cli::command().try_get_matches_from(&line) {
                    refused.push(format!("{}: {line:?}\n{error}", page.path.display()));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count > 60, "only {count}");
}

/// Commands in a sentence may leave out arguments, and name values as in `RUN@STEP`.
#[test]
fn every_command_in_a_sentence_exists() {
    let mut refused = Vec::new();
    for page in page::all() {
        for code in page.inline_code() {
            let words = split(&code.replace(['[', ']', '…'], ""));
            if words.first().is_none_or(|it| it != "graphrun") || words.len() == 1 {
                continue;
            }
            if let Err(error) = graphrun::cli::command().try_get_matches_from(&words)
                && matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument)
            {
                refused.push(format!("{}: {code}\n{error}", page.path.display()));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Returns the words of each call of the program in a block.
fn command_lines(code: &str, has_prompt: bool) -> Vec<Vec<String>> {
    let code = code.replace("\\\n", " ");
    let mut variables = BTreeMap::new();
    let mut lines = Vec::new();
    for line in code.lines() {
        let line = if has_prompt { line.strip_prefix("$ ") } else { Some(line) };
        let mut words: Vec<String> =
            split(line.unwrap_or_default()).iter().map(|it| expand(it, &variables)).collect();
        while let Some((name, value)) = words.first().and_then(|it| assignment(it)) {
            let name = name.to_owned();
            let value = value.to_owned();
            variables.insert(name, value);
            words.remove(0);
        }
        if words.first().is_some_and(|it| it == "graphrun" || it.ends_with("/graphrun")) {
            lines.push(words);
        }
    }
    lines
}

/// Splits a command line as a shell does, up to a comment, a pipe or a redirection.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '#') if word.is_none() => return words,
            (None, '|' | '<' | '>' | ';' | '&') => break,
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    (is_name && !name.is_empty()).then_some((name, value))
}

fn expand(word: &str, variables: &BTreeMap<String, String>) -> String {
    match word.strip_prefix('$').and_then(|name| variables.get(name)) {
        Some(value) => value.clone(),
        None => word.to_owned(),
    }
}
