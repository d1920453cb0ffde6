//! `graphrun explain [CODE]`.

use serde_json::{Value, json};

use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{Paint, print_result},
            words::table,
        },
    },
    diagnostic::{CODES, Code, did_you_mean},
};

/// Explain the code of a diagnostic, with a wrong and a right example
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The code of a diagnostic, such as `GR010` or just `10` [default: list all codes]
    code: Option<String>,
}

impl Args {
    /// Prints the page of a code, or the list of all codes.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("explain", &[Output::Text, Output::Json])?;
        let code = self.code.as_deref().map(find).transpose()?;
        let as_json = globals.output == Output::Json;
        let result = match code {
            Some(code) if as_json => to_json(&whole(code))?,
            Some(code) => draw(code, globals.stdout),
            None if as_json => to_json(&CODES.iter().map(heading).collect::<Vec<_>>())?,
            None => draw_list(globals.stdout),
        };
        print_result(&result).map_err(CliError::write)?;
        Ok(Exit::Done)
    }
}

fn find(word: &str) -> Result<&'static Code, CliError> {
    let name = full_name(word);
    Code::find(&name).ok_or_else(|| {
        let refused = CliError::usage(format!("there is no code `{word}`"));
        match nearest(&name) {
            Some(near) => refused.with_help(format!("did you mean `{near}`?")),
            None => refused.with_help("`graphrun explain` lists all codes"),
        }
    })
}

/// Returns `GR010` for `gr010`, `GR10` and `10`.
fn full_name(word: &str) -> String {
    let name = word.trim().to_uppercase();
    match name.strip_prefix("GR").unwrap_or(&name).parse::<u16>() {
        Ok(number) => format!("GR{number:03}"),
        Err(_) => name,
    }
}

/// Returns the most similar code, preferably of the same range.
fn nearest(name: &str) -> Option<&'static str> {
    let of_range = |it: &&str| name.get(..4).is_some_and(|range| it.starts_with(range));
    let all = || CODES.iter().map(Code::as_str);
    did_you_mean(name, all().filter(of_range)).or_else(|| did_you_mean(name, all()))
}

fn heading(code: &Code) -> Value {
    json!({"code": code.as_str(), "title": code.title()})
}

fn whole(code: &Code) -> Value {
    json!({
        "code": code.as_str(),
        "title": code.title(),
        "meaning": code.meaning(),
        "reason": code.reason(),
        "wrong": code.wrong(),
        "right": code.right(),
    })
}

/// Returns the page as plain text: examples are indented, Markdown marks removed.
fn draw(code: &Code, paint: Paint) -> String {
    let mut text = String::new();
    let mut in_example = false;
    for line in code.page().lines() {
        if line.starts_with("```") {
            in_example = !in_example;
            continue;
        }
        match line.trim_start_matches('#') {
            _ if in_example => text.extend(["    ", line]),
            heading if heading != line => text += &paint.strong(heading.trim_start()),
            line => text += line,
        }
        text.push('\n');
    }
    text
}

fn draw_list(paint: Paint) -> String {
    let row = |it: &Code| vec![paint.strong(it.as_str()), it.title().to_owned()];
    table(&CODES.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_however_it_is_written() {
        for word in ["GR010", "gr010", "Gr10", "10", "010", " 10 "] {
            assert_eq!(find(word).unwrap().as_str(), "GR010", "{word}");
        }
    }

    #[test]
    fn an_unknown_code_is_refused_with_a_similar_one() {
        let help = |word: &str| {
            let error = find(word).unwrap_err();
            assert_eq!(error.exit(), Exit::Usage, "{word}");
            error.draw(Paint::new(false), 80)
        };
        insta::assert_snapshot!(
            ["43", "GRO10", "0", "loops"].map(help).join("\n"),
            @r"
            error: there is no code `43`
            help: did you mean `GR040`?
            error: there is no code `GRO10`
            help: did you mean `GR010`?
            error: there is no code `0`
            help: did you mean `GR001`?
            error: there is no code `loops`
            help: `graphrun explain` lists all codes
            "
        );
    }

    #[test]
    fn a_page_is_drawn_without_the_marks_of_markdown() {
        let code = Code::find("GR008").unwrap();
        insta::assert_snapshot!(draw(code, Paint::new(false)));
        let painted = draw(code, Paint::new(true));
        assert_ne!(painted, draw(code, Paint::new(false)));
        assert_eq!(console::strip_ansi_codes(&painted), draw(code, Paint::new(false)));
    }
}
