//! Packs bytes for storage: plain or compressed.

use std::{fmt, io, sync::LazyLock};

use serde::Serialize;
use zstd::{
    bulk::{Compressor, Decompressor},
    dict::{DecoderDictionary, EncoderDictionary},
    zstd_safe::compress_bound,
};

use super::check_depth;

/// The dictionary for compression: typical parts of rows, so that only new text takes space.
///
/// It is part of the format and never changes; another dictionary would get another tag.
static DICTIONARY: &[u8] = include_bytes!("dictionary.json");

static ENCODER: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(DICTIONARY, LEVEL));
static REPETITIONS: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(DICTIONARY, LEVEL_OF_REPETITIONS));
static DECODER: LazyLock<DecoderDictionary<'static>> =
    LazyLock::new(|| DecoderDictionary::copy(DICTIONARY));

/// The fastest level: the dictionary brings most of the gain.
const LEVEL: i32 = 1;

/// A level that only shortens repetitions. Entropy coding would take most of the time.
const LEVEL_OF_REPETITIONS: i32 = -1;

/// The dictionary contains most of the form of an entry up to this length.
const KNOWN_MAX: usize = 2048;

/// Shorter texts stay plain.
const LENGTH_MIN: usize = 48;

/// The first byte is the tag of the form of the rest.
const PLAIN: u8 = b'p';
const SMALL: u8 = b'z';

/// The kind of content to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The structure that most entries share.
    Form,
    /// The values of users.
    Values,
}

/// The capacity that a buffer keeps: few entries need more, and one large entry must not hold the
/// memory forever.
const ROOM_MAX: usize = 1 << 20;

/// The length of the header of compressed bytes: the tag and the original length in four bytes.
const HEAD: usize = 5;

/// Bytes stay plain unless compression saves this fraction of their length or enough bytes. They
/// are unpacked whenever their run is opened, and for a short text without repetitions that takes
/// longer than the rest of the work, mostly to build tables.
const GAIN_PART: usize = 5;
const GAIN_BYTES: usize = 256;

/// Packs and unpacks bytes; reuses its buffers.
pub(crate) struct Codec {
    compressor: Compressor<'static>,
    of_repetitions: Compressor<'static>,
    decompressor: Decompressor<'static>,
    /// The result of the last unpacking.
    unpacked: Vec<u8>,
    /// Buffers for packing: the plain text and the compressed one.
    json: Vec<u8>,
    small: Vec<u8>,
}

impl Codec {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            compressor: Compressor::with_prepared_dictionary(&ENCODER)?,
            of_repetitions: Compressor::with_prepared_dictionary(&REPETITIONS)?,
            decompressor: Decompressor::with_prepared_dictionary(&DECODER)?,
            unpacked: Vec::new(),
            json: Vec::new(),
            small: Vec::new(),
        })
    }

    /// Appends the packed JSON of a value to the output.
    pub(super) fn pack(
        &mut self,
        content: Content,
        value: &impl Serialize,
        packed: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut json = std::mem::take(&mut self.json);
        let done = serde_json::to_writer(&mut json, value).map_err(io::Error::from);
        let done = done.and_then(|()| check_depth(&json));
        let done = done.and_then(|()| self.pack_bytes(content, &json, packed));
        json.clear();
        json.shrink_to(ROOM_MAX);
        self.json = json;
        self.small.clear();
        self.small.shrink_to(ROOM_MAX);
        done
    }

    /// Appends packed bytes to the output; they are at most one byte longer than the input.
    fn pack_bytes(
        &mut self,
        content: Content,
        bytes: &[u8],
        packed: &mut Vec<u8>,
    ) -> io::Result<()> {
        if bytes.len() >= LENGTH_MIN
            && let Ok(length) = u32::try_from(bytes.len())
        {
            let gain_min = (bytes.len() / GAIN_PART).min(GAIN_BYTES);
            let is_known = content == Content::Form && bytes.len() <= KNOWN_MAX;
            let compressor = if is_known || gain_by_codes(bytes) < gain_min {
                &mut self.of_repetitions
            } else {
                &mut self.compressor
            };
            self.small.clear();
            self.small.reserve(compress_bound(bytes.len()));
            compressor.compress_to_buffer(bytes, &mut self.small)?;
            if self.small.len() + HEAD < bytes.len() - gain_min {
                packed.push(SMALL);
                packed.extend(length.to_le_bytes());
                packed.extend(&self.small);
                return Ok(());
            }
        }
        packed.push(PLAIN);
        packed.extend(bytes);
        Ok(())
    }

    /// Unpacks packed bytes.
    pub(super) fn unpack<'a>(&'a mut self, packed: &'a [u8]) -> io::Result<&'a [u8]> {
        match packed {
            [PLAIN, bytes @ ..] => Ok(bytes),
            [SMALL, a, b, c, d, small @ ..] => {
                let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
                self.unpacked.clear();
                // Damage may claim more than there is memory.
                self.unpacked.try_reserve(length)?;
                let unpacked = self.decompressor.decompress_to_buffer(small, &mut self.unpacked)?;
                if unpacked != length {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                Ok(&self.unpacked)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Returns an upper bound of the bytes that entropy coding can save.
///
/// It uses the frequency of equal pairs of bytes, which gives the collision entropy. This is never
/// above Shannon's entropy, the lower bound of any code of single bytes:
/// <https://en.wikipedia.org/wiki/R%C3%A9nyi_entropy>.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is an estimate, and between zero and the length"
)]
fn gain_by_codes(bytes: &[u8]) -> usize {
    let mut counts = [0_u64; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let length = bytes.len() as f64;
    let equal = counts.iter().map(|it| it * it.saturating_sub(1)).sum::<u64>() as f64;
    let bits = (length * (length - 1.0) / equal.max(1.0)).log2().clamp(0.0, 8.0);
    (length * (1.0 - bits / 8.0)) as usize
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Codec")
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;

    /// Returns `length` bytes of noise with `kinds` different values.
    fn noise(length: usize, kinds: u8) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().update(&[kinds]).finalize_xof().fill(&mut bytes);
        bytes.into_iter().map(|it| b' ' + it % kinds).collect()
    }

    #[test]
    fn little_gain_leaves_the_data_uncompressed() {
        let mut codec = Codec::new().unwrap();
        for (bytes, tag) in [
            (b"short".to_vec(), PLAIN),
            (noise(1_000, 93), PLAIN),
            (noise(1_000, 64), SMALL),
            (noise(3_000, 93), SMALL),
            (noise(1_000, 200), PLAIN),
            (noise(1_000, 200).repeat(2), SMALL),
            (b"again and ".repeat(9), SMALL),
        ] {
            let mut packed = Vec::new();
            codec.pack_bytes(Content::Values, &bytes, &mut packed).unwrap();
            assert_eq!(packed[0], tag, "{}", String::from_utf8_lossy(&bytes));
            assert_eq!(codec.unpack(&packed).unwrap(), bytes);
        }
    }
    #[test]
    fn the_dictionary_shortens_known_data() {
        let mut codec = Codec::new().unwrap();
        let known = &DICTIONARY[..800];
        for content in [Content::Form, Content::Values] {
            let mut packed = b"before".to_vec();
            codec.pack_bytes(content, known, &mut packed).unwrap();
            assert!(packed.len() < 100, "{content:?}: {} bytes", packed.len());
            assert_eq!(codec.unpack(packed.strip_prefix(b"before").unwrap()).unwrap(), known);
        }
    }

    /// Set for the process in which the test below runs with little memory.
    const LITTLE_MEMORY: &str = "GRAPHRUN_TEST_LITTLE_MEMORY";

    #[test]
    fn a_length_beyond_the_memory_is_an_error() {
        if env::var_os(LITTLE_MEMORY).is_none() {
            let test = "journal::codec::tests::a_length_beyond_the_memory_is_an_error";
            let mut child = Command::new(env::current_exe().unwrap());
            let ended = child.args([test, "--exact"]).env(LITTLE_MEMORY, "1").output().unwrap();
            assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{ended:?}");
            return;
        }
        let mut codec = Codec::new().unwrap();
        let mut packed = Vec::new();
        codec.pack_bytes(Content::Values, &b"again and ".repeat(9), &mut packed).unwrap();
        packed[1..HEAD].copy_from_slice(&u32::MAX.to_le_bytes());
        let (_, hard) = getrlimit(Resource::RLIMIT_AS).unwrap();
        setrlimit(Resource::RLIMIT_AS, 2 << 30, hard).unwrap();
        assert_eq!(codec.unpack(&packed).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn the_room_for_a_large_value_is_given_back() {
        let mut codec = Codec::new().unwrap();
        let mut packed = Vec::new();
        let text = "large ".repeat(ROOM_MAX);
        codec.pack(Content::Values, &text, &mut packed).unwrap();
        assert!(codec.json.capacity() <= ROOM_MAX && codec.small.capacity() <= ROOM_MAX);
        assert_eq!(codec.unpack(&packed).unwrap(), serde_json::to_vec(&text).unwrap());
    }

    #[test]
    fn frequent_bytes_gain_and_even_ones_do_not() {
        assert_eq!(gain_by_codes(&[]), 0);
        assert_eq!(gain_by_codes(&[7; 100]), 100);
        let all: Vec<u8> = (0..=255).cycle().take(2_560).collect();
        assert!(gain_by_codes(&all) < 10, "{}", gain_by_codes(&all));
        let text = include_bytes!("codec.rs");
        assert!(gain_by_codes(text) > text.len() / 4, "{}", gain_by_codes(text));
    }
}
