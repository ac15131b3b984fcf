//! The fixed parts of a table: block trailer, footer, properties; and the manifest's record of a table. See
//! format.md, "SSTable".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::path::Path;

use byteorder::{ByteOrder, LittleEndian};

use super::expiries::Expiries;
use crate::codec::{
    FORMAT_VERSION, Fields, PutFields, checksum_at, other_version, unknown_features,
};
use crate::error::Error;
use crate::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Seq};
use crate::names::Origin;
use crate::sealed::mapped_bytes;

/// Type byte and checksum, after the contents of each block.
pub(crate) const TRAILER_BYTES: usize = 5;
/// The contents of a block are no longer than this: the longest value, and less than a mebibyte beside it.
pub(crate) const MAX_BLOCK_BYTES: u64 = MAX_VALUE_BYTES as u64 + (1 << 20);
/// Properties have two keys, and numbers.
pub(crate) const MAX_PROPERTIES_BYTES: u64 = 1 << 20;
pub(crate) const FOOTER_BYTES: usize = 128;
const MAGIC: &[u8; 8] = b"cribaSST";
/// The required feature of an ingested table: its entries have the number of the manifest's record.
const INGESTED: u32 = 1;
/// The required feature of a table with expiring entries.
const EXPIRING: u32 = 2;
/// The required feature of a table with compressed data blocks.
const COMPRESSED: u32 = 4;
/// The filter block starts at a multiple of this.
pub(crate) const FILTER_ALIGNMENT: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockType {
    Data = 1,
    Filter = 2,
    Index = 3,
    Properties = 4,
    // 5 is reserved for range tombstones.
    CompressedData = 6,
}

/// The place of a block's contents in the file. The trailer follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    /// Length without the trailer; 0 for "no such block".
    pub(crate) length: u64,
}

impl BlockHandle {
    /// The end of contents and trailer.
    pub(crate) fn end(self) -> Option<u64> {
        self.offset.checked_add(self.length)?.checked_add(TRAILER_BYTES as u64)
    }

    pub(crate) fn is_none(self) -> bool {
        self.length == 0
    }
}

/// Appends the trailer to the contents of a block at `offset` of the table with this salt.
pub(crate) fn seal_block(contents: &mut Vec<u8>, block_type: BlockType, salt: u64, offset: u64) {
    contents.put_u8(block_type as u8);
    let checksum = checksum_at(salt, offset, &[contents]);
    contents.put_u32(checksum);
}

/// Verifies a block with its trailer and returns its contents. Fails with what is wrong.
pub(crate) fn check_block(
    bytes: &[u8],
    block_type: BlockType,
    salt: u64,
    offset: u64,
) -> Result<&[u8], String> {
    match checked(bytes, salt, offset)? {
        (found, contents) if found == block_type as u8 => Ok(contents),
        (found, _) => Err(format!("a block of type {found}")),
    }
}

/// As [`check_block`], of a data block: whether it is compressed, and what is stored. `may_be`: whether its table has
/// compressed blocks.
pub(super) fn check_data_block(
    bytes: &[u8],
    may_be: bool,
    salt: u64,
    offset: u64,
) -> Result<(bool, &[u8]), String> {
    const DATA: u8 = BlockType::Data as u8;
    const COMPRESSED_DATA: u8 = BlockType::CompressedData as u8;
    match checked(bytes, salt, offset)? {
        (DATA, contents) => Ok((false, contents)),
        (COMPRESSED_DATA, stored) if may_be => Ok((true, stored)),
        (found, _) => Err(format!("a block of type {found}")),
    }
}

/// The type and the contents of a block with the right checksum.
fn checked(bytes: &[u8], salt: u64, offset: u64) -> Result<(u8, &[u8]), String> {
    let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(format!("{} bytes", bytes.len()));
    };
    let (stored, computed) = (u32::from_le_bytes(*checksum), checksum_at(salt, offset, &[body]));
    if stored != computed {
        return Err(format!("a wrong checksum: {stored:#010x} stored, {computed:#010x} computed"));
    }
    let (block_type, contents) = body.split_last().ok_or("an empty block")?;
    Ok((*block_type, contents))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) filter: BlockHandle,
    pub(crate) index: BlockHandle,
    pub(crate) properties: BlockHandle,
    pub(crate) range_tombstones: BlockHandle,
    pub(crate) table: u64,
    pub(crate) store: u64,
    /// Tells two tables of one number apart.
    pub(crate) random: TableRandom,
    pub(crate) is_ingested: bool,
    pub(crate) has_expiries: bool,
    pub(crate) is_compressed: bool,
}

/// The random bytes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableRandom([u8; 16]);

impl TableRandom {
    pub(crate) fn new(first: u64, second: u64) -> Self {
        let mut bytes = [0; 16];
        LittleEndian::write_u64_into(&[first, second], &mut bytes);
        Self(bytes)
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        fields.bytes(16)?.try_into().ok().map(Self)
    }

    pub(crate) fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// The salt of the checksums of blocks.
    pub(crate) fn salt(&self) -> u64 {
        LittleEndian::read_u64(&self.0)
    }
}

impl Footer {
    pub(crate) fn encode(&self, offset: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FOOTER_BYTES);
        for handle in [self.filter, self.index, self.properties, self.range_tombstones] {
            bytes.put_u64(handle.offset);
            bytes.put_u64(handle.length);
        }
        bytes.put_u64(self.table);
        bytes.put_u64(self.store);
        bytes.extend_from_slice(&self.random.0);
        bytes.resize(FOOTER_BYTES - 20, 0); // reserved
        let ingested = if self.is_ingested { INGESTED } else { 0 };
        let expiring = if self.has_expiries { EXPIRING } else { 0 };
        let compressed = if self.is_compressed { COMPRESSED } else { 0 };
        bytes.put_u32(ingested | expiring | compressed); // required features
        bytes.put_u16(FORMAT_VERSION);
        bytes.put_u16(0); // reserved
        let checksum = checksum_at(self.table, offset, &[&bytes]);
        bytes.put_u32(checksum);
        bytes.extend_from_slice(MAGIC);
        bytes
    }

    /// The checksum in an encoded footer, which the manifest records.
    pub(crate) fn checksum(bytes: &[u8]) -> u32 {
        crate::codec::u32_at(bytes, FOOTER_BYTES - 12).unwrap_or_default()
    }

    /// The origin of a file with a sound footer of any version.
    pub(crate) fn origin(bytes: &[u8], offset: u64) -> Option<Origin> {
        let covered = bytes.get(..FOOTER_BYTES - 12)?;
        let mut fields = Fields::new(bytes.get(64..)?);
        let origin = Origin { number: fields.u64()?, store: fields.u64()? };
        let is_sound = bytes.ends_with(MAGIC)
            && Self::checksum(bytes) == checksum_at(origin.number, offset, &[covered]);
        is_sound.then_some(origin)
    }

    /// Decodes the footer at `offset`. An unknown version is not damage.
    pub(crate) fn decode(bytes: &[u8], offset: u64) -> Result<Self, FooterError> {
        let damaged = |what: &str| FooterError::Damaged(what.to_owned());
        let short = || damaged("a footer that is too short");
        let mut end = Fields::new(bytes.get(FOOTER_BYTES - 20..).ok_or_else(short)?);
        let features = end.u32().ok_or_else(short)?;
        let version = end.u16().ok_or_else(short)?;
        end.u16().ok_or_else(short)?;
        let checksum = end.u32().ok_or_else(short)?;
        if end.rest() != MAGIC {
            return Err(damaged("a bad magic number"));
        }
        let mut fields = Fields::new(bytes);
        let mut handle = || Some(BlockHandle { offset: fields.u64()?, length: fields.u64()? });
        let filter = handle().ok_or_else(short)?;
        let index = handle().ok_or_else(short)?;
        let properties = handle().ok_or_else(short)?;
        let range_tombstones = handle().ok_or_else(short)?;
        let table = fields.u64().ok_or_else(short)?;
        let store = fields.u64().ok_or_else(short)?;
        let random = TableRandom::decode(&mut fields).ok_or_else(short)?;
        let covered = bytes.get(..FOOTER_BYTES - 12).ok_or_else(short)?;
        if checksum_at(table, offset, &[covered]) != checksum {
            return Err(damaged("a wrong checksum"));
        }
        // A newer version may have another checksum; the present one detects a damaged version field.
        if version != FORMAT_VERSION {
            return Err(FooterError::Unsupported(other_version(version)));
        }
        if features & !(INGESTED | EXPIRING | COMPRESSED) != 0 {
            return Err(FooterError::Unsupported(unknown_features(features)));
        }
        Ok(Self {
            filter,
            index,
            properties,
            range_tombstones,
            table,
            store,
            random,
            is_ingested: features & INGESTED != 0,
            has_expiries: features & EXPIRING != 0,
            is_compressed: features & COMPRESSED != 0,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FooterError {
    Damaged(String),
    Unsupported(String),
}

impl FooterError {
    pub(crate) fn into_error(self, path: &Path, offset: u64) -> Error {
        match self {
            Self::Damaged(found) => Error::corrupt(path, offset, "an SSTable footer", found),
            Self::Unsupported(found) => Error::Unsupported {
                path: path.to_owned(),
                supported: format!("an SSTable of version {FORMAT_VERSION} without other features"),
                found,
            },
        }
    }
}

/// What a table says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Properties {
    /// Changes held, tombstones included.
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    /// Distinct user keys, which determine the size of the filter.
    pub(crate) keys: u64,
    pub(crate) data_blocks: u64,
    /// Bytes of all user keys and values, before prefix compression.
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    /// Bytes of keys and values that are not the newest of their key.
    pub(crate) hidden_bytes: u64,
    /// Of an ingested table: its entries are newer than this number, and have none of their own.
    pub(crate) ingested_after: Option<Seq>,
    /// When entries expire; `None` if none does.
    pub(crate) expiries: Option<Expiries>,
    /// The bytes of the contents of all data blocks, decompressed; `None` if no block is compressed.
    pub(crate) contents_bytes: Option<u64>,
    /// 0 if the table is ingested.
    pub(crate) min_seq: Seq,
    pub(crate) max_seq: Seq,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
}

/// Reserved: the keyspace of a table. This version has only number 0.
const KEYSPACE: u32 = 0;

impl Properties {
    pub(crate) fn is_ingested(&self) -> bool {
        self.ingested_after.is_some()
    }

    /// Whether the footer has the features that these properties need, and no other.
    pub(super) fn agree_with(&self, footer: &Footer) -> bool {
        self.is_ingested() == footer.is_ingested
            && self.expiries.is_some() == footer.has_expiries
            && self.contents_bytes.is_some() == footer.is_compressed
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_u32(KEYSPACE);
        for field in [
            self.entries,
            self.tombstones,
            self.keys,
            self.data_blocks,
            self.key_bytes,
            self.value_bytes,
            self.min_seq,
            self.max_seq,
        ] {
            bytes.put_u64(field);
        }
        bytes.put_prefixed(&self.smallest);
        bytes.put_prefixed(&self.largest);
        let fields = [
            (HIDDEN_BYTES, not_0(self.hidden_bytes).map(number)),
            (INGESTED_AFTER, self.ingested_after.map(number)),
            (EXPIRIES, self.expiries.map(|expiries| expiries.encode())),
            (CONTENTS_BYTES, self.contents_bytes.map(number)),
        ];
        bytes.extend_from_slice(&tagged(&fields));
        bytes
    }

    /// `None` for properties that no writer of this version makes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        if fields.u32()? != KEYSPACE {
            return None;
        }
        let mut properties = Self {
            entries: fields.u64()?,
            tombstones: fields.u64()?,
            keys: fields.u64()?,
            data_blocks: fields.u64()?,
            key_bytes: fields.u64()?,
            value_bytes: fields.u64()?,
            hidden_bytes: 0,
            ingested_after: None,
            expiries: None,
            contents_bytes: None,
            min_seq: fields.u64()?,
            max_seq: fields.u64()?,
            smallest: fields.prefixed()?.to_vec(),
            largest: fields.prefixed()?.to_vec(),
        };
        let [hidden_bytes, ingested_after, expiries, contents_bytes] =
            read_tagged(fields, [HIDDEN_BYTES, INGESTED_AFTER, EXPIRIES, CONTENTS_BYTES])?;
        properties.hidden_bytes = read_hidden_bytes(hidden_bytes)?;
        properties.ingested_after = decoded(ingested_after, read_number)?;
        properties.expiries = decoded(expiries, Expiries::decode)?;
        properties.contents_bytes = decoded(contents_bytes, read_number)?;
        let all_bytes = properties.key_bytes.saturating_add(properties.value_bytes);
        let sound = properties.keys > 0
            && properties.keys <= properties.entries
            && (properties.hidden_bytes == 0 || properties.keys < properties.entries)
            && properties.hidden_bytes <= all_bytes
            && properties.tombstones <= properties.entries
            && properties.min_seq <= properties.max_seq
            && properties.smallest <= properties.largest
            && properties.largest.len() <= MAX_KEY_BYTES
            && properties.smallest.len() <= MAX_KEY_BYTES
            && properties.is_ingested() == (properties.max_seq == 0)
            && (!properties.is_ingested()
                || (properties.tombstones == 0 && properties.keys == properties.entries));
        sound.then_some(properties)
    }
}

/// The tag of [`Properties::hidden_bytes`] and [`TableMeta::hidden_bytes`].
const HIDDEN_BYTES: u8 = 1;
/// The tag of [`TableMeta::prefixes`].
const PREFIXES: u8 = 2;
/// The tag of [`Properties::ingested_after`].
const INGESTED_AFTER: u8 = 2;
/// The tag of [`TableMeta::is_ingested`], with the value 1.
const IS_INGESTED: u8 = 3;
/// The tag of [`Properties::expiries`] and [`TableMeta::expiries`].
const EXPIRIES: u8 = 4;
/// The tag of [`Properties::contents_bytes`] and [`TableMeta::contents_bytes`].
const CONTENTS_BYTES: u8 = 5;

/// The tagged fields of properties and records of tables.
fn tagged(fields: &[(u8, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (tag, value) in fields {
        if let Some(value) = value {
            bytes.put_u8(*tag);
            bytes.put_prefixed(value);
        }
    }
    bytes
}

/// The values of these tags; `None` for fields that no writer makes. Other tags are those of a newer criba: what
/// must not be ignored has a feature bit.
fn read_tagged<const N: usize>(
    mut fields: Fields<'_>,
    tags: [u8; N],
) -> Option<[Option<&[u8]>; N]> {
    let mut values = [None; N];
    while !fields.is_empty() {
        let (tag, bytes) = (fields.u8()?, fields.prefixed()?);
        if let Some((_, value)) = tags.iter().zip(&mut values).find(|(known, _)| **known == tag)
            && value.replace(bytes).is_some()
        {
            return None;
        }
    }
    Some(values)
}

fn number(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// A field that may not be there; `None` for bytes that no writer makes.
#[expect(clippy::option_option, reason = "as for all fields, the outer `None` is an error")]
fn decoded<T>(bytes: Option<&[u8]>, decode: impl Fn(&[u8]) -> Option<T>) -> Option<Option<T>> {
    bytes.map_or(Some(None), |bytes| decode(bytes).map(Some))
}

fn read_number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Hidden bytes of 0 are not written.
fn not_0(hidden_bytes: u64) -> Option<u64> {
    Some(hidden_bytes).filter(|&bytes| bytes > 0)
}

fn read_hidden_bytes(tagged: Option<&[u8]>) -> Option<u64> {
    Some(decoded(tagged, |bytes| read_number(bytes).and_then(not_0))?.unwrap_or(0))
}

/// The manifest's record of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FilterMeta {
    /// 0 for the filter block in the table; later ones are in files beside it.
    pub(crate) generation: u64,
    /// The length of the filter block's contents; 0 if there is none.
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

impl FilterMeta {
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.put_u64(self.generation);
        bytes.put_u64(self.bytes);
        bytes.put_u32(self.checksum);
    }

    /// The memory of the whole filter, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        match self.bytes as usize {
            0 => 0,
            // As it is read from the file.
            bytes => mapped_bytes(bytes.saturating_add(TRAILER_BYTES)),
        }
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self { generation: fields.u64()?, bytes: fields.u64()?, checksum: fields.u32()? })
    }
}

/// The manifest's record of a table: enough to find, verify and open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableMeta {
    pub(crate) id: u64,
    /// The file's length in bytes.
    pub(crate) size: u64,
    /// The start of the index. One read covers it and the rest of the file.
    pub(crate) index_offset: u64,
    pub(crate) footer_checksum: u32,
    pub(crate) random: TableRandom,
    /// The filter at the open; a live table may have a later one.
    pub(crate) filter: FilterMeta,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) keys: u64,
    /// The bytes of keys and values of entries that are not the newest of their key.
    pub(crate) hidden_bytes: u64,
    /// The distinct prefixes of keys by the store's extractor; `None` without one, or if it changed since.
    pub(crate) prefixes: Option<u64>,
    /// Whether all entries have one number, which only this record has: `min_seq` and `max_seq`.
    pub(crate) is_ingested: bool,
    /// When entries expire; `None` if none does.
    pub(crate) expiries: Option<Expiries>,
    /// See [`Properties::contents_bytes`].
    pub(crate) contents_bytes: Option<u64>,
    pub(crate) min_seq: Seq,
    pub(crate) max_seq: Seq,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
}

impl TableMeta {
    /// About the length that the file would have without compression.
    pub(crate) fn decompressed_size(&self) -> u64 {
        self.contents_bytes.map_or(self.size, |bytes| bytes.max(self.size))
    }

    /// The number of all entries, if the table was ingested.
    pub(crate) fn number(&self) -> Option<Seq> {
        self.is_ingested.then_some(self.max_seq)
    }

    /// Gives an ingested table its number.
    pub(crate) fn set_number(&mut self, number: Seq) {
        (self.min_seq, self.max_seq) = (number, number);
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        for field in [self.id, self.size, self.index_offset] {
            bytes.put_u64(field);
        }
        bytes.put_u32(self.footer_checksum);
        bytes.extend_from_slice(&self.random.0);
        self.filter.encode(bytes);
        for field in [self.entries, self.tombstones, self.keys, self.min_seq, self.max_seq] {
            bytes.put_u64(field);
        }
        bytes.put_prefixed(&self.smallest);
        bytes.put_prefixed(&self.largest);
        let fields = [
            (HIDDEN_BYTES, not_0(self.hidden_bytes).map(number)),
            (PREFIXES, self.prefixes.map(number)),
            (IS_INGESTED, self.is_ingested.then(|| number(1))),
            (EXPIRIES, self.expiries.map(|expiries| expiries.encode())),
            (CONTENTS_BYTES, self.contents_bytes.map(number)),
        ];
        bytes.put_prefixed(&tagged(&fields));
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let mut meta = Self {
            id: fields.u64()?,
            size: fields.u64()?,
            index_offset: fields.u64()?,
            footer_checksum: fields.u32()?,
            random: TableRandom::decode(fields)?,
            filter: FilterMeta::decode(fields)?,
            entries: fields.u64()?,
            tombstones: fields.u64()?,
            keys: fields.u64()?,
            hidden_bytes: 0,
            prefixes: None,
            is_ingested: false,
            expiries: None,
            contents_bytes: None,
            min_seq: fields.u64()?,
            max_seq: fields.u64()?,
            smallest: fields.prefixed()?.to_vec(),
            largest: fields.prefixed()?.to_vec(),
        };
        let tagged = Fields::new(fields.prefixed()?);
        let [hidden_bytes, prefixes, is_ingested, expiries, contents_bytes] =
            read_tagged(tagged, [HIDDEN_BYTES, PREFIXES, IS_INGESTED, EXPIRIES, CONTENTS_BYTES])?;
        meta.is_ingested = match is_ingested.map(read_number) {
            None => false,
            Some(Some(1)) => true,
            Some(_) => return None,
        };
        meta.hidden_bytes = read_hidden_bytes(hidden_bytes)?;
        meta.prefixes = decoded(prefixes, read_number)?;
        meta.expiries = decoded(expiries, Expiries::decode)?;
        meta.contents_bytes = decoded(contents_bytes, read_number)?;
        Some(meta)
    }

    /// Whether both are of one table, whatever filter it has, and whatever prefixes are counted.
    pub(crate) fn is_of_same_table(&self, other: &Self) -> bool {
        let Self { filter, prefixes, .. } = *self;
        *self == Self { filter, prefixes, ..other.clone() }
    }

    pub(crate) fn overlaps_table(&self, other: &Self) -> bool {
        self.overlaps(&other.smallest, &other.largest)
    }

    pub(crate) fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.smallest.as_slice() <= largest && smallest <= self.largest.as_slice()
    }
}

impl TableMeta {
    /// The manifest's record of a table with this footer and these properties. The number of an ingested table is the
    /// least possible.
    pub(super) fn of(
        footer: &Footer,
        footer_bytes: &[u8],
        size: u64,
        filter: FilterMeta,
        properties: &Properties,
    ) -> Self {
        let at_least = properties.ingested_after.map(|after| after.saturating_add(1));
        Self {
            id: footer.table,
            size,
            index_offset: footer.index.offset,
            footer_checksum: Footer::checksum(footer_bytes),
            random: footer.random,
            filter,
            entries: properties.entries,
            tombstones: properties.tombstones,
            keys: properties.keys,
            hidden_bytes: properties.hidden_bytes,
            prefixes: None,
            is_ingested: footer.is_ingested,
            expiries: properties.expiries,
            contents_bytes: properties.contents_bytes,
            min_seq: at_least.unwrap_or(properties.min_seq),
            max_seq: at_least.unwrap_or(properties.max_seq),
            smallest: properties.smallest.clone(),
            largest: properties.largest.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::properties;
    use super::*;

    #[test]
    fn a_block_is_sound_only_at_its_place() {
        let mut block = b"contents".to_vec();
        seal_block(&mut block, BlockType::Data, 7, 4096);
        assert_eq!(check_block(&block, BlockType::Data, 7, 4096), Ok(&b"contents"[..]));
        for (block_type, id, offset) in
            [(BlockType::Index, 7, 4096), (BlockType::Data, 8, 4096), (BlockType::Data, 7, 0)]
        {
            assert!(check_block(&block, block_type, id, offset).is_err());
        }
        for bit in 0..block.len() * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check_block(&flipped, BlockType::Data, 7, 4096).is_err(), "bit {bit}");
        }
        for length in 0..block.len() {
            assert!(check_block(&block[..length], BlockType::Data, 7, 4096).is_err());
        }
    }

    #[test]
    fn a_data_block_is_compressed_only_in_a_table_that_says_so() {
        let mut block = b"stored".to_vec();
        seal_block(&mut block, BlockType::CompressedData, 7, 4096);
        assert_eq!(check_data_block(&block, true, 7, 4096), Ok((true, &b"stored"[..])));
        assert_eq!(check_data_block(&block, false, 7, 4096), Err("a block of type 6".into()));
        assert!(check_block(&block, BlockType::Data, 7, 4096).is_err());
        assert!(check_data_block(&block, true, 7, 4095).is_err());
        let mut index = b"stored".to_vec();
        seal_block(&mut index, BlockType::Index, 7, 4096);
        assert_eq!(check_data_block(&index, true, 7, 4096), Err("a block of type 3".into()));
    }

    #[test]
    fn a_footer_comes_back_and_every_flipped_bit_is_noticed() {
        let footer = Footer {
            filter: BlockHandle { offset: 64, length: 200 },
            index: BlockHandle { offset: 300, length: 40 },
            properties: BlockHandle { offset: 400, length: 50 },
            range_tombstones: BlockHandle::default(),
            table: 9,
            store: 77,
            random: TableRandom::new(3, 4),
            is_ingested: false,
            has_expiries: false,
            is_compressed: false,
        };
        let bytes = footer.encode(500);
        assert_eq!(bytes.len(), FOOTER_BYTES);
        assert_eq!(Footer::decode(&bytes, 500), Ok(footer));
        let stored = &bytes[FOOTER_BYTES - 12..FOOTER_BYTES - 8];
        assert_eq!(Footer::checksum(&bytes).to_le_bytes(), stored);
        assert!(Footer::decode(&bytes, 501).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::decode(&flipped, 500).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_version_or_feature_is_no_damage() {
        let none = BlockHandle::default();
        let footer = Footer {
            filter: none,
            index: none,
            properties: none,
            range_tombstones: none,
            table: 1,
            store: 1,
            random: TableRandom::new(3, 4),
            is_ingested: false,
            has_expiries: false,
            is_compressed: false,
        };
        let ingested = Footer { is_ingested: true, ..footer };
        let expiring = Footer { has_expiries: true, ..footer };
        let both = Footer { has_expiries: true, ..ingested };
        let compressed = Footer { is_compressed: true, ..footer };
        let all = Footer { is_compressed: true, ..both };
        for known in [ingested, expiring, both, compressed, all] {
            assert_eq!(Footer::decode(&known.encode(0), 0), Ok(known));
        }
        for (offset, value) in [(16, 1), (16, 3), (20, 8), (20, 9)] {
            let mut bytes = footer.encode(0);
            bytes[FOOTER_BYTES - offset] = value;
            let checksum = checksum_at(1, 0, &[&bytes[..FOOTER_BYTES - 12]]);
            bytes[FOOTER_BYTES - 12..FOOTER_BYTES - 8].copy_from_slice(&checksum.to_le_bytes());
            let decoded = Footer::decode(&bytes, 0);
            assert!(matches!(decoded, Err(FooterError::Unsupported(_))), "{decoded:?}");
        }
    }

    #[test]
    fn properties_that_contradict_themselves_are_none() {
        let sound = properties();
        let longest = vec![b'k'; MAX_KEY_BYTES];
        let too_long = vec![b'k'; MAX_KEY_BYTES + 1];
        let of = || sound.clone();
        for good in [
            of(),
            Properties { keys: 9, tombstones: 9, hidden_bytes: 0, min_seq: 20, ..of() },
            Properties { hidden_bytes: 150, ..of() },
            Properties { contents_bytes: Some(700), ..of() },
            Properties { smallest: longest.clone(), largest: longest.clone(), ..of() },
        ] {
            assert_eq!(Properties::decode(&good.encode()), Some(good));
        }
        for bad in [
            Properties { keys: 0, ..of() },
            Properties { keys: 10, ..of() },
            Properties { tombstones: 10, ..of() },
            Properties { keys: 9, ..of() },
            Properties { hidden_bytes: 151, ..of() },
            Properties { min_seq: 21, ..of() },
            Properties { smallest: b"l".to_vec(), ..of() },
            Properties { largest: too_long.clone(), ..of() },
            Properties { smallest: too_long, largest: b"l".to_vec(), ..of() },
        ] {
            assert_eq!(Properties::decode(&bad.encode()), None);
        }
    }

    #[test]
    fn hidden_bytes_are_written_once_and_only_if_there_are_some() {
        let of = |hidden_bytes| Properties { hidden_bytes, ..properties() };
        let without = Properties { entries: 9, keys: 9, ..of(0) }.encode();
        let field = [&[HIDDEN_BYTES, 8][..], &7_u64.to_le_bytes()].concat();
        assert_eq!(of(0).encode().len(), without.len());
        assert_eq!(of(7).encode(), [of(0).encode(), field.clone()].concat());
        let read = |fields: &[&[u8]]| {
            let bytes = fields.concat();
            let fields = read_tagged(Fields::new(&bytes), [HIDDEN_BYTES, 3])?;
            Some(fields.map(|field| field.map(<[u8]>::to_vec)))
        };
        let other = [9, 2, 1, 1];
        assert_eq!(read(&[]), Some([None, None]));
        assert_eq!(read(&[&other, &field, &other]), Some([Some(number(7)), None]));
        let both = Some([Some(number(7)), Some(number(5))]);
        assert_eq!(read(&[&[3, 8, 5], &[0; 7], &field]), both);
        assert_eq!(read(&[&field, &field]), None);
        assert_eq!(read(&[&field[..9]]), None);
        for wrong in [&[HIDDEN_BYTES, 2, 1, 1][..], &[&[HIDDEN_BYTES, 8][..], &[0; 8]].concat()] {
            assert_eq!(Properties::decode(&[&without, wrong].concat()), None);
        }
    }

    #[test]
    fn both_ends_belong_to_a_range() {
        let meta = TableMeta {
            id: 1,
            size: 1000,
            index_offset: 800,
            footer_checksum: 1,
            random: TableRandom::new(3, 4),
            filter: FilterMeta::default(),
            entries: 10,
            tombstones: 1,
            keys: 9,
            hidden_bytes: 0,
            prefixes: None,
            is_ingested: false,
            expiries: None,
            contents_bytes: None,
            min_seq: 1,
            max_seq: 10,
            smallest: b"d".to_vec(),
            largest: b"f".to_vec(),
        };
        for (key, covered) in
            [(b"c", false), (b"d", true), (b"e", true), (b"f", true), (b"g", false)]
        {
            assert_eq!(meta.overlaps(key, key), covered);
        }
        for (from, to, overlapping) in [
            (b"a", b"c", false),
            (b"a", b"d", true),
            (b"a", b"z", true),
            (b"e", b"e", true),
            (b"f", b"z", true),
            (b"g", b"z", false),
        ] {
            assert_eq!(meta.overlaps(from, to), overlapping);
        }
    }
}
