//! Filters: sets that answer "no" or "maybe", in a few bits per key.
//!
//! Use one to avoid slow lookups, remote requests or expensive tests. A filter takes about
//! ten bits per key, however long the keys are. **It never answers "no" for one of its keys.** For other keys
//! it answers "maybe" at a false-positive rate of your choice.
//!
//! # A first filter
//! ```
//! use criba_filter::Bloom;
//!
//! let mut seen = Bloom::with_rate(1_000_000, 0.01)?; // a million keys, 1 %: 1.2 MB
//! for i in 0..1000 {
//!     seen.insert(format!("user{i}"));
//! }
//! assert!(seen.contains("user7"));
//! let passed = (1000..2000).filter(|i| seen.contains(format!("user{i}"))).count();
//! assert_eq!(passed, 0); // nearly empty: the rate is far below 1 %
//! # Ok::<(), criba_filter::Error>(())
//! ```
//!
//! # Which type
//! | your keys come | filter |
//! |---|---|
//! | one by one, about this many | [`Bloom`] |
//! | one by one, any number | [`ScalableBloom`] |
//! | from several threads | [`ShardedBloom`] |
//! | all at once | [`StaticFilter`] of any [`FilterKind`], the smallest and fastest |
//! | hashed by the caller | [`HashFilter`] |
//!
//! # Size and fullness
//! A Bloom filter takes 1.44 · log2(1/rate) bits per key: 9.6 for 1 %, 14.4 for 0.1 %. A ribbon filter takes
//! 1.01 · log2(1/rate) for 100,000 keys, 1.03 for 10,000; the lower bound is log2(1/rate).
//!
//! The rate of a Bloom filter rises when it has more keys than its capacity:
//! ```
//! use criba_filter::{Bloom, Fullness};
//!
//! let mut filter = Bloom::with_rate(1000, 0.01)?;
//! # filter = filter.with_hashing(criba_filter::Hashing::keyed([1; 16]))?;
//! for (keys, fullness, rates) in [
//!     (0..1000_u32, Fullness::Within, 0.008..0.012),
//!     (1000..2000, Fullness::PastDesign, 0.13..0.18),
//!     (2000..3000, Fullness::Overfull, 0.38..0.46),
//! ] {
//!     filter.extend(keys.map(u32::to_le_bytes));
//!     assert_eq!(filter.fullness(), fullness);
//!     assert!(rates.contains(&filter.current_rate()));
//! }
//! # Ok::<(), criba_filter::Error>(())
//! ```
//!
//! # Union and estimates
//! Filters with the same geometry and hash can be united. The bits give estimates of the number of keys in a
//! filter, a union or an intersection:
//! ```
//! use criba_filter::Bloom;
//!
//! let mut monday = Bloom::with_rate(100_000, 0.01)?;
//! let mut tuesday = monday.empty_like()?;
//! monday.extend((0..30_000_u32).map(u32::to_le_bytes));
//! tuesday.extend((20_000..50_000_u32).map(u32::to_le_bytes));
//!
//! assert!((29_000.0..31_000.0).contains(&monday.estimated_len()));
//! assert!((9_000.0..11_000.0).contains(&monday.intersection_len(&tuesday)?));
//! monday.union(&tuesday)?;
//! assert!((49_000.0..51_000.0).contains(&monday.estimated_len()));
//!
//! let stranger = Bloom::with_rate(100_000, 0.01)?; // has another random hash key
//! assert!(monday.union(&stranger).is_err());
//! # Ok::<(), criba_filter::Error>(())
//! ```
//!
//! # Files, shared between processes
//! Filters can be saved and loaded. A checksum covers all bytes: a damaged file gives an error,
//! never a filter that rejects a key. Processes that map a [`Bloom`] or [`StaticFilter`] share one copy:
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("words.filter");
//! use criba_filter::{FilterKind, FilterSize, Hashing, StaticFilter};
//!
//! let words = ["sieve", "riddle", "strainer"];
//! let size = FilterSize::BitsPerKey(10.0);
//! StaticFilter::build(FilterKind::Blocked, size, Hashing::random()?, words)?.save(&path)?;
//!
//! // SAFETY: no process writes to the file or truncates it while it is mapped.
//! let shared = unsafe { StaticFilter::map(&path)? };
//! assert!(shared.contains("sieve"));
//! # Ok::<(), criba_filter::Error>(())
//! ```
//!
//! # Crafted keys
//! With a known hash, absent keys that pass can be crafted. So the default is SipHash-1-3 under a random key. The
//! bytes of the filter contain this key: keep them secret. [`Hashing`] has the alternatives.

// tests/schedules compiles these sources as a library; their unit tests run only here.
#![cfg(not(all(test, criba_shuttle)))]

#[cfg(not(all(unix, target_pointer_width = "64")))]
compile_error!("criba-filter is made for 64-bit Unix systems");

mod blocked;
mod bloom;
mod built;
mod error;
mod geometry;
mod hash;
mod hash_filter;
mod instructions;
mod kind;
mod prefetch;
mod prober;
#[cfg(test)]
mod rate_tests;
mod recipe;
mod ribbon;
mod shown;
mod standalone;
mod sync;

pub use error::{Error, Result};
pub use geometry::Geometry;
pub use hash::HashFunction;
pub use hash_filter::HashFilter;
pub use kind::FilterKind;
pub use standalone::{
    Bloom, FilterSize, Fullness, Hashing, Mapped, ScalableBloom, ShardedBloom, StaticFilter,
};

/// What only the store `criba` uses: it may change in any release.
#[doc(hidden)]
pub mod store {
    pub use crate::bloom::{Modulus, all_set, second_hash};
    pub use crate::built::Built;
    pub use crate::hash::{GOLDEN, HashKey, PrefixKey, fast_range, mix};
    pub use crate::prefetch::{IN_FLIGHT, prefetch};
    pub use crate::prober::Prober;
    pub use crate::recipe::{Recipe, Size};
    pub use crate::ribbon::{FirstColumns, narrowed, narrowed_rate};
    pub use crate::shown::shown;
}

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
