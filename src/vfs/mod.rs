//! The file layer: all files are read, written and locked through [`Vfs`].
//!
//! A store takes any implementation ([`Options::vfs`](crate::Options::vfs)): to count (`CountingVfs`), to
//! fail (`FaultVfs`) or to crash (`SimVfs`). These need the cargo feature `testing`. A layer of one's own is a
//! [`Layer`] of one function, over any other one; `examples/file_layer.rs` has one.

mod layer;
mod real;
#[cfg(feature = "testing")]
mod testing;
mod traits;

pub use layer::{Call, Layer, LayeredVfs};
pub use real::RealVfs;
#[cfg(feature = "testing")]
pub use testing::{
    CountingVfs, Fault, FaultRule, FaultVfs, FileCounts, Injected, Keep, Moment, SimDisk, SimVfs,
    Tally, Unit, Unsynced,
};
pub use traits::{
    AccessHint, EntryType, FileKind, FileLock, Identity, Operation, Vfs, VfsDir, VfsFile,
    check_name,
};
