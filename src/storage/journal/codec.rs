//! Bytes as they are stored: as they are, or smaller.

use std::{fmt, io, sync::LazyLock};

use zstd::{
    bulk::{Compressor, Decompressor},
    dict::{DecoderDictionary, EncoderDictionary},
};

/// What the parts of a row mostly look like, so that they shrink to what is new in them.
///
/// It is part of the format and never changes; another one would get another tag.
static DICTIONARY: &[u8] = include_bytes!("dictionary.json");

static ENCODER: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(DICTIONARY, LEVEL));
static DECODER: LazyLock<DecoderDictionary<'static>> =
    LazyLock::new(|| DecoderDictionary::copy(DICTIONARY));

/// The fastest: most of what is to be gained is gained by the dictionary.
const LEVEL: i32 = 1;

/// Shorter ones stay as they are.
const LENGTH_MIN: usize = 48;

/// The first byte says which form the rest has.
const PLAIN: u8 = b'p';
const SMALL: u8 = b'z';

/// Before what was made smaller stands its length, in four bytes.
const HEAD: usize = 5;

/// Makes bytes smaller, and makes them again what they were.
pub(crate) struct Codec {
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
    /// What was unpacked last.
    unpacked: Vec<u8>,
}

impl Codec {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            compressor: Compressor::with_prepared_dictionary(&ENCODER)?,
            decompressor: Decompressor::with_prepared_dictionary(&DECODER)?,
            unpacked: Vec::new(),
        })
    }

    /// Packs bytes; the result is never longer by more than one.
    pub(super) fn pack(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        if bytes.len() >= LENGTH_MIN
            && let Ok(length) = u32::try_from(bytes.len())
        {
            let small = self.compressor.compress(bytes)?;
            if small.len() + HEAD < bytes.len() {
                return Ok([&[SMALL][..], &length.to_le_bytes(), &small].concat());
            }
        }
        Ok([&[PLAIN], bytes].concat())
    }

    /// Unpacks what was packed.
    pub(super) fn unpack<'a>(&'a mut self, packed: &'a [u8]) -> io::Result<&'a [u8]> {
        match packed {
            [PLAIN, bytes @ ..] => Ok(bytes),
            [SMALL, a, b, c, d, small @ ..] => {
                let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
                self.unpacked.clear();
                self.unpacked.reserve(length);
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

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Codec")
    }
}
