//! Which filters a store wants, and the hashes of its keys. The filters themselves are those of the crate
//! `criba-filter`.

mod key_hashes;
mod lookup_key;
mod policy;
mod prefix;

pub use policy::{Allocation, FilterPolicy};
pub(crate) use prefix::MOST_PREFIXES;
pub use prefix::PrefixExtractor;

pub(crate) use key_hashes::{KeyCounts, KeyHashes};
pub(crate) use lookup_key::{LookupKey, PrefixHash};
pub(crate) use policy::{Amount, machine_memory};
