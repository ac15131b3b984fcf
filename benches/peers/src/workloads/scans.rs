//! W8: full, short and empty scans.

use std::collections::HashSet;
use std::time::Instant;

use super::Bench;
use crate::Result;
use crate::measure::timed_slow;
use crate::settings::PREFIX_BYTES;
use crate::stores::{Reader, Store};

/// The pairs of a short scan.
const SHORT: usize = 50;

/// W8: a full scan; short scans from random places; scans of absent prefixes.
pub fn scans<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let n = bench.job.n;
    let places = bench.keys.absent(0, bench.job.lookups);
    let prefixes = absent_prefixes(bench, 50_000.min(bench.job.lookups));
    let store = bench.open_warm::<S>()?;
    bench.describe(&store)?;
    let reader = store.reader()?;

    let start = Instant::now();
    let (count, bytes) = reader.scan(b"", usize::MAX)?;
    let seconds = start.elapsed().as_secs_f64();
    if count as u64 != n || bytes as u64 != bench.keys.live_bytes() {
        return Err(format!("wrong answer: {count} pairs of {bytes} bytes in all").into());
    }
    bench.figure("full_ns", seconds * 1e9 / count as f64);

    let budget = bench.budget().part(2);
    let mut few = 0;
    let timing = timed_slow(budget, |i| {
        let (count, _) = reader.scan(places.keys.get(i as usize % places.keys.len()), SHORT)?;
        few += u64::from(count < SHORT);
        Ok(())
    })?;
    // Only from among the last keys can there be fewer.
    if few as f64 > 1.0 + 10.0 * SHORT as f64 / n as f64 * timing.operations as f64 {
        return Err(format!("wrong answer: {few} of {} scans were short", timing.operations).into());
    }
    bench.figure("short_us", timing.nanoseconds() / 1e3);

    let timing =
        timed_slow(budget, |i| match reader.prefix(&prefixes[i as usize % prefixes.len()])? {
            0 => Ok(()),
            found => Err(format!("wrong answer: {found} keys of a prefix that none has").into()),
        })?;
    bench.figure("prefix_us", timing.nanoseconds() / 1e3);
    drop(reader);
    store.close()
}

/// Prefixes of absent keys that no present key has.
fn absent_prefixes(bench: &Bench<'_>, count: u64) -> Vec<Vec<u8>> {
    let mut key = Vec::new();
    let mut prefix_of = |i| {
        key.clear();
        bench.keys.write(i, &mut key);
        key[..PREFIX_BYTES.min(key.len())].to_vec()
    };
    let absent: Vec<Vec<u8>> =
        (bench.job.n..2 * bench.job.n).take(count as usize).map(&mut prefix_of).collect();
    let mut wanted: HashSet<Vec<u8>> = absent.iter().cloned().collect();
    for i in 0..bench.job.n {
        wanted.remove(&prefix_of(i));
    }
    absent.into_iter().filter(|prefix| wanted.contains(prefix)).collect()
}
