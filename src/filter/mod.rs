//! Filters: the hashes of a table's keys in, bytes out; bytes and one hash in, a verdict out.
//!
//! This room does no I/O and knows no tables. Its invariant is the one that everything else leans
//! on: **a filter never says no to a key that it was built from**. What cannot be proved sound when
//! it is decoded is not a filter at all, and its table answers "maybe".

mod bloom;
mod hash;
mod policy;
mod section;

pub use bloom::Geometry;
pub use policy::FilterPolicy;

pub(crate) use hash::KeyHash;
pub(crate) use section::{Filter, build};
