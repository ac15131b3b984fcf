//! Shared parts of these tests: options with the policy of this run, copies of directories, and a file
//! layer with a hook for every operation.

#![allow(dead_code, reason = "each test uses some of it")]

mod clock;
mod skip;
mod sweeps;
mod tempdir;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use criba::vfs::{AccessHint, Call, FileKind, Layer, LayeredVfs, Operation, RealVfs, Vfs, VfsDir};
use criba::{FilterKind, FilterPolicy, Options};

#[allow(unused_imports, reason = "each test uses some of it")]
pub(crate) use self::clock::ManualClock;
#[allow(unused_imports, reason = "each test uses some of it")]
pub(crate) use self::skip::skip;
#[allow(unused_imports, reason = "each test uses some of it")]
pub(crate) use self::sweeps::{is_full, part, stride};
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
        "classic" => FilterPolicy::classic(),
        other => panic!("{POLICY} is bloom, ribbon or classic, not {other:?}"),
    }
}

/// A kind of filter that is not that of [`policy`].
pub(crate) fn another_kind() -> FilterKind {
    if policy() == FilterPolicy::ribbon() { FilterKind::Bloom } else { FilterKind::Ribbon }
}

pub(crate) fn another_policy() -> FilterPolicy {
    FilterPolicy::default().with_kind(another_kind())
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

/// The bytes before the first frame of a log.
pub(crate) const LOG_HEADER_BYTES: usize = 52;

/// The logs that have a record or an end. The log of the next memtable has none.
pub(crate) fn written_logs(dir: &Path) -> Vec<PathBuf> {
    let mut logs = files_with(dir, "log");
    // A log may be removed meanwhile.
    let length = |log: &PathBuf| std::fs::metadata(log).map_or(0, |meta| meta.len() as usize);
    logs.retain(|log| length(log) > LOG_HEADER_BYTES);
    logs
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
#[derive(Clone, Debug)]
pub(crate) struct HookVfs(LayeredVfs<Hooks>);

struct Hooks {
    before: Box<Hook>,
    after: Box<After>,
    syncs: bool,
    /// All access hints so far.
    hints: Mutex<Vec<AccessHint>>,
    /// The open files of each kind.
    open: Mutex<BTreeMap<FileKind, usize>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

impl HookVfs {
    pub(crate) fn new(
        hook: impl Fn(FileKind, Operation) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::around(hook, |_, _| {})
    }

    /// Calls `after` when an operation is done, also if it failed, but not if `before` failed it.
    pub(crate) fn around(
        before: impl Fn(FileKind, Operation) -> io::Result<()> + Send + Sync + 'static,
        after: impl Fn(FileKind, Operation) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with(Box::new(before), Box::new(after), true)
    }

    /// Fails nothing and skips syncs, for tests without power failures.
    pub(crate) fn without_syncs() -> Arc<Self> {
        Self::with(Box::new(|_, _| Ok(())), Box::new(|_, _| {}), false)
    }

    fn with(before: Box<Hook>, after: Box<After>, syncs: bool) -> Arc<Self> {
        let (hints, open) = (Mutex::default(), Mutex::default());
        let hooks = Hooks { before, after, syncs, hints, open };
        Arc::new(Self(LayeredVfs::new(Arc::new(RealVfs), hooks)))
    }

    pub(crate) fn open_files(&self, kind: FileKind) -> usize {
        self.0.layer().open.lock().unwrap().get(&kind).copied().unwrap_or(0)
    }

    pub(crate) fn hints(&self) -> Vec<AccessHint> {
        self.0.layer().hints.lock().unwrap().clone()
    }
}

impl Vfs for HookVfs {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn VfsDir>> {
        self.0.open_dir(path)
    }
}

impl Layer for Hooks {
    fn call(&self, call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let (kind, operation) = (call.kind, call.operation);
        (self.before)(kind, operation)?;
        let skipped = !self.syncs && matches!(operation, Operation::Sync | Operation::SyncDir);
        let done = if skipped { Ok(()) } else { next() };
        if done.is_ok() && matches!(operation, Operation::Create | Operation::Open) {
            *self.open.lock().unwrap().entry(kind).or_default() += 1;
        }
        (self.after)(kind, operation);
        done
    }

    fn hint(&self, _: FileKind, hint: AccessHint) {
        self.hints.lock().unwrap().push(hint);
    }

    fn closed(&self, kind: FileKind) {
        *self.open.lock().unwrap().get_mut(&kind).unwrap() -= 1;
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
