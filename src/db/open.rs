//! Opening a store: check the directory, lock it, read the manifest, replay the logs.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::commit_queue::CommitQueue;
use super::directory::{Listing, for_each_logged_entry, hash_key, lock, not_a_store};
use super::earlier_logs::EarlierLogs;
use super::health::Health;
use super::inner::DbInner;
use super::open_tables::{check_filters, check_memory, open_tables, settings_of_newest};
use super::views::{ReadView, Views};
use super::visibility::Visibility;
use crate::compaction::{MergeContext, write_tables};
use crate::error::{Error, IoContext, Result};
use crate::filter::{FilterSettings, HashKey, mix};
use crate::filters::FilterManager;
use crate::fork::Birth;
use crate::iter::Direction;
use crate::ledger::Ledger;
use crate::memtable::{Memtable, MemtableCursor, MemtableFilter};
use crate::names::{FileName, check_numbers};
use crate::options::Options;
use crate::scheduler::{Scheduler, compact_while_due, load_filters_within_budget, start_threads};
use crate::sealed::Seal;
use crate::sstable::{BlockCache, FilePool, FilterMemory, OpenTable, TableEnv};
use crate::sync::{AtomicU64, Mutex};
use crate::version::{Manifest, TableSet, Version, read_current, set_current};
use crate::vfs::Vfs;
use crate::wal::{LogError, LogKind, LogReader, LogWriter, LostTail, replay};

/// What opening a store found and repaired.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Logs read.
    pub logs: usize,
    /// Entries replayed from logs into tables.
    pub changes: u64,
    /// Unsynced writes at the end of the logs that a crash cut short.
    pub lost_tail: Option<LostTail>,
    /// An edit at the end of the manifest that a crash cut short.
    pub lost_edit: Option<LostTail>,
    /// Removed files that nothing refers to any more, such as the log and the manifest of the last session.
    pub removed_files: usize,
    /// Files that nothing refers to, in a store that is only read. The next opening to write removes them,
    /// unless a writer is making them.
    pub unreferenced_files: usize,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logs, changes, lost_tail, lost_edit, removed_files, .. } = self;
        write!(f, "logs: {logs} read, {changes} changes replayed; {removed_files} files removed")?;
        for (what, lost) in [("write", lost_tail), ("edit of the manifest", lost_edit)] {
            if let Some(lost) = lost {
                write!(f, "\ndropped: an unsynced {what} that a crash cut short: {lost}")?;
            }
        }
        Ok(())
    }
}

struct Recovered {
    env: Arc<TableEnv>,
    set: TableSet,
    filters: FilterSettings,
    tables: Vec<(usize, OpenTable)>,
    /// The first `opened` tables were opened. The others were written from logs.
    opened: usize,
    report: RecoveryReport,
}

pub(crate) fn open(dir: &Path, options: Options) -> Result<(Arc<DbInner>, RecoveryReport)> {
    let vfs = Arc::clone(&options.vfs);
    let listing = Listing::read(vfs.as_ref(), dir)?;
    check_directory(vfs.as_ref(), dir, listing.as_ref(), &options)?;
    if listing.as_ref().is_none_or(|listing| !listing.ours.contains(&FileName::Current)) {
        check_memory(dir, &options, 0, std::iter::empty())?; // before a directory is made
    }
    vfs.create_dir(dir).context("create", dir)?;
    let lock = lock(vfs.as_ref(), dir)?;
    // Again: the last holder of the lock may have changed the directory.
    let listing = Listing::read(vfs.as_ref(), dir)?.unwrap_or_default();
    check_directory(vfs.as_ref(), dir, Some(&listing), &options)?;

    let Recovered { env, mut set, filters, tables, opened, mut report } =
        recover(dir, &listing, &options)?;

    // A new log, then a new manifest that names all tables, then `CURRENT` in one step. Before that, no
    // existing file is changed.
    let number = env.new_file_number();
    let manifest_number = env.new_file_number();
    set.log = number;
    set.next_file = env.next_file();
    set.filter_settings = Some(filters);
    let path = FileName::Log(number).path(dir);
    let in_force = LogWriter::create(vfs.as_ref(), &path, LogKind::Wal, number, env.store, true)
        .and_then(|log| {
            Ok((log, Manifest::create(vfs.as_ref(), dir, manifest_number, env.store, set)?))
        })
        .map_err(LogError::Refused)
        .and_then(|made| set_current(vfs.as_ref(), dir, manifest_number).map(|()| made));
    let (log, manifest) = in_force
        .inspect_err(|error| {
            if let LogError::Refused(_) = error {
                // The old manifest is in force. The new files would only take space, which a full disk lacks.
                // The next open removes what cannot be removed now.
                for name in [FileName::Log(number), FileName::Manifest(manifest_number)] {
                    let _ = vfs.remove(&name.path(dir), name.kind());
                }
                discard(tables[opened..].iter().map(|(_, open)| open));
            }
        })
        .map_err(LogError::into_error)?;

    let set = manifest.set();
    report.removed_files = remove_unreferenced(vfs.as_ref(), dir, set, manifest_number);
    let next_seq = set.flushed_seq + 1;
    let version = Version::default().with(&[], &tables, &env.ledger);
    // So that only the view holds the filters: the budget waits for other holders.
    drop(tables);
    let filter = MemtableFilter::new(filters.policy.hash_function(), env.hash_key);
    let view = ReadView {
        memtable: Arc::new(Memtable::new(number, Some(filter))),
        sealed: vec![],
        version: Arc::new(version),
    };
    let inner = Arc::new(DbInner {
        filters: FilterManager::new(filters),
        env,
        health: Health::new(lock),
        views: Views::new(view, options.background_threads > 0),
        visibility: Visibility::new(next_seq - 1),
        commits: CommitQueue::new(log.fill_ahead(options.log_fill()), next_seq),
        earlier_logs: EarlierLogs::default(),
        manifest: Mutex::new(manifest),
        scheduler: Scheduler::default(),
        options,
    });
    load_filters_within_budget(&inner);
    // On an error, some threads may have started, which hold the store and its lock. `close` ends them.
    start_threads(&inner).inspect_err(|_| drop(inner.close()))?;
    if inner.is_inline() {
        // A compaction that fails here fails again when it is next due, and returns the error there.
        let _ = compact_while_due(&inner);
    }
    Ok((inner, report))
}

fn recover(dir: &Path, listing: &Listing, options: &Options) -> Result<Recovered> {
    let vfs = &options.vfs;
    let current = read_current(vfs.as_ref(), dir)?;
    let (set, store, hash_key, lost_edit) = match current {
        Some(number) => {
            let (set, store, lost_edit) = Manifest::read(vfs.as_ref(), dir, number)?;
            let hash_key = hash_key(&set, dir, number)?;
            (set, store, hash_key, lost_edit)
        }
        None => {
            let (store, hash_key) = new_identity(options.seed)?;
            (TableSet { hash_key: Some(hash_key), ..TableSet::default() }, store, hash_key, None)
        }
    };
    check_numbers(dir, &listing.ours, set.next_file)?;
    let highest = listing.ours.iter().filter_map(|name| name.number()).max().unwrap_or(0);
    let env = Arc::new(TableEnv {
        vfs: Arc::clone(vfs),
        dir: dir.to_owned(),
        store,
        hash_key,
        prefix_hash_key: hash_key.for_prefixes(),
        files: FilePool::new(options.max_open_files),
        cache: BlockCache::new(options.cache_bytes, options.block_bytes),
        ledger: Arc::new(Ledger::default()),
        filter_memory: FilterMemory::new(options.filter_memory, Seal::for_files_of(vfs.as_ref())),
        index_memory: Arc::default(),
        next_file: AtomicU64::new(set.next_file.max(highest + 1)),
        birth: Birth::now(),
    });
    let entries: Vec<_> = set.tables.values().cloned().collect();
    let tables = open_tables(&env, &entries, options)?;
    check_filters(&tables, options)?;
    let report = RecoveryReport { lost_edit, ..RecoveryReport::default() };
    let opened = tables.len();
    let stored = set.filter_settings.unwrap_or_else(|| settings_of_newest(&tables));
    let filters = options.filter_settings(stored);
    let mut recovered = Recovered { env, set, filters, tables, opened, report };
    if current.is_some() {
        replay_logs(listing, options, &mut recovered)?;
        let Recovered { env, tables, .. } = &recovered;
        let filters = tables.iter().map(|(_, open)| open.filter.meta);
        check_memory(dir, options, env.index_memory.bytes(), filters)
            .inspect_err(|_| discard(tables[opened..].iter().map(|(_, open)| open)))?;
    }
    Ok(recovered)
}

/// Removes the new tables of an open that fails: it changes nothing.
fn discard<'a>(written: impl IntoIterator<Item = &'a OpenTable>) {
    for open in written {
        open.table.make_obsolete();
    }
}

pub(super) fn check_directory(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: Option<&Listing>,
    options: &Options,
) -> Result<()> {
    let may_create =
        |found| if options.create_if_missing { Ok(()) } else { Err(not_a_store(dir, found)) };
    let Some(listing) = listing else { return may_create("nothing") };
    if listing.ours.contains(&FileName::Current) {
        // Other engines have a `CURRENT`, too. `read_current` refuses their directory before a lock file is
        // made in it.
        return read_current(vfs, dir).map(|_| ());
    }
    if let Some(foreign) = listing.foreign.first() {
        let found = format!("no CURRENT, but something else: {}", foreign.display());
        return Err(not_a_store(dir, found));
    }
    // A crash during the creation of a store leaves no table, and only a log without records.
    for name in &listing.ours {
        let holds_data = match name {
            FileName::Table(_) | FileName::Filter { .. } => true,
            FileName::Log(number) => LogReader::open(vfs, &name.path(dir), LogKind::Wal, *number)?
                .furthest_synced_from(0)?
                .is_some(),
            _ => false,
        };
        if holds_data {
            let path = FileName::Current.path(dir);
            return Err(Error::Missing { path, named_by: format!("the presence of {name}") });
        }
    }
    may_create("an empty directory")
}

fn replay_logs(listing: &Listing, options: &Options, recovered: &mut Recovered) -> Result<()> {
    let Recovered { env, set, filters, tables, report, .. } = recovered;
    let env = &*env;
    let logs = listing.logs_from(set.log);
    let mut written: Vec<OpenTable> = Vec::new();
    let mut memtable = Arc::new(Memtable::new(0, None));
    let settings = options.table_settings(filters);
    let mut version = Version::default().with(&[], tables, &env.ledger);
    let filters = FilterManager::new(*filters);
    let mut flush = |memtable: &Arc<Memtable>| {
        let context = MergeContext {
            env,
            settings: &settings,
            filter_for: &|table| filters.recipe_for_flush(&version, table),
            table_bytes: u64::MAX,
            ignore_filters: options.ignore_filters,
            snapshots: Vec::new(),
            cancelled: &|| false,
        };
        let start = std::ops::Bound::Unbounded;
        let mut cursor = MemtableCursor::new(Arc::clone(memtable), Direction::Forward, start);
        let new = write_tables(&mut cursor, memtable.len(), |_| false, &context)?;
        let added: Vec<_> = new.iter().map(|open| (0, open.clone())).collect();
        version = version.with(&[], &added, &env.ledger);
        written.extend(new);
        Ok::<_, Error>(())
    };
    let first_seq = set.flushed_seq + 1;
    let replayed = replay(
        env.vfs.as_ref(),
        &env.dir,
        env.store,
        &logs,
        set.log,
        first_seq,
        |path, offset, seq, payload| {
            let entries =
                for_each_logged_entry(path, offset, seq, payload, |entry| memtable.insert(entry))?;
            if memtable.bytes() >= options.memtable_bytes {
                flush(&memtable)?;
                memtable = Arc::new(Memtable::new(0, None));
            }
            Ok(entries)
        },
    )
    .and_then(|replayed| {
        if !memtable.is_empty() {
            flush(&memtable)?;
        }
        Ok(replayed)
    })
    .inspect_err(|_| {
        discard(&written);
    })?;
    report.logs = logs.len();
    report.changes = replayed.next_seq - first_seq;
    report.lost_tail = replayed.lost;
    set.flushed_seq = replayed.next_seq - 1;
    for open in written {
        set.tables.insert(open.table.id(), (0, open.record()));
        tables.push((0, open));
    }
    Ok(())
}

/// Removes files that the manifest does not name. Returns their number.
fn remove_unreferenced(vfs: &dyn Vfs, dir: &Path, set: &TableSet, manifest: u64) -> usize {
    let Ok(Some(listing)) = Listing::read(vfs, dir) else { return 0 };
    let unreferenced = listing.ours.into_iter().filter(|&name| !set.refers_to(name, manifest));
    // The next open removes what cannot be removed now.
    unreferenced.filter(|name| vfs.remove(&name.path(dir), name.kind()).is_ok()).count()
}

fn new_identity(seed: Option<u64>) -> Result<(u64, HashKey)> {
    let random = |number: u64| match seed {
        // SplitMix64: similar seeds give different outputs.
        Some(seed) => Ok(mix(seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))),
        None => getrandom::u64()
            .map_err(|error| io::Error::other(error.to_string()))
            .context("get random bytes", Path::new("the operating system")),
    };
    let (store, low, high) = (random(1)?, random(2)?, random(3)?);
    let hash_key = u128::from(high) << 64 | u128::from(low);
    Ok((store, HashKey::new(hash_key.to_le_bytes())))
}
