//! Lookups of many keys at once: the same answers, reads and counts as single lookups, from one view.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use criba::vfs::{CountingVfs, Fault, FaultRule, FaultVfs, FileKind, Operation};
use criba::{Batch, Db, Error, FilterPolicy, Options};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common;

const KEYS: u32 = 4000;

fn options(policy: FilterPolicy) -> Options {
    common::options()
        .background_threads(0)
        .seed(7) // nothing is announced, which a slow read would cause
        .auto_compaction(false)
        .cache_bytes(0)
        .block_bytes(512)
        .table_bytes(16 << 10)
        .filter(policy)
}

fn key(number: u32) -> String {
    format!("key {:010}", number.wrapping_mul(0x9E37_79B1))
}

/// Many tables on L0 above a run of several, a memtable with changes, and tombstones everywhere.
fn fill(db: &Db, on_l0: usize, rng: &mut ChaCha8Rng) {
    let mut write = |count: u32| {
        for _ in 0..count {
            let number = rng.random_range(0..KEYS);
            if rng.random_range(0..8) == 0 {
                db.delete(key(number)).unwrap();
            } else {
                db.put(key(number), number.to_le_bytes()).unwrap();
            }
        }
    };
    write(3000);
    db.compact().unwrap();
    for count in [500, 20, 300].into_iter().cycle().take(on_l0) {
        write(count);
        db.flush().unwrap();
    }
    write(100);
    let levels: Vec<_> = db.tables().iter().map(|table| table.level).collect();
    assert_eq!(levels.iter().filter(|level| **level == 0).count(), on_l0, "{levels:?}");
    assert!(levels.len() > 5, "{levels:?}");
}

fn opened(dir: &Path, options: Options) -> (Db, CountingVfs) {
    let vfs = CountingVfs::new(common::HookVfs::without_syncs());
    (options.vfs(Arc::new(vfs.clone())).open(dir).unwrap(), vfs)
}

#[test]
fn many_lookups_answer_and_count_as_the_same_one_by_one() {
    let mut compared = 0;
    for policy in [
        common::policy(),
        FilterPolicy::classic(),
        FilterPolicy::default(),
        FilterPolicy::ribbon(),
        FilterPolicy::none(),
    ] {
        // Filters that are often wrong, so that absent keys are read for too.
        let wrong = if policy == FilterPolicy::none() { policy } else { policy.with_rate(0.1) };
        let cases =
            [(options(wrong), 3), (options(wrong).ignore_filters(true), 3), (options(wrong), 12)];
        for (options, on_l0) in cases {
            let dir = common::tempdir();
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            let (db, vfs) = opened(&dir.path().join("store"), options);
            fill(&db, on_l0, &mut rng);
            let snapshot = db.snapshot();
            db.put(key(0), "after the snapshot").unwrap();
            for count in (0..=40).chain([100]) {
                // Twice as many as were ever put, some of them more than once.
                let keys: Vec<_> = (0..count).map(|_| key(rng.random_range(0..2 * KEYS))).collect();
                let (before, files) = (db.stats(), vfs.counts());
                let one_by_one: Vec<_> = keys.iter().map(|key| db.get(key).unwrap()).collect();
                let (between, files_between) = (db.stats(), vfs.counts());
                assert_eq!(db.get_many(&keys).unwrap(), one_by_one);
                assert_eq!(db.stats() - between, between - before);
                let reads =
                    |counts: &criba::vfs::FileCounts| counts.of(FileKind::Table, Operation::Read);
                let spent = vfs.counts() - files_between;
                assert_eq!(reads(&spent), reads(&(files_between - files)));
                let as_of: Vec<_> = keys.iter().map(|key| snapshot.get(key).unwrap()).collect();
                assert_eq!(snapshot.get_many(&keys).unwrap(), as_of);
                compared += count;
            }
            let total = db.stats().total();
            assert!(total.disk_reads > 0 && (total.range_pruned > 0));
        }
    }
    println!("{compared} lookups compared");
    assert!(compared > 13_500);
}

#[test]
fn many_keys_are_looked_up_at_one_moment() {
    let dir = common::tempdir();
    let options = common::options().memtable_bytes(64 << 10);
    let db = options.vfs(common::HookVfs::without_syncs()).open(dir.path()).unwrap();
    let keys: Vec<_> = (0..50).map(key).collect();
    let write = |number: u32| {
        let mut batch = Batch::new();
        for key in &keys {
            batch.put(key, number.to_le_bytes());
        }
        db.write(batch).unwrap();
    };
    write(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut written = 0;
            while !done.load(Ordering::Acquire) {
                written += 1;
                write(written);
            }
            println!("{written} batches written meanwhile");
        });
        let (mut moments, mut last) = (0, None);
        // Nothing here panics: the writer would never end.
        let torn = loop {
            let values = db.get_many(&keys).unwrap_or_default();
            let first = values.first().cloned().flatten();
            if first.is_none() || values.iter().any(|value| *value != first) {
                break Some(values);
            }
            moments += u32::from(first != last);
            if moments == 100 {
                break None;
            }
            last = first;
        };
        done.store(true, Ordering::Release);
        assert_eq!(torn, None);
    });
}

/// Keys before it were looked up, and are counted; keys after it are not.
#[test]
fn the_first_key_that_cannot_be_read_ends_the_call() {
    let dir = common::tempdir();
    let faults = FaultVfs::new(common::HookVfs::without_syncs());
    let db = options(FilterPolicy::none()).vfs(Arc::new(faults.clone())).open(dir.path()).unwrap();
    let keys: Vec<_> = (0..40).map(key).collect();
    for key in &keys {
        db.put(key, "value").unwrap();
    }
    db.flush().unwrap();
    for reads in [0, 1, 15, 16, 39] {
        let rule = FaultRule::new(Fault::Io);
        faults.add(rule.operations([Operation::Read]).kinds([FileKind::Table]).skip(reads));
        let before = db.stats();
        let error = db.get_many(&keys).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        let spent = (db.stats() - before).activity;
        assert_eq!((spent.lookups, spent.hits, spent.failed), (reads + 1, reads, 1));
        let values = db.get_many(&keys).unwrap();
        assert_eq!(values.iter().flatten().count(), keys.len());
    }
    db.clone().close().unwrap();
    assert!(matches!(db.get_many(&keys), Err(Error::Closed)));
}
