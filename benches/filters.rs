//! Filters on their own: how long it takes to write a table with and without one, and to ask it.
//!
//! `cargo bench --bench filters`. Times are this machine's; compare them within one run.

use std::hint::black_box;

use criba::{Db, FilterPolicy, Options, TableFile};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const KEYS: u64 = 100_000;

fn key(i: u64) -> String {
    format!("user{:012}", i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20)
}

fn store(dir: &std::path::Path, filter: FilterPolicy) -> criba::Result<Db> {
    let db = Options::new().filter(filter).background_threads(0).open(dir)?;
    for i in 0..KEYS {
        db.put(key(i), "value")?;
    }
    Ok(db)
}

/// The flush of a memtable: entries in, a synced table with its filter out.
fn flush(c: &mut Criterion) {
    let mut group = c.benchmark_group("flush");
    group.sample_size(10).throughput(Throughput::Elements(KEYS));
    for (name, filter) in [
        ("no filter", FilterPolicy::none()),
        ("bloom at 1 %", FilterPolicy::rate(0.01)),
        ("bloom at 0.01 %", FilterPolicy::rate(0.0001)),
    ] {
        group.bench_function(name, |b| {
            b.iter_batched(
                || {
                    let dir = tempfile::tempdir().expect("a directory");
                    let db = store(dir.path(), filter).expect("a store");
                    (dir, db)
                },
                |(dir, db)| {
                    db.flush().expect("a real disk");
                    (dir, db)
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// One filter asked for absent and present keys, hashing included.
fn probe(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let db = store(dir.path(), FilterPolicy::rate(0.01)).expect("a store");
    db.flush().expect("a real disk");
    let id = db.tables()[0].id;
    let table = TableFile::open(dir.path().join(format!("{id:06}.sst"))).expect("a sound table");
    let mut group = c.benchmark_group("probe");
    group.throughput(Throughput::Elements(1));
    for (name, first) in [("present", 0), ("absent", KEYS)] {
        let keys: Vec<_> = (first..first + KEYS).map(key).collect();
        let mut next = keys.iter().cycle();
        group.bench_function(name, |b| {
            b.iter(|| black_box(table.verdict(next.next().expect("a cycle"))));
        });
    }
    group.finish();
}

criterion_group!(benches, flush, probe);
criterion_main!(benches);
