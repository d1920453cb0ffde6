//! `graphrun trust`: manages the folders whose `graphrun.toml` may contain harmful settings, and
//! the trusted databases that graphrun did not create.

use std::{
    fs,
    io::{self, Write as _},
    path::{self, Path, PathBuf},
};

use serde::Serialize;

use super::{
    config::{Config, FILE, FolderFile, WithheldSetting},
    database::{MEMORY_DEFAULT, PATH_DEFAULT},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    json::to_json,
    known_databases::{self, DatabaseKind, UntrustedFile},
    terminal::{print_message, print_result},
    trusted_folders::TrustedFolders,
    user_folders::UserFolders,
    words::{clean, table},
};

/// The databases of a folder that need trust.
const DATABASES: [(&str, DatabaseKind); 2] =
    [(PATH_DEFAULT, DatabaseKind::Runs), (MEMORY_DEFAULT, DatabaseKind::Memory)];

/// Trust the settings in the `graphrun.toml` of a folder until it changes
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The folder with the `graphrun.toml`, the database `.graphrun/runs.db` or the memory `.graphrun/memory.db`
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Remove the trust in the folder
    #[arg(long, conflicts_with_all = ["list", "yes"])]
    revoke: bool,
    /// Print the trusted folders
    #[arg(long, conflicts_with_all = ["folder", "yes"])]
    list: bool,
    /// Trust the folder without asking
    #[arg(long, short)]
    yes: bool,
}

/// A folder or a database in the lists, as it is printed.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TrustEntry {
    Folder { folder: String, status: &'static str },
    Database { database: String, status: &'static str },
}

impl Args {
    /// Trusts a folder, or changes or prints the list.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("trust", &[Output::Text, Output::Json])?;
        let user = UserFolders::find();
        let mut trusted = TrustedFolders::load(&user)?;
        if self.list {
            return list(&trusted, globals);
        }
        if self.revoke {
            return revoke(&mut trusted, &self.folder);
        }
        let folder =
            fs::canonicalize(&self.folder).map_err(|error| CliError::read(&self.folder, error))?;
        let file = FolderFile::read(&folder)?;
        let databases = DATABASES.map(|(path, kind)| (folder.join(path), kind));
        let is_there =
            |(it, _): &(PathBuf, _)| fs::canonicalize(it).is_ok_and(|found| found == *it);
        let databases: Vec<_> = databases.into_iter().filter(is_there).collect();
        if file.is_none() && databases.is_empty() {
            let message = format!(
                "there is no `{FILE}`, no `{PATH_DEFAULT}` and no `{MEMORY_DEFAULT}` in `{}`",
                folder.display()
            );
            return Err(
                CliError::usage(message).with_help("only a folder with one of these needs trust")
            );
        }
        let file = file.filter(|it| !trusted.trusts(&folder, &it.text));
        let (had_file, mut untrusted) = (trusted.lists(&folder), Vec::new());
        for (database, kind) in databases {
            match UntrustedFile::find(&database)? {
                Some(log @ UntrustedFile::Log(_)) => return Err(log.refusal(&database, kind)),
                Some(UntrustedFile::Database) => untrusted.push((database, kind)),
                None => (),
            }
        }
        if file.is_none() && untrusted.is_empty() {
            print_message(&match known_databases::trusted()? {
                _ if had_file => format!("`{}` is trusted already", folder.display()),
                all if all.iter().any(|it| it.starts_with(folder.join(".graphrun"))) => {
                    format!("`{}` is trusted already", folder.display())
                }
                _ => format!(
                    "`{}` needs no trust: graphrun made its databases for you",
                    folder.display()
                ),
            });
            return Ok(Exit::Done);
        }
        let settings = file.as_ref().map(Config::trusted_settings).transpose()?.unwrap_or_default();
        if !self.yes && !globals.can_type() {
            return Err(CliError::usage(format!("`{}` was not trusted", folder.display()))
                .because("there is no terminal to ask at")
                .with_help("look at its files, and confirm with `graphrun trust --yes`"));
        }
        if file.is_some() {
            print_message(&format!("`{}` sets:", folder.join(FILE).display()));
        }
        for setting in &settings {
            print_message(&format!("  {}", clean(setting)));
        }
        for (database, kind) in &untrusted {
            print_message(&about_database(database, *kind));
        }
        if !self.yes && !confirm(&format!("Trust `{}`?", folder.display())) {
            print_message("nothing was changed");
            return Ok(Exit::Usage);
        }
        for (database, _) in untrusted {
            known_databases::trust(&database)?;
            print_message(&format!(
                "`{}` is trusted until another file takes its place",
                database.display()
            ));
        }
        if let Some(file) = file {
            trusted.trust(&folder, &file.text)?;
            print_message(&format!("`{}` is trusted until its `{FILE}` changes", folder.display()));
        }
        Ok(Exit::Done)
    }
}

/// Asks at the terminal whether to open a database that graphrun did not create, and remembers a
/// yes.
///
/// # Errors
///
/// Fails when the list of databases cannot be changed.
pub(super) fn ask_about_database(
    path: &Path,
    untrusted: UntrustedFile,
    kind: DatabaseKind,
) -> Result<bool, CliError> {
    if untrusted != UntrustedFile::Database {
        return Ok(false);
    }
    print_message(&about_database(path, kind));
    if !confirm(&format!("Trust `{}`?", path.display())) {
        return Ok(false);
    }
    known_databases::trust(path)?;
    Ok(true)
}

fn about_database(path: &Path, kind: DatabaseKind) -> String {
    format!("`{}` is not a database that graphrun made for you; {}", path.display(), kind.danger())
}

/// Asks at the terminal whether to trust the working directory with the settings of its file, and
/// remembers a yes.
///
/// # Errors
///
/// Fails when the list of trusted folders cannot be changed.
pub(super) fn ask(withheld: &[WithheldSetting]) -> Result<bool, CliError> {
    let failed = |error| CliError::read(Path::new("."), error);
    let folder = fs::canonicalize(".").map_err(failed)?;
    let Some(file) = FolderFile::read(&folder)? else { return Ok(false) };
    print_message(&format!("`{}` has settings that need your trust:", folder.join(FILE).display()));
    for setting in withheld {
        print_message(&format!("  {}", clean(&setting.shown())));
    }
    if !confirm(&format!("Trust `{}`, until the file changes?", folder.display())) {
        return Ok(false);
    }
    TrustedFolders::load(&UserFolders::find())?.trust(&folder, &file.text)?;
    Ok(true)
}

/// Asks a yes-or-no question at the terminal. Any other answer means no.
fn confirm(question: &str) -> bool {
    let mut stderr = io::stderr().lock();
    drop(write!(stderr, "{} [y/N] ", clean(question)).and_then(|()| stderr.flush()));
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && is_yes(&answer)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

fn revoke(trusted: &mut TrustedFolders, folder: &Path) -> Result<Exit, CliError> {
    // The folder may be gone while its entry in the list remains.
    let canonical = fs::canonicalize(folder).or_else(|_| path::absolute(folder));
    let folder = canonical.map_err(|error| CliError::read(folder, error))?;
    let mut had_database = false;
    for (path, _) in DATABASES {
        had_database |= known_databases::revoke(&folder.join(path))?;
    }
    if !trusted.lists(&folder) && !had_database {
        return Err(CliError::usage(format!("`{}` is not trusted", folder.display()))
            .with_help("`graphrun trust --list` prints the trusted folders"));
    }
    trusted.revoke(&folder)?;
    print_message(&format!("`{}` is no longer trusted", folder.display()));
    Ok(Exit::Done)
}

fn list(trusted: &TrustedFolders, globals: &Globals) -> Result<Exit, CliError> {
    let status = |folder: &Path| match FolderFile::read(folder) {
        Ok(Some(file)) if trusted.trusts(folder, &file.text) => "trusted",
        Ok(Some(_)) => "changed",
        Ok(None) | Err(_) => "gone",
    };
    let shown = |it: &Path| it.display().to_string();
    let folders =
        trusted.folders().map(|it| TrustEntry::Folder { folder: shown(it), status: status(it) });
    let databases = known_databases::trusted()?.into_iter().map(|it| {
        let status = match UntrustedFile::find(&it) {
            _ if !it.exists() => "gone",
            Ok(None) => "trusted",
            Ok(Some(_)) | Err(_) => "changed",
        };
        TrustEntry::Database { database: shown(&it), status }
    });
    let listed: Vec<TrustEntry> = folders.chain(databases).collect();
    let text = if globals.output == Output::Json {
        to_json(&listed)?
    } else {
        let row = |it: &TrustEntry| match it {
            TrustEntry::Folder { folder: place, status }
            | TrustEntry::Database { database: place, status } => {
                vec![clean(place), (*status).to_owned()]
            }
        };
        let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
        table(&rows)
    };
    print_result(&text).map_err(CliError::write)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_but_a_yes_is_a_no() {
        for (answer, expected) in [
            ("y\n", true),
            (" YES \n", true),
            ("", false),
            ("\n", false),
            ("n\n", false),
            ("yess", false),
        ] {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
