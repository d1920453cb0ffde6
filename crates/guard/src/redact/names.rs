//! The names of secrets.

/// The ends of names that only secrets have.
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "pgpassword",
    "sslpassword",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "apikey",
    "access_key",
    "secret_key",
    "private_key",
];

/// Returns whether a name is that of a secret, such as `DB_PASSWORD`.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    NAMES.iter().any(|it| {
        name.strip_suffix(it).is_some_and(|before| before.is_empty() || before.ends_with('_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_by_their_ends() {
        for name in [
            "PASSWORD",
            "DB_PASSWORD",
            "PGPASSWORD",
            "sslpassword",
            "token",
            "GITHUB_TOKEN",
            "x-api-key",
            "SECRET",
        ] {
            assert!(names_a_secret(name), "{name}");
        }
        for name in ["TOKENS", "MAX_TOKENS", "SORT_KEY", "KEY", "SECRETARY", "PASSWORD_LENGTH"] {
            assert!(!names_a_secret(name), "{name}");
        }
    }
}
