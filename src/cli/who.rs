//! Who sits at this terminal, as far as the machine knows.

use std::env;

/// The variables that name whoever is logged in.
const VARIABLES: [&str; 2] = ["USER", "LOGNAME"];

/// The name of the user and the machine, as in `ann@desk`; saved with answers.
pub(super) fn who() -> String {
    let name = |variable: &&str| env::var(variable).ok().filter(|it| !it.is_empty());
    let user = VARIABLES.iter().find_map(name);
    let user = user.unwrap_or_else(|| format!("user {}", nix::unistd::Uid::current()));
    let host = nix::unistd::gethostname().ok().and_then(|it| it.into_string().ok());
    match host {
        Some(host) => format!("{user}@{host}"),
        None => user,
    }
}
