//! W2 to W5: lookups in a store at rest, with files in the page cache.

use std::sync::Barrier;
use std::time::Instant;

use super::Bench;
use crate::keys::{Keys, Lookups};
use crate::measure::{Budget, Timing, latencies, lookups, timed};
use crate::stores::{Reader, Store};
use crate::{Result, process};

/// Keys for one measurement. Passes share no keys: a cache would know them.
struct Passes {
    warming: Lookups,
    speed: Lookups,
    latency: Lookups,
}

impl Passes {
    fn draw(bench: &Bench<'_>, mut keys: impl FnMut(u64) -> Lookups) -> Self {
        let operations = |part| bench.budget().part(part).operations;
        Self {
            warming: keys(operations(4)),
            speed: keys(operations(1)),
            latency: keys(operations(2)),
        }
    }
}

/// Returns absent keys that were not used before.
fn fresh(keys: &Keys) -> impl FnMut(u64) -> Lookups {
    let mut first = 0;
    move |count| {
        first += count;
        keys.absent(first - count, count)
    }
}

/// W2: absent keys, each once, in random order; then by two threads with different keys.
pub fn absent<S: Store>(bench: &mut Bench<'_>, threads: bool) -> Result<()> {
    let mut keys = fresh(bench.keys);
    let passes = Passes::draw(bench, &mut keys);
    let of_threads = [keys(bench.job.lookups), keys(bench.job.lookups)];
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    one_thread(bench, &store, &passes, "absent")?;
    if threads {
        let together = two_threads(bench.budget(), &store, &of_threads)?;
        bench.figure("absent_2_threads_ns", together.nanoseconds());
        let alone = bench.findings.figures["absent_ns"];
        bench.figure("threads_gain", alone / together.nanoseconds());
    }
    store.close()
}

/// W2m: absent keys in batches.
pub fn batches<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    const BATCH: usize = 16;
    let mut fresh = fresh(bench.keys);
    let mut whole =
        |part| fresh(bench.budget().part(part).operations.next_multiple_of(BATCH as u64));
    let (warming, keys, others) = (whole(4), whole(1), whole(1));
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    let reader = store.reader()?;
    let mut found = Vec::with_capacity(BATCH);
    let mut pass = |keys: &Lookups, budget| {
        let mut i = 0;
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
    pass(&warming, bench.budget().part(4))?;
    let timing = pass(&keys, bench.budget())?;
    bench.figure("batch_ns", timing.nanoseconds());
    bench.figure("batch_cpu_ns", timing.cpu_nanoseconds());
    // For what a batch gains over its keys one by one, in the same process.
    let single = lookups(bench.budget(), &reader, &others)?.nanoseconds();
    bench.figure("single_ns", single);
    bench.figure("batch_gain", single / timing.nanoseconds());
    drop(reader);
    store.close()
}

/// W3: present keys with equal probability; and memory.
pub fn present<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let mut random = bench.random.clone();
    let passes = Passes::draw(bench, |count| bench.keys.present(count, &mut random));
    process::forget_peak()?;
    let before = process::resident_bytes()?;
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    one_thread(bench, &store, &passes, "present")?;
    bench.figure(
        "peak_mib",
        process::peak_bytes()?.saturating_sub(before) as f64 / f64::from(1 << 20),
    );
    store.close()
}

/// W4: present keys, few of them often.
pub fn zipfian<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let mut random = bench.random.clone();
    let passes = Passes::draw(bench, |count| bench.keys.zipfian(count, &mut random));
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    one_thread(bench, &store, &passes, "zipfian")?;
    store.close()
}

/// W5: every other key present.
pub fn half<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let mut random = bench.random.clone();
    let passes = Passes::draw(bench, |count| bench.keys.half(count, &mut random));
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    one_thread(bench, &store, &passes, "half")?;
    store.close()
}

/// A quarter to warm up, a pass for the speed, and half of one for percentiles.
fn one_thread<S: Store>(
    bench: &mut Bench<'_>,
    store: &S,
    passes: &Passes,
    name: &str,
) -> Result<()> {
    let (budget, reader) = (bench.budget(), store.reader()?);
    lookups(budget.part(4), &reader, &passes.warming)?;
    let timing = lookups(budget, &reader, &passes.speed)?;
    bench.figure(&format!("{name}_ns"), timing.nanoseconds());
    bench.figure(&format!("{name}_cpu_ns"), timing.cpu_nanoseconds());
    let samples = latencies(budget.part(2), &reader, &passes.latency)?;
    bench.figure(&format!("{name}_p50_ns"), samples.at(0.5));
    bench.figure(&format!("{name}_p99_ns"), samples.at(0.99));
    bench.figure(&format!("{name}_p999_ns"), samples.at(0.999));
    Ok(())
}

/// The lookups of all threads over the time from the first start to the last end.
fn two_threads<S: Store>(budget: Budget, store: &S, keys: &[Lookups; 2]) -> Result<Timing> {
    let barrier = Barrier::new(keys.len());
    std::thread::scope(|scope| {
        let threads = keys.each_ref().map(|keys| {
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
        let cpu_seconds = spans.iter().map(|span| span.1.cpu_seconds).sum();
        Ok(Timing { operations, seconds: (last - first).as_secs_f64(), cpu_seconds })
    })
}
