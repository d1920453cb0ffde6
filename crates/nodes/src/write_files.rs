//! `write_files`: delivers files, documents and a report to a folder.

mod read;

use std::path::PathBuf;

use async_trait::async_trait;
use graphrun_core::{
    event::Report,
    graph::{Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeDescription, NodeError},
};
use graphrun_folders::ExclusiveFolder;
use graphrun_sandbox::{Replace, SourceFile, WriteError, change_files};
use graphrun_workflow::{ExpressionView, Prompt, PromptView};
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

pub(super) use self::read::WriteFilesKind;
pub use self::read::{Destination, WriteFilesSettings};
use super::in_folder::{open_folder, refused_write};

/// The file name of a report.
const REPORT: &str = "report.md";
/// The longest part of a path that is shown, in characters.
const PATH_CHARACTERS_MAX: usize = 200;

/// Writes files that a model wrote, so it trusts neither their names nor the content of the folder.
///
/// Delivering twice is harmless: the same files are replaced by themselves. Files of other origin
/// are replaced only where the services say so.
#[derive(Debug)]
struct WriteFiles {
    definition: WriteFilesSettings,
    output_dir: PathBuf,
    replace: Replace,
}

impl WriteFiles {
    fn collect(&self, ctx: &NodeContext, output_dir: &str) -> Result<Vec<SourceFile>, NodeError> {
        let view = ExpressionView::of(ctx).with_output_dir(output_dir);
        let mut files = match &self.definition.files {
            Some(files) => source_files(files.evaluate(&view)?.as_ref())?,
            None => Vec::new(),
        };
        for (name, document) in &self.definition.documents {
            let mut content = serde_json::to_string_pretty(&document.evaluate(&view)?)?;
            content.push('\n');
            files.push(SourceFile { path: name.clone(), content });
        }
        for (name, text) in self.definition.templates() {
            let content = text.render(&PromptView::of(ctx))?;
            files.push(SourceFile { path: name.to_owned(), content });
        }
        Ok(files)
    }
}

impl WriteFilesSettings {
    /// Returns the templates with the names of their files.
    fn templates(&self) -> impl Iterator<Item = (&str, &Prompt)> {
        let texts = self.texts.iter().map(|(name, text)| (name.as_str(), text));
        texts.chain(self.report.iter().map(|it| (REPORT, it)))
    }

    fn fingerprint(&self) -> Value {
        let texts = self.templates().map(|(name, text)| json!([name, text.text()]));
        json!({ "texts": texts.collect::<Vec<Value>>() })
    }
}

#[async_trait]
impl Node for WriteFiles {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let output_dir = self.output_dir.to_string_lossy();
        let files = self.collect(&ctx, &output_dir)?;
        let to = match &self.definition.to {
            Destination::Output(to) => to,
            Destination::Folder(folder) => {
                let written = change_in(&ctx, folder, files, Vec::new()).await?;
                for path in written.map_err(|it| refused_write(&it))? {
                    ctx.report(Report::Artifact { path: path.display().to_string() }).await;
                }
                return Ok(Command::default());
            }
        };
        let to = to.evaluate(&ExpressionView::of(&ctx).with_output_dir(&output_dir))?;
        let to = to.as_str().unwrap_or_default();
        let below = below(&output_dir, to).ok_or_else(|| not_below(&output_dir, to))?;
        let delivery = Delivery {
            root: self.output_dir.clone(),
            below: below.to_owned(),
            files,
            replace: self.replace,
        };
        let written = deliver(delivery).await?;
        for path in written {
            ctx.report(Report::Artifact { path: path.display().to_string() }).await;
        }
        Ok(Command::default())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "write_files",
            contract: Contract { reads: None, writes: Some(Vec::new()) },
            calls_max: Some(0),
            fingerprint: self.definition.fingerprint(),
            ..NodeDescription::default()
        }
    }

    fn preview(&self, ctx: &NodeContext) -> Result<Map<String, Value>, NodeError> {
        let render = |(name, text): (&str, &Prompt)| {
            Ok((name.to_owned(), text.render(&PromptView::of(ctx))?.into()))
        };
        self.definition.templates().map(render).collect()
    }
}

/// Writes files into a folder of the run, and removes others. The folder stays locked, so that no commit contains half of
/// the changes.
pub(super) async fn change_in(
    ctx: &NodeContext,
    folder: &str,
    files: Vec<SourceFile>,
    removed: Vec<String>,
) -> Result<Result<Vec<PathBuf>, WriteError>, NodeError> {
    let folder = open_folder(ctx, folder).await?;
    Ok(change(folder, files, removed).await?)
}

/// Writes in a thread that may block. It has the folder, which stays locked even if nothing waits for the thread.
fn change(
    folder: ExclusiveFolder,
    files: Vec<SourceFile>,
    removed: Vec<String>,
) -> JoinHandle<Result<Vec<PathBuf>, WriteError>> {
    tokio::task::spawn_blocking(move || change_files(folder.path(), &files, &removed))
}

/// Files with their destination.
struct Delivery {
    root: PathBuf,
    below: String,
    files: Vec<SourceFile>,
    replace: Replace,
}

/// Returns the path from the output folder to a folder below it, if the text is one. The code that
/// opens the folder checks its names.
fn below<'a>(output_dir: &str, to: &'a str) -> Option<&'a str> {
    let rest = to.strip_prefix(output_dir)?;
    let is_boundary = rest.is_empty() || rest.starts_with('/') || output_dir.ends_with('/');
    let rest = is_boundary.then_some(rest)?;
    Some(rest.strip_prefix('/').unwrap_or(rest).trim_end_matches('/'))
}

fn not_below(output_dir: &str, to: &str) -> NodeError {
    let shown: String = to.chars().take(PATH_CHARACTERS_MAX).collect();
    NodeError::permanent(format!(
        "`to` is {shown:?}, which is not below the output folder {output_dir:?}: build it from `output.dir`"
    ))
}

/// Writes in a thread that may block.
async fn deliver(delivery: Delivery) -> Result<Vec<PathBuf>, NodeError> {
    let Delivery { root, below, files, replace } = delivery;
    let shown = root.join(&below).display().to_string();
    let write = move || graphrun_sandbox::write_files(&root, &below, &files, replace);
    let written = tokio::task::spawn_blocking(write);
    written.await?.map_err(|error| {
        // A bad name from a model is a failure of the work; an unwritable folder is not.
        let kind = match error {
            WriteError::Refused(_) | WriteError::Below { .. } => ErrorKind::Other,
            _ => ErrorKind::Delivery,
        };
        let failure = Failure::of(kind, &error);
        let remedy = match error {
            WriteError::Foreign { .. } => "; move them away, or continue with `resume --force`",
            _ => "",
        };
        let message =
            format!("the files could not be delivered to {shown}: {}{remedy}", failure.message);
        NodeError::from(Failure { message, ..failure })
    })
}

/// Returns the files of an artifact: objects with a path (`file_path` or `path`) and a `content`.
pub(super) fn source_files(files: &Value) -> Result<Vec<SourceFile>, NodeError> {
    let text = |file: &Value, key: &str| file.get(key).and_then(Value::as_str).map(str::to_owned);
    let read = |file: &Value| {
        let path = text(file, "file_path").or_else(|| text(file, "path"))?;
        Some(SourceFile { path, content: text(file, "content")? })
    };
    let read: Option<Vec<SourceFile>> =
        files.as_array().and_then(|it| it.iter().map(read).collect());
    read.ok_or_else(|| NodeError::permanent("files are a list of `{file_path, content}`"))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, TryLockError},
        process::Command as Process,
    };

    use graphrun_folders::{NewFolder, RunFolders};

    use super::*;

    #[tokio::test]
    async fn a_folder_stays_locked_while_its_files_are_written() {
        let home = tempfile::tempdir().unwrap();
        let from = home.path().join("repository");
        std::fs::create_dir(&from).unwrap();
        let identity = ["-c", "user.name=User", "-c", "user.email=user@localhost"];
        for arguments in [&["init", "--quiet"][..], &["commit", "--quiet", "--allow-empty", "-mx"]]
        {
            let mut git = Process::new("git");
            let done = git.args(identity).args(arguments).current_dir(&from).status().unwrap();
            assert!(done.success(), "{arguments:?}");
        }
        let worktree = home.path().join("runs/repo");
        let new =
            NewFolder { name: "repo".into(), from, branch: "b".into(), worktree: worktree.clone() };
        let folders = RunFolders::new("r1", [new.find().await.unwrap()]);
        let open = folders.lock_exclusive("repo").await.unwrap();
        // The writer waits for this lock, and the node is dropped meanwhile.
        let held = File::open(&worktree).unwrap();
        held.lock().unwrap();
        let file = SourceFile { path: "a.txt".into(), content: "1".into() };
        drop(change(open, vec![file], Vec::new()));
        let lock = File::open(home.path().join("runs/repo.lock")).unwrap();
        assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        folders.lock_exclusive("repo").await.unwrap();
        assert!(worktree.join("a.txt").exists());
    }

    #[test]
    fn a_folder_is_below_the_output_folder_as_it_is_written() {
        for (output_dir, to, expected) in [
            ("/out", "/out", Some("")),
            ("/out", "/out/", Some("")),
            ("/out", "/out/a/b/", Some("a/b")),
            ("/out/", "/out/a", Some("a")),
            ("/out/", "/out//a", Some("a")),
            ("/out", "/out/../x", Some("../x")),
            ("/out", "/outside", None),
            ("/out", "/", None),
            ("/out", "a", None),
            ("/out", "", None),
        ] {
            assert_eq!(below(output_dir, to), expected, "{to} below {output_dir}");
        }
    }
}
