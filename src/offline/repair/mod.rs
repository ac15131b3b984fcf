//! Salvages a damaged store into a new one.
//!
//! Invariant: **a key gets a value in the new store only if that is provably its newest.** Every change has a
//! sequence number, and no two of a key have the same. Each damaged place is a [`Loss`]: keys that the lost changes can be
//! of, and the greatest sequence number that they can have. A key is *uncertain* if a lost change of it can be newer
//! than its newest one that was read. Versions are merged by sequence number; on which level a table was does not
//! count.
//!
//! What is proven, and how:
//! * The manifest in force names the tables that count. If it is damaged, nothing is certain: an older state of
//!   it may name tables whose changes were overwritten or deleted since.
//! * The changes in logs have consecutive sequence numbers. So the next whole record bounds what damage
//!   before it cost. Damage at the end is not bounded; a crash that cut the log short looks like it. Bytes of a
//!   value can look like a record: one that only a search within damage finds is uncertain, and bounds nothing.
//! * A table's index bounds the keys of each data block. Without the index, blocks are found by their checksums,
//!   and the manifest's number of entries shows whether all are there.
//! * An ingested table has its sequence number in the manifest alone. Without that record it may be newer than all
//!   else: each of its keys is uncertain. Which value is set aside is a guess: beside a sound manifest the other one,
//!   as a crash ended the ingest; else by the least number that the ingest can have.
//! * Filters are not read. The new store has new ones.

mod logs;
mod loss;
mod manifest;
mod merge;
mod salvage;
mod uncertain;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::logs::History;
pub use self::loss::Loss;
use self::merge::{Change, Merge};
use self::salvage::{LostEntries, SalvageCursor};
use self::uncertain::UncertainRanges;
use crate::batch::Batch;
use crate::clock::NoClock;
use crate::db::Db;
use crate::directory::staged::{self, Staged};
use crate::directory::{Listing, not_a_store, open_locked, open_to_read, origin};
use crate::error::Result;
use crate::expiry::system_time;
use crate::key::{EntryKind, EntryRef, Seq};
use crate::names::FileName;
use crate::options::Options;
use crate::random::RandomSource;
use crate::recovery::open::open_in;
use crate::sstable::{Table, TableEnv, TableMeta};
use crate::store_dir::StoreDir;
use crate::version::TableSet;
use crate::vfs::{FileLock, RealVfs, Vfs};
use criba_filter::store::HashKey;

/// The store of uncertain keys, in the directory of the new store.
const UNCERTAIN: &str = "uncertain";

/// The size of a batch of the new store.
const BATCH_BYTES: usize = 64 << 10;

/// What [`repair`] does with a key whose newest change may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uncertain {
    /// Its newest value that was read goes to a second store, in the directory `uncertain` of the new one.
    #[default]
    SetAside,
    /// Its newest value that was read goes into the new store. Deleted keys and older values can come back.
    Accept,
}

/// What [`repair`] found and made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Repaired {
    /// Damage that cost changes, or may have. Empty if everything was read.
    pub losses: Vec<Loss>,
    /// Keys in the new store.
    pub keys: u64,
    /// Keys set aside; with [`Uncertain::Accept`], those among `keys` that are uncertain.
    pub uncertain: u64,
    /// Whether filter policy, prefix extractor, default time to live and compression of the store were read. The new
    /// store has them, or else the default ones.
    pub policy_known: bool,
    /// Tables read.
    pub tables: u64,
    /// Logs read.
    pub logs: u64,
    /// The id of the store: the one that was asked for; else that of the manifest in force; else that of most
    /// files, and then nothing is certain if there are others.
    pub store: u64,
    /// Files of other stores, with the ids of those. Nothing of them is in the new store.
    pub others: Vec<(PathBuf, u64)>,
    /// Directories that repairs left that were killed, and which were removed.
    pub leftovers: Vec<PathBuf>,
}

/// Salvages a damaged store that is not open: makes a new store in the directory `to` from everything that can be
/// read of the one in `dir`, of which nothing is changed.
///
/// A key whose newest change may be lost is *uncertain*: in a damaged block, a gap in a log, or anywhere if the
/// manifest is damaged. See [`Uncertain`]. [`Db::put`] each key of the second store into the first to accept them
/// later.
///
/// The new store has its own hash key, and new filters. `to` must not exist; it appears at the end, whole.
///
/// Cost: reads each table and log once, and a table with a damaged index twice. Memory: the logs, the
/// indexes, a table with a damaged index, and three memtables.
///
/// # Errors
/// [`NotAStore`](crate::Error::NotAStore); [`Locked`](crate::Error::Locked);
/// [`InvalidPath`](crate::Error::InvalidPath): `to` is empty or in the store;
/// [`Unsupported`](crate::Error::Unsupported) for a file of another version; [`Io`](crate::Error::Io) if `to`
/// exists or cannot be written. Damage is no error. A log that is cut behind a whole record shows none.
pub fn repair(
    dir: impl AsRef<Path>,
    to: impl AsRef<Path>,
    uncertain: Uncertain,
) -> Result<Repaired> {
    repair_with(dir, to, uncertain, None, &(Arc::new(RealVfs) as Arc<dyn Vfs>))
}

/// As [`repair`], with any file layer, and of the store with the id `store` if it is given.
///
/// # Errors
/// As [`repair`]; [`NotAStore`](crate::Error::NotAStore) if no file names this store.
pub fn repair_with(
    dir: impl AsRef<Path>,
    to: impl AsRef<Path>,
    uncertain: Uncertain,
    store: Option<u64>,
    vfs: &Arc<dyn Vfs>,
) -> Result<Repaired> {
    let (dir, listing, _lock) = open_to_read(vfs, dir.as_ref(), |listing| {
        let none = listing.ours.iter().all(|&name| name == FileName::Lock);
        if none { Err("no file of one") } else { Ok(()) }
    })?;
    let staged = Staged {
        source: &dir,
        vfs,
        path: to.as_ref(),
        mode: Options::new().file_mode,
        random: RandomSource::default(),
        purpose: "repair",
        within: Some(UNCERTAIN),
    };
    let (mut repaired, leftovers) = staged::make(&staged, |new, lock| {
        Salvage::of(&dir, listing, store, vfs)?.write(new, lock, uncertain)
    })?;
    repaired.leftovers = leftovers;
    Ok(repaired)
}

/// Everything that was read, before it is merged.
struct Salvage<'a> {
    options: Options,
    merge: Merge,
    found: Repaired,
    dir: &'a StoreDir,
}

impl<'a> Salvage<'a> {
    fn of(
        dir: &'a StoreDir,
        mut listing: Listing,
        asked: Option<u64>,
        vfs: &Arc<dyn Vfs>,
    ) -> Result<Self> {
        let mut found = Repaired::default();
        let key = HashKey::new([0; HashKey::BYTES]); // no filter is read
        let env = TableEnv::standalone(dir, 0, key);
        let known = asked.or_else(|| manifest::store_in_force(dir));
        let store = known.unwrap_or_else(|| manifest::store_of_most(&env, &listing));
        let env = TableEnv::standalone(dir, store, key);
        found.store = store;
        let is_there = |name: &FileName| matches!(origin(&env, *name), Ok(Some(origin)) if origin.store == store);
        if asked.is_some() && !listing.ours.iter().any(is_there) {
            return Err(not_a_store(dir.path(), format!("no file of store {store:016x}")));
        }
        found.others = manifest::take_others(&env, &mut listing);
        if known.is_none() && !found.others.is_empty() {
            found.losses.push(manifest::unknown_store(dir, store));
        }
        let listing = &listing;
        let set = manifest::tables_in_force(dir, store, listing, &mut found.losses)?;
        let mut options = Options::new().vfs(Arc::clone(vfs)).clock(Arc::new(NoClock));
        if let Some(set) = &set {
            found.policy_known = true;
            options = options.with_settings(set.settings, set.time);
        }
        let mut salvage = Self { options, merge: Merge::default(), found, dir };
        let reached = salvage.read_logs(store, set.as_ref(), listing)?;
        salvage.open_tables(&env, set, reached, listing)?;
        Ok(salvage)
    }

    /// Returns the sequence number of the newest change in tables and logs.
    fn read_logs(&mut self, store: u64, set: Option<&TableSet>, listing: &Listing) -> Result<Seq> {
        let (first, next) = set.map_or((None, 0), |set| (Some(set.log), set.flushed_seq + 1));
        let logs = listing.logs_from(first.unwrap_or(0));
        let mut history = History::new(self.dir, store, set.map(|set| set.hash_key), first, next);
        let (mut certain, mut uncertain) = (Vec::new(), Vec::new());
        history.read(&logs, |entry, is_certain| {
            let changes = if is_certain { &mut certain } else { &mut uncertain };
            changes.push(Change::new(entry));
        })?;
        self.found.logs = logs.len() as u64;
        self.found.losses.append(&mut history.losses);
        self.merge.add_changes(certain, true);
        self.merge.add_changes(uncertain, false);
        Ok(history.next.saturating_sub(1))
    }

    fn open_tables(
        &mut self,
        env: &Arc<TableEnv>,
        set: Option<TableSet>,
        reached: Seq,
        listing: &Listing,
    ) -> Result<()> {
        let known = set.is_some();
        let tables = set.map(|set| set.tables).unwrap_or_default();
        let is_there = |id: &u64| listing.ours.contains(&FileName::Table(*id));
        let all_there = tables.keys().all(is_there);
        let named = tables.into_iter().map(|(id, (_, meta))| (id, Some(meta)));
        let named: Vec<(u64, Option<TableMeta>)> = named.collect();
        // A table that nothing names is of no account: a compaction merged it, or was not finished. But if a
        // named one is missing, it may be the one in its place.
        let others = listing.ours.iter().filter_map(|name| match name {
            FileName::Table(id) if !named.iter().any(|(named, _)| named == id) => Some(*id),
            _ => None,
        });
        let others: Vec<u64> = others.collect();
        for (id, meta) in named {
            self.open_table(env, id, meta, true)?;
        }
        for id in others {
            let path = self.dir.path_of(FileName::Table(id));
            let found = Table::meta_of_file(env, id).ok().map(|(meta, _)| meta);
            let numbered = found.as_ref().filter(|meta| !meta.is_ingested);
            let newest = numbered.map_or(0, |meta| meta.max_seq);
            if known && newest > reached {
                let what = "changes that the logs lack".into();
                self.found.losses.push(Loss::of_any_key(path.clone(), None, what, newest));
            }
            // Only its record would show whether it was installed, and when.
            let ingested = found.filter(|meta| meta.is_ingested);
            if !(known && all_there) || ingested.is_some() {
                if known {
                    let what = "the manifest does not name it: what it has is uncertain".into();
                    self.found.losses.push(Loss::of_any_key(path, None, what, 0));
                }
                // Beside a sound manifest, a crash ended the ingest: it counts as older than all.
                let oldest = ingested.filter(|_| known).map(|mut meta| {
                    meta.set_number(0);
                    meta
                });
                self.open_table(env, id, oldest, false)?;
            }
        }
        Ok(())
    }

    fn open_table(
        &mut self,
        env: &Arc<TableEnv>,
        id: u64,
        meta: Option<TableMeta>,
        is_current: bool,
    ) -> Result<()> {
        let Self { found, dir, .. } = self;
        let mut lose = |lost: LostEntries| found.losses.push(lost.into_loss(dir.path()));
        let mut cursor = SalvageCursor::open(env, id, meta, &mut lose)?;
        cursor.advance(&mut lose);
        found.tables += 1;
        self.merge.add_table(cursor, is_current);
        Ok(())
    }

    /// Writes the store in `new` and the one within it.
    fn write(
        self,
        new: &StoreDir,
        lock: Arc<dyn FileLock>,
        uncertain: Uncertain,
    ) -> Result<Repaired> {
        let Self { options, merge, found, dir } = self;
        let (mut doubt, losses) = (UncertainRanges::of(&found.losses), RefCell::new(Vec::new()));
        let mut sound = NewStore::open(new.clone(), lock, &options)?;
        let mut aside = None;
        let mut uncertain_keys = 0;
        let mut seen = 0;
        merge.for_each_newest(
            |lost| losses.borrow_mut().push(lost.into_loss(dir.path())),
            |entry, is_current| {
                let losses = losses.borrow();
                losses.iter().skip(seen).for_each(|loss| doubt.add(loss));
                seen = losses.len();
                let is_certain = is_current && !doubt.covers(entry.key, entry.seq);
                if entry.kind == EntryKind::Delete {
                    return Ok(());
                }
                uncertain_keys += u64::from(!is_certain);
                if is_certain || uncertain == Uncertain::Accept {
                    return sound.put(entry);
                }
                match &mut aside {
                    Some(store) => store,
                    none => none.insert(NewStore::within(new, &options)?),
                }
                .put(entry)
            },
        )?;
        let mut repaired = Repaired { uncertain: uncertain_keys, ..found };
        repaired.losses.append(&mut losses.into_inner());
        repaired.keys = sound.finish()?;
        aside.map(NewStore::finish).transpose()?;
        new.sync()?; // the name of the second store
        Ok(repaired)
    }
}

/// A store that is being written.
struct NewStore {
    db: Db,
    batch: Batch,
    keys: u64,
}

impl NewStore {
    fn open(dir: StoreDir, lock: Arc<dyn FileLock>, options: &Options) -> Result<Self> {
        let db = Db::of(open_in(dir, lock, options.clone())?);
        Ok(Self { db, batch: Batch::new(), keys: 0 })
    }

    /// The second store.
    fn within(dir: &StoreDir, options: &Options) -> Result<Self> {
        let name = OsStr::new(UNCERTAIN);
        dir.make_child(name)?;
        let (dir, lock) = open_locked(|| dir.open_child(name), StoreDir::lock)?;
        Self::open(dir, lock, options)
    }

    fn put(&mut self, entry: EntryRef<'_>) -> Result<()> {
        self.keys += 1;
        if let Some((expiry, value)) = entry.put() {
            self.batch.put_expiring(entry.key, value, expiry.and_then(system_time));
        }
        if self.batch.bytes() >= BATCH_BYTES {
            self.db.write(&mut self.batch)?;
        }
        Ok(())
    }

    /// Returns the number of keys.
    fn finish(self) -> Result<u64> {
        self.db.write(self.batch)?;
        self.db.flush()?;
        self.db.wait_until_settled()?;
        self.db.close()?;
        Ok(self.keys)
    }
}
