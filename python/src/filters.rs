//! Filters without a store.
//!
//! A filter that changes has a lock, because some calls release the GIL while they use it. A thread waits for the lock
//! without the GIL.

use std::path::PathBuf;
use std::ptr;
use std::sync::{PoisonError, RwLock, TryLockError, TryLockResult};
use std::thread;
use std::time::Duration;

use criba_filter::{Bloom, Fullness, Mapped, ScalableBloom, ShardedBloom};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Result;
use crate::input::{self, Input};

struct Locked<T>(RwLock<T>);

impl<T: Send + Sync> Locked<T> {
    fn new(filter: T) -> Self {
        Self(RwLock::new(filter))
    }

    /// For a thread that has released the GIL.
    fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<R: Send>(&self, py: Python<'_>, read: impl FnOnce(&T) -> R + Send) -> R {
        match at_once(self.0.try_read()) {
            Some(filter) => read(&filter),
            None => py.detach(|| self.with(read)),
        }
    }

    fn change<R: Send>(&self, py: Python<'_>, change: impl FnOnce(&mut T) -> R + Send) -> R {
        match at_once(self.0.try_write()) {
            Some(mut filter) => change(&mut filter),
            None => {
                py.detach(|| change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)))
            }
        }
    }
}

/// `None` if another thread has the lock. A panic leaves a filter whole.
fn at_once<G>(lock: TryLockResult<G>) -> Option<G> {
    match lock {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A filter that never waits.
struct Free<T>(T);

impl<T> Free<T> {
    fn new(filter: T) -> Self {
        Self(filter)
    }

    fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.0)
    }

    fn read<R>(&self, _: Python<'_>, read: impl FnOnce(&T) -> R) -> R {
        read(&self.0)
    }
}

/// Adds the methods that all filters have, and those in the braces.
macro_rules! filter_methods {
    ($class:ident, $label:literal, { $($own:item)* }) => {
        #[pymethods]
        impl $class {
            /// Whether the key may have been added; False is certain. No I/O.
            fn __contains__(&self, py: Python<'_>, key: Input) -> bool {
                self.0.read(py, |filter| filter.contains(&key))
            }

            /// Whether each key of an iterable may have been added, in their order, as a list.
            fn contains_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
                let keys = input::keys(keys)?;
                Ok(py.detach(|| {
                    self.0.with(|filter| keys.iter().map(|key| filter.contains(key)).collect())
                }))
            }

            /// The false-positive rate that the filter is made for.
            #[getter]
            fn rate(&self, py: Python<'_>) -> f64 {
                self.0.read(py, |filter| filter.design_rate())
            }

            /// The false-positive rate now, computed from the bits that are set.
            #[getter]
            fn current_rate(&self, py: Python<'_>) -> f64 {
                self.0.read(py, |filter| filter.current_rate())
            }

            /// The estimated number of distinct keys.
            #[getter]
            fn estimated_len(&self, py: Python<'_>) -> f64 {
                self.0.read(py, |filter| filter.estimated_len())
            }

            /// The bytes of the bits.
            #[getter]
            fn bytes(&self, py: Python<'_>) -> usize {
                self.0.read(py, |filter| filter.bytes())
            }

            /// "within", "past design" (more keys than the filter is made for), or "overfull" (85 % of the bits are set).
            #[getter]
            fn fullness(&self, py: Python<'_>) -> &'static str {
                match self.0.read(py, |filter| filter.fullness()) {
                    Fullness::Within => "within",
                    Fullness::PastDesign => "past design",
                    Fullness::Overfull => "overfull",
                }
            }

            fn __repr__(&self, py: Python<'_>) -> String {
                self.0.read(py, |filter| {
                    format!(
                        "<criba.{}: about {:.0} keys in {} bytes, rate {:.2e}>",
                        $label,
                        filter.estimated_len(),
                        filter.bytes(),
                        filter.current_rate()
                    )
                })
            }

            $($own)*
        }
    };
}

/// Adds those methods, and the ones for inserts and files, to a filter that has its own memory.
macro_rules! growing_methods {
    ($class:ident, $filter:ty, $label:literal, { $($own:item)* }) => {
        filter_methods!($class, $label, {
            /// The filter and its secret hash key, as bytes.
            fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
                PyBytes::new(py, &self.0.read(py, |filter| filter.to_bytes()))
            }

            /// The filter of to_bytes. A checksum covers all bytes: damage raises CorruptError.
            #[staticmethod]
            fn from_bytes(bytes: Input) -> Result<Self> {
                Ok(Self::of(<$filter>::from_bytes(bytes.as_ref())?))
            }

            /// Writes the filter to a file, synced, in place of an old one at once. Processes that have mapped the old file
            /// keep it.
            fn save(&self, py: Python<'_>, path: PathBuf) -> Result<()> {
                Ok(py.detach(|| self.0.with(|filter| filter.save(path)))?)
            }

            /// Reads a filter from a file into memory.
            #[staticmethod]
            fn load(py: Python<'_>, path: PathBuf) -> Result<Self> {
                Ok(Self::of(py.detach(|| <$filter>::load(path))?))
            }

            $($own)*
        });
    };
}

/// A Bloom filter for about `capacity` keys: in 1.44 · log2(1 / rate) bits a key it answers "no", which is certain, or
/// "maybe", which is wrong for a share `rate` of the keys that were not added. With twice as many keys the rate is some
/// 15 times as high: see fullness. No disk is read: use it before what is slow.
///
/// A forked process has its own copy of a filter. If a thread of the parent used the filter at the fork, calls on the copy
/// may wait for ever: fork before the threads start, or use "spawn".
#[pyclass(frozen, module = "criba")]
pub(crate) struct BloomFilter(Locked<Bloom>);

impl BloomFilter {
    fn of(filter: Bloom) -> Self {
        Self(Locked::new(filter))
    }
}

growing_methods!(BloomFilter, Bloom, "BloomFilter", {
    #[new]
    #[pyo3(signature = (capacity, rate=0.01))]
    fn new(capacity: u64, rate: f64) -> Result<Self> {
        Ok(Self::of(Bloom::with_rate(capacity, rate)?))
    }

    /// Adds a key. Returns whether it is new; False if the filter answered "maybe" before.
    fn add(&self, py: Python<'_>, key: Input) -> bool {
        self.0.change(py, |filter| filter.insert(&key))
    }

    /// Adds the keys of an iterable, which may use the filter.
    fn update(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        for key in input::many(keys)? {
            self.add(py, key?.extract()?);
        }
        Ok(())
    }

    /// An empty filter of the same size and hash, for union.
    fn empty_like(&self, py: Python<'_>) -> Result<Self> {
        Ok(Self::of(self.0.read(py, Bloom::empty_like)?))
    }

    /// Adds all keys of another filter, from empty_like. Raises MismatchError for one of another size or hash.
    fn union(&self, py: Python<'_>, other: &Self) -> Result<()> {
        if ptr::eq(self, other) {
            return Ok(());
        }
        loop {
            // Both or none: two threads may unite two filters with each other.
            let locks = (at_once(self.0.0.try_write()), at_once(other.0.0.try_read()));
            if let (Some(mut this), Some(other)) = locks {
                return Ok(this.union(&other)?);
            }
            py.check_signals()?;
            py.detach(|| thread::sleep(Duration::from_millis(1)));
        }
    }

    /// The number of keys that it is made for.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> u64 {
        self.0.read(py, Bloom::capacity)
    }

    /// Maps a file of save read-only: all processes that map it share one copy in memory. Reads the whole file once, to
    /// verify it.
    ///
    /// No process may change or truncate the file meanwhile, or the answers are wrong or the process ends with SIGBUS.
    /// save replaces a file safely; cp, an editor and rsync --inplace do not.
    #[staticmethod]
    #[expect(
        unsafe_code,
        reason = "other processes can change a mapped file: the caller excludes it"
    )]
    fn map(py: Python<'_>, path: PathBuf) -> Result<MappedBloomFilter> {
        // SAFETY: the caller ensures that no process changes or truncates the file, as the docstring says.
        let mapped = py.detach(|| unsafe { Bloom::map(path) })?;
        Ok(MappedBloomFilter(Free::new(mapped)))
    }
});

/// A Bloom filter in a mapped file, from BloomFilter.map: read-only, and one copy in memory for all processes.
#[pyclass(frozen, module = "criba")]
pub(crate) struct MappedBloomFilter(Free<Mapped<Bloom>>);

filter_methods!(MappedBloomFilter, "MappedBloomFilter", {
    /// The number of keys that it is made for.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> u64 {
        self.0.read(py, |filter| filter.capacity())
    }
});

/// A Bloom filter that grows with its keys and keeps its rate: a series of filters, each for twice the keys. `capacity`
/// is that of the first. It takes about twice the memory of a BloomFilter of the right size, and a "no" takes a probe of
/// each filter of the series.
#[pyclass(frozen, module = "criba")]
pub(crate) struct GrowingBloomFilter(Locked<ScalableBloom>);

impl GrowingBloomFilter {
    fn of(filter: ScalableBloom) -> Self {
        Self(Locked::new(filter))
    }
}

growing_methods!(GrowingBloomFilter, ScalableBloom, "GrowingBloomFilter", {
    #[new]
    #[pyo3(signature = (capacity=1000, rate=0.01))]
    fn new(capacity: u64, rate: f64) -> Result<Self> {
        Ok(Self::of(ScalableBloom::with_rate(capacity, rate)?))
    }

    /// Adds a key. Returns whether it is new; False if the filter answered "maybe" before.
    fn add(&self, py: Python<'_>, key: Input) -> bool {
        self.0.change(py, |filter| filter.insert(&key))
    }

    /// Adds the keys of an iterable, which may use the filter.
    fn update(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        for key in input::many(keys)? {
            self.add(py, key?.extract()?);
        }
        Ok(())
    }

    /// The number of filters in the series.
    #[getter]
    fn layers(&self, py: Python<'_>) -> usize {
        self.0.read(py, ScalableBloom::layers)
    }
});

/// A Bloom filter for several threads: update and contains_many release the GIL, so that they run on all cores. Each of
/// its `shards` has a lock.
#[pyclass(frozen, module = "criba")]
pub(crate) struct SharedBloomFilter(Free<ShardedBloom>);

impl SharedBloomFilter {
    fn of(filter: ShardedBloom) -> Self {
        Self(Free::new(filter))
    }
}

growing_methods!(SharedBloomFilter, ShardedBloom, "SharedBloomFilter", {
    #[new]
    #[pyo3(signature = (capacity, rate=0.01, shards=64))]
    fn new(capacity: u64, rate: f64, shards: usize) -> Result<Self> {
        Ok(Self::of(ShardedBloom::with_rate(shards, capacity, rate)?))
    }

    /// Adds a key. Returns whether it is new; of threads that add one key at the same time, one gets True.
    fn add(&self, key: Input) -> bool {
        self.0.with(|filter| filter.insert(&key))
    }

    /// Adds the keys of an iterable, which is read first. Releases the GIL.
    fn update(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = input::keys(keys)?;
        py.detach(|| {
            self.0.with(|filter| {
                for key in &keys {
                    filter.insert(key);
                }
            });
        });
        Ok(())
    }

    /// The number of keys that it is made for.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> u64 {
        self.0.read(py, ShardedBloom::capacity)
    }
});
