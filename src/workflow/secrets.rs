//! Secrets that were written where they do not belong: into a workflow or a prompt.
//!
//! Keys are known by the marks that providers put on them, so that there are few false alarms.
//! What is found is never repeated in a message.

use std::ops::Range;

use super::{Expression, report::Report};
use crate::{
    diagnostic::{Diagnostic, Place},
    state::Type,
};

/// The beginnings of keys, how long the rest is at least, and what they are.
const MARKS: &[(&str, usize, &str)] = &[
    ("sk-", 20, "an API key"),
    ("gsk_", 20, "an API key of Groq"),
    ("xai-", 20, "an API key of xAI"),
    ("csk-", 20, "an API key of Cerebras"),
    ("r8_", 30, "an API key of Replicate"),
    ("hf_", 30, "a Hugging Face token"),
    ("AIza", 30, "a Google API key"),
    ("AKIA", 16, "an AWS access key"),
    ("ASIA", 16, "an AWS access key"),
    ("ghp_", 30, "a GitHub token"),
    ("gho_", 30, "a GitHub token"),
    ("ghu_", 30, "a GitHub token"),
    ("ghs_", 30, "a GitHub token"),
    ("ghr_", 30, "a GitHub token"),
    ("github_pat_", 30, "a GitHub token"),
    ("glpat-", 20, "a GitLab token"),
    ("npm_", 30, "a token of npm"),
    ("xoxb-", 20, "a Slack token"),
    ("xoxp-", 20, "a Slack token"),
    ("xoxa-", 20, "a Slack token"),
    ("xoxs-", 20, "a Slack token"),
    ("sk_live_", 20, "a Stripe key"),
    ("rk_live_", 20, "a Stripe key"),
];

/// The ends of names that only secrets have.
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "apikey",
    "access_key",
    "secret_key",
    "private_key",
];

const HELP: &str = "take it out and revoke it; keys are read from the environment";

impl Report {
    /// Reports the first secret that a text of the workflow contains.
    pub(super) fn refuse_secret(&mut self, text: &str, range: &Range<usize>) {
        if let Some((_, kind)) = secret_in(text) {
            let message = format!("this looks like {kind}, written into the file");
            let finding = Diagnostic::error("GR047", message);
            self.push(finding.at(self.place(range), "a secret").help(HELP));
        }
    }

    /// Reports the first secret that another file contains; `place` makes places in it.
    pub(super) fn refuse_secret_in(
        &mut self,
        text: &str,
        place: impl FnOnce(Range<usize>) -> Place,
    ) {
        if let Some((range, kind)) = secret_in(text) {
            let message = format!("this looks like {kind}, written into a prompt");
            let finding = Diagnostic::error("GR047", message);
            self.push(finding.at(Some(place(range)), "a secret").help(HELP));
        }
    }

    /// Reports a text in quotes that is given the name of a secret.
    pub(super) fn refuse_named_secret(
        &mut self,
        name: &str,
        range: &Range<usize>,
        expression: &Expression,
    ) {
        let is_literal = expression.reads().is_empty()
            && matches!(expression.ty(), Type::Enum(texts) if texts.iter().any(|it| !it.is_empty()));
        if is_literal && names_a_secret(name) {
            let message = format!("the value of `{name}` is written into the file");
            let finding = Diagnostic::error("GR047", message);
            self.push(finding.at(self.place(range), "a secret").help(HELP));
        }
    }
}

/// Where a text contains a secret, and what it looks like.
fn secret_in(text: &str) -> Option<(Range<usize>, &'static str)> {
    if let Some(start) = text.find("-----BEGIN ")
        && let Some(length) = text[start..].find("PRIVATE KEY-----")
    {
        return Some((start..start + length + "PRIVATE KEY-----".len(), "a private key"));
    }
    let ends_word = |it: char| !(it.is_ascii_alphanumeric() || it == '-' || it == '_');
    let mut start = 0;
    for word in text.split(ends_word) {
        let range = start..start + word.len();
        start = range.end + text[range.end..].chars().next().map_or(0, char::len_utf8);
        // A random text of this length has a digit; the name of a thing may have none.
        let digits = word.bytes().any(|it| it.is_ascii_digit());
        let found = MARKS.iter().find(|(mark, length, _)| {
            word.strip_prefix(mark)
                .is_some_and(|it| digits && it.len() >= *length && is_one(mark, it))
        });
        if let Some((_, _, kind)) = found {
            return Some((range, kind));
        }
    }
    None
}

/// Whether what follows a mark is one random text rather than words with `_` between them.
fn is_one(mark: &str, rest: &str) -> bool {
    !mark.ends_with('_') || mark == "github_pat_" || !rest.contains(['_', '-'])
}

/// Whether a name is that of a secret, such as `DB_PASSWORD`.
fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    NAMES.iter().any(|it| {
        name.strip_suffix(it).is_some_and(|before| before.is_empty() || before.ends_with('_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_their_marks_and_found_where_they_stand() {
        for (mark, length, kind) in MARKS {
            let key = format!("{mark}{}", "a1".repeat(length / 2 + 1));
            let text = format!("é use \"{key}\", please");
            let (range, found) = secret_in(&text).unwrap_or_else(|| panic!("{mark} is not found"));
            assert_eq!((&text[range], found), (key.as_str(), *kind));
        }
        let text = "x\n-----BEGIN RSA PRIVATE KEY-----\nMII";
        let (range, kind) = secret_in(text).unwrap();
        assert_eq!((&text[range], kind), ("-----BEGIN RSA PRIVATE KEY-----", "a private key"));
    }

    #[test]
    fn what_only_looks_a_little_like_a_key_is_none() {
        for text in [
            "sk-loading-spinner-wide-and-round",
            "sk-1",
            "task-0123456789-0123456789-0123456789",
            "the key is in OPENAI_API_KEY",
            "a sha of 40 digits: da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "-----BEGIN CERTIFICATE-----",
            "{{ sk }}-{{ ghp_ }}",
            "npm_config_registry_of_the_2nd_place",
        ] {
            assert_eq!(secret_in(text), None, "{text}");
        }
    }

    #[test]
    fn names_of_secrets_are_known_by_their_ends() {
        for name in ["PASSWORD", "DB_PASSWORD", "token", "GITHUB_TOKEN", "x-api-key", "SECRET"] {
            assert!(names_a_secret(name), "{name}");
        }
        for name in ["TOKENS", "MAX_TOKENS", "SORT_KEY", "KEY", "SECRETARY", "PASSWORD_LENGTH"] {
            assert!(!names_a_secret(name), "{name}");
        }
    }
}
