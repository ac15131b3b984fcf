//! W6 and W6m: a store that was not read for long. Its files are dropped from the page cache with `posix_fadvise`;
//! lower caches, such as a disk's, stay warm.

use std::time::Instant;

use super::Bench;
use crate::Result;
use crate::loaded::chill;
use crate::measure::{check, lookups, timed, timed_slow};
use crate::stores::{Reader, Store};

/// So many lookups belong to opening.
const FIRST: u64 = 1000;

/// W6: from opening to the first thousand absent answers; absent keys; present keys.
pub fn cold<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let absent = bench.keys.absent(0, bench.job.lookups.max(2 * FIRST));
    let first = bench.keys.absent(bench.job.lookups, FIRST);
    let present = bench.keys.present(bench.job.lookups, &mut bench.random);
    let (dir, config) = bench.loaded::<S>()?;

    chill(&dir)?;
    let start = Instant::now();
    let store = S::open(&dir, &config, &mut bench.findings.settings)?;
    let reader = store.reader()?;
    for i in 0..FIRST as usize {
        let (key, expected) = first.get(i);
        check(key, expected, reader.get(key)?)?;
    }
    bench.figure("open_ms", start.elapsed().as_secs_f64() * 1e3);
    store.settle()?;

    // In what the thousand left cold: nearly everything.
    let timing = lookups(bench.budget().part(2), &reader, &absent)?;
    bench.figure("absent_ns", timing.nanoseconds());
    drop(reader);
    bench.describe(&store)?;
    store.close()?;

    chill(&dir)?;
    let store: S = bench.open(&dir, &config)?;
    let reader = store.reader()?;
    let timing = timed_slow(bench.budget().part(2), |i| {
        let (key, expected) = present.get(i as usize % present.keys.len());
        check(key, expected, reader.get(key)?)
    })?;
    bench.figure("present_ns", timing.nanoseconds());
    drop(reader);
    store.close()
}

/// W6m: present keys in batches.
pub fn batches<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    const BATCH: usize = 64;
    let present = bench.keys.present(bench.job.lookups, &mut bench.random);
    let (dir, config) = bench.loaded::<S>()?;
    chill(&dir)?;
    let store: S = bench.open(&dir, &config)?;
    bench.describe(&store)?;
    let reader = store.reader()?;
    let mut found = Vec::with_capacity(BATCH);
    let mut first = 0;
    let timing = timed(bench.budget().part(2), |_| {
        let lookup = |at| present.get((first + at) % present.keys.len());
        let batch: [&[u8]; BATCH] = std::array::from_fn(|at| lookup(at).0);
        found.clear();
        reader.get_many(&batch, &mut found)?;
        for (at, found) in found.iter().enumerate() {
            let (key, expected) = lookup(at);
            check(key, expected, *found)?;
        }
        first += BATCH;
        Ok(BATCH as u64)
    })?;
    bench.figure("batch_ns", timing.nanoseconds());
    drop(reader);
    store.close()
}
