//! The time of a store: it never goes back while the store is open.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::expiry::{Millis, since_1970, ttl_in_batch};
use crate::sync::{Arc, AtomicBool, AtomicU64, Instant, Ordering};

/// The end of the year 9999. No manifest has a later time.
pub(crate) const LATEST: Millis = 253_402_300_799_999;

/// So far may the clock be behind the time that the store recorded.
const TOLERANCE: Duration = Duration::from_secs(3600);

/// Where a store takes its time from: see [`Options::clock`](crate::Options::clock).
pub trait Clock: fmt::Debug + Send + Sync {
    /// The wall clock. It may jump.
    fn wall(&self) -> SystemTime;

    /// The time since a fixed moment. It must never jump.
    fn monotonic(&self) -> Duration;
}

/// The clocks of the system.
#[derive(Debug)]
pub(crate) struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock for copies, which neither judge nor drop what expires.
#[derive(Debug)]
pub(crate) struct NoClock;

impl Clock for NoClock {
    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// The time of an open store: the greatest that the clock has shown since the opening, and that the manifest has.
#[derive(Debug)]
pub(crate) struct StoreTime {
    clock: Arc<dyn Clock>,
    /// What both clocks showed at the opening.
    opened: (Millis, Duration),
    latest: AtomicU64,
    /// The latest time up to which a merge may have dropped what had expired.
    merged: AtomicU64,
    /// Whether the store has expiring entries. It is set before the first one is visible.
    is_used: AtomicBool,
    /// What an entry takes that has no expiry of its own, as a batch has it.
    pub(crate) default: Option<Millis>,
}

impl Default for StoreTime {
    fn default() -> Self {
        Self::of(Arc::new(SystemClock::default()))
    }
}

impl StoreTime {
    fn of(clock: Arc<dyn Clock>) -> Self {
        let opened = (wall(&*clock), clock.monotonic());
        Self {
            clock,
            opened,
            latest: AtomicU64::new(opened.0),
            merged: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            default: None,
        }
    }

    /// The time of a store that is opened, whose manifest has `recorded`.
    pub(crate) fn new(
        clock: &Arc<dyn Clock>,
        is_accepted: bool,
        recorded: Option<Millis>,
        default_ttl: Option<Millis>,
    ) -> Result<Self> {
        let time = Self { default: default_ttl.map(ttl_in_batch), ..Self::of(Arc::clone(clock)) };
        time.follow(recorded, is_accepted)?;
        Ok(time)
    }

    /// Goes on from the time that a manifest has recorded, unless the clock is far behind that.
    pub(crate) fn follow(&self, recorded: Option<Millis>, is_accepted: bool) -> Result<()> {
        let Some(recorded) = recorded else { return Ok(()) };
        let shown = wall(&*self.clock);
        let is_behind = recorded > shown.saturating_add(TOLERANCE.as_millis() as Millis);
        if is_behind && !is_accepted {
            return Err(Error::ClockBehind { clock: at(shown), recorded: at(recorded) });
        }
        self.go_on_from(Some(if is_behind { shown } else { recorded }));
        Ok(())
    }

    /// At the opening: what the clock showed, and the recorded time from which the store goes on, if that is later.
    pub(crate) fn behind(&self, recorded: Option<Millis>) -> Option<(SystemTime, SystemTime)> {
        let recorded = recorded.filter(|&time| time == self.latest.load(Ordering::Relaxed))?;
        (self.opened.0 < recorded).then(|| (at(self.opened.0), at(recorded)))
    }

    pub(crate) fn go_on_from(&self, recorded: Option<Millis>) {
        if let Some(recorded) = recorded {
            self.latest.fetch_max(recorded, Ordering::Relaxed);
            self.begin();
        }
    }

    /// Whether the store has, or had, expiring entries.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// The store has expiring entries from now on.
    pub(crate) fn begin(&self) {
        self.is_used.store(true, Ordering::Release);
    }

    pub(crate) fn now(&self) -> Millis {
        self.at_least(wall(&*self.clock))
    }

    /// The time of readers: 0 before the store has expiring entries, which needs no clock.
    #[inline]
    pub(crate) fn of_readers(&self) -> Millis {
        if self.is_used() { self.now() } else { 0 }
    }

    pub(crate) fn system_time(&self) -> SystemTime {
        at(self.now())
    }

    /// The time that the manifest records.
    pub(crate) fn recorded(&self) -> Option<Millis> {
        self.is_used().then(|| self.now())
    }

    /// What expired up to this time may go. A wall clock that jumps hides keys, but destroys none.
    pub(crate) fn for_merges(&self) -> Millis {
        if !self.is_used() {
            return 0;
        }
        let (wall, monotonic) = (wall(&*self.clock), self.clock.monotonic());
        // Later readers have at least this time.
        self.at_least(wall);
        let (at_opening, opened) = self.opened;
        let elapsed = monotonic.saturating_sub(opened).as_millis() as Millis;
        let over = wall.min(at_opening.saturating_add(elapsed));
        self.merged.fetch_max(over, Ordering::AcqRel);
        over
    }

    /// Whether a view that was loaded after this time of a reader has all that the reader sees.
    #[inline]
    pub(crate) fn is_enough(&self, time: Millis) -> bool {
        !self.is_used() || (time > 0 && self.merged.load(Ordering::Acquire) <= time)
    }

    fn at_least(&self, wall: Millis) -> Millis {
        let latest = self.latest.load(Ordering::Acquire);
        // Mostly the same millisecond: then no thread waits for the cache line of another.
        if wall <= latest {
            return latest;
        }
        self.latest.fetch_max(wall, Ordering::AcqRel).max(wall)
    }
}

pub(crate) fn at(time: Millis) -> SystemTime {
    let since_1970 = Duration::from_millis(time);
    SystemTime::UNIX_EPOCH.checked_add(since_1970).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// At least 1: the time 0 is that of a store without expiring entries.
fn wall(clock: &dyn Clock) -> Millis {
    (since_1970(clock.wall()).as_millis() as Millis).clamp(1, LATEST)
}
