//! The memo of false positives: a table is read in vain for a key once, and no key is hidden by it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use criba::vfs::{CountingVfs, FileKind, Operation};
use criba::{Counts, FilterPolicy, Options, Snapshot};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common;

fn options() -> Options {
    common::options().background_threads(0).seed(3).cache_bytes(0).block_bytes(512)
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:07}").into_bytes()
}

/// Four tables over one range of keys, the even ones; their filters pass one absent key in twenty.
fn build(dir: &Path) {
    let options = options().filter(FilterPolicy::classic().with_rate(0.05)).auto_compaction(false);
    let db = options.open(dir).unwrap();
    for part in 0..4 {
        for number in (2 * part..40_000).step_by(8) {
            db.put(key(number), [1; 20]).unwrap();
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
}

/// Ranks from 0, the rank r with probability in proportion to 1 / (r + 1)^0.99.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: u32) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += f64::from(rank).powf(-0.99);
            sum
        });
        Self(sums.collect())
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> u32 {
        let all = self.0.last().unwrap();
        let point = rng.random_range(0.0..*all);
        self.0.partition_point(|&sum| sum <= point) as u32
    }
}

/// What the memo saves when some absent keys are asked for much more often than others.
#[test]
fn zipfian_absent_keys_are_read_for_once() {
    const LOOKUPS: usize = 200_000;
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir);
    let zipf = Zipf::new(20_000);
    let run = |memo: u64| -> (u64, Counts) {
        let mut rng = ChaCha8Rng::seed_from_u64(99);
        let vfs = CountingVfs::new(common::HookVfs::without_syncs());
        let options = options().false_positive_memo(memo).auto_compaction(false);
        let db = options.vfs(Arc::new(vfs.clone())).open(&dir).unwrap();
        let reads = || vfs.counts().of(FileKind::Table, Operation::Read).calls;
        let before = reads();
        for _ in 0..LOOKUPS {
            // Odd keys are absent; popular ones lie anywhere.
            let number = zipf.draw(&mut rng).wrapping_mul(7919) % 20_000;
            assert!(!db.contains(key(2 * number + 1)).unwrap());
        }
        (reads() - before, db.stats().total())
    };
    let (reads_without, without) = run(0);
    assert_eq!(without.remembered, 0);
    assert_eq!(without.disk_reads, reads_without);
    for (memo, least) in [(16 << 10, 0.5), (64 << 10, 0.65), (1 << 20, 0.9)] {
        let (reads, counts) = run(memo);
        let saved = 1.0 - reads as f64 / reads_without as f64;
        println!(
            "{LOOKUPS} lookups, zipfian (0.99) over 20,000 absent keys, memo of {memo} bytes: \
             {reads} reads, {reads_without} without, {:.1} % saved; {} remembered",
            100.0 * saved,
            counts.remembered
        );
        assert_eq!(counts.disk_reads, reads);
        assert_eq!(counts.false_positives, reads);
        assert_eq!(reads + counts.remembered, reads_without);
        assert_eq!(counts.true_negatives, without.true_negatives);
        assert_eq!(counts.probes(), without.probes());
        assert!(saved > least, "{saved}");
    }
}

#[test]
fn a_key_that_comes_is_found_though_it_was_remembered_as_absent() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir);
    let db = options().auto_compaction(false).open(&dir).unwrap();
    let ask = |expected: bool| {
        let before = db.stats();
        for number in (1..40_000).step_by(2) {
            assert_eq!(db.contains(key(number)).unwrap(), expected, "{number}");
        }
        (db.stats() - before).total()
    };
    let (first, again) = (ask(false), ask(false));
    println!("{} mistakes, {} remembered", first.false_positives, again.remembered);
    assert!(first.false_positives > 3000 && first.remembered == 0);
    assert_eq!((again.remembered, again.false_positives), (first.false_positives, 0));
    for number in (1..40_000).step_by(2) {
        db.put(key(number), "now").unwrap();
    }
    ask(true); // from the memtable
    db.flush().unwrap();
    ask(true); // from a table, whose keys the other tables are remembered not to hold
    db.compact().unwrap();
    assert_eq!(ask(true).remembered, 0, "the tables are new");
    for number in (1..40_000).step_by(2) {
        db.delete(key(number)).unwrap();
    }
    db.compact().unwrap();
    let (first, again) = (ask(false), ask(false));
    assert_eq!((first.remembered, again.remembered), (0, first.false_positives));
}

/// Poor filters, much asked, through flushes, compactions, snapshots and reopenings, beside a map.
#[test]
fn no_key_is_hidden() {
    const SEEDS: u64 = 40;
    let (mut remembered, mut lookups) = (0, 0_u64);
    for seed in 0..SEEDS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let memo = [1 << 20, 4000, 600][seed as usize % 3];
        let policy = [FilterPolicy::classic(), FilterPolicy::default()][seed as usize % 2];
        let parent = common::tempdir();
        let options = options()
            .filter(policy.with_rate(0.5))
            .false_positive_memo(memo)
            .memtable_bytes(4 << 10)
            .table_bytes(1 << 10)
            .level_base_bytes(100)
            .vfs(common::HookVfs::without_syncs());
        let mut db = options.clone().open(parent.path()).unwrap();
        let mut map: BTreeMap<u32, u64> = BTreeMap::new();
        let mut held: Option<(Snapshot, BTreeMap<u32, u64>)> = None;
        for operation in 0..4000_u64 {
            let number = rng.random_range(0..300);
            match rng.random_range(0..1000) {
                0..100 => {
                    db.put(key(number), operation.to_le_bytes()).unwrap();
                    map.insert(number, operation);
                }
                100..180 => {
                    db.delete(key(number)).unwrap();
                    map.remove(&number);
                }
                180..190 => db.flush().unwrap(),
                190..194 => db.compact().unwrap(),
                194..198 => held = Some((db.snapshot().unwrap(), map.clone())),
                198..200 => {
                    remembered += db.stats().total().remembered;
                    held = None;
                    db.close().unwrap();
                    db = options.clone().open(parent.path()).unwrap();
                }
                _ => {
                    let (found, expected) = match &held {
                        Some((snapshot, map)) if rng.random_bool(0.3) => {
                            (snapshot.get(key(number)).unwrap(), map.get(&number))
                        }
                        _ => (db.get(key(number)).unwrap(), map.get(&number)),
                    };
                    let expected = expected.map(|operation| operation.to_le_bytes());
                    let found = found.as_deref();
                    assert_eq!(found, expected.as_ref().map(|v| &v[..]), "seed {seed}, {number}");
                    lookups += 1;
                }
            }
        }
        remembered += db.stats().total().remembered;
    }
    println!("{SEEDS} seeds: {lookups} lookups, {remembered} reads not made again");
    assert!(remembered > 3000);
}
