//! Changed files with all checksums corrected.

use crate::fixture::{FIXTURE, Kind, number};

/// The checksum of the format: bound to a file number and an offset.
pub(crate) fn checksum(number: u64, offset: usize, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
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

impl Log {
    /// The sound one.
    pub(crate) fn of(kind: Kind) -> Self {
        let name = FIXTURE.only(kind);
        let bytes = FIXTURE.file(&name);
        let (mut frames, mut at) = (Vec::new(), 40);
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
        let log = Self { number: number(&name), header: bytes[..36].to_vec(), frames };
        assert!(log.encode() == bytes, "a forgery without changes has the same bytes");
        log
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.header.clone();
        let sum = checksum(u64_at(&bytes, 16), 0, &bytes);
        bytes.extend(sum);
        // A frame may say that more belongs to it than its payload. So all is there before any sum is.
        let mut starts = Vec::new();
        for frame in &self.frames {
            starts.push((bytes.len(), usize::from(frame.length)));
            bytes.extend([0; 4]);
            bytes.extend(frame.length.to_le_bytes());
            bytes.push(frame.kind);
            bytes.extend(frame.log.to_le_bytes());
            bytes.extend(frame.seq.to_le_bytes());
            bytes.extend(frame.synced.to_le_bytes());
            bytes.extend(&frame.payload);
        }
        for (start, length) in starts.into_iter().rev() {
            let end = (start + FRAME_HEADER + length).min(bytes.len());
            let sum = checksum(self.number, start, &bytes[start + 4..end]);
            put(&mut bytes, start, &sum);
        }
        bytes
    }
}

/// The start of an edit's records of added tables, after tag and level. Keys are shorter than 128 bytes.
pub(crate) fn table_records(edit: &[u8]) -> Vec<usize> {
    let (mut records, mut at) = (Vec::new(), 0);
    while at < edit.len() {
        at += match edit[at] {
            1 => {
                let record = at + 2;
                records.push(record);
                let largest = record + KEYS_AT + 1 + usize::from(edit[record + KEYS_AT]);
                largest + 1 + usize::from(edit[largest]) - at
            }
            2 => 10,
            3..=5 => 9,
            6 => 17,
            7 | 8 => 29,
            other => panic!("a field {other}"),
        };
    }
    records
}

/// The offset of the smallest key in a manifest's record of a table.
pub(crate) const KEYS_AT: usize = 88;

/// A table of the store, with the offsets of the sound one.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Contents and trailers of data blocks, filter (if any), index and properties.
    pub(crate) data: Vec<std::ops::Range<usize>>,
    pub(crate) filter: Option<std::ops::Range<usize>>,
    pub(crate) index: std::ops::Range<usize>,
    pub(crate) properties: std::ops::Range<usize>,
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
        let starts: Vec<usize> = (0..blocks)
            .map(|n| {
                let at = count - 8 - 4 * (blocks - n);
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

    /// The bytes with all checksums corrected.
    pub(crate) fn sealed(&self) -> Vec<u8> {
        let (mut bytes, id) = (self.bytes.clone(), number(&self.name));
        let parts = self.data.iter().chain(&self.filter).chain([&self.index, &self.properties]);
        for part in parts {
            let sum = checksum(id, part.start, &bytes[part.start..part.end - 4]);
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
        let (sealed, mut manifest) = (self.sealed(), Log::of(Kind::Manifest));
        for frame in &mut manifest.frames {
            for record in table_records(&frame.payload) {
                let record = &mut frame.payload[record..];
                if u64_at(record, 0) == number(&self.name) {
                    put(record, 24, &sealed[self.footer + 116..self.footer + 120]);
                    if let Some(filter) = &self.filter {
                        put(record, 44, &sealed[filter.end - 4..filter.end]);
                    }
                    change(record);
                }
            }
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
