//! One uncounted read makes a check fail. The checks compare the counts of the whole process, so this file
//! has only one test: no other may read beside it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use criba::vfs::{Call, CountingVfs, FileKind, Layer, LayeredVfs, Operation, RealVfs, Vfs};
use criba_cli::readamp::input::Input;
use criba_cli::readamp::measure::{Engine, Progress, measure};
use criba_cli::readamp::report::Report;
use criba_cli::readamp::settings::Settings;

/// Reads one block twice: the first one after the `n`th opening.
#[derive(Debug)]
struct ReadsTwice {
    /// Openings to come; an opening ends when it renames CURRENT.
    openings: AtomicUsize,
}

const FIRED: usize = usize::MAX;

fn reads_twice(inner: Arc<dyn Vfs>, n: usize) -> Arc<dyn Vfs> {
    Arc::new(LayeredVfs::new(inner, ReadsTwice { openings: AtomicUsize::new(n) }))
}

impl Layer for ReadsTwice {
    fn call(&self, call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        if (call.kind, call.operation) == (FileKind::Current, Operation::Rename) {
            let left = self.openings.load(Ordering::Relaxed);
            if left != FIRED {
                self.openings.store(left.saturating_sub(1), Ordering::Relaxed);
            }
        }
        next()
    }

    fn read(
        &self,
        call: &Call<'_>,
        buffer: &mut [u8],
        next: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if call.kind == FileKind::Table && self.openings.load(Ordering::Relaxed) == 0 {
            self.openings.store(FIRED, Ordering::Relaxed);
            next(buffer)?;
        }
        next(buffer)
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
    measure(dir.path(), &input, &settings, engine, &Progress::hidden()).expect("a report")
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
        let above = reads_twice(Arc::new(counting.clone()), opening);
        let report = run(&Engine { vfs: above, counting });
        assert_eq!(report.checks.get("file_layer_agrees").and_then(|c| c.holds), Some(false));

        let below = reads_twice(Arc::new(RealVfs), opening);
        let counting = CountingVfs::new(below);
        let report = run(&Engine { vfs: Arc::new(counting.clone()), counting });
        if kernel_tells {
            assert_eq!(failed(&report), ["kernel_agrees"]);
        } else {
            assert_eq!(failed(&report), [""; 0]);
        }
    }
}
