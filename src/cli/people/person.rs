//! The identity of the person at this terminal, according to the environment.

use std::env;

/// The variables with the name of the user.
const VARIABLES: [&str; 2] = ["USER", "LOGNAME"];

/// Returns the name of the user and the machine, for example `ann@desk`; it is saved with answers.
pub(crate) fn who() -> String {
    let name = |variable: &&str| env::var(variable).ok().filter(|it| !it.is_empty());
    let user = VARIABLES.iter().find_map(name);
    let user = user.unwrap_or_else(|| format!("user {}", nix::unistd::Uid::current()));
    let host = nix::unistd::gethostname().ok().and_then(|it| it.into_string().ok());
    match host {
        Some(host) => format!("{user}@{host}"),
        None => user,
    }
}
