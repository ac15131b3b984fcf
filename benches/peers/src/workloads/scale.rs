//! W13: a store of any size, which an ingest makes: opening, memory, lookups, and a window of puts.

use std::time::Instant;

use super::Bench;
use super::ingest::New;
use crate::keys::{List, Lookups};
use crate::measure::lookups;
use crate::settings::{Shape, Told};
use crate::stores::Store;
use crate::{Result, process};

/// How many keys are overwritten.
const PUTS: u64 = 1_000_000;

pub fn scale<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let dir = bench.place.scratch()?;
    let config = bench.config(Shape::Settled);
    let n = bench.job.n;
    let new = New { keys: bench.keys, first: b'u' };

    process::forget_peak()?;
    let before = process::resident_bytes()?;
    let store = S::open(&dir, &config, &mut bench.findings.settings)?;
    let start = Instant::now();
    store.ingest(new.pairs())?;
    store.settle()?;
    bench.figure("ingest_ns", start.elapsed().as_secs_f64() * 1e9 / n as f64);
    bench.figure("ingest_peak_mib", mebibytes(process::peak_bytes()?.saturating_sub(before)));
    store.close()?;

    let before = process::resident_bytes()?;
    let start = Instant::now();
    let store = S::open(&dir, &config, &mut Told::default())?;
    bench.figure("open_ms", start.elapsed().as_secs_f64() * 1e3);
    bench.figure("open_mib", mebibytes(process::resident_bytes()?.saturating_sub(before)));
    bench.describe(&store)?;

    let mut random = bench.random.clone();
    let mut draw = |last, expected, count| {
        let mut keys = List::default();
        for _ in 0..count {
            keys.push(&new.key(random.below(n), last));
        }
        Lookups { expected: vec![expected; keys.len()], keys }
    };
    let reader = store.reader()?;
    for (name, last, expected) in [("absent", b'-', false), ("present", b'_', true)] {
        let [warming, keys] = [4, 1].map(|part| draw(last, expected, bench.job.lookups / part));
        lookups(bench.budget().part(4), &reader, &warming)?;
        let reads = store.own_reads();
        let timing = lookups(bench.budget(), &reader, &keys)?;
        bench.figure(&format!("{name}_ns"), timing.nanoseconds());
        if let (Some(before), Some(now)) = (reads, store.own_reads()) {
            bench
                .figure(&format!("{name}_reads"), (now - before) as f64 / timing.operations as f64);
        }
    }
    drop(reader);

    process::forget_peak()?;
    let before = process::resident_bytes()?;
    let (start, mut longest) = (Instant::now(), 0.0f64);
    for _ in 0..PUTS {
        let i = random.below(n);
        let put = Instant::now();
        store.put(&new.key(i, b'_'), bench.keys.value(i, 1))?;
        longest = longest.max(put.elapsed().as_secs_f64());
    }
    bench.figure("puts_per_s", PUTS as f64 / start.elapsed().as_secs_f64());
    bench.figure("longest_put_ms", longest * 1e3);
    store.settle()?;
    bench.figure("puts_settled_s", start.elapsed().as_secs_f64());
    bench.figure("puts_peak_mib", mebibytes(process::peak_bytes()?.saturating_sub(before)));
    store.close()?;
    bench.findings.disk_bytes = Some(crate::loaded::disk_bytes(&dir)?);
    Ok(std::fs::remove_dir_all(dir)?)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
