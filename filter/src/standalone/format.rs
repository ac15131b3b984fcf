//! The bytes of a filter: a head, a row per part, the arrays of the parts; see docs/filter-format.md.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::fmt;
use std::ops::Range;
use std::path::Path;

use bytes::{Buf, BufMut};

use super::hashing::Hashing;
use super::part::{Array, Part};
use super::sizing::invalid;
use crate::error::Error;
use crate::geometry::Geometry;
use crate::hash::HashFunction;
use crate::hash::HashKey;
use crate::kind::FilterKind;

const MAGIC: &[u8; 8] = b"cribaFSA";
const VERSION: u16 = 1;
const CHECKSUM: Range<usize> = 12..16;
const HEAD_BYTES: usize = 64;
const ROW_BYTES: usize = 32;
const ROW_KIND_AT: usize = 28;
const ALIGNMENT: usize = 64;

/// A filter that consists of a head and parts, as in the format.
pub(super) trait Saved: Sized {
    const FORM: Form;

    fn encode(&self) -> Vec<u8>;

    /// Makes a filter of a head and parts. Fails if a filter of this form has other parts.
    fn assemble(head: Head, parts: Vec<Part>) -> Result<Self, Flaw>;

    fn array(bytes: &[u8]) -> crate::Result<Array> {
        let mut array = Array::zeroed(bytes.len())?;
        array.to_mut().copy_from_slice(bytes);
        Ok(array)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Bloom = 1,
    Static = 2,
    Scalable = 3,
    Sharded = 4,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bloom => "a Bloom filter",
            Self::Static => "a static filter",
            Self::Scalable => "a scalable Bloom filter",
            Self::Sharded => "a sharded Bloom filter",
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) form: Form,
    pub(super) hashing: Hashing,
    pub(super) capacity: u64,
    pub(super) rate: f64,
}

impl Head {
    /// The head with another hash. Fails if bits were set under the old one.
    pub(super) fn with_hashing(self, hashing: Hashing, ones: u64) -> crate::Result<Self> {
        if ones > 0 {
            let reason = "chosen before the first insert, not after: it would deny those keys";
            return Err(invalid("hash", reason.into()));
        }
        Ok(Self { hashing, ..self })
    }
}

/// The fault of bytes that are no filter, or none that is supported.
#[derive(Debug)]
pub(super) struct Flaw {
    offset: usize,
    expected: String,
    found: String,
    is_unsupported: bool,
}

impl Flaw {
    fn new(offset: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        let (expected, found) = (expected.into(), found.into());
        Self { offset, expected, found, is_unsupported: false }
    }

    fn unsupported(expected: &str, found: &str) -> Self {
        Self { is_unsupported: true, ..Self::new(0, expected, found) }
    }

    pub(super) fn parts(expected: &str) -> Self {
        Self::new(48, expected, "others")
    }

    pub(super) fn rate(why: &str) -> Self {
        Self::new(40, "a rate to be made for", why)
    }

    fn into_error(self, name: &Path) -> Error {
        if self.is_unsupported {
            let path = name.to_owned();
            return Error::Unsupported { path, supported: self.expected, found: self.found };
        }
        Error::corrupt(name, self.offset as u64, self.expected, self.found)
    }
}

pub(super) fn encode(head: &Head, parts: &[&Part]) -> Vec<u8> {
    let arrays: usize = parts.iter().map(|part| part.array.len()).sum();
    let start = arrays_start(parts.len());
    let mut bytes = Vec::with_capacity(start + arrays);
    bytes.extend_from_slice(MAGIC);
    bytes.put_u16_le(VERSION);
    bytes.put_u8(head.form as u8);
    bytes.put_u8(head.hashing.hash.id());
    bytes.put_u32_le(0); // replaced by the checksum below
    bytes.extend_from_slice(head.hashing.key.bytes());
    bytes.put_u64_le(head.capacity);
    bytes.put_f64_le(head.rate);
    bytes.put_u32_le(parts.len() as u32);
    bytes.resize(HEAD_BYTES, 0);
    for part in parts {
        bytes.put_u64_le(part.geometry.m);
        bytes.put_u64_le(part.geometry.wide);
        bytes.put_u64_le(part.salt);
        bytes.put_u32_le(part.geometry.k);
        bytes.put_u8(part.kind.id());
        bytes.extend_from_slice(&[0; 3]);
    }
    bytes.resize(start, 0);
    for part in parts {
        bytes.extend_from_slice(&part.array);
    }
    let checksum = checksum(&bytes);
    if let Some(place) = bytes.get_mut(CHECKSUM) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

fn arrays_start(parts: usize) -> usize {
    (HEAD_BYTES + parts * ROW_BYTES).next_multiple_of(ALIGNMENT)
}

/// CRC-32 of all but the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytes.get(..CHECKSUM.start).unwrap_or_default());
    hasher.update(bytes.get(CHECKSUM.end..).unwrap_or_default());
    hasher.finalize()
}

/// Decodes a filter; `array` gives the array at a range. Allocates no more than the length of the bytes.
pub(super) fn decode<T: Saved>(
    name: &Path,
    bytes: &[u8],
    array: impl FnMut(Range<usize>) -> crate::Result<Array>,
) -> crate::Result<T> {
    // Checked before the checksum: another version is no damage.
    if let Some(mut rest) = bytes.strip_prefix(MAGIC)
        && let Ok(version) = rest.try_get_u16_le()
        && version != VERSION
    {
        return Err(Error::Unsupported {
            path: name.to_owned(),
            supported: format!("a filter of version {VERSION}"),
            found: format!("version {version}"),
        });
    }
    let (head, rows) = read(bytes, T::FORM).map_err(|flaw| flaw.into_error(name))?;
    let arrays: crate::Result<Vec<_>> =
        rows.iter().map(|row| row.range.clone()).map(array).collect();
    let parts = rows.iter().zip(arrays?);
    let parts =
        parts.map(|(row, array)| Part::new(row.kind, row.geometry, row.salt, array)).collect();
    T::assemble(head, parts).map_err(|flaw| flaw.into_error(name))
}

struct Row {
    kind: FilterKind,
    geometry: Geometry,
    salt: u64,
    range: Range<usize>,
}

/// Reads head and rows, and makes all checks that do not depend on the form.
fn read(bytes: &[u8], form: Form) -> Result<(Head, Vec<Row>), Flaw> {
    let Some(mut head) = bytes.get(..HEAD_BYTES) else {
        let expected = format!("{HEAD_BYTES} bytes or more");
        return Err(Flaw::new(0, expected, bytes.len().to_string()));
    };
    if &head.copy_to_bytes(MAGIC.len())[..] != MAGIC {
        return Err(Flaw::new(0, "a filter of criba's", "other bytes"));
    }
    head.advance(size_of_val(&VERSION)); // checked in `decode`
    let (found, hash, stored) = (head.get_u8(), head.get_u8(), head.get_u32_le());
    let computed = checksum(bytes);
    if stored != computed {
        let (stored, computed) = (format!("{stored:08x}"), format!("{computed:08x}"));
        return Err(Flaw::new(CHECKSUM.start, format!("checksum {computed}"), stored));
    }
    if found != form as u8 {
        return Err(Flaw::new(10, form.to_string(), format!("form {found}")));
    }
    let unknown = || Flaw::new(11, "a hash", hash.to_string());
    let hash = HashFunction::with_id(hash).ok_or_else(unknown)?;
    let mut key = [0; HashKey::BYTES];
    head.copy_to_slice(&mut key);
    if hash == HashFunction::MurmurHash2 && key != [0; HashKey::BYTES] {
        return Err(Flaw::new(16, "no key for a hash without one", "a key"));
    }
    let hashing = Hashing { hash, key: HashKey::new(key) };
    let capacity = head.get_u64_le();
    if capacity == 0 && form != Form::Static {
        return Err(Flaw::new(32, "a capacity", "0"));
    }
    let rate = head.get_f64_le();
    if !(0.0..=1.0).contains(&rate) {
        return Err(Flaw::new(40, "a rate", rate.to_string()));
    }
    let parts = head.get_u32_le() as usize;
    if head.iter().any(|&byte| byte != 0) {
        return Err(Flaw::new(52, "zeros", "other bytes"));
    }
    let head = Head { form, hashing, capacity, rate };
    Ok((head, read_rows(bytes, parts)?))
}

fn read_rows(bytes: &[u8], parts: usize) -> Result<Vec<Row>, Flaw> {
    let start = arrays_start(parts);
    let table = bytes.get(HEAD_BYTES..start).unwrap_or_default();
    let (rows, padding) =
        table.split_at_checked(parts * ROW_BYTES).filter(|_| parts > 0).ok_or_else(|| {
            Flaw::new(48, format!("parts that {} bytes hold", bytes.len()), parts.to_string())
        })?;
    let mut end = start;
    let rows: Result<Vec<Row>, Flaw> = rows
        .chunks_exact(ROW_BYTES)
        .enumerate()
        .map(|(i, row)| {
            let offset = HEAD_BYTES + i * ROW_BYTES;
            if row.get(ROW_KIND_AT) == Some(&FilterKind::OLD_RIBBON) {
                let found = "a ribbon of one layer: build the filter again";
                return Err(Flaw::unsupported("ribbons with layers", found));
            }
            let row = read_row(row, end).map_err(|why| Flaw::new(offset, "a part", why))?;
            let too_long = || format!("{} bytes in all", bytes.len());
            let array = bytes
                .get(row.range.clone())
                .ok_or_else(|| Flaw::new(offset, format!("{} bytes", row.range.end), too_long()))?;
            if has_spare_bits(&row, array) {
                return Err(Flaw::new(row.range.end - 8, "no bits beyond the last", "some"));
            }
            end = row.range.end;
            Ok(row)
        })
        .collect();
    let rows = rows?;
    if end != bytes.len() || padding.iter().any(|&byte| byte != 0) {
        let found = format!("{} bytes", bytes.len());
        return Err(Flaw::new(start, format!("{end} bytes, zeros before the arrays"), found));
    }
    Ok(rows)
}

/// Reads a row of [`ROW_BYTES`] bytes.
fn read_row(mut row: &[u8], start: usize) -> Result<Row, String> {
    let (m, wide, salt) = (row.get_u64_le(), row.get_u64_le(), row.get_u64_le());
    let geometry = Geometry { m, k: row.get_u32_le(), wide };
    let id = row.get_u8();
    let kind = FilterKind::with_id(id).ok_or_else(|| format!("kind {id}"))?;
    if row != [0; 3] {
        return Err("bytes other than zeros at its end".into());
    }
    kind.check(&geometry)?;
    let end = start.checked_add(kind.array_bytes(&geometry));
    let end = end.ok_or_else(|| "an array beyond all memory".to_owned())?;
    Ok(Row { kind, geometry, salt, range: start..end })
}

/// Whether the last word of a Bloom filter has bits set behind its m bits.
fn has_spare_bits(row: &Row, array: &[u8]) -> bool {
    let used = row.geometry.m % 64;
    let last = array.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    row.kind == FilterKind::Bloom && used != 0 && last >> used != 0
}
