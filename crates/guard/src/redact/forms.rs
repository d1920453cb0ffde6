//! The forms of keys: the marks that providers put on them, so that there are few false alarms.

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use regex::{Captures, Match, Regex};

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
    (r"pypi-AgE[A-Za-z0-9_-]{32,}", "a token of PyPI"),
    (r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", "an API key of SendGrid"),
    (r"AccountKey=(?<azure>[A-Za-z0-9+/]{40,}={0,2})", "a key of an Azure account"),
    (
        r#"(?:aws_secret_access_key|AWS_SECRET_ACCESS_KEY|[Ss]ecretAccessKey)["']?\s{0,4}[:=]\s{0,4}["']?(?<aws>[A-Za-z0-9/+]{40})"#,
        "an AWS secret key",
    ),
    // A value in the place of a name, such as `$PASSWORD` or `{password}`, is no password. Bounds on the lengths would make
    // this pattern a hundred times as large, and the start of every program slower.
    (
        r#"(?:https?|postgres(?:ql)?|mysql|mongodb(?:\+srv)?|rediss?|amqps?|ftps?)://[^\s:/@"'`]*:(?<url>[^\s:/@"'`${}<>\[\]]{8,})@"#,
        "a password in a URL",
    ),
];

/// The names of the groups of [`FORMS`] that are the key, while the rest of the form names it. A form without such a group is
/// the key.
const VALUES: [&str; 3] = ["azure", "aws", "url"];

/// A private key up to its end, or as far as it goes.
const PRIVATE_KEY: &str = "-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\\s\\\\]*-----END [A-Z ]*PRIVATE \
                           KEY-----|[A-Za-z0-9+/=\\s\\\\]*[A-Za-z0-9+/=])?";

/// All forms in one pattern; each is a group with its number in [`FORMS`], and the last is the private key.
static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let groups =
        FORMS.iter().enumerate().map(|(number, (form, _))| format!("(?<f{number}>{form})"));
    let groups: Vec<String> = groups.collect();
    // The boundary is that of ASCII: that of Unicode is slow where a text has other letters.
    Regex::new(&format!(r"(?-u:\b)(?:{})|(?<private>{PRIVATE_KEY})", groups.join("|")))
        .expect("the pattern is made of constants, compiled by the tests")
});

/// Beginnings, up to the end of a text, of the forms that have more than the characters of one word.
const OPEN: [&str; 4] = [
    r"(?:[Bb]earer|BEARER) [A-Za-z0-9._-]*",
    r#"(?:aws_secret_access_key|AWS_SECRET_ACCESS_KEY|[Ss]ecretAccessKey)["']?\s{0,4}(?:[:=]\s{0,4}["']?[A-Za-z0-9/+]*)?"#,
    r#"(?:https?|postgres(?:ql)?|mysql|mongodb(?:\+srv)?|rediss?|amqps?|ftps?)://[^\s/@"'`]*"#,
    r"-----BEGIN [A-Z ]*(?:-{1,4}|PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-{1,5}|-----EN?|-----END[A-Z ]*-{0,4})?)?",
];

static OPEN_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!("(?:{})$", OPEN.join("|")))
        .expect("the pattern is made of constants, compiled by the tests")
});

/// The length of the shortest key, with its mark.
const LENGTH_MIN: usize = 15;

/// Returns whether a text may have a key: one that [`is_random`] accepts, a password in a URL, or a private key.
///
/// Most texts have none of them, so that the pattern is rarely needed, and a short command does not even compile it.
fn may_have_key(text: &str) -> bool {
    let is_separator = |it: &u8| !it.is_ascii_alphanumeric() && !b"_-+/=.".contains(it);
    let mut words = text.as_bytes().split(is_separator).filter(|it| it.len() >= LENGTH_MIN);
    let is_like_a_key =
        |word: &[u8]| word.iter().any(u8::is_ascii_digit) || word.windows(3).any(|it| it == b"hf_");
    words.any(is_like_a_key)
        || text.contains("://") && text.contains('@')
        || text.contains("PRIVATE KEY-----")
}

/// Returns the text without anything that has the form of a key.
pub(super) fn remove(text: &str) -> Cow<'_, str> {
    if !may_have_key(text) {
        return Cow::Borrowed(text);
    }
    let is_key = |it: &Captures<'_>| is_private_key(it) || is_random(it);
    // A text without a key stays borrowed, so that callers can tell.
    if !PATTERN.captures_iter(text).any(|it| is_key(&it)) {
        return Cow::Borrowed(text);
    }
    PATTERN.replace_all(text, |found: &Captures<'_>| {
        if !is_key(found) {
            return found[0].to_owned();
        }
        let whole = found.get_match();
        let key = key_of(found);
        let before = &text[whole.start()..key.start()];
        format!("{before}{REDACTED}{}", &text[key.end()..whole.end()])
    })
}

/// Returns where the word at the end of a text begins. A word is a part that may be a key, or a part of one.
pub(super) fn last_word(text: &str) -> usize {
    let is_of_key = |it: char| it.is_ascii_alphanumeric() || "-_./+=~:@%\\&?#!$*^".contains(it);
    text.trim_end_matches(is_of_key).len()
}

/// Returns where a form begins that may end behind the text, apart from the word at its end.
pub(super) fn find_open(text: &str) -> Option<usize> {
    OPEN_PATTERN.find(text).map(|it| it.start())
}

/// Returns where keys are, with the rest of their forms.
pub(super) fn find_all(text: &str) -> Vec<Range<usize>> {
    if !may_have_key(text) {
        return Vec::new();
    }
    let found = PATTERN.captures_iter(text).filter(|it| is_private_key(it) || is_random(it));
    found.map(|it| it.get_match().range()).collect()
}

/// Returns the range of the first key-like part of a text, and the kind of key.
pub fn find_form(text: &str) -> Option<(Range<usize>, &'static str)> {
    if may_have_key(text) { find_by_pattern(text) } else { None }
}

fn find_by_pattern(text: &str) -> Option<(Range<usize>, &'static str)> {
    PATTERN.captures_iter(text).find_map(|found| {
        let range = key_of(&found).range();
        if is_private_key(&found) {
            // Its first line is enough to point at.
            let end = text[range.clone()].find("KEY-----").map_or(range.end, |at| at + 8);
            return Some((range.start..range.start + end, "a private key"));
        }
        let is_found = |number: &usize| found.name(&format!("f{number}")).is_some();
        let number = (0..FORMS.len()).find(is_found)?;
        is_random(&found).then(|| (range, FORMS[number].1))
    })
}

/// Returns the part of a form that is the key.
fn key_of<'a>(found: &Captures<'a>) -> Match<'a> {
    VALUES.iter().find_map(|name| found.name(name)).unwrap_or_else(|| found.get_match())
}

/// A random text of this length has a digit; `sk-loading-spinner-wide`, a style's name, has none. A token of Hugging Face
/// has 34 letters and digits, of which none need be a digit.
fn is_random(found: &Captures<'_>) -> bool {
    let key = key_of(found).as_str();
    let has = |is_kind: fn(&u8) -> bool| key.bytes().any(|it| is_kind(&it));
    let is_long_token = key.starts_with("hf_")
        && key.len() >= 37
        && has(u8::is_ascii_uppercase)
        && key[3..].bytes().any(|it| it.is_ascii_lowercase());
    has(u8::is_ascii_digit) || is_long_token
}

fn is_private_key(found: &Captures<'_>) -> bool {
    found.name("private").is_some()
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::select, string::string_regex};

    use super::*;

    const PRIVATE: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIE+/=\n-----END RSA PRIVATE KEY-----";

    /// Returns a key of each form.
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
    fn a_key_behind_its_name_is_removed_and_its_name_stays() {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let account = format!("{}==", "a1B2c3+/".repeat(11));
        for (before, key, after, kind) in [
            ("aws_secret_access_key = ", secret, "\n", "an AWS secret key"),
            ("AWS_SECRET_ACCESS_KEY=\"", secret, "\"", "an AWS secret key"),
            ("{\"SecretAccessKey\": \"", secret, "\"}", "an AWS secret key"),
            ("AccountName=a;AccountKey=", &account, ";x", "a key of an Azure account"),
            ("postgres://me:", "Zk3-long-pass", "@db:5432/app", "a password in a URL"),
            ("https://:", "a1b2c3d4e5", "@example.com", "a password in a URL"),
        ] {
            let text = format!("{before}{key}{after}");
            let (range, found) = find_form(&text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((&text[range], found), (key, kind));
            assert_eq!(remove(&text), format!("{before}[redacted]{after}"));
        }
    }

    #[test]
    fn tokens_with_further_marks_are_found() {
        for (token, kind) in [
            ("hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh", "a Hugging Face token"),
            ("pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDAtMDAwMC0wMDAw", "a token of PyPI"),
            (
                "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",
                "an API key of SendGrid",
            ),
        ] {
            let text = format!("a {token} b");
            assert_eq!(find_form(&text).map(|(range, it)| (&text[range], it)), Some((token, kind)));
            assert_eq!(remove(&text), "a [redacted] b");
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

    /// Texts that fit the forms.
    fn texts_of_forms() -> impl Strategy<Value = String> {
        let forms = FORMS.iter().map(|it| it.0).chain([PRIVATE_KEY]).collect::<Vec<_>>();
        select(forms).prop_flat_map(|it| string_regex(it).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

        #[test]
        fn a_text_in_which_the_pattern_finds_a_key_may_have_one(
            before in "[ -~é]{0,8}",
            text in texts_of_forms(),
            after in "[ -~é]{0,8}",
        ) {
            let text = format!("{before} {text} {after}");
            prop_assert_eq!(find_form(&text), find_by_pattern(&text), "{}", text);
        }
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
            "postgres://user:password@localhost/app",
            "postgres://me:${DB_PASSWORD_1}@localhost/app",
            "https://example.com:8080/a@b",
            "see https://example.com/12345678:90@home",
            "AccountKey=the-key-of-your-account",
            "aws_secret_access_key = os.environ['AWS_SECRET_ACCESS_KEY']",
            "hf_transformers_are_models_in_disguise",
            "SG.first.second",
            "pypi-publish-with-version-1-of-the-action",
        ] {
            assert_eq!(find_form(text), None, "{text}");
            assert!(matches!(remove(text), Cow::Borrowed(it) if it == text), "{text}");
        }
    }
}
