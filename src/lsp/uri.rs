//! Conversion between `file:` URIs and paths.

use std::path::{Path, PathBuf};

/// Returns the path of a URI; `None` if it is not a `file:` URI.
pub(super) fn to_path(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = &rest[rest.find('/')?..];
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let code = (*first == b'%').then(|| others.get(..2)).flatten();
        let code = code.and_then(|it| std::str::from_utf8(it).ok());
        let code = code.and_then(|it| u8::from_str_radix(it, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &others[2..] } else { others };
    }
    String::from_utf8(bytes).ok().map(PathBuf::from)
}

/// Returns the URI of an absolute path.
pub(super) fn of_path(path: &Path) -> String {
    let written = |byte: u8| match byte {
        b'/' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let path = path.to_string_lossy();
    format!("file://{}", path.bytes().map(written).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_back_from_its_address() {
        for path in ["/a/b.yaml", "/größe/a b#1?.yaml", "/a%20b", "/a+b/😀"] {
            assert_eq!(to_path(&of_path(Path::new(path))), Some(PathBuf::from(path)));
        }
        assert_eq!(of_path(Path::new("/a b/ü.md")), "file:///a%20b/%C3%BC.md");
    }

    #[test]
    fn addresses_are_read_however_a_client_writes_them() {
        assert_eq!(to_path("file:///a%2Fb+c%3a.yaml"), Some("/a/b+c:.yaml".into()));
        assert_eq!(to_path("file://localhost/a%2"), Some("/a%2".into()));
        assert_eq!(to_path("untitled:Untitled-1"), None);
        assert_eq!(to_path("file:///%FF"), None);
    }
}
