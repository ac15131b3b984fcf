//! The filters of tables: how large they are, and their blocks in files and in memory. The filters themselves are
//! those of the crate `criba-filter`.

mod allocation;
mod filter_block;
mod header;
mod key_hashes;
mod lookup_key;
mod plan;
mod policy;
mod portion;
mod prefix;
mod ration;
mod slots;

pub use policy::{Allocation, FilterPolicy};
pub use prefix::PrefixExtractor;

pub(crate) use allocation::{Alike, Share};
pub(crate) use filter_block::{Filter, FilterPlace, block_bits, build};
pub(crate) use header::{BLOCKED, FilterHeader};
pub(crate) use key_hashes::KeyHashes;
pub(crate) use lookup_key::{LookupKey, PrefixHash};
pub(crate) use policy::machine_memory;
pub(crate) use portion::Portion;
pub(crate) use ration::{Choice, Claim, loss, ration};
pub(crate) use slots::Slots;
