//! Theirs beside ours.

use super::source::Source;

/// One quantity in a source and here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// What it is.
    pub quantity: String,
    /// What the source prints; "–" if nothing.
    pub theirs: String,
    /// What came out here.
    pub ours: String,
    /// A note for the comparison; may be empty.
    pub note: String,
}

/// Something that a source has wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correction {
    /// Which.
    pub source: Source,
    /// What it says.
    pub says: String,
    /// What is right.
    pub correct: String,
}
