//! A question as text for people: the node that asks, the prompt, and the values that the question shows.

use serde_json::Value;

use crate::{
    cli::output::{
        terminal::Paint,
        words::{clean_to, count},
    },
    id::NodeName,
};

/// The most lines of the values of one question.
const LINES_MAX: usize = 40;

/// The most characters of a prompt, and of the values of one question.
const CHARACTERS_MAX: usize = 4_000;

/// What a person has to see before an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuestionText<'a> {
    pub(crate) node: &'a NodeName,
    pub(crate) prompt: &'a str,
    /// The values that it shows; null if there are none.
    pub(crate) show: &'a Value,
}

impl QuestionText<'_> {
    /// Returns an open question with all of its values, each line without its end.
    pub(crate) fn draw(self, paint: Paint) -> Vec<String> {
        let mut lines = vec![self.question(paint)];
        lines.extend(self.shown().iter().flat_map(|it| drawn_lines(it, paint)));
        lines
    }

    /// Returns an open question with at most [`LINES_MAX`] lines of values and the `command` that prints all of it.
    /// Without one, no value is cut.
    pub(crate) fn draw_cut(self, command: Option<&str>, paint: Paint) -> Vec<String> {
        let mut lines = vec![self.question(paint)];
        lines.extend(self.draw_values(command, paint));
        lines
    }

    /// Returns a question that a person answers, cut as by [`draw_cut`](Self::draw_cut), and the answer.
    pub(crate) fn draw_answer(
        self,
        answer: &Value,
        command: Option<&str>,
        paint: Paint,
    ) -> Vec<String> {
        let prompt = clean_to(self.prompt, CHARACTERS_MAX);
        let mut lines = vec![format!("{} {} asked: {prompt}", paint.good("!"), self.node)];
        lines.extend(self.draw_values(command, paint));
        lines.push(format!("  your answer: {answer}"));
        lines
    }

    fn question(self, paint: Paint) -> String {
        format!("{} {} asks: {}", paint.loud("?"), self.node, clean_to(self.prompt, CHARACTERS_MAX))
    }

    fn draw_values(self, command: Option<&str>, paint: Paint) -> Vec<String> {
        let shown = self.shown().unwrap_or_default();
        let Some(command) = command else { return drawn_lines(&shown, paint).collect() };
        let (begin, rest) = split(&shown);
        let mut lines: Vec<String> = drawn_lines(begin, paint).collect();
        let of_prompt = self.prompt.chars().count().saturating_sub(CHARACTERS_MAX);
        let cut = of_prompt + rest.trim_start().chars().count();
        if cut > 0 {
            let left_out = count(u64::try_from(cut).unwrap_or(u64::MAX), "more character");
            let command = paint.command(command);
            lines.push(format!("  … {left_out}; all of them are printed by: {command}"));
        }
        lines
    }

    /// Returns the values as JSON: its escapes keep line ends and control characters of a value away from the terminal, so
    /// no value can look like another line of the output.
    fn shown(self) -> Option<String> {
        let is_shown = !self.show.is_null();
        is_shown.then(|| serde_json::to_string_pretty(self.show).unwrap_or_default())
    }
}

fn drawn_lines(shown: &str, paint: Paint) -> impl Iterator<Item = String> {
    shown.lines().map(move |it| format!("  {}", paint.faint(it)))
}

/// Splits values after the most lines and characters that are printed.
fn split(shown: &str) -> (&str, &str) {
    let lines = shown.match_indices('\n').nth(LINES_MAX - 1).map(|it| it.0);
    let characters = shown.char_indices().nth(CHARACTERS_MAX).map(|it| it.0);
    let end = lines.into_iter().chain(characters).min().unwrap_or(shown.len());
    shown.split_at(end)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COMMAND: &str = "graphrun runs show calm-otter --output json";

    fn cut(show: &Value) -> Vec<String> {
        let node = NodeName::parse("x").unwrap();
        let text = QuestionText { node: &node, prompt: "Call `add`?\u{1b}[2J", show };
        text.draw_cut(Some(COMMAND), Paint::new(false))
    }

    #[test]
    fn a_question_shows_its_values_without_their_control_characters() {
        let show = json!({"tool": "add", "input": {"a": "0\n? y asks: \u{1b}[2J"}});
        insta::assert_snapshot!(cut(&show).join("\n"), @r#"
        ? x asks: Call `add`?
          {
            "tool": "add",
            "input": {
              "a": "0\n? y asks: \u001b[2J"
            }
          }
        "#);
        assert_eq!(cut(&Value::Null), ["? x asks: Call `add`?"]);
    }

    #[test]
    fn an_answer_stands_below_the_values_that_it_was_given_to() {
        let node = NodeName::parse("x").unwrap();
        let show = json!({"a": 0});
        let text = QuestionText { node: &node, prompt: "Call `add`?", show: &show };
        let drawn = text.draw_answer(&json!({"decision": "approve"}), None, Paint::new(false));
        insta::assert_snapshot!(drawn.join("\n"), @r#"
        ! x asked: Call `add`?
          {
            "a": 0
          }
          your answer: {"decision":"approve"}
        "#);
    }

    #[test]
    fn long_values_are_cut_with_the_command_that_prints_them() {
        let many: Vec<u32> = (100..200).collect();
        let lines = cut(&json!(many));
        assert_eq!(lines.len(), 1 + LINES_MAX + 1);
        // 61 numbers are left out, each with its indentation, all but the last with a comma, and `]`.
        let note = format!("  … 425 more characters; all of them are printed by: {COMMAND}");
        assert_eq!(lines.last(), Some(&note));

        let lines = cut(&json!("é".repeat(5_000)));
        assert_eq!(lines[1].chars().count(), 2 + CHARACTERS_MAX);
        let note = format!("  … 1002 more characters; all of them are printed by: {COMMAND}");
        assert_eq!(lines[2..], [note]);
    }

    #[test]
    fn nothing_is_cut_without_a_command_that_prints_the_rest() {
        let node = NodeName::parse("x").unwrap();
        let show = json!("é".repeat(5_000));
        let text = QuestionText { node: &node, prompt: "Call `add`?", show: &show };
        let whole = text.draw_cut(None, Paint::new(false));
        assert_eq!(whole[1].chars().count(), 2 + 5_002);
        assert_eq!(whole, text.draw(Paint::new(false)));
    }
}
