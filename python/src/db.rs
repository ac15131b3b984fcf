//! The store, open for writing.

use std::collections::VecDeque;
use std::path::PathBuf;

use criba::{Batch, Durability, Error};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator};

use crate::errors::{Failure, Result};
use crate::input::{self, Input};
use crate::read_only::stats;
use crate::reader::Reader;
use crate::snapshot::Snapshot;
use crate::source::Source;
use crate::times::expiry;
use crate::transaction;

/// The bytes of pairs after which put_many writes a batch, and ingest takes the GIL again.
const CHUNK_BYTES: usize = 64 << 10;

/// An open store, from criba.open. All threads of the process can use it. A read sees the store as it was when the read
/// began. An acknowledged write survives a crash of the process; with synced=True, a power failure, for a wait of one
/// sync of the disk.
///
/// In a process forked from this one each call that reads or writes raises ForkedError: with multiprocessing, use the
/// start method "spawn", and open the store in the child.
#[pyclass(extends = Reader, frozen, module = "criba")]
pub(crate) struct Db;

fn open(this: &PyRef<'_, Db>) -> criba::Result<criba::Db> {
    match this.as_super().source()? {
        Source::Db(db) => Ok(db),
        Source::ReadOnly(_) | Source::Snapshot(_) => Err(Error::Closed),
    }
}

fn durability(synced: bool) -> Durability {
    if synced { Durability::Synced } else { Durability::Buffered }
}

/// A batch that sets a key.
fn put(key: &Input, value: &Input, ttl: Option<f64>, expires_at: Option<f64>) -> PyResult<Batch> {
    let mut batch = Batch::new();
    match expiry(ttl, expires_at)? {
        Some(expiry) => batch.put_expiring(key, value, expiry),
        None => batch.put(key, value),
    };
    Ok(batch)
}

#[pymethods]
impl Db {
    /// Sets the value of a key. No disk read. The key expires `ttl` seconds after the write, or at the time `expires_at`,
    /// in seconds since 1970; without both it has the default of the store, and with math.inf it never expires.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None, synced=false))]
    fn put(
        this: PyRef<'_, Self>,
        key: Input,
        value: Input,
        ttl: Option<f64>,
        expires_at: Option<f64>,
        synced: bool,
    ) -> Result<()> {
        let (db, batch) = (open(&this)?, put(&key, &value, ttl, expires_at)?);
        Ok(this.py().detach(|| db.write_with(batch, durability(synced)))?)
    }

    fn __setitem__(this: PyRef<'_, Self>, key: Input, value: Input) -> Result<()> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.put(&key, &value))?)
    }

    /// Deletes a key, which may be absent. No disk read.
    #[pyo3(signature = (key, *, synced=false))]
    fn delete(this: PyRef<'_, Self>, key: Input, synced: bool) -> Result<()> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.delete_with(&key, durability(synced)))?)
    }

    /// Sets the pairs of an iterable. No disk read. Returns their number.
    ///
    /// Each 64 KiB of pairs are one batch, which is written whole or not at all. After an exception the earlier batches
    /// are written. With synced=True all pairs are synced when it returns, by one sync at the end.
    #[pyo3(signature = (pairs, *, synced=false))]
    fn put_many(this: PyRef<'_, Self>, pairs: &Bound<'_, PyAny>, synced: bool) -> Result<u64> {
        let (db, py) = (open(&this)?, this.py());
        let mut batch = Batch::new();
        let mut count = 0;
        for item in pairs.try_iter()? {
            let (key, value) = input::pair(item)?;
            batch.put(key, value);
            count += 1;
            if batch.bytes() >= CHUNK_BYTES {
                py.check_signals()?;
                let full = std::mem::take(&mut batch);
                py.detach(|| db.write(full))?;
            }
        }
        py.detach(|| db.write_with(batch, durability(synced)))?;
        Ok(count)
    }

    /// Sets the value of a key that is absent. Returns whether it did: of many threads one gets True. Costs one lookup,
    /// as get: about 0.01 disk reads for a new key. `ttl` and `expires_at` as of put.
    #[pyo3(
        signature = (key, value=Input::Empty, *, ttl=None, expires_at=None, synced=false),
        text_signature = "($self, key, value=b'', *, ttl=None, expires_at=None, synced=False)"
    )]
    fn insert_if_absent(
        this: PyRef<'_, Self>,
        key: Input,
        value: Input,
        ttl: Option<f64>,
        expires_at: Option<f64>,
        synced: bool,
    ) -> Result<bool> {
        let (db, mut batch) = (open(&this)?, put(&key, &value, ttl, expires_at)?);
        batch.require_absent(&key);
        match this.py().detach(|| db.write_with(batch, durability(synced))) {
            Ok(()) => Ok(true),
            Err(Error::ConditionFailed { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Inserts each pair whose key is absent, all as one batch. Returns for each pair whether it was inserted; of two
    /// pairs with one key the first is. Costs a lookup for each key, as get, and memory for all pairs.
    #[pyo3(signature = (pairs, *, synced=false))]
    fn insert_many_if_absent(
        this: PyRef<'_, Self>,
        pairs: &Bound<'_, PyAny>,
        synced: bool,
    ) -> Result<Vec<bool>> {
        let db = open(&this)?;
        let pairs: Vec<_> = input::items(pairs)?.map(input::pair).collect::<PyResult<_>>()?;
        let py = this.py();
        Ok(py.detach(|| {
            let borrowed = pairs.iter().map(|(key, value)| (key, value));
            db.insert_many_if_absent_with(borrowed, durability(synced))
        })?)
    }

    /// Sets a key to `new` if its value is `expected`; None is an absent key. Returns whether it did. Costs one lookup,
    /// as get.
    #[pyo3(signature = (key, expected, new, *, synced=false))]
    fn compare_and_swap(
        this: PyRef<'_, Self>,
        key: Input,
        expected: Option<Input>,
        new: Option<Input>,
        synced: bool,
    ) -> Result<bool> {
        let db = open(&this)?;
        Ok(this.py().detach(|| {
            let (expected, new) = (expected.as_ref(), new.as_ref());
            let expected = expected.map(AsRef::as_ref);
            db.compare_and_swap_with(&key, expected, new.map(AsRef::as_ref), durability(synced))
        })?)
    }

    /// Sets the pairs of an iterable with strictly ascending keys at one moment, all or none, and durably. Each byte is
    /// written once, to tables, without the log and the memtable: the cheapest way to load many keys. Raises
    /// UnsortedError at a key that is not greater than the one before. Returns the number of pairs.
    fn ingest(this: PyRef<'_, Self>, pairs: &Bound<'_, PyAny>) -> Result<u64> {
        let db = open(&this)?;
        let pairs = Chunks { pairs: pairs.try_iter()?.unbind(), read: VecDeque::new() };
        this.py().detach(|| db.ingest(pairs))
    }

    /// Calls `function` with a Transaction, commits what it changed, and returns its result. All reads and changes take
    /// effect at one moment. If another write changed what it read, it is called again, at most `tries` times in all,
    /// then ConflictError is raised. An exception of the function ends it, and nothing is written.
    ///
    /// Cost of the commit: no disk read if no table was written meanwhile.
    #[pyo3(signature = (function, *, tries=100, synced=false))]
    fn transact<'py>(
        this: PyRef<'py, Self>,
        function: &Bound<'py, PyAny>,
        tries: u32,
        synced: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let (db, py) = (open(&this)?, this.py());
        let function = function.clone().unbind();
        let result = py.detach(|| {
            db.transact_with(tries, durability(synced), |transaction| {
                Python::attach(|py| transaction::call(py, &db, transaction, &function))
            })
        });
        Ok(result?.into_bound(py))
    }

    /// A view of the store as it is now. No I/O.
    fn snapshot(this: PyRef<'_, Self>) -> Result<Py<Snapshot>> {
        Ok(Snapshot::of(this.py(), open(&this)?.snapshot())?)
    }

    /// Makes all earlier writes survive a power failure. One sync of the disk.
    fn sync(this: PyRef<'_, Self>) -> Result<()> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.sync())?)
    }

    /// Writes what is in memory to tables, and syncs them.
    fn flush(this: PyRef<'_, Self>) -> Result<()> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.flush())?)
    }

    /// Flushes, then merges all tables into one run. Reads and writes all data once.
    fn compact(this: PyRef<'_, Self>) -> Result<()> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.compact())?)
    }

    /// Flushes, then waits until all background work is done.
    fn wait_until_settled(this: PyRef<'_, Self>) -> Result<()> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.wait_until_settled())?)
    }

    /// Makes a copy of the store in the new directory `path`, while it is in use: a hard link for each table, and about
    /// ten syncs. criba.open opens the copy.
    fn checkpoint(this: PyRef<'_, Self>, path: PathBuf) -> Result<()> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.checkpoint(path))?)
    }

    /// The counts since the store was opened, as a dict: of lookups by level under "levels" and of all levels under
    /// "total", of writes, scans and compactions. Bytes and numbers of operations; times are in nanoseconds. No I/O.
    fn stats(this: PyRef<'_, Self>) -> Result<Bound<'_, PyDict>> {
        stats(this.py(), &open(&this)?.stats())
    }

    /// The bytes of all files of the store. Opens each file to find its length.
    fn disk_bytes(this: PyRef<'_, Self>) -> Result<u64> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.disk_bytes())?)
    }
}

type Pair = (Vec<u8>, Vec<u8>);

/// The pairs of an iterable, for a thread without the GIL, which it takes once for each chunk.
struct Chunks {
    pairs: Py<PyIterator>,
    read: VecDeque<Result<Pair>>,
}

impl Chunks {
    fn fill(&mut self, py: Python<'_>) {
        let mut bytes = 0;
        for item in self.pairs.bind(py).clone() {
            let pair = py.check_signals().and_then(|()| input::pair(item));
            let is_end = pair.is_err();
            let pair = pair.map(|(key, value)| (key.as_ref().to_vec(), value.as_ref().to_vec()));
            bytes += pair.as_ref().map_or(0, |(key, value)| key.len() + value.len());
            self.read.push_back(pair.map_err(Failure::Python));
            // The count bounds the memory of empty pairs.
            if is_end || bytes >= CHUNK_BYTES || self.read.len() >= CHUNK_BYTES / 16 {
                break;
            }
        }
    }
}

impl Iterator for Chunks {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.read.is_empty() {
            Python::attach(|py| self.fill(py));
        }
        self.read.pop_front()
    }
}
