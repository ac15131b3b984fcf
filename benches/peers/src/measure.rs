//! Timing.
//!
//! Speed and latency are measured apart: reading the clock around a lookup of 30 ns would measure the clock.
//! Speed is from a pass that reads the clock once in 256 lookups; percentiles are from a pass that times one
//! lookup in eight, less the time of two clock reads.

use std::time::{Duration, Instant};

use crate::Result;
use crate::keys::{Lookups, VALUE_BYTES};
use crate::process::thread_cpu_seconds;
use crate::stores::Reader;

/// Limits of a measurement: the first one reached ends it.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub operations: u64,
    pub seconds: f64,
}

impl Budget {
    pub fn part(self, divisor: u64) -> Self {
        Self {
            operations: (self.operations / divisor).max(1),
            seconds: self.seconds / divisor as f64,
        }
    }
}

/// How many operations took how long.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub operations: u64,
    pub seconds: f64,
    /// Processor time of this thread, whatever other load there is.
    pub cpu_seconds: f64,
}

impl Timing {
    pub fn nanoseconds(self) -> f64 {
        self.seconds * 1e9 / self.operations as f64
    }

    pub fn cpu_nanoseconds(self) -> f64 {
        self.cpu_seconds * 1e9 / self.operations as f64
    }
}

/// Calls `act` with 0, 1, 2, … until the budget is used; each call returns its number of operations.
pub fn timed(budget: Budget, mut act: impl FnMut(u64) -> Result<u64>) -> Result<Timing> {
    const LOOKS: u64 = 256; // operations between two looks at the clock
    let limit = Duration::from_secs_f64(budget.seconds);
    let (start, cpu) = (Instant::now(), thread_cpu_seconds());
    let (mut operations, mut calls, mut look) = (0, 0, LOOKS);
    while operations < budget.operations {
        operations += act(calls)?;
        calls += 1;
        if operations >= look {
            if start.elapsed() >= limit {
                break;
            }
            look = operations + LOOKS;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Timing { operations, seconds, cpu_seconds: thread_cpu_seconds() - cpu })
}

/// Like [`timed`], but reads the clock after each operation.
pub fn timed_slow(budget: Budget, mut act: impl FnMut(u64) -> Result<()>) -> Result<Timing> {
    let limit = Duration::from_secs_f64(budget.seconds);
    let (start, cpu) = (Instant::now(), thread_cpu_seconds());
    let mut operations = 0;
    while operations < budget.operations && start.elapsed() < limit {
        act(operations)?;
        operations += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Timing { operations, seconds, cpu_seconds: thread_cpu_seconds() - cpu })
}

/// A wrong answer ends the measurement, and is its result.
#[inline]
pub fn check(key: &[u8], expected: bool, found: Option<usize>) -> Result<()> {
    let expected = expected.then_some(VALUE_BYTES);
    if found == expected { Ok(()) } else { wrong(key, expected, found) }
}

#[cold]
fn wrong(key: &[u8], expected: Option<usize>, found: Option<usize>) -> Result<()> {
    let key = String::from_utf8_lossy(key);
    Err(format!("wrong answer: {key} has {found:?}, not {expected:?} bytes of value").into())
}

/// Looks keys up in order, again from the first after the last.
pub fn lookups(budget: Budget, reader: &impl Reader, lookups: &Lookups) -> Result<Timing> {
    let mut i = 0;
    timed(budget, |_| {
        let (key, expected) = lookups.get(i);
        check(key, expected, reader.get(key)?)?;
        i += 1;
        if i == lookups.keys.len() {
            i = 0;
        }
        Ok(1)
    })
}

/// Latencies in nanoseconds of one lookup in eight.
pub fn latencies(budget: Budget, reader: &impl Reader, lookups: &Lookups) -> Result<Percentiles> {
    let clock = clock_nanoseconds();
    let mut samples = Vec::with_capacity(budget.operations as usize / 8 + 1);
    let mut i = 0;
    timed(budget, |call| {
        let (key, expected) = lookups.get(i);
        let found = if call % 8 == 0 {
            let start = Instant::now();
            let found = reader.get(key)?;
            let nanoseconds = start.elapsed().as_nanos() as u64;
            samples.push(nanoseconds.saturating_sub(clock).min(u64::from(u32::MAX)) as u32);
            found
        } else {
            reader.get(key)?
        };
        check(key, expected, found)?;
        i = (i + 1) % lookups.keys.len();
        Ok(1)
    })?;
    Ok(Percentiles::of(samples))
}

/// The time of two adjacent clock reads.
pub fn clock_nanoseconds() -> u64 {
    let mut pairs: Vec<_> = (0..1001).map(|_| Instant::now().elapsed().as_nanos() as u64).collect();
    pairs.sort_unstable();
    pairs[pairs.len() / 2]
}

/// Sorted samples.
#[derive(Debug)]
pub struct Percentiles(Vec<u32>);

impl Percentiles {
    pub fn of(mut samples: Vec<u32>) -> Self {
        samples.sort_unstable();
        Self(samples)
    }

    /// The least sample that this share of samples does not exceed.
    pub fn at(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied().map_or(f64::NAN, f64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_samples() {
        let percentiles = Percentiles::of((1..=100).rev().collect());
        assert_eq!([0.5, 0.99, 1.0].map(|share| percentiles.at(share) as u32), [50, 99, 100]);
        assert_eq!(Percentiles::of(vec![7]).at(0.5) as u32, 7);
        assert!(Percentiles::of(Vec::new()).at(0.5).is_nan());
    }

    #[test]
    fn a_budget_ends_with_whichever_comes_first() {
        let few = timed(Budget { operations: 1000, seconds: 60.0 }, |_| Ok(1)).unwrap();
        assert_eq!(few.operations, 1000);
        let batches = timed(Budget { operations: 1000, seconds: 60.0 }, |_| Ok(16)).unwrap();
        assert_eq!(batches.operations, 1008);
        let short = Budget { operations: u64::MAX, seconds: 0.01 };
        assert!(timed(short, |_| Ok(1)).unwrap().seconds < 1.0);
        let naps = timed_slow(short, |_| {
            std::thread::sleep(Duration::from_millis(4));
            Ok(())
        });
        assert!(naps.unwrap().operations <= 3);
    }
}
