//! W7: writes that survive a power failure, one by one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Bench;
use crate::Result;
use crate::keys::Keys;
use crate::measure::{Budget, Percentiles, Timing, timed_slow};
use crate::settings::Shape;
use crate::stores::Store;

const THREADS: u64 = 8;

/// W7: one thread, then eight.
pub fn synced<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let dir = bench.place.scratch()?;
    let config = bench.config(Shape::Settled);
    let store: S = bench.open(&dir, &config)?;
    let budget = Budget { operations: bench.job.n / 4, seconds: bench.job.seconds };
    let next = AtomicU64::new(0);

    write(&store, bench.keys, &next, budget.part(8), &mut Vec::new())?;
    let mut samples = Vec::new();
    let one = write(&store, bench.keys, &next, budget, &mut samples)?;
    bench.figure("one_us", one.nanoseconds() / 1e3);
    bench.figure("one_p99_us", Percentiles::of(samples).at(0.99) / 1e3);

    let start = Instant::now();
    let operations = std::thread::scope(|scope| {
        let (store, keys, next) = (&store, bench.keys, &next);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(move || write(store, keys, next, budget, &mut Vec::new())))
            .collect();
        let mut operations = 0;
        for thread in threads {
            operations += thread.join().map_err(|_| "a thread panicked")??.operations;
        }
        Ok::<_, crate::Error>(operations)
    })?;
    let eight = start.elapsed().as_secs_f64() * 1e6 / operations as f64;
    bench.figure("eight_us", eight);
    bench.figure("threads_gain", one.nanoseconds() / 1e3 / eight);
    store.close()?;
    Ok(std::fs::remove_dir_all(dir)?)
}

/// Writes keys that no other thread has taken, one after another.
fn write<S: Store>(
    store: &S,
    keys: &Keys,
    next: &AtomicU64,
    budget: Budget,
    samples: &mut Vec<u32>,
) -> Result<Timing> {
    let mut key = Vec::new();
    timed_slow(budget, |_| {
        let i = next.fetch_add(1, Ordering::Relaxed) % keys.n;
        key.clear();
        keys.write(i, &mut key);
        let start = Instant::now();
        store.put_synced(&key, keys.value(i, 0))?;
        samples.push(start.elapsed().min(Duration::from_secs(4)).as_nanos() as u32);
        Ok(())
    })
}
