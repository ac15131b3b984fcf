//! A file layer over another one, from one function that each operation passes through.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{AccessHint, FileKind, FileLock, Identity, Operation, Vfs, VfsDir, VfsFile};

/// An operation, before the layer below runs it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The operation.
    pub operation: Operation,
    /// The kind of the file.
    pub kind: FileKind,
    /// The file or directory, by the path with which its directory was opened; of two names, the new one.
    pub path: &'a Path,
    /// The number of bytes to read or write, else 0.
    pub bytes: usize,
}

/// A function around each operation of a [`LayeredVfs`]. Each method gets the operation and `next`, which runs it
/// in the layer below. A method calls `next` once, or not at all: then it returns an error, or `Ok` for an operation
/// that returns only success (all but opening, creating, listing, locking, lengths and identities).
///
/// Many threads call a layer at once, some with the store's locks held. So a method must not call the store.
pub trait Layer: Debug + Send + Sync + 'static {
    /// Does an operation.
    ///
    /// # Errors
    /// The result of the operation.
    fn call(&self, _call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        next()
    }

    /// Does a read. By default through [`call`](Self::call).
    ///
    /// # Errors
    /// The result of the operation.
    fn read(
        &self,
        call: &Call<'_>,
        buffer: &mut [u8],
        next: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.call(call, &mut || next(buffer))
    }

    /// Does an append or a write. By default through [`call`](Self::call).
    ///
    /// # Errors
    /// The result of the operation.
    fn write(
        &self,
        call: &Call<'_>,
        data: &[u8],
        next: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.call(call, &mut || next(data))
    }

    /// Notes an access hint.
    fn hint(&self, _kind: FileKind, _hint: AccessHint) {}

    /// Notes that an open file was closed.
    fn closed(&self, _kind: FileKind) {}
}

/// A file layer over another one: each operation passes through a [`Layer`]. Clones share it.
#[derive(Debug)]
pub struct LayeredVfs<L> {
    below: Arc<dyn Vfs>,
    layer: Arc<L>,
}

impl<L> Clone for LayeredVfs<L> {
    fn clone(&self) -> Self {
        Self { below: Arc::clone(&self.below), layer: Arc::clone(&self.layer) }
    }
}

impl<L: Layer> LayeredVfs<L> {
    /// Passes the operations on `below` through `layer`.
    pub fn new(below: Arc<dyn Vfs>, layer: L) -> Self {
        Self { below, layer: Arc::new(layer) }
    }

    /// The layer.
    pub fn layer(&self) -> &L {
        &self.layer
    }
}

/// Passes an operation with a result through a layer.
fn pass<T>(
    layer: &impl Layer,
    call: &Call<'_>,
    mut next: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut result = None;
    layer.call(call, &mut || {
        result = Some(next()?);
        Ok(())
    })?;
    result.ok_or_else(|| io::Error::other("a file layer left out an operation with a result"))
}

impl<L: Layer> Vfs for LayeredVfs<L> {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn VfsDir>> {
        let (operation, kind) = (Operation::OpenDir, FileKind::Directory);
        let call = Call { operation, kind, path, bytes: 0 };
        let inner = pass(&*self.layer, &call, || self.below.open_dir(path))?;
        Ok(LayeredDir::wrap(&self.layer, path.to_owned(), inner))
    }

    fn is_simulated(&self) -> bool {
        self.below.is_simulated()
    }
}

#[derive(Debug)]
struct LayeredDir<L> {
    inner: Arc<dyn VfsDir>,
    layer: Arc<L>,
    path: PathBuf,
}

impl<L: Layer> LayeredDir<L> {
    fn wrap(layer: &Arc<L>, path: PathBuf, inner: Arc<dyn VfsDir>) -> Arc<dyn VfsDir> {
        Arc::new(Self { inner, layer: Arc::clone(layer), path })
    }

    fn pass<T>(
        &self,
        operation: Operation,
        kind: FileKind,
        name: &OsStr,
        next: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let path = &*self.path.join(name);
        pass(&*self.layer, &Call { operation, kind, path, bytes: 0 }, next)
    }

    /// As `pass`, for the directory itself.
    fn pass_here<T>(
        &self,
        operation: Operation,
        next: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let (kind, path) = (FileKind::Directory, &*self.path);
        pass(&*self.layer, &Call { operation, kind, path, bytes: 0 }, next)
    }

    fn file(&self, name: &OsStr, kind: FileKind, inner: Arc<dyn VfsFile>) -> Arc<dyn VfsFile> {
        Arc::new(LayeredFile {
            inner,
            layer: Arc::clone(&self.layer),
            kind,
            path: self.path.join(name),
        })
    }
}

impl<L: Layer> VfsDir for LayeredDir<L> {
    fn open(&self, name: &OsStr, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.pass(Operation::Open, kind, name, || self.inner.open(name, kind))?;
        Ok(self.file(name, kind, file))
    }

    fn create(&self, name: &OsStr, kind: FileKind, mode: u32) -> io::Result<Arc<dyn VfsFile>> {
        let create = || self.inner.create(name, kind, mode);
        let file = self.pass(Operation::Create, kind, name, create)?;
        Ok(self.file(name, kind, file))
    }

    fn rename(&self, from: &OsStr, to: &OsStr, kind: FileKind) -> io::Result<()> {
        self.pass(Operation::Rename, kind, to, || self.inner.rename(from, to, kind))
    }

    fn remove(&self, name: &OsStr, kind: FileKind) -> io::Result<()> {
        self.pass(Operation::Remove, kind, name, || self.inner.remove(name, kind))
    }

    fn link_to(
        &self,
        name: &OsStr,
        to: &dyn VfsDir,
        to_name: &OsStr,
        kind: FileKind,
    ) -> io::Result<()> {
        let other = (to as &dyn Any).downcast_ref::<Self>();
        let path = other.map_or(Path::new(""), |other| &other.path).join(to_name);
        let to = other.map_or(to, |other| &*other.inner);
        let call = Call { operation: Operation::HardLink, kind, path: &path, bytes: 0 };
        pass(&*self.layer, &call, || self.inner.link_to(name, to, to_name, kind))
    }

    fn list(&self) -> io::Result<Vec<OsString>> {
        self.pass_here(Operation::List, || self.inner.list())
    }

    fn sync(&self) -> io::Result<()> {
        let (operation, kind, path) = (Operation::SyncDir, FileKind::Directory, &*self.path);
        let call = Call { operation, kind, path, bytes: 0 };
        self.layer.call(&call, &mut || self.inner.sync())
    }

    fn lock(&self, name: &OsStr, mode: u32) -> io::Result<Box<dyn FileLock>> {
        self.pass(Operation::Lock, FileKind::Lock, name, || self.inner.lock(name, mode))
    }

    fn lock_shared(&self, name: &OsStr) -> io::Result<Box<dyn FileLock>> {
        self.pass(Operation::Lock, FileKind::Lock, name, || self.inner.lock_shared(name))
    }

    fn create_dir(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let create = || self.inner.create_dir(name, mode);
        self.pass(Operation::CreateDir, FileKind::Directory, name, create)
    }

    fn open_dir(&self, name: &OsStr) -> io::Result<Arc<dyn VfsDir>> {
        let open = || self.inner.open_dir(name);
        let inner = self.pass(Operation::OpenDir, FileKind::Directory, name, open)?;
        Ok(Self::wrap(&self.layer, self.path.join(name), inner))
    }

    fn identity(&self) -> io::Result<Identity> {
        self.pass_here(Operation::Identity, || self.inner.identity())
    }

    fn identity_of(&self, name: &OsStr, kind: FileKind) -> io::Result<Identity> {
        self.pass(Operation::Identity, kind, name, || self.inner.identity_of(name, kind))
    }
}

#[derive(Debug)]
struct LayeredFile<L: Layer> {
    inner: Arc<dyn VfsFile>,
    layer: Arc<L>,
    kind: FileKind,
    path: PathBuf,
}

impl<L: Layer> Drop for LayeredFile<L> {
    fn drop(&mut self) {
        self.layer.closed(self.kind);
    }
}

impl<L: Layer> LayeredFile<L> {
    fn call(&self, operation: Operation, bytes: usize) -> Call<'_> {
        Call { operation, kind: self.kind, path: &self.path, bytes }
    }
}

impl<L: Layer> VfsFile for LayeredFile<L> {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let call = self.call(Operation::Read, buffer.len());
        self.layer.read(&call, buffer, &mut |buffer| self.inner.read_exact_at(buffer, offset))
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        let call = self.call(Operation::Append, data.len());
        self.layer.write(&call, data, &mut |data| self.inner.append(data))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let call = self.call(Operation::Write, data.len());
        self.layer.write(&call, data, &mut |data| self.inner.write_at(data, offset))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let call = self.call(Operation::SetLength, 0);
        self.layer.call(&call, &mut || self.inner.set_length(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.layer.call(&self.call(Operation::Sync, 0), &mut || self.inner.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.layer.call(&self.call(Operation::Sync, 0), &mut || self.inner.sync_all())
    }

    fn length(&self) -> io::Result<u64> {
        pass(&*self.layer, &self.call(Operation::Length, 0), || self.inner.length())
    }

    fn identity(&self) -> io::Result<Identity> {
        pass(&*self.layer, &self.call(Operation::Identity, 0), || self.inner.identity())
    }

    /// Passed on without a call of the layer: it only saves reads.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.inner.next_data(offset)
    }

    fn hint(&self, hint: AccessHint) -> io::Result<()> {
        self.layer.hint(self.kind, hint);
        self.inner.hint(hint)
    }
}
