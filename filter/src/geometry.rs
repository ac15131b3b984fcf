//! The geometry of a filter.

/// The shape of a filter: the numbers that its array follows from. Their meanings differ by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bloom: bits. Blocked: bits, 512 per block. Ribbon: rows, 64 per segment.
    pub m: u64,
    /// Bloom: bits set per key. Blocked: 8. Ribbon: columns.
    pub k: u32,
    /// Ribbon: the number of first segments with one more column. Other kinds: 0.
    pub wide: u64,
}
