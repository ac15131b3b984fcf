//! The bytes of a log file: a header, then frames that do not cross 32 KiB boundaries.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use byteorder::{ByteOrder, LittleEndian};

use crate::codec::{
    FORMAT_VERSION, Fields, PutFields, checksum_at, other_version, unknown_features,
};
use crate::key::Seq;
use crate::names::{FileName, Origin};

/// Frames do not cross multiples of this, so a reader finds the next frame after damage.
pub(crate) const BLOCK_BYTES: u64 = 32 * 1024;
/// The header of every log file: its fields, then its salt.
const FIELDS_BYTES: usize = 40;
const SALT_BYTES: usize = 12;
/// The header of a write-ahead log, and the offset of its first frame.
pub(crate) const WAL_HEADER_BYTES: u64 = (FIELDS_BYTES + SALT_BYTES) as u64;
/// The same of a manifest, whose salt is not derived from another file. Header, second salt and first frame are in
/// sectors of their own.
const MANIFEST_HEADER_BYTES: u64 = 4096;
const SECOND_SALT_AT: usize = 2048;
pub(crate) const FRAME_HEADER_BYTES: u64 = 27;
/// The payload of an end frame: a log number.
const END_PAYLOAD_BYTES: u64 = 8;
/// A block with less room than an end frame is padded with zeros, so that reader and writer agree on the
/// start of the next frame.
pub(crate) const LEAST_ROOM_BYTES: u64 = FRAME_HEADER_BYTES + END_PAYLOAD_BYTES;

/// What a log file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogKind {
    Wal,
    Manifest,
}

impl LogKind {
    pub(crate) fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Wal => b"cribaWAL",
            Self::Manifest => b"cribaMAN",
        }
    }

    /// The length of the header, and the offset of the first frame.
    pub(crate) fn header_bytes(self) -> u64 {
        match self {
            Self::Wal => WAL_HEADER_BYTES,
            Self::Manifest => MANIFEST_HEADER_BYTES,
        }
    }

    fn known_features(self) -> u32 {
        match self {
            Self::Wal => 0,
            Self::Manifest => LAYERED_RIBBONS | MANY_PREFIXES | EXPIRY | COMPRESSION,
        }
    }

    pub(crate) fn file_name(self, number: u64) -> FileName {
        match self {
            Self::Wal => FileName::Log(number),
            Self::Manifest => FileName::Manifest(number),
        }
    }
}

/// The start of a log file.
pub(crate) fn encode_file_header(kind: LogKind, number: u64, header: FileHeader) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(kind.header_bytes() as usize);
    bytes.extend_from_slice(kind.magic());
    bytes.put_u16(FORMAT_VERSION);
    bytes.put_u16(0); // reserved
    bytes.put_u32(header.features);
    bytes.put_u64(number);
    bytes.put_u64(header.store);
    bytes.put_u32(0); // reserved
    let checksum = checksum_at(number, 0, &[&bytes]);
    bytes.put_u32(checksum);
    put_salt(&mut bytes, number, header.salt);
    if kind == LogKind::Manifest {
        bytes.resize(SECOND_SALT_AT, 0);
        put_salt(&mut bytes, number, header.salt);
    }
    bytes.resize(kind.header_bytes() as usize, 0);
    bytes
}

fn put_salt(bytes: &mut Vec<u8>, number: u64, salt: u64) {
    let offset = bytes.len() as u64;
    bytes.put_u64(salt);
    bytes.put_u32(checksum_at(number, offset, &[&salt.to_le_bytes()]));
}

/// The salt at an offset, if its checksum is right.
fn salt_at(bytes: &[u8], number: u64, offset: usize) -> Option<u64> {
    let mut fields = Fields::new(bytes.get(offset..)?);
    let (salt, checksum) = (fields.u64()?, fields.u32()?);
    (checksum_at(number, offset as u64, &[&salt.to_le_bytes()]) == checksum).then_some(salt)
}

/// The salt that a log file has in its header, also if the rest of it is damaged.
pub(crate) fn stored_salt(bytes: &[u8], kind: LogKind, number: u64) -> Option<u64> {
    let second = || match kind {
        LogKind::Wal => None,
        LogKind::Manifest => salt_at(bytes, number, SECOND_SALT_AT),
    };
    salt_at(bytes, number, FIELDS_BYTES).or_else(second)
}

/// The offset in a sound header at which its rest is wrong: a manifest has a second salt, and else zeros. Only a
/// repair needs that salt.
pub(crate) fn wrong_rest_of_header(bytes: &[u8], kind: LogKind, number: u64) -> Option<usize> {
    let salt = salt_at(bytes, number, FIELDS_BYTES)?;
    let header = FileHeader { features: 0, store: 0, salt };
    let expected = encode_file_header(kind, number, header);
    let mut rest = FIELDS_BYTES + SALT_BYTES..expected.len();
    rest.find(|&at| expected.get(at) != bytes.get(at))
}

/// Why a file header is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Damaged(String),
    Unsupported(String),
}

/// The required feature of a manifest: the recorded policy may be for ribbons with layers.
pub(crate) const LAYERED_RIBBONS: u32 = 1;
/// The required feature of a manifest: the recorded extractor may give a key several prefixes.
pub(crate) const MANY_PREFIXES: u32 = 2;
/// The required feature of a manifest: the store has, or had, expiring entries.
pub(crate) const EXPIRY: u32 = 4;
/// The required feature of a manifest: a compression is recorded, and tables may have compressed blocks.
pub(crate) const COMPRESSION: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// The required features, as bits.
    pub(crate) features: u32,
    pub(crate) store: u64,
    /// The salt of the checksums of frames.
    pub(crate) salt: u64,
}

/// The origin of a file with a sound header of any version.
pub(crate) fn origin(bytes: &[u8], kind: LogKind) -> Option<Origin> {
    let covered = bytes.get(..FIELDS_BYTES - 4)?;
    let mut fields = Fields::new(bytes);
    if fields.bytes(8)? != kind.magic() {
        return None;
    }
    fields.bytes(8)?; // version, reserved, features
    let origin = Origin { number: fields.u64()?, store: fields.u64()? };
    fields.u32()?;
    (fields.u32()? == checksum_at(origin.number, 0, &[covered])).then_some(origin)
}

/// Checks a file header.
pub(crate) fn decode_file_header(
    bytes: &[u8],
    kind: LogKind,
    number: u64,
) -> Result<FileHeader, HeaderError> {
    let damaged = |what: &str| HeaderError::Damaged(what.to_owned());
    let short = || damaged("a file that is too short");
    let covered = bytes.get(..FIELDS_BYTES - 4).ok_or_else(short)?;
    let mut fields = Fields::new(bytes);
    if fields.bytes(8).ok_or_else(short)? != kind.magic() {
        return Err(damaged("a bad magic number"));
    }
    let version = fields.u16().ok_or_else(short)?;
    fields.u16().ok_or_else(short)?;
    let features = fields.u32().ok_or_else(short)?;
    let found_number = fields.u64().ok_or_else(short)?;
    let store = fields.u64().ok_or_else(short)?;
    fields.u32().ok_or_else(short)?;
    let checksum = fields.u32().ok_or_else(short)?;
    if checksum_at(number, 0, &[covered]) != checksum {
        return Err(damaged(&format!("a header of log {found_number} with a wrong checksum")));
    }
    if version != FORMAT_VERSION {
        return Err(HeaderError::Unsupported(other_version(version)));
    }
    let unknown = features & !kind.known_features();
    if unknown != 0 {
        return Err(HeaderError::Unsupported(unknown_features(unknown)));
    }
    if found_number != number {
        return Err(damaged(&format!("log number {found_number}")));
    }
    let salt = salt_at(bytes, number, FIELDS_BYTES);
    let salt = salt.ok_or_else(|| damaged("a salt with a wrong checksum"))?;
    Ok(FileHeader { features, store, salt })
}

/// The part of a record in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// A whole record.
    Full = 1,
    First = 2,
    Middle = 3,
    Last = 4,
    /// The log was closed: nothing follows in this file.
    End = 5,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Full),
            2 => Some(Self::First),
            3 => Some(Self::Middle),
            4 => Some(Self::Last),
            5 => Some(Self::End),
            _ => None,
        }
    }
}

/// What the frames of one log have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogId {
    pub(crate) number: u64,
    pub(crate) salt: u64,
}

/// A frame that passed its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: FrameKind,
    pub(crate) seq: Seq,
    /// The offset up to which this file was synced when the frame was written. Above 0, all earlier logs are
    /// synced too.
    pub(crate) synced: u64,
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// Appends the frame at `offset` of a log. The payload is shorter than a block.
    pub(crate) fn encode(&self, log: LogId, offset: u64, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.put_u32(0); // the checksum, when the rest is there
        bytes.put_u16(self.payload.len() as u16);
        bytes.put_u8(self.kind as u8);
        bytes.put_u32(log.number as u32);
        bytes.put_u64(self.seq);
        bytes.put_u64(self.synced);
        bytes.extend_from_slice(self.payload);
        let (_, frame) = bytes.split_at_mut(start);
        let (checksum, covered) = frame.split_at_mut(size_of::<u32>());
        LittleEndian::write_u32(checksum, checksum_at(log.salt, offset, &[covered]));
    }
}

/// What is found instead of a frame. Converted to text only for a report: a search after damage finds one at every
/// byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoFrame {
    #[error("a frame that is cut short")]
    Short,
    #[error("a frame of kind {0}")]
    OfKind(u8),
    #[error("a frame of log {0}")]
    OfLog(u32),
    #[error("a frame whose salt is unknown, since the header is damaged")]
    NoSalt,
    #[error("a frame with a wrong checksum")]
    WrongChecksum,
}

/// Decodes the frame at `offset` from the rest of its block or file. Fails with what is there instead.
pub(crate) fn decode_frame(bytes: &[u8], log: LogId, offset: u64) -> Result<Frame<'_>, NoFrame> {
    let mut fields = Fields::new(bytes);
    let checksum = fields.u32().ok_or(NoFrame::Short)?;
    let covered = fields;
    let length = usize::from(fields.u16().ok_or(NoFrame::Short)?);
    let kind = fields.u8().ok_or(NoFrame::Short)?;
    let number = fields.u32().ok_or(NoFrame::Short)?;
    let seq = fields.u64().ok_or(NoFrame::Short)?;
    let synced = fields.u64().ok_or(NoFrame::Short)?;
    // Cheap tests before the checksum, for such a search.
    let kind = FrameKind::from_byte(kind).ok_or(NoFrame::OfKind(kind))?;
    if number != log.number as u32 {
        return Err(NoFrame::OfLog(number));
    }
    let payload = fields.bytes(length).ok_or(NoFrame::Short)?;
    let mut covered = covered;
    let covered = covered.bytes(FRAME_HEADER_BYTES as usize - 4 + length).ok_or(NoFrame::Short)?;
    if checksum_at(log.salt, offset, &[covered]) != checksum {
        return Err(NoFrame::WrongChecksum);
    }
    Ok(Frame { kind, seq, synced, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_sound_only_whole_at_its_place_and_under_its_salt() {
        let log = LogId { number: 3, salt: 5 };
        let frame = Frame { kind: FrameKind::Full, seq: 9, synced: 52, payload: b"payload" };
        let mut bytes = Vec::new();
        frame.encode(log, 52, &mut bytes);
        assert_eq!(bytes.len() as u64, FRAME_HEADER_BYTES + 7);
        assert_eq!(decode_frame(&bytes, log, 52), Ok(frame));
        assert!(decode_frame(&bytes, LogId { number: 4, ..log }, 52).is_err());
        assert!(decode_frame(&bytes, LogId { salt: 6, ..log }, 52).is_err());
        assert!(decode_frame(&bytes, log, 53).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_frame(&flipped, log, 52).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(decode_frame(&bytes[..length], log, 52).is_err());
        }
    }

    #[test]
    fn a_header_of_another_version_is_no_damage() {
        let header = FileHeader { features: 0, store: 77, salt: 5 };
        let bytes = encode_file_header(LogKind::Wal, 5, header);
        assert_eq!(bytes.len() as u64, WAL_HEADER_BYTES);
        assert_eq!(decode_file_header(&bytes, LogKind::Wal, 5), Ok(header));
        assert!(decode_file_header(&bytes, LogKind::Manifest, 5).is_err());
        assert!(decode_file_header(&bytes, LogKind::Wal, 6).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = decode_file_header(&flipped, LogKind::Wal, 5).expect_err("flipped");
            assert!(matches!(error, HeaderError::Damaged(_)), "bit {bit}: {error:?}");
        }
        for (offset, value, reader) in
            [(8, 3, "a newer criba may read it"), (12, 1, "a newer"), (8, 1, "dump the store")]
        {
            let mut other = bytes.clone();
            other[offset] = value;
            let checksum = checksum_at(5, 0, &[&other[..36]]);
            other[36..40].copy_from_slice(&checksum.to_le_bytes());
            let error = decode_file_header(&other, LogKind::Wal, 5).expect_err("another version");
            let HeaderError::Unsupported(found) = error else { panic!("{error:?}") };
            assert!(found.contains(reader), "{found}");
        }
    }

    #[test]
    fn a_damaged_header_hides_no_salt_of_a_manifest() {
        let header = FileHeader { features: 0, store: 77, salt: 5 };
        let sound = encode_file_header(LogKind::Manifest, 9, header);
        assert_eq!(sound.len() as u64, MANIFEST_HEADER_BYTES);
        for sector in [0..512, 2048..2560] {
            let mut bytes = sound.clone();
            bytes[sector].fill(0);
            assert_eq!(stored_salt(&bytes, LogKind::Manifest, 9), Some(5));
        }
        let mut bytes = sound;
        bytes[..2560].fill(0);
        assert_eq!(stored_salt(&bytes, LogKind::Manifest, 9), None);
    }
}
