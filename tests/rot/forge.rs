//! Changed files with all checksums corrected.

use std::ops::Range;

use crate::fixture::{FIXTURE, Kind, number};

/// The checksum of the format: bound to a salt, or a file number, and an offset.
pub(crate) fn checksum(salt: u64, offset: usize, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&(offset as u64).to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub(crate) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// The frames of a log or a manifest of one block.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) number: u64,
    /// Of the checksums of frames; the sound one.
    pub(crate) salt: u64,
    /// All bytes before the first frame.
    pub(crate) header: Vec<u8>,
    pub(crate) frames: Vec<Frame>,
}

#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// The length in the frame, which may be forged.
    pub(crate) length: u16,
    pub(crate) kind: u8,
    pub(crate) log: u32,
    pub(crate) seq: u64,
    pub(crate) synced: u64,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const FRAME_HEADER: usize = 27;

/// The lengths of the headers of a log and of a manifest, which end where the first frame begins.
pub(crate) const LOG_HEADER: usize = 52;
pub(crate) const MANIFEST_HEADER: usize = 4096;
/// The fields of the header end with their checksum, and the salt follows; a manifest has it twice.
pub(crate) const SALT_AT: usize = 40;
pub(crate) const SECOND_SALT_AT: usize = 2048;

impl Log {
    /// The sound one.
    pub(crate) fn of(kind: Kind) -> Self {
        let name = FIXTURE.only(kind);
        let bytes = FIXTURE.file(&name);
        let header = if kind == Kind::Manifest { MANIFEST_HEADER } else { LOG_HEADER };
        let (mut frames, mut at) = (Vec::new(), header);
        while at < bytes.len() {
            let frame = &bytes[at..];
            let length = u16::from_le_bytes([frame[4], frame[5]]);
            let end = FRAME_HEADER + usize::from(length);
            frames.push(Frame {
                length,
                kind: frame[6],
                log: u32::from_le_bytes(frame[7..11].try_into().unwrap()),
                seq: u64_at(frame, 11),
                synced: u64_at(frame, 19),
                payload: frame[FRAME_HEADER..end].to_vec(),
            });
            at += end;
        }
        let (salt, header) = (u64_at(bytes, SALT_AT), bytes[..header].to_vec());
        let log = Self { number: number(&name), salt, header, frames };
        assert!(log.encode() == bytes, "a forgery without changes has the same bytes");
        log
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.header.clone();
        for frame in &self.frames {
            bytes.extend([0; 4]);
            bytes.extend(frame.length.to_le_bytes());
            bytes.push(frame.kind);
            bytes.extend(frame.log.to_le_bytes());
            bytes.extend(frame.seq.to_le_bytes());
            bytes.extend(frame.synced.to_le_bytes());
            bytes.extend(&frame.payload);
        }
        self.seal(&mut bytes);
        bytes
    }

    /// Corrects the checksums of forged bytes, in which the frames begin where they do here.
    pub(crate) fn seal(&self, bytes: &mut [u8]) {
        let sum = checksum(u64_at(bytes, 16), 0, &bytes[..SALT_AT - 4]);
        put(bytes, SALT_AT - 4, &sum);
        for at in [SALT_AT, SECOND_SALT_AT].into_iter().filter(|&at| at < self.header.len()) {
            let sum = checksum(u64_at(bytes, 16), at, &bytes[at..at + 8]);
            put(bytes, at + 8, &sum);
        }
        let mut at = self.header.len();
        let mut starts = Vec::new();
        for frame in &self.frames {
            starts.push(at);
            at += FRAME_HEADER + frame.payload.len();
        }
        // A frame may say that more belongs to it than its payload: the frames behind it are sealed before it.
        for start in starts.into_iter().rev() {
            let length = usize::from(u16::from_le_bytes([bytes[start + 4], bytes[start + 5]]));
            let end = (start + FRAME_HEADER + length).min(bytes.len());
            let sum = checksum(self.salt, start, &bytes[start + 4..end]);
            put(bytes, start, &sum);
        }
    }
}

/// The tags of a record of an added table, of filter settings, of a time, of a default time to live, and of a
/// compression.
const ADDED: u8 = 1;
pub(crate) const FILTER_SETTINGS: u8 = 8;
pub(crate) const TIME: u8 = 9;
pub(crate) const DEFAULT_TTL: u8 = 10;
pub(crate) const COMPRESSION: u8 = 11;

/// The fields of an edit: tag, and place with the tag. Keys are shorter than 128 bytes.
pub(crate) fn fields(edit: &[u8]) -> Vec<(u8, Range<usize>)> {
    let (mut fields, mut at) = (Vec::new(), 0);
    while at < edit.len() {
        let length = match edit[at] {
            ADDED => tagged_fields(edit, at + 2).end - at,
            2 => 10,
            3..=5 | TIME | DEFAULT_TTL => 9,
            6 => 17,
            7 | FILTER_SETTINGS => 29,
            COMPRESSION => 2,
            other => panic!("a field {other}"),
        };
        fields.push((edit[at], at..at + length));
        at += length;
    }
    fields
}

/// The place of the tagged fields of a table's record, behind their length.
pub(crate) fn tagged_fields(edit: &[u8], record: usize) -> Range<usize> {
    let largest = record + KEYS_AT + 1 + usize::from(edit[record + KEYS_AT]);
    let length = largest + 1 + usize::from(edit[largest]);
    length + 1..length + 1 + usize::from(edit[length])
}

/// The start of an edit's records of added tables, after tag and level.
pub(crate) fn table_records(edit: &[u8]) -> Vec<usize> {
    let added = fields(edit).into_iter().filter(|(tag, _)| *tag == ADDED);
    added.map(|(_, place)| place.start + 2).collect()
}

/// Offsets in a manifest's record of a table: the file's length, the footer's checksum and its random bytes, the filter's length
/// and checksum,
/// the number of entries, and the smallest key.
pub(crate) const SIZE_AT: usize = 8;
pub(crate) const FOOTER_CHECKSUM_AT: usize = 24;
pub(crate) const RANDOM_AT: usize = 28;
pub(crate) const FILTER_LENGTH_AT: usize = 52;
const FILTER_CHECKSUM_AT: usize = 60;
pub(crate) const ENTRIES_AT: usize = 64;
pub(crate) const KEYS_AT: usize = 104;

/// The offset of the random bytes in a table's footer.
pub(crate) const FOOTER_RANDOM_AT: usize = 80;
/// The offset of the index, in the footer and in the record of the manifest.
pub(crate) const FOOTER_INDEX_AT: usize = 16;
/// The offset of the required features in the footer, and the features of expiring entries and of compressed blocks.
pub(crate) const FOOTER_FEATURES_AT: usize = 108;
pub(crate) const EXPIRING: u8 = 2;
pub(crate) const COMPRESSED: u8 = 4;
/// The tag of the decompressed bytes in properties and in the manifest.
pub(crate) const CONTENTS_BYTES: u8 = 5;
/// The bytes of a table's expiries: the last field of its properties, and of its record in the manifest.
pub(crate) const EXPIRIES: usize = 72;
pub(crate) const INDEX_AT: usize = 16;

/// A table of the store, with the offsets of the sound one.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Contents and trailers of data blocks, filter (if any), index and properties.
    pub(crate) data: Vec<Range<usize>>,
    pub(crate) filter: Option<Range<usize>>,
    pub(crate) index: Range<usize>,
    pub(crate) properties: Range<usize>,
    pub(crate) footer: usize,
}

impl Table {
    pub(crate) fn of(name: &str) -> Self {
        let bytes = FIXTURE.file(name).to_vec();
        let footer = bytes.len() - 128;
        let handle = |at: usize| {
            let (offset, length) = (u64_at(&bytes, footer + at), u64_at(&bytes, footer + at + 8));
            offset as usize..(offset + length) as usize + 5
        };
        let (filter, index, properties) = (handle(0), handle(16), handle(32));
        let contents = &bytes[index.start..index.end - 5];
        let count = contents.len() - 4;
        let blocks = u32::from_le_bytes(contents[count..].try_into().unwrap()) as usize;
        let data_end = u64_at(contents, count - 8) as usize;
        let cuts = u32::from_le_bytes(contents[count - 12..count - 8].try_into().unwrap()) as usize;
        let starts: Vec<usize> = (0..blocks)
            .map(|n| {
                let at = count - 12 - 12 * cuts - 4 * (blocks - n);
                u32::from_le_bytes(contents[at..at + 4].try_into().unwrap()) as usize
            })
            .map(|entry| u64_at(contents, entry) as usize)
            .chain([data_end])
            .collect();
        let data = starts.windows(2).map(|ends| ends[0]..ends[1]).collect();
        let filter = (filter.len() > 5).then_some(filter);
        let table = Self { name: name.to_owned(), bytes, data, filter, index, properties, footer };
        assert!(
            table.sealed() == FIXTURE.file(name),
            "a forgery without changes has the same bytes"
        );
        table
    }

    pub(crate) fn all() -> Vec<Self> {
        FIXTURE.of_kind(Kind::Table).iter().map(|name| Self::of(name)).collect()
    }

    /// Those whose data blocks are as the format has their contents.
    pub(crate) fn all_raw() -> Vec<Self> {
        Self::all().into_iter().filter(|table| !table.is_compressed()).collect()
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.bytes[self.footer + FOOTER_FEATURES_AT] & COMPRESSED != 0
    }

    pub(crate) fn has_expiries(&self) -> bool {
        self.bytes[self.footer + FOOTER_FEATURES_AT] & EXPIRING != 0
    }

    /// The place of the expiries in the properties.
    pub(crate) fn expiries(&self) -> usize {
        self.properties.end - 5 - EXPIRIES
    }

    /// The table with other bytes at an offset.
    pub(crate) fn with(&self, at: usize, field: &[u8]) -> Self {
        let mut table = self.clone();
        put(&mut table.bytes, at, field);
        table
    }

    /// The bytes with all checksums corrected.
    pub(crate) fn sealed(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let salt = u64_at(&bytes, self.footer + FOOTER_RANDOM_AT);
        let parts = self.data.iter().chain(&self.filter).chain([&self.index, &self.properties]);
        for part in parts {
            let sum = checksum(salt, part.start, &bytes[part.start..part.end - 4]);
            put(&mut bytes, part.end - 4, &sum);
        }
        let sum = checksum(
            u64_at(&bytes, self.footer + 64),
            self.footer,
            &bytes[self.footer..self.footer + 116],
        );
        put(&mut bytes, self.footer + 116, &sum);
        bytes
    }

    /// The manifest with this table's checksums, and with the record as `change` leaves it.
    pub(crate) fn manifest(&self, change: impl Fn(&mut [u8])) -> Vec<u8> {
        self.manifest_of(&self.sealed(), change)
    }

    /// The same for bytes that are sealed already.
    pub(crate) fn manifest_of(&self, sealed: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
        self.manifest_with(sealed, |edit, record| change(&mut edit[record..]))
    }

    /// The same for a change of the edit, which has the record at an offset; behind that it may get another length.
    pub(crate) fn manifest_with(
        &self,
        sealed: &[u8],
        change: impl Fn(&mut Vec<u8>, usize),
    ) -> Vec<u8> {
        let mut manifest = Log::of(Kind::Manifest);
        for frame in &mut manifest.frames {
            // From the last one, as the places of those behind a change are others.
            for at in table_records(&frame.payload).into_iter().rev() {
                let record = &mut frame.payload[at..];
                if u64_at(record, 0) == number(&self.name) {
                    put(record, FOOTER_CHECKSUM_AT, &sealed[self.footer + 116..self.footer + 120]);
                    if let Some(filter) = &self.filter {
                        put(record, FILTER_CHECKSUM_AT, &sealed[filter.end - 4..filter.end]);
                    }
                    change(&mut frame.payload, at);
                }
            }
            frame.length = frame.payload.len() as u16;
        }
        manifest.encode()
    }
}

/// A filter file of another generation.
pub(crate) fn filter_file(contents: &[u8], table: u64, generation: u64) -> Vec<u8> {
    let mut bytes = contents.to_vec();
    bytes.push(2);
    let sum = checksum(table, generation as usize, &bytes);
    bytes.extend(sum);
    bytes
}
