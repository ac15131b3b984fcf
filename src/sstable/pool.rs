//! The open files of tables, up to a limit.

use std::io;
use std::path::Path;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};

use crate::names::FileName;
use crate::sstable::FixedHasher;
use crate::vfs::{AccessHint, FileKind, Vfs, VfsFile};

/// Keeps the descriptors of the most read tables, and opens the others for each read. Reads under way can
/// exceed the limit by one file each.
#[derive(Debug)]
pub(crate) struct FilePool {
    files: Option<Cache<u64, Arc<dyn VfsFile>, UnitWeighter, FixedHasher>>,
}

impl FilePool {
    /// A pool of at most `limit` open files; 0 keeps none open.
    pub(crate) fn new(limit: usize) -> Self {
        let options = OptionsBuilder::new()
            .shards(1) // the limit holds for all of them together
            .estimated_items_capacity(limit)
            .weight_capacity(limit as u64)
            .build();
        let files = options.ok().filter(|_| limit > 0).map(|options| {
            let lifecycle = DefaultLifecycle::default();
            Cache::with_options(options, UnitWeighter, FixedHasher::default(), lifecycle)
        });
        Self { files }
    }

    pub(crate) fn get(&self, id: u64, vfs: &dyn Vfs, dir: &Path) -> io::Result<Arc<dyn VfsFile>> {
        if let Some(file) = self.files.as_ref().and_then(|files| files.get(&id)) {
            return Ok(file);
        }
        let file = vfs.open(&FileName::Table(id).path(dir), FileKind::Table)?;
        // Only a hint: a file system that cannot take it reads just as well.
        let _ = file.hint(AccessHint::Random);
        if let Some(files) = &self.files {
            files.insert(id, Arc::clone(&file));
        }
        Ok(file)
    }

    /// Closes the file of a table that is no longer read.
    pub(crate) fn forget(&self, id: u64) {
        if let Some(files) = &self.files {
            files.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::RealVfs;

    #[test]
    fn a_pool_keeps_files_open_until_it_is_to_forget_them() {
        let dir = crate::tempdir::tempdir();
        let path = FileName::Table(1).path(dir.path());
        for limit in [0, 10] {
            let pool = FilePool::new(limit);
            std::fs::write(&path, "table").expect("writable");
            pool.get(1, &RealVfs, dir.path()).expect("opened");
            std::fs::remove_file(&path).expect("removed");
            assert_eq!(pool.get(1, &RealVfs, dir.path()).is_ok(), limit > 0);
            pool.forget(1);
            assert!(pool.get(1, &RealVfs, dir.path()).is_err());
        }
    }
}
