//! The laws of compactions: no answer changes; unneeded entries go; levels stay disjoint; equal runs write
//! equal bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{self, contents};
use criba::{Db, Event, FilterPolicy, LEVELS, Options};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    common::options()
        .background_threads(0)
        .memtable_bytes(16 << 10)
        .table_bytes(8 << 10)
        .level_base_bytes(4 << 10)
        .block_bytes(512)
        .vfs(common::HookVfs::without_syncs())
}

fn collect(range: criba::Range) -> Map {
    range.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn all(db: &Db) -> Map {
    collect(db.iter())
}

/// The tables of a level below L0 are disjoint.
fn check_levels(db: &Db) {
    let tables = db.tables();
    for level in 1..LEVELS {
        let mut ranges: Vec<_> = tables
            .iter()
            .filter(|table| table.level == level)
            .map(|table| (table.smallest.to_vec(), table.largest.to_vec()))
            .collect();
        ranges.sort();
        for pair in ranges.windows(2) {
            assert!(pair[0].1 < pair[1].0, "level {level}: {pair:?}");
        }
    }
}

#[test]
fn snapshots_go_on_seeing_what_they_saw() {
    let seed = 11;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let parent = common::tempdir();
    let db = options().open(parent.path().join("store")).unwrap();
    let mut map = Map::new();
    let mut snapshots = Vec::new();
    let mut compared = 0;
    for round in 0..30 {
        for _ in 0..150 {
            let key = format!("key {:04}", rng.random_range(0..400)).into_bytes();
            if rng.random_range(0..3) == 0 {
                db.delete(&key).unwrap();
                map.remove(&key);
            } else {
                let value = vec![round; rng.random_range(1..40)];
                db.put(&key, &value).unwrap();
                map.insert(key, value);
            }
            if rng.random_range(0..100) == 0 {
                snapshots.push((db.snapshot(), map.clone()));
            }
        }
        if round % 3 == 2 {
            db.compact().unwrap();
        }
        check_levels(&db);
        for (snapshot, map) in &snapshots {
            assert_eq!(collect(snapshot.iter()), *map);
            for number in 0..400 {
                let key = format!("key {number:04}").into_bytes();
                let value = snapshot.get(&key).unwrap();
                assert_eq!(value.as_deref(), map.get(&key).map(Vec::as_slice));
                compared += 1;
            }
        }
        if snapshots.len() > 6 {
            snapshots.swap_remove(rng.random_range(0..snapshots.len()));
        }
        assert_eq!(all(&db), map);
    }
    println!("seed {seed}: {compared} values of snapshots compared through compactions");
    assert!(compared > 50_000);
    // Old values that no reader needs are dropped.
    let kept: u64 = db.tables().iter().map(|table| table.entries).sum();
    snapshots.clear();
    db.compact().unwrap();
    let entries: u64 = db.tables().iter().map(|table| table.entries).sum();
    assert!(kept > entries);
    assert_eq!(entries, map.len() as u64);
}

#[test]
fn tombstones_and_old_values_go_at_the_bottom() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = options().open(&dir).unwrap();
    for round in 0..3_u8 {
        for number in 0..1000_u32 {
            db.put(number.to_be_bytes(), [round; 20]).unwrap();
        }
    }
    let snapshot = db.snapshot();
    for number in 0..1000_u32 {
        if number % 4 != 0 {
            db.delete(number.to_be_bytes()).unwrap();
        }
    }
    db.compact().unwrap();
    let sum = |of: fn(&criba::TableInfo) -> u64| db.tables().iter().map(of).sum::<u64>();
    // The snapshot sees every value, so their tombstones are still needed to hide them.
    assert_eq!((sum(|t| t.entries), sum(|t| t.tombstones)), (1750, 750));
    assert_eq!(snapshot.get(1_u32.to_be_bytes()).unwrap().unwrap(), [2; 20]);
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!((sum(|t| t.entries), sum(|t| t.tombstones)), (250, 0));
    assert!(db.tables().iter().all(|table| table.level == LEVELS - 1));
    for number in 0..1000_u32 {
        if number % 4 == 0 {
            db.delete(number.to_be_bytes()).unwrap();
        }
    }
    db.compact().unwrap();
    assert!(db.tables().is_empty(), "everything was deleted");
    assert!(common::files_with(&dir, "sst").is_empty(), "and nothing refers to any file");
    assert_eq!(all(&db), Map::new());
    db.put("again", "value").unwrap();
    db.close().unwrap();
    assert_eq!(all(&options().open(&dir).unwrap()).len(), 1);
}

#[test]
fn a_tombstone_hides_what_lies_below_until_it_gets_there() {
    // A deleted key whose value lies on the last level, while tombstones go down level by level.
    let parent = common::tempdir();
    let db = options().level_base_bytes(1).open(parent.path().join("store")).unwrap();
    let mut map = Map::new();
    for number in 0..2000_u32 {
        let key = number.to_be_bytes().to_vec();
        db.put(&key, [1; 30]).unwrap();
        map.insert(key, vec![1; 30]);
    }
    db.compact().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let mut deepest = 0;
    for _ in 0..40 {
        for _ in 0..40 {
            let key = rng.random_range(0..2000_u32).to_be_bytes().to_vec();
            db.delete(&key).unwrap();
            map.remove(&key);
        }
        db.flush().unwrap();
        check_levels(&db);
        assert_eq!(all(&db), map);
        let on_the_way = db.tables().into_iter().filter(|table| table.tombstones > 0);
        deepest = deepest.max(on_the_way.map(|table| table.level).max().unwrap_or(0));
    }
    assert!(deepest > 0, "tombstones never left L0");
    assert!(
        db.tables().iter().all(|table| table.level < LEVELS - 1 || table.tombstones == 0),
        "no tombstone is of use on the last level"
    );
}

#[test]
fn a_sequential_load_moves_tables_and_rewrites_none() {
    for threads in [0, 1] {
        let parent = common::tempdir();
        let db = options().background_threads(threads);
        let db = db.open(parent.path().join("store")).unwrap();
        for number in 0..5000_u32 {
            db.put(number.to_be_bytes(), [3; 30]).unwrap();
        }
        db.wait_until_settled().unwrap();
        let activity = db.stats().activity;
        println!("sequential load, {threads} threads: {activity:?}");
        assert!(activity.tables_moved > 10);
        assert_eq!(activity.compactions, 0);
        assert_eq!(activity.tables_written, activity.flushes);
        assert_eq!(activity.filters_built, activity.tables_written);
        check_levels(&db);
        assert_eq!(all(&db).len(), 5000);
    }
}

fn load(db: &Db, rng: &mut ChaCha8Rng, keys: u32, writes: u32) {
    for _ in 0..writes {
        let key = format!("key {:06}", rng.random_range(0..keys));
        let mut value = vec![0; 100];
        rng.fill(&mut value[..]);
        db.put(key, value).unwrap();
    }
}

#[test]
fn a_settled_store_takes_little_more_than_its_data() {
    for threads in [0, 2] {
        let seed = 13;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let parent = common::tempdir();
        let open = |dir: &str| {
            let options = options().background_threads(threads).filter(FilterPolicy::none());
            options.open(parent.path().join(dir)).unwrap()
        };
        let db = open("store");
        load(&db, &mut rng, 4000, 40_000);
        db.wait_until_settled().unwrap();
        check_levels(&db);
        let levels: Vec<u64> = (0..LEVELS)
            .map(|level| {
                db.tables().iter().filter(|t| t.level == level).map(|t| t.file_bytes).sum()
            })
            .collect();
        let l0 = db.tables().iter().filter(|table| table.level == 0).count();
        assert!(l0 < 4, "{l0} tables on L0 are not settled");
        let settled: u64 = levels.iter().sum();
        db.compact().unwrap();
        let compact: u64 = db.tables().iter().map(|table| table.file_bytes).sum();
        let ratio = settled as f64 / compact as f64;
        println!(
            "seed {seed}, {threads} threads: {ratio:.3} of the live data; by level {levels:?}"
        );
        assert!((1.0..1.25).contains(&ratio), "{ratio}: {levels:?}");
    }
}

/// A merge of L0 into a larger level rewrites mostly what was below: it waits for more tables, but for none at which
/// writes are slowed down.
#[test]
fn l0_waits_for_more_tables_while_it_is_smaller_than_the_level_below() {
    // Of a slowdown trigger: the most tables on a small store's L0, and on a larger one's; all tables written.
    let run = |slowdown: usize| {
        let mut rng = ChaCha8Rng::seed_from_u64(15);
        let dir = common::tempdir();
        let options = options().level_base_bytes(1 << 20).l0_slowdown_trigger(slowdown);
        let db = options.open(dir.path()).unwrap();
        let mut most = [0, 0];
        for write in 0..8_000 {
            load(&db, &mut rng, 100_000, 1);
            let tables = db.tables();
            let of = |level| tables.iter().filter(move |table| table.level == level);
            let bytes = |level| of(level).map(|table| table.file_bytes).sum::<u64>();
            let larger = bytes(LEVELS - 1) > bytes(0);
            let most = &mut most[usize::from(larger)];
            *most = of(0).count().max(*most);
            assert!(write < 4000 || larger);
        }
        (most, db.stats().activity.tables_written)
    };
    let (patient, fewer) = run(12);
    let (between, some) = run(9);
    let (equal, more) = run(4);
    println!("{fewer}, {some}, {more} tables written");
    assert_eq!([patient, between, equal], [[3, 7], [3, 5], [3, 3]]);
    assert!(fewer * 10 < more * 8 && fewer < some && some < more);
}

/// The result of a merge within L0: one table, larger than the target of the empty level below.
#[test]
fn a_large_table_on_l0_goes_down_in_a_quiet_store() {
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let dir = common::tempdir();
    let db = options().open(dir.path()).unwrap();
    load(&db, &mut rng, 4000, 40_000);
    db.compact().unwrap();
    db.close().unwrap();
    let db = options().memtable_bytes(10 << 20).open(dir.path()).unwrap();
    load(&db, &mut rng, 4000, 1500);
    db.flush().unwrap();
    let tables = |level| db.tables().into_iter().filter(move |table| table.level == level).count();
    assert_eq!(tables(0), 1);
    assert!((1..LEVELS - 1).all(|level| tables(level) == 0));
    db.wait_until_settled().unwrap();
    assert_eq!(tables(0), 0);
    check_levels(&db);
}

/// In quiet L0 is merged with the level below, unless that writes too many bytes.
#[test]
fn a_quiet_store_merges_l0_where_that_writes_not_too_much() {
    for (threads, part, merges) in
        [(0, 3, true), (0, 15, true), (0, 25, false), (1, 15, true), (1, 25, false)]
    {
        let dir = common::tempdir();
        let options = options().memtable_bytes(10 << 20).level_base_bytes(1 << 20);
        let options = options.background_threads(threads);
        let db = options.open(dir.path()).unwrap();
        let put = |number: u32| db.put(number.to_be_bytes(), [number as u8; 50]).unwrap();
        (0..6000).for_each(put);
        db.compact().unwrap();
        (0..6000).step_by(part).for_each(put);
        let written = || db.stats().table_writes.bytes;
        let before = written();
        db.flush().unwrap();
        let l0 = || db.tables().into_iter().filter(|table| table.level == 0).count();
        let of_l0 = written() - before;
        if threads == 0 {
            assert_eq!(l0(), 1, "it is not due");
        } else if merges {
            common::wait_until("an idle merge", || l0() == 0);
        }
        db.wait_until_settled().unwrap();
        let again = (written() - before - of_l0) as f64 / of_l0 as f64;
        println!("{threads} threads, one key in {part} anew: {again:.1} bytes written for each");
        assert_eq!((l0(), again > 0.0), if merges { (0, true) } else { (1, false) });
        assert!(again < 20.0, "{again}");
        check_levels(&db);
        assert_eq!(all(&db).len(), 6000);
    }
}

/// An idle merge of 132 MiB waits for two seconds of quiet.
#[test]
fn a_large_merge_that_is_not_due_waits_longer_than_a_small_one() {
    let dir = common::tempdir();
    let starts = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&starts);
    let db = common::options()
        .background_threads(1)
        .memtable_bytes(256 << 20)
        .vfs(common::HookVfs::without_syncs())
        .on_event(move |event| {
            if let Event::CompactionStarted { tables, .. } = event {
                events.lock().unwrap().push((tables.len(), Instant::now()));
            }
        })
        .open(dir.path())
        .unwrap();
    let write = || {
        for number in 0..66_u8 {
            db.put([number], vec![number; 1 << 20]).unwrap();
        }
    };
    write();
    db.compact().unwrap();
    starts.lock().unwrap().clear();
    write();
    let before = Instant::now();
    db.flush().unwrap();
    common::wait_until("an idle merge", || !starts.lock().unwrap().is_empty());
    let (tables, start) = starts.lock().unwrap()[0];
    println!("{tables} tables, {:?} after the flush began", start - before);
    assert!(tables >= 2, "{tables} tables are no merge");
    assert!(start - before >= Duration::from_secs(2));
}

/// A run of all operations, on one thread.
fn repeatable(dir: &Path, seed: u64) -> (Map, criba::Stats) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let db = options().seed(seed).cache_bytes(20_000).open(dir).unwrap();
    let mut snapshots = Vec::new();
    for round in 0..6 {
        load(&db, &mut rng, 900, 700);
        for _ in 0..100 {
            db.delete(format!("key {:06}", rng.random_range(0..900))).unwrap();
        }
        for _ in 0..300 {
            db.get(format!("key {:06}", rng.random_range(0..1800))).unwrap();
        }
        snapshots.push(db.snapshot());
        if round == 3 {
            snapshots.remove(1);
            db.compact().unwrap();
        }
        db.sync().unwrap();
    }
    let mut stats = db.stats();
    // Only times differ.
    (stats.writes.sync_nanos, stats.flush_work.nanos, stats.compaction_work.nanos) = (0, 0, 0);
    drop(snapshots);
    let map = all(&db);
    db.close().unwrap();
    let db = options().seed(seed).open(dir).unwrap(); // recovery writes files, too
    db.put("after", "value").unwrap();
    drop(db);
    (map, stats)
}

#[test]
fn equal_runs_write_equal_bytes() {
    let parent = common::tempdir();
    let mut files = 0;
    for seed in [1, 2] {
        let (one, other) = (parent.path().join("one"), parent.path().join("other"));
        let (map, stats) = repeatable(&one, seed);
        let (map_again, stats_again) = repeatable(&other, seed);
        assert_eq!(map, map_again);
        assert_eq!(stats, stats_again);
        let (one_files, other_files) = (contents(&one), contents(&other));
        assert_eq!(one_files.keys().collect::<Vec<_>>(), other_files.keys().collect::<Vec<_>>());
        for (name, bytes) in &one_files {
            assert!(other_files[name] == *bytes, "{name} differs");
        }
        files += one_files.len();
        std::fs::remove_dir_all(&one).unwrap();
        std::fs::remove_dir_all(&other).unwrap();
    }
    println!("{files} files equal, byte by byte");
    // Another seed is another store.
    let (one, other) = (parent.path().join("a"), parent.path().join("b"));
    drop(options().seed(1).open(&one).unwrap());
    drop(options().seed(2).open(&other).unwrap());
    assert_ne!(contents(&one), contents(&other));
}

/// Tables without overlap could move down; small ones are merged instead, or a store with rare small writes
/// would fill with them.
#[test]
fn small_tables_do_not_pile_up() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let options = || options().table_bytes(1 << 20);
    for number in 0..200_u32 {
        let db = options().open(&dir).unwrap();
        db.put(number.to_be_bytes(), "value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
    }
    let db = options().open(&dir).unwrap();
    check_levels(&db);
    assert_eq!(all(&db).len(), 200);
    let tables = db.tables().len();
    println!("{tables} tables after 200 flushes of one key each");
    assert!(tables <= 12, "{tables} tables");
}
