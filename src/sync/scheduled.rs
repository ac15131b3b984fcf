//! What shuttle has no counterpart for, or not the one that is wanted here.

use std::num::NonZeroUsize;
use std::time::Duration;

use shuttle::rand::Rng;

/// A place where shuttle may let another thread go on.
pub(super) fn anyone_may_go_on() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// Time does not pass: who sleeps may go on at once, but others come first where there is an order.
pub(crate) fn sleep(_: Duration) {
    shuttle::thread::yield_now();
}

/// A moment after which no time has passed yet, or too much, as chance will have it.
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

/// Not that of the machine, on which schedules would depend then.
pub(crate) fn available_parallelism() -> std::io::Result<NonZeroUsize> {
    NonZeroUsize::new(2).ok_or_else(|| std::io::ErrorKind::Unsupported.into())
}

/// The threads of a schedule are one thread in turn.
#[expect(clippy::unnecessary_wraps, reason = "as that of real threads")]
pub(crate) fn thread_number() -> Option<usize> {
    Some(shuttle::current::me().into())
}

/// A value that is set once. What makes it must not come to a place where another thread may go on.
#[derive(Debug)]
pub(crate) struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self(std::sync::OnceLock::new())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        anyone_may_go_on();
        self.0.get()
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        anyone_may_go_on();
        self.0.get_or_init(make)
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        anyone_may_go_on();
        self.0.set(value)
    }
}
