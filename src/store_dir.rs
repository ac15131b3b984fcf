//! The open directory of a store.
//!
//! A path leads to the directory once, at the opening. Afterwards every file is a name in the open directory,
//! so the store goes on in it after a `chdir` or a rename, and never touches a directory that took its place.
//! The path stays for messages, and to notice that it leads elsewhere.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::descriptors::with_descriptor;
use crate::error::{Error, IoContext, Result};
use crate::fork::Birth;
use crate::names::FileName;
use crate::poison::Poison;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::vfs::{EntryType, FileKind, FileLock, Identity, Vfs, VfsDir, VfsFile};
use criba_filter::store::shown;

/// The open directory of a store.
#[derive(Debug, Clone)]
pub(crate) struct StoreDir {
    vfs: Arc<dyn Vfs>,
    handle: Arc<dyn VfsDir>,
    path: Arc<Path>,
    /// The mode of new files.
    mode: u32,
    watch: Option<Arc<Watch>>,
}

/// What an open store compares before it creates, removes or renames a file: whether the directory is still
/// its own.
#[derive(Debug)]
struct Watch {
    birth: Birth,
    dir: Identity,
    lock: Identity,
    /// The log in use, which must keep its name.
    log: Mutex<Option<(FileName, Arc<dyn VfsFile>)>>,
    poison: Poison,
    /// Whether the path leads elsewhere.
    moved: AtomicBool,
    move_reported: AtomicBool,
    /// The syncs of logs and manifests.
    syncs: AtomicU64,
}

/// The path is looked up at every 64th sync: beside them it takes no time.
const SYNCS_BETWEEN_LOOKUPS: u64 = 64;

/// Errors of directories that this process may not read, whose path is too long, or whose file system syncs no
/// directories.
const CANNOT_SYNC: [io::ErrorKind; 5] = [
    io::ErrorKind::PermissionDenied,
    io::ErrorKind::InvalidFilename,
    io::ErrorKind::InvalidInput,
    io::ErrorKind::Unsupported,
    io::ErrorKind::ReadOnlyFilesystem,
];

/// The full path of a store's directory, which a later `chdir` does not change.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    if path == Path::new("") {
        return Err(Error::InvalidPath {
            path: path.to_owned(),
            reason: "the path is empty".into(),
        });
    }
    std::path::absolute(path).context("find the full path", path)
}

/// Opens a directory by its full path, or from the current directory if the process cannot reach that from the root.
fn reach(vfs: &Arc<dyn Vfs>, path: &Path) -> io::Result<Arc<dyn VfsDir>> {
    with_descriptor(|| vfs.open_dir(path)).or_else(|error| {
        let is_cut_off = matches!(
            error.kind(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidFilename
        );
        let here = std::env::current_dir().ok().filter(|_| is_cut_off);
        match here.and_then(|here| path.strip_prefix(here).ok()) {
            Some(relative) => with_descriptor(|| vfs.open_dir(&Path::new(".").join(relative))),
            None => Err(error),
        }
    })
}

impl StoreDir {
    /// Opens a directory; `None` if there is none. New files will have this mode.
    pub(crate) fn open(vfs: &Arc<dyn Vfs>, path: &Path, mode: u32) -> Result<Option<Self>> {
        match reach(vfs, path) {
            Ok(handle) => {
                let (vfs, path) = (Arc::clone(vfs), Arc::from(path));
                Ok(Some(Self { vfs, handle, path, mode, watch: None }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_dangling = path.parent().zip(path.file_name()).is_some_and(|(dir, name)| {
                    reach(vfs, dir).is_ok_and(|dir| is_symlink(&*dir, name))
                });
                if !is_dangling {
                    return Ok(None);
                }
                let reason = "it is a symbolic link that leads to nothing".into();
                Err(Error::InvalidPath { path: path.to_owned(), reason })
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                Err(Error::NotAStore { path: path.to_owned(), found: "a file".into() })
            }
            Err(error) => Err(error).context("open", path),
        }
    }

    /// Opens a directory. Makes it first if there is none, and its missing parents. Their names are durable then,
    /// also those that an earlier call made and could not sync.
    pub(crate) fn make(vfs: &Arc<dyn Vfs>, path: &Path, mode: u32) -> Result<Self> {
        let dir = Self::open_or_create(vfs, path, mode)?;
        for ancestor in path.ancestors().skip(1) {
            match reach(vfs, ancestor).and_then(|dir| dir.sync()) {
                // This process has made no name in a directory that it cannot read or sync.
                Err(error) if CANNOT_SYNC.contains(&error.kind()) => {}
                synced => synced.context("sync", ancestor)?,
            }
        }
        Ok(dir)
    }

    fn open_or_create(vfs: &Arc<dyn Vfs>, path: &Path, mode: u32) -> Result<Self> {
        if let Some(dir) = Self::open(vfs, path, mode)? {
            return Ok(dir);
        }
        let missing = || Err(io::ErrorKind::NotFound.into()).context("open", path);
        let Some(parent) = path.parent() else { return missing() };
        let parent = Self::open_or_create(vfs, parent, mode)?;
        // A path that ends in `..` has no name of its own.
        let name = path.file_name().unwrap_or(OsStr::new(".."));
        match parent.make_child(name) {
            Err(error) if error.is_io(io::ErrorKind::AlreadyExists) => {}
            Err(error) if error.is_io(io::ErrorKind::InvalidInput) => {}
            made => made?,
        }
        Self::open(vfs, path, mode)?.map_or_else(missing, Ok)
    }

    /// The directory with the checks of an open store. Poisons the store when one of them fails.
    pub(crate) fn watched(self, lock: &dyn FileLock, poison: Poison) -> Result<Self> {
        let watch = Watch {
            birth: Birth::now(),
            dir: self.handle.identity().context("identify", &self.path)?,
            lock: lock.identity().context("identify", &self.path_of(FileName::Lock))?,
            log: Mutex::default(),
            poison,
            moved: AtomicBool::new(false),
            move_reported: AtomicBool::new(false),
            syncs: AtomicU64::new(0),
        };
        Ok(Self { watch: Some(Arc::new(watch)), ..self })
    }

    /// Path for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path for messages.
    pub(crate) fn path_of(&self, name: FileName) -> PathBuf {
        self.path.join(name.to_string())
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.vfs.is_simulated()
    }

    pub(crate) fn list(&self) -> Result<Vec<OsString>> {
        with_descriptor(|| self.handle.list()).context("list", &self.path)
    }

    pub(crate) fn open_file(&self, name: FileName) -> io::Result<Arc<dyn VfsFile>> {
        with_descriptor(|| self.handle.open(OsStr::new(&name.to_string()), name.kind()))
    }

    /// Creates a file, which must not exist.
    pub(crate) fn create(&self, name: FileName) -> Result<NewFile> {
        self.check()?;
        let text = name.to_string();
        let create = || self.handle.create(OsStr::new(&text), name.kind(), self.mode);
        let path = self.path_of(name);
        let file = with_descriptor(create).context("create", &path)?;
        Ok(NewFile { dir: self.clone(), name, path, file, is_kept: AtomicBool::new(false) })
    }

    /// Renames a file. Call [`check`](Self::check) first.
    pub(crate) fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        let (old, new) = (from.to_string(), to.to_string());
        let renamed = self.handle.rename(OsStr::new(&old), OsStr::new(&new), to.kind());
        renamed.context(format_args!("rename to {to}"), &self.path_of(from))
    }

    pub(crate) fn remove(&self, name: FileName) -> Result<()> {
        self.check()?;
        let removed = self.handle.remove(OsStr::new(&name.to_string()), name.kind());
        removed.context("remove", &self.path_of(name))
    }

    /// Gives a file a second name in another directory. A symbolic link is no file of its own.
    pub(crate) fn link_to(&self, name: FileName, to: &Self) -> io::Result<()> {
        let text = name.to_string();
        let file = OsStr::new(&text);
        if self.handle.identity_of(file, name.kind())?.entry_type != EntryType::File {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.handle.link_to(file, &*to.handle, file, name.kind())
    }

    /// Makes the names in the directory durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.handle.sync().context("sync", &self.path)
    }

    pub(crate) fn lock(&self) -> io::Result<Box<dyn FileLock>> {
        with_descriptor(|| self.handle.lock(OsStr::new(&FileName::Lock.to_string()), self.mode))
    }

    pub(crate) fn lock_shared(&self) -> io::Result<Box<dyn FileLock>> {
        with_descriptor(|| self.handle.lock_shared(OsStr::new(&FileName::Lock.to_string())))
    }

    pub(crate) fn identity(&self) -> io::Result<Identity> {
        self.handle.identity()
    }

    pub(crate) fn identity_of(&self, name: FileName) -> io::Result<Identity> {
        self.handle.identity_of(OsStr::new(&name.to_string()), name.kind())
    }

    /// Whether the path leads to another directory, or to none.
    pub(crate) fn is_elsewhere(&self) -> io::Result<bool> {
        let this = match &self.watch {
            Some(watch) => watch.dir,
            None => self.handle.identity()?,
        };
        match reach(&self.vfs, &self.path) {
            Ok(found) => Ok(!found.identity()?.is_same(&this)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// Fails if the path leads elsewhere.
    pub(crate) fn check_path(&self) -> Result<()> {
        if !self.is_elsewhere().context("open", &self.path)? {
            return Ok(());
        }
        let found = "another one, or none: open the store anew";
        Err(Self::moved(self.path.to_path_buf(), "the directory that was opened", found))
    }

    /// The path, once, if it was found to lead elsewhere.
    pub(crate) fn move_to_report(&self) -> Option<&Path> {
        let watch = self.watch.as_ref().filter(|watch| watch.moved.load(Ordering::Relaxed))?;
        (!watch.move_reported.swap(true, Ordering::Relaxed)).then_some(&*self.path)
    }

    /// Checks that the directory, its lock and the log in use are those of this opening. Otherwise poisons the
    /// store. In a forked child, fails.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(watch) = &self.watch else { return Ok(()) };
        watch.birth.check_process()?;
        watch.check(self).map_err(|error| match error {
            Error::Moved { .. } => watch.poison.set(error),
            other => other,
        })?;
        self.notice_move();
        Ok(())
    }

    /// Notes whether the path leads elsewhere.
    pub(crate) fn notice_move(&self) {
        let Some(watch) = &self.watch else { return };
        // An error is no news of a move.
        if !watch.moved.load(Ordering::Relaxed) && self.is_elsewhere().unwrap_or(false) {
            watch.moved.store(true, Ordering::Relaxed);
        }
    }

    fn moved(path: PathBuf, expected: &str, found: &str) -> Error {
        Error::Moved { path, expected: expected.into(), found: found.into() }
    }
}

impl Watch {
    fn check(&self, dir: &StoreDir) -> Result<()> {
        self.check_dir(dir)?;
        let path = || dir.path_of(FileName::Lock);
        let expected = "the lock file of this opening";
        match dir.identity_of(FileName::Lock) {
            Ok(found) if found.is_same(&self.lock) => {}
            Ok(_) => {
                let found = "another file: the lock file was removed or replaced";
                return Err(StoreDir::moved(path(), expected, found));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreDir::moved(path(), expected, "none: it was removed"));
            }
            Err(error) => return Err(error).context("identify", &path()),
        }
        loop {
            let Some((name, file)) = self.log.lock().clone() else { return Ok(()) };
            let checked = self.check_file(dir, name, &*file);
            let now = self.log.lock().clone();
            if checked.is_ok() || now.is_some_and(|(_, now)| Arc::ptr_eq(&now, &file)) {
                return checked;
            }
            // Meanwhile it was replaced, and then a flush removed it.
        }
    }

    /// Fails if the directory has no name, on a file system that counts them.
    fn check_dir(&self, dir: &StoreDir) -> Result<()> {
        let links = dir.identity().context("identify", &dir.path)?.links;
        if links > 0 || self.dir.links == 0 {
            return Ok(());
        }
        let found = "it was removed; this process can still read what it has open";
        Err(StoreDir::moved(dir.path.to_path_buf(), "the directory that was opened", found))
    }

    /// Fails if a name in the directory leads to another file than the open one, or to none. Links do not count:
    /// a backup may have one.
    fn check_file(&self, dir: &StoreDir, name: FileName, file: &dyn VfsFile) -> Result<()> {
        let path = || dir.path_of(name);
        let own = file.identity().context("identify", &path())?;
        let found = match dir.identity_of(name) {
            Ok(found) if found.is_same(&own) => return Ok(()),
            Ok(_) => "another file",
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_dir(dir)?;
                "none: it was removed or renamed"
            }
            Err(error) => return Err(error).context("identify", &path()),
        };
        Err(StoreDir::moved(path(), "the file in use", found))
    }
}

fn is_symlink(dir: &dyn VfsDir, name: &OsStr) -> bool {
    let found = dir.identity_of(name, FileKind::Directory);
    found.is_ok_and(|found| found.entry_type == EntryType::Symlink)
}

/// Directories in this one, for a store that is made beside another.
impl StoreDir {
    pub(crate) fn identity_of_child(&self, name: &OsStr) -> io::Result<Identity> {
        self.handle.identity_of(name, FileKind::Directory)
    }

    pub(crate) fn has(&self, name: &OsStr) -> Result<bool> {
        match self.identity_of_child(name) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).context("identify", &self.path.join(name)),
        }
    }

    /// Creates a directory, which must not exist. It can be searched where files can be read.
    pub(crate) fn make_child(&self, name: &OsStr) -> Result<()> {
        self.check()?;
        let mode = self.mode | (self.mode & 0o444) >> 2; // r is 4, x is 1
        self.handle.create_dir(name, mode).context("create", &self.path.join(name))
    }

    pub(crate) fn open_child(&self, name: &OsStr) -> Result<Self> {
        let path: Arc<Path> = self.path.join(name).into();
        let handle = with_descriptor(|| self.handle.open_dir(name)).context("open", &path)?;
        Ok(Self { vfs: Arc::clone(&self.vfs), handle, path, mode: self.mode, watch: None })
    }

    pub(crate) fn rename_child(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        self.check()?;
        let renamed = self.handle.rename(from, to, FileKind::Directory);
        renamed.context(format_args!("rename to {}", shown(to)), &self.path.join(from))
    }

    /// Removes an empty directory.
    pub(crate) fn remove_child(&self, name: &OsStr) -> Result<()> {
        self.check()?;
        let removed = self.handle.remove(name, FileKind::Directory);
        removed.context("remove", &self.path.join(name))
    }
}

#[cfg(test)]
impl StoreDir {
    /// A directory for unit tests, made if it is missing.
    pub(crate) fn of(vfs: impl Vfs + 'static, path: impl AsRef<Path>) -> Self {
        let vfs: Arc<dyn Vfs> = Arc::new(vfs);
        Self::make(&vfs, path.as_ref(), 0o600).expect("a directory")
    }
}

/// A file that this opening created and has open. Dropped before [`keep`](Self::keep), it removes itself, and
/// no other file that has its name.
#[derive(Debug)]
pub(crate) struct NewFile {
    dir: StoreDir,
    name: FileName,
    path: PathBuf,
    file: Arc<dyn VfsFile>,
    is_kept: AtomicBool,
}

impl NewFile {
    pub(crate) fn file(&self) -> &dyn VfsFile {
        &*self.file
    }

    /// Path for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Makes this the log in use, which must keep its name.
    pub(crate) fn watch(&self) {
        if let Some(watch) = &self.dir.watch {
            *watch.log.lock() = Some((self.name, Arc::clone(&self.file)));
        }
    }

    /// [`StoreDir::check`], and [`check_named`](Self::check_named).
    pub(crate) fn check(&self) -> Result<()> {
        self.dir.check()?;
        self.check_named()
    }

    /// Checks, after a sync and before its acknowledgement, that the next opening finds the file: a directory
    /// that was removed has no names.
    pub(crate) fn check_named(&self) -> Result<()> {
        let Some(watch) = &self.dir.watch else { return Ok(()) };
        watch.check_file(&self.dir, self.name, &*self.file)?;
        if watch.syncs.fetch_add(1, Ordering::Relaxed) % SYNCS_BETWEEN_LOOKUPS == 0 {
            self.dir.notice_move();
        }
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        // What cannot be removed now, the next opening removes. A fork can remove nothing.
        if let (Ok(found), Ok(this)) = (self.dir.identity_of(self.name), self.file.identity())
            && found.is_same(&this)
        {
            let _ = self.dir.remove(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Call, Layer, LayeredVfs, Operation, RealVfs, SimVfs};

    const LOG: FileName = FileName::Log(7);

    fn is_moved(result: Result<()>) -> bool {
        match result {
            Ok(()) => false,
            Err(Error::Moved { .. }) => true,
            Err(Error::Poisoned { cause }) if matches!(*cause, Error::Moved { .. }) => true,
            Err(other) => panic!("{other}"),
        }
    }

    /// A watched directory with a log in use.
    fn watched() -> Result<(SimVfs, Poison, StoreDir, NewFile)> {
        let (vfs, poison) = (SimVfs::new(), Poison::default());
        let dir = StoreDir::of(vfs.clone(), "/store");
        let lock = dir.lock().expect("a free directory");
        let dir = dir.watched(&*lock, poison.clone())?;
        let log = dir.create(LOG)?;
        log.keep();
        log.watch();
        Ok((vfs, poison, dir, log))
    }

    #[test]
    fn what_takes_a_file_or_the_directory_away_poisons_before_the_next_change() -> Result<()> {
        type Edit = fn(&SimVfs);
        let edits: [(Edit, bool); 7] = [
            (|vfs| vfs.edit(|disk| disk.remove("/store")), true),
            // The log keeps a name, in another directory.
            (
                |vfs| {
                    vfs.edit(|disk| {
                        disk.rename("/store/000007.log", "/log");
                        disk.remove("/store");
                    });
                },
                true,
            ),
            (|vfs| vfs.edit(|disk| disk.remove("/store/LOCK")), false),
            (|vfs| vfs.edit(|disk| disk.write("/store/LOCK", "another")), false),
            (|vfs| vfs.edit(|disk| disk.remove("/store/000007.log")), true),
            // It keeps a name here, or gets a copy in its place.
            (|vfs| vfs.edit(|disk| disk.rename("/store/000007.log", "/store/old")), true),
            (
                |vfs| {
                    vfs.edit(|disk| {
                        disk.rename("/store/000007.log", "/log");
                        disk.write("/store/000007.log", "a copy");
                    });
                },
                true,
            ),
        ];
        for (number, (edit, unlinks)) in edits.into_iter().enumerate() {
            let (vfs, poison, dir, log) = watched()?;
            let file = dir.create(FileName::Table(8))?;
            log.check_named()?;
            edit(&vfs);
            let before: Vec<_> = vfs.disk().files().map(|(path, _)| path.to_owned()).collect();
            // After a sync only the name of the log is looked up.
            assert_eq!(is_moved(log.check_named()), unlinks, "{number}");
            assert!(poison.check().is_ok(), "{number}");
            assert!(is_moved(dir.create(FileName::Table(9)).map(drop)), "{number}");
            let cause = poison.check().expect_err("a cause").to_string();
            assert!(is_moved(poison.check()), "{number}");
            let is_removed = number < 2;
            assert_eq!(cause.contains("/store: expected the directory"), is_removed, "{cause}");
            assert!(is_moved(dir.remove(FileName::Table(8))), "{number}");
            assert!(is_moved(dir.check()), "{number}");
            drop(file); // which does not remove it
            let after: Vec<_> = vfs.disk().files().map(|(path, _)| path.to_owned()).collect();
            assert_eq!(before, after, "{number}");
            assert!(dir.move_to_report().is_none(), "{number}: an error is no move");
        }
        Ok(())
    }

    /// Replaces the log in use, and removes it, while its name is looked up: a seal and a flush do.
    #[derive(Debug)]
    struct SealAndFlush {
        vfs: SimVfs,
        next: Arc<Mutex<Option<NewFile>>>,
    }

    impl Layer for SealAndFlush {
        fn call(
            &self,
            call: &Call<'_>,
            next: &mut dyn FnMut() -> io::Result<()>,
        ) -> io::Result<()> {
            if (call.kind, call.operation) == (FileKind::Wal, Operation::Identity)
                && let Some(log) = self.next.lock().take()
            {
                log.watch();
                log.keep();
                self.vfs.edit(|disk| disk.remove("/store/000007.log"));
            }
            next()
        }
    }

    #[test]
    fn a_log_that_a_flush_removes_beside_a_check_was_not_taken_away() -> Result<()> {
        let (vfs, poison) = (SimVfs::new(), Poison::default());
        let next = Arc::default();
        let layer = SealAndFlush { vfs: vfs.clone(), next: Arc::clone(&next) };
        let dir = StoreDir::of(LayeredVfs::new(Arc::new(vfs.clone()), layer), "/store");
        let lock = dir.lock().expect("a free directory");
        let dir = dir.watched(&*lock, poison.clone())?;
        let log = dir.create(LOG)?;
        log.keep();
        log.watch();
        let newer = dir.create(FileName::Log(8))?;
        *next.lock() = Some(newer);
        dir.check()?;
        assert!(next.lock().is_none() && vfs.disk().read("/store/000007.log").is_none());
        vfs.edit(|disk| disk.remove("/store/000008.log"));
        assert!(is_moved(dir.check()), "the one in use then");
        Ok(())
    }

    #[test]
    fn a_moved_directory_is_reported_once_and_goes_on() -> Result<()> {
        let (vfs, poison, dir, _log) = watched()?;
        assert_eq!(dir.move_to_report(), None);
        vfs.edit(|disk| {
            disk.rename("/store", "/moved");
            disk.write("/store/000008.sst", "of another store");
        });
        dir.create(FileName::Table(8))?.keep();
        assert!(poison.check().is_ok() && vfs.disk().read("/moved/000008.sst").is_some());
        dir.remove(FileName::Table(8))?;
        assert_eq!(vfs.disk().read("/store/000008.sst"), Some(&b"of another store"[..]));
        assert_eq!(dir.move_to_report(), Some(Path::new("/store")));
        assert_eq!(dir.move_to_report(), None);
        Ok(())
    }

    #[test]
    fn a_new_file_removes_itself_and_no_other_of_its_name() -> Result<()> {
        let vfs = SimVfs::new();
        let dir = StoreDir::of(vfs.clone(), "/store");
        let bytes = || vfs.disk().read("/store/000007.log").map(<[u8]>::to_vec);
        drop(dir.create(LOG)?);
        assert_eq!(bytes(), None);
        let file = dir.create(LOG)?;
        vfs.edit(|disk| disk.write("/store/000007.log", "another"));
        drop(file);
        assert_eq!(bytes().as_deref(), Some(&b"another"[..]));
        assert!(dir.create(LOG).expect_err("it exists").is_io(io::ErrorKind::AlreadyExists));
        assert_eq!(bytes().as_deref(), Some(&b"another"[..]));
        Ok(())
    }

    #[test]
    fn new_files_and_directories_have_the_mode_and_others_keep_theirs() -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().expect("a directory");
        let mode =
            |path: &Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
        for (bits, of_dir) in [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755)] {
            let path = temp.path().join(format!("{bits:o}/store"));
            let dir = StoreDir::make(&vfs, &path, bits)?;
            dir.create(LOG)?.keep();
            drop(dir.lock().expect("a free directory"));
            for (path, expected) in [
                (path.clone(), of_dir),
                (path.with_file_name(""), of_dir),
                (path.join("000007.log"), bits),
                (path.join("LOCK"), bits),
            ] {
                assert_eq!(mode(&path), expected, "{}", path.display());
            }
            StoreDir::make(&vfs, &path, 0o600)?.lock().map(drop).expect("a free directory");
            assert_eq!((mode(&path), mode(&path.join("LOCK"))), (of_dir, bits));
        }
        Ok(())
    }

    #[test]
    fn a_path_that_leads_nowhere_is_named_with_its_cause() {
        let temp = tempfile::tempdir().expect("a directory");
        let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).expect("a link");
        for path in [link.clone(), link.join("store")] {
            let error = StoreDir::make(&vfs, &path, 0o600).expect_err("nothing is there");
            assert!(error.to_string().contains("a symbolic link"), "{error}");
        }
        let error = absolute(Path::new("")).expect_err("no path");
        assert!(error.to_string().contains("empty"), "{error}");
        assert_eq!(std::fs::read_dir(temp.path()).expect("a directory").count(), 1);
    }
}
