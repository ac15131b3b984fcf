//! `cargo bench`: filters, lookups with filters and without, and the disk reads of absent lookups, which are
//! counted, not timed. Compare times within one run only.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criba::{Db, FilterKind, FilterPolicy, Options};
use criba_filter::HashFilter;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const KEYS: u64 = 50_000;

/// The kinds, at the sizes of a false-positive rate of 1 %.
const KINDS: [(FilterKind, f64); 3] =
    [(FilterKind::Bloom, 9.585), (FilterKind::Blocked, 10.1), (FilterKind::Ribbon, 7.4)];

/// The `i`th output of SplitMix64.
fn hash(i: u64) -> u64 {
    let mut z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn key(i: u64) -> String {
    format!("user{:012}", hash(i) >> 24)
}

fn build(c: &mut Criterion) {
    let hashes: Vec<u64> = (0..KEYS).map(hash).collect();
    let mut group = c.benchmark_group("build a filter of 50,000 keys");
    group.throughput(Throughput::Elements(KEYS));
    for (kind, bits) in KINDS {
        group.bench_function(kind.to_string(), |b| {
            b.iter(|| HashFilter::build(kind, bits, hashes.clone()));
        });
    }
}

fn probe(c: &mut Criterion) {
    let mut group = c.benchmark_group("probe a filter");
    group.throughput(Throughput::Elements(1));
    for (kind, bits) in KINDS {
        let filter = HashFilter::build(kind, bits, (0..KEYS).map(hash).collect());
        for (what, first) in [("absent", KEYS), ("present", 0)] {
            let hashes: Vec<u64> = (first..first + KEYS).map(hash).collect();
            let mut next = hashes.iter().cycle();
            group.bench_function(format!("{kind}, {what}"), |b| {
                b.iter(|| filter.may_contain(black_box(*next.next().expect("a cycle"))));
            });
        }
    }
}

/// A settled store of some levels, without a block cache.
fn store(dir: &Path, filter: FilterPolicy) -> Db {
    let options = Options::new().memtable_bytes(256 << 10).table_bytes(256 << 10);
    let options = options.level_base_bytes(512 << 10).background_threads(0).seed(1);
    let db = options.cache_bytes(0).filter(filter).open(dir).expect("a store");
    for i in 0..KEYS {
        db.put(key(i), [b'v'; 100]).expect("a sound store");
    }
    db.wait_until_settled().expect("a sound store");
    db
}

fn lookups(c: &mut Criterion) {
    let mut reads = Vec::new();
    let mut group = c.benchmark_group("look up");
    group.throughput(Throughput::Elements(1));
    for (arm, policy) in
        [("filters", FilterPolicy::default()), ("no filters", FilterPolicy::none())]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let db = store(dir.path(), policy);
        for (what, first) in [("absent", KEYS), ("present", 0)] {
            let keys: Vec<_> = (first..first + KEYS).map(key).collect();
            let get = |key: &String| db.get(key).expect("a sound store").is_some();
            let before = db.stats();
            let found = keys.iter().filter(|key| get(key)).count() as u64;
            assert_eq!(found, if first == 0 { KEYS } else { 0 });
            let each = (db.stats() - before).total().disk_reads as f64 / KEYS as f64;
            reads.push((format!("{what}, {arm}"), each));
            let mut next = keys.iter().cycle();
            group.bench_function(format!("{what}, {arm}"), |b| {
                b.iter(|| black_box(get(next.next().expect("a cycle"))));
            });
        }
    }
    group.finish();
    println!("disk reads a lookup, counted");
    for (what, each) in &reads {
        println!("  {what:<22}{each:>8.4}");
    }
    let [absent, present, absent_unfiltered, present_unfiltered] = [0, 1, 2, 3].map(|i| reads[i].1);
    assert!(absent < 0.03 && absent_unfiltered > 1.5, "filters avoid nearly every read: {reads:?}");
    assert!(present < 1.02 && present_unfiltered > present, "one read a present key: {reads:?}");
}

fn quick() -> Criterion {
    let criterion = Criterion::default().sample_size(20).without_plots();
    criterion.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(800))
}

criterion_group! { name = benches; config = quick(); targets = build, probe, lookups }
criterion_main!(benches);
