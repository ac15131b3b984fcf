//! A compaction drops a tombstone when the filters of all tables below deny its key, and never one that
//! hides an entry.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::Duration;

use criba::vfs::{FileKind, Operation};
use criba::{Db, FilterInfo, FilterKind, FilterPolicy, HashFunction, Options, Snapshot, TableInfo};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common;

const KEYS: u32 = 4000;

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// One used level, the sixth, above the last.
fn options() -> Options {
    common::options()
        .background_threads(0)
        .seed(11)
        .block_bytes(512)
        .table_bytes(16 << 10)
        .level_base_bytes(10 << 10)
        .l0_compaction_trigger(2)
        .vfs(common::HookVfs::without_syncs())
}

/// The even keys, in tables on the last level.
fn even_keys(dir: &Path, options: Options) {
    let db = options.open(dir).unwrap();
    for number in (0..2 * KEYS).step_by(2) {
        db.put(key(number), [1; 100]).unwrap();
    }
    db.compact().unwrap();
    assert!(db.tables().iter().all(|table| table.level == 6) && db.tables().len() > 5);
    db.close().unwrap();
}

/// The written tombstones, by what they hide.
struct Deleted {
    /// Of keys outside all ranges of tables.
    outside: u64,
    /// Of keys within a table's range, and in no table.
    absent: u64,
    /// Of keys in a table.
    present: u64,
}

/// Deletes every other odd key, all absent, and every tenth even one; a compaction moves the tombstones to
/// a level above the last.
fn delete_and_compact(db: &Db) -> Deleted {
    let below = db.tables();
    let covered = |key: &[u8]| below.iter().any(|t| &*t.smallest <= key && key <= &*t.largest);
    let (mut outside, mut absent, mut present) = (0, 0, 0);
    for part in 0..2 {
        for number in (1..2 * KEYS).step_by(4).filter(|number| number / 4 % 2 == part) {
            db.delete(key(number)).unwrap();
            if covered(&key(number)) {
                absent += 1;
            } else {
                outside += 1;
            }
            if number % 20 == 1 {
                db.delete(key(number - 1)).unwrap();
                present += 1;
            }
        }
        db.flush().unwrap();
    }
    let levels: Vec<_> = db.tables().iter().map(|table| table.level).collect();
    assert!(levels.contains(&5) && !levels.contains(&0), "{levels:?}");
    Deleted { outside, absent, present }
}

fn tombstones(db: &Db) -> u64 {
    db.tables().iter().map(|table| table.tombstones).sum()
}

fn predicted(tables: &[TableInfo]) -> f64 {
    let rates = tables.iter().map(|table| match table.filter {
        FilterInfo::Active { predicted_rate, .. } => predicted_rate,
        _ => 1.0,
    });
    rates.sum::<f64>() / tables.len() as f64
}

fn check_answers(db: &Db) {
    for number in 0..2 * KEYS {
        let there = number % 2 == 0 && number % 20 != 0;
        assert_eq!(db.contains(key(number)).unwrap(), there, "{number}");
    }
    assert_eq!(db.iter().count(), (KEYS - KEYS / 10) as usize);
}

#[test]
fn tombstones_whose_keys_every_filter_below_denies_are_dropped() {
    for kind in [FilterKind::Bloom, FilterKind::Ribbon] {
        for hash in [HashFunction::SipHash13, HashFunction::MurmurHash2] {
            let parent = common::tempdir();
            let policy = FilterPolicy::rate(0.05).with_kind(kind).with_hash(hash);
            even_keys(&parent.path().join("store"), options().filter(policy));
            let db = options().filter(policy).open(parent.path().join("store")).unwrap();
            let rate = predicted(&db.tables());
            let Deleted { outside, absent, present } = delete_and_compact(&db);
            let dropped = db.stats().activity.tombstones_denied;
            let kept = tombstones(&db);
            println!(
                "{kind}, {hash}: {outside} + {absent} tombstones hide nothing, {present} hide a key; \
                 {dropped} denied and dropped, {kept} kept, {:.1} in vain predicted",
                absent as f64 * rate
            );
            // Some outside the tables below are covered by the first flushed table, whose filter denies them.
            let covered = absent + present..=absent + present + outside;
            assert!(covered.contains(&(dropped + kept)), "each covered one is dropped or kept");
            // 99.9 % of a normal distribution of as many draws.
            let expected = absent as f64 * rate;
            let in_vain =
                kept.checked_sub(present).expect("one that hides a key was dropped") as f64;
            assert!((in_vain - expected).abs() < 3.3 * expected.sqrt() + 1.0, "{in_vain} kept");
            check_answers(&db);
            db.compact().unwrap();
            assert_eq!(tombstones(&db), 0);
            check_answers(&db);
        }
    }
}

#[test]
fn without_the_word_of_a_sound_filter_they_are_kept() {
    let parent = common::tempdir();
    let (ignored, none, damaged) =
        (parent.path().join("i"), parent.path().join("n"), parent.path().join("d"));
    even_keys(&ignored, options());
    even_keys(&none, options().filter(FilterPolicy::none()));
    common::copy_dir(&ignored, &damaged);
    let mut broken = 0;
    for path in common::files_with(&damaged, "sst") {
        let mut bytes = std::fs::read(&path).unwrap();
        let magic = bytes.windows(8).position(|part| part == b"cribaFLT").unwrap();
        bytes[magic + 130] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        broken += 1;
    }
    for (dir, ignores, degraded) in [(ignored, true, 0), (none, false, 0), (damaged, false, broken)]
    {
        let options = options().ignore_filters(ignores);
        let db = options.open(dir).unwrap();
        let found = db.tables();
        let found = found.iter().filter(|t| matches!(t.filter, FilterInfo::Degraded { .. }));
        assert_eq!(found.count(), degraded);
        let Deleted { absent, present, outside } = delete_and_compact(&db);
        // The sound filter of the first flushed table denies some that the tables below do not cover.
        let most = if ignores { 0 } else { outside };
        assert!(db.stats().activity.tombstones_denied <= most);
        assert_eq!(tombstones(&db), absent + present);
        check_answers(&db);
    }
}

/// Random puts and deletes on several levels beside a map, with snapshots: no deleted key returns.
#[test]
fn a_dropped_tombstone_brings_no_key_back() {
    let seeds = common::part(80) as u64;
    let (mut dropped, mut lookups, mut compactions) = (0, 0_u64, 0);
    for seed in 0..seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let policy = match seed % 4 {
            0 => FilterPolicy::default(),
            1 => FilterPolicy::ribbon(),
            2 => FilterPolicy::classic(),
            _ => FilterPolicy::rate(0.3),
        };
        let parent = common::tempdir();
        let options = options()
            .filter(policy)
            .memtable_bytes(4 << 10)
            .table_bytes(1 << 10)
            .level_base_bytes(100)
            .cache_bytes(0);
        let mut db = options.clone().open(parent.path()).unwrap();
        let mut map: BTreeMap<u32, u64> = BTreeMap::new();
        let mut snapshots: Vec<(Snapshot, BTreeMap<u32, u64>)> = Vec::new();
        let check = |found: &dyn Fn(u32) -> bool, map: &BTreeMap<u32, u64>| {
            for number in 0..400 {
                assert_eq!(found(number), map.contains_key(&number), "seed {seed}, key {number}");
            }
        };
        for round in 0..12_u64 {
            // Each round leans to one part of the keys and to puts or deletes.
            let (first, deletes) = (rng.random_range(0..300), rng.random_range(0.1..0.9));
            for _ in 0..150 {
                let number = first + rng.random_range(0..100);
                if rng.random_bool(deletes) {
                    db.delete(key(number)).unwrap();
                    map.remove(&number);
                } else {
                    db.put(key(number), round.to_le_bytes()).unwrap();
                    map.insert(number, round);
                }
            }
            match rng.random_range(0..8) {
                0 => snapshots.push((db.snapshot(), map.clone())),
                1 => drop(snapshots.pop()),
                2 => db.compact().unwrap(),
                3 => db.flush().unwrap(),
                4 => {
                    dropped += db.stats().activity.tombstones_denied;
                    compactions += db.stats().activity.compactions;
                    snapshots.clear();
                    db.close().unwrap();
                    db = options.clone().open(parent.path()).unwrap();
                }
                _ => {}
            }
            check(&|number| db.contains(key(number)).unwrap(), &map);
            for (snapshot, map) in &snapshots {
                check(&|number| snapshot.contains(key(number)).unwrap(), map);
            }
            lookups += 400 * (1 + snapshots.len() as u64);
        }
        dropped += db.stats().activity.tombstones_denied;
        compactions += db.stats().activity.compactions;
    }
    println!(
        "{seeds} seeds: {compactions} compactions dropped {dropped} tombstones on the word of \
         filters; {lookups} lookups"
    );
    assert!(dropped > common::part(10_000) as u64 && compactions > common::part(1000) as u64);
}

/// A store of one level, too large for an idle merge of a few tombstones.
fn long_queue(dir: &Path) -> Db {
    let options = common::options().background_threads(0).memtable_bytes(16 << 20);
    let db = options.vfs(common::HookVfs::without_syncs()).open(dir).unwrap();
    for number in 0..60_000 {
        db.put(key(number), [1; 100]).unwrap();
    }
    db.compact().unwrap();
    db
}

/// The first live key of a queue is found without a walk over the tombstones before it.
#[test]
fn tombstones_at_an_end_of_the_keys_are_gone_once_the_store_has_settled() {
    let front = 0..6000;
    let back = 54_000..60_000;
    for (taken, first, last) in [(front, 6000, 59_999), (back, 0, 53_999)] {
        let dir = common::tempdir();
        let db = long_queue(dir.path());
        for number in taken {
            db.delete(key(number)).unwrap();
        }
        db.wait_until_settled().unwrap();
        assert_eq!(tombstones(&db), 0, "{:?}", db.tables());
        let mut all = db.iter();
        assert_eq!(all.next().unwrap().unwrap().0, key(first));
        assert_eq!(all.next_back().unwrap().unwrap().0, key(last));
    }
}

/// Spread tombstones do not slow scans, and a compaction of them would rewrite all tables.
#[test]
fn tombstones_that_are_spread_over_all_keys_make_no_compaction_due() {
    let dir = common::tempdir();
    let db = long_queue(dir.path());
    for number in (0..60_000).step_by(10) {
        db.delete(key(number)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(tombstones(&db), 6000);
}

/// Tombstones that a snapshot keeps on the last level go after it ends.
#[test]
fn tombstones_kept_for_a_snapshot_go_after_it() {
    let dir = common::tempdir();
    let db = long_queue(dir.path());
    let snapshot = db.snapshot();
    for number in 0..6000 {
        db.delete(key(number)).unwrap();
    }
    db.wait_until_settled().unwrap();
    assert_eq!(tombstones(&db), 6000);
    assert_eq!(snapshot.iter().next().unwrap().unwrap().0, key(0));
    drop(snapshot);
    db.wait_until_settled().unwrap();
    assert_eq!(tombstones(&db), 0);
}

/// A snapshot ends while `compact` rewrites the table whose tombstones it kept.
#[test]
fn no_other_compaction_takes_a_table_that_compact_has() {
    let dir = common::tempdir();
    let (held, holds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let vfs = {
        let (held, holds) = (Arc::clone(&held), Arc::clone(&holds));
        common::HookVfs::new(move |kind, operation| {
            let in_background =
                std::thread::current().name().is_some_and(|name| name.starts_with("criba"));
            let create = (kind, operation) == (FileKind::Table, Operation::Create);
            while create && !in_background && holds.load(SeqCst) {
                held.store(true, SeqCst);
                sleep(Duration::from_millis(1));
            }
            Ok(())
        })
    };
    let db = common::options().background_threads(1).vfs(vfs).open(dir.path()).unwrap();
    (0..6000).for_each(|number| db.put(key(number), "value").unwrap());
    let snapshot = db.snapshot();
    (0..6000).for_each(|number| db.delete(key(number)).unwrap());
    db.compact().unwrap();
    assert_eq!((db.tables().len(), tombstones(&db)), (1, 6000));
    db.put("so that compact", "has something to do").unwrap();
    db.flush().unwrap();
    holds.store(true, SeqCst);
    scope(|scope| {
        let compact = scope.spawn(|| db.compact());
        common::wait_until("compact to begin", || held.load(SeqCst));
        drop(snapshot);
        sleep(Duration::from_millis(300)); // in which another compaction would take the table
        holds.store(false, SeqCst);
        compact.join().unwrap().unwrap();
    });
    db.wait_until_settled().unwrap();
    assert_eq!(tombstones(&db), 0);
}
