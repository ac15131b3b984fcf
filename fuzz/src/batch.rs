//! Batches as in a log, without their own checksum.

use std::time::{Duration, SystemTime};

use criba::parsers::{Entry, batch_bytes, batch_entries};
use criba::{Batch, EntryKind};

/// Parses bytes as a batch.
///
/// # Panics
/// If an accepted batch, written and read again, differs.
pub fn batch(bytes: &[u8]) -> bool {
    let Some(changes) = entries_of(bytes, 1) else { return false };
    let mut again = Batch::new();
    for (key, _, kind, value) in &changes {
        match kind {
            EntryKind::Put => again.put(key, value),
            EntryKind::Delete => again.delete(key),
            EntryKind::Expiring => {
                let (expiry, value) =
                    value.split_first_chunk().expect("what is read has an expiry");
                let expiry = u64::from_le_bytes(*expiry);
                if expiry >= 1 << 63 {
                    return true; // no writer makes such an entry
                }
                again.put_expiring(
                    key,
                    value,
                    SystemTime::UNIX_EPOCH + Duration::from_millis(expiry),
                )
            }
        };
    }
    let count = changes.len() as u64;
    assert_eq!(again.len() as u64, count);
    let written = batch_bytes(again).expect("what was read is not too long");
    assert!(written.len() <= bytes.len(), "no other spelling is shorter");
    assert_eq!(entries_of(&written, 1).expect("what was written is read"), changes);

    // The last change takes the last number that there is; one more, and there is none for it.
    if let Some(more) = count.checked_sub(1) {
        assert!(entries_of(bytes, u64::MAX - more).is_some());
        assert!(count < 2 || entries_of(bytes, u64::MAX - more + 1).is_none());
    }
    true
}

fn entries_of(bytes: &[u8], seq: u64) -> Option<Vec<Entry>> {
    let (changes, count) = batch_entries(bytes, seq)?;
    assert_eq!(count, changes.len() as u64);
    assert!((0..).zip(&changes).all(|(number, change)| change.1 == seq + number));
    Some(changes)
}
