//! Bulk ingest of sorted pairs.

use super::Db;
use crate::error::Error;
use crate::expiry::Expiry;

impl Db {
    /// Sets the keys of sorted pairs at one moment, all or none, without the log and the memtable. Durable when it
    /// returns the number of pairs; a pair is newer than all that was committed before the moment.
    ///
    /// The keys must be strictly ascending. Keys that are not among the pairs keep their values. Each byte is written
    /// once, to tables on the lowest level above all tables with keys in their ranges: they stay there until other
    /// tables come, and a lookup in their ranges probes one filter more. Tables of L0 and level 1 that are in the way
    /// are compacted first, on this thread. Filters are planned for the number of pairs that `size_hint` promises, or
    /// that came so far.
    ///
    /// Each ingest makes at least one table, which only a compaction merges with others: rather few large ones than many
    /// small ones.
    ///
    /// The store can be read and written meanwhile, also by the iterator. Writers wait for the moment: for the flush
    /// of about a mebibyte of entries, and for five syncs. Memory: about 20 bytes for each key of
    /// the table that is being written, and the index and filter of each table, as for a store with these keys.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// let numbers = (0..100_000_u32).map(|number| criba::Result::Ok((number.to_be_bytes(), "")));
    /// assert_eq!(db.ingest(numbers)?, 100_000);
    /// assert!(db.contains(7_u32.to_be_bytes())?);
    /// # Ok::<(), criba::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of `pairs`; [`Error::Unsorted`]; [`Error::TooLong`]; as writes and flushes. Nothing is changed then,
    /// nor after a panic of `pairs`; files that a crash leaves are removed by the next opening. After
    /// [`Error::Poisoned`], the next opening decides: all pairs, or none.
    pub fn ingest<K, V, E>(
        &self,
        pairs: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<u64, E>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
        E: From<Error>,
    {
        self.inner()?
            .ingest(pairs.into_iter().map(|pair| pair.map(|(key, value)| (key, value, None))))
    }

    /// As [`ingest`](Self::ingest), of keys with an expiry of their own: see [`Db::put_with_expiry`]. (A
    /// [default](crate::Options::default_ttl) counts from when the iterator yields a pair.)
    ///
    /// # Errors
    /// As [`ingest`](Self::ingest).
    pub fn ingest_expiring<K, V, E>(
        &self,
        items: impl IntoIterator<Item = Result<(K, V, Expiry), E>>,
    ) -> Result<u64, E>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
        E: From<Error>,
    {
        self.inner()?.ingest(
            items
                .into_iter()
                .map(|item| item.map(|(key, value, expiry)| (key, value, Some(expiry)))),
        )
    }
}
