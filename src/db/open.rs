//! Opening a store: refuse what is not one, lock it, read the manifest, replay the logs.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::commit_queue::CommitQueue;
use super::earlier_logs::EarlierLogs;
use super::health::Health;
use super::inner::DbInner;
use super::report::RecoveryReport;
use super::views::{ReadView, Views};
use super::visibility::Visibility;
use crate::batch::for_each_change;
use crate::compaction::{JobContext, write_tables};
use crate::error::{Error, IoContext, Result};
use crate::event::Event;
use crate::filter::{HashKey, mix};
use crate::filters::FilterManager;
use crate::iter::Direction;
use crate::ledger::Ledger;
use crate::memo::Mistakes;
use crate::memtable::{Memtable, MemtableCursor, MemtableFilter};
use crate::names::{FileName, too_far_ahead};
use crate::options::Options;
use crate::scheduler::{Scheduler, compact_while_due, load_filters_within_budget, start_threads};
use crate::sealed::Seal;
use crate::sstable::BlockCache;
use crate::sstable::{FilePool, FilterMemory, FilterState, OpenTable, Table, TableEnv};
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, available_parallelism, scope};
use crate::version::{Manifest, TableSet, Version, read_current, set_current};
use crate::vfs::{FileLock, Vfs};
use crate::wal::{LogError, LogKind, LogWriter, replay};

/// Tables are opened by this many threads at most.
const OPENING_THREADS: usize = 8;
/// So many tables are announced to the operating system before they are opened. A disk then has always something to
/// read, and the threads wait less for it.
const ANNOUNCED: usize = 16;

/// The files in a directory.
#[derive(Debug, Default)]
struct Listing {
    ours: Vec<FileName>,
    foreign: Option<OsString>,
}

impl Listing {
    /// `None` for a directory that does not exist.
    fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Self>> {
        let names = match vfs.list(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::NotAStore { path: dir.to_owned(), found: "a file".into() });
            }
            other => other.context("list", dir)?,
        };
        let mut listing = Self::default();
        for name in names {
            match name.to_str().and_then(FileName::parse) {
                Some(ours) => listing.ours.push(ours),
                None => listing.foreign = Some(name),
            }
        }
        listing.ours.sort_unstable_by_key(|name| (name.number(), *name));
        Ok(Some(listing))
    }

    fn numbers(&self, of: fn(&FileName) -> Option<u64>) -> impl Iterator<Item = u64> {
        self.ours.iter().filter_map(of)
    }
}

fn log_number(name: &FileName) -> Option<u64> {
    if let FileName::Log(number) = name { Some(*number) } else { None }
}

/// What the files of a store amount to.
struct Recovered {
    store: u64,
    set: TableSet,
    tables: Vec<(usize, OpenTable)>,
    /// Those of the tables that were written from the logs.
    replayed: Vec<Arc<Table>>,
    report: RecoveryReport,
}

pub(crate) fn open(dir: &Path, options: Options) -> Result<(Arc<DbInner>, RecoveryReport)> {
    let vfs = Arc::clone(&options.vfs);
    let listing = Listing::read(vfs.as_ref(), dir)?;
    check_fit(vfs.as_ref(), dir, listing.as_ref(), &options)?;
    vfs.create_dir(dir).context("create", dir)?;
    let lock = lock(vfs.as_ref(), dir)?;
    // Again: what was there before the lock may have been changed by its last holder.
    let listing = Listing::read(vfs.as_ref(), dir)?.unwrap_or_default();
    check_fit(vfs.as_ref(), dir, Some(&listing), &options)?;

    let highest = listing.numbers(|name| name.number()).max().unwrap_or(0);
    let (env, mut recovered) = recover(dir, &listing, &options, highest + 1)?;

    // Everything that was recovered is in tables now. A fresh log, then a fresh manifest that names
    // them all, put in force in one step: until then nothing that exists was changed.
    let number = env.new_file_number();
    let manifest_number = env.new_file_number();
    recovered.set.log = number;
    recovered.set.next_file = env.next_file();
    let Recovered { store, set, tables, replayed, mut report } = recovered;
    let path = FileName::Log(number).path(dir);
    let in_force = LogWriter::create(vfs.as_ref(), &path, LogKind::Wal, number, store, true)
        .and_then(|log| {
            Ok((log, Manifest::create(vfs.as_ref(), dir, manifest_number, store, set)?))
        })
        .map_err(LogError::Refused)
        .and_then(|made| set_current(vfs.as_ref(), dir, manifest_number).map(|()| made));
    let (log, manifest) = in_force
        .inspect_err(|error| {
            if let LogError::Refused(_) = error {
                // What was there is in force. What was made would only take up room, which may be
                // what is wanting; one file that cannot be removed now goes once an opening succeeds.
                for name in [FileName::Log(number), FileName::Manifest(manifest_number)] {
                    let _ = vfs.remove(&name.path(dir), name.kind());
                }
                for table in &replayed {
                    table.make_obsolete();
                }
            }
        })
        .map_err(LogError::into_error)?;

    let set = manifest.set();
    report.removed_files = remove_unreferenced(vfs.as_ref(), dir, set, manifest_number);
    let next_seq = set.flushed_seq + 1;
    let version = Version::default().with(&[], &tables, &env.ledger);
    // From here on only the view holds the filters: the budget waits for every other holder.
    drop((tables, replayed));
    let filter = MemtableFilter::new(options.filter.key_hash(), env.secret);
    let view = ReadView {
        memtable: Arc::new(Memtable::new(number, Some(filter))),
        sealed: vec![],
        version: Arc::new(version),
    };
    let inner = Arc::new(DbInner {
        filters: FilterManager::new(options.filter, options.prefix),
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
    // Threads that did start hold the store, and with it the lock; they end with it.
    start_threads(&inner).inspect_err(|_| drop(inner.close()))?;
    if inner.is_inline() {
        // A compaction that fails here fails again where it is next due, and says so there.
        let _ = compact_while_due(&inner);
    }
    Ok((inner, report))
}

/// Reads what the files of a store amount to, or makes up a new store.
fn recover(
    dir: &Path,
    listing: &Listing,
    options: &Options,
    next_file: u64,
) -> Result<(Arc<TableEnv>, Recovered)> {
    let vfs = &options.vfs;
    let seal = Seal::for_files_of(vfs.as_ref());
    let env = |store, secret: HashKey, next_file| {
        Arc::new(TableEnv {
            vfs: Arc::clone(vfs),
            dir: dir.to_owned(),
            store,
            secret,
            prefix_secret: secret.for_prefixes(),
            files: FilePool::new(options.max_open_files),
            cache: BlockCache::new(options.cache_bytes, options.block_bytes),
            mistakes: Mistakes::new(options.false_positive_memo),
            ledger: Arc::new(Ledger::default()),
            filter_memory: FilterMemory::new(options.filter_memory, seal),
            next_file: AtomicU64::new(next_file),
        })
    };
    let Some(number) = read_current(vfs.as_ref(), dir)? else {
        check_numbers(dir, listing, 0)?;
        let (store, secret) = new_identity(options.seed)?;
        let recovered = Recovered {
            store,
            set: TableSet { hash_key: Some(secret), ..TableSet::default() },
            tables: Vec::new(),
            replayed: Vec::new(),
            report: RecoveryReport::default(),
        };
        return Ok((env(store, secret, next_file), recovered));
    };
    let (set, store, lost_edit) = Manifest::read(vfs.as_ref(), dir, number)?;
    check_numbers(dir, listing, set.next_file)?;
    let report = RecoveryReport { lost_edit, ..RecoveryReport::default() };
    let secret = set.hash_key.ok_or_else(|| {
        let path = FileName::Manifest(number).path(dir);
        Error::corrupt(&path, 0, "the key of the store's hash", "none")
    })?;
    let env = env(store, secret, next_file.max(set.next_file));
    let tables = open_tables(&env, &set, options)?;
    let mut recovered = Recovered { store, set, tables, replayed: Vec::new(), report };
    replay_logs(&env, listing, options, &mut recovered)?;
    Ok((env, recovered))
}

/// Refuses a directory with a number in it that a store that has counted so far never gave: it would
/// leave none to go on with.
fn check_numbers(dir: &Path, listing: &Listing, counted: u64) -> Result<()> {
    match too_far_ahead(listing.ours.iter().copied(), counted) {
        None => Ok(()),
        Some((name, limit)) => {
            let expected = format!("a number up to {limit}");
            Err(Error::corrupt(&name.path(dir), 0, expected, "a greater one"))
        }
    }
}

/// Refuses a directory that holds something else, or a store that lost its beginning.
fn check_fit(
    vfs: &dyn Vfs,
    dir: &Path,
    listing: Option<&Listing>,
    options: &Options,
) -> Result<()> {
    let not_a_store = |found: String| Err(Error::NotAStore { path: dir.to_owned(), found });
    let Some(listing) = listing else {
        return if options.create_if_missing { Ok(()) } else { not_a_store("nothing".into()) };
    };
    if listing.ours.contains(&FileName::Current) {
        // Other engines have a file of this name, too. Theirs is refused before a lock file is made,
        // so that their directory stays as it is.
        return read_current(vfs, dir).map(|_| ());
    }
    if let Some(foreign) = &listing.foreign {
        return not_a_store(format!("no CURRENT, but something else: {}", foreign.display()));
    }
    // A crash while the store was made leaves a log without records, and no table. With more than
    // that, the file that names the manifest has been lost.
    for name in &listing.ours {
        let holds_data = match name {
            FileName::Table(_) | FileName::Filter { .. } => true,
            FileName::Log(number) => {
                let path = name.path(dir);
                let mut reader = crate::wal::LogReader::open(vfs, &path, LogKind::Wal, *number)?;
                reader.furthest_synced_from(0)?.is_some()
            }
            _ => false,
        };
        if holds_data {
            let path = FileName::Current.path(dir);
            return Err(Error::Missing { path, named_by: format!("the presence of {name}") });
        }
    }
    if options.create_if_missing { Ok(()) } else { not_a_store("an empty directory".into()) }
}

fn lock(vfs: &dyn Vfs, dir: &Path) -> Result<Arc<dyn FileLock>> {
    let path: PathBuf = FileName::Lock.path(dir);
    match vfs.lock(&path) {
        Ok(lock) => Ok(Arc::from(lock)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Error::Locked { path }),
        Err(e) => Err(e).context("lock", &path),
    }
}

/// Opens all tables of a set, several at a time unless everything is to run on one thread.
fn open_tables(
    env: &Arc<TableEnv>,
    set: &TableSet,
    options: &Options,
) -> Result<Vec<(usize, OpenTable)>> {
    let entries: Vec<_> = set.tables.values().collect();
    let threads = if options.background_threads == 0 {
        1
    } else {
        available_parallelism().map_or(1, usize::from).min(OPENING_THREADS)
    };
    let next = AtomicUsize::new(0);
    let opened = Mutex::new(Vec::with_capacity(entries.len()));
    let open_table = |meta| match options.filter_memory {
        None => Table::open(env, meta),
        // Within a budget, what is to be resident is decided when all of them are known. What is
        // wrong with a filter shows only when it is read as a whole.
        Some(_) if options.strict_filters => Table::open(env, meta).map(|mut open| {
            open.filter = Arc::new(open.filter.not_resident());
            open
        }),
        Some(_) => Table::open_without_filter(env, meta),
    };
    let with_filter = options.filter_memory.is_none() || options.strict_filters;
    let announce = |number: usize| match entries.get(number) {
        Some((_, meta)) => Table::announce(env, meta, with_filter),
        None => Ok(()),
    };
    (0..ANNOUNCED).try_for_each(announce)?;
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((level, meta)) = entries.get(number) else { break };
            let table = announce(number + ANNOUNCED).and_then(|()| open_table(meta.clone()));
            let failed = table.is_err();
            opened.lock().push(table.map(|open| (*level, open)));
            if failed {
                break;
            }
        }
    };
    scope(|scope| {
        for _ in 1..threads.min(entries.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut tables = Vec::new();
    for table in std::mem::take(&mut *opened.lock()) {
        tables.push(table?);
    }
    tables.sort_by_key(|(_, open)| open.table.id());
    judge_filters(&tables, options)?;
    Ok(tables)
}

/// Tells of every degraded filter, and refuses the first if filters are to be strict.
fn judge_filters(tables: &[(usize, OpenTable)], options: &Options) -> Result<()> {
    let mut refused = None;
    for (_, open) in tables {
        if let FilterState::Degraded(reason) = &open.filter.state {
            let (path, offset) = open.filter_place();
            refused.get_or_insert_with(|| Error::corrupt(&path, offset, "a sound filter", reason));
            let (table, reason) = (open.table.id(), reason.clone());
            options.listener.tell(&Event::FilterDegraded { table, path, offset, reason });
        }
    }
    match refused {
        Some(error) if options.strict_filters => Err(error),
        _ => Ok(()),
    }
}

/// Replays the logs into memtables, and writes these to L0 tables.
fn replay_logs(
    env: &Arc<TableEnv>,
    listing: &Listing,
    options: &Options,
    recovered: &mut Recovered,
) -> Result<()> {
    let Recovered { store, set, tables, replayed: new, report } = recovered;
    let logs: Vec<u64> = listing.numbers(log_number).filter(|&log| log >= set.log).collect();
    let mut written: Vec<OpenTable> = Vec::new();
    let mut memtable = Arc::new(Memtable::new(0, None));
    let settings = options.table_settings(&options.filter);
    let mut version = Version::default().with(&[], tables, &env.ledger);
    let filters = FilterManager::new(options.filter, options.prefix);
    let mut flush = |memtable: &Arc<Memtable>, written: &mut Vec<OpenTable>| {
        let context = JobContext {
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
        *store,
        &logs,
        set.log,
        first_seq,
        |path, offset, seq, payload| {
            let changes = for_each_change(payload, seq, |entry| memtable.insert(entry));
            let changes =
                changes.ok_or_else(|| Error::corrupt(path, offset, "a batch", "something else"))?;
            if memtable.bytes() >= options.memtable_bytes {
                flush(&memtable, &mut written)?;
                memtable = Arc::new(Memtable::new(0, None));
            }
            Ok(changes)
        },
    )
    .and_then(|replayed| {
        if !memtable.is_empty() {
            flush(&memtable, &mut written)?;
        }
        Ok(replayed)
    })
    .inspect_err(|_| {
        // What is refused stays as it was.
        for open in &written {
            open.table.make_obsolete();
        }
    })?;
    report.logs = logs.len();
    report.changes = replayed.next_seq - first_seq;
    report.lost_tail = replayed.lost;
    set.flushed_seq = replayed.next_seq - 1;
    for open in written {
        set.tables.insert(open.table.id(), (0, open.record()));
        new.push(Arc::clone(&open.table));
        tables.push((0, open));
    }
    Ok(())
}

/// Removes our files that the manifest in force does not name; gives their number.
fn remove_unreferenced(vfs: &dyn Vfs, dir: &Path, set: &TableSet, manifest: u64) -> usize {
    let Ok(Some(listing)) = Listing::read(vfs, dir) else { return 0 };
    let unreferenced = listing.ours.into_iter().filter(|&name| !set.refers_to(name, manifest));
    // One that cannot be removed now goes at the next open.
    unreferenced.filter(|name| vfs.remove(&name.path(dir), name.kind()).is_ok()).count()
}

/// The id of a new store and the key of its hash: random, unless a seed fixes them.
fn new_identity(seed: Option<u64>) -> Result<(u64, HashKey)> {
    let mut bytes = [0; 8 + HashKey::BYTES];
    match seed {
        Some(seed) => {
            for (i, part) in bytes.chunks_exact_mut(8).enumerate() {
                // Outputs of SplitMix64: seeds that differ little give ids that differ much.
                let state = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                part.copy_from_slice(&mix(seed.wrapping_add(state)).to_le_bytes());
            }
        }
        None => getrandom::fill(&mut bytes).map_err(|e| Error::Io {
            action: "get random bytes".into(),
            path: PathBuf::from("the operating system"),
            source: Arc::new(io::Error::other(e.to_string())),
        })?,
    }
    let [store, key @ ..] = bytes.as_chunks::<8>().0 else { unreachable!("three times 8 bytes") };
    let mut secret = [0; HashKey::BYTES];
    secret.copy_from_slice(key.as_flattened());
    Ok((u64::from_le_bytes(*store), HashKey::new(secret)))
}
