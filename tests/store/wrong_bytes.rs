//! The disk returns wrong bytes and success. In every kind of block each byte is wrong in turn: a checksum
//! detects it, and the error names the file and an offset, or a filter is degraded and reported. Nothing
//! wrong is cached: the next read of the block succeeds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, SimDisk, SimVfs};
use criba::{Db, Error, Event, FilterInfo, FilterPolicy, Options};

use crate::common::{self, written};

const DIR: &str = "/store";

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    common::options()
        .background_threads(0)
        .auto_compaction(false)
        .memtable_bytes(8192)
        .block_bytes(256)
        .max_open_files(1)
        .seed(7)
}

fn contents(db: &Db) -> criba::Result<Contents> {
    let items = db.iter();
    items.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

/// A disk with an unclosed store that has every kind of block: two tables, one with its filter in a
/// separate file, and a log of several records, the last one synced.
fn store() -> (SimDisk, Contents) {
    let vfs = SimVfs::new();
    let db = options().vfs(Arc::new(vfs.clone())).open(DIR).unwrap();
    let mut expected = Contents::new();
    let mut put = |db: &Db, key: String| {
        let value = format!("the value of {key}");
        db.put(&key, &value).unwrap();
        expected.insert(key.into_bytes(), value.into_bytes());
    };
    (0..30).for_each(|number| put(&db, format!("first {number:03}")));
    db.flush().unwrap();
    db.rebuild_filters(&common::another_policy()).unwrap();
    (0..30).for_each(|number| put(&db, format!("second {number:03}")));
    db.flush().unwrap();
    for number in 0..6 {
        put(&db, format!("third {number:03}"));
        if number % 2 == 0 {
            db.sync().unwrap();
        }
    }
    db.sync().unwrap();
    (vfs.disk(), expected)
}

/// The results of the reads of one kind of block.
#[derive(Debug, Default, PartialEq)]
struct Outcomes {
    reads: u64,
    flips: u64,
    errors: u64,
    degraded: u64,
    /// Wrong zeros behind the records of a log: the right answer, and nothing to report.
    harmless: u64,
}

/// The file and the offset in an error.
fn place(error: &Error) -> (PathBuf, u64) {
    match error {
        Error::Corrupt { path, offset, .. } => (path.clone(), *offset),
        Error::Unsupported { path, .. } => (path.clone(), 0),
        other => panic!("{other:?}"),
    }
}

/// The length of a file; a file written and read back meanwhile may be gone.
fn length(disk: &SimDisk, path: &Path) -> u64 {
    disk.read(path).map_or(u64::MAX, |bytes| bytes.len() as u64)
}

/// Opens the store with one wrong byte in the `skip`th read of a file of this kind.
fn open_misread(
    disk: &SimDisk,
    kind: FileKind,
    skip: u64,
    bit: u64,
) -> (criba::Result<Db>, Misread) {
    let vfs = SimVfs::on(disk.clone());
    let faults = FaultVfs::new(Arc::new(vfs.clone()));
    let wrong = FaultRule::new(Fault::FlippedBit(bit)).operations([Operation::Read]).kinds([kind]);
    faults.add(wrong.skip(skip));
    let events = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&events);
    let options = options().on_event(move |event| {
        assert!(matches!(event, Event::FilterDegraded { .. }));
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let opened = options.vfs(Arc::new(faults.clone())).open(DIR);
    (opened, Misread { vfs, faults, events })
}

struct Misread {
    vfs: SimVfs,
    faults: FaultVfs,
    events: Arc<AtomicUsize>,
}

/// The files of a kind and the lengths of their reads at opening.
fn reads_at_opening(disk: &SimDisk, kind: FileKind) -> Vec<(PathBuf, u64)> {
    let mut reads = Vec::new();
    loop {
        let (opened, misread) = open_misread(disk, kind, reads.len() as u64, 0);
        drop(opened);
        let Some(injected) = misread.faults.injected().pop() else { return reads };
        reads.push((injected.path, injected.bytes));
    }
}

/// Every byte of every read of a kind of file at opening.
fn misread_at_opening(disk: &SimDisk, expected: &Contents, kind: FileKind) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for (skip, (path, bytes)) in reads_at_opening(disk, kind).into_iter().enumerate() {
        outcomes.reads += 1;
        for byte in (0..bytes).step_by(common::stride()) {
            let at = format!("{}, read {skip}, byte {byte} of {bytes}", path.display());
            let bit = byte * 8 + byte % 8;
            let (opened, Misread { vfs, faults, events }) =
                open_misread(disk, kind, skip as u64, bit);
            assert_eq!(faults.injected().len(), 1, "{at}");
            outcomes.flips += 1;
            match opened {
                Ok(db) if kind == FileKind::Wal => {
                    let log = disk.read(&path).expect("it was read");
                    let in_zeros = byte as usize >= written(log).len();
                    // The second read of a block is for what follows the last record.
                    assert!(in_zeros || skip > 0, "{at}: no event");
                    assert!(contents(&db).unwrap() == *expected, "{at}: lost");
                    outcomes.harmless += 1;
                }
                // What is behind the salt in the header serves only a repair.
                Ok(db) if kind == FileKind::Manifest && (52..4096).contains(&byte) => {
                    assert!(contents(&db).unwrap() == *expected, "{at}: lost");
                    db.close().unwrap();
                    outcomes.harmless += 1;
                }
                // The second read is for the store's id in a manifest that is removed then.
                Ok(db) if kind == FileKind::Manifest && skip > 0 => {
                    db.close().unwrap();
                    outcomes.harmless += 1;
                }
                // Nothing but a repair and a verification needs the rest of a manifest's header.
                Ok(db) if kind == FileKind::Manifest && (52..4096).contains(&byte) => {
                    assert!(contents(&db).unwrap() == *expected, "{at}: lost");
                    db.close().unwrap();
                    outcomes.harmless += 1;
                }
                Ok(db) => {
                    // A filter, which says so; no table misses a key.
                    assert_eq!(events.load(Ordering::Relaxed), 1, "{at}: no event");
                    let degraded =
                        |filter: &FilterInfo| matches!(filter, FilterInfo::Degraded { .. });
                    let tables = db.tables();
                    let found = tables.iter().filter(|table| degraded(&table.filter)).count();
                    assert_eq!(found, 1, "{at}");
                    for (key, value) in expected {
                        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]), "{at}");
                    }
                    db.close().unwrap();
                    outcomes.degraded += 1;
                }
                Err(error) => {
                    let (named, offset) = place(&error);
                    assert_eq!(named, path, "{at}: {error}");
                    assert!(offset < length(disk, &path), "{at}: {error}");
                    outcomes.errors += 1;
                }
            }
            // Nothing that was misread is on the disk now.
            let db = options().strict_filters(true).vfs(Arc::new(vfs)).open(DIR);
            let db = db.unwrap_or_else(|error| panic!("{at}, then: {error}"));
            assert!(contents(&db).unwrap() == *expected, "{at}: lost");
            assert_eq!(db.recovery().lost_tail, None, "{at}");
        }
    }
    outcomes
}

#[test]
fn what_is_misread_at_opening_is_refused_or_a_degraded_filter() {
    let (disk, expected) = store();
    for kind in [FileKind::Current, FileKind::Manifest, FileKind::Wal] {
        let outcomes = misread_at_opening(&disk, &expected, kind);
        println!("{kind:?}: {outcomes:?}");
        let harmless = outcomes.harmless > 0;
        // Logs are filled up, and the last session's manifest is read once more before it is removed.
        assert_eq!(harmless, kind != FileKind::Current);
        assert!(outcomes.errors > 20 && outcomes.errors + outcomes.harmless == outcomes.flips);
    }
    let outcomes = misread_at_opening(&disk, &expected, FileKind::Filter);
    println!("filter files: {outcomes:?}");
    assert!(outcomes.flips > 50 && outcomes.degraded == outcomes.flips);
    let outcomes = misread_at_opening(&disk, &expected, FileKind::Table);
    println!("index, properties, footer; filter blocks: {outcomes:?}");
    assert!(outcomes.errors > 200 && outcomes.degraded > 50);
    assert_eq!(outcomes.errors + outcomes.degraded, outcomes.flips);
}

/// Lookups, scans, compactions and rebuilds read data blocks in different ways.
#[test]
fn what_is_misread_of_a_data_block_is_an_error_and_is_not_kept() {
    type Call = fn(&Db, &Contents) -> criba::Result<()>;
    let calls: [(&str, Call); 4] = [
        ("lookups", |db, expected| {
            for (key, value) in expected {
                assert_eq!(db.get(key)?.as_deref(), Some(&value[..]));
            }
            Ok(())
        }),
        ("scans", |db, expected| {
            assert!(contents(db)? == *expected);
            Ok(())
        }),
        ("compactions", |db, _| db.compact()),
        ("rebuildings", |db, _| db.rebuild_filters(&FilterPolicy::bits_per_key(17.0)).map(|_| ())),
    ];
    let (disk, expected) = store();
    for (name, call) in calls {
        let mut outcomes = Outcomes::default();
        'reads: for skip in 0.. {
            let mut bytes = 1;
            let mut byte = 0;
            while byte < bytes {
                let faults = FaultVfs::new(Arc::new(SimVfs::on(disk.clone())));
                let options = options().cache_bytes(1 << 20);
                let db = options.vfs(Arc::new(faults.clone())).open(DIR).unwrap();
                let wrong = FaultRule::new(Fault::FlippedBit(byte * 8 + byte % 8));
                let wrong =
                    wrong.operations([Operation::Read]).kinds([FileKind::Table, FileKind::Filter]);
                faults.add(wrong.skip(skip));
                let done = call(&db, &expected);
                let Some(injected) = faults.injected().pop() else {
                    assert!(done.is_ok());
                    break 'reads;
                };
                bytes = injected.bytes;
                let at = format!("{name}, {}, read {skip}, byte {byte}", injected.path.display());
                let error = done.expect_err(&at);
                let (path, offset) = place(&error);
                assert_eq!(path, injected.path, "{at}: {error}");
                assert!(offset < length(&disk, &path), "{at}: {error}");
                outcomes.flips += 1;
                outcomes.errors += 1;
                // The same again, on a disk that is well; then all that there is.
                for call in [call, calls[0].1, calls[1].1] {
                    call(&db, &expected).unwrap_or_else(|error| panic!("{at}, again: {error}"));
                }
                byte += common::stride() as u64;
            }
            outcomes.reads += 1;
        }
        println!("{name}: {outcomes:?}");
        assert!(outcomes.reads > 1 && outcomes.flips > common::part(500) as u64, "{name}");
    }
}
