//! Latencies of calls, in log-linear buckets: each doubling has four of equal width.

use std::fmt;
use std::time::Duration;

use super::counters::Sharded;
use crate::sync::Instant;

/// The last doubling begins at 2^38 ns, five minutes.
const BUCKETS: usize = 4 * 38;
/// The counters of a histogram: its buckets, and the sum of its times.
const CELLS: usize = BUCKETS + 1;

/// The latencies of a store since it was opened, with [`Options::latencies`](crate::Options::latencies). Each time is in
/// one of four buckets for each doubling, so a percentile is at most a quarter too large.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latencies {
    /// Calls of a `Db` that look keys up: `get`, `contains`, `may_contain`, `explain`; `get_many` counts once. Reads of
    /// snapshots and transactions do not count.
    pub reads: Histogram,
    /// Commits of writes and batches, with their waits and syncs, but without the lookups of conditional writes.
    pub writes: Histogram,
    /// Syncs of the log.
    pub syncs: Histogram,
}

/// Counts of times, by bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    nanos: u64,
}

impl Histogram {
    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all times.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The least bound that this share of the times, from 0 to 1, is below. `None` without times.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = criba::Options::new().latencies(true).open(dir.path())?;
    /// db.get("absent")?;
    /// let reads = db.latencies().unwrap().reads;
    /// assert_eq!(reads.count(), 1);
    /// assert!(reads.percentile(0.99) > Some(std::time::Duration::ZERO));
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn percentile(&self, share: f64) -> Option<Duration> {
        let wanted = share.clamp(0.0, 1.0) * self.count() as f64;
        self.cumulative()
            .find(|(_, count)| *count > 0 && *count as f64 >= wanted)
            .map(|(end, _)| end)
    }

    /// The end of each bucket, and how many times are below it.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut below = 0;
        self.counts.iter().enumerate().map(move |(bucket, count)| {
            below += count;
            (Duration::from_nanos(end(bucket)), below)
        })
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count())?;
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            if let Some(time) = self.percentile(share) {
                write!(f, ", {name} {time:?}")?;
            }
        }
        Ok(())
    }
}

/// The counters of [`Latencies`].
#[derive(Debug, Default)]
pub(crate) struct LatencyCounters {
    pub(crate) reads: TimeCounters,
    pub(crate) writes: TimeCounters,
    pub(crate) syncs: TimeCounters,
}

impl LatencyCounters {
    pub(crate) fn latencies(&self) -> Latencies {
        Latencies {
            reads: self.reads.histogram(),
            writes: self.writes.histogram(),
            syncs: self.syncs.histogram(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct TimeCounters(Sharded<CELLS>);

impl TimeCounters {
    /// Runs a call, and counts its time. Apart from the code of a store without latencies.
    #[cold]
    #[inline(never)]
    pub(crate) fn of<T>(&self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = call();
        self.count(start.elapsed());
        done
    }

    pub(crate) fn count(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.add_one(bucket(nanos), 1);
        self.0.add_one(BUCKETS, nanos);
    }

    fn histogram(&self) -> Histogram {
        let sums = self.0.sums();
        Histogram { counts: std::array::from_fn(|bucket| sums[bucket]), nanos: sums[BUCKETS] }
    }
}

/// The bucket of a time: its highest bit, and the two bits behind it.
fn bucket(nanos: u64) -> usize {
    let highest = (nanos | 1).ilog2() as usize;
    if highest < 2 {
        return nanos as usize;
    }
    let behind = (nanos >> (highest - 2)) as usize & 3;
    (4 * (highest - 1) + behind).min(BUCKETS - 1)
}

/// The first time above a bucket.
fn end(bucket: usize) -> u64 {
    match bucket / 4 {
        0 => bucket as u64 + 1,
        octave => (bucket as u64 % 4 + 5) << (octave - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_that_ends_at_most_a_quarter_above_it() {
        let mut last = 0;
        for nanos in
            (0..5000).chain((13..39).flat_map(|bit| [(1 << bit) - 1, 1 << bit, 3 << (bit - 1)]))
        {
            let (at, end) = (bucket(nanos), end(bucket(nanos)));
            assert!(nanos < end && end <= nanos + nanos / 4 + 1, "{nanos}: {at} {end}");
            assert!(at == 0 || super::end(at - 1) <= nanos, "{nanos}: {at}");
            if nanos < 5000 {
                assert!(at == last || at == last + 1);
                last = at;
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket(1 << 38), BUCKETS - 4);
    }

    #[test]
    fn percentiles_are_bounds_of_buckets() {
        let counters = TimeCounters::default();
        assert_eq!(counters.histogram().percentile(0.5), None);
        for nanos in 1..=1000 {
            counters.count(Duration::from_nanos(nanos));
        }
        let times = counters.histogram();
        assert_eq!((times.count(), times.sum()), (1000, Duration::from_nanos(500_500)));
        assert_eq!(times.percentile(0.5), Some(Duration::from_nanos(512)));
        assert_eq!(times.percentile(1.0), Some(Duration::from_nanos(1024)));
        assert_eq!(times.percentile(0.0), Some(Duration::from_nanos(2)));
    }
}
