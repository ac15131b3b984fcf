//! The open files of tables, up to a limit.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};

use crate::descriptors::{self, Closable};
use crate::names::FileName;
use crate::sstable::FixedHasher;
use crate::store_dir::StoreDir;
use crate::sync::Mutex;
use crate::vfs::{AccessHint, VfsFile};

#[derive(Debug)]
pub(crate) struct FilePool {
    files: Arc<Files>,
    read_ahead: bool,
}

#[derive(Debug)]
enum Files {
    /// Files are opened for each read.
    None,
    /// Files of the most read tables. Reads under way can exceed the limit by one file each.
    MostRead(Cache<u64, Arc<dyn VfsFile>, UnitWeighter, FixedHasher>),
    /// Files of all tables, until they are forgotten: another process may remove their names.
    All(Mutex<HashMap<u64, Arc<dyn VfsFile>>>),
}

impl Closable for Files {
    fn close_files(&self) {
        if let Self::MostRead(files) = self {
            files.clear();
        }
    }
}

impl FilePool {
    /// A pool of at most `limit` open files; 0 keeps none open. Without `read_ahead`, the operating system reads
    /// nothing but what is asked for.
    pub(crate) fn new(limit: usize, read_ahead: bool) -> Self {
        let options = OptionsBuilder::new()
            .shards(1) // the limit holds for all of them together
            .estimated_items_capacity(limit)
            .weight_capacity(limit as u64)
            .build();
        let files = options.ok().filter(|_| limit > 0).map(|options| {
            let lifecycle = DefaultLifecycle::default();
            Cache::with_options(options, UnitWeighter, FixedHasher::default(), lifecycle)
        });
        let files = Arc::new(files.map_or(Files::None, Files::MostRead));
        descriptors::add(&files);
        Self { files, read_ahead }
    }

    /// A pool that keeps all files open.
    pub(crate) fn unlimited(read_ahead: bool) -> Self {
        Self { files: Arc::new(Files::All(Mutex::default())), read_ahead }
    }

    /// The open files, if all are kept.
    pub(crate) fn pinned(&self) -> usize {
        if let Files::All(files) = &*self.files { files.lock().len() } else { 0 }
    }

    pub(crate) fn get(&self, id: u64, dir: &StoreDir) -> io::Result<Arc<dyn VfsFile>> {
        let known = match &*self.files {
            Files::None => None,
            Files::MostRead(files) => files.get(&id),
            Files::All(files) => files.lock().get(&id).cloned(),
        };
        if let Some(file) = known {
            return Ok(file);
        }
        let file = dir.open_file(FileName::Table(id))?;
        if !self.read_ahead {
            // Only a hint: a file system that cannot take it reads just as well.
            let _ = file.hint(AccessHint::Random);
        }
        match &*self.files {
            Files::None => {}
            Files::MostRead(files) => files.insert(id, Arc::clone(&file)),
            Files::All(files) => _ = files.lock().insert(id, Arc::clone(&file)),
        }
        Ok(file)
    }

    /// Closes the file of a table that is no longer read.
    pub(crate) fn forget(&self, id: u64) {
        match &*self.files {
            Files::None => {}
            Files::MostRead(files) => _ = files.remove(&id),
            Files::All(files) => _ = files.lock().remove(&id),
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
        let store = StoreDir::of(RealVfs, dir.path());
        let path = store.path_of(FileName::Table(1));
        for (pool, keeps) in [
            (FilePool::new(0, true), false),
            (FilePool::new(10, true), true),
            (FilePool::unlimited(true), true),
        ] {
            std::fs::write(&path, "table").expect("writable");
            pool.get(1, &store).expect("opened");
            std::fs::remove_file(&path).expect("removed");
            assert_eq!(pool.get(1, &store).is_ok(), keeps);
            pool.forget(1);
            assert!(pool.get(1, &store).is_err());
        }
    }
}
