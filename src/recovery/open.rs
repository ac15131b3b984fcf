//! Opening a store: check the directory, lock it, read the manifest, replay the logs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open_tables::{check_filters, check_memory, open_tables};
use crate::clock::StoreTime;
use crate::compaction::{MergeContext, write_memtable};
use crate::directory::{Listing, is_foreign, not_a_store, open_locked};
use crate::engine::background::{compact_while_due, load_filters_within_budget, start_threads};
use crate::engine::commit_queue::CommitQueue;
use crate::engine::earlier_logs::EarlierLogs;
use crate::engine::health::Health;
use crate::engine::inner::DbInner;
use crate::engine::next_log::NextLog;
use crate::engine::sequences::Sequences;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::filter::FilterPolicy;
use crate::filter_manager::FilterManager;
use crate::fork;
use crate::key::EntryKind;
use crate::ledger::LatencyCounters;
use crate::memtable::{Memtable, MemtableFilter};
use crate::names::FileName;
use crate::options::Options;
use crate::poison::Poison;
use crate::random::{Purpose, RandomSource};
use crate::sealed::Seal;
use crate::sstable::{BlockCache, FilePool, FilterMemory, OpenTable, TableEnv, TableWriter};
use crate::store_dir::{StoreDir, absolute};
use crate::sync::{AtomicBool, AtomicU64, Mutex};
use crate::version::{
    Manifest, StoreSettings, TableSet, Version, is_temporary_current, read_current,
};
use crate::vfs::FileLock;
use crate::view::hole::LastHole;
use crate::view::{ReadView, Views};
use crate::wal::{LogError, LogKind, LogReader, LogWriter, LostTail, replay};
use criba_filter::store::{HashKey, shown};

/// What opening a store found and repaired.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Logs read.
    pub logs: usize,
    /// The stored policy, if it has blocked filters, which stores no longer have: Bloom filters of the same bits
    /// take their place.
    pub replaced_policy: Option<FilterPolicy>,
    /// Entries replayed from logs into tables.
    pub changes: u64,
    /// Unsynced writes at the end of the logs that a crash cut short.
    pub lost_tail: Option<LostTail>,
    /// An edit at the end of the manifest that a crash cut short.
    pub lost_edit: Option<LostTail>,
    /// Removed files that nothing refers to any more, such as the log and the manifest of the last session.
    pub removed_files: usize,
    /// Files that nothing refers to and that are of another store. They stay.
    pub kept_files: Vec<PathBuf>,
    /// Files that nothing refers to, in a store that is only read. The next opening to write removes them,
    /// unless a writer is making them.
    pub unreferenced_files: usize,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            logs,
            changes,
            lost_tail,
            lost_edit,
            replaced_policy,
            removed_files,
            kept_files,
            ..
        } = self;
        write!(f, "logs: {logs} read, {changes} changes replayed; {removed_files} files removed")?;
        for (what, lost) in [("write", lost_tail), ("edit of the manifest", lost_edit)] {
            if let Some(lost) = lost {
                write!(f, "\ndropped: an unsynced {what} that a crash cut short: {lost}")?;
            }
        }
        if let Some(stored) = replaced_policy {
            write!(f, "\nreplaced policy: {stored}; stores no longer have this kind")?;
        }
        for kept in kept_files {
            write!(f, "\nkept: {}, a file of another store", shown(kept))?;
        }
        Ok(())
    }
}

struct Recovered {
    env: Arc<TableEnv>,
    set: TableSet,
    filters: StoreSettings,
    tables: Vec<(usize, OpenTable)>,
    /// The first `opened` tables were opened. The others were written from logs.
    opened: usize,
    report: RecoveryReport,
}

pub(crate) fn open(path: &Path, options: Options) -> Result<(Arc<DbInner>, RecoveryReport)> {
    let path = absolute(path)?;
    let (dir, lock) = open_locked(|| find_or_make(&path, &options), StoreDir::lock)?;
    open_in(dir, lock, options)
}

/// Opens a directory in which a store is, or may be made. Changes nothing in an existing directory.
fn find_or_make(path: &Path, options: &Options) -> Result<StoreDir> {
    if let Some(dir) = StoreDir::open(&options.vfs, path, options.file_mode)? {
        let listing = Listing::read(&dir)?;
        check_directory(&dir, &listing, options)?;
        if listing.ours.contains(&FileName::Current) {
            return Ok(dir);
        }
    } else if !options.create_if_missing {
        return Err(not_a_store(path, "nothing"));
    }
    check_memory(path, options, 0, std::iter::empty())?;
    StoreDir::make(&options.vfs, path, options.file_mode)
}

/// Opens or makes the store in a locked directory.
pub(crate) fn open_in(
    dir: StoreDir,
    lock: Arc<dyn FileLock>,
    options: Options,
) -> Result<(Arc<DbInner>, RecoveryReport)> {
    fork::watch()?;
    let poison = Poison::default();
    let dir = dir.watched(&*lock, poison.clone())?;
    // Again: the last holder of the lock may have changed the directory.
    let listing = Listing::read(&dir)?;
    check_directory(&dir, &listing, &options)?;

    let Recovered { env, mut set, filters, tables, opened, mut report } =
        recover(&dir, &listing, &options)?;

    // A new log, then a new manifest that names all tables, then `CURRENT` in one step. Before that, no
    // existing file is changed.
    let number = env.new_file_number();
    let manifest_number = env.new_file_number();
    set.log = number;
    set.next_file = env.next_file();
    let made = LogWriter::create_wal(&dir, (env.store, &env.hash_key), number, true)
        .and_then(|log| {
            Ok((log, Manifest::create(&dir, manifest_number, env.store, env.random, set)?))
        })
        .inspect_err(|_| discard(tables[opened..].iter().map(|(_, open)| open)));
    let (log, mut manifest) = made?;
    match manifest.make_current(&dir) {
        Ok(()) => {}
        Err(LogError::Refused(error)) => {
            // The old manifest is in force. The new files would only take space, which a full disk lacks.
            discard(tables[opened..].iter().map(|(_, open)| open));
            return Err(error);
        }
        Err(LogError::Broken(error)) => {
            log.keep();
            return Err(error);
        }
    }
    let log = log.keep();
    log.watch();

    let set = manifest.set();
    remove_unreferenced(&env, set, manifest_number, &mut report);
    let next_seq = set.flushed_seq + 1;
    let version = Version::default().with(&[], &tables, &env.ledger);
    // So that only the view holds the filters: the budget waits for other holders.
    drop(tables);
    let filter = MemtableFilter::new(filters.policy.hash_function(), env.hash_key);
    let view = ReadView {
        memtable: Arc::new(Memtable::new(number, next_seq, Some(filter))),
        sealed: vec![],
        version: Arc::new(version),
        hole: LastHole::default(),
    };
    let inner = Arc::new(DbInner {
        filters: FilterManager::new(filters),
        env,
        health: Health::new(lock, poison),
        views: Views::new(view, options.background_threads > 0),
        sequences: Sequences::new(next_seq - 1),
        commits: CommitQueue::new(log.fill_ahead(options.log_fill()), next_seq),
        earlier_logs: EarlierLogs::default(),
        next_log: NextLog::default(),
        manifest: Mutex::new(manifest),
        installing: Mutex::default(),
        scheduler: Arc::default(),
        auto_compaction: AtomicBool::new(options.auto_compaction),
        latencies: options.latencies.then(LatencyCounters::default),
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

fn recover(dir: &StoreDir, listing: &Listing, options: &Options) -> Result<Recovered> {
    let random = RandomSource::new(options.seed);
    let current = read_current(dir)?;
    let (mut set, store, lost_edit) = match current {
        Some(number) => Manifest::read(dir, number)?,
        None => {
            let (store, hash_key) = new_identity(random)?;
            (TableSet::new(hash_key, StoreSettings::default()), store, None)
        }
    };
    listing.check_numbers(dir, set.next_file)?;
    let filters = options.store_settings(set.settings);
    let time = StoreTime::new(&options.clock, options.accept_clock, set.time, filters.default_ttl)?;
    let behind = time.behind(set.time);
    // A copy has no clock: at its next opening it says what the other store would say.
    time.go_on_from(options.time_of_another);
    if filters.default_ttl.is_some() {
        time.begin();
    }
    set.time = time.recorded();
    let highest = listing.ours.iter().filter_map(|name| name.number()).max().unwrap_or(0);
    let env = Arc::new(TableEnv {
        random,
        files: FilePool::new(options.max_open_files, options.read_ahead),
        cache: BlockCache::new(options.cache_bytes, options.block_bytes),
        filter_memory: FilterMemory::new(options.filter_memory, Seal::for_files_of(dir)),
        next_file: AtomicU64::new(set.next_file.max(highest + 1)),
        time,
        ..TableEnv::new(dir, store, set.hash_key)
    });
    let replaced_policy = options.replaced_policy(set.settings);
    set.replace_settings(filters);
    let entries: Vec<_> = set.tables.values().cloned().collect();
    let tables = open_tables(&env, &entries, options)?;
    check_filters(&tables, options)?;
    let opened = tables.len();
    if let Some(stored) = replaced_policy {
        options.listener.notify(&Event::PolicyReplaced { stored, policy: filters.policy });
    }
    if let Some((clock, recorded)) = behind {
        options.listener.notify(&Event::ClockBehind { clock, recorded });
    }
    let report = RecoveryReport { replaced_policy, lost_edit, ..RecoveryReport::default() };
    if let Err(reason) = filters.policy.check_memory() {
        let reason = format!("{reason}; open the store with another policy");
        return Err(Error::InvalidOption { option: "filter", reason });
    }
    let mut recovered = Recovered { env, set, filters, tables, opened, report };
    if current.is_some() {
        replay_logs(listing, options, &mut recovered)?;
        let Recovered { env, tables, .. } = &recovered;
        let filters = tables.iter().map(|(_, open)| open.filter.meta);
        check_memory(dir.path(), options, env.index_memory.bytes(), filters)
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

/// Refuses a directory in which no store is, and none can be made.
pub(crate) fn check_directory(dir: &StoreDir, listing: &Listing, options: &Options) -> Result<()> {
    if listing.ours.contains(&FileName::Current) {
        // Other engines have a `CURRENT`, too. `read_current` refuses their directory before a lock file is
        // made in it.
        return read_current(dir).map(|_| ());
    }
    let other =
        |name: &str| Err(not_a_store(dir.path(), format!("no CURRENT, but another file: {name}")));
    // Names that are no file of a store in any spelling are of no account, such as `lost+found`.
    if let Some(foreign) = listing.foreign.iter().find(|name| FileName::is_like_one(name)) {
        return other(&shown(foreign).to_string());
    }
    // A crash during the creation of a store leaves no table, and only a log without records.
    for &name in &listing.ours {
        let missing = || {
            let (path, named_by) =
                (dir.path_of(FileName::Current), format!("the presence of {name}"));
            Err(Error::Missing { path, named_by })
        };
        let (kind, number) = match name {
            FileName::Table(_) | FileName::Filter { .. } => return missing(),
            FileName::Log(number) => (LogKind::Wal, number),
            FileName::Manifest(number) => (LogKind::Manifest, number),
            FileName::CurrentTemp if !is_temporary_current(dir)? => {
                return other(&name.to_string());
            }
            FileName::Current | FileName::CurrentTemp | FileName::Lock => continue,
        };
        let mut log = LogReader::open(dir, kind, number, None)?;
        let header = log.header()?;
        if kind == LogKind::Wal && log.furthest_synced_from(0)?.is_some() {
            return missing();
        }
        // A header is synced before anything follows it. So this is damage, or a file of another program.
        if header.is_err() && !log.may_be_unsynced_header()? {
            return other(&name.to_string());
        }
    }
    if options.create_if_missing {
        return Ok(());
    }
    let found = match listing.foreign.first() {
        None => "an empty directory".into(),
        Some(name) => format!("only other files, such as {}", shown(name)),
    };
    Err(not_a_store(dir.path(), found))
}

fn replay_logs(listing: &Listing, options: &Options, recovered: &mut Recovered) -> Result<()> {
    let Recovered { env, set, filters, tables, report, .. } = recovered;
    let env = &*env;
    let logs = listing.logs(env, set.log, set.flushed_seq + 1);
    let mut written: Vec<OpenTable> = Vec::new();
    let mut memtable = Arc::new(Memtable::new(0, 0, None));
    let settings = options.table_settings(filters);
    let mut version = Version::default().with(&[], tables, &env.ledger);
    let filters = FilterManager::new(*filters);
    let mut flush = |memtable: &Arc<Memtable>| {
        let filter_for =
            |table: &TableWriter| filters.recipe_for_flush(&version, table.key_counts());
        let context = MergeContext::of_flush(env, &settings, &filter_for, options.ignore_filters);
        let new = write_memtable(memtable, |_| false, &context)?;
        let added: Vec<_> = new.iter().map(|open| (0, open.clone())).collect();
        version = version.with(&[], &added, &env.ledger);
        written.extend(new);
        Ok::<_, Error>(())
    };
    let replayed = replay(&logs, |record| {
        let entries = record.for_each_entry(|entry| {
            // The manifest says so before the first one is written; but it may be an earlier one that was put back.
            if entry.kind == EntryKind::Expiring {
                env.time.begin();
            }
            memtable.insert(entry);
        })?;
        if memtable.bytes() >= options.memtable_bytes {
            flush(&memtable)?;
            memtable = Arc::new(Memtable::new(0, 0, None));
        }
        Ok(entries)
    })
    .and_then(|replayed| {
        if !memtable.is_empty() {
            flush(&memtable)?;
        }
        Ok(replayed)
    })
    .inspect_err(|_| {
        discard(&written);
    })?;
    report.logs = logs.numbers.len();
    report.changes = replayed.next_seq - logs.first_seq;
    report.lost_tail = replayed.lost;
    set.flushed_seq = replayed.next_seq - 1;
    set.time = env.time.recorded();
    for open in written {
        set.tables.insert(open.table.id(), (0, open.record()));
        tables.push((0, open));
    }
    Ok(())
}

/// Removes files that the manifest does not name. A file that soundly names another store stays.
fn remove_unreferenced(env: &TableEnv, set: &TableSet, manifest: u64, report: &mut RecoveryReport) {
    let Ok(listing) = Listing::read(&env.dir) else { return };
    for name in listing.ours.into_iter().filter(|&name| !set.refers_to(name, manifest)) {
        match is_foreign(env, name) {
            Ok(true) => report.kept_files.push(env.path_of(name)),
            Ok(_) if env.dir.remove(name).is_ok() => report.removed_files += 1,
            _ => {} // the next open decides, or removes it
        }
    }
}

fn new_identity(random: RandomSource) -> Result<(u64, HashKey)> {
    let store = random.number(Purpose::StoreId)?;
    let mut hash_key = [0; HashKey::BYTES];
    for (half, bytes) in (0..).zip(hash_key.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&random.number(Purpose::HashKey { half })?.to_le_bytes());
    }
    Ok((store, HashKey::new(hash_key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Edit;
    use crate::{Allocation, CheckpointFiles, Db, FilterInfo, FilterKind};

    /// A store with a stored policy of blocked filters, as older stores may have.
    fn of_blocked_filters(dir: &Path, amount: FilterPolicy) -> Result<FilterPolicy> {
        let db = Options::new().background_threads(0).open(dir)?;
        db.put("key", "value")?;
        let inner = db.inner()?;
        let policy = amount.with_kind(FilterKind::Blocked);
        let settings = StoreSettings { policy, ..inner.filters.settings() };
        let edit = Edit { settings: Some(settings), ..Edit::default() };
        let recorded = inner.manifest.lock().record(&edit);
        assert!(recorded.is_ok());
        db.close()?;
        Ok(policy)
    }

    #[test]
    fn bloom_filters_of_the_same_bits_take_the_place_of_stored_blocked_ones() -> Result<()> {
        for (bloom, first_bits) in [
            (FilterPolicy::bits_per_key(12.5).with_allocation(Allocation::Uniform), Some(13)),
            (FilterPolicy::rate(0.001), None),
            (FilterPolicy::default().with_total_bytes(50_000), None),
        ] {
            let dir = crate::tempdir::tempdir();
            let stored = of_blocked_filters(dir.path(), bloom)?;
            let read_only = Options::new().open_read_only(dir.path())?;
            assert_eq!(read_only.policy(), bloom);
            assert_eq!(read_only.recovery().replaced_policy, Some(stored));
            drop(read_only);

            let events = Arc::new(Mutex::new(Vec::new()));
            let heard = Arc::clone(&events);
            let options = Options::new().background_threads(0);
            let options = options.on_event(move |event| heard.lock().push(event.clone()));
            let db = options.clone().open(dir.path())?;
            assert_eq!(db.policy(), bloom);
            assert_eq!(db.recovery().replaced_policy, Some(stored));
            let replaced = |event: &Event| {
                matches!(event, Event::PolicyReplaced { stored: old, policy }
                    if (*old, *policy) == (stored, bloom))
            };
            assert_eq!(events.lock().iter().filter(|event| replaced(event)).count(), 1);
            assert_kind(&db, first_bits);
            db.close()?;
            events.lock().clear();

            // From now on it is the store's policy.
            let db = options.open(dir.path())?;
            assert_eq!((db.policy(), db.recovery().replaced_policy), (bloom, None));
            assert!(!events.lock().iter().any(replaced));
        }
        Ok(())
    }

    #[test]
    fn copies_of_a_store_of_blocked_filters_have_bloom_filters() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let [store, backup, repaired] =
            ["store", "backup", "repaired"].map(|name| dir.path().join(name));
        of_blocked_filters(&store, FilterPolicy::default())?;
        let files = CheckpointFiles::default();
        Options::new().open_read_only(&store)?.checkpoint(&backup, files)?;
        assert!(crate::repair(&store, &repaired, crate::Uncertain::default())?.policy_known);
        for copy in [backup, repaired] {
            let db = Options::new().background_threads(0).open(copy)?;
            assert_eq!(
                (db.policy(), db.recovery().replaced_policy),
                (FilterPolicy::default(), None)
            );
            assert_eq!(db.get("key")?.as_deref(), Some(&b"value"[..]));
            assert_kind(&db, None);
        }
        Ok(())
    }

    fn assert_kind(db: &Db, bits: Option<u64>) {
        let [table] = db.tables().try_into().expect("the table of the log");
        let FilterInfo::Active { kind, geometry, .. } = table.filter else { panic!("{table:?}") };
        assert_eq!(kind, FilterKind::Bloom);
        assert!(bits.is_none_or(|bits| geometry.m == bits), "{geometry:?}");
    }

    #[test]
    fn an_option_replaces_a_stored_policy_of_blocked_filters_without_an_event() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        of_blocked_filters(dir.path(), FilterPolicy::default())?;
        let options = Options::new().background_threads(0).filter(FilterPolicy::ribbon());
        let options = options.on_event(|event| {
            assert!(!matches!(event, Event::PolicyReplaced { .. }), "{event}");
        });
        let db = options.open(dir.path())?;
        assert_eq!((db.policy(), db.recovery().replaced_policy), (FilterPolicy::ribbon(), None));
        Ok(())
    }
}
