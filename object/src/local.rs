//! Whole files in a local directory: read, and replaced in one step.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criba::vfs::{FileKind, FileLock, Vfs, VfsDir, VfsFile};

use crate::error::Result;

/// An open directory.
#[derive(Debug, Clone)]
pub(crate) struct LocalDir {
    pub(crate) dir: Arc<dyn VfsDir>,
    pub(crate) path: PathBuf,
    pub(crate) mode: u32,
}

/// The name of a file that is written to its end before it takes the name of another.
const TEMPORARY: &str = ".tmp";

impl LocalDir {
    /// Opens a directory. Makes it first if it is missing; its parent must be there.
    pub(crate) fn make(vfs: &Arc<dyn Vfs>, path: &Path, mode: u32) -> Result<Self> {
        let opened = match vfs.open_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = path.parent().filter(|parent| *parent != Path::new(""));
                let parent = vfs.open_dir(parent.unwrap_or(Path::new(".")));
                let name = path.file_name().unwrap_or_default();
                parent.and_then(|parent| {
                    parent.create_dir(name, mode | (mode & 0o444) >> 2)?;
                    parent.sync()?;
                    parent.open_dir(name)
                })
            }
            other => other,
        };
        let dir = opened.map_err(io_error("open", path))?;
        Ok(Self { dir, path: path.to_owned(), mode })
    }

    pub(crate) fn lock(&self) -> Result<Box<dyn FileLock>> {
        let path = self.path.join("LOCK");
        let locked = self.dir.lock(OsStr::new("LOCK"), self.mode);
        Ok(locked.map_err(io_error("lock", &path))?)
    }

    /// Reads a file; `None` if there is none.
    pub(crate) fn read(&self, name: &str, kind: FileKind) -> Result<Option<Vec<u8>>> {
        let file = match self.dir.open(OsStr::new(name), kind) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other,
        };
        let read = file.and_then(|file| {
            let length = file.length()?;
            file.read_new(length as usize, 0)
        });
        Ok(Some(read.map_err(io_error("read", &self.path.join(name)))?))
    }

    /// Writes a file, durable when it returns: `fill` writes its content.
    pub(crate) fn write(
        &self,
        name: &str,
        kind: FileKind,
        fill: impl FnOnce(&dyn VfsFile) -> io::Result<()>,
    ) -> Result<()> {
        let temporary = format!("{name}{TEMPORARY}");
        let temporary = OsStr::new(&temporary);
        let write = || {
            remove_if_there(&*self.dir, temporary, kind)?;
            let file = self.dir.create(temporary, kind, self.mode)?;
            fill(&*file)?;
            file.sync_all()?;
            self.dir.rename(temporary, OsStr::new(name), kind)?;
            self.dir.sync()
        };
        Ok(write().map_err(io_error("write", &self.path.join(name)))?)
    }

    pub(crate) fn remove(&self, name: &str, kind: FileKind) -> Result<()> {
        let removed = remove_if_there(&*self.dir, OsStr::new(name), kind);
        Ok(removed.map_err(io_error("remove", &self.path.join(name)))?)
    }

    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let names = self.dir.list().map_err(io_error("list", &self.path))?;
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    /// Removes files that [`write`](Self::write) left when the process died.
    pub(crate) fn remove_temporary(&self) -> Result<()> {
        for name in self.names()?.iter().filter(|name| name.ends_with(TEMPORARY)) {
            self.remove(name, FileKind::Current)?;
        }
        Ok(())
    }
}

pub(crate) fn remove_if_there(dir: &dyn VfsDir, name: &OsStr, kind: FileKind) -> io::Result<()> {
    match dir.remove(name, kind) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The error of an operation on a local file.
pub(crate) fn io_error(action: &str, path: &Path) -> impl FnOnce(io::Error) -> criba::Error {
    let (action, path) = (action.to_owned(), path.to_owned());
    move |source| criba::Error::Io { action, path, source: Arc::new(source) }
}
