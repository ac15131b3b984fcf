//! Batches, as the log keeps them. No checksum of their own.

use crate::batch::{Batch, for_each_change};
use crate::key::{EntryKind, EntryRef, Seq};

/// Takes bytes for a batch.
///
/// # Panics
/// If what is accepted, written again and read again is not the same.
pub fn batch(bytes: &[u8]) -> bool {
    let Some(changes) = changes_of(bytes, 1) else { return false };
    let mut again = Batch::new();
    for change in &changes {
        match change.kind {
            EntryKind::Put => again.put(change.key, change.value),
            EntryKind::Delete => again.delete(change.key),
        };
    }
    let (written, count) = again.into_parts().expect("what was read is not too long");
    assert_eq!(count, changes.len() as u64);
    assert!(written.len() <= bytes.len(), "no other spelling is shorter");
    let read = changes_of(&written, 1).expect("what was written is read");
    assert!(changes.iter().map(parts).eq(read.iter().map(parts)));

    // The last change takes the last number that there is; one more, and there is none for it.
    if let Some(more) = count.checked_sub(1) {
        assert!(changes_of(bytes, Seq::MAX - more).is_some());
        assert!(count < 2 || changes_of(bytes, Seq::MAX - more + 1).is_none());
    }
    true
}

fn changes_of(bytes: &[u8], seq: Seq) -> Option<Vec<EntryRef<'_>>> {
    let mut changes = Vec::new();
    let count = for_each_change(bytes, seq, |change| changes.push(change))?;
    assert_eq!(count, changes.len() as u64);
    assert!((0..).zip(&changes).all(|(number, change)| change.seq == seq + number));
    Some(changes)
}

fn parts<'a>(change: &EntryRef<'a>) -> (Seq, EntryKind, &'a [u8], &'a [u8]) {
    (change.seq, change.kind, change.key, change.value)
}
