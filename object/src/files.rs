//! A file layer in which a table without a file is read from its object.
//!
//! All files are those of the layer below. A table has its file, or a stub in its place, with the name of the
//! table and `.stub`; for the store above both are the table.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwap;
use criba::TableLayout;
use criba::vfs::{AccessHint, FileKind, FileLock, Identity, Vfs, VfsDir, VfsFile};

use crate::backlog::Backlog;
use crate::bucket::Bucket;
use crate::local::{LocalDir, io_error, remove_if_there};
use crate::published::{Object, is_publication};
use crate::remote_table::RemoteTable;
use crate::stub::{self, Stub, stub_name, table_of};

/// The file layer of one local directory. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct TableFiles(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    below: Arc<dyn Vfs>,
    bucket: Bucket,
    /// The directory of the store.
    store: PathBuf,
    backlog: Backlog,
    /// The open files of the store's tables. Held while a file gives way to its stub.
    open: Mutex<HashMap<OsString, Vec<Weak<TableFile>>>>,
    /// Held for as long as a store may use the directory.
    lock: OnceLock<Box<dyn FileLock>>,
}

impl TableFiles {
    pub(crate) fn new(below: Arc<dyn Vfs>, bucket: Bucket, store: PathBuf, limit: u64) -> Self {
        let backlog = Backlog::new(limit);
        let (open, lock) = (Mutex::default(), OnceLock::new());
        Self(Arc::new(Shared { below, bucket, store, backlog, open, lock }))
    }

    /// Keeps a lock until the last store that uses these files is gone.
    pub(crate) fn keep(&self, lock: Box<dyn FileLock>) {
        let _ = self.0.lock.set(lock);
    }

    pub(crate) fn backlog(&self) -> &Backlog {
        &self.0.backlog
    }

    /// Puts the stub of a published table in the place of its file. Open files read the object from then on.
    pub(crate) fn replace_by_stub(&self, store: &LocalDir, object: &Object) -> crate::Result<()> {
        let name = OsStr::new(&object.file);
        let path = store.path.join(name);
        let failed = |error| crate::Error::from(io_error("replace by its stub", &path)(error));
        let file = match store.dir.open(name, FileKind::Table) {
            // A compaction has removed it meanwhile, or it is a stub already.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed)?,
        };
        let layout = TableLayout::read(&*file, file.length().map_err(failed)?, &path)?;
        let is_it = layout.bytes() == object.bytes && layout.tail_offset() == object.kept_from;
        if !is_it {
            return Ok(());
        }
        let mut open = self.0.open();
        let of_stub = stub_name(&object.file);
        store.write(&of_stub, FileKind::Table, |stub| {
            stub::write(stub, object, |offset, length| {
                file.read_new(length as usize, offset).map(Into::into)
            })
        })?;
        let exchange = || {
            for file in open.get(name).into_iter().flatten().filter_map(Weak::upgrade) {
                let stub = store.dir.open(OsStr::new(&of_stub), FileKind::Table)?;
                let remote = RemoteTable::open(&self.0.bucket, Stub::open(stub)?, &path)?;
                file.place.store(Arc::new(Place::Remote(Box::new(remote))));
            }
            remove_if_there(&*store.dir, name, FileKind::Table)
        };
        exchange().map_err(failed)?;
        open.retain(|_, files| files.iter().any(|file| file.strong_count() > 0));
        Ok(())
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, HashMap<OsString, Vec<Weak<TableFile>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vfs for TableFiles {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn VfsDir>> {
        let inner = self.0.below.open_dir(path)?;
        Ok(Directory::of(inner, &self.0, path.to_owned()))
    }

    fn is_simulated(&self) -> bool {
        self.0.below.is_simulated()
    }
}

#[derive(Debug)]
struct Directory {
    inner: Arc<dyn VfsDir>,
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Directory {
    fn of(inner: Arc<dyn VfsDir>, shared: &Arc<Shared>, path: PathBuf) -> Arc<dyn VfsDir> {
        Arc::new(Self { inner, shared: Arc::clone(shared), path })
    }

    fn is_of_store(&self) -> bool {
        self.path == self.shared.store
    }
}

fn of_stub(name: &OsStr) -> OsString {
    let mut name = name.to_owned();
    name.push(".stub");
    name
}

impl VfsDir for Directory {
    fn open(&self, name: &OsStr, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        if kind != FileKind::Table {
            return self.inner.open(name, kind);
        }
        let mut open = self.shared.open();
        let place = match self.inner.open(name, kind) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let stub = self.inner.open(&of_stub(name), kind).map_err(|_| error)?;
                let path = self.path.join(name);
                let table = RemoteTable::open(&self.shared.bucket, Stub::open(stub)?, &path)?;
                Place::Remote(Box::new(table))
            }
            other => Place::Local(other?),
        };
        let file = TableFile::new(place, None);
        if self.is_of_store() {
            let files = open.entry(name.to_owned()).or_default();
            files.retain(|file| file.strong_count() > 0);
            files.push(Arc::downgrade(&file));
        }
        Ok(file)
    }

    fn create(&self, name: &OsStr, kind: FileKind, mode: u32) -> io::Result<Arc<dyn VfsFile>> {
        if kind != FileKind::Table || !self.is_of_store() {
            return self.inner.create(name, kind, mode);
        }
        self.shared.backlog.add(name);
        let file = self.inner.create(name, kind, mode);
        let file = file.inspect_err(|_| self.shared.backlog.remove([name]))?;
        let grows = Some((Arc::clone(&self.shared), name.to_owned()));
        let file = TableFile::new(Place::Local(file), grows);
        self.shared.open().entry(name.to_owned()).or_default().push(Arc::downgrade(&file));
        Ok(file)
    }

    fn rename(&self, from: &OsStr, to: &OsStr, kind: FileKind) -> io::Result<()> {
        self.inner.rename(from, to, kind)
    }

    fn remove(&self, name: &OsStr, kind: FileKind) -> io::Result<()> {
        if kind != FileKind::Table {
            return self.inner.remove(name, kind);
        }
        let _not_replaced_meanwhile = self.shared.open();
        if self.is_of_store() {
            self.shared.backlog.remove([name]);
        }
        let of_file = self.inner.remove(name, kind);
        let of_stub = self.inner.remove(&of_stub(name), kind);
        match (of_file, of_stub) {
            (Err(error), stub) if error.kind() == io::ErrorKind::NotFound => {
                stub.map_err(|_| error)
            }
            (file, Err(error)) if error.kind() == io::ErrorKind::NotFound => file,
            (file, stub) => file.and(stub),
        }
    }

    /// Links stubs only for a publication, which is beside the store. A copy elsewhere gets whole tables.
    fn link_to(
        &self,
        name: &OsStr,
        to: &dyn VfsDir,
        to_name: &OsStr,
        kind: FileKind,
    ) -> io::Result<()> {
        let Some(to) = (to as &dyn Any).downcast_ref::<Self>() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let linked = self.inner.link_to(name, &*to.inner, to_name, kind);
        let is_missing =
            linked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let name_of_dir = to.path.file_name().and_then(OsStr::to_str);
        let is_publication = to.path.parent() == self.shared.store.parent()
            && name_of_dir.is_some_and(is_publication);
        if !is_missing || kind != FileKind::Table || !is_publication {
            return linked;
        }
        self.inner.link_to(&of_stub(name), &*to.inner, &of_stub(to_name), kind)
    }

    fn list(&self) -> io::Result<Vec<OsString>> {
        let mut names = self.inner.list()?;
        for name in &mut names {
            if let Some(table) = name.to_str().and_then(table_of) {
                *name = table.into();
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn lock(&self, name: &OsStr, mode: u32) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(name, mode)
    }

    fn lock_shared(&self, name: &OsStr) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock_shared(name)
    }

    fn create_dir(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        self.inner.create_dir(name, mode)
    }

    fn open_dir(&self, name: &OsStr) -> io::Result<Arc<dyn VfsDir>> {
        let inner = self.inner.open_dir(name)?;
        Ok(Self::of(inner, &self.shared, self.path.join(name)))
    }

    fn identity(&self) -> io::Result<Identity> {
        self.inner.identity()
    }

    fn identity_of(&self, name: &OsStr, kind: FileKind) -> io::Result<Identity> {
        match self.inner.identity_of(name, kind) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && kind == FileKind::Table => {
                self.inner.identity_of(&of_stub(name), kind).map_err(|_| error)
            }
            other => other,
        }
    }
}

/// An open table, whose blocks may move to the object meanwhile.
#[derive(Debug)]
struct TableFile {
    place: ArcSwap<Place>,
    /// The backlog of a table that is being written.
    grows: Option<(Arc<Shared>, OsString)>,
}

#[derive(Debug)]
enum Place {
    Local(Arc<dyn VfsFile>),
    Remote(Box<RemoteTable>),
}

impl Place {
    fn local(&self) -> io::Result<&dyn VfsFile> {
        match self {
            Self::Local(file) => Ok(&**file),
            Self::Remote(_) => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }
}

impl TableFile {
    fn new(place: Place, grows: Option<(Arc<Shared>, OsString)>) -> Arc<Self> {
        Arc::new(Self { place: ArcSwap::from_pointee(place), grows })
    }
}

impl VfsFile for TableFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match &**self.place.load() {
            Place::Local(file) => file.read_exact_at(buffer, offset),
            Place::Remote(table) => table.read_into(buffer, offset),
        }
    }

    fn read_new(&self, length: usize, offset: u64) -> io::Result<Vec<u8>> {
        match &**self.place.load() {
            Place::Local(file) => file.read_new(length, offset),
            Place::Remote(table) => {
                let mut buffer = Vec::new();
                buffer.try_reserve_exact(length)?;
                buffer.resize(length, 0);
                table.read_into(&mut buffer, offset)?;
                Ok(buffer)
            }
        }
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.place.load().local()?.append(data)?;
        if let Some((shared, name)) = &self.grows {
            shared.backlog.grow(name, data.len() as u64);
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.place.load().local()?.write_at(data, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.place.load().local()?.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.place.load().local()?.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.place.load().local()?.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        match &**self.place.load() {
            Place::Local(file) => file.length(),
            Place::Remote(table) => Ok(table.stub().bytes),
        }
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match &**self.place.load() {
            Place::Local(file) => file.next_data(offset),
            Place::Remote(_) => Ok(Some(offset)),
        }
    }

    fn identity(&self) -> io::Result<Identity> {
        match &**self.place.load() {
            Place::Local(file) => file.identity(),
            Place::Remote(table) => table.stub().file.identity(),
        }
    }

    fn hint(&self, hint: AccessHint) -> io::Result<()> {
        match (&**self.place.load(), hint) {
            (Place::Local(file), hint) => file.hint(hint),
            (Place::Remote(table), AccessHint::WillNeed { offset, length }) => {
                table.announce(offset, length)
            }
            (Place::Remote(table), AccessHint::Scan { offset, length }) => {
                table.announce_scan(offset, length)
            }
            _ => Ok(()),
        }
    }
}
