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

/// What would lose neither this part of its length nor so many bytes stays as it is. It is unpacked
/// whenever its run is opened, and for a short text without repetitions that takes longer than all
/// else, mostly to build tables.
const GAIN_PART: usize = 5;
const GAIN_BYTES: usize = 256;

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
            let gain_min = (bytes.len() / GAIN_PART).min(GAIN_BYTES);
            if small.len() + HEAD < bytes.len() - gain_min {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// So many bytes of noise, of so many different ones.
    fn noise(length: usize, kinds: u8) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().update(&[kinds]).finalize_xof().fill(&mut bytes);
        bytes.into_iter().map(|it| b' ' + it % kinds).collect()
    }

    #[test]
    fn what_would_gain_little_stays_as_it_is() {
        let mut codec = Codec::new().unwrap();
        for (bytes, tag) in [
            (b"short".to_vec(), PLAIN),
            (noise(1_000, 93), PLAIN),
            (noise(1_000, 64), SMALL),
            (noise(3_000, 93), SMALL),
            (b"again and ".repeat(9), SMALL),
        ] {
            let packed = codec.pack(&bytes).unwrap();
            assert_eq!(packed[0], tag, "{}", String::from_utf8_lossy(&bytes));
            assert_eq!(codec.unpack(&packed).unwrap(), bytes);
        }
    }
}
