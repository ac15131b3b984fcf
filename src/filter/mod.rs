//! Filters: the hashes of a table's keys in, bytes out; bytes and one hash in, a verdict out.
//!
//! This room does no I/O and knows no tables. Its invariant is the one that everything else leans
//! on: **a filter never says no to a key that it was built from**. What cannot be proved sound when
//! it is decoded is not a filter at all, and its table answers "maybe".
//!
//! The seam is [`kind::Kind`], a row of the table of kinds. A hash is 64 bits whatever it came from
//! ([`hash`]); the header around a kind's array says which kind, hash and shape it has ([`section`]).

mod allocation;
mod blocked;
mod bloom;
mod hash;
mod kind;
mod plan;
mod policy;
mod refit;
mod ribbon;
mod section;

pub use hash::KeyHash;
pub use kind::{FilterKind, Geometry};
pub use policy::{Allocation, FilterPolicy};

pub(crate) use allocation::Share;
pub(crate) use hash::{HashKey, LookupHash, mix};
pub(crate) use policy::Recipe;
pub(crate) use refit::{Standing, refits};
pub(crate) use section::{Filter, FilterPlace, build};
