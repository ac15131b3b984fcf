//! Little-endian fields, varints, and the checksum of blocks and log frames.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use byteorder::{ByteOrder, LittleEndian};

/// The version of the files that this criba reads and writes; format.md describes every byte of them.
pub const FORMAT_VERSION: u16 = 2;

/// What was found instead of [`FORMAT_VERSION`], and which criba reads it.
pub(crate) fn other_version(version: u16) -> String {
    if version < FORMAT_VERSION {
        let way_out =
            "dump the store with the criba that wrote it, and load the dump into a new one";
        format!("version {version}: {way_out}")
    } else {
        format!("version {version}: a newer criba may read it")
    }
}

/// Whether a crash can have left this of an unsynced sector that begins with `start`: some bytes, then zeros.
pub(crate) fn may_be_unsynced(found: &[u8], start: &[u8]) -> bool {
    let same = found.iter().zip(start).take_while(|(found, byte)| found == byte).count();
    same == start.len() || found.iter().skip(same).all(|&byte| byte == 0)
}

/// The required features found that this criba does not know.
pub(crate) fn unknown_features(features: u32) -> String {
    format!("required features {features:#x}: a newer criba may read it")
}

/// CRC-32 (IEEE) over a salt, the offset and the bytes. It detects bytes in a wrong place, and frames and
/// blocks that a value holds: without the file's salt, their checksum can only be guessed. Structures that
/// are read before the salt have the number in the file's name in its place.
pub(crate) fn checksum_at(salt: u64, offset: u64, parts: &[&[u8]]) -> u32 {
    let mut checksum = ChecksumAt::new(salt, offset);
    for part in parts {
        checksum.update(part);
    }
    checksum.finish()
}

/// [`checksum_at`], computed piece by piece.
#[derive(Debug, Clone)]
pub(crate) struct ChecksumAt(crc32fast::Hasher);

impl ChecksumAt {
    pub(crate) fn new(salt: u64, offset: u64) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&salt.to_le_bytes());
        hasher.update(&offset.to_le_bytes());
        Self(hasher)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> u32 {
        self.0.finalize()
    }
}

pub(crate) trait PutFields {
    fn put_u8(&mut self, value: u8);
    fn put_slice(&mut self, bytes: &[u8]);

    fn put_u16(&mut self, value: u16) {
        self.put_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put_slice(&value.to_le_bytes());
    }

    fn put_f64(&mut self, value: f64) {
        self.put_u64(value.to_bits());
    }

    /// LEB128: 1 to 10 bytes.
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }

    /// A varint length, then the bytes.
    fn put_prefixed(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put_slice(bytes);
    }
}

impl PutFields for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Takes fields off the front of a slice. A method returns `None`, and takes nothing, if the bytes are too
/// few.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.bytes(2).map(LittleEndian::read_u16)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes(4).map(LittleEndian::read_u32)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes(8).map(LittleEndian::read_u64)
    }

    pub(crate) fn f64(&mut self) -> Option<f64> {
        self.u64().map(f64::from_bits)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        match *self.rest {
            [byte, ref rest @ ..] if byte < 0x80 => {
                self.rest = rest;
                Some(u64::from(byte))
            }
            _ => self.longer_varint(),
        }
    }

    fn longer_varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if i == 9 && bits > 1 {
                return None; // more than 64 bits
            }
            value |= bits << (7 * i);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(i + 1..)?;
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let length = usize::try_from(ahead.varint()?).ok()?;
        let bytes = ahead.bytes(length)?;
        *self = ahead;
        Some(bytes)
    }
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..offset.checked_add(2)?).map(LittleEndian::read_u16)
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset.checked_add(4)?).map(LittleEndian::read_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_read_back_and_longer_ones_are_refused() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            bytes.put_varint(value);
            let mut fields = Fields::new(&bytes);
            assert_eq!(fields.varint(), Some(value));
            assert!(fields.is_empty());
            let mut cut = Fields::new(&bytes[..bytes.len() - 1]);
            assert_eq!(cut.varint(), None, "{value} cut short");
        }
        assert_eq!(Fields::new(&[0xff; 11]).varint(), None);
        let over_64_bits = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02];
        assert_eq!(Fields::new(&over_64_bits).varint(), None);
    }

    #[test]
    fn a_field_that_does_not_fit_takes_nothing() {
        let mut fields = Fields::new(&[5, b'a', b'b']);
        assert_eq!(fields.prefixed(), None);
        assert_eq!(fields.u32(), None);
        assert_eq!(fields.rest(), &[5, b'a', b'b']);
    }

    #[test]
    fn the_checksum_depends_on_salt_offset_and_bytes() {
        let sum = checksum_at(1, 2, &[b"ab", b"c"]);
        assert_eq!(sum, checksum_at(1, 2, &[b"a", b"bc"]));
        assert_ne!(sum, checksum_at(2, 2, &[b"abc"]));
        assert_ne!(sum, checksum_at(1, 3, &[b"abc"]));
        assert_ne!(sum, checksum_at(1, 2, &[b"abd"]));
    }
}
