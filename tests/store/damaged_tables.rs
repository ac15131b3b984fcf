//! A damaged table stops no writer, and nothing older comes back: compactions leave it where it is.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use criba::{Db, Error, Event, FilterPolicy, Options, Snapshot, TableInfo};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    common::options()
        .block_bytes(512)
        .memtable_bytes(32 << 10)
        .table_bytes(16 << 10)
        .level_base_bytes(32 << 10)
        .cache_bytes(0)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

/// Flips a byte in a data block: the first part of a table has nothing else.
fn damage(dir: &Path, table: &TableInfo, part: f64) {
    let path = dir.join(format!("{:06}.sst", table.id));
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let offset = (table.file_bytes as f64 / 3.0 * part) as u64;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x20], offset).unwrap();
}

/// Each answer is right, or the error of a damaged block. Returns the number of errors.
fn check(get: impl Fn(&[u8]) -> criba::Result<Option<criba::Value>>, keys: u32, map: &Map) -> u32 {
    let mut errors = 0;
    for number in 0..keys {
        let key = key(number);
        match get(&key) {
            Ok(found) => assert_eq!(found.as_deref(), map.get(&key).map(Vec::as_slice), "{number}"),
            Err(Error::Corrupt { .. }) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    errors
}

/// The items before the first damaged block are right, in both directions.
fn check_scans(scan: impl Fn() -> criba::Range, map: &Map) {
    let same = |(found, expected): (criba::Result<(criba::Value, criba::Value)>, _)| match found {
        Ok((key, value)) => {
            let (expected_key, expected_value): (&Vec<u8>, &Vec<u8>) = expected;
            assert!(*key == **expected_key && *value == **expected_value, "{expected_key:?}");
            true
        }
        Err(Error::Corrupt { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    let mut forward = scan();
    let whole = forward.by_ref().zip(map).all(same);
    assert!(!whole || forward.next().is_none_or(|item| item.is_err()));
    let mut backward = scan().rev();
    let whole = backward.by_ref().zip(map.iter().rev()).all(same);
    assert!(!whole || backward.next().is_none_or(|item| item.is_err()));
}

fn sound_l0(db: &Db) -> usize {
    db.tables().iter().filter(|table| table.level == 0 && table.damage.is_none()).count()
}

/// Fills a store so that it has tables on several levels, and damages one of a level.
fn damaged_at(
    level: usize,
    threads: usize,
    events: &Arc<Mutex<Vec<u64>>>,
) -> (tempfile::TempDir, Db, Map) {
    let dir = common::tempdir();
    let seen = Arc::clone(events);
    let options = options().background_threads(threads).on_event(move |event| {
        if let Event::TableDamaged { table, .. } = event {
            seen.lock().unwrap().push(*table);
        }
    });
    let db = options.open(dir.path()).unwrap();
    let mut map = Map::new();
    let mut put = |number: u32, value: u8| {
        db.put(key(number), [value; 40]).unwrap();
        map.insert(key(number), vec![value; 40]);
    };
    for number in 0..8000 {
        put(number, 1);
    }
    db.wait_until_settled().unwrap();
    for number in (0..8000).step_by(30) {
        put(number, 2);
    }
    db.flush().unwrap();
    let mut tables = db.tables();
    tables.retain(|table| table.level == level);
    assert!(!tables.is_empty(), "{level}");
    damage(dir.path(), &tables[tables.len() / 2], 0.5);
    (dir, db, map)
}

#[test]
fn a_damaged_table_stops_no_writer() {
    for threads in [0, 1] {
        for level in [0, 6] {
            let events = Arc::default();
            let (_dir, db, mut map) = damaged_at(level, threads, &events);
            let mut rng = ChaCha8Rng::seed_from_u64(level as u64);
            // More than 100 memtables over all keys.
            for round in 0..60_000_u32 {
                let number = rng.random_range(0..8000);
                if rng.random_ratio(1, 4) {
                    db.delete(key(number)).unwrap();
                    map.remove(&key(number));
                } else {
                    db.put(key(number), round.to_le_bytes()).unwrap();
                    map.insert(key(number), round.to_le_bytes().to_vec());
                }
                if round % 5000 == 0 {
                    assert!(sound_l0(&db) < 24, "{threads} threads, level {level}");
                }
            }
            db.wait_until_settled().unwrap();
            assert!(db.stats().activity.flushes > 50);
            let errors = check(|key| db.get(key), 8000, &map);
            check_scans(|| db.iter(), &map);
            let marked: Vec<_> = db.tables().into_iter().filter(|t| t.damage.is_some()).collect();
            assert_eq!(marked.len(), 1, "{threads} threads, level {level}");
            assert!(marked[0].damage.as_ref().unwrap().contains(".sst: offset"));
            assert_eq!(*events.lock().unwrap(), [marked[0].id]);
            assert_eq!(db.stats().activity.tables_damaged, 1);
            assert!(matches!(db.compact(), Err(Error::Corrupt { .. })));
            println!(
                "{threads} threads, level {level}: {errors} errors; L0 has {} sound tables",
                sound_l0(&db)
            );
            // The tables over the damaged one are merged with each other.
            assert!(sound_l0(&db) <= 8, "{}", sound_l0(&db));
        }
    }
}

/// A damaged table of a few keys holds only what overlaps it.
#[test]
fn what_overlaps_no_damaged_table_still_descends() {
    let events = Arc::default();
    let (_dir, db, _) = damaged_at(6, 0, &events);
    assert!(db.compact().is_err());
    let tables = db.tables();
    let damaged = tables.iter().find(|table| table.damage.is_some()).unwrap();
    let beside = |number: &u32| {
        let key = key(*number);
        *key < *damaged.smallest || *key > *damaged.largest
    };
    let written = db.stats().table_writes.bytes;
    for (round, numbers) in
        [0..2000, 6000..8000, 2500..2600, 0..2000, 6000..8000].into_iter().enumerate()
    {
        for number in numbers.filter(beside) {
            db.put(key(number), [round as u8; 40]).unwrap();
        }
        db.flush().unwrap();
        db.wait_until_settled().unwrap();
    }
    assert!(db.stats().table_writes.bytes > written);
    let left: Vec<_> = db.tables().into_iter().filter(|table| table.level == 0).collect();
    // Too few to be due, as in a sound store.
    assert!(left.len() < 4, "{left:#?}");
    let over = |level: usize| {
        let tables = db.tables();
        tables.iter().any(|t| {
            t.level == level && t.smallest <= damaged.largest && damaged.smallest <= t.largest
        })
    };
    assert!(over(0) || over(5), "what is newer than the damaged table stays above it");
}

/// A move reads a table for its new filter, and meets damage. It is reported once, and the move succeeds.
#[test]
fn a_move_of_a_damaged_table_reports_it_once() {
    let dir = common::tempdir();
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    // Balanced, so that a lower level has fewer bits.
    let options = || options().background_threads(0).filter(FilterPolicy::default());
    let db = options().open(dir.path()).unwrap();
    for number in 0..8000 {
        db.put(key(number), [1; 40]).unwrap();
    }
    db.wait_until_settled().unwrap();
    db.close().unwrap();
    // As many tables as L0 may have, above all other keys.
    let db = options().auto_compaction(false).open(dir.path()).unwrap();
    for number in 8000..9000 {
        db.put(key(number), [1; 40]).unwrap();
        if number % 200 == 199 {
            db.flush().unwrap();
        }
    }
    let table = db.tables().into_iter().find(|table| table.level == 0).unwrap();
    damage(dir.path(), &table, 0.5);
    db.close().unwrap();
    let db = options()
        .on_event(move |event| {
            if let Event::TableDamaged { table, .. } = event {
                seen.lock().unwrap().push(*table);
            }
        })
        .open(dir.path())
        .unwrap();
    db.wait_until_settled().unwrap();
    assert!(db.stats().activity.tables_moved > 0);
    assert_eq!(*events.lock().unwrap(), [table.id]);
    assert_eq!(db.stats().activity.tables_damaged, 1);
    let wrong = (0..9000).filter(|&number| db.get(key(number)).is_err()).count();
    assert!((1..200).contains(&wrong), "{wrong}");
}

/// More damaged tables on L0 than stop writers.
#[test]
fn many_damaged_tables_stop_no_writer() {
    let dir = common::tempdir();
    let db = options().background_threads(0).auto_compaction(false).open(dir.path()).unwrap();
    for round in 0..30_u8 {
        for number in 0..200 {
            db.put(key(number), [round; 40]).unwrap();
        }
        db.flush().unwrap();
    }
    for table in db.tables() {
        damage(dir.path(), &table, 0.5);
    }
    db.close().unwrap();
    let db = options().background_threads(1).open(dir.path()).unwrap();
    let (done, written) = std::sync::mpsc::channel();
    let writer = db.clone();
    std::thread::spawn(move || {
        for number in 0..20_000 {
            writer.put(key(1000 + number), [1; 40]).unwrap();
        }
        done.send(()).unwrap();
    });
    written.recv_timeout(std::time::Duration::from_secs(60)).expect("the writer goes on");
    db.wait_until_settled().unwrap();
    // No compaction needs the last one alone.
    assert!(db.stats().activity.tables_damaged >= 29);
    assert!(sound_l0(&db) < 24);
    assert_eq!(db.range(key(1000)..).count(), 20_000);
}

/// A wrong byte on the way from the disk is no damage.
#[test]
fn a_single_wrong_read_marks_no_table() {
    use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};
    let dir = common::tempdir();
    let vfs = FaultVfs::new(Arc::new(RealVfs));
    let db = options().background_threads(0).auto_compaction(false).vfs(vfs.clone());
    let db = db.open(dir.path()).unwrap();
    for round in 0..3_u8 {
        for number in 0..300 {
            db.put(key(number), [round; 20]).unwrap();
        }
        db.flush().unwrap();
    }
    let wrong = FaultRule::new(Fault::FlippedBit(1000)).kinds([FileKind::Table]);
    vfs.add(wrong.operations([Operation::Read]));
    assert!(matches!(db.compact(), Err(Error::Corrupt { .. })));
    assert!(db.tables().iter().all(|table| table.damage.is_none()));
    db.compact().unwrap();
    assert_eq!(db.iter().count(), 300);
}

/// Writes, flushes, compactions, snapshots and reopenings, with up to four damaged tables: each answer is that of a
/// map, or an error.
#[test]
fn nothing_older_comes_back_over_a_damaged_table() {
    let (mut errors, mut damaged, mut left) = (0_u64, 0, 0);
    for seed in 0..common::part(40) as u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let dir = common::tempdir();
        let options = || {
            let triggers = options().l0_compaction_trigger(2 + seed as usize % 3);
            triggers
                .background_threads(usize::from(seed % 4 == 3))
                .memtable_bytes(8 << 10)
                .table_bytes(4 << 10)
                .level_base_bytes(8 << 10)
        };
        let mut db = options().open(dir.path()).unwrap();
        let keys = *[100, 1000].choose(&mut rng).unwrap();
        let (mut map, mut snapshots) = (Map::new(), Vec::<(Snapshot, Map)>::new());
        let mut broken = BTreeSet::new();
        for round in 0..60_u32 {
            // All keys, or those of a part.
            let from = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..keys) };
            let to = if from == 0 { keys } else { keys.min(from + keys / 10) };
            for number in 0..rng.random_range(1..300_u32) {
                let key = key(rng.random_range(from..to));
                if rng.random_bool(0.3) {
                    db.delete(&key).unwrap();
                    map.remove(&key);
                } else {
                    let value = [round, number, seed as u32].map(u32::to_le_bytes).concat();
                    db.put(&key, &value).unwrap();
                    map.insert(key, value);
                }
            }
            match rng.random_range(0..10) {
                0 => db.flush().unwrap(),
                1 => db.wait_until_settled().unwrap(),
                2 => _ = db.compact().is_ok(),
                3 => snapshots.push((db.snapshot(), map.clone())),
                4 => snapshots.truncate(1),
                5 if broken.len() < 4 && round > 8 => {
                    db.flush().unwrap();
                    // A compaction under way would remove the table before it is damaged.
                    if seed % 4 == 3 {
                        db.wait_until_settled().unwrap();
                    }
                    if let Some(table) = db.tables().choose(&mut rng)
                        && broken.insert(table.id)
                    {
                        damage(dir.path(), table, rng.random_range(0.0..1.0));
                        damaged += 1;
                    }
                }
                6 if rng.random_bool(0.3) => {
                    snapshots.clear();
                    db.close().unwrap();
                    db = options().open(dir.path()).unwrap();
                }
                _ => {}
            }
            if round % 4 == 0 {
                errors += u64::from(check(|key| db.get(key), keys, &map));
                check_scans(|| db.iter(), &map);
                for (snapshot, then) in &snapshots {
                    errors += u64::from(check(|key| snapshot.get(key), keys, then));
                    check_scans(|| snapshot.iter(), then);
                }
            }
            assert!(sound_l0(&db) <= 24, "seed {seed}");
        }
        left += db.tables().iter().filter(|table| table.damage.is_some()).count();
    }
    println!("{damaged} tables damaged, {left} left, {errors} errors");
    assert!(
        damaged > common::part(40) && left > common::part(10) && errors > common::part(100) as u64
    );
}
