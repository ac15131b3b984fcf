//! Corrects the checksums of a file, as far as its own fields locate them.

use std::ops::Range;

use crate::fields::{u32_at, u64_at};

/// A checksum of the format, bound to a file id and an offset.
fn checksum_at(id: u64, offset: u64, covered: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
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

/// Writes the checksum of `covered`, in the file with this id, at `place`.
fn sum(bytes: &mut [u8], id: u64, covered: Range<usize>, place: usize) -> Option<()> {
    let checksum = checksum_at(id, covered.start as u64, bytes.get(covered)?);
    put(bytes, place, checksum)
}

/// The header and all frames of a log file.
pub(crate) fn log(bytes: &mut [u8], number: u64) {
    const BLOCK: usize = 32 << 10;
    const HEADER: usize = 27;
    if let Some(id) = u64_at(bytes, 16)
        && let Some(covered) = bytes.get(..36)
    {
        let checksum = checksum_at(id, 0, covered);
        let _ = put(bytes, 36, checksum);
    }
    let mut at = 40;
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
        let checksum = checksum_at(number, at as u64, covered);
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
    let _ = data_blocks(bytes, id, footer);
    for handle in [0, 16, 32] {
        let _ = block(bytes, id, footer + handle);
    }
}

/// The block to which a handle points.
fn block(bytes: &mut [u8], id: u64, handle: usize) -> Option<()> {
    let (offset, length) = (u64_at(bytes, handle)? as usize, u64_at(bytes, handle + 8)? as usize);
    let end = offset.checked_add(length)?.checked_add(1)?;
    sum(bytes, id, offset..end, end)
}

fn data_blocks(bytes: &mut [u8], id: u64, footer: usize) -> Option<()> {
    let start = u64_at(bytes, footer + 16)? as usize;
    let end = start.checked_add(u64_at(bytes, footer + 24)? as usize)?;
    let index = bytes.get(start..end)?.to_vec();
    let tail = index.len().checked_sub(12)?;
    let count = u32_at(&index, tail + 8)? as usize;
    let entries = tail.checked_sub(count.checked_mul(4)?)?;
    let mut starts: Vec<usize> = (0..count)
        .filter_map(|number| u64_at(&index, u32_at(&index, entries + 4 * number)? as usize))
        .map(|start| start as usize)
        .collect();
    starts.push(u64_at(&index, tail)? as usize);
    for block in starts.windows(2) {
        if let Some(place) = block[1].checked_sub(4)
            && block[0] < place
        {
            let _ = sum(bytes, id, block[0]..place, place);
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
