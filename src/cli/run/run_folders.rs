//! The folders of runs: where their worktrees are, and how commands find, provide and remove them.

use std::{
    collections::BTreeSet,
    fs,
    path::{self, PathBuf},
};

use super::origin::Origin;
use crate::{
    checkpoint::{CheckpointError, Checkpointer, RunInfo},
    cli::{
        error::CliError,
        exit::Exit,
        output::{terminal::print_message, words::shell_word},
        settings::{
            database::Database,
            user_folders::{UserFolders, cache_dir},
        },
    },
    folders::{FolderError, NewFolder, RunFolder},
    graph::{ErrorKind, Failure},
    id::RunId,
    nodes::RunHomes,
    sandbox::remove_folder,
    state::Update,
    workflow::{FolderRequest, Workflow},
};

/// The folder of all worktrees, if the environment names no folder for the state of programs.
const FALLBACK: &str = ".graphrun/folders";
/// The characters of a commit that a note shows.
const COMMIT_CHARACTERS: usize = 12;
/// The start of the name of a run's folder. An id alone may be `..`.
const RUN_PREFIX: &str = "run-";

/// Finds the folders of a new run, before anything of it is saved.
///
/// # Errors
///
/// Fails when an expression has no value, and when a repository cannot be used.
pub(crate) async fn find(
    workflow: &Workflow,
    input: &Update,
    run: &RunId,
    database: &Database,
) -> Result<Vec<RunFolder>, CliError> {
    let mut found = Vec::new();
    for request in requests_of(workflow, input, run)? {
        let name = request.name.clone();
        let worktree = place(database)?.join(format!("{RUN_PREFIX}{run}")).join(&request.name);
        let from = PathBuf::from(request.from);
        let new = NewFolder { name: request.name, from, branch: request.branch, worktree };
        let folder = new.find().await.map_err(|error| refuse(&name, error))?;
        // A checkout that cannot be compared has no note.
        if folder.has_uncommitted_changes().await.unwrap_or(false) {
            let repository = folder.repository.display();
            let commit: String = folder.base.chars().take(COMMIT_CHARACTERS).collect();
            print_message(&format!(
                "`{repository}` has changes that are not committed; the run starts from the commit {commit}, without them"
            ));
        }
        found.push(folder);
    }
    Ok(found)
}

/// Finds the repositories whose lock files a workflow names, and their current commits. The folders have no worktree, and their
/// branches are not those of a run.
///
/// # Errors
///
/// As [`find`].
pub(crate) async fn find_bases(
    workflow: &Workflow,
    input: &Update,
    run: &RunId,
) -> Result<Vec<RunFolder>, CliError> {
    let used: BTreeSet<String> = workflow.lock_files().into_iter().map(|it| it.folder).collect();
    let mut found = Vec::new();
    for FolderRequest { name, from, .. } in requests_of(workflow, input, run)? {
        if used.contains(&name) {
            // The branch of an earlier run may have the declared name.
            let branch = format!("graphrun/{run}");
            let from = PathBuf::from(from);
            let worktree = PathBuf::new();
            let new = NewFolder { name: name.clone(), from, branch, worktree };
            found.push(new.find().await.map_err(|error| refuse(&name, error))?);
        }
    }
    Ok(found)
}

fn requests_of(
    workflow: &Workflow,
    input: &Update,
    run: &RunId,
) -> Result<Vec<FolderRequest>, CliError> {
    workflow.folder_requests(input, run).map_err(|error| {
        CliError::usage("the folders of the run cannot be found; nothing was started")
            .because(error)
    })
}

fn refuse(name: &str, error: FolderError) -> CliError {
    let exit = match &error {
        FolderError::NotRepository { .. }
        | FolderError::OtherOwner { .. }
        | FolderError::BadBranch { .. }
        | FolderError::BranchInTheWay { .. }
        | FolderError::BranchTaken { .. } => Exit::Usage,
        _ => Exit::Unusable,
    };
    let message = format!("the folder `{name}` cannot be used; nothing was started");
    let help = error.hint();
    let refused = CliError::new(exit, message).because(error);
    help.into_iter().fold(refused, CliError::with_help)
}

/// Returns the folder of the worktrees of a database's runs. It is not in the folder of the user, where git would find the
/// worktrees as new files.
fn place(database: &Database) -> Result<PathBuf, CliError> {
    let folder = UserFolders::find().worktrees().unwrap_or_else(|| FALLBACK.into());
    let folder = path::absolute(&folder).map_err(|error| CliError::read(&folder, error))?;
    Ok(folder.join(key_of(database)))
}

/// Returns the homes of the programs of a run, which keep their sessions there.
pub(crate) fn homes(database: &Database, run: &RunId) -> RunHomes {
    let cache = cache_dir();
    let cache = path::absolute(&cache).unwrap_or(cache);
    RunHomes::new(&cache, &format!("{}-{run}", key_of(database)))
}

/// Returns a short name for a database.
fn key_of(database: &Database) -> String {
    blake3::hash(database.key().as_bytes()).to_hex()[..16].to_owned()
}

/// Removes the worktrees of a removed run, its branches without commits, and the homes of its programs. A failure is a
/// message: the run is gone. Returns the names of the folders whose branches stay.
pub(crate) async fn remove(info: &RunInfo, database: &Database) -> BTreeSet<String> {
    let homes = homes(database, &info.id);
    if let Err(error) = remove_folder(homes.folder()) {
        let path = homes.folder().display();
        print_message(&format!("the homes `{path}` of {} stay: {error}", info.name));
    }
    let mut with_branch = BTreeSet::new();
    let Ok(origin) = Origin::of(info) else { return with_branch };
    for folder in &origin.folders {
        let removed = folder.remove(info.id.as_str()).await;
        if !matches!(removed, Ok(false)) {
            with_branch.insert(folder.name.clone());
        }
        let message = match removed {
            Ok(_) => continue,
            Err(FolderError::RepositoryGone { path }) => format!(
                "the repository `{}` of {} does not exist, so its branch `{}` stays; if it was moved, \
                 `git worktree prune` there forgets the worktree",
                path.display(),
                info.name,
                folder.branch
            ),
            Err(error) => {
                let why = Failure::of(ErrorKind::Folder, &error).message;
                let path = folder.worktree.display();
                format!("the worktree `{path}` of {} stays: {why}", info.name)
            }
        };
        print_message(&message);
    }
    with_branch
}

/// Says where the worktrees of a run are that no later command finds.
pub(crate) fn name_worktrees(info: &RunInfo) {
    let folders = Origin::of(info).map(|it| it.folders).unwrap_or_default();
    for folder in folders.iter().filter(|it| it.worktree.exists()) {
        let worktree = shell_word(&folder.worktree.to_string_lossy()).into_owned();
        let repository = shell_word(&folder.repository.to_string_lossy()).into_owned();
        print_message(&format!(
            "the worktree of `{}` stays; remove it by: git -C {repository} worktree remove --force {worktree}",
            folder.name
        ));
    }
}

/// What runs have left that are no longer in the database.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    pub(crate) worktrees: Vec<PathBuf>,
    /// The homes of programs.
    pub(crate) homes: Vec<PathBuf>,
}

/// Returns the worktrees and the homes without a run in the database. Those of other databases are left out.
///
/// # Errors
///
/// Fails when the database cannot be read.
pub(crate) async fn left_over(
    database: &Database,
    checkpointer: Option<&dyn Checkpointer>,
) -> Result<Leftovers, CliError> {
    let mut found = Leftovers::default();
    // Without the folder there are no worktrees.
    for entry in fs::read_dir(place(database)?).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(run) = name.to_str().and_then(|it| it.strip_prefix(RUN_PREFIX)) else { continue };
        if is_gone(run, checkpointer).await? {
            let worktrees = fs::read_dir(entry.path()).into_iter().flatten().flatten();
            found.worktrees.extend(worktrees.map(|it| it.path()).filter(|it| it.is_dir()));
        }
    }
    let prefix = format!("{}-", key_of(database));
    for (name, homes) in RunHomes::all(&cache_dir()) {
        let Some(run) = name.strip_prefix(&prefix) else { continue };
        if is_gone(run, checkpointer).await? {
            found.homes.push(homes.folder().to_owned());
        }
    }
    found.worktrees.sort();
    found.homes.sort();
    Ok(found)
}

/// Returns whether a text is the id of a run, and the database has no such run.
async fn is_gone(run: &str, checkpointer: Option<&dyn Checkpointer>) -> Result<bool, CliError> {
    let Ok(run) = RunId::parse(run) else { return Ok(false) };
    let Some(checkpointer) = checkpointer else { return Ok(true) };
    match checkpointer.find(run.as_str()).await {
        Err(CheckpointError::UnknownRun(_)) => Ok(true),
        // A damaged run may be repaired.
        Ok(_) | Err(CheckpointError::Damaged { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
