//! A server and a database on it, parsed from a URL.
//!
//! The URL is that of libpq with our own parameters, which are removed here. A place is always
//! shown without its password.

use std::{fmt, path::PathBuf, time::Duration};

use percent_encoding::percent_decode_str;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

/// The time limit for connecting to one address, unless the URL sets another.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// How long a sent packet may stay unacknowledged before the connection counts as lost, unless the
/// URL sets another time.
const SILENCE_TIME: Duration = Duration::from_secs(10);

/// The longest name of a schema: <https://www.postgresql.org/docs/current/limits.html>.
const NAME_LENGTH_MAX: usize = 63;

/// A database on a server, with the connection parameters.
#[derive(Clone)]
pub(super) struct DatabaseAddress {
    pub(super) config: Config,
    pub(super) schema: String,
    /// The schema of the tables when the URL names none.
    schema_default: &'static str,
    pub(super) trust: Trust,
}

/// How the identity of the server is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Not at all, as with every `sslmode` below `verify-full`: traffic may be encrypted, but the
    /// receiver is unknown.
    Any,
    /// The server needs a certificate for its name by an authority that this system trusts.
    System,
    /// The server needs a certificate for its name by an authority in this file.
    Authorities(PathBuf),
}

impl DatabaseAddress {
    /// Parses a URL. The errors contain none of its values.
    pub(super) fn parse(url: &str, schema_default: &'static str) -> Result<Self, String> {
        let rest = ["postgres://", "postgresql://"].iter().find_map(|it| url.strip_prefix(it));
        let rest = rest.ok_or("it does not begin with `postgres://`")?;
        // Same rule as in the client, so that both agree: the first `@` ends the password.
        let host_at = rest.find('@').map_or(0, |it| it + 1);
        let (before, query) = match rest[host_at..].find('?') {
            Some(at) => (&rest[..host_at + at], &rest[host_at + at + 1..]),
            None => (rest, ""),
        };
        if before[host_at..].contains('@') {
            return Err("it has two `@`; one in a password is written `%40`".to_owned());
        }
        let mut kept = Vec::new();
        let mut schema = schema_default.to_owned();
        let mut mode = None;
        let mut authorities = None;
        for pair in query.split('&').filter(|it| !it.is_empty()) {
            match pair.split_once('=') {
                Some(("schema", value)) => value.clone_into(&mut schema),
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => authorities = Some(value),
                _ => kept.push(pair),
            }
        }
        let plain = format!("postgres://{before}?{}", kept.join("&"));
        let mut config: Config = plain.parse().map_err(unreadable)?;
        let (ssl_mode, trust) = encryption(mode, authorities)?;
        config.ssl_mode(ssl_mode);
        if config.get_hosts().is_empty() {
            return Err("it names no host".to_owned());
        }
        if config.get_user().is_none_or(str::is_empty) {
            return Err("it names no user; write `postgres://USER@HOST/DATABASE`".to_owned());
        }
        if config.get_application_name().is_none() {
            config.application_name("graphrun");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIME);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE_TIME);
        }
        check_schema(&schema)?;
        Ok(Self { config, schema, schema_default, trust })
    }

    /// Returns the user on the server.
    pub(super) fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// Returns the database on the server; by default, it has the name of the user.
    pub(super) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_else(|| self.user())
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}@", self.user())?;
        let ports = self.config.get_ports();
        for (at, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match host {
                Host::Tcp(name) if name.contains(':') => write!(f, "{comma}[{name}]")?,
                Host::Tcp(name) => write!(f, "{comma}{name}")?,
                Host::Unix(folder) => write!(f, "{comma}{}", folder.display())?,
            }
            if let Some(port) = ports.get(at).or(ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}", self.database())?;
        if self.schema != self.schema_default {
            write!(f, "?schema={}", self.schema)?;
        }
        Ok(())
    }
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseAddress({self})")
    }
}

fn encryption(mode: Option<&str>, authorities: Option<&str>) -> Result<(SslMode, Trust), String> {
    let (mode, trust) = match (mode.unwrap_or("prefer"), authorities) {
        ("verify-full", None | Some("system")) => (SslMode::Require, Trust::System),
        ("verify-full", Some(file)) => {
            let file = percent_decode_str(file).decode_utf8();
            let file = file.map_err(|_| "its `sslrootcert` is not a text")?.into_owned();
            (SslMode::Require, Trust::Authorities(file.into()))
        }
        ("disable", None) => (SslMode::Disable, Trust::Any),
        ("prefer", None) => (SslMode::Prefer, Trust::Any),
        ("require", None) => (SslMode::Require, Trust::Any),
        ("disable" | "prefer" | "require", Some(_)) => {
            return Err("its `sslrootcert` needs `sslmode=verify-full`".to_owned());
        }
        _ => {
            return Err("its `sslmode` is not one of disable, prefer, require and \
                        verify-full"
                .into());
        }
    };
    Ok((mode, trust))
}

/// The client names only the parameter, not the value.
fn unreadable(error: tokio_postgres::Error) -> String {
    let cause = error.into_source().map_or_else(|| "it is not a URL".into(), |it| it.to_string());
    format!("{cause}; write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`")
}

/// Accepts names that never need quotes and are not reserved by the server.
fn check_schema(name: &str) -> Result<(), String> {
    let begins = name.starts_with(|it: char| it.is_ascii_lowercase() || it == '_');
    let plain = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_';
    if begins
        && name.chars().all(plain)
        && name.len() <= NAME_LENGTH_MAX
        && !name.starts_with("pg_")
    {
        return Ok(());
    }
    Err("its `schema` is not made of small letters, digits and `_`, or is one of the server's own"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_without_its_password() {
        for (url, shown) in [
            ("postgres://me:secret@db.example:5433/app", "postgres://me@db.example:5433/app"),
            ("postgresql://me:secret@db", "postgres://me@db:5432/me"),
            ("postgres://me:se%40cret@[::1]/app", "postgres://me@[::1]:5432/app"),
            ("postgres://me:a?b&c=d@db/app?password=secret", "postgres://me@db:5432/app"),
            ("postgres://me:secret@a,b:1/app?schema=x1", "postgres://me@a:5432,b:1/app?schema=x1"),
            ("postgres:///app?host=/run/pg&user=me&password=secret", "postgres://me@/run/pg/app"),
        ] {
            let place = DatabaseAddress::parse(url, "graphrun").unwrap();
            assert_eq!(place.to_string(), shown);
            assert_eq!(format!("{place:?}"), format!("DatabaseAddress({shown})"));
        }
    }

    #[test]
    fn a_url_that_cannot_be_read_is_refused_without_its_values() {
        let told: Vec<String> = [
            "mysql://me:secret@db/app",
            "postgres://me:se@cret@db/app",
            "postgres://me:secret@db:port/app",
            "postgres://me:secret@db/app?sslcert=secret",
            "postgres://me:secret@db/app?sslmode=verify-ca",
            "postgres://me:secret@db/app?sslmode=require&sslrootcert=secret",
            "postgres://me:secret@db/app?schema=Secret",
            "postgres://me:secret@db/app?schema=pg_secret",
            "postgres://me:secret@db/app?secret",
            "postgres:///secret?user=me",
            "postgres://db/secret",
        ]
        .into_iter()
        .map(|it| DatabaseAddress::parse(it, "graphrun").unwrap_err())
        .collect();
        assert!(!told.iter().any(|it| it.to_lowercase().contains("secret")), "{told:#?}");
        insta::assert_snapshot!(told.join("\n"), @r"
        it does not begin with `postgres://`
        it has two `@`; one in a password is written `%40`
        invalid value for option `port`; write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`
        unknown option `sslcert`; write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`
        its `sslmode` is not one of disable, prefer, require and verify-full
        its `sslrootcert` needs `sslmode=verify-full`
        its `schema` is not made of small letters, digits and `_`, or is one of the server's own
        its `schema` is not made of small letters, digits and `_`, or is one of the server's own
        unterminated parameter; write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`
        it names no host
        it names no user; write `postgres://USER@HOST/DATABASE`
        ");
    }

    #[test]
    fn a_server_is_asked_for_its_certificate_only_by_verify_full() {
        let of = |query: &str| {
            let place =
                DatabaseAddress::parse(&format!("postgres://me@db/app?{query}"), "graphrun")
                    .unwrap();
            (place.config.get_ssl_mode(), place.trust)
        };
        assert_eq!(of(""), (SslMode::Prefer, Trust::Any));
        assert_eq!(of("sslmode=disable"), (SslMode::Disable, Trust::Any));
        assert_eq!(of("sslmode=require"), (SslMode::Require, Trust::Any));
        assert_eq!(of("sslmode=verify-full"), (SslMode::Require, Trust::System));
        let file = Trust::Authorities("/a b.pem".into());
        assert_eq!(of("sslmode=verify-full&sslrootcert=/a%20b.pem"), (SslMode::Require, file));
    }
}
