//! Compression of data blocks. See format.md, "Compressed data block".
//!
//! Only this module and the trailer of a block know stored bytes. Whatever has a [`Block`](super::block::Block) has
//! decompressed contents: their length bounds decoded keys, and is the weight in the cache.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use crate::codec::u32_at;

/// The bytes of the length before the LZ4 block.
const LENGTH_BYTES: usize = size_of::<u32>();
/// Longer contents are stored as they are: these are large values, which are read without a copy.
pub(crate) const MAX_CONTENTS_BYTES: usize = 256 << 10;
/// One byte of an LZ4 block gives no more than these.
pub(crate) const MAX_EXPANSION: usize = 255;

/// How a store keeps the data blocks of new tables. See [`Options::compression`](crate::Options::compression).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// By LZ4. A block stays as it is if that saves less than an eighth, or if it has more than 256 KiB.
    Lz4,
}

impl Compression {
    const ALL: [Self; 2] = [Self::None, Self::Lz4];

    /// The number in the manifest.
    pub(crate) fn id(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
        }
    }

    pub(crate) fn with_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| compression.id() == id)
    }

    /// The compressed contents; `None` if the block is to be stored as it is.
    pub(super) fn compress(self, contents: &[u8]) -> Option<Vec<u8>> {
        if self == Self::None || contents.len() > MAX_CONTENTS_BYTES {
            return None;
        }
        let mut stored = vec![0; LENGTH_BYTES + get_maximum_output_size(contents.len())];
        let (length, block) = stored.split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&(contents.len() as u32).to_le_bytes());
        let block_bytes = compress_into(contents, block).ok()?;
        stored.truncate(LENGTH_BYTES + block_bytes);
        (8 * stored.len() <= 7 * contents.len()).then_some(stored)
    }
}

/// The contents of a compressed block; or what is wrong with it. Takes no memory for a length that cannot be.
pub(super) fn decompress(stored: &[u8]) -> Result<Vec<u8>, String> {
    let (length, block) = u32_at(stored, 0)
        .zip(stored.get(LENGTH_BYTES..))
        .ok_or_else(|| format!("{} bytes, no room for a length", stored.len()))?;
    let length = length as usize;
    if length == 0 || length > MAX_CONTENTS_BYTES || length > MAX_EXPANSION * block.len() {
        return Err(format!("{length} bytes compressed to {}", block.len()));
    }
    let mut contents = vec![0; length];
    match decompress_into(block, &mut contents) {
        Ok(found) if found == length => Ok(contents),
        Ok(found) => Err(format!("{found} decompressed bytes instead of {length}")),
        Err(error) => Err(format!("an LZ4 block that is not whole: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn stored(length: u32, block: &[u8]) -> Vec<u8> {
        [&length.to_le_bytes(), block].concat()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut rng = ChaCha8Rng::seed_from_u64(49);
        (0..bytes).map(|_| rng.random()).collect()
    }

    #[test]
    fn contents_come_back_and_no_other_length_passes() {
        for contents in [vec![b'x'; 4000], b"abcdefgh".repeat(9), vec![0; MAX_CONTENTS_BYTES]] {
            let bytes = Compression::Lz4.compress(&contents).expect("it shrinks");
            assert_eq!(decompress(&bytes).as_ref(), Ok(&contents));
            assert_eq!(Compression::None.compress(&contents), None);
            for length in 0..bytes.len() {
                decompress(&bytes[..length]).expect_err("cut short");
            }
            decompress(&[&bytes[..], &[0]].concat()).expect_err("a byte more");
            let length = contents.len() as u32;
            for length in [0, 1, length - 1, length + 1, u32::MAX] {
                decompress(&stored(length, &bytes[LENGTH_BYTES..])).expect_err("another length");
            }
        }
    }

    #[test]
    fn what_saves_no_eighth_is_stored_as_it_is() {
        let noise = noise(8000);
        let compressed = |zeros: usize| {
            let contents = [&noise[..8000 - zeros], &vec![0; zeros][..]].concat();
            Compression::Lz4.compress(&contents).map(|stored| stored.len())
        };
        assert_eq!(compressed(0), None);
        let first = (0..8000).find_map(compressed).expect("zeros shrink");
        assert!((6990..=7000).contains(&first), "{first}");
        for contents in [&b""[..], b"a", b"aaaaaaa"] {
            assert_eq!(Compression::Lz4.compress(contents), None, "{contents:?}");
        }
    }

    #[test]
    fn long_contents_are_stored_as_they_are() {
        let contents = vec![0; MAX_CONTENTS_BYTES + 1];
        assert!(Compression::Lz4.compress(&contents[1..]).is_some());
        assert_eq!(Compression::Lz4.compress(&contents), None);
        // No block of such contents is read.
        let mut block = vec![0; get_maximum_output_size(contents.len())];
        let block_bytes = compress_into(&contents, &mut block).expect("room");
        let bytes = stored(contents.len() as u32, &block[..block_bytes]);
        assert!(contents.len() < MAX_EXPANSION * block_bytes);
        decompress(&bytes).expect_err("too long");
    }

    /// Token, literals, distance: sequences that no compressor makes.
    #[test]
    fn forged_sequences_are_refused_or_copy_what_there_is() {
        let decompressed = |length, block: &[u8]| decompress(&stored(length, block)).ok();
        assert_eq!(decompressed(1, b"\x10a").as_deref(), Some(&b"a"[..]));
        // Four bytes at distance 1, then no literals.
        assert_eq!(decompressed(5, b"\x10a\x01\0\0").as_deref(), Some(&b"aaaaa"[..]));
        assert_eq!(decompressed(6, b"\x20ab\x02\0\0").as_deref(), Some(&b"ababab"[..]));
        for (what, length, block) in [
            ("nothing", 1, &b""[..]),
            ("no last sequence", 5, b"\x10a\x01\0"),
            ("half a distance", 5, b"\x10a\x01"),
            ("distance 0", 5, b"\x10a\0\0\0"),
            ("before the beginning", 5, b"\x10a\x02\0\0"),
            ("before the beginning, at once", 4, b"\0\x01\0\0"),
            ("far before the beginning", 5, b"\x10a\xff\xff\0"),
            ("literals that are not there", 3, b"\x30ab"),
            ("more literals than contents", 1, b"\x20ab"),
            ("a longer copy than contents", 4, b"\x10a\x01\0\0"),
            ("a length that does not end", 300, b"\xf0\xff\xff"),
            ("a copy whose length does not end", 300, b"\x1fa\x01\0\xff\xff"),
        ] {
            assert_eq!(decompressed(length, block), None, "{what}");
        }
    }

    #[test]
    fn a_length_that_the_bytes_cannot_give_is_refused_before_memory_is_taken() {
        let block = [b"\x1fa\x01\0".to_vec(), vec![255; 900], vec![0, 0]].concat();
        let most = (MAX_EXPANSION * block.len()) as u32;
        let error = decompress(&stored(most, &block)).expect_err("another length");
        assert!(error.starts_with("229520 decompressed"), "{error}");
        for length in [most + 1, u32::MAX] {
            let memory = allocation_counter::measure(|| {
                decompress(&stored(length, &block)).expect_err("out of proportion");
            });
            assert!(memory.bytes_max < 4000, "{memory:?}");
        }
    }

    #[test]
    fn no_bytes_make_a_decompression_panic() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let contents = [&noise(300)[..], &[7; 900], &noise(300)].concat();
        let sound = Compression::Lz4.compress(&contents).expect("it shrinks");
        let mut whole = 0;
        for _ in 0..50_000 {
            let mut bytes = sound.clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] = rng.random();
            }
            whole += u64::from(decompress(&bytes).is_ok_and(|bytes| bytes.len() <= 1 << 18));
        }
        assert!(whole > 0, "changed literals");
    }

    #[test]
    fn numbers_come_back() {
        for compression in Compression::ALL {
            assert_eq!(Compression::with_id(compression.id()), Some(compression));
        }
        assert_eq!(Compression::with_id(2), None);
    }
}
