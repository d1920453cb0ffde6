//! The configuration of npm that an operator has in `.npmrc`: the registries, and the keys for them.

use std::collections::BTreeMap;

use graphrun_guard::redact::learn;

/// The ends of the keys whose values give access to a registry.
const CREDENTIALS: [&str; 4] = [":_authToken", ":_auth", ":username", ":_password"];

/// The parts of a file that are used. All other keys are ignored.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct NpmConfig {
    pub(super) registry: Option<String>,
    pub(super) certificates: Option<String>,
    /// The registries of scopes such as `@scope`.
    pub(super) scopes: BTreeMap<String, String>,
    /// The keys of registries, by names as in `//registry.example.com/:_authToken`.
    credentials: BTreeMap<String, String>,
}

impl NpmConfig {
    /// Reads a file. `${NAME}` stands for a variable, as for npm.
    pub(super) fn read(text: &str, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut config = Self::default();
        for line in text.lines().map(str::trim) {
            if line.starts_with([';', '#']) {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let key = key.trim();
            let value = with_variables(unquoted(value.trim()), &variable);
            if value.contains(char::is_control) {
                continue;
            }
            match key {
                "registry" => config.registry = Some(value),
                "cafile" => config.certificates = Some(value),
                _ if key.starts_with("//") && CREDENTIALS.iter().any(|it| key.ends_with(it)) => {
                    // The name of a user is shown nowhere else, and no secret.
                    if !key.ends_with(":username") {
                        learn(&value);
                    }
                    config.credentials.insert(key.to_owned(), value);
                }
                _ => {
                    if let Some(scope) =
                        key.strip_suffix(":registry").filter(|it| it.starts_with('@'))
                    {
                        config.scopes.insert(scope.to_owned(), value);
                    }
                }
            }
        }
        config
    }

    /// Returns the lines of a file with the keys for a registry of this authority, as in `npm.example:8443`.
    pub(super) fn credentials_of(&self, authority: &str) -> String {
        let is_of_it = |key: &str| {
            let rest = key.strip_prefix("//").and_then(|it| it.strip_prefix(authority));
            // Another port belongs to another registry.
            rest.is_some_and(|it| it.starts_with('/') || CREDENTIALS.contains(&it))
        };
        let of_it = self.credentials.iter().filter(|(key, _)| is_of_it(key));
        let lines = of_it.map(|(key, value)| format!("{key}={value}\n"));
        lines.collect::<Vec<_>>().concat()
    }
}

fn unquoted(text: &str) -> &str {
    let inner = text.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inner.unwrap_or(text)
}

fn with_variables(text: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        done += before;
        let Some((name, after)) = after.split_once('}') else {
            rest = &rest[before.len()..];
            break;
        };
        // An unknown one stays as it is.
        done += &variable(name).unwrap_or_else(|| format!("${{{name}}}"));
        rest = after;
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_and_their_keys_are_read() {
        let text = "; mine\nregistry = \"https://npm.example/\"\n@team:registry=https://team.example:8443/npm/\n\
                    //team.example:8443/npm/:_authToken=${TOKEN}-${NONE}\n//team.example/:_authToken=other\n\
                    //npm.example.evil/:_auth=x\n//npm.example:81/:_auth=y\naudit=false\n//npm.example/:username=me\nscript-shell=evil\nfund\n";
        let variable = |name: &str| (name == "TOKEN").then(|| "t-1".to_owned());
        let config = NpmConfig::read(text, variable);
        assert_eq!(config.registry.as_deref(), Some("https://npm.example/"));
        let scopes = [("@team".to_owned(), "https://team.example:8443/npm/".to_owned())];
        assert_eq!(config.scopes, scopes.into());
        let of_team = "//team.example:8443/npm/:_authToken=t-1-${NONE}\n";
        assert_eq!(config.credentials_of("team.example:8443"), of_team);
        assert_eq!(config.credentials_of("npm.example"), "//npm.example/:username=me\n");
        assert_eq!(config.credentials_of("example"), "");
        assert_eq!(with_variables("a${b", |_| None), "a${b");
    }
}
