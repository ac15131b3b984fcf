//! A clock that a test moves.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

#[derive(Debug)]
pub(crate) struct ManualClock(Mutex<(Duration, Duration)>);

impl ManualClock {
    pub(crate) fn at(since_1970: Duration) -> Self {
        Self(Mutex::new((since_1970, Duration::ZERO)))
    }

    /// What the wall clock shows, since 1970.
    pub(crate) fn now(&self) -> Duration {
        self.0.lock().unwrap().0
    }

    /// Both clocks go on.
    pub(crate) fn advance(&self, step: Duration) {
        let mut clocks = self.0.lock().unwrap();
        *clocks = (clocks.0 + step, clocks.1 + step);
    }

    /// The wall clock shows another time.
    pub(crate) fn jump(&self, since_1970: Duration) {
        self.0.lock().unwrap().0 = since_1970;
    }
}

impl criba::Clock for ManualClock {
    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().unwrap().1
    }
}
