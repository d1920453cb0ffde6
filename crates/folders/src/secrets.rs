//! Looks for secrets before they become a part of the history.
//!
//! A commit of graphrun is searched before it is made. Programs on a host make commits, too, and can change those of
//! graphrun (`git commit --amend`). So each commit between the start of the run and its last commit is searched by
//! itself: a secret that a later commit removes is still in the history. A reference names the last commit of
//! graphrun; it and all commits before it have been searched.

use std::{collections::BTreeSet, iter};

use graphrun_guard::redact::{REDACTED, find_form, redact, redact_known};

use super::{error::FolderError, git::Git, worktree::ExclusiveFolder};

/// The flags with which git writes a patch and starts no program.
pub(crate) const PATCH: [&str; 8] = [
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-renames",
    "--submodule=short",
    "--inter-hunk-context=0",
    "--src-prefix=a/",
    "--dst-prefix=b/",
];
/// The author, the committer and the message of a commit, up to a byte that none of them can contain.
const HEADER: &str = "--format=%an%n%ae%n%cn%n%ce%n%B%x00";
/// The first digits of a commit in a message.
const SHORT: usize = 12;

impl ExclusiveFolder {
    /// Fails if a commit of the run up to `tip` contains a secret.
    pub(crate) async fn search_commits(&self, tip: &str) -> Result<(), FolderError> {
        let attempt = "list the commits";
        let mut arguments = vec!["rev-list".to_owned(), tip.to_owned()];
        arguments.push(format!("^{}", self.folder.base));
        let searched = self.git.commit_of(&self.folder.searched(&self.run)).await?;
        arguments.extend(searched.map(|it| format!("^{it}")));
        arguments.push("--".to_owned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        for commit in self.git.text(attempt, &arguments).await?.lines() {
            if let Err(error) = search_commit(&self.git, commit).await {
                let names =
                    ["show", "--format=", "--name-only", "--diff-merges=first-parent", "-z"];
                return Err(self
                    .with_largest(error, &[&names[..], &[commit, "--"]].concat())
                    .await);
            }
        }
        Ok(())
    }

    /// Notes that a commit and those before it have been searched.
    pub(crate) async fn note_searched(&self, commit: &str) -> Result<(), FolderError> {
        let arguments = ["update-ref", &self.folder.searched(&self.run), commit];
        self.git.run("note a commit", &arguments).await?;
        Ok(())
    }
}

/// Searches what a commit adds to its first parent, and its message.
async fn search_commit(git: &Git, commit: &str) -> Result<(), FolderError> {
    let arguments = [
        &["show", HEADER, "--diff-merges=first-parent", "--patch"],
        &PATCH[..],
        &["--text", "--unified=0", commit, "--"],
    ]
    .concat();
    let shown = git.run("read a commit", &arguments).await?;
    let end = shown.iter().position(|it| *it == 0).unwrap_or(shown.len());
    let (header, patch) = shown.split_at(end);
    let name = commit.get(..SHORT).unwrap_or(commit);
    let of_commit = |error| match error {
        FolderError::Secret { place, what } => {
            FolderError::SecretInCommit { place, what, commit: name.to_owned() }
        }
        error => error,
    };
    refuse_secret("the message", &String::from_utf8_lossy(header)).map_err(of_commit)?;
    refuse_secrets_of(patch).map_err(of_commit)
}

/// Fails if the added lines or the names of files of a patch without context contain a secret.
pub(crate) fn refuse_secrets_of(patch: &[u8]) -> Result<(), FolderError> {
    for FileChange { path, added, .. } in changes_of(patch) {
        refuse_secret("the name of a file", &path)?;
        refuse_secret(&format!("`{path}`"), &added)?;
    }
    Ok(())
}

/// Fails if a patch without context adds a text that stands for a removed key. A model that returns a file as a whole has seen
/// that text in place of the key, or had it put there, and the file would be damaged.
pub(crate) fn refuse_removed_keys(patch: &[u8]) -> Result<(), FolderError> {
    let files = changes_of(patch);
    let standing = |text: &'_ str| text.lines().filter(|it| it.contains(REDACTED)).count();
    let removed: BTreeSet<&str> = files.iter().flat_map(|it| it.removed.lines()).collect();
    let damaged = files.iter().find(|file| {
        // A line that was only moved is not new.
        let new = file.added.lines().filter(|it| it.contains(REDACTED) && !removed.contains(it));
        new.count() > standing(&file.removed)
    });
    let Some(FileChange { path, .. }) = damaged else { return Ok(()) };
    Err(FolderError::RemovedKey { place: redact(&format!("`{path}`")).into_owned() })
}

/// Fails if a text contains a secret.
pub(crate) fn refuse_secret(place: &str, text: &str) -> Result<(), FolderError> {
    // ASCII in UTF-16 is the same text with a zero before or after each character.
    let narrow = text.contains('\0').then(|| text.replace('\0', ""));
    for text in iter::once(text).chain(narrow.as_deref()) {
        let what = match find_form(text) {
            Some((_, what)) => what,
            None if redact_known(text) != text => "a secret of this process",
            None => continue,
        };
        return Err(FolderError::Secret { place: redact(place).into_owned(), what });
    }
    Ok(())
}

/// The lines that a patch without context changes in a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct FileChange {
    /// Empty if the file is removed.
    path: String,
    added: String,
    removed: String,
}

fn changes_of(patch: &[u8]) -> Vec<FileChange> {
    let patch = String::from_utf8_lossy(patch);
    let mut files: Vec<FileChange> = Vec::new();
    // The lines of the hunk that are still to come, so that no content is taken for a header.
    let mut old = 0_u64;
    let mut new = 0_u64;
    let add = |text: &mut String, line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    for line in patch.split('\n') {
        if let (true, Some(content)) = (old > 0, line.strip_prefix('-')) {
            old -= 1;
            files.last_mut().into_iter().for_each(|it| add(&mut it.removed, content));
        } else if let (true, Some(content)) = (new > 0, line.strip_prefix('+')) {
            new -= 1;
            files.last_mut().into_iter().for_each(|it| add(&mut it.added, content));
        } else if let Some(names) = line.strip_prefix("diff --git ") {
            // Without lines, as in an empty file, there is no other name. Both are the same, without renames.
            let new = names.get(names.len() / 2 + 1..).unwrap_or(names);
            files.push(FileChange { path: new_path(new), ..FileChange::default() });
        } else if line.starts_with("deleted file mode ") {
            files.last_mut().into_iter().for_each(|it| it.path.clear());
        } else if let Some(path) = line.strip_prefix("+++ b/") {
            files.last_mut().into_iter().for_each(|it| it.path = new_path(path));
        } else if let Some(counts) = line.strip_prefix("@@ -").and_then(hunk) {
            (old, new) = counts;
        }
    }
    files
}

fn new_path(path: &str) -> String {
    path.strip_prefix("b/").unwrap_or(path).trim_end_matches('\t').to_owned()
}

/// Reads the numbers of lines of a hunk, as in `3,2 +3 @@`.
fn hunk(text: &str) -> Option<(u64, u64)> {
    let (old, rest) = text.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let count = |text: &str| text.split_once(',').map_or(Some(1), |(_, many)| many.parse().ok());
    Some((count(old)?, count(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_utf_16_is_searched() {
        let text = "key = sk-abcdefghij1234567890klmnop\n";
        for bytes in [
            text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>(),
            text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        ] {
            let refused = refuse_secret("x", &String::from_utf8_lossy(&bytes));
            assert!(matches!(refused, Err(FolderError::Secret { .. })), "{refused:?}");
        }
        refuse_secret("x", "\0\0fine\0").unwrap();
    }

    #[test]
    fn changed_lines_belong_to_their_file() {
        let patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-old\n+++ b/not a file\n+two\n\
            diff --git a/y b/y\n--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+three\n\\ No newline at end of file\n\
            diff --git a/an empty one b/an empty one\nnew file mode 100644\nindex 0000000..e69de29\n\
            diff --git a/z b/z\ndeleted file mode 100644\n--- a/z\n+++ /dev/null\n@@ -1 +0,0 @@\n-four\n";
        let change = |[path, added, removed]: [&str; 3]| {
            let path = path.to_owned();
            let added = added.to_owned();
            let removed = removed.to_owned();
            FileChange { path, added, removed }
        };
        let expected = [
            ["x", "++ b/not a file\ntwo\n", "old\n"],
            ["y", "three\n", ""],
            ["an empty one", "", ""],
            ["", "", "four\n"],
        ];
        assert_eq!(changes_of(patch), expected.map(change));
    }
}
