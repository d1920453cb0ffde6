//! Questions at the terminal: whether to trust a folder or a database.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use super::{
    known_databases::{self, DatabaseKind, UntrustedFile},
    trusted_folders::TrustedFolders,
};
use crate::cli::{
    error::CliError,
    output::{terminal::print_message, words::clean},
    settings::{
        config::{FILE, FolderFile, WithheldSetting},
        user_folders::UserFolders,
    },
};

/// Asks at the terminal whether to open a database that graphrun did not create, and remembers a
/// yes.
///
/// # Errors
///
/// Fails when the list of databases cannot be changed.
pub(crate) fn ask_about_database(
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

pub(crate) fn about_database(path: &Path, kind: DatabaseKind) -> String {
    format!("`{}` is not a database that graphrun made for you; {}", path.display(), kind.danger())
}

/// Asks at the terminal whether to trust the working directory with the settings of its file, and
/// remembers a yes.
///
/// # Errors
///
/// Fails when the list of trusted folders cannot be changed.
pub(crate) fn ask_about_folder(withheld: &[WithheldSetting]) -> Result<bool, CliError> {
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
pub(crate) fn confirm(question: &str) -> bool {
    let mut stderr = io::stderr().lock();
    drop(write!(stderr, "{} [y/N] ", clean(question)).and_then(|()| stderr.flush()));
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && is_yes(&answer)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
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
