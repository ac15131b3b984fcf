//! The ledger is exact while versions come and go: a lookup that all filters denied is counted once, at each table.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};
use criba::{Activity, Counts, Db, Options};

use crate::common;

fn key(number: u64) -> String {
    format!("key {number:06}")
}

fn absent(number: u64) -> String {
    format!("key {number:06} absent")
}

fn options() -> Options {
    let options = common::options().memtable_bytes(8000).table_bytes(4000).level_base_bytes(10_000);
    options.block_bytes(256).cache_bytes(0)
}

/// By table id.
fn counts(db: &Db) -> HashMap<u64, Counts> {
    db.tables().into_iter().map(|table| (table.id, table.counts)).collect()
}

#[test]
fn lookups_count_at_each_table_what_their_explanations_say() {
    let dir = common::tempdir();
    // A store with a seed announces no blocks, which a slow read would cause.
    let db = options().background_threads(0).seed(1).open(dir.path()).unwrap();
    (0..2000).for_each(|number| db.put(key(number * 7 % 2000), [1; 40]).unwrap());
    db.flush().unwrap();
    let keys: Vec<_> = (0..2200).flat_map(|number| [key(number), absent(number)]).collect();
    let spent = |look_up: &dyn Fn()| {
        let (before, stats) = (counts(&db), db.stats());
        look_up();
        let after = counts(&db).into_iter();
        let of_tables: HashMap<_, _> = after.map(|(id, met)| (id, met - before[&id])).collect();
        (of_tables, db.stats() - stats)
    };
    let explained = spent(&|| keys.iter().for_each(|key| drop(db.explain(key).unwrap())));
    let one_by_one = spent(&|| keys.iter().for_each(|key| drop(db.get(key).unwrap())));
    let in_batches = spent(&|| keys.chunks(16).for_each(|keys| drop(db.get_many(keys).unwrap())));
    let snapshot = db.snapshot();
    let of_snapshot = spent(&|| keys.iter().for_each(|key| drop(snapshot.get(key).unwrap())));
    assert!(explained.0.len() > 10 && explained.1.total().true_negatives > 2000);
    assert!(explained.1.total().range_pruned > 100);
    assert_eq!(one_by_one, explained);
    assert_eq!(in_batches, explained);
    assert_eq!(of_snapshot, explained);
}

/// The flush fails, so that the memtable stays sealed.
#[test]
fn a_denied_lookup_counts_each_memtable() {
    let dir = common::tempdir();
    let vfs = FaultVfs::new(Arc::new(RealVfs));
    let db = options().background_threads(0).vfs(Arc::new(vfs.clone()));
    let db = db.open(dir.path().join("store")).unwrap();
    db.put(key(1), "").unwrap();
    db.put(key(9), "").unwrap();
    db.flush().unwrap();
    let full = FaultRule::new(Fault::NoSpace).kinds([FileKind::Table]);
    vfs.add(full.operations([Operation::Create]).from_then_on());
    for sealed in 0..3 {
        let before = db.stats();
        db.explain(absent(5)).unwrap();
        let explained = db.stats() - before;
        assert_eq!(explained.activity.memtables_denied, 1 + sealed);
        assert!(!db.contains(absent(5)).unwrap());
        assert_eq!(db.stats() - before - explained, explained);
        db.put(key(2 + sealed), "").unwrap();
        db.flush().unwrap_err();
    }
}

#[test]
fn no_count_is_lost_while_versions_come_and_go() {
    const THREADS: u64 = 3;
    const VERSIONS: u64 = 40;
    let dir = common::tempdir();
    let db = options().open(dir.path()).unwrap();
    db.put(key(0), "").unwrap();
    db.flush().unwrap();
    let done = AtomicBool::new(false);
    let (mut looked, mut versions, mut fell) = (0, 0, false);
    let made: u64 = std::thread::scope(|scope| {
        let lookups: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, done) = (&db, &done);
                scope.spawn(move || {
                    let numbers = (0..).take_while(|_| !done.load(Ordering::SeqCst));
                    let looked_up = numbers.inspect(|number| {
                        assert!(!db.contains(absent(number * THREADS + thread)).unwrap());
                    });
                    looked_up.count() as u64
                })
            })
            .collect();
        scope.spawn(|| {
            for number in (0..).take_while(|_| !done.load(Ordering::SeqCst)) {
                db.put(key(number % 3000), [1; 40]).unwrap();
            }
        });
        let mut last = db.stats();
        let mut tables = Vec::new();
        while versions < VERSIONS {
            let stats = db.stats();
            let totals = |stats: &criba::Stats| {
                let (Activity { lookups, misses, .. }, total) = (stats.activity, stats.total());
                [lookups, misses, total.true_negatives, total.range_pruned]
            };
            fell |= totals(&last).iter().zip(totals(&stats)).any(|(a, b)| *a > b);
            let now: Vec<_> = db.tables().iter().map(|table| table.id).collect();
            versions += u64::from(now != tables);
            (last, tables) = (stats, now);
            looked += 1;
        }
        done.store(true, Ordering::SeqCst);
        lookups.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let Activity { lookups, misses, failed, .. } = db.stats().activity;
    println!("{looked} times looked at statistics, {made} lookups");
    assert_eq!((lookups, misses, failed), (made, made, 0));
    assert!(!fell && made > 1000, "{fell}, {made}");
}
