//! Transfers files into the sandbox and out of it, as tar streams.
//!
//! The host never opens a path that generated code could have made: it writes one stream and reads
//! another. The latter begins with a list of the paths below the declared ones.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    io::Read as _,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use super::{
    folder_file::{FolderContent, FolderFile},
    path::check_path,
    source_file::SourceFile,
};

/// The most bytes of the declared files, all together. They are reports and small artifacts, held
/// in memory.
pub(super) const COLLECT_BYTES_MAX: usize = 8 << 20;

/// Packs the copy of a folder and then the files of a job, whose paths were checked before. Of two files with one path,
/// the one that comes later replaces the other.
pub(super) fn pack(folder: &[FolderFile], files: &[SourceFile]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in folder {
        let mut header = tar::Header::new_gnu();
        match &file.content {
            FolderContent::File { bytes, is_executable } => {
                describe_file(&mut header, bytes.len(), *is_executable);
                archive.append_data(&mut header, &file.path, &bytes[..])?;
            }
            FolderContent::Link(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                header.set_size(0);
                archive.append_link(&mut header, &file.path, target)?;
            }
        }
    }
    for file in files {
        let mut header = tar::Header::new_gnu();
        describe_file(&mut header, file.content.len(), false);
        archive.append_data(&mut header, &file.path, file.content.as_bytes())?;
    }
    archive.into_inner()
}

fn describe_file(header: &mut tar::Header, bytes: usize, is_executable: bool) {
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(if is_executable { 0o755 } else { 0o644 });
    header.set_size(bytes as u64);
}

/// The files that came out of a sandbox.
#[derive(Debug, Default)]
pub(super) struct UnpackedFiles {
    /// The files with an acceptable name.
    pub(super) collected: BTreeMap<String, Vec<u8>>,
    /// The other files below the declared paths.
    pub(super) refused: BTreeMap<PathBuf, Vec<u8>>,
    /// Everything below the declared paths, unless the list is not whole.
    pub(super) left: Option<LeftPaths>,
}

/// The paths below the declared ones at the end, each with its kind as `find` writes it. A folder above a declared path is
/// among them if it is a link.
#[derive(Debug)]
pub(super) struct LeftPaths(BTreeMap<Vec<u8>, u8>);

impl LeftPaths {
    /// Splits the list from the stream behind it. It has no list unless the script inside has read everything.
    fn split(stream: &[u8]) -> (Option<Self>, &[u8]) {
        let mut paths = BTreeMap::new();
        let mut rest = stream;
        let mut next = || {
            let end = rest.iter().position(|it| *it == 0)?;
            let item = &rest[..end];
            rest = &rest[end + 1..];
            Some(item)
        };
        let is_whole = loop {
            match next() {
                None => return (None, &[]),
                Some([]) => break next() == Some(b"yes"),
                Some([kind, path @ ..]) => drop(paths.insert(path.to_vec(), *kind)),
            }
        };
        (is_whole.then_some(Self(paths)), rest)
    }

    /// Returns the files that are gone. A file behind a link, or in place of which there is one, is not: a link does not come
    /// out, so the file stays.
    pub(super) fn missing(&self, known: &[PathBuf], below: &[String]) -> Vec<PathBuf> {
        let kind = |path: &Path| self.0.get(path.as_os_str().as_bytes()).copied();
        let is_missing = |path: &&PathBuf| {
            let is_plain = |path: &Path| kind(path).is_none_or(|it| matches!(it, b'd' | b'f'));
            matches!(kind(path), None | Some(b'd')) && path.ancestors().skip(1).all(is_plain)
        };
        let known = known.iter().filter(|it| is_at_or_below(it.as_os_str().as_bytes(), below));
        known.filter(is_missing).cloned().collect()
    }
}

fn is_at_or_below(path: &[u8], declared: &[String]) -> bool {
    declared.iter().any(|folder| {
        let rest = path.strip_prefix(folder.as_bytes());
        rest.is_some_and(|it| it.is_empty() || it.starts_with(b"/"))
    })
}

/// Unpacks the files from the sandbox: declared names, and regular files at or below declared paths. The program can forge
/// the stream, so odd entries are left out, and an unreadable rest ends the reading.
pub(super) fn unpack(stream: &[u8], declared: &[String], below: &[String]) -> UnpackedFiles {
    let (left, stream) = LeftPaths::split(stream);
    let mut unpacked = UnpackedFiles { left, ..UnpackedFiles::default() };
    let mut archive = tar::Archive::new(stream);
    let Ok(entries) = archive.entries() else { return unpacked };
    for mut entry in entries.map_while(Result::ok) {
        let bytes = entry.path_bytes().into_owned();
        let path = String::from_utf8(bytes.clone()).ok();
        let is_declared = path.as_ref().is_some_and(|it| declared.contains(it));
        if !is_declared && !is_at_or_below(&bytes, below) {
            continue;
        }
        if entry.header().entry_type() != tar::EntryType::Regular {
            continue;
        }
        // The size of the stream is bounded. A header with a larger size than the content must not
        // allocate memory for it.
        let mut content = Vec::new();
        if entry.read_to_end(&mut content).is_err() || content.len() as u64 != entry.size() {
            continue;
        }
        match path.filter(|it| is_declared || check_path(it).is_ok()) {
            Some(path) => drop(unpacked.collected.insert(path, content)),
            None => drop(unpacked.refused.insert(OsString::from_vec(bytes).into(), content)),
        }
    }
    unpacked
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of nothing, before an archive.
    const NO_LIST: &[u8] = b"\0yes\0";

    fn stream(kind: tar::EntryType, name: &str, content: &[u8]) -> Vec<u8> {
        let mut archive = tar::Builder::new(NO_LIST.to_vec());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        if kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        archive.append_data(&mut header, name, content).unwrap();
        archive.into_inner().unwrap()
    }

    #[test]
    fn a_declared_regular_file_comes_out() {
        let bytes = stream(tar::EntryType::Regular, "report.xml", b"<x/>");
        assert_eq!(
            unpack(&bytes, &["report.xml".to_owned()], &[]).collected["report.xml"],
            b"<x/>"
        );
    }

    #[test]
    fn only_declared_names_and_regular_files_come_out() {
        let declared = ["report.xml".to_owned()];
        for (kind, name) in [
            (tar::EntryType::Regular, "other.xml"),
            (tar::EntryType::Symlink, "report.xml"),
            (tar::EntryType::Link, "report.xml"),
            (tar::EntryType::Directory, "report.xml"),
            (tar::EntryType::Fifo, "report.xml"),
            (tar::EntryType::GNUSparse, "report.xml"),
        ] {
            let unpacked = unpack(&stream(kind, name, b""), &declared, &[]);
            assert!(unpacked.collected.is_empty(), "{kind:?} {name}");
            assert!(unpacked.refused.is_empty(), "{kind:?} {name}");
        }
    }

    #[test]
    fn acceptable_regular_files_come_out_of_a_declared_folder() {
        let below = ["src".to_owned()];
        for (kind, name, expected) in [
            (tar::EntryType::Regular, "src/deep/a.py", (true, false)),
            (tar::EntryType::Regular, "src", (true, false)),
            (tar::EntryType::Regular, "srcs/a.py", (false, false)),
            (tar::EntryType::Regular, "src/.git/config", (false, true)),
            (tar::EntryType::Regular, "src/a\u{301}.py", (false, true)),
            (tar::EntryType::Symlink, "src/a.py", (false, false)),
            (tar::EntryType::Symlink, "src/a:b", (false, false)),
            (tar::EntryType::Directory, "src/a.py", (false, false)),
        ] {
            let UnpackedFiles { collected, refused, .. } =
                unpack(&stream(kind, name, b""), &[], &below);
            assert_eq!((!collected.is_empty(), !refused.is_empty()), expected, "{kind:?} {name}");
        }
    }

    #[test]
    fn a_copy_of_a_folder_keeps_programs_and_links() {
        let program = FolderContent::File { bytes: b"1".as_slice().into(), is_executable: true };
        let folder = [
            FolderFile { path: "a\nb".into(), content: program },
            FolderFile { path: "c".into(), content: FolderContent::Link("/etc/passwd".into()) },
        ];
        let packed = pack(&folder, &[]).unwrap();
        let mut archive = tar::Archive::new(&packed[..]);
        let read = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            (header.entry_type(), header.mode().unwrap(), entry.path().unwrap().into_owned())
        });
        let expected = [
            (tar::EntryType::Regular, 0o755, "a\nb".into()),
            (tar::EntryType::Symlink, 0o777, "c".into()),
        ];
        assert_eq!(read.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_cut_stream_gives_no_half_file() {
        let bytes = stream(tar::EntryType::Regular, "report.xml", &[b'x'; 2000]);
        for bytes in [&bytes[..1500], b"not a tar stream at all"] {
            assert!(unpack(bytes, &["report.xml".to_owned()], &[]).collected.is_empty());
        }
    }

    #[test]
    fn long_paths_reach_the_sandbox() {
        let path = format!("{}/{}.py", "d".repeat(90), "f".repeat(100));
        let packed =
            pack(&[], &[SourceFile { path: path.clone(), content: "1".to_owned() }]).unwrap();
        let packed = [NO_LIST, &packed].concat();
        assert_eq!(unpack(&packed, std::slice::from_ref(&path), &[]).collected[&path], b"1");
    }

    #[test]
    fn a_file_is_missing_only_if_no_link_hides_it() {
        let known = ["a", "src/b", "src/c", "src/x/d", "src/x/e", "other"].map(PathBuf::from);
        let below = ["a".to_owned(), "src".to_owned()];
        let missing = |list: &[u8]| {
            let (left, rest) = LeftPaths::split(list);
            assert_eq!(rest, b"", "{list:?}");
            let names = |it: PathBuf| it.display().to_string();
            left.map(|files| {
                files.missing(&known, &below).into_iter().map(names).collect::<Vec<_>>()
            })
        };
        let all = ["a", "src/b", "src/c", "src/x/d", "src/x/e"].map(str::to_owned).to_vec();
        for (list, expected) in [
            (&b"\0yes\0"[..], Some(&all[..])),
            (b"\0no\0", None),
            (b"fa\0dsrc\0", None),
            (b"", None),
            (b"fa\0dsrc\0fsrc/b\0fsrc/c\0dsrc/x\0fsrc/x/d\0\0yes\0", Some(&all[4..])),
            (b"fa\0dsrc\0fsrc/b\0dsrc/c\0lsrc/x\0\0yes\0", Some(&all[2..3])),
            (b"fa\0lsrc\0\0yes\0", Some(&[])),
            (b"la\0psrc\0\0yes\0", Some(&[])),
        ] {
            assert_eq!(missing(list).as_deref(), expected, "{}", String::from_utf8_lossy(list));
        }
    }
}
