//! The keys of the store.

use std::ops::{Bound, Range, RangeBounds};

/// Every store of this package has it.
pub(crate) const FORMAT: &[u8] = b"mformat";
/// Written with the format version, and synced before anything else is written.
pub(crate) const IDENTITY: &[u8] = b"midentity";
/// There once an entry or a snapshot had a membership with this incarnation.
pub(crate) const MEMBER: &[u8] = b"mmember";
pub(crate) const VOTE: &[u8] = b"mvote";
pub(crate) const COMMITTED: &[u8] = b"mcommitted";
/// The last purged log id. Written before its entries are deleted.
pub(crate) const PURGED: &[u8] = b"mpurged";
pub(crate) const STATE: &[u8] = b"mstate";

const LOG: u8 = b'l';
const PAIRS: u8 = b's';
pub(crate) const NUMBERED_BYTES: usize = 9;

/// The most changes of a batch that deletes; few in unit tests, so that crashes come between batches.
pub(crate) const BATCH_CHANGES: usize = if cfg!(test) { 3 } else { 1_000 };
/// The bytes after which a batch is written, and those of a chunk of a snapshot; few in unit tests, too.
pub(crate) const BATCH_BYTES: usize = if cfg!(test) { 200 } else { 1 << 20 };

fn numbered(family: u8, number: u64) -> [u8; NUMBERED_BYTES] {
    let mut key = [family; NUMBERED_BYTES];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn log_key(index: u64) -> [u8; NUMBERED_BYTES] {
    numbered(LOG, index)
}

/// The keys of log entries, as bounds of a range.
pub(crate) fn log_keys(indexes: &impl RangeBounds<u64>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let key = |index: &u64| log_key(*index).to_vec();
    let start = match indexes.start_bound().map(key) {
        Bound::Unbounded => Bound::Included(vec![LOG]),
        start => start,
    };
    let end = match indexes.end_bound().map(key) {
        Bound::Unbounded => Bound::Excluded(vec![LOG + 1]),
        end => end,
    };
    (start, end)
}

/// The keys of all log entries, and those of all pairs.
pub(crate) fn all_numbered() -> [Range<Vec<u8>>; 2] {
    [LOG, PAIRS].map(|family| vec![family]..vec![family + 1])
}

pub(crate) fn pair_key(epoch: u64, key: &[u8]) -> Vec<u8> {
    [&numbered(PAIRS, epoch), key].concat()
}

/// The key behind all pairs of an epoch.
pub(crate) fn end_of_epoch(epoch: u64) -> Vec<u8> {
    epoch.checked_add(1).map_or(vec![PAIRS + 1], |next| pair_key(next, b""))
}

/// The epoch of the first pair whose epoch is at least this one.
pub(crate) fn first_epoch(db: &criba::Db, from: u64) -> criba::Result<Option<u64>> {
    let mut pairs = db.range(pair_key(from, b"")..vec![PAIRS + 1]);
    let number =
        |key: &[u8]| Some(u64::from_be_bytes(key.get(1..NUMBERED_BYTES)?.try_into().ok()?));
    Ok(pairs.next().transpose()?.and_then(|(key, _)| number(&key)))
}
