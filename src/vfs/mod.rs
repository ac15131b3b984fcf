//! The file layer: everything that the engine reads, writes or locks goes through [`Vfs`].
//!
//! A store takes any implementation ([`Options::vfs`](crate::Options::vfs)), so a test can count
//! ([`CountingVfs`]), fail (`FaultVfs`) or crash (`SimVfs`) what it likes. The last two are there with
//! the cargo feature `testing`. Implementations wrap one another freely.

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
