//! Every short workload, with a power failure after each of its operations, like CrashMonkey's ACE (Mohan
//! et al., OSDI 2018): most crash bugs need few steps, but particular ones.

use std::collections::{BTreeSet, HashSet};
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::time::Instant;

use criba::vfs::{SimDisk, Unit};
use criba::{Durability, FilterPolicy};
use foldhash::quality::FixedState;

use crate::common::is_full;
use crate::failures::{each_alone, ends};
use crate::history::{History, Runner, Step};
use crate::on_two_threads;
use crate::oracle::{Case, fingerprint};

/// The kinds of steps. Each value names its write.
pub(crate) const KINDS: usize = 10;

pub(crate) fn step(kind: usize, number: usize) -> Step {
    let a = || b"a".to_vec();
    let value = || Some(vec![number as u8; 300]);
    match kind {
        0 => Step::Write(vec![(a(), value())], Durability::Buffered),
        1 => Step::Write(vec![(a(), value())], Durability::Synced),
        2 => Step::Write(vec![(a(), None)], Durability::Buffered),
        3 => Step::Write(vec![(a(), value()), (b"b".to_vec(), value())], Durability::Buffered),
        4 => Step::Sync,
        5 => Step::Flush,
        6 => Step::Compact,
        7 => Step::Rebuild(FilterPolicy::ribbon().with_bits_per_key(12.0)),
        8 => Step::Reopen,
        _ => Step::Kill,
    }
}

/// A disk, and the contents that it may have.
fn case_fingerprint(disk: &SimDisk, history: &History, bounds: (usize, usize)) -> u64 {
    FixedState::default().hash_one((fingerprint(disk), &history.states[bounds.0..=bounds.1]))
}

/// Fails at each operation of a workload's last step: a shorter workload covers the earlier steps.
fn crash_in_last_step(kinds: &[usize], seen: &Mutex<HashSet<u64>>) -> (usize, usize) {
    let mut runner = Runner::new();
    let mut first = 0;
    for (number, kind) in kinds.iter().enumerate() {
        first = runner.moment_count();
        runner.step(&step(*kind, number));
    }
    let end = runner.moment_count();
    let history = runner.finish();
    let keys: BTreeSet<Vec<u8>> = ["a", "b"].map(|key| key.as_bytes().to_vec()).into();
    let mut disks = 0;
    for number in first..end {
        let moment = &history.moments[number];
        let bounds = history.bounds(number);
        let failures = ends(&moment.disk).into_iter().chain(each_alone(&moment.disk, Unit::Page));
        for (i, disk) in failures.enumerate() {
            if !seen.lock().unwrap().insert(case_fingerprint(&disk, &history, bounds)) {
                continue;
            }
            let at = format!(
                "steps {kinds:?}, operation {number}, {:?} of {}, failure {i}",
                moment.operation,
                moment.path.display()
            );
            Case { disk, history: &history, keys: &keys, bounds, at: &at }.check(i == 0);
            disks += 1;
        }
    }
    (end - first, disks)
}

#[test]
fn every_short_workload_survives_a_power_failure_after_every_operation() {
    // CRASH_STEPS=5 for all workloads of up to five steps.
    let longest =
        std::env::var("CRASH_STEPS").map_or(if is_full() { 4 } else { 3 }, |n| n.parse().unwrap());
    let start = Instant::now();
    let (mut workloads, mut operations, mut disks) = (0, 0, 0);
    let seen = Mutex::default();
    for length in 0..=longest {
        let all = KINDS.pow(length);
        let crashed = on_two_threads(all, |number| {
            let kinds: Vec<usize> =
                (0..length).map(|place| number / KINDS.pow(place) % KINDS).collect();
            crash_in_last_step(&kinds, &seen)
        });
        for sums in crashed {
            operations += sums.0;
            disks += sums.1;
        }
        workloads += all;
    }
    println!(
        "every workload of up to {longest} steps of {KINDS} kinds: {workloads} workloads, \
         {operations} operations failed at, {disks} distinct disks, violations 0, {:.0} s",
        start.elapsed().as_secs_f64()
    );
}
