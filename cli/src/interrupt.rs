//! What the process does before SIGINT or SIGTERM ends it: a second signal ends it at once.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use crate::failure::{Failure, Result};

/// The exit code of an interrupted command.
pub(crate) const EXIT_CODE: i32 = 130;

static ENDING: AtomicBool = AtomicBool::new(false);
static STEPS: Mutex<BTreeMap<u64, Box<dyn FnOnce() + Send>>> = Mutex::new(BTreeMap::new());

/// A step before the end, until this is dropped.
#[derive(Debug)]
pub struct Guard(u64);

impl Drop for Guard {
    fn drop(&mut self) {
        steps().remove(&self.0);
    }
}

fn steps() -> MutexGuard<'static, BTreeMap<u64, Box<dyn FnOnce() + Send>>> {
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `step` on a thread of its own if a signal comes, and ends the process after it.
pub fn before_end(step: impl FnOnce() + Send + 'static) -> Guard {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    static STARTED: Once = Once::new();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    steps().insert(number, Box::new(step));
    STARTED.call_once(start);
    Guard(number)
}

fn start() {
    let (came, at_once) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    // Before the thread that sets it, so that it is read first: a signal runs these in order.
    for signal in [SIGINT, SIGTERM] {
        // The list below does not have a signal that comes before it is made.
        let _ = flag::register(signal, Arc::clone(&came));
        let _ = flag::register_conditional_shutdown(signal, EXIT_CODE, Arc::clone(&at_once));
    }
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else {
        return at_once.store(true, Ordering::SeqCst);
    };
    thread::spawn(move || {
        if came.load(Ordering::SeqCst) || signals.forever().next().is_some() {
            ENDING.store(true, Ordering::SeqCst);
            at_once.store(true, Ordering::SeqCst);
            let steps = std::mem::take(&mut *steps());
            steps.into_values().rev().for_each(|step| step());
            process::exit(EXIT_CODE);
        }
    });
}

/// Whether a signal has come.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

/// If the process is ending, waits for the end: what this thread would print now is a consequence.
pub(crate) fn wait_if_ending() {
    while is_ending() {
        thread::park();
    }
}

/// A temporary directory that is removed when this is dropped, and before a signal ends the process.
#[derive(Debug)]
pub struct TemporaryDir {
    // Before the guard: a signal while it is removed removes the rest.
    dir: TempDir,
    _guard: Guard,
}

impl TemporaryDir {
    /// Makes a directory for temporary files, with a name that begins so.
    ///
    /// # Errors
    /// [`Failure::File`].
    pub fn new(prefix: &str) -> Result<Self> {
        let parent = std::env::temp_dir();
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(&parent);
        let dir = dir.map_err(|e| Failure::file("make a directory in it", &parent, e))?;
        let path = dir.path().to_owned();
        let guard = before_end(move || remove(&path));
        Ok(Self { dir, _guard: guard })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes a directory in which other threads may still make files.
fn remove(dir: &PathBuf) {
    for _ in 0..100 {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                thread::sleep(Duration::from_millis(10));
            }
            _ => break,
        }
    }
}
