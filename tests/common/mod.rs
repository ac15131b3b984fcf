//! Shared parts of these tests: options with the policy of this run, copies of directories, and a file
//! layer with a hook for every operation.

#![allow(dead_code, reason = "each test uses some of it")]

mod skip;
mod tempdir;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use criba::vfs::{AccessHint, FileKind, FileLock, Operation, RealVfs, Vfs, VfsFile};
use criba::{FilterPolicy, Options};

#[allow(unused_imports, reason = "each test uses some of it")]
pub(crate) use self::skip::skip;
#[allow(unused_imports, reason = "each test uses some of it")]
pub(crate) use self::tempdir::tempdir;

/// The variable with the filter policy of tests that do not choose their own.
pub(crate) const POLICY: &str = "CRIBA_TEST_POLICY";

/// The filter policy of this run of the tests.
pub(crate) fn policy() -> FilterPolicy {
    match std::env::var_os(POLICY) {
        None => FilterPolicy::bloom(),
        Some(name) => named(&name.to_string_lossy()),
    }
}

pub(crate) fn named(policy: &str) -> FilterPolicy {
    match policy {
        "bloom" => FilterPolicy::bloom(),
        "ribbon" => FilterPolicy::ribbon(),
        "blocked" => FilterPolicy::blocked(),
        "classic" => FilterPolicy::classic(),
        other => panic!("{POLICY} is bloom, ribbon, blocked or classic, not {other:?}"),
    }
}

/// The default options with the policy of this run.
pub(crate) fn options() -> Options {
    Options::new().filter(policy())
}

/// The names and contents of the files of a directory. Skips files that an open store removes meanwhile.
pub(crate) fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            match std::fs::read(entry.path()) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                bytes => Some((name, bytes.unwrap())),
            }
        })
        .collect()
}

/// Makes `dir` hold exactly these files; equal ones are not rewritten.
pub(crate) fn restore(dir: &Path, files: &BTreeMap<String, Vec<u8>>) {
    std::fs::create_dir_all(dir).unwrap();
    let there = contents(dir);
    for name in there.keys().filter(|name| !files.contains_key(*name)) {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    for (name, bytes) in files.iter().filter(|(name, bytes)| there.get(*name) != Some(*bytes)) {
        std::fs::write(dir.join(name), bytes).unwrap();
    }
}

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    restore(to, &contents(from));
}

/// The files of a directory whose names end in `.extension`, in order.
pub(crate) fn files_with(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    paths.sort();
    paths
}

/// The only file of a directory whose name has this prefix.
pub(crate) fn the_file(dir: &Path, start: &str) -> PathBuf {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(start))
        .collect();
    assert_eq!(paths.len(), 1, "{start}: {paths:?}");
    paths.pop().unwrap()
}

type Hook = dyn Fn(FileKind, Operation) -> io::Result<()> + Send + Sync;

type After = dyn Fn(FileKind, Operation) + Send + Sync;

/// The operating system's files, with a hook that may fail an operation before it takes place, and one after
/// it.
#[derive(Clone)]
pub(crate) struct HookVfs {
    hook: Arc<Hook>,
    after: Arc<After>,
    syncs: bool,
    /// All access hints so far.
    pub(crate) hints: Arc<Mutex<Vec<AccessHint>>>,
    /// The open files of each kind.
    open: Arc<Mutex<BTreeMap<FileKind, usize>>>,
}

impl fmt::Debug for HookVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookVfs")
    }
}

impl HookVfs {
    pub(crate) fn new(
        hook: impl Fn(FileKind, Operation) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::around(hook, |_, _| {})
    }

    /// Calls `after` when an operation is done, also if it failed, but not if `hook` failed it.
    pub(crate) fn around(
        hook: impl Fn(FileKind, Operation) -> io::Result<()> + Send + Sync + 'static,
        after: impl Fn(FileKind, Operation) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            hook: Arc::new(hook),
            after: Arc::new(after),
            syncs: true,
            hints: Arc::default(),
            open: Arc::default(),
        })
    }

    /// Runs one operation between the hooks.
    fn run<T>(
        &self,
        kind: FileKind,
        operation: Operation,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        (self.hook)(kind, operation)?;
        let done = work();
        (self.after)(kind, operation);
        done
    }

    /// Fails nothing and skips syncs, for tests without power failures.
    pub(crate) fn without_syncs() -> Arc<Self> {
        Arc::new(Self { syncs: false, ..Self::clone(&Self::new(|_, _| Ok(()))) })
    }

    pub(crate) fn open_files(&self, kind: FileKind) -> usize {
        self.open.lock().unwrap().get(&kind).copied().unwrap_or(0)
    }

    fn wrap(
        &self,
        file: io::Result<Arc<dyn VfsFile>>,
        kind: FileKind,
    ) -> io::Result<Arc<dyn VfsFile>> {
        let inner = file?;
        *self.open.lock().unwrap().entry(kind).or_default() += 1;
        Ok(Arc::new(HookFile { inner, kind, vfs: self.clone() }))
    }
}

impl Vfs for HookVfs {
    fn create(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.run(kind, Operation::Create, || RealVfs.create(path, kind));
        self.wrap(file, kind)
    }

    fn open(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.run(kind, Operation::Open, || RealVfs.open(path, kind));
        self.wrap(file, kind)
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.run(kind, Operation::Rename, || RealVfs.rename(from, to, kind))
    }

    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        self.run(kind, Operation::Remove, || RealVfs.remove(path, kind))
    }

    fn hard_link(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.run(kind, Operation::HardLink, || RealVfs.hard_link(from, to, kind))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.run(FileKind::Directory, Operation::List, || RealVfs.list(dir))
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.run(FileKind::Directory, Operation::CreateDir, || RealVfs.create_dir(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.run(FileKind::Directory, Operation::SyncDir, || {
            if self.syncs { RealVfs.sync_dir(dir) } else { Ok(()) }
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.run(FileKind::Lock, Operation::Lock, || RealVfs.lock(path))
    }
}

#[derive(Debug)]
struct HookFile {
    inner: Arc<dyn VfsFile>,
    kind: FileKind,
    vfs: HookVfs,
}

impl Drop for HookFile {
    fn drop(&mut self) {
        *self.vfs.open.lock().unwrap().get_mut(&self.kind).unwrap() -= 1;
    }
}

impl HookFile {
    fn run<T>(
        &self,
        operation: Operation,
        work: impl FnOnce(&dyn VfsFile) -> io::Result<T>,
    ) -> io::Result<T> {
        self.vfs.run(self.kind, operation, || work(self.inner.as_ref()))
    }
}

impl VfsFile for HookFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.run(Operation::Read, |file| file.read_exact_at(buffer, offset))
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.run(Operation::Append, |file| file.append(data))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.run(Operation::Write, |file| file.write_at(data, offset))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.run(Operation::SetLength, |file| file.set_length(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        let syncs = self.vfs.syncs;
        self.run(Operation::Sync, |file| if syncs { file.sync_data() } else { Ok(()) })
    }

    fn sync_all(&self) -> io::Result<()> {
        let syncs = self.vfs.syncs;
        self.run(Operation::Sync, |file| if syncs { file.sync_all() } else { Ok(()) })
    }

    fn length(&self) -> io::Result<u64> {
        self.run(Operation::Length, |file| file.length())
    }

    fn hint(&self, hint: AccessHint) -> io::Result<()> {
        self.vfs.hints.lock().unwrap().push(hint);
        self.inner.hint(hint)
    }
}

/// Waits for a condition that another thread makes true; fails after a minute.
pub(crate) fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed().as_secs() < 60, "waiting for {what}");
        std::thread::yield_now();
    }
}

/// The error of a full disk.
pub(crate) fn no_space() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "no space left, as the test wants it")
}

/// The written bytes of a log, without the zeros that fill it ahead of synced writes.
pub(crate) fn written(log: &[u8]) -> &[u8] {
    &log[..log.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)]
}
