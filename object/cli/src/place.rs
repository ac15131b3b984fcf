//! Where a run keeps its objects.

use std::sync::Arc;

use criba_cli::interrupt::{Guard, before_end};
use criba_cli::{Failure, Result};
use criba_object::Location;
use criba_object::object_store::path::Path;
use criba_object::object_store::{ObjectStore, ObjectStoreExt};
use futures_util::{StreamExt, TryStreamExt};

use crate::failed;

/// A directory of a bucket that no other run has. Its objects are removed when this is dropped, and before a signal
/// ends the process.
#[derive(Debug)]
pub(crate) struct Place {
    objects: Objects,
    _guard: Guard,
}

#[derive(Debug, Clone)]
struct Objects {
    store: Arc<dyn ObjectStore>,
    path: Path,
}

impl Place {
    /// A new directory below a URL.
    pub(crate) fn below(url: &str) -> Result<Self> {
        let (store, path) = Location::from(url).connect().map_err(failed)?;
        let number = getrandom::u32().map_err(|error| Failure::Other(error.into()))?;
        let objects = Objects { store, path: path.join(format!("readamp-{number:08x}")) };
        let of_signal = objects.clone();
        let guard = before_end(move || of_signal.remove());
        Ok(Self { objects, _guard: guard })
    }

    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.objects.store)
    }

    pub(crate) fn path(&self) -> Path {
        self.objects.path.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.objects.remove();
    }
}

impl Objects {
    fn remove(&self) {
        if let Err(error) = self.try_remove() {
            criba_cli::print_error(&format!("{}: objects are left there: {error}", self.path));
        }
    }

    fn try_remove(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let removed = runtime.block_on(async {
            let listed = self.store.list(Some(&self.path)).try_collect::<Vec<_>>().await?;
            let removals = listed.iter().map(|object| self.store.delete(&object.location));
            futures_util::stream::iter(removals).buffer_unordered(16).try_collect::<()>().await
        });
        removed.map_err(|error| Failure::Other(error.into()))
    }
}
