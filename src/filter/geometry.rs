//! The geometry of a filter.

/// The numbers that determine the array of a filter, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bloom: bits. Blocked: bits, 512 per block. Ribbon: rows, 64 per segment.
    pub m: u64,
    /// Bloom: bits set per key. Blocked: 8. Ribbon: columns.
    pub k: u32,
    /// Ribbon: leading segments with one more column. Otherwise 0.
    pub wide: u64,
}
