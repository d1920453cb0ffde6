//! The forms of keys: the marks that providers put on them, so that there are few false alarms.

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use regex::{Captures, Regex};

use super::REDACTED;

/// Patterns of keys, and what each is. The first that fits decides.
const FORMS: &[(&str, &str)] = &[
    // OpenAI, Anthropic, OpenRouter, DeepSeek.
    (r"sk-[A-Za-z0-9_-]{16,}", "an API key"),
    (r"gsk[_-][A-Za-z0-9]{16,}", "an API key of Groq"),
    (r"xai[_-][A-Za-z0-9]{16,}", "an API key of xAI"),
    (r"csk[_-][A-Za-z0-9]{16,}", "an API key of Cerebras"),
    (r"r8[_-][A-Za-z0-9]{16,}", "an API key of Replicate"),
    (r"hf[_-][A-Za-z0-9]{16,}", "a Hugging Face token"),
    (r"AIza[A-Za-z0-9_-]{30,}", "a Google API key"),
    (r"A[KS]IA[A-Za-z0-9]{16,}", "an AWS access key"),
    (r"gh[pousr]_[A-Za-z0-9]{20,}", "a GitHub token"),
    (r"github_pat_[A-Za-z0-9_]{20,}", "a GitHub token"),
    (r"glpat-[A-Za-z0-9_-]{16,}", "a GitLab token"),
    (r"npm_[A-Za-z0-9]{30,}", "a token of npm"),
    (r"xox[abprs]-[A-Za-z0-9-]{10,}", "a Slack token"),
    (r"[sr]k_live_[A-Za-z0-9]{16,}", "a Stripe key"),
    (r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", "a JSON web token"),
    (r"(?:[Bb]earer|BEARER) [A-Za-z0-9._-]{16,}", "a bearer token"),
];

/// A private key up to its end, or as far as it goes.
const PRIVATE_KEY: &str = "-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\\s\\\\]*-----END [A-Z ]*PRIVATE \
                           KEY-----|[A-Za-z0-9+/=\\s\\\\]*[A-Za-z0-9+/=])?";

/// All forms in one pattern; each is a group, in the order of [`FORMS`], and the last is the private key.
static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let groups: Vec<String> = FORMS.iter().map(|(form, _)| format!("({form})")).collect();
    // The boundary is that of ASCII: that of Unicode is slow where a text has other letters.
    Regex::new(&format!(r"(?-u:\b)(?:{})|({PRIVATE_KEY})", groups.join("|")))
        .expect("the pattern is made of constants, compiled by the tests")
});

/// Returns the text without anything that has the form of a key.
pub(super) fn remove(text: &str) -> Cow<'_, str> {
    let is_key = |it: &Captures<'_>| is_private_key(it) || has_digit(it);
    // A text without a key stays borrowed, so that callers can tell.
    if !PATTERN.captures_iter(text).any(|it| is_key(&it)) {
        return Cow::Borrowed(text);
    }
    PATTERN.replace_all(
        text,
        |found: &Captures<'_>| {
            if is_key(found) { REDACTED.to_owned() } else { found[0].to_owned() }
        },
    )
}

/// Returns the range of the first key-like part of a text, and the kind of key.
pub fn find_form(text: &str) -> Option<(Range<usize>, &'static str)> {
    PATTERN.captures_iter(text).find_map(|found| {
        let range = found.get(0)?.range();
        if is_private_key(&found) {
            // Its first line is enough to point at.
            let end = text[range.clone()].find("KEY-----").map_or(range.end, |at| at + 8);
            return Some((range.start..range.start + end, "a private key"));
        }
        let group = (1..=FORMS.len()).find(|&group| found.get(group).is_some())?;
        has_digit(&found).then(|| (range, FORMS[group - 1].1))
    })
}

/// A random text of this length has a digit; `sk-loading-spinner-wide`, a style's name, has none.
fn has_digit(found: &Captures<'_>) -> bool {
    found[0].bytes().any(|byte| byte.is_ascii_digit())
}

fn is_private_key(found: &Captures<'_>) -> bool {
    found.get(FORMS.len() + 1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIE+/=\n-----END RSA PRIVATE KEY-----";

    /// A key of each form.
    fn keys() -> Vec<(String, &'static str)> {
        let rest = "a1B2".repeat(10);
        let of = |mark: &str, kind| (format!("{mark}{rest}"), kind);
        let mut keys = vec![
            of("sk-", "an API key"),
            of("sk-proj-", "an API key"),
            of("gsk_", "an API key of Groq"),
            of("xai-", "an API key of xAI"),
            of("csk-", "an API key of Cerebras"),
            of("r8_", "an API key of Replicate"),
            of("hf_", "a Hugging Face token"),
            of("AIza", "a Google API key"),
            of("AKIA", "an AWS access key"),
            of("ASIA", "an AWS access key"),
            of("github_pat_", "a GitHub token"),
            of("glpat-", "a GitLab token"),
            of("npm_", "a token of npm"),
            of("sk_live_", "a Stripe key"),
            of("rk_live_", "a Stripe key"),
            of("Bearer ", "a bearer token"),
        ];
        keys.extend(["ghp_", "gho_", "ghu_", "ghs_", "ghr_"].map(|it| of(it, "a GitHub token")));
        keys.extend(["xoxb-", "xoxp-", "xoxa-", "xoxs-"].map(|it| of(it, "a Slack token")));
        keys.push((format!("eyJ{rest}.{rest}.{rest}"), "a JSON web token"));
        keys
    }

    #[test]
    fn keys_of_known_forms_are_found_and_removed() {
        for (key, kind) in keys() {
            let text = format!("é use \"{key}\", please");
            let (range, found) = find_form(&text).unwrap_or_else(|| panic!("{key} is not found"));
            assert_eq!((&text[range], found), (key.as_str(), kind));
            assert_eq!(remove(&text), "é use \"[redacted]\", please");
        }
    }

    #[test]
    fn a_private_key_is_removed_whole_or_truncated() {
        assert_eq!(remove(&format!("a {PRIVATE} b")), "a [redacted] b");
        let escaped = PRIVATE.replace('\n', "\\n");
        assert_eq!(remove(&format!("a {escaped} b")), "a [redacted] b");
        assert_eq!(remove("a -----BEGIN PRIVATE KEY-----\nMIIEabc"), "a [redacted]");
        let (range, kind) = find_form(PRIVATE).unwrap();
        assert_eq!((&PRIVATE[range], kind), ("-----BEGIN RSA PRIVATE KEY-----", "a private key"));
    }

    #[test]
    fn texts_that_only_resemble_a_key_are_kept() {
        for text in [
            "sk-loading-spinner-wide-and-round",
            "sk-1",
            "task-sk-1",
            "ask-for-permission-2-in-a-long-name",
            "task-0123456789-0123456789-0123456789",
            "the key is in OPENAI_API_KEY",
            "a sha of 40 digits: da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "-----BEGIN CERTIFICATE-----",
            "{{ sk }}-{{ ghp_ }}",
            "npm_config_registry_of_the_2nd_place",
        ] {
            assert_eq!(find_form(text), None, "{text}");
            assert!(matches!(remove(text), Cow::Borrowed(it) if it == text), "{text}");
        }
    }
}
