//! What a power failure may lose and keep.

use std::path::PathBuf;

/// What a disk writes as a whole or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// 512 bytes.
    Sector,
    /// 4,096 bytes: the page in which file systems write data back.
    Page,
}

/// Something that a power failure may lose. It is in the first state if everything since the last sync is
/// lost, in the last one if nothing is, or in one between.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unsynced {
    /// A [`Unit`] of a file.
    #[non_exhaustive]
    Bytes {
        /// The file, by its last name.
        path: PathBuf,
        /// Where in the file the unit starts.
        offset: u64,
        /// The number of possible states: at least two.
        states: usize,
        /// Whether it lies beyond the synced file; its first state is zeros then.
        is_new: bool,
    },
    /// The length of a file.
    #[non_exhaustive]
    Length {
        /// The file, by its last name.
        path: PathBuf,
        /// The possible lengths: at least two.
        lengths: Vec<u64>,
    },
    /// A name in a directory: created, renamed or removed. A rename changes two names independently, which is
    /// more than a journal allows.
    #[non_exhaustive]
    Name {
        /// The name.
        path: PathBuf,
        /// The number of possible files, or none: at least two.
        states: usize,
    },
}

/// The state of something [`Unsynced`] after a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keep {
    /// The state of this number, or the last one.
    State(usize),
    /// For bytes: the first part of this state, and the rest of the state before. Otherwise the state itself.
    Torn(usize, usize),
    /// For bytes beyond the synced file: bytes of a removed file. Otherwise the first state.
    Stale,
}

impl Keep {
    /// The first state: nothing since the last sync is left.
    pub const OLD: Self = Self::State(0);
    /// The last state: nothing is lost.
    pub const NEW: Self = Self::State(usize::MAX);

    /// The number of the state, of this many.
    pub(super) fn state(self, states: usize) -> usize {
        match self {
            Self::State(state) | Self::Torn(state, _) => state.min(states - 1),
            Self::Stale => 0,
        }
    }
}

impl Unit {
    /// Its length in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Sector => 512,
            Self::Page => 4096,
        }
    }
}

impl Unsynced {
    /// The number of possible states: at least two.
    pub fn states(&self) -> usize {
        match self {
            Self::Bytes { states, .. } | Self::Name { states, .. } => *states,
            Self::Length { lengths, .. } => lengths.len(),
        }
    }
}
