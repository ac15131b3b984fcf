//! Random keys of few letters, under prefix extractors that change at openings: every scan by prefix or
//! range, from either end, of the store or a snapshot, returns the same as a map.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use criba::{Db, FilterPolicy, Options, PrefixCounts, PrefixExtractor, Range, Snapshot};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common;

type Map = BTreeMap<Vec<u8>, u64>;
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn open(seed: u64, rng: &mut ChaCha8Rng, dir: &Path) -> Db {
    let policy = match seed % 4 {
        0 => FilterPolicy::default(),
        1 => FilterPolicy::ribbon(),
        2 => FilterPolicy::classic(),
        _ => FilterPolicy::rate(0.3),
    };
    let options = Options::new()
        .background_threads(0)
        .filter(policy)
        .cache_bytes(0)
        .memtable_bytes(3000)
        .table_bytes(1024)
        .level_base_bytes(50)
        .block_bytes(128)
        .vfs(common::HookVfs::without_syncs());
    let extractor = match rng.random_range(0..11) {
        0 => return options.open(dir).unwrap(),
        1 => PrefixExtractor::fixed(1),
        2 => PrefixExtractor::fixed(2),
        3 => PrefixExtractor::fixed(3),
        4 => PrefixExtractor::until(0xff),
        5..=7 => PrefixExtractor::every(b'/'),
        _ => PrefixExtractor::until(b'/'),
    };
    options.prefix(extractor).open(dir).unwrap()
}

fn string(rng: &mut ChaCha8Rng, longest: usize) -> Vec<u8> {
    let length = rng.random_range(0..=longest);
    (0..length).map(|_| b"\0ab/\xff"[rng.random_range(0..5)]).collect()
}

/// A bound at a key that begins with `prefix`, or none.
fn bound(rng: &mut ChaCha8Rng, prefix: &[u8]) -> Bound<Vec<u8>> {
    let key = [prefix, &string(rng, 2)].concat();
    match rng.random_range(0..5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn contains((start, end): &Bounds, key: &Vec<u8>) -> bool {
    let after = match start {
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
        Bound::Unbounded => true,
    };
    let before = match end {
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
        Bound::Unbounded => true,
    };
    after && before
}

/// All items of a scan, taken from both ends.
fn items(mut scan: Range, rng: &mut ChaCha8Rng) -> Vec<(Vec<u8>, u64)> {
    let backward = [0.0, 0.5, 1.0][rng.random_range(0..3)];
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let (item, side) = if rng.random_bool(backward) {
            (scan.next_back(), &mut back)
        } else {
            (scan.next(), &mut front)
        };
        let Some(item) = item else { break };
        let (key, value) = item.unwrap();
        side.push((key.to_vec(), u64::from_le_bytes(value[..].try_into().unwrap())));
    }
    front.extend(back.into_iter().rev());
    front
}

/// Writes and deletes, among them all keys of one prefix, which it returns.
fn write(db: &Db, map: &mut Map, round: u64, rng: &mut ChaCha8Rng) -> Vec<u8> {
    for _ in 0..120 {
        let key = string(rng, 6);
        if rng.random_bool(0.35) {
            db.delete(&key).unwrap();
            map.remove(&key);
        } else {
            db.put(&key, round.to_le_bytes()).unwrap();
            map.insert(key, round);
        }
    }
    let gone = string(rng, 3);
    for key in map.keys().filter(|key| key.starts_with(&gone)) {
        db.delete(key).unwrap();
    }
    map.retain(|key, _| !key.starts_with(&gone));
    gone
}

/// Runs one scan and compares it; returns whether it was empty.
fn check(
    db: &Db,
    map: &Map,
    held: Option<&(Snapshot, Map)>,
    prefix: &[u8],
    rng: &mut ChaCha8Rng,
) -> bool {
    let bounds = rng.random_bool(0.4).then(|| (bound(rng, prefix), bound(rng, prefix)));
    let scan = match (held, bounds.clone()) {
        (None, None) => db.prefix(prefix),
        (None, Some(bounds)) => db.range(bounds),
        (Some((snapshot, _)), None) => snapshot.prefix(prefix),
        (Some((snapshot, _)), Some(bounds)) => snapshot.range(bounds),
    };
    let found = items(scan, rng);
    let expected: Vec<_> = held
        .map_or(map, |(_, map)| map)
        .iter()
        .filter(|(key, _)| match &bounds {
            None => key.starts_with(prefix),
            Some(bounds) => contains(bounds, key),
        })
        .map(|(key, value)| (key.clone(), *value))
        .collect();
    assert_eq!(found, expected, "{prefix:?} {bounds:?}");
    found.is_empty()
}

#[test]
fn scans_give_what_a_map_gives() {
    let seeds = common::part(60) as u64;
    let mut met = PrefixCounts::default();
    let (mut scans, mut empty) = (0, 0);
    for seed in 0..seeds {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let parent = common::tempdir();
        let mut db = open(seed, &mut rng, parent.path());
        let mut map = Map::new();
        let mut held: Option<(Snapshot, Map)> = None;
        for round in 0..8 {
            let gone = write(&db, &mut map, round, &mut rng);
            match rng.random_range(0..6) {
                0 => held = Some((db.snapshot(), map.clone())),
                1 => db.flush().unwrap(),
                2 => db.compact().unwrap(),
                3 => {
                    held = None;
                    met += db.stats().prefix;
                    db.close().unwrap();
                    db = open(seed, &mut rng, parent.path());
                }
                _ => {}
            }
            for _ in 0..150 {
                let prefix = if rng.random_bool(0.1) { gone.clone() } else { string(&mut rng, 4) };
                let held = held.as_ref().filter(|_| rng.random_bool(0.5));
                empty += u64::from(check(&db, &map, held, &prefix, &mut rng));
                scans += 1;
            }
        }
        met += db.stats().prefix;
    }
    println!("{seeds} seeds: {scans} scans, {empty} of them empty; {met:?}");
    let many = common::part(2000) as u64;
    assert!(
        met.skipped > many && met.passed > many && met.unfiltered > many && met.wasted > many / 20
    );
}
