//! Whether this process opened a store, or is a fork of the one that did.
//!
//! A fork has no copies of the other threads: locks that they held stay locked, and what they were changing is half
//! changed. So in a child drops only close and free, and what other threads refer to stays.

use std::process;
// std's atomics, not those of `sync`: the counter belongs to the process, and orders nothing.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::{Error, Result};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[inline]
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on; not `posix_spawn` and `vfork`, whose children run another program.
#[expect(unsafe_code, reason = "the standard library has no handlers of forks")]
pub(crate) fn watch() -> Result<()> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // Without a lock, which a fork could copy. Two handlers do no harm.
    if !WATCHED.load(Ordering::Relaxed) {
        // SAFETY: the handler only adds to a counter, which a child of many threads may do.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if failed != 0 {
            let source = std::io::Error::from_raw_os_error(failed).into();
            let (action, path) = ("watch".into(), "forks of this process".into());
            return Err(Error::Io { action, path, source });
        }
        WATCHED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// The process in which something was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Birth {
    forks: u32,
    process: u32,
}

impl Birth {
    pub(crate) fn now() -> Self {
        Self { forks: forks(), process: process::id() }
    }

    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.forks == forks()
    }

    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    /// With a system call: a child of `clone` runs no handlers.
    pub(crate) fn is_this_process(self) -> bool {
        self.is_here() && self.process == process::id()
    }

    pub(crate) fn check_process(self) -> Result<()> {
        if self.is_this_process() { Ok(()) } else { Err(Error::Forked) }
    }
}
