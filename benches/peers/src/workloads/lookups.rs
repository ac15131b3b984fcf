//! W2 to W5: lookups in a store at rest, its files in the page cache.

use std::sync::Barrier;
use std::time::Instant;

use super::Bench;
use crate::keys::Lookups;
use crate::measure::{Budget, Timing, latencies, lookups, timed};
use crate::stores::{Reader, Store};
use crate::{Result, process};

/// W2: absent keys, each asked for once, in no order; then by two threads, each with its own keys.
pub fn absent<S: Store>(bench: &mut Bench<'_>, threads: bool) -> Result<()> {
    let keys = bench.keys.absent(0, bench.job.lookups);
    let others = bench.keys.absent(bench.job.lookups, bench.job.lookups);
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    one_thread(bench, &store, &keys, "absent")?;
    if threads {
        let together = two_threads(bench.budget(), &store, [&keys, &others])?;
        bench.figure("absent_2_threads_ns", together.nanoseconds());
        let alone = bench.findings.figures["absent_ns"];
        bench.figure("threads_gain", alone / together.nanoseconds());
    }
    store.close()
}

/// W2m: absent keys in batches.
pub fn batches<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    const BATCH: usize = 16;
    let keys = bench.keys.absent(0, bench.job.lookups.next_multiple_of(BATCH as u64));
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    let reader = store.reader()?;
    let mut found = Vec::with_capacity(BATCH);
    let mut i = 0;
    let mut pass = |budget| {
        timed(budget, |_| {
            let batch: [&[u8]; BATCH] = std::array::from_fn(|at| keys.keys.get(i + at));
            found.clear();
            reader.get_many(&batch, &mut found)?;
            if found.len() != BATCH || found.iter().any(Option::is_some) {
                return Err(format!("wrong answer: {found:?} for absent keys").into());
            }
            i = (i + BATCH) % keys.keys.len();
            Ok(BATCH as u64)
        })
    };
    pass(bench.budget().part(4))?;
    let timing = pass(bench.budget())?;
    bench.figure("batch_ns", timing.nanoseconds());
    // For what a batch gains over its keys one by one, in the same process.
    let single = lookups(bench.budget(), &reader, &keys)?.nanoseconds();
    bench.figure("single_ns", single);
    bench.figure("batch_gain", single / timing.nanoseconds());
    drop(reader);
    store.close()
}

/// W3: present keys, all as likely; and the memory that it takes.
pub fn present<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let keys = bench.keys.present(bench.job.lookups, &mut bench.random);
    process::forget_peak()?;
    let before = process::resident_bytes()?;
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    one_thread(bench, &store, &keys, "present")?;
    bench.figure(
        "peak_mib",
        process::peak_bytes()?.saturating_sub(before) as f64 / f64::from(1 << 20),
    );
    store.close()
}

/// W4: present keys, few of them often.
pub fn zipfian<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let keys = bench.keys.zipfian(bench.job.lookups, &mut bench.random);
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    one_thread(bench, &store, &keys, "zipfian")?;
    store.close()
}

/// W5: every other key present.
pub fn half<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let keys = bench.keys.half(bench.job.lookups, &mut bench.random);
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    one_thread(bench, &store, &keys, "half")?;
    store.close()
}

/// A quarter to warm up, a pass for the speed, and half of one for percentiles.
fn one_thread<S: Store>(
    bench: &mut Bench<'_>,
    store: &S,
    keys: &Lookups,
    name: &str,
) -> Result<()> {
    let reader = store.reader()?;
    lookups(bench.budget().part(4), &reader, keys)?;
    let timing = lookups(bench.budget(), &reader, keys)?;
    bench.figure(&format!("{name}_ns"), timing.nanoseconds());
    let samples = latencies(bench.budget().part(2), &reader, keys)?;
    bench.figure(&format!("{name}_p50_ns"), samples.at(0.5));
    bench.figure(&format!("{name}_p99_ns"), samples.at(0.99));
    bench.figure(&format!("{name}_p999_ns"), samples.at(0.999));
    Ok(())
}

/// All threads' lookups over the time from when the first begins until the last is done.
fn two_threads<S: Store>(budget: Budget, store: &S, keys: [&Lookups; 2]) -> Result<Timing> {
    let barrier = Barrier::new(keys.len());
    std::thread::scope(|scope| {
        let threads = keys.map(|keys| {
            let barrier = &barrier;
            scope.spawn(move || {
                let reader = store.reader();
                barrier.wait();
                let start = Instant::now();
                let timing = lookups(budget, &reader?, keys)?;
                Ok::<_, crate::Error>((start, timing, Instant::now()))
            })
        });
        let mut spans = Vec::new();
        for thread in threads {
            spans.push(thread.join().map_err(|_| "a thread panicked")??);
        }
        let first = spans.iter().map(|span| span.0).min().ok_or("no threads")?;
        let last = spans.iter().map(|span| span.2).max().ok_or("no threads")?;
        let operations = spans.iter().map(|span| span.1.operations).sum();
        Ok(Timing { operations, seconds: (last - first).as_secs_f64() })
    })
}
