//! Estimates the distribution of a table's keys from its resident index, without I/O.

use crate::sstable::Table;

/// The estimated number of keys in `smallest ..= largest`, as if all blocks held equally many. A block at a
/// bound counts half.
pub(crate) fn keys_within(table: &Table, smallest: &[u8], largest: &[u8]) -> f64 {
    let (meta, index) = (table.meta(), table.index());
    if largest < meta.smallest.as_slice() || meta.largest.as_slice() < smallest {
        return 0.0;
    }
    let blocks = index.len() as f64;
    let at = |key: &[u8]| table.block_for(key) as f64 + 0.5;
    let from = if smallest <= meta.smallest.as_slice() { 0.0 } else { at(smallest) };
    let to = if meta.largest.as_slice() <= largest { blocks } else { at(largest) };
    meta.keys as f64 * (to - from).max(0.0) / blocks
}
