//! Threads that insert into one filter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use filters::{Hashing, ShardedBloom};
use shuttle::thread;

use crate::explore::explore;

const THREADS: usize = 3;
const KEYS: usize = 4;

/// Of threads that insert one key at the same time, one finds it new; then the filter has it.
#[test]
fn one_of_many_threads_finds_a_key_new() {
    explore("sharded", 600, &["insertions", "lost races"], |seen| {
        let filter = ShardedBloom::with_rate(2, 10_000, 0.001).unwrap();
        // The same shards in each run of a schedule.
        let filter = Arc::new(filter.with_hashing(Hashing::keyed([7; 16])).unwrap());
        let new: Arc<[AtomicUsize; KEYS]> = Arc::default();
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (filter, new, seen) = (Arc::clone(&filter), Arc::clone(&new), seen.clone());
                thread::spawn(move || {
                    for (key, new) in new.iter().enumerate() {
                        let bytes = key.to_le_bytes();
                        let was_new = filter.insert(bytes);
                        new.fetch_add(usize::from(was_new), Ordering::Relaxed);
                        assert!(filter.contains(bytes));
                        seen.add("insertions", 1);
                        seen.add("lost races", u64::from(!was_new));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        for new in new.iter() {
            assert_eq!(new.load(Ordering::Relaxed), 1);
        }
    });
}
