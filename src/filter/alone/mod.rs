//! Filters that stand alone, without a store: the public part of this room.
//!
//! All of them are made of [`part::Part`]s, the kinds' arrays with their shapes, and are written in
//! one format ([`format`]). The ones that grow are made of [`bits::Bits`]: a part of kind bloom that
//! takes inserts and counts its ones. [`file`] is the only place in the room that does I/O.

mod bits;
mod bloom;
mod file;
mod format;
mod fullness;
mod hashing;
mod part;
mod saved;
mod scalable;
mod sharded;
mod sizing;
mod static_filter;

pub use bloom::Bloom;
pub use file::Mapped;
pub use fullness::Fullness;
pub use hashing::Hashing;
pub use scalable::ScalableBloom;
pub use sharded::ShardedBloom;
pub use static_filter::{FilterSize, StaticFilter};
