//! Files in a message of the user: images, PDF documents, audio and texts.
//!
//! The value of a file in a state is a record of its name, its media type and its content in base64, which is also the
//! form that providers take. A protocol that has no place for a kind of file refuses it before anything is sent.

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A file in a message.
///
/// It is saved and recorded with the hash of its content in place of the content.
///
/// ```
/// use graphrun_models::{Attachment, AttachmentKind};
///
/// let file = Attachment::of_file("scans/page 1.png", b"\x89PNG\r\n")?;
/// assert_eq!((file.name(), file.kind()), ("page 1.png", AttachmentKind::Image));
/// assert_eq!(Attachment::of_value(&file.to_value())?, file);
/// # Ok::<_, graphrun_models::AttachmentError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    name: String,
    media_type: String,
    hash: String,
    /// The content in base64.
    #[serde(skip)]
    data: Arc<str>,
}

/// A kind of file that models read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachmentKind {
    /// A picture.
    Image,
    /// A PDF document.
    Pdf,
    /// Speech or music.
    Audio,
    /// A text in UTF-8, which becomes a part of the message.
    Text,
}

/// Why a file cannot be attached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachmentError {
    /// The value is not the record of a file.
    #[error("it is no file: it needs the texts `name`, `media_type` and `data`")]
    NoFile,
    /// The content is not base64.
    #[error("the content of `{name}` is not base64")]
    NoBase64 {
        /// The name of the file.
        name: String,
    },
    /// The file has no content. Providers reject it.
    #[error("`{name}` is empty")]
    Empty {
        /// The name of the file.
        name: String,
    },
    /// The file is too large.
    #[error("`{name}` is {reached}")]
    TooLarge {
        /// The name of the file.
        name: String,
        /// The limit.
        reached: DataLimitReached,
    },
    /// No model reads files of this type.
    #[error(
        "`{name}` has the type `{media_type}`, which no model reads: attach an image (PNG, JPEG, GIF, WebP), a PDF \
         document, audio (WAV, MP3, FLAC, Ogg, AAC, M4A) or a text in UTF-8"
    )]
    UnknownType {
        /// The name of the file.
        name: String,
        /// Its media type.
        media_type: String,
    },
}

/// The media types of files that are no texts, by the ends of their names. The first end of a type is the usual one.
const TYPES: &[(&str, &str, AttachmentKind)] = &[
    ("png", "image/png", AttachmentKind::Image),
    ("jpg", "image/jpeg", AttachmentKind::Image),
    ("jpeg", "image/jpeg", AttachmentKind::Image),
    ("gif", "image/gif", AttachmentKind::Image),
    ("webp", "image/webp", AttachmentKind::Image),
    ("pdf", "application/pdf", AttachmentKind::Pdf),
    ("wav", "audio/wav", AttachmentKind::Audio),
    ("mp3", "audio/mpeg", AttachmentKind::Audio),
    ("flac", "audio/flac", AttachmentKind::Audio),
    ("ogg", "audio/ogg", AttachmentKind::Audio),
    ("aac", "audio/aac", AttachmentKind::Audio),
    ("m4a", "audio/mp4", AttachmentKind::Audio),
];

/// Types outside of `text/` whose content is a text.
const TEXT_TYPES: &[&str] = &[
    "application/json",
    "application/xml",
    "application/yaml",
    "application/toml",
    "application/javascript",
];

const PLAIN_TEXT: &str = "text/plain";
const UNKNOWN: &str = "application/octet-stream";

impl Attachment {
    /// Makes the attachment of a file. The end of its name gives the type; a file with any other name is a text.
    ///
    /// # Errors
    ///
    /// Fails if the file is empty, larger than the limit `attachment_bytes`, or of a type that no model reads.
    pub fn of_file(path: &str, content: &[u8]) -> Result<Self, AttachmentError> {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
        let known = TYPES.iter().find(|(it, ..)| Some(*it) == end.as_deref());
        let media_type = match known {
            Some((_, media_type, _)) => media_type,
            None if std::str::from_utf8(content).is_ok() => PLAIN_TEXT,
            None => UNKNOWN,
        };
        Self::checked(name, media_type.to_owned(), content, &BASE64.encode(content))
    }

    /// Reads the record of a file.
    ///
    /// # Errors
    ///
    /// As [`of_file`](Self::of_file), and if the value is no such record.
    pub fn of_value(value: &Value) -> Result<Self, AttachmentError> {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let (Some(name), Some(media_type), Some(data)) =
            (text("name"), text("media_type"), text("data"))
        else {
            return Err(AttachmentError::NoFile);
        };
        let content = BASE64.decode(data);
        let content = content.map_err(|_| AttachmentError::NoBase64 { name: name.to_owned() })?;
        Self::checked(name.to_owned(), media_type.to_owned(), &content, data)
    }

    fn checked(
        name: String,
        media_type: String,
        content: &[u8],
        data: &str,
    ) -> Result<Self, AttachmentError> {
        if content.is_empty() {
            return Err(AttachmentError::Empty { name });
        }
        if let Err(reached) = DataLimit::AttachmentBytes.check(content.len() as u64) {
            return Err(AttachmentError::TooLarge { name, reached });
        }
        // The end of a name is often a wrong one, and providers refuse an image whose stated type is another one.
        let media_type = match (kind_of(&media_type), image_type_of(content)) {
            (Some(AttachmentKind::Image), Some(found)) => found.to_owned(),
            _ => media_type,
        };
        let is_readable = match kind_of(&media_type) {
            Some(AttachmentKind::Text) => std::str::from_utf8(content).is_ok(),
            kind => kind.is_some(),
        };
        if !is_readable {
            return Err(AttachmentError::UnknownType { name, media_type });
        }
        let hash = blake3::hash(content).to_hex().to_string();
        Ok(Self { name, media_type, hash, data: data.into() })
    }

    /// Returns the record of the file.
    pub fn to_value(&self) -> Value {
        json!({"name": self.name, "media_type": self.media_type, "data": &*self.data})
    }

    /// Returns the name of the file, without its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the media type, such as `image/png`.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// Returns the kind of the file.
    pub fn kind(&self) -> AttachmentKind {
        kind_of(&self.media_type).unwrap_or(AttachmentKind::Text)
    }

    /// Returns the hash of the content.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the number of characters of a text file, as far as its size tells. The tokens of other files depend on
    /// the model, so they count as none.
    pub fn characters(&self) -> u64 {
        match self.kind() {
            AttachmentKind::Text => self.data.len() as u64 / 4 * 3,
            AttachmentKind::Image | AttachmentKind::Pdf | AttachmentKind::Audio => 0,
        }
    }

    /// Returns the text of a text file, with its name.
    pub fn text(&self) -> Option<String> {
        if self.kind() != AttachmentKind::Text {
            return None;
        }
        let content = String::from_utf8(BASE64.decode(&*self.data).ok()?).ok()?;
        Some(format!("File `{}`:\n\n{content}", self.name))
    }
}

#[cfg(feature = "openai")]
impl Attachment {
    /// Returns the content in base64.
    pub(super) fn data(&self) -> &str {
        &self.data
    }

    /// Returns the content as an address.
    pub(super) fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.data)
    }

    /// Returns the usual end of names of this type.
    pub(super) fn format(&self) -> &'static str {
        let media_type = essence(&self.media_type);
        TYPES.iter().find(|(_, it, _)| *it == media_type).map_or("", |(end, ..)| end)
    }
}

// The content is long, and private.
impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment")
            .field("name", &self.name)
            .field("media_type", &self.media_type)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for AttachmentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image => "image",
            Self::Pdf => "PDF document",
            Self::Audio => "audio file",
            Self::Text => "text",
        })
    }
}

/// Returns the type of an image by its first bytes.
fn image_type_of(content: &[u8]) -> Option<&'static str> {
    let is_webp = || content.get(8..12) == Some(b"WEBP".as_slice());
    match content {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', ..] if is_webp() => Some("image/webp"),
        _ => None,
    }
}

fn kind_of(media_type: &str) -> Option<AttachmentKind> {
    let media_type = essence(media_type);
    let known = TYPES.iter().find(|(_, it, _)| *it == media_type).map(|(.., kind)| *kind);
    let is_text = media_type.starts_with("text/") || TEXT_TYPES.contains(&media_type);
    known.or(is_text.then_some(AttachmentKind::Text))
}

/// Returns a media type without its parameters, such as a charset.
fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_an_image_are_its_type() {
        let type_of = |name: &str, content: &[u8]| {
            Attachment::of_file(name, content).unwrap().media_type().to_owned()
        };
        assert_eq!(type_of("a.png", b"GIF89a"), "image/gif");
        assert_eq!(type_of("a.gif", b"RIFF\x10\0\0\0WEBPVP8 "), "image/webp");
        assert_eq!(type_of("a.png", b"\xFF\xD8\xFF\xE0"), "image/jpeg");
        assert_eq!(type_of("a.jpg", b"\x89PNG\r\n"), "image/png");
        assert_eq!(type_of("a.txt", b"GIF89a"), "text/plain");
    }

    #[test]
    fn the_end_of_a_name_gives_the_type() {
        let kinds = [
            ("A.PNG", AttachmentKind::Image),
            ("a/b.jpeg", AttachmentKind::Image),
            ("c.pdf", AttachmentKind::Pdf),
            ("d.mp3", AttachmentKind::Audio),
            ("main.rs", AttachmentKind::Text),
            ("LICENSE", AttachmentKind::Text),
        ];
        for (name, kind) in kinds {
            assert_eq!(Attachment::of_file(name, b"x").unwrap().kind(), kind, "{name}");
        }
        let text = Attachment::of_file("notes/main.rs", "fn ä() {}".as_bytes()).unwrap();
        assert_eq!(text.text().unwrap(), "File `main.rs`:\n\nfn ä() {}");
    }

    #[test]
    fn what_no_model_reads_is_refused() {
        let refused = |name: &str, content: &[u8]| Attachment::of_file(name, content).unwrap_err();
        assert!(refused("a.zip", b"PK\xff\xfe").to_string().contains("octet-stream"));
        assert_eq!(refused("a.png", b"").to_string(), "`a.png` is empty");
        let limit = usize::try_from(DataLimit::AttachmentBytes.value()).unwrap();
        let large = refused("a.pdf", &vec![b'x'; limit + 1]).to_string();
        assert!(large.contains("attachment_bytes"), "{large}");
        assert!(Attachment::of_file("a.pdf", &vec![b'x'; limit]).is_ok());
    }

    #[test]
    fn records_that_are_no_files_are_refused() {
        let record = |media_type: &str, data: &str| {
            let value = json!({"name": "a", "media_type": media_type, "data": data});
            Attachment::of_value(&value).map(|it| it.kind()).map_err(|it| it.to_string())
        };
        assert_eq!(record("text/csv; charset=utf-8", "YQ=="), Ok(AttachmentKind::Text));
        assert_eq!(record("application/json", "YQ=="), Ok(AttachmentKind::Text));
        assert_eq!(record("image/png", "no!"), Err("the content of `a` is not base64".into()));
        assert!(record("text/plain", "/w==").is_err(), "not UTF-8");
        assert!(record("video/mp4", "YQ==").unwrap_err().contains("video/mp4"));
        assert_eq!(Attachment::of_value(&json!("a")), Err(AttachmentError::NoFile));
    }

    #[test]
    fn the_content_is_neither_saved_nor_shown() {
        let file = Attachment::of_file("a.pdf", b"private").unwrap();
        let saved = serde_json::to_value(&file).unwrap();
        assert_eq!(
            saved,
            json!({"name": "a.pdf", "media_type": "application/pdf", "hash": file.hash()})
        );
        assert!(!format!("{file:?}").contains(&BASE64.encode(b"private")));
    }
}
