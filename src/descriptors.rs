//! What to do when the process has no file descriptor left: close files that are open only for speed.

use std::io;
use std::sync::{Arc, Mutex, TryLockError, Weak};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Files that are opened again when they are read.
pub(crate) trait Closable: Send + Sync {
    fn close_files(&self);
}

/// How often the lock of the list is tried. In a forked child it may stay locked for ever.
const TRIES: usize = 1000;
/// Other threads may take the descriptors that were just closed.
const ATTEMPTS: usize = 5;

/// Pools of all stores of the process. A mutex of std, not of `crate::sync`: it is held for moments only.
static CLOSABLE: Mutex<Vec<Weak<dyn Closable>>> = Mutex::new(Vec::new());

/// Calls `change` with the list, unless it stays locked: then it only closes less.
fn with_list(change: impl FnOnce(&mut Vec<Weak<dyn Closable>>)) {
    for _ in 0..TRIES {
        match CLOSABLE.try_lock() {
            Ok(mut list) => return change(&mut list),
            Err(TryLockError::Poisoned(poisoned)) => return change(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

/// Lets files be closed until they are dropped.
pub(crate) fn add<C: Closable + 'static>(files: &Arc<C>) {
    let files: Weak<C> = Arc::downgrade(files);
    with_list(|list| {
        list.retain(|files| files.strong_count() > 0);
        list.push(files);
    });
}

/// Opens something. If no descriptor is left, closes the files of all stores and tries again.
pub(crate) fn with_descriptor<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..ATTEMPTS {
        match open() {
            Err(error) if is_exhausted(&error) => with_list(|list| {
                list.iter().filter_map(Weak::upgrade).for_each(|files| files.close_files());
            }),
            other => return other,
        }
    }
    open()
}

/// Whether the process, or the system, has no descriptor left.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
}

/// The number of descriptors that the process may have.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
