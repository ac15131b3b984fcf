//! Hidden entries: tombstones, what they delete, overwritten values, and what is newer than a snapshot. Scans pass
//! few of them, flushes drop them, and no answer changes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use criba::{Db, Options, Snapshot};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common;

fn inline() -> Options {
    common::options().background_threads(0).auto_compaction(false)
}

/// What a closure makes scans pass.
fn passed(db: &Db, scan: impl FnOnce()) -> u64 {
    let before = db.stats().activity.hidden_passed;
    scan();
    db.stats().activity.hidden_passed - before
}

fn key(number: u32) -> String {
    format!("key {number:06}")
}

#[test]
fn a_scan_ends_at_its_bounds_also_among_hidden_entries() {
    let dir = common::tempdir();
    let db = inline().open(dir.path()).unwrap();
    let early = db.snapshot();
    for number in 0..5000 {
        db.put(key(number), "value").unwrap();
    }
    let all = db.snapshot();
    for number in 0..5000 {
        db.delete(key(number)).unwrap();
    }
    db.put("z", "last").unwrap();
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        let count = passed(&db, || {
            for (from, to) in [("a", "b"), ("key 002000!", "key 002000~"), ("x", "y")] {
                assert!(db.range(from..to).next().is_none());
                assert!(db.range(from..to).next_back().is_none());
                assert!(early.range(from..to).next().is_none());
                assert!(early.range(from..to).next_back().is_none());
            }
        });
        assert_eq!(count, 0, "flushed: {flushed}");
        assert_eq!(all.range("key".."z").count(), 5000);
        assert_eq!(all.range("key".."z").rev().count(), 5000);
        assert_eq!(early.iter().count() + early.iter().rev().count(), 0);
        assert_eq!(db.iter().count(), 1);
    }
}

#[test]
fn versions_of_a_key_are_left_by_a_seek() {
    let dir = common::tempdir();
    let db = inline().open(dir.path()).unwrap();
    db.put("a", "first").unwrap();
    db.put("c", "last").unwrap();
    let mut snapshots: Vec<(u32, Snapshot)> = Vec::new();
    for number in 0..3000_u32 {
        db.put("b", number.to_le_bytes()).unwrap();
        if number % 10 == 0 {
            snapshots.push((number, db.snapshot()));
        }
    }
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        for (number, snapshot) in snapshots.iter().step_by(37) {
            let count = passed(&db, || {
                let forward: Vec<_> = snapshot.iter().map(Result::unwrap).collect();
                let mut backward: Vec<_> = snapshot.iter().rev().map(Result::unwrap).collect();
                backward.reverse();
                assert_eq!(forward, backward);
                assert_eq!(forward.len(), 3);
                assert_eq!(*forward[1].1, number.to_le_bytes());
            });
            assert!(count <= 40, "{count} passed, {number}, flushed: {flushed}");
        }
    }
}

#[test]
fn the_first_key_is_found_behind_deleted_ones_with_few_reads() {
    for backward in [false, true] {
        let dir = common::tempdir();
        let db = inline().open(dir.path()).unwrap();
        for number in 0..3000 {
            db.put(key(number), [1; 50]).unwrap();
        }
        db.flush().unwrap();
        let before = db.stats().scan_reads.calls;
        for number in 0..2000_u32 {
            let number = if backward { 2999 - number } else { number };
            let (found, _) = if backward { db.last() } else { db.first() }.unwrap().unwrap();
            assert_eq!(found, key(number).as_bytes());
            db.delete(found).unwrap();
            // A reader that is older than the deletions, and one of another range, see what they saw.
            if number == 1000 {
                db.put(key(500), "again").unwrap();
                db.put(key(2500), "again").unwrap();
                assert!(*db.first().unwrap().unwrap().0 <= *key(1001).as_bytes());
                db.delete(key(if backward { 2500 } else { 500 })).unwrap();
            }
        }
        let reads = db.stats().scan_reads.calls - before;
        println!("backward {backward}: {reads} blocks read for 2,000 items");
        assert!(reads < 8000, "{reads} blocks read, backward: {backward}");
    }
}

#[test]
fn a_hole_is_no_hole_for_an_older_reader_or_a_later_put() {
    let dir = common::tempdir();
    let db = inline().open(dir.path()).unwrap();
    for number in 0..300 {
        db.put(key(number), "old").unwrap();
    }
    db.flush().unwrap();
    let snapshot = db.snapshot();
    for number in 0..200 {
        db.delete(key(number)).unwrap();
    }
    // This scan leaves a hole.
    assert_eq!(db.first().unwrap().unwrap().0, key(200).as_bytes());
    assert_eq!(snapshot.iter().count(), 300);
    assert_eq!(snapshot.iter().rev().count(), 300);
    assert_eq!(db.range(key(100)..).count(), 100);
    assert_eq!(db.range(..key(150)).rev().count(), 0);
    db.put(key(70), "new").unwrap();
    assert_eq!(db.first().unwrap().unwrap().0, key(70).as_bytes());
    assert_eq!(db.range(key(71)..).next().unwrap().unwrap().0, key(200).as_bytes());
    assert_eq!(db.range(..key(200)).next_back().unwrap().unwrap().0, key(70).as_bytes());
    // One of a snapshot is none for later readers: they see what is newer.
    db.flush().unwrap();
    let snapshot = db.snapshot();
    for number in 0..150 {
        db.put(key(number), "newest").unwrap();
    }
    db.flush().unwrap();
    assert_eq!(snapshot.iter().next().unwrap().unwrap().0, key(70).as_bytes());
    assert_eq!(snapshot.range(key(71)..).next().unwrap().unwrap().0, key(200).as_bytes());
    assert_eq!(db.range(key(71)..).count(), 179);
    assert_eq!(db.iter().count(), 250);
    assert_eq!(db.iter().rev().count(), 250);
}

#[test]
fn a_flush_drops_what_nothing_needs() {
    let dir = common::tempdir();
    let db = inline().open(dir.path()).unwrap();
    for number in 0..100 {
        db.put(key(number), "value").unwrap();
        db.delete(key(number)).unwrap();
    }
    db.flush().unwrap();
    assert!(db.tables().is_empty());
    assert_eq!(db.stats().activity.flushes, 1);
    // The numbers of the dropped entries are in the manifest: later writes are newer.
    db.put("a", "later").unwrap();
    db.close().unwrap();
    let db = inline().open(dir.path()).unwrap();
    assert_eq!(db.recovery().changes, 1);
    assert_eq!(db.iter().count(), 1);
    drop(db);
    let db = inline().open(dir.path()).unwrap();
    db.delete("b").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = inline().open(dir.path()).unwrap();
    assert_eq!(*db.get("a").unwrap().unwrap(), *b"later");
    assert!(common::files_with(dir.path(), "log").len() == 1);
}

#[test]
fn a_flush_keeps_each_tombstone_that_hides_an_entry() {
    for level in [0, 6] {
        let dir = common::tempdir();
        let db = inline().open(dir.path()).unwrap();
        for name in ["a", "hidden", "z"] {
            db.put(name, "old").unwrap();
        }
        db.flush().unwrap();
        if level > 0 {
            db.compact().unwrap();
        }
        assert!(db.tables().iter().all(|table| table.level == level));
        db.delete("hidden").unwrap();
        db.flush().unwrap();
        let newest = db.tables().into_iter().find(|table| table.level == 0 && table.entries == 1);
        assert_eq!(newest.map(|table| table.tombstones), Some(1), "level {level}");
        let check = |db: &Db| {
            assert_eq!(db.get("hidden").unwrap(), None);
            let keys: Vec<_> = db.iter().map(|item| item.unwrap().0).collect();
            assert_eq!(keys, [&b"a"[..], b"z"]);
        };
        check(&db);
        db.close().unwrap();
        let db = inline().open(dir.path()).unwrap();
        check(&db);
        db.compact().unwrap();
        check(&db);
        assert_eq!(db.tables().iter().map(|table| table.entries).sum::<u64>(), 2);
    }
}

#[test]
fn a_flush_keeps_what_a_snapshot_sees() {
    let dir = common::tempdir();
    let db = inline().open(dir.path()).unwrap();
    db.put("k", "one").unwrap();
    let one = db.snapshot();
    db.put("k", "two").unwrap();
    db.put("k", "three").unwrap();
    let three = db.snapshot();
    db.delete("k").unwrap();
    db.flush().unwrap();
    assert_eq!(db.tables()[0].entries, 3, "the tombstone, three, one");
    assert_eq!(*one.get("k").unwrap().unwrap(), *b"one");
    assert_eq!(*three.get("k").unwrap().unwrap(), *b"three");
    assert_eq!(db.get("k").unwrap(), None);
}

/// More hidden entries than a step passes without a demand.
fn fill_with_pairs(db: &Db) {
    for number in 0..9000 {
        db.put(key(number), "value").unwrap();
        db.delete(key(number)).unwrap();
    }
    db.put("z", "last").unwrap();
}

fn flushes_within(db: &Db, time: Duration) -> u64 {
    let start = Instant::now();
    while db.stats().activity.flushes == 0 && start.elapsed() < time {
        std::thread::sleep(Duration::from_millis(5));
    }
    db.stats().activity.flushes
}

#[test]
fn a_scan_over_many_hidden_entries_has_the_memtable_sealed() {
    for backward in [false, true] {
        let dir = common::tempdir();
        let db = common::options().background_threads(1).open(dir.path()).unwrap();
        fill_with_pairs(&db);
        let scan = || {
            if !backward {
                return db.first().unwrap().unwrap().0;
            }
            db.put("a", "first").unwrap();
            db.range(.."z").next_back().unwrap().unwrap().0
        };
        assert_eq!(scan(), [&b"z"[..], b"a"][usize::from(backward)]);
        assert_eq!(flushes_within(&db, Duration::from_secs(20)), 1);
        db.wait_until_settled().unwrap();
        assert_eq!(
            db.tables().iter().map(|table| table.entries).sum::<u64>(),
            1 + u64::from(backward)
        );
        // The put of this scan hides the one before.
        assert!(passed(&db, || _ = scan()) <= 1);
    }
}

#[test]
fn an_inline_store_seals_on_demand_at_the_next_write() {
    let dir = common::tempdir();
    let db = inline().open(dir.path()).unwrap();
    fill_with_pairs(&db);
    assert_eq!(passed(&db, || _ = db.first().unwrap()), 18_000);
    assert_eq!(db.stats().activity.flushes, 0);
    db.put("y", "value").unwrap();
    assert_eq!(db.stats().activity.flushes, 1);
    assert_eq!(passed(&db, || _ = db.first().unwrap()), 0);
}

#[test]
fn a_memtable_is_not_sealed_for_what_a_snapshot_keeps() {
    let dir = common::tempdir();
    let db = inline().open(dir.path()).unwrap();
    let snapshot = db.snapshot();
    fill_with_pairs(&db);
    db.first().unwrap();
    db.put("y", "value").unwrap();
    assert_eq!(db.stats().activity.flushes, 0);
    drop(snapshot);
}

#[test]
fn a_memtable_is_sealed_on_demand_once_a_second() {
    let dir = common::tempdir();
    let db = inline().open(dir.path()).unwrap();
    let start = Instant::now();
    let mut demands = 0;
    while demands < 20 {
        fill_with_pairs(&db);
        db.first().unwrap();
        db.put("y", "value").unwrap();
        demands += 1;
    }
    let (flushes, seconds) = (db.stats().activity.flushes, start.elapsed().as_secs());
    println!("{demands} demands, {flushes} seals in {seconds} s");
    assert!(flushes <= 2 + seconds && flushes >= 1, "{flushes} seals in {seconds} s");
}

/// A reader in a loop costs a writer neither flushes nor bytes.
#[test]
fn a_reader_in_a_loop_costs_no_flushes() {
    let write = |reader: bool| {
        let options = common::options().background_threads(1).memtable_bytes(2 << 20);
        let dir = common::tempdir();
        let db = options.open(dir.path()).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            if reader {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        db.first().unwrap();
                    }
                });
            }
            for round in 0..8 {
                for number in 0..20_000 {
                    db.put(key(number), [round; 20]).unwrap();
                    db.delete(key(number)).unwrap();
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        db.flush().unwrap();
        let stats = db.stats();
        (stats.activity.flushes, stats.table_writes.bytes)
    };
    let start = Instant::now();
    let (alone, beside) = (write(false), write(true));
    let seconds = start.elapsed().as_secs();
    println!("alone {alone:?}, beside a reader {beside:?}, {seconds} s");
    // A seal on demand a second, at most.
    assert!(beside.0 * 5 <= alone.0 * 6 + 5 * seconds);
    assert!(beside.1 <= alone.1 * 6 / 5 + (64 << 10));
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn random_key(rng: &mut ChaCha8Rng, keys: u32) -> Vec<u8> {
    // Some keys are hot: their versions fill leaves.
    let number =
        if rng.random_ratio(1, 4) { rng.random_range(0..3) * 7 } else { rng.random_range(0..keys) };
    format!("{number:04}").into_bytes()
}

fn random_bounds(rng: &mut ChaCha8Rng, keys: u32) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut ends = [random_key(rng, keys), random_key(rng, keys)];
    ends.sort();
    let bound = |rng: &mut ChaCha8Rng, key: Vec<u8>| match rng.random_range(0..3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    };
    let [from, to] = ends;
    match (bound(rng, from), bound(rng, to)) {
        (Bound::Excluded(a), Bound::Excluded(b)) if a == b => {
            (Bound::Included(a), Bound::Included(b))
        }
        bounds => bounds,
    }
}

/// Takes items from both ends, now and then only a few.
fn compare(
    rng: &mut ChaCha8Rng,
    keys: u32,
    map: &Map,
    scan: impl Fn((Bound<&[u8]>, Bound<&[u8]>)) -> criba::Range,
) -> usize {
    let bounds = random_bounds(rng, keys);
    let borrowed = (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice));
    let mut range = scan(borrowed);
    let mut expected = map.range::<[u8], _>(borrowed);
    let backward = [0.0, 0.5, 1.0].choose(rng).copied().unwrap();
    let mut items = 0;
    loop {
        let (found, expected) = if rng.random_bool(backward) {
            (range.next_back(), expected.next_back())
        } else {
            (range.next(), expected.next())
        };
        let found =
            found.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap());
        assert_eq!(
            found,
            expected.map(|(key, value)| (key.clone(), value.clone())),
            "{borrowed:?}"
        );
        if found.is_none() || rng.random_ratio(1, 50) {
            return items;
        }
        items += 1;
    }
}

/// Scans in both directions beside a map: many deletions in the memtable, over older puts of the same keys in lower
/// runs, read now and at snapshots.
#[test]
fn scans_equal_those_of_a_map() {
    let (mut scans, mut items, mut hidden) = (0, 0, 0);
    for seed in 0..common::part(60) as u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let keys = *[30, 300, 2000].choose(&mut rng).unwrap();
        let options = inline().auto_compaction(seed % 3 == 0).block_bytes(256);
        let dir = common::tempdir();
        let db = options.open(dir.path()).unwrap();
        let mut map = Map::new();
        let mut snapshots: Vec<(Snapshot, Map)> = Vec::new();
        for round in 0..40_u32 {
            let deletes = *[0.1, 0.5, 0.95].choose(&mut rng).unwrap();
            // In order, as a queue does it, or at random.
            let in_order = rng.random_bool(0.4);
            let start = rng.random_range(0..keys);
            for number in 0..rng.random_range(1..600) {
                let key = if in_order {
                    format!("{:04}", (start + number) % keys).into_bytes()
                } else {
                    random_key(&mut rng, keys)
                };
                if rng.random_bool(deletes) {
                    db.delete(&key).unwrap();
                    map.remove(&key);
                } else {
                    let value = (round * 1000 + number).to_le_bytes().to_vec();
                    db.put(&key, &value).unwrap();
                    map.insert(key, value);
                }
            }
            match rng.random_range(0..12) {
                0 | 1 => db.flush().unwrap(),
                2 => db.compact().unwrap(),
                3 | 4 => snapshots.push((db.snapshot(), map.clone())),
                5 if !snapshots.is_empty() => {
                    let number = rng.next_u32() as usize % snapshots.len();
                    snapshots.swap_remove(number);
                }
                _ => {}
            }
            for _ in 0..12 {
                items += compare(&mut rng, keys, &map, |bounds| db.range(bounds));
                scans += 1;
                if let Some((snapshot, then)) = snapshots.choose(&mut rng) {
                    items += compare(&mut rng, keys, then, |bounds| snapshot.range(bounds));
                    scans += 1;
                }
            }
        }
        hidden += db.stats().activity.hidden_passed;
    }
    println!("{scans} scans, {items} items, {hidden} hidden entries passed");
    assert!(hidden > common::part(100_000) as u64 && items > common::part(100_000));
}
