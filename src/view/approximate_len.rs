//! Estimates the number of keys in a range from what is in memory.

use std::ops::Bound;

use super::ReadView;
use crate::version::keys_within;

impl ReadView {
    pub(crate) fn approximate_len(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> u64 {
        let of_memtables = self.memtables().map(|memtable| memtable.len_within(bounds));
        let of_tables = self.version.tables().map(|(_, live)| {
            let (table, meta) = (&live.table, live.table.meta());
            keys_within(table, key(bounds.0, &meta.smallest), key(bounds.1, &meta.largest))
        });
        (of_memtables.sum::<f64>() + of_tables.sum::<f64>()).round() as u64
    }
}

/// Whether the key of a bound lies within it does not matter: a block at a bound counts half.
fn key<'a>(bound: Bound<&'a [u8]>, unbounded: &'a [u8]) -> &'a [u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => unbounded,
    }
}
