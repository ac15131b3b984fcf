//! W10: readers beside a writer at a steady rate, with its flushes and compactions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Bench;
use crate::Result;
use crate::keys::Keys;
use crate::loaded::{copy, warm};
use crate::measure::{Percentiles, check, clock_nanoseconds};
use crate::random::Random;
use crate::stores::{Reader, Store};

const PUTS_PER_S: f64 = 50_000.0;
/// The writer sleeps until this many puts are due.
const BURST: u64 = 50;
/// A reader is renewed after this many lookups, to see new writes.
const FRESH: u64 = 1000;
/// One lookup of so many is timed.
const SAMPLED: u64 = 4;

/// W10: one thread overwrites random keys, one looks up absent keys, one present keys.
pub fn mixed<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let (from, config) = bench.loaded::<S>()?;
    let dir = bench.place.scratch()?;
    copy(&from, &dir)?;
    warm(&dir)?;
    let store: S = bench.open(&dir, &config)?;

    let (keys, random) = (bench.keys, bench.random.clone());
    let length = Duration::from_secs_f64(bench.job.seconds);
    let done = AtomicBool::new(false);
    let (puts, absent, present) = std::thread::scope(|scope| {
        let (store, done) = (&store, &done);
        // None twice: a cache would know it the second time.
        let mut next = 0;
        let absent = move || {
            next += 1;
            keys.absent_number(next)
        };
        let mut any = Random::new(random.clone().next());
        let present = move || any.below(keys.n);
        let absent = scope.spawn(move || read(store, keys, absent, done));
        let present = scope.spawn(move || read(store, keys, present, done));
        let puts = write(store, keys, random, length);
        done.store(true, Ordering::Relaxed);
        let join = "a thread panicked";
        Ok::<_, crate::Error>((
            puts?,
            absent.join().map_err(|_| join)??,
            present.join().map_err(|_| join)??,
        ))
    })?;
    bench.figure("puts_per_s", puts);
    for (name, (samples, lookups)) in [("absent", absent), ("present", present)] {
        bench.figure(&format!("{name}_p50_ns"), samples.at(0.5));
        bench.figure(&format!("{name}_p99_ns"), samples.at(0.99));
        bench.figure(&format!("{name}_p999_ns"), samples.at(0.999));
        bench.figure(&format!("{name}_per_s"), lookups as f64 / length.as_secs_f64());
    }
    bench.describe(&store)?;
    store.close()?;
    Ok(std::fs::remove_dir_all(dir)?)
}

/// Puts at the rate, and catches up after delays. Returns the puts per second.
fn write<S: Store>(store: &S, keys: &Keys, mut random: Random, length: Duration) -> Result<f64> {
    let mut key = Vec::new();
    let start = Instant::now();
    let mut puts = 0;
    while start.elapsed() < length {
        let due = Duration::from_secs_f64((puts + BURST) as f64 / PUTS_PER_S);
        if let Some(early) = due.checked_sub(start.elapsed()) {
            std::thread::sleep(early);
        }
        for _ in 0..BURST {
            let i = random.below(keys.n);
            key.clear();
            keys.write(i, &mut key);
            store.put(&key, keys.value(i, 1))?;
            puts += 1;
        }
    }
    Ok(puts as f64 / start.elapsed().as_secs_f64())
}

/// Looks keys up until `stop` is set. Returns latencies and the number of lookups.
fn read<S: Store>(
    store: &S,
    keys: &Keys,
    mut next: impl FnMut() -> u64,
    done: &AtomicBool,
) -> Result<(Percentiles, u64)> {
    let clock = clock_nanoseconds();
    let (mut samples, mut key, mut count) = (Vec::new(), Vec::new(), 0);
    while !done.load(Ordering::Relaxed) {
        let reader = store.reader()?;
        for _ in 0..FRESH {
            let i = next();
            key.clear();
            keys.write(i, &mut key);
            let found = if count % SAMPLED == 0 {
                let start = Instant::now();
                let found = reader.get(&key)?;
                samples.push((start.elapsed().as_nanos() as u64).saturating_sub(clock) as u32);
                found
            } else {
                reader.get(&key)?
            };
            check(&key, i < keys.n, found)?;
            count += 1;
        }
    }
    Ok((Percentiles::of(samples), count))
}
