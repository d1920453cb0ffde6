//! Removes keys from texts that are saved, sent or shown.
//!
//! Two kinds of keys are removed. The process learns its own secrets ([`learn`]) and finds each of them in every
//! common encoding. Other keys are known by their form only (see `forms`): the marks that providers put on them.
//! Start with [`redact`]; [`redact_value`] does the same for every text of a JSON value.

mod folding;
mod forms;
mod known;
mod names;
mod spellings;

use std::{
    borrow::Cow,
    cmp::Reverse,
    ops::Range,
    sync::{Arc, PoisonError, RwLock},
};

use serde_json::{Map, Value};

use self::known::KnownSecrets;
pub use self::{forms::find_form, known::Cut, names::names_a_secret};

/// Replaces a key in a text.
pub const REDACTED: &str = "[redacted]";

/// The secrets of this process. They belong to the process and not to a run: a panic, a log line and the terminal
/// have no run, and must not show them either.
static KNOWN: RwLock<Option<Arc<KnownSecrets>>> = RwLock::new(None);

/// Adds a secret of this process: from now on [`redact`] removes it from every text.
///
/// A text of fewer than 8 characters is not searched for, nor is a plain word of fewer than 16 letters: removing
/// `x` or `postgres` would damage honest texts.
///
/// ```
/// use graphrun_guard::redact::{learn, redact};
///
/// learn("hunter2-hunter2");
/// assert_eq!(redact("it is hunter2-hunter2"), "it is [redacted]");
/// assert_eq!(redact("base64: aHVudGVyMi1odW50ZXIy."), "base64: [redacted].");
/// ```
pub fn learn(secret: &str) {
    let secret = secret.trim();
    if !known::is_searchable(secret) {
        return;
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let mut secrets = known.as_ref().map_or_else(Vec::new, |it| it.secrets().to_vec());
    if !secrets.iter().any(|it| it == secret) {
        secrets.push(secret.to_owned());
        *known = Some(Arc::new(KnownSecrets::new(secrets)));
    }
}

/// Learns the password that a URL or a list of settings such as `host=db password=…` contains.
pub fn learn_url(url: &str) {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if let Some((_, password)) =
        authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'))
    {
        learn(password);
    }
    for (at, _) in url.match_indices('=') {
        let is_end = |it: char| matches!(it, '?' | '&' | ';' | '#') || it.is_whitespace();
        let name = url[..at].trim_end().rsplit(is_end).next().unwrap_or_default();
        if !names_a_secret(name) {
            continue;
        }
        let value = url[at + 1..].trim_start();
        match value.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                let quoted = &value[1..];
                let mut is_escaped = false;
                let end = quoted.find(|it| {
                    let is_end = it == quote && !is_escaped;
                    is_escaped = it == '\\' && !is_escaped;
                    is_end
                });
                learn(&quoted[..end.unwrap_or(quoted.len())]);
            }
            _ => learn(value.split(is_end).next().unwrap_or_default()),
        }
    }
}

/// Learns the password and all parameters in the address of a provider of models: a gateway may take its key under any name. The version
/// of Azure's interface is none.
pub fn learn_address(url: &str) {
    learn_url(url);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    for parameter in query.split(['&', ';', '#']) {
        let (name, value) = parameter.split_once('=').unwrap_or(("", parameter));
        if name != "api-version" {
            learn(value);
        }
    }
}

/// Learns a variable of the environment, if its name is that of a secret, its value is a URL with a password, or it has the
/// headers of telemetry or the address of a provider of models.
pub fn learn_variable(name: &str, value: &str) {
    if name.ends_with("_BASE_URL") {
        learn_address(value);
    }
    if names_a_secret(name) {
        learn(value);
    }
    if name.starts_with("OTEL_EXPORTER_OTLP_") && name.ends_with("HEADERS") {
        learn_headers(value);
    }
    learn_url(value);
}

/// Learns the values of headers in a list such as `api-key=…,authorization=Basic%20…`. Some of them are keys, and no name says
/// which.
fn learn_headers(list: &str) {
    for value in list.split(',').filter_map(|it| it.split_once('=')).map(|(_, value)| value.trim())
    {
        // After the scheme of an authorization.
        let words = value.split(' ').chain(value.split("%20"));
        [value].into_iter().chain(words).for_each(learn);
    }
}

/// Returns the text without the secrets of this process and without anything that has the form of a key.
///
/// The forms are those of common providers; a key of another form is removed only if the process knows it.
///
/// ```
/// use graphrun_guard::redact::redact;
///
/// assert_eq!(redact("use sk-proj-abcdefghijklmnop0123 here"), "use [redacted] here");
/// ```
pub fn redact(text: &str) -> Cow<'_, str> {
    match redact_known(text) {
        Cow::Borrowed(text) => forms::remove(text),
        Cow::Owned(text) => Cow::Owned(forms::remove(&text).into_owned()),
    }
}

/// Returns the text without the secrets of this process.
pub fn redact_known(text: &str) -> Cow<'_, str> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).clone();
    known.map_or(Cow::Borrowed(text), |known| known.remove_from(text))
}

/// As [`redact`], for a part of a longer text. Where it was cut, a part of a secret of this process is removed as well if it
/// has 8 characters or more.
///
/// ```
/// use graphrun_guard::redact::{Cut, learn, redact_part};
///
/// learn("hunter4-hunter4");
/// let cut = Cut { start: false, end: true };
/// assert_eq!(redact_part("it is hunter4-hun", cut), "it is [redacted]");
/// ```
pub fn redact_part(text: &str, cut: Cut) -> Cow<'_, str> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).clone();
    match known.map_or(Cow::Borrowed(text), |known| known.remove_from_part(text, cut)) {
        Cow::Borrowed(text) => forms::remove(text),
        Cow::Owned(text) => Cow::Owned(forms::remove(&text).into_owned()),
    }
}

/// Returns the length of the beginning of a text that can be [redacted](redact) before the rest of the text is known: no key
/// begins there and may end later.
///
/// ```
/// use graphrun_guard::redact::settled;
///
/// assert_eq!(settled("send Authorization: Bea"), "send Authorization: ".len());
/// assert_eq!(settled("send Authorization: Bearer abc"), "send Authorization: ".len());
/// ```
pub fn settled(text: &str) -> usize {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).clone();
    let mut end = forms::last_word(text);
    if let Some(start) = forms::find_open(text) {
        end = end.min(start);
    }
    let mut found: Vec<Range<usize>> = forms::find_all(text);
    found.extend(known.into_iter().flat_map(|it| it.find_open(text)));
    // With a longer text ahead, one that ends earlier may be cut.
    found.sort_by_key(|it| Reverse(it.end));
    for range in found {
        if range.contains(&end) {
            end = range.start;
        }
    }
    end
}

/// Removes keys from every text of a JSON value, names of fields included. Returns whether there was one.
pub fn redact_value(value: &mut Value) -> bool {
    match value {
        Value::String(text) => redact_text(text),
        Value::Array(items) => {
            items.iter_mut().fold(false, |found, item| redact_value(item) | found)
        }
        Value::Object(fields) => redact_fields(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Removes keys from a text in place. Returns whether there was one.
pub fn redact_text(text: &mut String) -> bool {
    match redact(text) {
        Cow::Borrowed(_) => false,
        Cow::Owned(redacted) => {
            *text = redacted;
            true
        }
    }
}

fn redact_fields(fields: &mut Map<String, Value>) -> bool {
    let found = fields.values_mut().fold(false, |found, value| redact_value(value) | found);
    if !fields.keys().any(|name| matches!(redact(name), Cow::Owned(_))) {
        return found;
    }
    for (name, value) in std::mem::take(fields) {
        let redacted = redact(&name);
        let mut unique = redacted.to_string();
        // Two keys may be names of fields; neither value may replace the other.
        let mut number = 2;
        while fields.contains_key(&unique) {
            unique = format!("{redacted} {number}");
            number += 1;
        }
        fields.insert(unique, value);
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SECRET: &str = "canary (secret) 7f3a9c2b, täil";

    /// Returns texts with keys, and texts that begin like a key.
    fn parts() -> impl Strategy<Value = String> {
        let escaped = SECRET.replace('c', "\\u0063").replace(' ', "%20");
        let dump: Vec<String> = SECRET.bytes().map(|it| format!("{it:02x}")).collect();
        let private =
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\nd1+/=\n-----END RSA PRIVATE KEY-----";
        let begun: String = SECRET.chars().take(20).collect();
        let texts = [
            "a word",
            "Bearer of news",
            "https://example.com/a?b=c",
            "-----BEGIN CERTIFICATE----- MIIE",
            "-----BEGIN of the end",
            "aws_secret_access_key = os.environ",
            "Authorization: Bearer abcdef0123456789abcdef0123",
            "sk-proj-a1B2a1B2a1B2a1B2a1B2",
            "aws_secret_access_key = \"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\"",
            "postgres://me:Zk3(long),pa;ss@db:5432/app",
            private,
            SECRET,
            &begun,
            &escaped,
            &dump.join(" "),
        ];
        let ends = prop::sample::select(vec![" ", "\n", ", "]);
        let part = (prop::sample::select(texts.map(str::to_owned).to_vec()), ends);
        part.prop_map(|(text, end)| text + end)
    }

    proptest! {
        #[test]
        fn a_text_in_pieces_is_redacted_as_the_whole(
            parts in prop::collection::vec(parts(), 1..5),
            sizes in prop::collection::vec(1_usize..30, 1..20),
        ) {
            learn(SECRET);
            let whole = parts.concat();
            let mut left = whole.chars();
            let mut held = String::new();
            let mut shown = String::new();
            for size in sizes.iter().cycle() {
                let piece: String = left.by_ref().take(*size).collect();
                if piece.is_empty() {
                    break;
                }
                held += &piece;
                let rest = held.split_off(settled(&held));
                shown += &redact(&std::mem::replace(&mut held, rest));
            }
            shown += &redact(&held);
            prop_assert_eq!(shown, redact(&whole));
        }
    }

    #[test]
    fn every_text_of_a_value_is_redacted() {
        let one = "sk-abcdefghijklmnop0123";
        let other = "gsk_abcdefghijklmnopqrstu5";
        let mut value = json!({one: [1, {"a": format!("x {other}")}], other: null, "b": true});
        assert!(redact_value(&mut value));
        let expected = json!({
            "[redacted]": [1, {"a": "x [redacted]"}], "[redacted] 2": null, "b": true,
        });
        assert_eq!(value, expected);
        assert!(!redact_value(&mut value), "nothing is left");
    }

    #[test]
    fn passwords_of_urls_are_learned() {
        learn_variable("HTTPS_PROXY", "http://me:prox%79-pass-1@proxy:8080/");
        learn_variable("X", "postgres://db/app?user=me&password=param-pass-2");
        learn_variable("GH_TOKEN", "variable-pass-3");
        learn_variable("HOME", "/home/pass-4");
        learn_url("host=db password=keyword-pass-5 user=me");
        learn_url(r"password = 'quoted \' pass-6' host=db");
        for secret in [
            "prox%79-pass-1",
            "proxy-pass-1",
            "param-pass-2",
            "variable-pass-3",
            "keyword-pass-5",
            r"quoted \' pass-6",
            "quoted ' pass-6",
        ] {
            assert_eq!(redact(&format!("a {secret} b")), "a [redacted] b");
        }
        assert_eq!(redact("/home/pass-4"), "/home/pass-4");
    }

    #[test]
    fn parameters_of_the_address_of_models_are_learned() {
        learn_variable("LAB_BASE_URL", "https://lab/v1?code=query-pass-7&x&api-version=2024-10-21");
        learn_address("https://lab/v1?query-pass-8#sig=query-pass-9");
        for secret in ["query-pass-7", "query-pass-8", "query-pass-9"] {
            assert_eq!(redact(&format!("a {secret} b")), "a [redacted] b");
        }
        assert_eq!(redact("since 2024-10-21"), "since 2024-10-21");
    }
}
