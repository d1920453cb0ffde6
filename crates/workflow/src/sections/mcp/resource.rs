//! The resources of a server that calls can read.

use std::str::FromStr;

use serde::Serialize;

/// The URI of a resource, or the beginning of several URIs, which is written with `*` at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ResourcePattern {
    text: String,
}

impl FromStr for ResourcePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let constant = text.strip_suffix('*').unwrap_or(text);
        let scheme = constant.split_once(':').map_or("", |(scheme, _)| scheme);
        let is_scheme = |it: char| it.is_ascii_alphanumeric() || "+-.".contains(it);
        if !scheme.starts_with(|it: char| it.is_ascii_alphabetic())
            || !scheme.chars().all(is_scheme)
        {
            return Err("it has no scheme, as `file:` in `file:///docs/*`".to_owned());
        }
        if constant.contains('*') {
            return Err("`*` stands only at the end".to_owned());
        }
        Ok(Self { text: text.to_owned() })
    }
}

impl ResourcePattern {
    /// Returns whether it stands for a URI. A URI with `..` could lead a server out of the place that it begins with, and so could
    /// one with control characters, which many readers of URIs leave out.
    pub(super) fn matches(&self, uri: &str) -> bool {
        match self.text.strip_suffix('*') {
            None => uri == self.text,
            Some(start) => uri.strip_prefix(start).is_some_and(|rest| !climbs(start, rest)),
        }
    }

    /// Returns whether it may stand for a URI of a template.
    pub(super) fn matches_template(&self, template: &str) -> bool {
        let constant = template.split('{').next().unwrap_or_default();
        match self.text.strip_suffix('*') {
            None => self.text.starts_with(constant),
            Some(start) => constant.starts_with(start) || start.starts_with(constant),
        }
    }
}

/// Returns whether a URI has a control character, perhaps in its encoded form.
fn has_control_character(uri: &str) -> bool {
    let code = |it: &str| u32::from_str_radix(it.get(..2)?, 16).ok();
    let encoded = uri.split('%').skip(1).filter_map(code).filter_map(char::from_u32);
    uri.chars().chain(encoded).any(char::is_control)
}

/// Returns whether a part of a path after a constant beginning is `..`, in any encoding that a server may undo.
fn climbs(start: &str, rest: &str) -> bool {
    let mut path = format!("{start}{rest}").to_ascii_lowercase();
    // A server may decode more than once.
    while path.contains("%25") {
        path = path.replace("%25", "%");
    }
    let path = path.replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    path.split(['/', '\\', '?', '#']).any(|it| it.trim() == "..") || has_control_character(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_the_uris_that_begin_so() {
        let docs: ResourcePattern = "file:///docs/*".parse().unwrap();
        let note: ResourcePattern = "note://one".parse().unwrap();
        assert!(docs.matches("file:///docs/a.md") && docs.matches("file:///docs/a..b"));
        assert!(!docs.matches("file:///doc/a") && !docs.matches("note://one"));
        assert!(note.matches("note://one") && !note.matches("note://one/more"));
        for uri in ["../a", "a/../../b", "%2e%2E/a", "a/%252e./b", "..%2fb", "a\\..\\b", ".."] {
            assert!(!docs.matches(&format!("file:///docs/{uri}")), "{uri}");
        }
        for uri in [".\t./a", ".%09./a", ".%250A./a", "\u{7f}a", ".. ", "a/..%0d/b"] {
            assert!(!docs.matches(&format!("file:///docs/{uri}")), "{uri:?}");
        }
        assert!(docs.matches("file:///docs/a%20b c.md"));
        // The pattern itself may end within a part.
        let part: ResourcePattern = "file:///docs/.*".parse().unwrap();
        assert!(!part.matches("file:///docs/../x") && part.matches("file:///docs/.x"));
    }

    #[test]
    fn a_template_is_listed_if_one_of_its_uris_may_be_read() {
        let docs: ResourcePattern = "file:///docs/*".parse().unwrap();
        assert!(
            docs.matches_template("file:///{path}") && docs.matches_template("file:///docs/{path}")
        );
        assert!(
            !docs.matches_template("note://{name}")
                && !docs.matches_template("file:///other/{path}")
        );
    }

    #[test]
    fn a_pattern_is_an_address_with_a_star_at_its_end_only() {
        for text in ["", "*", "docs/*", "file:///*/a", "://a", "1a:b", "file:///**"] {
            assert!(text.parse::<ResourcePattern>().is_err(), "{text}");
        }
        for text in ["note://one", "file:///docs/*", "urn:x*", "git+ssh://a/*"] {
            assert!(text.parse::<ResourcePattern>().is_ok(), "{text}");
        }
    }
}
