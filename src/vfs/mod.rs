//! The file layer: all files are read, written and locked through [`Vfs`].
//!
//! A store takes any implementation ([`Options::vfs`](crate::Options::vfs)): to count ([`CountingVfs`]), to
//! fail (`FaultVfs`) or to crash (`SimVfs`). The last two need the cargo feature `testing`. Implementations
//! can wrap each other.

mod counting;
mod layer;
mod real;
#[cfg(feature = "testing")]
mod testing;

pub use counting::{CountingVfs, FileCounts, Tally};
pub use layer::{AccessHint, FileKind, FileLock, Operation, Vfs, VfsFile};
pub use real::RealVfs;
#[cfg(feature = "testing")]
pub use testing::{
    Fault, FaultRule, FaultVfs, Injected, Keep, Moment, SimDisk, SimVfs, Unit, Unsynced,
};
