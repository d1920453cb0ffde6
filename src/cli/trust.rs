//! `graphrun trust`: which folders may set in their `graphrun.toml` what can do harm.

use std::{
    fs,
    io::{self, Write as _},
    path::{self, Path, PathBuf},
};

use serde::Serialize;

use super::{
    config::{Config, FILE, FolderFile, Withheld},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    json::to_json,
    terminal::{print_result, say},
    trusted_folders::TrustedFolders,
    user_folders::UserFolders,
    words::{clean, table},
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The folder with the `graphrun.toml`
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Trust the folder no longer
    #[arg(long, conflicts_with_all = ["list", "yes"])]
    revoke: bool,
    /// Print the trusted folders
    #[arg(long, conflicts_with_all = ["folder", "yes"])]
    list: bool,
    /// Trust the folder without a question
    #[arg(long, short)]
    yes: bool,
}

/// A folder in the list, as it is printed.
#[derive(Debug, Serialize)]
struct Listed {
    folder: String,
    status: &'static str,
}

/// Trusts a folder, or changes or prints the list.
pub(super) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("trust", &[Output::Text, Output::Json])?;
    let user = UserFolders::find();
    let mut trusted = TrustedFolders::load(&user)?;
    if args.list {
        return list(&trusted, globals);
    }
    if args.revoke {
        return revoke(&mut trusted, &args.folder);
    }
    let folder =
        fs::canonicalize(&args.folder).map_err(|error| CliError::read(&args.folder, error))?;
    let Some(file) = FolderFile::read(&folder)? else {
        return Err(CliError::usage(format!("there is no `{FILE}` in `{}`", folder.display()))
            .with_help("only a folder with this file needs trust"));
    };
    if trusted.trusts(&folder, &file.text) {
        say(&format!("`{}` is trusted already", folder.display()));
        return Ok(Exit::Done);
    }
    let settings = Config::trusted_settings(&file)?;
    if !args.yes && !globals.can_type() {
        return Err(CliError::usage(format!("`{}` was not trusted", folder.display()))
            .because("there is no terminal to ask at")
            .with_help("read the file, and confirm with `graphrun trust --yes`"));
    }
    say(&format!("`{}` sets:", folder.join(FILE).display()));
    for setting in &settings {
        say(&format!("  {}", clean(setting)));
    }
    if !args.yes && !confirm(&format!("Trust `{}`?", folder.display())) {
        say("nothing was changed");
        return Ok(Exit::Usage);
    }
    trusted.trust(&folder, &file.text)?;
    say(&format!("`{}` is trusted until its `{FILE}` changes", folder.display()));
    Ok(Exit::Done)
}

/// Asks at the terminal whether to trust the current folder, with what its file sets, and remembers a yes.
///
/// # Errors
///
/// Fails when the list of trusted folders cannot be changed.
pub(super) fn ask(withheld: &[Withheld]) -> Result<bool, CliError> {
    let failed = |error| CliError::read(Path::new("."), error);
    let folder = fs::canonicalize(".").map_err(failed)?;
    let Some(file) = FolderFile::read(&folder)? else { return Ok(false) };
    say(&format!("`{}` sets what needs your trust:", folder.join(FILE).display()));
    for setting in withheld {
        say(&format!("  {}", clean(&setting.shown())));
    }
    if !confirm(&format!("Trust `{}`, until the file changes?", folder.display())) {
        return Ok(false);
    }
    TrustedFolders::load(&UserFolders::find())?.trust(&folder, &file.text)?;
    Ok(true)
}

/// Asks a question of yes and no at the terminal. Anything but a yes is a no.
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
    // The folder may be gone, and its place in the list stays.
    let canonical = fs::canonicalize(folder).or_else(|_| path::absolute(folder));
    let folder = canonical.map_err(|error| CliError::read(folder, error))?;
    if !trusted.lists(&folder) {
        return Err(CliError::usage(format!("`{}` is not trusted", folder.display()))
            .with_help("`graphrun trust --list` prints the trusted folders"));
    }
    trusted.revoke(&folder)?;
    say(&format!("`{}` is not trusted any longer", folder.display()));
    Ok(Exit::Done)
}

fn list(trusted: &TrustedFolders, globals: &Globals) -> Result<Exit, CliError> {
    let status = |folder: &Path| match FolderFile::read(folder) {
        Ok(Some(file)) if trusted.trusts(folder, &file.text) => "trusted",
        Ok(Some(_)) => "changed",
        Ok(None) | Err(_) => "gone",
    };
    let listed: Vec<Listed> = trusted
        .folders()
        .map(|it| Listed { folder: it.display().to_string(), status: status(it) })
        .collect();
    let text = if globals.output == Output::Json {
        to_json(&listed)?
    } else {
        let rows: Vec<Vec<String>> =
            listed.iter().map(|it| vec![clean(&it.folder), it.status.to_owned()]).collect();
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
