//! The bytes of a standalone filter: a head, a row per part, the arrays of the parts; see
//! docs/filter-format.md.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::hashing::Hashing;
use super::part::{Array, Part};
use super::sizing::invalid;
use crate::codec::{Fields, PutFields, u32_at};
use crate::error::Error;
use crate::filter::geometry::Geometry;
use crate::filter::hash_function::HashFunction;
use crate::filter::hash_function::HashKey;
use crate::filter::kind::FilterKind;

const MAGIC: &[u8; 8] = b"cribaFSA";
const VERSION: u16 = 1;
const CHECKSUM: Range<usize> = 12..16;
const HEAD_BYTES: usize = 64;
const ROW_BYTES: usize = 32;
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

/// The fault of bytes that are no filter.
#[derive(Debug)]
pub(super) struct Flaw {
    offset: usize,
    expected: String,
    found: String,
}

impl Flaw {
    fn new(offset: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { offset, expected: expected.into(), found: found.into() }
    }

    pub(super) fn parts(expected: &str) -> Self {
        Self::new(48, expected, "others")
    }

    pub(super) fn rate(why: &str) -> Self {
        Self::new(40, "a rate to be made for", why)
    }

    fn into_error(self, name: &Path) -> Error {
        Error::corrupt(name, self.offset as u64, self.expected, self.found)
    }
}

pub(super) fn encode(head: &Head, parts: &[&Part]) -> Vec<u8> {
    let arrays: usize = parts.iter().map(|part| part.array.len()).sum();
    let start = arrays_start(parts.len());
    let mut bytes = Vec::with_capacity(start + arrays);
    bytes.extend_from_slice(MAGIC);
    bytes.put_u16(VERSION);
    bytes.put_u8(head.form as u8);
    bytes.put_u8(head.hashing.hash.id());
    bytes.put_u32(0); // replaced by the checksum below
    bytes.extend_from_slice(head.hashing.key.bytes());
    bytes.put_u64(head.capacity);
    bytes.put_f64(head.rate);
    bytes.put_u32(parts.len() as u32);
    bytes.resize(HEAD_BYTES, 0);
    for part in parts {
        bytes.put_u64(part.geometry.m);
        bytes.put_u64(part.geometry.wide);
        bytes.put_u64(part.salt);
        bytes.put_u32(part.geometry.k);
        bytes.put_u8(part.kind.algorithm().id);
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
    if bytes.starts_with(MAGIC)
        && let Some(version) = Fields::new(bytes.get(MAGIC.len()..).unwrap_or_default()).u16()
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
    let short = || Flaw::new(0, format!("{HEAD_BYTES} bytes or more"), bytes.len().to_string());
    let mut fields = Fields::new(bytes.get(..HEAD_BYTES).ok_or_else(short)?);
    if fields.bytes(MAGIC.len()).ok_or_else(short)? != MAGIC {
        return Err(Flaw::new(0, "a filter of criba's", "other bytes"));
    }
    let stored = u32_at(bytes, CHECKSUM.start).ok_or_else(short)?;
    let computed = checksum(bytes);
    if stored != computed {
        let (stored, computed) = (format!("{stored:08x}"), format!("{computed:08x}"));
        return Err(Flaw::new(CHECKSUM.start, format!("checksum {computed}"), stored));
    }
    fields.u16().ok_or_else(short)?; // the version, checked in `decode`
    let found = fields.u8().ok_or_else(short)?;
    if found != form as u8 {
        return Err(Flaw::new(10, form.to_string(), format!("form {found}")));
    }
    let id = fields.u8().ok_or_else(short)?;
    let hash = HashFunction::with_id(id).ok_or_else(|| Flaw::new(11, "a hash", id.to_string()))?;
    fields.u32().ok_or_else(short)?; // the checksum, checked above
    let key = *fields.bytes(HashKey::BYTES).and_then(<[u8]>::first_chunk).ok_or_else(short)?;
    if hash == HashFunction::MurmurHash2 && key != [0; HashKey::BYTES] {
        return Err(Flaw::new(16, "no key for a hash without one", "a key"));
    }
    let hashing = Hashing { hash, key: HashKey::new(key) };
    let capacity = fields.u64().ok_or_else(short)?;
    if capacity == 0 && form != Form::Static {
        return Err(Flaw::new(32, "a capacity", "0"));
    }
    let rate = fields.f64().ok_or_else(short)?;
    if !(0.0..=1.0).contains(&rate) {
        return Err(Flaw::new(40, "a rate", rate.to_string()));
    }
    let parts = fields.u32().ok_or_else(short)? as usize;
    if fields.rest().iter().any(|&byte| byte != 0) {
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

fn read_row(row: &[u8], start: usize) -> Result<Row, String> {
    let mut fields = Fields::new(row);
    let short = || "too few bytes".to_owned();
    let (m, wide) = (fields.u64().ok_or_else(short)?, fields.u64().ok_or_else(short)?);
    let salt = fields.u64().ok_or_else(short)?;
    let geometry = Geometry { m, k: fields.u32().ok_or_else(short)?, wide };
    let id = fields.u8().ok_or_else(short)?;
    let kind = FilterKind::with_id(id).ok_or_else(|| format!("kind {id}"))?;
    if fields.rest() != [0; 3] {
        return Err("bytes other than zeros at its end".into());
    }
    (kind.algorithm().check)(&geometry)?;
    let end = start.checked_add((kind.algorithm().array_bytes)(&geometry));
    let end = end.ok_or_else(|| "an array beyond all memory".to_owned())?;
    Ok(Row { kind, geometry, salt, range: start..end })
}

/// Whether the last word of a Bloom filter has bits set behind its m bits.
fn has_spare_bits(row: &Row, array: &[u8]) -> bool {
    let used = row.geometry.m % 64;
    let last = array.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    row.kind == FilterKind::Bloom && used != 0 && last >> used != 0
}
