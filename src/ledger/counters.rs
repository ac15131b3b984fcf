//! Counters for many threads without contention.

use super::{Counts, Io, TableStep};
use crate::sync::{Counter, Ordering, available_parallelism, thread_number};

/// `N` counters for each of the first threads, on their own cache lines, and one set for all other threads.
/// Reading adds them up.
///
/// A counter with one writer needs no atomic addition, which takes as long as the probe that it counts.
#[derive(Debug)]
pub(super) struct Sharded<const N: usize> {
    own: Box<[Shard<N>]>,
    pub(super) shared: Shard<N>,
}

/// What is added to `N` counters.
pub(super) trait Amounts<const N: usize> {
    fn cells(self) -> [u64; N];

    /// Adds to counters that no other thread adds to. Most amounts are 0 and cost a comparison, or nothing if the compiler
    /// knows them.
    fn add_to(self, counters: &[Counter; N]);
}

#[derive(Debug)]
#[repr(align(128))] // two cache lines: neighbours are prefetched in pairs
pub(super) struct Shard<const N: usize>(pub(super) [Counter; N]);

/// The number of threads with their own counters: twice the number that can run at once.
pub(super) fn threads() -> usize {
    // No `OnceLock`: a fork can leave one behind that a thread was setting.
    static THREADS: Counter = Counter::new(0);
    if THREADS.load(Ordering::Relaxed) == 0 {
        let threads = 2 * available_parallelism().map_or(4, usize::from).min(16);
        THREADS.store(threads as u64, Ordering::Relaxed);
    }
    THREADS.load(Ordering::Relaxed) as usize
}

impl<const N: usize> Default for Shard<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::new(0)))
    }
}

impl<const N: usize> Default for Sharded<N> {
    fn default() -> Self {
        let own = (0..threads()).map(|_| Shard::default()).collect();
        Self { own, shared: Shard::default() }
    }
}

impl<const N: usize> Sharded<N> {
    #[expect(clippy::inline_always, reason = "what is added is known to most callers")]
    #[inline(always)]
    pub(super) fn add(&self, amounts: impl Amounts<N>) {
        match thread_number().and_then(|number| self.own.get(number)) {
            // No other thread adds to it: the last thread with this number has ended.
            Some(own) => amounts.add_to(&own.0),
            None => self.add_to_shared(amounts.cells()),
        }
    }

    /// Adds to one counter.
    pub(super) fn add_one(&self, index: usize, amount: u64) {
        match thread_number().and_then(|number| self.own.get(number)) {
            Some(Shard(own)) => {
                let sum = own[index].load(Ordering::Relaxed).wrapping_add(amount);
                own[index].store(sum, Ordering::Relaxed);
            }
            None => drop(self.shared.0[index].fetch_add(amount, Ordering::Relaxed)),
        }
    }

    #[cold]
    fn add_to_shared(&self, amounts: [u64; N]) {
        for (counter, amount) in self.shared.0.iter().zip(amounts) {
            counter.fetch_add(amount, Ordering::Relaxed);
        }
    }

    pub(super) fn sums(&self) -> [u64; N] {
        let mut sums = [0; N];
        for shard in self.own.iter().chain([&self.shared]) {
            for (sum, counter) in sums.iter_mut().zip(&shard.0) {
                *sum = u64::wrapping_add(*sum, counter.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

#[derive(Debug, Default)]
pub(crate) struct ProbeCounters(Sharded<{ Counts::FIELDS }>);

impl ProbeCounters {
    /// Counts one step of a lookup, as its explanation does.
    #[expect(clippy::inline_always, reason = "the step is known to most callers")]
    #[inline(always)]
    pub(crate) fn count(&self, step: TableStep) {
        self.0.add(Counts::from(step));
    }

    pub(super) fn add(&self, counts: Counts) {
        self.0.add(counts);
    }

    pub(super) fn counts(&self) -> Counts {
        Counts::from_cells(self.0.sums())
    }
}

#[derive(Debug, Default)]
pub(crate) struct IoCounters(Sharded<{ Io::FIELDS }>);

impl IoCounters {
    pub(crate) fn count(&self, bytes: u64) {
        self.add(Io { calls: 1, bytes });
    }

    pub(crate) fn add(&self, io: Io) {
        self.0.add(io);
    }

    pub(super) fn io(&self) -> Io {
        Io::from_cells(self.0.sums())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn living_threads_have_numbers_of_their_own() {
        let numbers = || {
            let begun = std::sync::Barrier::new(20);
            let mut numbers: Vec<usize> = std::thread::scope(|scope| {
                let thread = || {
                    let number = thread_number().expect("it lives");
                    begun.wait();
                    assert_eq!(thread_number(), Some(number));
                    number
                };
                let threads: Vec<_> = (0..20).map(|_| scope.spawn(thread)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        assert_eq!(numbers().len(), 20);
        // Those of other tests come and go meanwhile.
        assert!((0..20).all(|_| numbers().iter().all(|number| *number < 400)));
    }
}
