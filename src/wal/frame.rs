//! The bytes of a log file: a header, then frames that do not cross 32 KiB boundaries.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use byteorder::{ByteOrder, LittleEndian};

use crate::codec::{Fields, PutFields, checksum_at};
use crate::key::Seq;
use crate::names::FileName;

/// Frames do not cross multiples of this, so a reader finds the next frame after damage.
pub(crate) const BLOCK_BYTES: u64 = 32 * 1024;
pub(crate) const FILE_HEADER_BYTES: u64 = 40;
pub(crate) const FRAME_HEADER_BYTES: u64 = 27;
/// The payload of an end frame: a log number.
const END_PAYLOAD_BYTES: u64 = 8;
/// A block with less room than an end frame is padded with zeros, so that reader and writer agree on the
/// start of the next frame.
pub(crate) const LEAST_ROOM_BYTES: u64 = FRAME_HEADER_BYTES + END_PAYLOAD_BYTES;
const VERSION: u16 = 1;
/// A feature of manifests: edits may have the filter settings.
pub(crate) const FILTER_SETTINGS: u32 = 1;

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

    /// The required features of this file, which an older criba refuses if it does not know them.
    fn features(self) -> u32 {
        match self {
            Self::Wal => 0,
            Self::Manifest => FILTER_SETTINGS,
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
pub(crate) fn encode_file_header(kind: LogKind, number: u64, store: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FILE_HEADER_BYTES as usize);
    bytes.extend_from_slice(kind.magic());
    bytes.put_u16(VERSION);
    bytes.put_u16(0); // reserved
    bytes.put_u32(kind.features());
    bytes.put_u64(number);
    bytes.put_u64(store);
    bytes.put_u32(0); // reserved
    let checksum = checksum_at(number, 0, &[&bytes]);
    bytes.put_u32(checksum);
    bytes
}

/// Why a file header is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Damaged(String),
    Unsupported(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) store: u64,
    /// The required features of the file.
    pub(crate) features: u32,
}

/// Checks a file header.
pub(crate) fn decode_file_header(
    bytes: &[u8],
    kind: LogKind,
    number: u64,
) -> Result<FileHeader, HeaderError> {
    let damaged = |what: &str| HeaderError::Damaged(what.to_owned());
    let short = || damaged("a shorter file");
    let covered = bytes.get(..FILE_HEADER_BYTES as usize - 4).ok_or_else(short)?;
    let mut fields = Fields::new(bytes);
    if fields.bytes(8).ok_or_else(short)? != kind.magic() {
        return Err(damaged("another magic"));
    }
    let version = fields.u16().ok_or_else(short)?;
    fields.u16().ok_or_else(short)?;
    let features = fields.u32().ok_or_else(short)?;
    let found_number = fields.u64().ok_or_else(short)?;
    let store = fields.u64().ok_or_else(short)?;
    fields.u32().ok_or_else(short)?;
    let checksum = fields.u32().ok_or_else(short)?;
    if checksum_at(number, 0, &[covered]) != checksum {
        return Err(damaged(&format!("a header of log {found_number} with another checksum")));
    }
    if version != VERSION {
        return Err(HeaderError::Unsupported(format!("version {version}")));
    }
    let unknown = features & !kind.features();
    if unknown != 0 {
        return Err(HeaderError::Unsupported(format!("required features {unknown:#x}")));
    }
    if found_number != number {
        return Err(damaged(&format!("log number {found_number}")));
    }
    Ok(FileHeader { store, features })
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
    /// Appends the frame at `offset` of log `number`. The payload is shorter than a block.
    pub(crate) fn encode(&self, number: u64, offset: u64, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.put_u32(0); // the checksum, when the rest is there
        bytes.put_u16(self.payload.len() as u16);
        bytes.put_u8(self.kind as u8);
        bytes.put_u32(number as u32);
        bytes.put_u64(self.seq);
        bytes.put_u64(self.synced);
        bytes.extend_from_slice(self.payload);
        let (_, frame) = bytes.split_at_mut(start);
        let (checksum, covered) = frame.split_at_mut(size_of::<u32>());
        LittleEndian::write_u32(checksum, checksum_at(number, offset, &[covered]));
    }
}

/// What is in place of a frame. Converted to text only for a report: a search after damage finds one at every
/// byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoFrame {
    #[error("a frame that is cut short")]
    Short,
    #[error("a frame of kind {0}")]
    OfKind(u8),
    #[error("a frame of log {0}")]
    OfLog(u32),
    #[error("a frame with another checksum")]
    OtherChecksum,
}

/// Decodes the frame at `offset` from the rest of its block or file. Fails with what is there instead.
pub(crate) fn decode_frame(bytes: &[u8], number: u64, offset: u64) -> Result<Frame<'_>, NoFrame> {
    let mut fields = Fields::new(bytes);
    let checksum = fields.u32().ok_or(NoFrame::Short)?;
    let covered = fields;
    let length = usize::from(fields.u16().ok_or(NoFrame::Short)?);
    let kind = fields.u8().ok_or(NoFrame::Short)?;
    let log = fields.u32().ok_or(NoFrame::Short)?;
    let seq = fields.u64().ok_or(NoFrame::Short)?;
    let synced = fields.u64().ok_or(NoFrame::Short)?;
    // Cheap tests before the checksum, for such a search.
    let kind = FrameKind::from_byte(kind).ok_or(NoFrame::OfKind(kind))?;
    if log != number as u32 {
        return Err(NoFrame::OfLog(log));
    }
    let payload = fields.bytes(length).ok_or(NoFrame::Short)?;
    let mut covered = covered;
    let covered = covered.bytes(FRAME_HEADER_BYTES as usize - 4 + length).ok_or(NoFrame::Short)?;
    if checksum_at(number, offset, &[covered]) != checksum {
        return Err(NoFrame::OtherChecksum);
    }
    Ok(Frame { kind, seq, synced, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_sound_only_whole_and_at_its_place() {
        let frame = Frame { kind: FrameKind::Full, seq: 9, synced: 40, payload: b"payload" };
        let mut bytes = Vec::new();
        frame.encode(3, 40, &mut bytes);
        assert_eq!(bytes.len() as u64, FRAME_HEADER_BYTES + 7);
        assert_eq!(decode_frame(&bytes, 3, 40), Ok(frame));
        assert!(decode_frame(&bytes, 4, 40).is_err());
        assert!(decode_frame(&bytes, 3, 41).is_err());
        assert!(decode_frame(&bytes, 3 + (1 << 32), 40).is_err(), "the whole number counts");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_frame(&flipped, 3, 40).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(decode_frame(&bytes[..length], 3, 40).is_err());
        }
    }

    #[test]
    fn a_newer_header_is_no_damage() {
        let bytes = encode_file_header(LogKind::Wal, 5, 77);
        assert_eq!(bytes.len() as u64, FILE_HEADER_BYTES);
        let header = FileHeader { store: 77, features: 0 };
        assert_eq!(decode_file_header(&bytes, LogKind::Wal, 5), Ok(header));
        assert!(decode_file_header(&bytes, LogKind::Manifest, 5).is_err());
        assert!(decode_file_header(&bytes, LogKind::Wal, 6).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = decode_file_header(&flipped, LogKind::Wal, 5).expect_err("flipped");
            assert!(matches!(error, HeaderError::Damaged(_)), "bit {bit}: {error:?}");
        }
        for (offset, value) in [(8, 2), (12, 1)] {
            let mut newer = bytes.clone();
            newer[offset] = value;
            let checksum = checksum_at(5, 0, &[&newer[..36]]);
            newer[36..].copy_from_slice(&checksum.to_le_bytes());
            let error = decode_file_header(&newer, LogKind::Wal, 5).expect_err("newer");
            assert!(matches!(error, HeaderError::Unsupported(_)));
        }
    }
}
