//! A lock for data that seldom changes.
//!
//! That of `crossbeam_utils` has a mutex for the whole process, which a fork copies locked when another thread
//! begins or ends: a store that the child opens would wait for it for ever.

#![expect(unsafe_code, reason = "a value behind several locks")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::thread_number;

const SHARDS: usize = 8;

/// One cache line, so that locks of different shards do not wait for each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(RwLock<()>);

/// A lock in shards: threads mostly read-lock different shards, and a writer locks all.
#[derive(Debug, Default)]
pub(crate) struct ShardedLock<T> {
    shards: [Shard; SHARDS],
    value: UnsafeCell<T>,
}

// SAFETY: threads share the value only as `RwLock` lets them.
unsafe impl<T: Send + Sync> Sync for ShardedLock<T> {}

impl<T> ShardedLock<T> {
    pub(crate) fn read(&self) -> impl Deref<Target = T> {
        let Shard(lock) = &self.shards[thread_number().unwrap_or_default() % SHARDS];
        let shard = lock.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a writer has the lock of every shard, so there is none while the guard lives.
        Reading { value: unsafe { &*self.value.get() }, _shard: shard }
    }

    pub(crate) fn write(&self) -> impl DerefMut<Target = T> {
        // All in one order, so that two writers do not wait for each other.
        let shards = std::array::from_fn(|number| {
            let Shard(lock) = &self.shards[number];
            lock.write().unwrap_or_else(PoisonError::into_inner)
        });
        // SAFETY: while the guards live, no other thread has the lock of a shard.
        Writing { value: unsafe { &mut *self.value.get() }, _shards: shards }
    }
}

struct Reading<'a, T> {
    value: &'a T,
    _shard: RwLockReadGuard<'a, ()>,
}

struct Writing<'a, T> {
    value: &'a mut T,
    _shards: [RwLockWriteGuard<'a, ()>; SHARDS],
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Deref for Writing<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_whole_writes() {
        let pair = ShardedLock::<(u64, u64)>::default();
        std::thread::scope(|scope| {
            for number in 0..12 {
                let pair = &pair;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        if number < 2 {
                            let mut pair = pair.write();
                            pair.0 += 1;
                            std::thread::yield_now();
                            pair.1 += 1;
                        } else {
                            let pair = pair.read();
                            assert_eq!(pair.0, pair.1);
                        }
                    }
                });
            }
        });
        assert_eq!(*pair.read(), (4000, 4000));
    }
}
