//! What a power failure may lose, and what is kept of it.

use std::path::PathBuf;

/// What a disk writes as a whole, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// 512 bytes.
    Sector,
    /// 4,096 bytes, as file systems write back.
    Page,
}

/// Something that a power failure may lose on its own: it is in the first state if all that happened
/// to it since the last sync is lost, in the last one if nothing is, and perhaps in one between.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unsynced {
    /// A [`Unit`] of a file.
    #[non_exhaustive]
    Bytes {
        /// The file, by the last name that it was given.
        path: PathBuf,
        /// Where in the file the unit starts.
        offset: u64,
        /// In how many states it may be: at least two.
        states: usize,
        /// Whether the synced file reaches so far. If not, the first state is zeros.
        is_new: bool,
    },
    /// The length of a file.
    #[non_exhaustive]
    Length {
        /// The file, by the last name that it was given.
        path: PathBuf,
        /// The lengths that it may have: at least two.
        lengths: Vec<u64>,
    },
    /// A name in a directory: a creation, a renaming or a removal. A renaming changes two names, each
    /// on its own: more than a journal would allow.
    #[non_exhaustive]
    Name {
        /// The name.
        path: PathBuf,
        /// How many files, or none, it may stand for: at least two.
        states: usize,
    },
}

/// Which state something [`Unsynced`] is in after a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keep {
    /// The state of this number; the last one, if it has not so many.
    State(usize),
    /// For bytes: so many of the state of this number, and the rest as in the state before it. For
    /// the others, the state itself.
    Torn(usize, usize),
    /// For bytes that the synced file did not reach: what another file held there that was removed
    /// before. For the others, the first state.
    Stale,
}

impl Keep {
    /// The first state: nothing since the last sync is left.
    pub const OLD: Self = Self::State(0);
    /// The last state: nothing is lost.
    pub const NEW: Self = Self::State(usize::MAX);

    /// Which of so many states is meant.
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
    /// In how many states it may be: at least two.
    pub fn states(&self) -> usize {
        match self {
            Self::Bytes { states, .. } | Self::Name { states, .. } => *states,
            Self::Length { lengths, .. } => lengths.len(),
        }
    }
}
