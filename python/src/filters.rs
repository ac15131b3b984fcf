//! Filters without a store.

use std::path::PathBuf;

use criba_filter::{Bloom, Fullness, Mapped, ScalableBloom, ShardedBloom};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Result;
use crate::input::{self, Input};

/// Adds the methods that all filters have, and those in the braces.
macro_rules! filter_methods {
    ($class:ident, $label:literal, { $($own:item)* }) => {
        #[pymethods]
        impl $class {
            /// Whether the key may have been added; False is certain. No I/O.
            fn __contains__(&self, key: Input) -> bool {
                self.0.contains(&key)
            }

            /// Whether each key of an iterable may have been added, in their order, as a list.
            fn contains_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
                let keys = input::keys(keys)?;
                Ok(py.detach(|| keys.iter().map(|key| self.0.contains(key)).collect()))
            }

            /// The false-positive rate that the filter is made for.
            #[getter]
            fn rate(&self) -> f64 {
                self.0.design_rate()
            }

            /// The false-positive rate now, computed from the bits that are set.
            #[getter]
            fn current_rate(&self) -> f64 {
                self.0.current_rate()
            }

            /// The estimated number of distinct keys.
            #[getter]
            fn estimated_len(&self) -> f64 {
                self.0.estimated_len()
            }

            /// The bytes of the bits.
            #[getter]
            fn bytes(&self) -> usize {
                self.0.bytes()
            }

            /// "within", "past design" (more keys than the filter is made for), or "overfull" (85 % of the bits are set).
            #[getter]
            fn fullness(&self) -> &'static str {
                match self.0.fullness() {
                    Fullness::Within => "within",
                    Fullness::PastDesign => "past design",
                    Fullness::Overfull => "overfull",
                }
            }

            fn __repr__(&self) -> String {
                format!(
                    "<criba.{}: about {:.0} keys in {} bytes, rate {:.2e}>",
                    $label,
                    self.0.estimated_len(),
                    self.0.bytes(),
                    self.0.current_rate()
                )
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
                PyBytes::new(py, &self.0.to_bytes())
            }

            /// The filter of to_bytes. A checksum covers all bytes: damage raises CorruptError.
            #[staticmethod]
            fn from_bytes(bytes: Input) -> Result<Self> {
                Ok(Self(<$filter>::from_bytes(bytes.as_ref())?))
            }

            /// Writes the filter to a file, synced, in place of an old one at once. Processes that have mapped the old file
            /// keep it.
            fn save(&self, py: Python<'_>, path: PathBuf) -> Result<()> {
                Ok(py.detach(|| self.0.save(path))?)
            }

            /// Reads a filter from a file into memory.
            #[staticmethod]
            fn load(py: Python<'_>, path: PathBuf) -> Result<Self> {
                Ok(Self(py.detach(|| <$filter>::load(path))?))
            }

            $($own)*
        });
    };
}

/// A Bloom filter for about `capacity` keys: in 1.44 · log2(1 / rate) bits a key it answers "no", which is certain, or
/// "maybe", which is wrong for a share `rate` of the keys that were not added. With twice as many keys the rate is some
/// 15 times as high: see fullness. No disk is read: use it before what is slow.
#[pyclass(module = "criba")]
pub(crate) struct BloomFilter(Bloom);

growing_methods!(BloomFilter, Bloom, "BloomFilter", {
    #[new]
    #[pyo3(signature = (capacity, rate=0.01))]
    fn new(capacity: u64, rate: f64) -> Result<Self> {
        Ok(Self(Bloom::with_rate(capacity, rate)?))
    }

    /// Adds a key. Returns whether it is new; False if the filter answered "maybe" before.
    fn add(&mut self, key: Input) -> bool {
        self.0.insert(&key)
    }

    /// Adds the keys of an iterable.
    fn update(&mut self, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        for key in input::many(keys)? {
            self.0.insert(key?.extract::<Input>()?);
        }
        Ok(())
    }

    /// An empty filter of the same size and hash, for union.
    fn empty_like(&self) -> Result<Self> {
        Ok(Self(self.0.empty_like()?))
    }

    /// Adds all keys of another filter, from empty_like. Raises MismatchError for one of another size or hash.
    fn union(&mut self, other: &Self) -> Result<()> {
        Ok(self.0.union(&other.0)?)
    }

    /// The number of keys that it is made for.
    #[getter]
    fn capacity(&self) -> u64 {
        self.0.capacity()
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
        Ok(MappedBloomFilter(mapped))
    }
});

/// A Bloom filter in a mapped file, from BloomFilter.map: read-only, and one copy in memory for all processes.
#[pyclass(frozen, module = "criba")]
pub(crate) struct MappedBloomFilter(Mapped<Bloom>);

filter_methods!(MappedBloomFilter, "MappedBloomFilter", {
    /// The number of keys that it is made for.
    #[getter]
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }
});

/// A Bloom filter that grows with its keys and keeps its rate: a series of filters, each for twice the keys. `capacity`
/// is that of the first. It takes about twice the memory of a BloomFilter of the right size, and a "no" takes a probe of
/// each filter of the series.
#[pyclass(module = "criba")]
pub(crate) struct GrowingBloomFilter(ScalableBloom);

growing_methods!(GrowingBloomFilter, ScalableBloom, "GrowingBloomFilter", {
    #[new]
    #[pyo3(signature = (capacity=1000, rate=0.01))]
    fn new(capacity: u64, rate: f64) -> Result<Self> {
        Ok(Self(ScalableBloom::with_rate(capacity, rate)?))
    }

    /// Adds a key. Returns whether it is new; False if the filter answered "maybe" before.
    fn add(&mut self, key: Input) -> bool {
        self.0.insert(&key)
    }

    /// Adds the keys of an iterable.
    fn update(&mut self, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        for key in input::many(keys)? {
            self.0.insert(key?.extract::<Input>()?);
        }
        Ok(())
    }

    /// The number of filters in the series.
    #[getter]
    fn layers(&self) -> usize {
        self.0.layers()
    }
});

/// A Bloom filter for several threads: update and contains_many release the GIL, so that they run on all cores. Each of
/// its `shards` has a lock.
#[pyclass(frozen, module = "criba")]
pub(crate) struct SharedBloomFilter(ShardedBloom);

growing_methods!(SharedBloomFilter, ShardedBloom, "SharedBloomFilter", {
    #[new]
    #[pyo3(signature = (capacity, rate=0.01, shards=64))]
    fn new(capacity: u64, rate: f64, shards: usize) -> Result<Self> {
        Ok(Self(ShardedBloom::with_rate(shards, capacity, rate)?))
    }

    /// Adds a key. Returns whether it is new; of threads that add one key at the same time, one gets True.
    fn add(&self, key: Input) -> bool {
        self.0.insert(&key)
    }

    /// Adds the keys of an iterable, which is read first. Releases the GIL.
    fn update(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = input::keys(keys)?;
        py.detach(|| {
            for key in &keys {
                self.0.insert(key);
            }
        });
        Ok(())
    }

    /// The number of keys that it is made for.
    #[getter]
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }
});
