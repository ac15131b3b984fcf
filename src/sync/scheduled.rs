//! Replacements under shuttle of what shuttle does not have.

use std::num::NonZeroUsize;
use std::time::Duration;

use shuttle::rand::Rng;

pub(super) fn may_switch() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// Returns at once, but shuttle runs other threads first.
pub(crate) fn sleep(_: Duration) {
    shuttle::thread::yield_now();
}

/// An instant. The time elapsed since then is, at random, zero or the greatest duration.
#[derive(Debug)]
pub(crate) struct Instant;

impl Instant {
    pub(crate) fn now() -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "as that of the standard library")]
    pub(crate) fn elapsed(&self) -> Duration {
        if shuttle::rand::thread_rng().r#gen() { Duration::ZERO } else { Duration::MAX }
    }
}

/// A constant, so that schedules are the same on all machines.
pub(crate) fn available_parallelism() -> std::io::Result<NonZeroUsize> {
    NonZeroUsize::new(2).ok_or_else(|| std::io::ErrorKind::Unsupported.into())
}

/// The number of the shuttle thread: all shuttle threads run on one thread of the system.
#[expect(clippy::unnecessary_wraps, reason = "as that of real threads")]
pub(crate) fn thread_number() -> Option<usize> {
    Some(shuttle::current::me().into())
}

/// A value that is set once. `make` of `get_or_init` must not call `may_switch`.
#[derive(Debug)]
pub(crate) struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self(std::sync::OnceLock::new())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        may_switch();
        self.0.get()
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        may_switch();
        self.0.get_or_init(make)
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        may_switch();
        self.0.set(value)
    }
}
