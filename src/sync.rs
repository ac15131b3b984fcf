//! Locks, atomics, threads and clocks. In `tests/schedules` (`criba_shuttle`) they are those of shuttle,
//! which schedules the threads. Locks ignore poisoning by a panic.

#[cfg(criba_shuttle)]
mod scheduled;

#[cfg(criba_shuttle)]
use shuttle::{sync, thread};
#[cfg(not(criba_shuttle))]
use std::{sync, thread};

#[cfg(criba_shuttle)]
pub(crate) use shuttle::thread_local;
#[cfg(not(criba_shuttle))]
pub(crate) use std::thread_local;

#[cfg(criba_shuttle)]
pub(crate) use scheduled::{Instant, OnceLock, available_parallelism, sleep, thread_number};
pub(crate) use std::sync::Arc;
/// A counter that orders no other operations, so shuttle need not switch threads at its operations.
pub(crate) use std::sync::atomic::AtomicU64 as Counter;
#[cfg(not(criba_shuttle))]
pub(crate) use std::{
    sync::OnceLock,
    thread::{available_parallelism, sleep},
    time::Instant,
};
pub(crate) use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub(crate) use sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use thread::{JoinHandle, scope, yield_now};

use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(criba_shuttle))]
mod sharded;

#[cfg(criba_shuttle)]
pub(crate) use RwLock as ShardedLock;
#[cfg(not(criba_shuttle))]
pub(crate) use sharded::ShardedLock;

#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for at most `timeout`. Drops the lock.
    #[cfg_attr(
        criba_shuttle,
        expect(clippy::unused_self, reason = "every timeout is over at once")
    )]
    pub(crate) fn wait_timeout<T>(&self, guard: MutexGuard<'_, T>, timeout: Duration) {
        #[cfg(not(criba_shuttle))]
        drop(self.0.wait_timeout(guard, timeout));
        #[cfg(criba_shuttle)]
        {
            drop(guard);
            sleep(timeout);
        }
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// The number of this thread: at its first call, the lowest that no other live thread had; 64 for those beyond.
/// `None` while the thread ends.
#[cfg(not(criba_shuttle))]
#[inline]
pub(crate) fn thread_number() -> Option<usize> {
    numbers::MINE.try_with(|mine| mine.0).ok()
}

#[cfg(not(criba_shuttle))]
mod numbers {
    use super::{AtomicU64, Ordering};

    /// A bit for each number in use. It orders the work of threads that have the same number one after another;
    /// a fork could copy a lock that is held.
    static USED: AtomicU64 = AtomicU64::new(0);

    pub(super) struct Number(pub(super) usize);

    std::thread_local! {
        pub(super) static MINE: Number = Number::take();
    }

    impl Number {
        fn take() -> Self {
            let with_lowest = |used: u64| Some(used | used.wrapping_add(1));
            let used = USED.fetch_update(Ordering::AcqRel, Ordering::Acquire, with_lowest);
            Self(used.unwrap_or_else(|used| used).trailing_ones() as usize)
        }
    }

    impl Drop for Number {
        fn drop(&mut self) {
            let own = 1_u64.checked_shl(self.0 as u32).unwrap_or(0);
            USED.fetch_and(!own, Ordering::AcqRel);
        }
    }
}

/// A place at which tests call a hook or switch threads. Other builds do nothing.
#[inline]
pub(crate) fn sync_point(place: &str) {
    #[cfg(test)]
    hook::call(place);
    #[cfg(criba_shuttle)]
    scheduled::may_switch();
    let _ = place;
}

#[cfg(test)]
pub(crate) use hook::with_hook;

#[cfg(test)]
mod hook {
    use std::cell::RefCell;
    use std::rc::Rc;

    type Hook = Rc<dyn Fn(&str)>;

    std::thread_local! {
        static HOOK: RefCell<Option<(Hook, usize)>> = const { RefCell::new(None) };
    }

    pub(crate) fn with_hook(hook: impl Fn(&str) + 'static, action: impl FnOnce()) -> usize {
        HOOK.set(Some((Rc::new(hook), 0)));
        action();
        HOOK.take().map_or(0, |(_, calls)| calls)
    }

    pub(super) fn call(place: &str) {
        let hook = HOOK.with_borrow_mut(|hook| {
            let (hook, calls) = hook.as_mut()?;
            *calls += 1;
            Some(Rc::clone(hook))
        });
        if let Some(hook) = hook {
            hook(place);
        }
    }
}
