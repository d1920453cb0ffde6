//! Transfers files into the sandbox and out of it, as tar streams.
//!
//! The host never opens a path that generated code could have made: it writes one stream and reads
//! another.

use std::{collections::BTreeMap, io, io::Read as _};

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

/// Unpacks the files from the sandbox: declared names, acceptable names at or below declared paths, regular files, nothing
/// else. The program can forge the stream, so odd entries are left out, and an unreadable rest ends the reading.
pub(super) fn unpack(
    stream: &[u8],
    declared: &[String],
    below: &[String],
) -> BTreeMap<String, Vec<u8>> {
    let is_below = |path: &str| {
        let is_at = |it: &String| {
            path.strip_prefix(it.as_str()).is_some_and(|it| it.is_empty() || it.starts_with('/'))
        };
        below.iter().any(is_at) && check_path(path).is_ok()
    };
    let mut collected = BTreeMap::new();
    let mut archive = tar::Archive::new(stream);
    let Ok(entries) = archive.entries() else { return collected };
    for mut entry in entries.map_while(Result::ok) {
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !declared.contains(&path) && !is_below(&path) {
            continue;
        }
        if entry.header().entry_type() != tar::EntryType::Regular {
            continue;
        }
        // The size of the stream is bounded. A header with a larger size than the content must not
        // allocate memory for it.
        let mut content = Vec::new();
        if entry.read_to_end(&mut content).is_ok() && content.len() as u64 == entry.size() {
            collected.insert(path, content);
        }
    }
    collected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(kind: tar::EntryType, name: &str, content: &[u8]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
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
        assert_eq!(unpack(&bytes, &["report.xml".to_owned()], &[])["report.xml"], b"<x/>");
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
            assert!(unpack(&stream(kind, name, b""), &declared, &[]).is_empty(), "{kind:?} {name}");
        }
    }

    #[test]
    fn acceptable_regular_files_come_out_of_a_declared_folder() {
        let below = ["src".to_owned()];
        for (kind, name, expected) in [
            (tar::EntryType::Regular, "src/deep/a.py", true),
            (tar::EntryType::Regular, "src", true),
            (tar::EntryType::Regular, "srcs/a.py", false),
            (tar::EntryType::Regular, "src/.git/config", false),
            (tar::EntryType::Regular, "src/a\u{e9}.py", false),
            (tar::EntryType::Symlink, "src/a.py", false),
            (tar::EntryType::Directory, "src/a.py", false),
        ] {
            let found = !unpack(&stream(kind, name, b""), &[], &below).is_empty();
            assert_eq!(found, expected, "{kind:?} {name}");
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
        let read = archive.entries().unwrap().map(|it| {
            let entry = it.unwrap();
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
        assert!(unpack(&bytes[..1500], &["report.xml".to_owned()], &[]).is_empty());
        assert!(unpack(b"not a tar stream at all", &["report.xml".to_owned()], &[]).is_empty());
    }

    #[test]
    fn long_paths_reach_the_sandbox() {
        let path = format!("{}/{}.py", "d".repeat(90), "f".repeat(100));
        let packed =
            pack(&[], &[SourceFile { path: path.clone(), content: "1".to_owned() }]).unwrap();
        assert_eq!(unpack(&packed, std::slice::from_ref(&path), &[])[&path], b"1");
    }
}
