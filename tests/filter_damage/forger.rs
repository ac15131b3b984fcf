//! Corrects checksums after a change: those of the blocks, of the footer and of the manifest.

use crate::store::filter_block;

/// The checksum of the format: bound to a salt, or a file number, and an offset.
pub(crate) fn checksum(salt: u64, offset: u64, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The salt of a table's blocks: the first of the random bytes in its footer.
pub(crate) fn salt(table: &[u8]) -> u64 {
    u64_at(table, table.len() - 48)
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// The contents of a table's filter block.
pub(crate) fn filter_of(table: &[u8]) -> &[u8] {
    let block = filter_block(table);
    &table[block.start..block.end - 5]
}

/// A table with another filter, of any length but 0: index, properties and footer move, and every checksum
/// is right.
pub(crate) fn with_filter(table: &[u8], filter: &[u8]) -> Vec<u8> {
    let mut footer = table[table.len() - 128..].to_vec();
    let id = u64_at(&footer, 64);
    let filter_offset = u64_at(&footer, 0);
    let mut bytes = table[..filter_offset as usize].to_vec();
    for (handle, contents) in [
        (0, filter),
        (16, block(table, u64_at(&footer, 16), u64_at(&footer, 24))),
        (32, block(table, u64_at(&footer, 32), u64_at(&footer, 40))),
    ] {
        let offset = bytes.len();
        bytes.extend_from_slice(contents);
        bytes.push([2, 3, 4][handle / 16]);
        let sum = checksum(salt(table), offset as u64, &bytes[offset..]);
        bytes.extend_from_slice(&sum);
        put_u64(&mut footer, handle, offset as u64);
        put_u64(&mut footer, handle + 8, contents.len() as u64);
    }
    let sum = checksum(id, bytes.len() as u64, &footer[..116]);
    footer[116..120].copy_from_slice(&sum);
    bytes.extend_from_slice(&footer);
    bytes
}

fn block(table: &[u8], offset: u64, length: u64) -> &[u8] {
    &table[offset as usize..(offset + length) as usize]
}

/// A manifest with the checksums of this table in its records. Keys are shorter than 128 bytes, and no
/// record is split.
pub(crate) fn manifest_naming(manifest: &[u8], table: &[u8]) -> Vec<u8> {
    const HEADER: usize = 27;
    let mut bytes = manifest.to_vec();
    let footer = &table[table.len() - 128..];
    let id = u64_at(footer, 64);
    let filter = filter_block(table);
    let salt = u64_at(&bytes, 40);
    let mut named = 0;
    let mut at = 4096;
    while at + HEADER <= bytes.len() && bytes[at + 6] == 1 {
        let length = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        let end = at + HEADER + length;
        let mut field = at + HEADER;
        while field < end {
            field += match bytes[field] {
                1 => {
                    let record = field + 2;
                    if u64_at(&bytes, record) == id {
                        named += 1;
                        put_u64(&mut bytes, record + 8, table.len() as u64);
                        put_u64(&mut bytes, record + 16, u64_at(footer, 16));
                        bytes[record + 24..record + 28].copy_from_slice(&footer[116..120]);
                        assert_eq!(u64_at(&bytes, record + 44), 0, "a filter within its table");
                        put_u64(&mut bytes, record + 52, u64_at(footer, 8));
                        let sum = &table[filter.end - 4..filter.end];
                        bytes[record + 60..record + 64].copy_from_slice(sum);
                    }
                    let smallest = record + 64 + 5 * 8;
                    let largest = smallest + 1 + usize::from(bytes[smallest]);
                    let tagged = largest + 1 + usize::from(bytes[largest]);
                    tagged + 1 + usize::from(bytes[tagged]) - field
                }
                2 => 10,
                3..=5 => 9,
                6 => 17,
                8 => 29,
                other => panic!("a field {other} in the manifest"),
            };
        }
        let sum = checksum(salt, at as u64, &bytes[at + 4..end]);
        bytes[at..at + 4].copy_from_slice(&sum);
        at = end;
    }
    assert!(named > 0, "the manifest does not name table {id}");
    bytes
}
