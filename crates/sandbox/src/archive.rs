//! Transfers files into the sandbox and out of it, as tar streams.
//!
//! The host never opens a path that generated code could have made: it writes one stream and reads
//! another.

use std::{collections::BTreeMap, io, io::Read as _};

use super::source_file::SourceFile;

/// The most bytes of the declared files, all together. They are reports and small artifacts, held
/// in memory.
pub(super) const COLLECT_BYTES_MAX: usize = 8 << 20;

/// Packs the files of a job. Their paths were checked before.
pub(super) fn pack(files: &[SourceFile]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in files {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(file.content.len() as u64);
        archive.append_data(&mut header, &file.path, file.content.as_bytes())?;
    }
    archive.into_inner()
}

/// Unpacks the files from the sandbox: declared names, regular files, nothing else. The program can
/// forge the stream, so odd entries are left out, and an unreadable rest ends the reading.
pub(super) fn unpack(stream: &[u8], declared: &[String]) -> BTreeMap<String, Vec<u8>> {
    let mut collected = BTreeMap::new();
    let mut archive = tar::Archive::new(stream);
    let Ok(entries) = archive.entries() else { return collected };
    for mut entry in entries.map_while(Result::ok) {
        let Some(name) = declared.iter().find(|name| *entry.path_bytes() == *name.as_bytes())
        else {
            continue;
        };
        if entry.header().entry_type() != tar::EntryType::Regular {
            continue;
        }
        // The size of the stream is bounded. A header with a larger size than the content must not
        // allocate memory for it.
        let mut content = Vec::new();
        if entry.read_to_end(&mut content).is_ok() && content.len() as u64 == entry.size() {
            collected.insert(name.clone(), content);
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
        assert_eq!(unpack(&bytes, &["report.xml".to_owned()])["report.xml"], b"<x/>");
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
            assert!(unpack(&stream(kind, name, b""), &declared).is_empty(), "{kind:?} {name}");
        }
    }

    #[test]
    fn a_cut_stream_gives_no_half_file() {
        let bytes = stream(tar::EntryType::Regular, "report.xml", &[b'x'; 2000]);
        assert!(unpack(&bytes[..1500], &["report.xml".to_owned()]).is_empty());
        assert!(unpack(b"not a tar stream at all", &["report.xml".to_owned()]).is_empty());
    }

    #[test]
    fn long_paths_reach_the_sandbox() {
        let path = format!("{}/{}.py", "d".repeat(90), "f".repeat(100));
        let packed = pack(&[SourceFile { path: path.clone(), content: "1".to_owned() }]).unwrap();
        assert_eq!(unpack(&packed, std::slice::from_ref(&path))[&path], b"1");
    }
}
