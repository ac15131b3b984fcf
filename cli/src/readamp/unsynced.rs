//! A file layer without syncs, for a store that is removed in the end. Loading makes some thousand syncs, and
//! on a slow disk they take longer than all the rest.

use std::io;
use std::sync::Arc;

use criba::vfs::{Call, Layer, LayeredVfs, Operation, RealVfs, Vfs};

/// Leaves out syncs.
#[derive(Debug)]
struct Unsynced;

impl Layer for Unsynced {
    fn call(&self, call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        match call.operation {
            Operation::Sync | Operation::SyncDir => Ok(()),
            _ => next(),
        }
    }
}

/// The operating system's file system; syncs do nothing.
pub(super) fn unsynced() -> Arc<dyn Vfs> {
    Arc::new(LayeredVfs::new(Arc::new(RealVfs), Unsynced))
}
