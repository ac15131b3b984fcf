//! Every execution of a few threads on the memtable's filter, within a bound on how often a thread is
//! interrupted, and with every value that a relaxed load may give.
//!
//! A bit mask stands for the leaves: a thread that has inserted a key into the filter sets its bit and releases
//! it, and a thread that acquires it must not be denied the key.

use std::sync::Arc as StdArc;
use std::sync::atomic::AtomicU64 as Count;
use std::sync::atomic::Ordering::SeqCst;

use criba_orderings::Filter;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// The first layer has room for so many keys.
const FIRST_LAYER: u64 = 160;

fn spread(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[derive(Debug, Default)]
struct Memtable {
    filter: Filter,
    published: AtomicU64,
}

impl Memtable {
    fn insert(&self, key: u64) {
        self.filter.insert(spread(key));
        self.published.fetch_or(1 << key, Ordering::Release);
    }

    /// Asks for all that is published; gives how much that is.
    fn check(&self) -> u64 {
        let published = self.published.load(Ordering::Acquire);
        for key in (0..64).filter(|key| published >> key & 1 == 1) {
            assert!(self.filter.may_contain(spread(key)), "key {key} is denied");
        }
        published.count_ones().into()
    }
}

/// Lets each writer insert its keys beside one reader, after some other keys, with so many interruptions
/// of threads at most.
fn explore(name: &str, interruptions: usize, others: u64, writers: &'static [&'static [u64]]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.max_branches = 100_000;
    let (executions, probed) = (StdArc::new(Count::new(0)), StdArc::new(Count::new(0)));
    let counts = (StdArc::clone(&executions), StdArc::clone(&probed));
    builder.check(move || {
        let memtable = Arc::new(Memtable::default());
        for key in 0..others {
            memtable.filter.insert(spread(1000 + key));
        }
        let threads: Vec<_> = writers
            .iter()
            .map(|keys| {
                let memtable = Arc::clone(&memtable);
                thread::spawn(move || keys.iter().for_each(|&key| memtable.insert(key)))
            })
            .collect();
        counts.1.fetch_add(memtable.check(), SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
        memtable.check();
        counts.0.fetch_add(1, SeqCst);
    });
    println!("{name}: {executions:?} executions, {probed:?} keys probed for meanwhile");
    assert!(probed.load(SeqCst) > 0);
}

#[test]
fn a_key_that_is_published_is_never_denied() {
    explore("one writer", 3, 0, &[&[0, 1]]);
}

/// The second one finds the bits set, and publishes the key that the first one has not published yet.
#[test]
fn a_key_whose_bits_another_has_set_is_never_denied() {
    explore("two writers of one key", 1, 0, &[&[0], &[0]]);
}

#[test]
fn a_key_in_a_layer_that_another_has_made_is_never_denied() {
    explore("two writers while the filter grows", 3, FIRST_LAYER, &[&[0], &[1]]);
}
