//! A store as its files are at one moment, read without a change to them. Another process may write to the
//! store meanwhile.
//!
//! The order of reads: `CURRENT`, the manifest, the logs, the tables. The writer records an edit before it
//! removes a file, so a file that is missing shows that the manifest has changed. All logs that existed when
//! the manifest was read are replayed, so every write that was synced before is there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::open::{RecoveryReport, check_directory};
use super::open_tables::{check_memory, open_tables};
use crate::clock::StoreTime;
use crate::descriptors;
use crate::directory::{Listing, not_a_store};
use crate::engine::scan::Scan;
use crate::error::{Error, Result};
use crate::expiry::{Millis, Moment};
use crate::filter_manager::residency_changes;
use crate::key::{EntryKind, Seq};
use crate::lookup::{Lookups, Now, When};
use crate::memtable::{Memtable, MemtableFilter};
use crate::names::FileName;
use crate::options::Options;
use crate::sealed::Seal;
use crate::sstable::{BlockCache, FilePool, FilterMemory, FilterState, TableEnv, TableMeta};
use crate::store_dir::StoreDir;
use crate::sync::AtomicU64;
use crate::version::{Manifest, StoreSettings, TableSet, Version, read_current};
use crate::view::ReadView;
use crate::view::hole::LastHole;
use crate::wal::replay;

/// How often the files are read before a store that changes each time is given up.
const ATTEMPTS: usize = 100;

/// A store as of one moment.
pub(crate) struct ReadOnlyState {
    pub(crate) env: Arc<TableEnv>,
    pub(crate) view: Arc<ReadView>,
    pub(crate) seq: Seq,
    /// A checksum of what the logs hold: the number of a write that failed is used again.
    logged: u32,
    pub(crate) settings: StoreSettings,
    /// The time that the manifest has.
    pub(crate) time: Option<Millis>,
    pub(crate) report: RecoveryReport,
    /// The manifest's counter of file numbers.
    pub(crate) next_file: u64,
    ignore_filters: bool,
}

impl ReadOnlyState {
    /// Reads the store, again if it changes meanwhile. Takes from `previous` the tables that have not changed.
    pub(crate) fn load(dir: &StoreDir, options: &Options, previous: Option<&Self>) -> Result<Self> {
        let manifest = || manifest_length(dir);
        let mut last = None;
        for _ in 1..ATTEMPTS {
            let before = manifest();
            let loaded = Self::load_once(dir, options, previous);
            // What the writer removed or had not written to its end looks like damage. Damage stays as it is.
            let Some(damage) = damage(&loaded) else { return loaded };
            // The manifest stayed as it is during the attempt, and since the last one.
            let verdict = Some((before, damage)).filter(|_| manifest() == before);
            if verdict.is_some() && last == verdict {
                return loaded;
            }
            last = verdict;
        }
        Self::load_once(dir, options, previous)
    }

    fn load_once(dir: &StoreDir, options: &Options, previous: Option<&Self>) -> Result<Self> {
        let Some(number) = read_current(dir)? else {
            check_directory(dir, &Listing::read(dir)?, options)?;
            return Err(not_a_store(dir.path(), "no CURRENT"));
        };
        let (set, store, lost_edit) = Manifest::read(dir, number)?;
        // A store restored from a checkpoint gives the numbers of lost tables to others.
        let previous = previous.filter(|old| old.env.store != store || old.has_no_other_of(&set));
        let env = match previous {
            Some(Self { env, .. }) if env.store == store => Arc::clone(env),
            Some(Self { env, .. }) => {
                let path = dir.path_of(FileName::Manifest(number));
                let expected = format!("a manifest of store {:016x}", env.store);
                return Err(Error::corrupt(&path, 0, expected, format!("store {store:016x}")));
            }
            None => Arc::new(TableEnv {
                files: FilePool::unlimited(options.read_ahead),
                cache: BlockCache::new(options.cache_bytes, options.block_bytes),
                filter_memory: FilterMemory::new(options.filter_memory, Seal::for_files_of(dir)),
                next_file: AtomicU64::new(u64::MAX), // no file is made
                time: StoreTime::new(&options.clock, options.accept_clock, None, None)?,
                ..TableEnv::new(dir, store, set.hash_key)
            }),
        };
        env.time.follow(set.time, options.accept_clock)?;
        let stored = set.settings;
        let settings = StoreSettings { policy: stored.policy.without_blocked(), ..stored };
        let memtable = Memtable::new(0, 0, Some(memtable_filter(&set, options, &env)));
        let listing = Listing::read(dir)?;
        listing.check_numbers(dir, set.next_file)?;
        let unreferenced = listing.ours.iter().filter(|&&name| !set.refers_to(name, number));
        let mut report = RecoveryReport {
            lost_edit,
            unreferenced_files: unreferenced.count(),
            replaced_policy: options.replaced_policy(stored),
            ..RecoveryReport::default()
        };
        let (seq, logged) = replay_into(&memtable, &env, &set, &listing, &mut report)?;
        let none = Version::default();
        let old = previous.map_or(&none, |old| &*old.view.version);
        let version = within_budget(version_of(&set, old, &env, options)?, &env);
        let (memtable, version) = (Arc::new(memtable), Arc::new(version));
        let view =
            Arc::new(ReadView { memtable, sealed: Vec::new(), version, hole: LastHole::default() });
        let ignore_filters = options.ignore_filters;
        let (next_file, time) = (set.next_file, set.time.or_else(|| env.time.recorded()));
        Ok(Self { env, view, seq, logged, settings, time, report, next_file, ignore_filters })
    }

    /// Whether each table that has the number of one in `set` is that table.
    fn has_no_other_of(&self, set: &TableSet) -> bool {
        self.view.version.tables().all(|(_, live)| {
            let ours = live.table.meta();
            let found = set.tables.get(&ours.id);
            found.is_none_or(|(_, meta)| ours.is_of_same_table(meta))
        })
    }

    /// Whether both are the same state of the store.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let records = |loaded: &Self| -> BTreeMap<u64, (usize, TableMeta)> {
            let tables = loaded.view.version.tables();
            tables.map(|(level, live)| (live.table.id(), (level, live.open().record()))).collect()
        };
        let numbers = |loaded: &Self| (loaded.seq, loaded.logged);
        numbers(self) == numbers(other)
            && self.settings == other.settings
            && records(self) == records(other)
    }

    pub(crate) fn lookups(&self) -> Lookups<'_> {
        Lookups { env: &self.env, ignore_filters: self.ignore_filters }
    }

    pub(crate) fn at_one_moment<T>(
        &self,
        snapshot: Option<Moment>,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        self.env.birth.check()?;
        let moment = snapshot.unwrap_or_else(|| self.now());
        read(self.lookups(), &self.view, &When::At(moment))
    }

    pub(crate) fn lookup<T>(
        &self,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        self.env.birth.check()?;
        read(self.lookups(), &self.view, &When::now(self))
    }

    pub(crate) fn scan(
        &self,
        moment: Moment,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<Scan> {
        self.env.birth.check()?;
        let (extractor, view) = (self.settings.extractor, Arc::clone(&self.view));
        Ok(Scan::new(&self.env, self.lookups(), extractor, view, moment, bounds))
    }
}

/// Its entries at the present time.
impl Now for ReadOnlyState {
    fn now(&self) -> Moment {
        Moment { seq: self.seq, time: self.env.time.of_readers() }
    }
}

/// What a changing store could have caused: an error, degraded filters, or whole records behind a gap: the writer
/// began the next log after the last one was read.
fn damage(loaded: &Result<ReadOnlyState>) -> Option<String> {
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return Some(error.to_string()),
    };
    if let Some(lost) = loaded.report.lost_tail.as_ref().filter(|lost| lost.records > 0) {
        return Some(lost.to_string());
    }
    let degraded = loaded.view.version.tables().filter_map(|(_, live)| match &live.filter.state {
        FilterState::Degraded(reason) => Some(format!("{}: {reason}\n", live.table.id())),
        _ => None,
    });
    Some(degraded.collect()).filter(|degraded: &String| !degraded.is_empty())
}

/// The number and the length of the manifest, if they can be read.
fn manifest_length(dir: &StoreDir) -> Option<(u64, u64)> {
    let number = read_current(dir).ok()??;
    let manifest = dir.open_file(FileName::Manifest(number)).ok()?;
    Some((number, manifest.length().ok()?))
}

fn memtable_filter(set: &TableSet, options: &Options, env: &TableEnv) -> MemtableFilter {
    let settings = options.store_settings(set.settings);
    MemtableFilter::new(settings.policy.hash_function(), env.hash_key)
}

/// Inserts the entries of the logs. Returns the sequence number of the newest entry of the store, and the
/// checksum of the entries.
fn replay_into(
    memtable: &Memtable,
    env: &TableEnv,
    set: &TableSet,
    listing: &Listing,
    report: &mut RecoveryReport,
) -> Result<(Seq, u32)> {
    let mut logged = crc32fast::Hasher::new();
    let logs = listing.logs(env, set.log, set.flushed_seq + 1);
    let replayed = replay(&logs, |record| {
        logged.update(record.payload);
        record.for_each_entry(|entry| {
            // The writer may have recorded its time after the manifest was read.
            if entry.kind == EntryKind::Expiring {
                env.time.begin();
            }
            memtable.insert(entry);
        })
    })?;
    report.logs = logs.numbers.len();
    report.changes = replayed.next_seq - logs.first_seq;
    report.lost_tail = replayed.lost;
    Ok((replayed.next_seq - 1, logged.finalize()))
}

/// The version with the portions of filters for which the budget has room.
fn within_budget(version: Version, env: &TableEnv) -> Version {
    let (less, more) = residency_changes(&version, env);
    let ids = less.iter().chain(&more).map(|change| change.table).collect();
    let tables = version.with_ids(&ids);
    let changed = less.iter().chain(&more).filter_map(|change| {
        let filter = change.apply(tables.get(&change.table)?)?;
        Some((change.table, Arc::new(filter)))
    });
    let changed: BTreeMap<_, _> = changed.collect();
    if changed.is_empty() { version } else { version.with_filters(&changed) }
}

/// Adds to an error of missing descriptors how many the tables of a read-only store need.
fn with_needed_descriptors(error: Error, tables: usize) -> Error {
    match error {
        Error::Io { action, path, source } if descriptors::is_exhausted(&source) => {
            let limit = descriptors::limit().map_or("no number of".into(), |n| n.to_string());
            let action = format!(
                "{action}, one of {tables} files that a read-only store keeps open, where `ulimit -n` \
                 is {limit}"
            );
            Error::Io { action, path, source }
        }
        other => other,
    }
}

/// The version with the tables of `set`. Tables that `old` has are not opened again.
fn version_of(
    set: &TableSet,
    old: &Version,
    env: &Arc<TableEnv>,
    options: &Options,
) -> Result<Version> {
    let known: BTreeSet<u64> = old.tables().map(|(_, live)| live.table.id()).collect();
    let new = set.tables.values().filter(|(_, meta)| !known.contains(&meta.id));
    let new: Vec<(usize, TableMeta)> = new.cloned().collect();
    // A scan or snapshot may hold tables that are gone from the store.
    let open = env.files.pinned() + new.len();
    if open > options.max_open_files {
        let limit = options.max_open_files;
        let reason = format!(
            "{limit} is less than {open}: a read-only store keeps a file of each table open (the default is \
             a quarter of `ulimit -n`, at most 4096)"
        );
        return Err(Error::InvalidOption { option: "max_open_files", reason });
    }
    let filters = set.tables.values().map(|(_, meta)| meta.filter);
    check_memory(env.dir.path(), options, env.index_memory.bytes(), filters)?;
    // Files are opened before their tables, and only the drop of a table closes its file.
    let mut added = open_tables(env, &new, options).map_err(|error| {
        for (_, meta) in &new {
            env.files.forget(meta.id);
        }
        with_needed_descriptors(error, open)
    })?;
    let mut removed = Vec::new();
    let mut replaced = BTreeMap::new();
    for (level, live) in old.tables() {
        let id = live.table.id();
        match set.tables.get(&id) {
            Some((new_level, meta)) => {
                if *new_level != level {
                    removed.push((level, id));
                    added.push((*new_level, live.open()));
                }
                if live.filter.meta != meta.filter {
                    replaced.insert(id, Arc::new(live.table.load_filter(meta.filter)));
                }
            }
            None => removed.push((level, id)),
        }
    }
    let version = old.with(&removed, &added, &env.ledger);
    Ok(if replaced.is_empty() { version } else { version.with_filters(&replaced) })
}
