//! Corrects the checksums of a file, as far as its own fields locate them.

use std::hash::Hasher as _;
use std::ops::Range;

use criba::parsers::HashKeyBytes;
use siphasher::sip::SipHasher13;

use crate::fields::{u32_at, u64_at};

/// A checksum of the format, bound to a salt or a file id, and an offset.
fn checksum_at(salt: u64, offset: u64, covered: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(covered);
    hasher.finalize()
}

/// Writes a checksum at `place`.
fn put(bytes: &mut [u8], place: usize, checksum: u32) -> Option<()> {
    let to = bytes.get_mut(place..place.checked_add(4)?)?;
    to.copy_from_slice(&checksum.to_le_bytes());
    Some(())
}

/// Writes the checksum of `covered`, in the file with this salt, at `place`.
fn sum(bytes: &mut [u8], salt: u64, covered: Range<usize>, place: usize) -> Option<()> {
    let checksum = checksum_at(salt, covered.start as u64, bytes.get(covered)?);
    put(bytes, place, checksum)
}

/// The place of the salt in the header of a log file, and of its copy in a manifest.
const SALT_AT: usize = 40;
const SECOND_SALT_AT: usize = 2048;

/// The header and all frames of a write-ahead log of the store with this hash key.
pub(crate) fn wal(bytes: &mut [u8], number: u64, key: &HashKeyBytes) {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(b"criba: the log, ");
    hasher.write(&number.to_le_bytes());
    let salt = hasher.finish();
    if let Some(place) = bytes.get_mut(SALT_AT..SALT_AT + 8) {
        place.copy_from_slice(&salt.to_le_bytes());
    }
    let _ = header(bytes, &[SALT_AT]);
    frames(bytes, 52, salt);
}

/// The header and all frames of a manifest.
pub(crate) fn manifest(bytes: &mut [u8]) {
    let _ = header(bytes, &[SALT_AT, SECOND_SALT_AT]);
    if let Some(salt) = u64_at(bytes, SALT_AT) {
        frames(bytes, 4096, salt);
    }
}

fn header(bytes: &mut [u8], salts: &[usize]) -> Option<()> {
    let id = u64_at(bytes, 16)?;
    sum(bytes, id, 0..SALT_AT - 4, SALT_AT - 4)?;
    salts.iter().try_for_each(|&at| sum(bytes, id, at..at + 8, at + 8))
}

fn frames(bytes: &mut [u8], first: usize, salt: u64) {
    const BLOCK: usize = 32 << 10;
    const HEADER: usize = 27;
    let mut at = first;
    loop {
        let left = BLOCK - at % BLOCK;
        if left < HEADER + 8 {
            at += left;
        }
        let Some(header) = bytes.get(at..at + HEADER) else { return };
        if header.iter().all(|&byte| byte == 0) {
            return;
        }
        let end = at + HEADER + usize::from(u16::from_le_bytes([header[4], header[5]]));
        let Some(covered) = bytes.get(at + 4..end) else { return };
        let checksum = checksum_at(salt, at as u64, covered);
        let _ = put(bytes, at, checksum);
        at = end;
    }
}

/// `CURRENT`: the checksum after the first two lines.
pub(crate) fn current(bytes: &mut Vec<u8>) {
    let mut ends = (0..bytes.len()).filter(|&at| bytes[at] == b'\n');
    let Some(second) = ends.nth(1) else { return };
    let checksum = crc32fast::hash(&bytes[..=second]);
    bytes.truncate(second + 1);
    bytes.extend_from_slice(format!("{checksum:08x}\n").as_bytes());
}

/// The footer of a table and all blocks that it and the index point to.
pub(crate) fn table(bytes: &mut [u8]) {
    let Some(footer) = bytes.len().checked_sub(128) else { return };
    let Some(id) = u64_at(bytes, footer + 64) else { return };
    let _ = sum(bytes, id, footer..footer + 116, footer + 116);
    let Some(salt) = u64_at(bytes, footer + 80) else { return };
    let _ = data_blocks(bytes, salt, footer);
    for handle in [0, 16, 32] {
        let _ = block(bytes, salt, footer + handle);
    }
}

/// The block to which a handle points.
fn block(bytes: &mut [u8], salt: u64, handle: usize) -> Option<()> {
    let (offset, length) = (u64_at(bytes, handle)? as usize, u64_at(bytes, handle + 8)? as usize);
    let end = offset.checked_add(length)?.checked_add(1)?;
    sum(bytes, salt, offset..end, end)
}

fn data_blocks(bytes: &mut [u8], salt: u64, footer: usize) -> Option<()> {
    let start = u64_at(bytes, footer + 16)? as usize;
    let end = start.checked_add(u64_at(bytes, footer + 24)? as usize)?;
    let index = bytes.get(start..end)?.to_vec();
    let tail = index.len().checked_sub(16)?;
    let (cuts, count) = (u32_at(&index, tail)? as usize, u32_at(&index, tail + 12)? as usize);
    let entries = tail.checked_sub(cuts.checked_mul(12)?)?.checked_sub(count.checked_mul(4)?)?;
    let mut starts: Vec<usize> = (0..count)
        .filter_map(|number| u64_at(&index, u32_at(&index, entries + 4 * number)? as usize))
        .map(|start| start as usize)
        .collect();
    starts.push(u64_at(&index, tail + 4)? as usize);
    for block in starts.windows(2) {
        if let Some(place) = block[1].checked_sub(4)
            && block[0] < place
        {
            let _ = sum(bytes, salt, block[0]..place, place);
        }
    }
    Some(())
}

/// A filter that stands alone.
pub(crate) fn standalone(bytes: &mut [u8]) {
    let (Some(front), Some(rest)) = (bytes.get(..12), bytes.get(16..)) else { return };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(front);
    hasher.update(rest);
    let _ = put(bytes, 12, hasher.finalize());
}
