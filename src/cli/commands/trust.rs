//! `graphrun trust`: manages the folders whose `graphrun.toml` may contain harmful settings, and
//! the trusted databases that graphrun did not create.

use std::{
    fs,
    path::{self, Path, PathBuf},
};

use serde::Serialize;

use crate::cli::{
    allow::{
        ask::{about_database, confirm},
        known_databases::{self, DatabaseKind, UntrustedFile},
        trusted_folders::TrustedFolders,
    },
    arguments::globals::{Globals, Output},
    error::CliError,
    exit::Exit,
    output::{
        json::to_json,
        terminal::{print_message, print_result},
        words::{clean, table},
    },
    settings::{
        config::{Config, FILE, FolderFile},
        database::{MEMORY_DEFAULT, PATH_DEFAULT},
        user_folders::UserFolders,
    },
};

/// The databases of a folder that need trust.
const DATABASES: [(&str, DatabaseKind); 2] =
    [(PATH_DEFAULT, DatabaseKind::Runs), (MEMORY_DEFAULT, DatabaseKind::Memory)];

/// Trust the settings in the `graphrun.toml` of a folder until it changes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
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
        let untrusted = Untrusted::find(&folder, &trusted)?;
        if untrusted.is_empty() {
            print_message(&why_no_trust_is_needed(&folder, &trusted)?);
            return Ok(Exit::Done);
        }
        let settings = untrusted.file.as_ref().map(Config::trusted_settings).transpose()?;
        if !self.yes && !globals.can_type() {
            return Err(CliError::usage(format!("`{}` was not trusted", folder.display()))
                .because("there is no terminal to ask at")
                .with_help("look at its files, and confirm with `graphrun trust --yes`"));
        }
        untrusted.print(&settings.unwrap_or_default());
        if !self.yes && !confirm(&format!("Trust `{}`?", folder.display())) {
            print_message("nothing was changed");
            return Ok(Exit::Usage);
        }
        untrusted.trust(&mut trusted)?;
        Ok(Exit::Done)
    }
}

/// The files of a folder that need trust and do not have it.
struct Untrusted<'a> {
    folder: &'a Path,
    file: Option<FolderFile>,
    databases: Vec<(PathBuf, DatabaseKind)>,
}

impl<'a> Untrusted<'a> {
    /// Finds the files.
    ///
    /// # Errors
    ///
    /// Fails when the folder has none that ever needs trust, when one cannot be read, and when a database has the log of
    /// another program.
    fn find(folder: &'a Path, trusted: &TrustedFolders) -> Result<Self, CliError> {
        let file = FolderFile::read(folder)?;
        let is_there = |path: &Path| fs::canonicalize(path).is_ok_and(|found| found == path);
        let found = DATABASES.map(|(path, kind)| (folder.join(path), kind)).into_iter();
        let found: Vec<_> = found.filter(|(path, _)| is_there(path)).collect();
        if file.is_none() && found.is_empty() {
            let message = format!(
                "there is no `{FILE}`, no `{PATH_DEFAULT}` and no `{MEMORY_DEFAULT}` in `{}`",
                folder.display()
            );
            return Err(
                CliError::usage(message).with_help("only a folder with one of these needs trust")
            );
        }
        let mut databases = Vec::new();
        for (path, kind) in found {
            match UntrustedFile::find(&path)? {
                Some(log @ UntrustedFile::Log(_)) => return Err(log.refusal(&path, kind)),
                Some(UntrustedFile::Database) => databases.push((path, kind)),
                None => (),
            }
        }
        let file = file.filter(|it| !trusted.trusts(folder, &it.text));
        Ok(Self { folder, file, databases })
    }

    fn is_empty(&self) -> bool {
        self.file.is_none() && self.databases.is_empty()
    }

    /// Prints what a person trusts by a yes.
    fn print(&self, settings: &[String]) {
        if self.file.is_some() {
            print_message(&format!("`{}` sets:", self.folder.join(FILE).display()));
        }
        for setting in settings {
            print_message(&format!("  {}", clean(setting)));
        }
        for (database, kind) in &self.databases {
            print_message(&about_database(database, *kind));
        }
    }

    fn trust(self, trusted: &mut TrustedFolders) -> Result<(), CliError> {
        for (database, _) in self.databases {
            known_databases::trust(&database)?;
            print_message(&format!(
                "`{}` is trusted until another file takes its place",
                database.display()
            ));
        }
        if let Some(file) = self.file {
            let folder = self.folder.display();
            trusted.trust(self.folder, &file.text)?;
            print_message(&format!("`{folder}` is trusted until its `{FILE}` changes"));
        }
        Ok(())
    }
}

fn why_no_trust_is_needed(folder: &Path, trusted: &TrustedFolders) -> Result<String, CliError> {
    let databases = known_databases::trusted()?;
    let is_inside = |path: &PathBuf| path.starts_with(folder.join(".graphrun"));
    let folder_name = folder.display();
    Ok(if trusted.lists(folder) || databases.iter().any(is_inside) {
        format!("`{folder_name}` is trusted already")
    } else {
        format!("`{folder_name}` needs no trust: graphrun made its databases for you")
    })
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
    let folders = trusted
        .folders()
        .map(|folder| TrustEntry::Folder { folder: shown(folder), status: status(folder) });
    let databases = known_databases::trusted()?.into_iter().map(|file| {
        let status = match UntrustedFile::find(&file) {
            _ if !file.exists() => "gone",
            Ok(None) => "trusted",
            Ok(Some(_)) | Err(_) => "changed",
        };
        TrustEntry::Database { database: shown(&file), status }
    });
    let listed: Vec<TrustEntry> = folders.chain(databases).collect();
    let text = if globals.output == Output::Json {
        to_json(&listed)?
    } else {
        let row = |entry: &TrustEntry| match entry {
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
