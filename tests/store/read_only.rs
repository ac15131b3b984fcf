//! A store that is only read: nothing is changed, and beside a writer it shows a prefix of the writes with
//! everything synced.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};
use criba::{
    Batch, CheckpointFiles, Db, Durability, Error, Event, FilterInfo, FilterPolicy, Options,
    Reader, TableInfo,
};

use crate::common::{self, HookVfs};

/// Each write makes its number the value of both, and adds a key.
const ENDS: [&str; 2] = ["a first", "z last"];

fn key(number: u64) -> String {
    format!("key {number:06}")
}

fn write(db: &Db, number: u64, durability: Durability) {
    let mut batch = Batch::new();
    for end in ENDS {
        batch.put(end, number.to_le_bytes());
    }
    batch.put(key(number), [b'.'; 50]);
    if number > 40 {
        batch.delete(key(number - 40));
    }
    db.write_with(batch, durability).unwrap();
}

/// The number of the last write that is shown. All of it and of the writes before must be there, and nothing
/// of later ones.
fn shown(store: &dyn Reader) -> u64 {
    let last = |end: &str| {
        let value = store.get(end.as_bytes()).unwrap();
        value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
    };
    let number = last(ENDS[0]);
    let keys: Vec<_> = store.prefix(b"key ").map(|item| item.unwrap().0).collect();
    let first = number.saturating_sub(40) + 1;
    let expected: Vec<_> = (first..=number).map(key).collect();
    assert_eq!(keys.len(), expected.len(), "{number}: {keys:?}");
    assert!(keys.iter().zip(&expected).all(|(key, expected)| key == expected.as_str()));
    assert_eq!(last(ENDS[1]), number);
    number
}

fn small() -> Options {
    let options = common::options().memtable_bytes(4000).table_bytes(2000).level_base_bytes(5000);
    options.l0_compaction_trigger(2).block_bytes(256).cache_bytes(0)
}

/// A file layer that can only read, and its faults: none if it was only read.
fn readable() -> FaultVfs {
    let faults = FaultVfs::new(Arc::new(RealVfs));
    let allowed = [
        Operation::OpenDir,
        Operation::Identity,
        Operation::Open,
        Operation::Read,
        Operation::List,
        Operation::Length,
    ];
    let others = Operation::ALL.into_iter().filter(|operation| !allowed.contains(operation));
    faults.add(FaultRule::new(Fault::Io).operations(others).from_then_on());
    faults
}

/// Writes to a store in `dir`, and calls `check` before each operation of the file layer that this run tries.
/// `synced` is the number of writes that are synced. Returns the number of operations.
fn beside_each_operation(
    dir: &Path,
    synced: &Arc<AtomicU64>,
    check: impl Fn() + Send + Sync + 'static,
) -> u64 {
    let (operations, running) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let vfs = HookVfs::new({
        let (operations, running) = (Arc::clone(&operations), Arc::clone(&running));
        move |_, _| {
            if running.load(Ordering::SeqCst) {
                let number = operations.fetch_add(1, Ordering::SeqCst);
                if number % common::stride() as u64 == 0 {
                    check();
                }
            }
            Ok(())
        }
    });
    let options = || small().background_threads(0).vfs(Arc::clone(&vfs));
    let mut db = options().open(dir).unwrap();
    running.store(true, Ordering::SeqCst);
    for number in 1..=400 {
        let durability = if number % 7 == 0 { Durability::Synced } else { Durability::Buffered };
        write(&db, number, durability);
        match number {
            100 => db.compact().unwrap(),
            150 => _ = db.rebuild_filters(&common::another_policy()).unwrap(),
            200 | 300 => {
                db.close().unwrap();
                synced.store(number, Ordering::SeqCst);
                db = options().open(dir).unwrap();
            }
            _ => {}
        }
        if durability == Durability::Synced {
            synced.store(number, Ordering::SeqCst);
        }
    }
    db.close().unwrap();
    operations.load(Ordering::SeqCst)
}

#[test]
fn a_reader_opened_after_each_operation_of_a_writer_shows_all_that_is_synced() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let (faults, synced) = (readable(), Arc::new(AtomicU64::new(0)));
    let check = {
        let (dir, faults, synced) = (dir.clone(), faults.clone(), Arc::clone(&synced));
        move || {
            let store = small().vfs(faults.clone()).open_read_only(&dir).unwrap();
            let number = shown(&store);
            assert!(number >= synced.load(Ordering::SeqCst), "only {number}");
        }
    };
    let operations = beside_each_operation(&dir, &synced, check);
    println!("opened after each of {operations} operations");
    assert!(operations > 1000);
    assert!(faults.injected().is_empty(), "{:?}", faults.injected());
}

#[test]
fn a_refresh_after_each_operation_of_a_writer_goes_forward() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let (faults, synced) = (readable(), Arc::new(AtomicU64::new(0)));
    drop(small().open(&dir).unwrap());
    let store = small().vfs(faults.clone()).open_read_only(&dir).unwrap();
    let check = {
        let (store, synced) = (store.clone(), Arc::clone(&synced));
        let seen = Mutex::new((0, 0, store.snapshot()));
        move || {
            let mut seen = seen.lock().unwrap();
            let (last, of_snapshot, snapshot) = &mut *seen;
            let changed = store.refresh().unwrap();
            let number = shown(&store);
            assert!(number >= synced.load(Ordering::SeqCst).max(*last), "back to {number}");
            assert!(changed || number == *last);
            *last = number;
            if number >= *of_snapshot + 50 {
                // Tables of the snapshot are gone from the store.
                assert_eq!(shown(snapshot), *of_snapshot);
                (*of_snapshot, *snapshot) = (number, store.snapshot());
            }
        }
    };
    beside_each_operation(&dir, &synced, check);
    store.refresh().unwrap();
    assert_eq!((shown(&store), store.refresh().unwrap()), (400, false));
    assert!(faults.injected().is_empty(), "{:?}", faults.injected());
}

/// A writer with its own threads; the reader opens and refreshes all the time.
#[test]
fn beside_a_busy_writer_a_reader_shows_what_was_acknowledged_and_never_goes_back() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = small().background_threads(1).open(&dir).unwrap();
    let (acknowledged, begun) = (AtomicU64::new(0), AtomicU64::new(0));
    let (start, refreshed) = (Instant::now(), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    // Longer on a busy machine.
    let enough = || db.stats().activity.flushes > 20 && refreshed.load(Ordering::SeqCst) > 20;
    let opened = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                begun.store(number, Ordering::SeqCst);
                let synced = number % 50 == 0;
                write(&db, number, if synced { Durability::Synced } else { Durability::Buffered });
                acknowledged.store(number, Ordering::SeqCst);
                if number % 500 == 0 {
                    db.compact().unwrap();
                }
                let took = start.elapsed().as_secs();
                if took >= 60 || (took >= 2 && enough()) {
                    break;
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        let open = || small().open_read_only(&dir).unwrap();
        let (mut store, mut last) = (open(), 0);
        let mut opened = 1;
        while !done.load(Ordering::SeqCst) {
            let known = acknowledged.load(Ordering::SeqCst);
            if refreshed.fetch_add(1, Ordering::SeqCst) % 20 == 19 {
                store = open();
                opened += 1;
            } else {
                store.refresh().unwrap();
            }
            let number = shown(&store);
            assert!(number >= known.max(last), "{number}: back from {last}, known {known}");
            assert!(number <= begun.load(Ordering::SeqCst));
            last = number;
        }
        opened
    });
    let (activity, refreshed) = (db.stats().activity, refreshed.into_inner());
    println!(
        "{} writes, {} flushes, {} compactions; opened {opened} times, refreshed {refreshed} times",
        acknowledged.load(Ordering::SeqCst),
        activity.flushes,
        activity.compactions
    );
    assert!(activity.flushes > 20 && refreshed > 20);
}

fn fill(dir: &Path, tables: u64) -> Db {
    let db = small().background_threads(0).auto_compaction(false).open(dir).unwrap();
    for table in 0..tables {
        for number in 0..10 {
            db.put(key(10 * table + number), "value").unwrap();
        }
        db.flush().unwrap();
    }
    db
}

#[test]
fn tables_that_the_writer_removed_stay_readable() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = fill(&dir, 5);
    let store = small().open_read_only(&dir).unwrap();
    let (snapshot, scan) = (store.snapshot(), store.iter());
    for number in 0..50 {
        db.delete(key(number)).unwrap();
    }
    db.compact().unwrap();
    let value = |store: &dyn Fn(String) -> bool| (0..50).all(|number| store(key(number)));
    assert!(value(&|key| store.contains(key).unwrap()));
    assert!(store.refresh().unwrap());
    assert!(value(&|key| !store.contains(key).unwrap()));
    assert!(value(&|key| snapshot.contains(key).unwrap()));
    assert_eq!(scan.flatten().count(), 50);
}

#[test]
fn more_tables_than_open_files_are_refused_and_files_of_dropped_tables_are_closed() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = fill(&dir, 5);
    let open = |files| small().max_open_files(files).open_read_only(&dir);
    match open(4) {
        Err(Error::InvalidOption { option: "max_open_files", reason }) => {
            assert!(reason.contains("4 is less than 5"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let vfs = HookVfs::new(|_, _| Ok(()));
    let files = || vfs.open_files(FileKind::Table);
    let store = small().max_open_files(5).vfs(Arc::clone(&vfs)).open_read_only(&dir).unwrap();
    let snapshot = store.snapshot();
    assert_eq!(files(), 5);
    db.put("another", "").unwrap();
    db.flush().unwrap();
    assert!(matches!(store.refresh(), Err(Error::InvalidOption { .. })));
    assert!(store.get("another").unwrap().is_none(), "after an error it stays as it was");
    db.compact().unwrap();
    assert!(store.refresh().is_err(), "the snapshot holds five, and there is a new one");
    drop(snapshot);
    assert!(store.refresh().is_err(), "the store holds five");
    drop(store);
    assert_eq!(files(), 0);
    assert!(open(1).unwrap().contains("another").unwrap());
}

/// The writer records in the manifest that the store has expiring entries when the reader has read the old one.
#[test]
fn the_first_expiring_entry_comes_between_the_manifest_and_the_log() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = Db::open(&dir).unwrap();
    db.put("stays", "").unwrap();
    let (writer, is_first) = (db.clone(), AtomicBool::new(true));
    let vfs = HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Wal, Operation::Open)
            && is_first.swap(false, Ordering::SeqCst)
        {
            writer.put_with_expiry("over", "", writer.now()).unwrap();
        }
        Ok(())
    });
    let store = Options::new().vfs(vfs).open_read_only(&dir).unwrap();
    assert!(db.contains("stays").unwrap() && !db.contains("over").unwrap());
    assert!(store.contains("stays").unwrap() && !store.contains("over").unwrap());
    assert_eq!(store.recovery().changes, 2);
    assert!(store.has_expiries());
    let copy = parent.path().join("copy");
    store.checkpoint(&copy, CheckpointFiles::default()).unwrap();
    let copy = Options::new().open_read_only(copy).unwrap();
    assert!(copy.has_expiries() && copy.keys().count() == 1);
}

#[test]
fn a_refresh_that_fails_keeps_no_more_files_open() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = fill(&dir, 1);
    let vfs = HookVfs::new(|_, _| Ok(()));
    let store = small().max_open_files(4).vfs(Arc::clone(&vfs)).open_read_only(&dir).unwrap();
    for table in 1..4 {
        db.put(key(table * 10), "value").unwrap();
        db.flush().unwrap();
    }
    let newest = db.tables().iter().map(|table| table.id).max().unwrap();
    let (path, away) = (dir.join(format!("{newest:06}.sst")), parent.path().join("away"));
    std::fs::rename(&path, &away).unwrap();
    assert!(matches!(store.refresh(), Err(Error::Missing { .. })));
    assert_eq!(vfs.open_files(FileKind::Table), 1);
    std::fs::rename(&away, &path).unwrap();
    assert!(store.refresh().unwrap());
}

#[test]
fn a_refresh_after_files_were_restored_from_a_checkpoint_shows_the_restored_store() {
    let parent = common::tempdir();
    let (dir, saved) = (parent.path().join("store"), parent.path().join("saved"));
    let write = |db: &Db, value: &str, tables| {
        for number in 0..tables {
            db.put(key(number), value).unwrap();
            db.flush().unwrap();
        }
    };
    let db = fill(&dir, 1);
    db.checkpoint(&saved).unwrap();
    write(&db, "lost", 10);
    let store = small().open_read_only(&dir).unwrap();
    db.close().unwrap();
    common::copy_dir(&saved, &dir); // removes the other files
    let db = small().background_threads(0).auto_compaction(false).open(&dir).unwrap();
    write(&db, "restored", 12);
    assert!(store.refresh().unwrap());
    for number in 0..12 {
        assert_eq!(store.get(key(number)).unwrap().unwrap(), "restored", "{number}");
    }
}

#[test]
fn a_refresh_does_not_follow_the_path_to_another_directory() {
    let parent = common::tempdir();
    let (dir, moved) = (parent.path().join("store"), parent.path().join("moved"));
    let db = fill(&dir, 1);
    db.checkpoint(parent.path().join("other")).unwrap();
    let store = small().open_read_only(&dir).unwrap();
    std::fs::rename(&dir, &moved).unwrap();
    db.put("later", "").unwrap();
    let refused = || {
        let error = store.refresh().unwrap_err();
        assert!(matches!(&error, Error::Moved { path, .. } if *path == dir), "{error}");
        assert!(!store.contains("later").unwrap());
    };
    refused();
    std::fs::rename(parent.path().join("other"), &dir).unwrap();
    refused();
    std::fs::remove_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(&moved, &dir).unwrap();
    assert!(store.refresh().unwrap() && store.contains("later").unwrap(), "the same directory");
}

#[test]
fn what_is_not_a_store_is_refused() {
    let parent = common::tempdir();
    let file = parent.path().join("file");
    std::fs::write(&file, "").unwrap();
    for missing in [parent.path().to_owned(), parent.path().join("nothing"), file] {
        let refused = small().open_read_only(missing);
        assert!(matches!(refused, Err(Error::NotAStore { .. })), "{refused:?}");
    }
    let dir = parent.path().join("store");
    drop(fill(&dir, 1));
    assert!(small().memory_limit(1000).open_read_only(&dir).is_err());
}

#[test]
fn a_filter_budget_leaves_what_it_leaves_of_an_open_store() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let options = || common::options().background_threads(0).auto_compaction(false);
    let db = options().filter(FilterPolicy::ribbon()).open(&dir).unwrap();
    for table in 0..3 {
        (0..8000).for_each(|number| db.put(key(3 * number + table), "").unwrap());
        db.flush().unwrap();
    }
    let rates = |tables: &[TableInfo]| -> Vec<_> {
        tables.iter().map(|table| (table.id, table.filter.clone())).collect()
    };
    for budget in [0, 12_288, 24_576, 1 << 20] {
        db.set_filter_memory(Some(budget)).unwrap();
        let store = options().vfs(readable()).filter_memory(budget).open_read_only(&dir).unwrap();
        assert_eq!(rates(&store.tables()), rates(&db.tables()), "{budget}");
        let memory = store.memory().filters;
        assert!(memory.resident <= budget && memory.budget == Some(budget), "{memory:?}");
        assert_eq!(memory.stored, db.memory().filters.stored);
        db.put("another", "").unwrap();
        assert!(store.refresh().unwrap() && store.contains("another").unwrap());
        db.delete("another").unwrap();
    }
    assert!(db.memory().filters.stored < 1 << 20);
}

/// The writer removes the file after the reader has read its name and before it opens it.
fn opened_while_files_of(kind: FileKind) {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = fill(&dir, 3);
    db.put("in the log", "").unwrap();
    db.rebuild_filters(&FilterPolicy::bits_per_key(6.0)).unwrap(); // into files of their own
    let first = Arc::new(AtomicBool::new(true));
    let waits = Arc::clone(&first);
    let vfs = HookVfs::new(move |of, operation| {
        if (of, operation) == (kind, Operation::Open) && first.swap(false, Ordering::SeqCst) {
            db.rebuild_filters(&FilterPolicy::bits_per_key(7.0)).unwrap();
            if kind != FileKind::Filter {
                db.compact().unwrap();
            }
        }
        Ok(())
    });
    let store = small().vfs(vfs).open_read_only(&dir).unwrap();
    assert!(!waits.load(Ordering::SeqCst), "{kind:?}: none was opened");
    assert_eq!(store.iter().flatten().count(), 31);
    let degraded = |filter: &FilterInfo| matches!(filter, FilterInfo::Degraded { .. });
    assert!(!store.tables().iter().any(|table| degraded(&table.filter)), "{:?}", store.tables());
}

#[test]
fn what_is_gone_before_it_is_opened_is_looked_for_again() {
    for kind in [FileKind::Manifest, FileKind::Wal, FileKind::Table, FileKind::Filter] {
        opened_while_files_of(kind);
    }
}

/// The first attempt lists the directory before the writer makes a log, the second after it is removed.
/// Between the two the manifest does not change.
#[test]
fn a_log_that_is_made_and_removed_between_two_listings_is_not_missing() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let (go, waits) = mpsc::channel();
    let (comes, edits) = mpsc::channel();
    let (ended, flushes) = mpsc::channel();
    let (opened, waits) = (Arc::new(AtomicBool::new(false)), Mutex::new(waits));
    let writer = HookVfs::new({
        let opened = Arc::clone(&opened);
        move |of, operation| {
            let edit = (of, operation) == (FileKind::Manifest, Operation::Append);
            if edit && opened.load(Ordering::SeqCst) {
                let _ = comes.send(());
                let _ = waits.lock().unwrap().recv_timeout(Duration::from_secs(10));
            }
            Ok(())
        }
    });
    let options = common::options().background_threads(1).memtable_bytes(4000).vfs(writer);
    let db = options.on_event(move |event| {
        if matches!(event, Event::FlushEnded { .. }) {
            let _ = ended.send(());
        }
    });
    let db = db.open(&dir).unwrap();
    db.put("before", "").unwrap();
    opened.store(true, Ordering::SeqCst);

    let (edits, flushes) = (Mutex::new(edits), Mutex::new(flushes));
    let done = Arc::new(Mutex::new(Vec::new()));
    let steps = Arc::clone(&done);
    let reader = HookVfs::new(move |of, operation| {
        let mut steps = steps.lock().unwrap();
        let wait_for_flush = || flushes.lock().unwrap().recv().unwrap();
        match (steps.len(), of, operation) {
            // The listing is read. The log is sealed, and the next one made; its flush waits.
            (0, FileKind::Wal, Operation::Open) => {
                (0..10).for_each(|number| db.put([number], [0; 500]).unwrap());
                edits.lock().unwrap().recv().unwrap();
            }
            // The manifest's length is read, the manifest is not.
            (1 | 2, FileKind::Current, Operation::Open) => {
                if steps.len() == 2 {
                    go.send(()).unwrap();
                    wait_for_flush();
                }
            }
            // The manifest is read: it names the new log.
            (3, _, Operation::List) => {
                go.send(()).unwrap();
                db.flush().unwrap();
                wait_for_flush();
            }
            _ => return Ok(()),
        }
        steps.push(operation);
        Ok(())
    });
    let store = common::options().vfs(reader).open_read_only(&dir).unwrap();
    assert_eq!(done.lock().unwrap().len(), 4);
    assert_eq!(store.iter().flatten().count(), 11);
}

/// Only half of an append is written: the record, and not the zeros after it. A reader sees it before it is
/// cut off.
fn a_lost_batch_is_seen(changes: usize) {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let reader: Arc<Mutex<Option<criba::ReadOnlyDb>>> = Arc::default();
    let hook = {
        let reader = Arc::clone(&reader);
        move |of, operation| {
            if let Some(store) = &*reader.lock().unwrap()
                && (of, operation) == (FileKind::Wal, Operation::SetLength)
            {
                store.refresh().unwrap();
            }
            Ok(())
        }
    };
    let faults = FaultVfs::new(HookVfs::new(hook));
    let options = common::options().background_threads(0);
    let db = options.clone().vfs(faults.clone()).open(&dir).unwrap();
    db.put_with("before", "", Durability::Synced).unwrap();
    let store = options.open_read_only(&dir).unwrap();
    *reader.lock().unwrap() = Some(store.clone());
    let writes = [Operation::Append, Operation::Write];
    faults.add(FaultRule::new(Fault::ShortWrite).operations(writes));
    let mut batch = Batch::new();
    (0..changes).for_each(|number| _ = batch.put(format!("lost {number}"), ""));
    db.write_with(batch, Durability::Synced).unwrap_err();
    assert!(store.contains("lost 0").unwrap(), "it was seen");
    *reader.lock().unwrap() = None;
    db.put_with("kept", "", Durability::Synced).unwrap();
    assert!(store.refresh().unwrap());
    assert!(store.contains("kept").unwrap(), "what is synced is shown");
}

#[test]
fn a_write_that_failed_after_it_was_seen_hides_no_later_one() {
    // The later write has the same number, or a smaller one.
    [1, 3].into_iter().for_each(a_lost_batch_is_seen);
}
