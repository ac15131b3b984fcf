//! Conditional writes beside plain writes and flushes.

use std::sync::atomic::{AtomicU64, Ordering};

use criba_schedules::Db;
use criba_schedules::Durability::{Buffered, Synced};
use criba_schedules::vfs::SimVfs;
use shuttle::rand::Rng;
use shuttle::thread::scope;

use crate::explore::explore;
use crate::linearizable::{Call, Event, is_linearizable};
use crate::store::{key, options, value, version};

const KEYS: usize = 2;
const CALLS: u64 = 4;

/// Calls of one thread: the key of each, and the event. shuttle does not switch threads at the clock.
fn calls(db: &Db, thread: u64, clock: &AtomicU64) -> [Vec<Event>; KEYS] {
    let mut events: [Vec<Event>; KEYS] = Default::default();
    let mut last_read = [None; KEYS];
    for call in 0..CALLS {
        let (kind, number, synced) = {
            let mut rng = shuttle::rand::thread_rng();
            (rng.gen_range(0..6), rng.gen_range(0..KEYS), rng.gen_range(0..4) == 0)
        };
        let durability = if synced { Synced } else { Buffered };
        let new = 10 * thread + call;
        let swap = |expected, new, made| Call::Swap { expected, new, made };
        let from = clock.fetch_add(1, Ordering::Relaxed);
        let done: Vec<(usize, Call)> = match kind {
            0 => {
                db.delete(key(number)).unwrap();
                vec![(number, Call::Set(None))]
            }
            1 => {
                let found = db.get(key(number)).unwrap().as_ref().map(version);
                last_read[number] = found;
                vec![(number, Call::Get(found))]
            }
            2 | 3 => {
                let (expected, new) = (last_read[number], (kind == 2).then_some(new));
                let (old, bytes) = (expected.map(value), new.map(value));
                let (old, bytes) = (old.as_ref().map(|v| &v[..]), bytes.as_ref().map(|v| &v[..]));
                let made = db.compare_and_swap_with(key(number), old, bytes, durability).unwrap();
                vec![(number, swap(expected, new, made))]
            }
            4 => {
                let made = db.insert_if_absent_with(key(number), value(new), durability).unwrap();
                vec![(number, swap(None, Some(new), made))]
            }
            _ => {
                let pairs = (0..KEYS).map(|number| (key(number), value(new)));
                let made = db.insert_many_if_absent_with(pairs, durability).unwrap();
                let made = made.into_iter().map(|made| swap(None, Some(new), made));
                made.enumerate().collect()
            }
        };
        let to = clock.fetch_add(1, Ordering::Relaxed);
        for (number, call) in done {
            events[number].push(Event { call, from, to });
        }
    }
    events
}

#[test]
fn conditional_writes_have_an_order_that_explains_them() {
    let needed = ["conditional writes made", "conditional writes refused", "flushes"];
    explore("conditional writes", 1500, &needed, |seen| {
        let db = options(SimVfs::new()).open("/store").unwrap();
        let clock = AtomicU64::new(0);
        let mut threads = scope(|scope| {
            let run = |thread| {
                let (db, clock) = (&db, &clock);
                scope.spawn(move || calls(db, thread, clock))
            };
            let threads = [1, 2, 3].map(run);
            scope.spawn(|| {
                for _ in 0..3 {
                    db.flush().unwrap();
                }
            });
            threads.map(|thread| thread.join().unwrap()).to_vec()
        });
        for thread in threads.iter().flatten().flatten() {
            match thread.call {
                Call::Swap { made: true, .. } => seen.add("conditional writes made", 1),
                Call::Swap { made: false, .. } => seen.add("conditional writes refused", 1),
                _ => {}
            }
        }
        for number in 0..KEYS {
            let now = db.get(key(number)).unwrap().as_ref().map(version);
            let last = Event { call: Call::Get(now), from: u64::MAX - 1, to: u64::MAX };
            threads[0][number].push(last);
            let history: Vec<_> = threads.iter().map(|events| events[number].clone()).collect();
            assert!(is_linearizable(&history), "key {number}: {history:?}");
        }
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
