//! Power failures after every operation. The disk keeps some of the unsynced changes, and the store must
//! recover a prefix of the writes.

mod checkpoints;
#[path = "../common/mod.rs"]
mod common;
mod creation;
mod earlier_logs;
mod everywhere;
mod failures;
mod history;
mod lying;
mod oracle;
mod small;
mod tally;

use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `count` jobs on two threads; returns their results in any order.
fn on_two_threads<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let numbers = || std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
    let some = || numbers().take_while(|&i| i < count).map(&work).collect::<Vec<T>>();
    std::thread::scope(|scope| {
        let threads = [scope.spawn(some), scope.spawn(some)];
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}
