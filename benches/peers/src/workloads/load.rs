//! W1 and W9: write speed, and the state afterwards.

use std::time::Instant;

use super::Bench;
use crate::keys::Keys;
use crate::loaded::{copy, disk_bytes, load as load_all};
use crate::measure::lookups;
use crate::settings::{Shape, Told};
use crate::stores::Store;
use crate::{Result, process};

/// W1: loads the keys in random order into a new store, which is kept for workloads that read.
pub fn load<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let config = bench.config(Shape::Settled);
    let dir = bench.place.scratch()?;
    S::open(&dir, &config, &mut bench.findings.settings)?.close()?;

    process::forget_peak()?;
    let (before, cpu) = (process::resident_bytes()?, process::cpu_seconds());
    let written = process::written_bytes()?;
    let (store, loading) = load_all::<S>(&dir, &config, bench.keys)?;
    let n = bench.job.n;
    bench.figure("puts_per_s", n as f64 / loading.until_flushed.as_secs_f64());
    bench.figure("settled_s", loading.until_settled.as_secs_f64());
    bench.figure("cpu_s", process::cpu_seconds() - cpu);
    bench.figure("peak_mib", (process::peak_bytes()? - before) as f64 / f64::from(1 << 20));
    let written = process::written_bytes()? - written;
    bench.figure("write_amp", written as f64 / bench.keys.live_bytes() as f64);
    bench.describe(&store)?;
    store.close()?;
    bench.findings.disk_bytes = Some(disk_bytes(&dir)?);

    if bench.place.is_loaded(Shape::Settled) {
        std::fs::remove_dir_all(dir)?;
    } else {
        bench.place.adopt(&dir, Shape::Settled)?;
    }
    Ok(())
}

/// W9: overwrites half of the keys at random, settles, and compacts; lookups and space after each.
pub fn overwrite<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let (from, config) = bench.loaded::<S>()?;
    let dir = bench.place.scratch()?;
    copy(&from, &dir)?;
    let mut store: S = bench.open(&dir, &config)?;

    let half = bench.job.n / 2;
    let keys: &Keys = bench.keys;
    let mut random = bench.random.clone();
    let numbers: Vec<u64> = (0..half).map(|_| random.below(keys.n)).collect();
    let written = process::written_bytes()?;
    let start = Instant::now();
    store.load(&mut keys.pairs(numbers.into_iter(), 1))?;
    store.flush()?;
    let flushed = start.elapsed().as_secs_f64();
    bench.figure("puts_per_s", half as f64 / flushed);
    let idle = store.settle()?;
    let settled = start.elapsed().saturating_sub(idle).as_secs_f64();
    bench.figure("settled_s", settled.max(flushed));
    let amount = keys.live_bytes() / keys.n * half;
    bench.figure("write_amp", (process::written_bytes()? - written) as f64 / amount as f64);
    bench.figure("space_settled", disk_bytes(&dir)? as f64 / keys.live_bytes() as f64);
    bench.describe(&store)?;
    both(bench, &store, "settled")?;

    let start = Instant::now();
    store.compact()?;
    bench.figure("compact_s", start.elapsed().as_secs_f64());
    store.settle()?;
    both(bench, &store, "compacted")?;
    // Logs and files that are not needed any more go when a store is closed, at the latest.
    store.close()?;
    S::open(&dir, &config, &mut Told::default())?.close()?;
    bench.figure("space_compacted", disk_bytes(&dir)? as f64 / keys.live_bytes() as f64);
    Ok(std::fs::remove_dir_all(dir)?)
}

fn both<S: Store>(bench: &mut Bench<'_>, store: &S, when: &str) -> Result<()> {
    let budget = bench.budget().part(4);
    let reader = store.reader()?;
    let warming = bench.keys.absent(budget.operations, budget.operations / 4);
    lookups(budget.part(4), &reader, &warming)?;
    let absent = bench.keys.absent(0, budget.operations);
    bench.figure(&format!("absent_{when}_ns"), lookups(budget, &reader, &absent)?.nanoseconds());
    let mut random = bench.random.clone();
    let present = bench.keys.present(budget.operations, &mut random);
    bench.figure(&format!("present_{when}_ns"), lookups(budget, &reader, &present)?.nanoseconds());
    Ok(())
}
