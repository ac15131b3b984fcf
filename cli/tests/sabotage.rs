//! One uncounted read makes a check fail. The checks compare the counts of the whole process, so this file
//! has only one test: no other may read beside it.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use criba::vfs::{CountingVfs, FileKind, FileLock, RealVfs, Vfs, VfsFile};
use criba_cli::readamp::input::Input;
use criba_cli::readamp::measure::{Engine, measure};
use criba_cli::readamp::report::Report;
use criba_cli::readamp::settings::Settings;
use indicatif::ProgressBar;

/// Reads one block twice: the first one after the `n`th opening.
#[derive(Debug, Clone)]
struct ReadsTwice {
    inner: Arc<dyn Vfs>,
    /// Openings to come; an opening ends when it renames CURRENT.
    openings: Arc<AtomicUsize>,
}

impl ReadsTwice {
    fn new(inner: Arc<dyn Vfs>, n: usize) -> Self {
        Self { inner, openings: Arc::new(AtomicUsize::new(n)) }
    }

    fn wrap(&self, file: Arc<dyn VfsFile>, kind: FileKind) -> Arc<dyn VfsFile> {
        match kind {
            FileKind::Table => Arc::new(File { inner: file, openings: Arc::clone(&self.openings) }),
            _ => file,
        }
    }
}

const FIRED: usize = usize::MAX;

#[derive(Debug)]
struct File {
    inner: Arc<dyn VfsFile>,
    openings: Arc<AtomicUsize>,
}

impl VfsFile for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.openings.load(Ordering::Relaxed) == 0 {
            self.openings.store(FIRED, Ordering::Relaxed);
            self.inner.read_exact_at(buffer, offset)?;
        }
        self.inner.read_exact_at(buffer, offset)
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.inner.append(data)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(data, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.inner.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }
}

impl Vfs for ReadsTwice {
    fn create(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        Ok(self.wrap(self.inner.create(path, kind)?, kind))
    }

    fn open(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        Ok(self.wrap(self.inner.open(path, kind)?, kind))
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        if kind == FileKind::Current {
            let left = self.openings.load(Ordering::Relaxed);
            if left != FIRED {
                self.openings.store(left.saturating_sub(1), Ordering::Relaxed);
            }
        }
        self.inner.rename(from, to, kind)
    }

    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        self.inner.remove(path, kind)
    }

    fn hard_link(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.inner.hard_link(from, to, kind)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }
}

fn run(engine: &Engine) -> Report {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let input = Input::made_up(3000, 3000, 1);
    let settings = Settings {
        memtable_bytes: 40 << 10,
        table_bytes: 20 << 10,
        level_base_bytes: 10 << 10,
        ..Settings::default()
    };
    measure(dir.path(), &input, &settings, engine, &ProgressBar::hidden()).expect("a report")
}

fn failed(report: &Report) -> Vec<&'static str> {
    report.checks.failed().map(|(name, _)| *name).collect()
}

#[test]
fn one_uncounted_read_fails_the_check_that_watches_that_place() {
    let kernel_tells = {
        let counting = CountingVfs::new(Arc::new(RealVfs));
        let report = run(&Engine { vfs: Arc::new(counting.clone()), counting });
        assert_eq!(failed(&report), [""; 0]);
        report.kernel_reads.is_some()
    };
    // Loading opens the store first; the passes open it for the second to fifth time.
    for opening in 2..=5 {
        let counting = CountingVfs::new(Arc::new(RealVfs));
        let above = ReadsTwice::new(Arc::new(counting.clone()), opening);
        let report = run(&Engine { vfs: Arc::new(above), counting });
        assert_eq!(report.checks.get("file_layer_agrees").and_then(|c| c.holds), Some(false));

        let below = ReadsTwice::new(Arc::new(RealVfs), opening);
        let counting = CountingVfs::new(Arc::new(below));
        let report = run(&Engine { vfs: Arc::new(counting.clone()), counting });
        if kernel_tells {
            assert_eq!(failed(&report), ["kernel_agrees"]);
        } else {
            assert_eq!(failed(&report), [""; 0]);
        }
    }
}
