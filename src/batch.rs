#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::fmt;

use crate::codec::{Fields, PutFields};
use crate::error::{Error, Result};
use crate::expiry::{Expiry, Millis, stored, written_at};
use crate::key::{self, EXPIRY_BYTES, EntryKind, EntryRef, MAX_KEY_BYTES, Seq};

const MAX_BATCH_BYTES: u64 = u32::MAX as u64;

/// The greatest number of bytes of an entry's kind and two lengths.
const MAX_OVERHEAD: usize = 1 + 3 + 5;

/// Changes that are written together. Readers see all of them or none, also after a crash. If a batch changes
/// a key twice, the second change counts. A batch is in memory: its calls wait for nothing.
///
/// A batch can have conditions: see [`require`](Self::require).
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
    /// Encoded entries: a put for a key that must have this value, a tombstone for one that must be absent.
    requirements: Vec<u8>,
    /// Whether an entry has an expiry of its own; [`Expiry::Never`] is one.
    has_expiries: bool,
    /// The error of the first change or condition that is too long.
    refused: Option<Error>,
}

/// A change of a [`Batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<'a> {
    /// Sets the value of a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Sets the value of a key, with an expiry of its own.
    PutExpiring {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
        /// When it expires.
        expiry: Expiry,
    },
    /// Deletes a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

/// A batch, encoded.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) ops: Vec<u8>,
    pub(crate) entries: u64,
    pub(crate) requirements: Vec<u8>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("changes", &self.count)
            .field("bytes", &self.ops.len())
            .field("conditions", &for_each_entry(&self.requirements, 0, |_| ()).unwrap_or(0))
            .field("refused", &self.refused)
            .finish_non_exhaustive()
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

    /// Sets a key's value, which expires at a time of its own, or never, whatever
    /// [`Options::default_ttl`](crate::Options::default_ttl) is. See [`Db::put_with_expiry`](crate::Db::put_with_expiry).
    pub fn put_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> &mut Self {
        let value = stored(expiry.into().in_batch(), value.as_ref());
        self.push(EntryKind::Expiring, key.as_ref(), &value)
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(EntryKind::Delete, key.as_ref(), &[])
    }

    /// Requires that a key has this value. If a condition does not hold when the batch is written, nothing is
    /// written, and the error is [`Error::ConditionFailed`] with the key. Conditions are about the store
    /// before the changes of the batch. Of a batch without changes, they are only checked.
    ///
    /// Cost: one lookup for each condition, as by [`get_many`](crate::Db::get_many), and as many again as
    /// memtables are flushed meanwhile. No writer waits for it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// use criba::{Batch, Error};
    ///
    /// db.put("owner/cart", "ada")?;
    /// let mut give = Batch::new();
    /// give.require("owner/cart", "ada").require_absent("locked/cart").put("owner/cart", "bea");
    /// db.write(give.clone())?;
    /// assert!(matches!(db.write(give), Err(Error::ConditionFailed { key }) if key == "owner/cart"));
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn require(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.encode(true, EntryKind::Put, key.as_ref(), value.as_ref())
    }

    /// Requires that a key is absent: see [`require`](Self::require).
    pub fn require_absent(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.encode(true, EntryKind::Delete, key.as_ref(), &[])
    }

    pub(crate) fn push(&mut self, kind: EntryKind, key: &[u8], value: &[u8]) -> &mut Self {
        self.count += 1;
        self.has_expiries |= kind == EntryKind::Expiring;
        self.encode(false, kind, key, value)
    }

    fn encode(&mut self, required: bool, kind: EntryKind, key: &[u8], value: &[u8]) -> &mut Self {
        let length = value.len() - if kind == EntryKind::Expiring { EXPIRY_BYTES } else { 0 };
        match key::check_lengths(key.len(), length) {
            Err(error) => _ = self.refused.get_or_insert(error),
            Ok(()) if required => encode_entry(&mut self.requirements, kind, key, value),
            Ok(()) => encode_entry(&mut self.ops, kind, key, value),
        }
        self
    }

    /// The changes, in their order, without conditions, and without changes that are too long.
    ///
    /// ```
    /// use criba::{Batch, Change};
    ///
    /// for change in Batch::from_iter([("a", "1")]).iter() {
    ///     match change {
    ///         Change::Put { key, value } => println!("{key:?} = {value:?}"),
    ///         Change::Delete { key } => println!("no {key:?}"),
    ///         _ => {}
    ///     }
    /// }
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = Change<'_>> {
        entries(&self.ops).map(|entry| match (entry.key, entry.put()) {
            (key, None) => Change::Delete { key },
            (key, Some((None, value))) => Change::Put { key, value },
            (key, Some((Some(expiry), value))) => {
                Change::PutExpiring { key, value, expiry: Expiry::of_batch(expiry) }
            }
        })
    }

    /// The number of changes, without conditions. Includes changes that are too long.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no changes, as counted by [`len`](Self::len). There may be conditions.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes that the changes take in the log. Changes that are too long take none.
    pub fn bytes(&self) -> usize {
        self.ops.len()
    }

    pub(crate) fn into_encoded(self) -> Result<Encoded> {
        let length = (self.ops.len() + self.requirements.len()) as u64;
        match self.refused {
            Some(error) => Err(error),
            None if length > MAX_BATCH_BYTES => {
                Err(Error::TooLong { what: "batch", length, limit: MAX_BATCH_BYTES })
            }
            None => {
                Ok(Encoded { ops: self.ops, entries: self.count, requirements: self.requirements })
            }
        }
    }

    #[inline]
    pub(crate) fn has_expiries(&self) -> bool {
        self.has_expiries
    }

    /// Fails with the error of the first change or condition that is too long.
    pub(crate) fn check(&self) -> Result<()> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// Gives each entry the expiry that a write at the time `now` stores: its own, or the `default`. Returns whether an
    /// entry expires.
    pub(crate) fn set_expiries(&mut self, now: Millis, default: Option<Millis>) -> bool {
        let (mut ops, mut expires) = (Vec::with_capacity(self.ops.len()), false);
        for entry in entries(&self.ops) {
            let Some((own, value)) = entry.put() else {
                encode_entry(&mut ops, EntryKind::Delete, entry.key, &[]);
                continue;
            };
            match own.or(default).and_then(|expiry| written_at(now, expiry)) {
                None => encode_entry(&mut ops, EntryKind::Put, entry.key, value),
                Some(expiry) => {
                    encode_entry(&mut ops, EntryKind::Expiring, entry.key, &stored(expiry, value));
                    expires = true;
                }
            }
        }
        self.ops = ops;
        expires
    }
}

pub(crate) fn encode_entry(ops: &mut Vec<u8>, kind: EntryKind, key: &[u8], value: &[u8]) {
    ops.reserve(MAX_OVERHEAD + key.len() + value.len());
    ops.put_u8(kind as u8);
    ops.put_prefixed(key);
    if kind != EntryKind::Delete {
        ops.put_prefixed(value);
    }
}

/// The encoded entries, and their number.
pub(crate) fn encode(entries: &[EntryRef<'_>]) -> (Vec<u8>, u64) {
    let mut ops = Vec::new();
    for EntryRef { kind, key, value, .. } in entries {
        encode_entry(&mut ops, *kind, key, value);
    }
    (ops, entries.len() as u64)
}

/// Takes the changes and conditions, and leaves an empty batch: what [`put`](Batch::put) returns can be written.
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
#[inline]
pub(crate) fn for_each_entry<'a>(
    ops: &'a [u8],
    seq: Seq,
    mut apply: impl FnMut(EntryRef<'a>),
) -> Option<u64> {
    let mut fields = Fields::new(ops);
    let mut count = 0;
    while !fields.is_empty() {
        apply(next_entry(&mut fields, seq.checked_add(count)?)?);
        count += 1;
    }
    Some(count)
}

/// The entries of an encoded batch, without sequence numbers, up to the first bytes that are none.
pub(crate) fn entries(ops: &[u8]) -> impl Iterator<Item = EntryRef<'_>> {
    let mut fields = Fields::new(ops);
    std::iter::from_fn(move || next_entry(&mut fields, 0))
}

#[inline]
fn next_entry<'a>(fields: &mut Fields<'a>, seq: Seq) -> Option<EntryRef<'a>> {
    let byte = fields.u8()?;
    let key = fields.prefixed()?;
    let value = if byte == EntryKind::Delete as u8 { &[] } else { fields.prefixed()? };
    let kind = EntryKind::of_entry(byte, value.len())?;
    if key.len() > MAX_KEY_BYTES {
        return None;
    }
    Some(EntryRef { key, seq, kind, value })
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
        let Encoded { ops, entries, .. } = batch.into_encoded().expect("nothing too long");
        let mut seen = Vec::new();
        let applied = for_each_entry(&ops, 10, |e| {
            seen.push((e.seq, e.kind, e.key.to_vec(), e.value.len()));
        });
        assert_eq!(applied, Some(entries));
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
        assert!(batch.clone().into_encoded().is_ok());
        batch.put(vec![0; MAX_KEY_BYTES + 1], "").put("fine", "fine");
        assert!(matches!(
            batch.into_encoded(),
            Err(Error::TooLong { what: "key", length: 65_536, limit: 65_535 })
        ));
        let mut batch = Batch::new();
        batch.put("k", vec![0; MAX_VALUE_BYTES + 1]);
        assert!(matches!(batch.into_encoded(), Err(Error::TooLong { what: "value", .. })));
    }

    #[test]
    fn a_batch_that_refused_a_change_is_not_empty() {
        let mut batch = Batch::new();
        batch.put(vec![0; MAX_KEY_BYTES + 1], "");
        assert_eq!((batch.len(), batch.is_empty()), (1, false));
        batch.put("fine", "").delete(vec![0; MAX_KEY_BYTES + 1]);
        assert_eq!((batch.len(), batch.is_empty()), (3, false));
        assert!(matches!(batch.into_encoded(), Err(Error::TooLong { what: "key", .. })));
        assert!(Batch::new().is_empty());
    }
}
