//! Lookups of present and absent keys in a settled store of several levels, with a warm page cache.
//!
//! `cargo bench -p criba-benches --bench lookups`. Compare times within one run only.

use std::hint::black_box;

use criba::{Db, FilterPolicy, Options};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const KEYS: u64 = 200_000;

fn key(i: u64) -> String {
    format!("user{:012}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20)
}

fn options() -> Options {
    Options::new().memtable_bytes(2 << 20).table_bytes(1 << 20).level_base_bytes(1 << 20)
}

fn load(dir: &std::path::Path, options: Options) -> criba::Result<Db> {
    let db = options.open(dir)?;
    for i in 0..KEYS {
        db.put(key(i), [b'v'; 100])?;
    }
    db.wait_until_settled()?;
    Ok(db)
}

fn get(c: &mut Criterion) {
    let mut group = c.benchmark_group("get");
    group.throughput(Throughput::Elements(1));
    let arms = [
        ("filters, no cache", options().cache_bytes(0)),
        ("filters, cache", options()),
        ("no filters, no cache", options().filter(FilterPolicy::none()).cache_bytes(0)),
    ];
    for (arm, options) in arms {
        let dir = tempfile::tempdir().expect("a directory");
        let db = load(dir.path(), options).expect("a store");
        for (what, first) in [("absent", KEYS), ("present", 0)] {
            let keys: Vec<_> = (first..first + KEYS).map(key).collect();
            let mut next = keys.iter().cycle();
            group.bench_function(format!("{what}, {arm}"), |b| {
                b.iter(|| black_box(db.get(next.next().expect("a cycle")).expect("a sound store")));
            });
        }
    }
    group.finish();
}

/// All keys in one large memtable: the effect of its filter.
fn get_from_memtable(c: &mut Criterion) {
    let mut group = c.benchmark_group("get, memtable");
    group.throughput(Throughput::Elements(1));
    for (arm, ignore) in [("with its filter", false), ("filters ignored", true)] {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options::new().memtable_bytes(1 << 30).ignore_filters(ignore);
        let db = options.open(dir.path()).expect("a store");
        for i in 0..KEYS {
            db.put(key(i), [b'v'; 100]).expect("a sound store");
        }
        for (what, first) in [("absent", KEYS), ("present", 0)] {
            let keys: Vec<_> = (first..first + KEYS).map(key).collect();
            let mut next = keys.iter().cycle();
            group.bench_function(format!("{what}, {arm}"), |b| {
                b.iter(|| black_box(db.get(next.next().expect("a cycle")).expect("a sound store")));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, get, get_from_memtable);
criterion_main!(benches);
