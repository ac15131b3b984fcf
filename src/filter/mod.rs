//! Filters on their own: sets that answer "certainly not" or "maybe", in a few bits a key.
//!
//! A store has a filter in each of its tables, and needs nothing from here. But the question "have I
//! seen this?" comes up without a store, too: in front of a slower lookup, a remote cache, an
//! expensive test. A filter takes about ten bits a key, whatever the length of the keys, and is wrong
//! in one direction only: **it never says no to a key that it holds**. To a key that it does not hold
//! it says "maybe" at a rate that you choose.
//!
//! # A first filter
//! ```
//! # fn main() -> criba::Result<()> {
//! use criba::filter::Bloom;
//!
//! let mut seen = Bloom::with_rate(1_000_000, 0.01)?; // a million keys, 1 %: 1.2 MB
//! for i in 0..1000 {
//!     seen.insert(format!("user{i}"));
//! }
//! assert!(seen.contains("user7"));
//! let passed = (1000..2000).filter(|i| seen.contains(format!("user{i}"))).count();
//! assert_eq!(passed, 0); // it is almost empty yet, and its rate far below 1 %
//! # Ok(())
//! # }
//! ```
//!
//! # Which one
//! | keys | filter |
//! |---|---|
//! | come one by one, about so many | [`Bloom`] |
//! | come one by one, nobody knows how many | [`ScalableBloom`], a series that grows |
//! | come from several threads | [`ShardedBloom`], inserted through `&self` |
//! | are all there | [`StaticFilter`] of any [`FilterKind`], the smallest and the fastest |
//!
//! # How large, and how full
//! A Bloom filter takes 1.44 · log2(1/rate) bits a key: 9.6 for 1 %, 14.4 for 0.1 %. A ribbon filter
//! takes 1.10 · log2(1/rate), but has to know all its keys. Nothing takes less than log2(1/rate).
//!
//! A Bloom filter that takes inserts can be given more keys than it was made for. It keeps its word
//! about those it holds; what suffers is the rate. So it says how full it is:
//! ```
//! # fn main() -> criba::Result<()> {
//! use criba::filter::{Bloom, Fullness};
//!
//! let mut filter = Bloom::with_rate(1000, 0.01)?;
//! let mut insert = |keys: std::ops::Range<u32>| {
//!     filter.extend(keys.map(u32::to_le_bytes));
//!     (filter.fullness(), filter.current_rate())
//! };
//!
//! let (fullness, rate) = insert(0..1000);
//! assert_eq!(fullness, Fullness::Within); // half of its bits are set
//! assert!((0.008..0.012).contains(&rate));
//! let (fullness, rate) = insert(1000..2000);
//! assert_eq!(fullness, Fullness::PastDesign);
//! assert!((0.13..0.18).contains(&rate));
//! let (fullness, rate) = insert(2000..3000);
//! assert_eq!(fullness, Fullness::Overfull); // more than 85 %
//! assert!((0.38..0.46).contains(&rate));
//! # Ok(())
//! # }
//! ```
//!
//! # Sets of keys, counted and united
//! Filters of one shape and hash can be united, and how many keys they hold, alone or in common, can
//! be estimated from their bits. The second is best made from the first:
//! ```
//! # fn main() -> criba::Result<()> {
//! use criba::filter::Bloom;
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
//! let stranger = Bloom::with_rate(100_000, 0.01)?; // has a random key of its own
//! assert!(monday.union(&stranger).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Kept in a file, shared between processes
//! Every filter turns to bytes and back, and is saved and loaded; a checksum covers all of it, and
//! what is not as it was written is an error, never a filter that denies. A [`Bloom`] or
//! [`StaticFilter`] can be mapped as well, so that all processes that ask it share one copy:
//! ```
//! # fn main() -> criba::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("words.filter");
//! use criba::FilterKind;
//! use criba::filter::{FilterSize, Hashing, StaticFilter};
//!
//! let words = ["sieve", "riddle", "strainer"];
//! let size = FilterSize::BitsPerKey(10.0);
//! StaticFilter::build(FilterKind::Blocked, size, Hashing::random()?, words)?.save(&path)?;
//!
//! // SAFETY: nobody writes to the file or truncates it while it is mapped.
//! let shared = unsafe { StaticFilter::map(&path)? };
//! assert!(shared.contains("sieve"));
//! # Ok(())
//! # }
//! ```
//!
//! # Keys that are chosen against you
//! If others choose the keys that are asked, and know the hash, they can choose keys that pass. So a
//! filter hashes with SipHash-1-3 under a random key of its own, which its bytes hold: keep those to
//! yourself. [`Hashing`] fixes the key, or takes MurmurHash2 for keys that are trusted.

// For the engine: hashes of a table's keys in, bytes out; bytes and one hash in, a verdict out. The
// room knows no tables, and does no I/O but for the filters that stand alone. What cannot be proved
// sound when it is decoded is not a filter at all, and its table answers "maybe".
//
// The seam is `kind::Kind`, a row of the table of kinds. A hash is 64 bits whatever it came from
// (`hash`); the header around a kind's array says which kind, hash and shape it has (`section`).

mod allocation;
mod alone;
mod band;
mod blocked;
mod bloom;
mod hash;
mod hashes;
mod kind;
mod narrow;
mod plan;
mod policy;
mod prefix;
#[cfg(test)]
mod rates;
mod ration;
mod refit;
mod ribbon;
mod section;
mod set;
mod simd;
mod siphash;

pub use alone::{
    Bloom, FilterSize, Fullness, Hashing, Mapped, ScalableBloom, ShardedBloom, StaticFilter,
};
pub use hash::KeyHash;
pub use kind::{FilterKind, Geometry};
pub use policy::{Allocation, FilterPolicy};
pub use prefix::PrefixExtractor;
pub use set::HashFilter;

pub(crate) use allocation::Share;
pub(crate) use hash::{GOLDEN, HashKey, LookupHash, PrefixHash, PrefixKey, fast_range, mix};
pub(crate) use hashes::KeyHashes;
pub(crate) use narrow::{Portion, StoredFilter};
pub(crate) use plan::Plan;
pub(crate) use policy::Recipe;
pub(crate) use ration::{Choice, Claim, loss, ration};
pub(crate) use refit::{Standing, refits};
pub(crate) use section::{Filter, FilterPlace, build};
