//! W2r: reads per absent key, without a cache of the store. Counts, not times.

use super::Bench;
use crate::measure::lookups;
use crate::stores::Store;
use crate::{Result, loaded, process};

/// W2r: file reads, as the kernel counts them, and as the store does if it can.
pub fn absent<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let keys = bench.keys.absent(0, bench.job.lookups);
    let (dir, mut config) = bench.loaded::<S>()?;
    config.cache = false;
    loaded::warm(&dir)?;
    let store: S = bench.open(&dir, &config)?;
    bench.describe(&store)?;

    let reader = store.reader()?;
    let own = store.own_reads();
    let counting = process::reads_of_reading()?;
    let before = process::reads()?;
    let timing = lookups(bench.budget(), &reader, &keys)?;
    let kernel = process::reads()? - before - counting;
    let lookups = timing.operations as f64;
    if S::PREADS {
        bench.figure("reads", kernel as f64 / lookups);
    }
    if let (Some(own), Some(now)) = (own, store.own_reads()) {
        bench.figure("own_reads", (now - own) as f64 / lookups);
    }
    if let Some(bytes) = bench.findings.filter_bytes {
        bench.figure("filter_bits_per_key", bytes as f64 * 8.0 / bench.job.n as f64);
    }
    drop(reader);
    store.close()
}
