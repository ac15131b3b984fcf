//! A clock that a test moves.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

pub(crate) struct ManualClock {
    /// What the wall clock and the monotonic clock show.
    shown: Mutex<(Duration, Duration)>,
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

impl ManualClock {
    pub(crate) fn at(since_1970: Duration) -> Self {
        Self { shown: Mutex::new((since_1970, Duration::ZERO)), hook: Mutex::default() }
    }

    /// What the wall clock shows, since 1970.
    pub(crate) fn now(&self) -> Duration {
        self.shown.lock().unwrap().0
    }

    pub(crate) fn time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now()
    }

    /// Both clocks go on.
    pub(crate) fn advance(&self, step: Duration) {
        let mut shown = self.shown.lock().unwrap();
        *shown = (shown.0 + step, shown.1 + step);
    }

    /// The wall clock shows another time.
    pub(crate) fn jump(&self, since_1970: Duration) {
        self.shown.lock().unwrap().0 = since_1970;
    }

    /// The next reading of the wall clock first runs `meanwhile`, on another thread.
    pub(crate) fn before_next_reading(
        self: &Arc<Self>,
        meanwhile: impl FnOnce(&Self) + Send + 'static,
    ) {
        let clock = Arc::clone(self);
        let hook = move || std::thread::spawn(move || meanwhile(&clock)).join().unwrap();
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

impl criba::Clock for ManualClock {
    fn wall(&self) -> SystemTime {
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        self.time()
    }

    fn monotonic(&self) -> Duration {
        self.shown.lock().unwrap().1
    }
}
