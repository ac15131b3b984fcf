#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::fmt;

use crate::codec::{Fields, PutFields};
use crate::error::{Error, Result};
use crate::key::{self, EntryKind, EntryRef, Seq};

const MAX_BATCH_BYTES: u64 = u32::MAX as u64;

/// The greatest number of bytes of an entry's kind and two lengths.
const MAX_OVERHEAD: usize = 1 + 3 + 5;

/// Changes that are written together. Readers see all of them or none, also after a crash. If a batch changes
/// a key twice, the second change counts. A batch is in memory: its calls wait for nothing.
///
/// If a key or value is too long, the write of the whole batch fails with [`Error::TooLong`]; so does a batch
/// of 4 GiB.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = criba::Db::open(dir.path().join("store"))?;
/// let mut batch = criba::Batch::new();
/// batch.put("from", "90").put("to", "110").delete("pending");
/// db.write(batch)?;
///
/// db.write(criba::Batch::new().put("a", "1").delete("b"))?;
/// db.write(criba::Batch::from_iter([("c", "3"), ("d", "4")]))?;
/// # Ok::<(), criba::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Batch {
    /// The encoded entries; see format.md, "Write-ahead log".
    ops: Vec<u8>,
    count: u64,
    /// The error of the first change that is too long.
    refused: Option<Error>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("changes", &self.count)
            .field("bytes", &self.ops.len())
            .field("refused", &self.refused)
            .finish()
    }
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key's value.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(EntryKind::Put, key.as_ref(), value.as_ref())
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(EntryKind::Delete, key.as_ref(), &[])
    }

    fn push(&mut self, kind: EntryKind, key: &[u8], value: &[u8]) -> &mut Self {
        self.count += 1;
        if let Err(error) = key::check_lengths(key, value) {
            self.refused.get_or_insert(error);
            return self;
        }
        encode_entry(&mut self.ops, kind, key, value);
        self
    }

    /// The number of changes. Includes changes that are too long.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no changes, as counted by [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes that the changes take in the log. Changes that are too long take none.
    pub fn bytes(&self) -> usize {
        self.ops.len()
    }

    pub(crate) fn into_parts(self) -> Result<(Vec<u8>, u64)> {
        let length = self.ops.len() as u64;
        match self.refused {
            Some(error) => Err(error),
            None if length > MAX_BATCH_BYTES => {
                Err(Error::TooLong { what: "batch", length, limit: MAX_BATCH_BYTES })
            }
            None => Ok((self.ops, self.count)),
        }
    }
}

pub(crate) fn encode_entry(ops: &mut Vec<u8>, kind: EntryKind, key: &[u8], value: &[u8]) {
    ops.reserve(MAX_OVERHEAD + key.len() + value.len());
    ops.put_u8(kind as u8);
    ops.put_prefixed(key);
    if kind == EntryKind::Put {
        ops.put_prefixed(value);
    }
}

/// Takes the changes, and leaves an empty batch: what [`put`](Batch::put) returns can be written.
impl From<&mut Batch> for Batch {
    fn from(batch: &mut Batch) -> Self {
        std::mem::take(batch)
    }
}

/// Sets the values of keys.
impl<K: AsRef<[u8]>, V: AsRef<[u8]>> Extend<(K, V)> for Batch {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        for (key, value) in pairs {
            self.put(key, value);
        }
    }
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(K, V)> for Batch {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut batch = Self::new();
        batch.extend(pairs);
        batch
    }
}

/// Passes each entry of an encoded batch to `apply`. The first entry has the sequence number `seq`. Returns
/// the number of entries; `None` if the bytes are no batch.
pub(crate) fn for_each_entry<'a>(
    ops: &'a [u8],
    seq: Seq,
    mut apply: impl FnMut(EntryRef<'a>),
) -> Option<u64> {
    let mut fields = Fields::new(ops);
    let mut count = 0;
    while !fields.is_empty() {
        let kind = EntryKind::from_byte(fields.u8()?)?;
        let key = fields.prefixed()?;
        let value = if kind == EntryKind::Put { fields.prefixed()? } else { &[] };
        key::check_lengths(key, value).ok()?;
        apply(EntryRef { key, seq: seq.checked_add(count)?, kind, value });
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

    #[test]
    fn entries_are_decoded_with_consecutive_sequence_numbers() {
        let mut batch = Batch::new();
        batch.put("a", "1").delete("b").put("", vec![7; 300]);
        assert_eq!(batch.len(), 3);
        let (ops, count) = batch.into_parts().expect("nothing too long");
        let mut seen = Vec::new();
        let applied = for_each_entry(&ops, 10, |e| {
            seen.push((e.seq, e.kind, e.key.to_vec(), e.value.len()));
        });
        assert_eq!(applied, Some(count));
        assert_eq!(
            seen,
            [
                (10, EntryKind::Put, b"a".to_vec(), 1),
                (11, EntryKind::Delete, b"b".to_vec(), 0),
                (12, EntryKind::Put, vec![], 300),
            ]
        );
        let starts = [5, 8]; // a cut at the end of an entry leaves a shorter batch
        for length in 1..ops.len() {
            let cut = for_each_entry(&ops[..length], 10, |_| {});
            assert_eq!(cut.is_some(), starts.contains(&length), "cut to {length}");
        }
    }

    #[test]
    fn a_key_or_value_that_is_too_long_refuses_the_batch() {
        let mut batch = Batch::new();
        batch.put(vec![0; MAX_KEY_BYTES], "longest key");
        assert!(batch.clone().into_parts().is_ok());
        batch.put(vec![0; MAX_KEY_BYTES + 1], "").put("fine", "fine");
        assert!(matches!(
            batch.into_parts(),
            Err(Error::TooLong { what: "key", length: 65_536, limit: 65_535 })
        ));
        let mut batch = Batch::new();
        batch.put("k", vec![0; MAX_VALUE_BYTES + 1]);
        assert!(matches!(batch.into_parts(), Err(Error::TooLong { what: "value", .. })));
    }

    #[test]
    fn a_batch_that_refused_a_change_is_not_empty() {
        let mut batch = Batch::new();
        batch.put(vec![0; MAX_KEY_BYTES + 1], "");
        assert_eq!((batch.len(), batch.is_empty()), (1, false));
        batch.put("fine", "").delete(vec![0; MAX_KEY_BYTES + 1]);
        assert_eq!((batch.len(), batch.is_empty()), (3, false));
        assert!(matches!(batch.into_parts(), Err(Error::TooLong { what: "key", .. })));
        assert!(Batch::new().is_empty());
    }
}
