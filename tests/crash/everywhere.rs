//! A power failure after every operation, with many disks that it may leave.

use std::collections::{BTreeSet, HashSet};
use std::process::{Command, Stdio};
use std::time::Instant;

use criba::vfs::{FileKind, Operation, SimDisk, Unit};
use criba::{Durability, FilterPolicy};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{is_full, stride};
use crate::failures::{each_alone, ends, some};
use crate::history::{Phase, Runner, Step};
use crate::on_two_threads;
use crate::oracle::{Case, fingerprint};
use crate::tally::Tally;

pub(crate) const SEED: u64 = 0x0F0F_2026;

/// The workload of a child process; and the first word of its result.
const WORKLOAD: &str = "CRASH_WORKLOAD";

/// The random subsets of unsynced changes for each operation, of a workload and of an opening.
const SUBSETS: usize = 6;
const SUBSETS_OF_OPENING: usize = 2;

/// The usual keys of a script. Long ones make the manifest long, so that it is rewritten.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys {
    Short,
    Long,
}

/// A script of `steps` steps.
pub(crate) fn script(rng: &mut ChaCha8Rng, steps: usize, kind: Keys) -> Vec<Step> {
    let policies = [FilterPolicy::ribbon(), FilterPolicy::classic(), FilterPolicy::none()];
    let long_keys = match kind {
        Keys::Short => 80,
        Keys::Long => 6,
    };
    let step = |number: usize| match rng.random_range(0..48) {
        0 => Step::Flush,
        1 => Step::Compact,
        2 | 3 => Step::Sync,
        4 => Step::Reopen,
        5 => Step::Kill,
        6 => Step::Snapshot,
        7 | 8 => Step::Rebuild(policies[rng.random_range(0..3)]),
        46 | 47 => Step::Wait,
        44 | 45 => {
            let pairs = (0..rng.random_range(0..30)).map(|_| change(rng, number, long_keys));
            Step::Ingest(pairs.filter_map(|(key, value)| Some((key, value?))).collect())
        }
        9..=11 => {
            let pairs = (0..rng.random_range(1..6)).map(|_| change(rng, number, long_keys));
            let pairs = pairs.filter_map(|(key, value)| Some((key, value?))).collect();
            let synced = rng.random_ratio(1, 3);
            let durability = if synced { Durability::Synced } else { Durability::Buffered };
            Step::Insert(pairs, durability)
        }
        _ => {
            let changes = if rng.random_ratio(1, 3) { rng.random_range(2..8) } else { 1 };
            let synced = rng.random_ratio(1, 6);
            let durability = if synced { Durability::Synced } else { Durability::Buffered };
            Step::Write((0..changes).map(|_| change(rng, number, long_keys)).collect(), durability)
        }
    };
    (0..steps).map(step).collect()
}

fn change(rng: &mut ChaCha8Rng, number: usize, long_keys: u32) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut key = format!("key{:02}", rng.random_range(0..40)).into_bytes();
    if rng.random_ratio(1, long_keys) {
        key.resize(4000, b'-');
    }
    if rng.random_ratio(1, 4) {
        return (key, None);
    }
    let longest = if rng.random_ratio(1, 100) { 40_000 } else { 200 };
    let mut value = vec![0; rng.random_range(0..longest)];
    // Half of it can be compressed.
    let half = value.len() / 2;
    rng.fill_bytes(&mut value[half..]);
    value.extend_from_slice(&number.to_le_bytes());
    (key, Some(value))
}

/// The disks that a failure at this moment may leave: without unsynced changes; with all; with all but one
/// sector, length or name; and with some subsets.
fn failures(disk: &SimDisk, rng: &mut ChaCha8Rng, subsets: usize) -> Vec<SimDisk> {
    let mut disks = Vec::from(ends(disk));
    for unit in [Unit::Sector, Unit::Page] {
        disks.extend(each_alone(disk, unit));
        let subsets = if disk.unsynced(unit).len() > 1 { subsets } else { 0 };
        disks.extend((0..subsets).map(|_| some(disk, unit, rng)));
    }
    disks
}

/// Runs one workload with all its failures.
fn crash_everywhere(seed: u64, keys: Keys) -> Tally {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let steps = match keys {
        Keys::Short => rng.random_range(50..=200),
        Keys::Long => 60,
    };
    let mut runner = Runner::new();
    for step in script(&mut rng, steps, keys) {
        runner.step(&step);
    }
    let history = runner.finish();
    let keys: BTreeSet<Vec<u8>> = history.states.iter().flat_map(|s| s.keys().cloned()).collect();
    let (mut seen, mut tally) = (HashSet::new(), Tally::default());
    tally.operations = history.moments.len();
    tally.compressed = history.compressed;
    for (number, moment) in history.moments.iter().enumerate().step_by(stride()) {
        let phases: Vec<Phase> = history.phases(number).collect();
        let is_new_manifest =
            (moment.operation, moment.kind) == (Operation::Create, FileKind::Manifest);
        tally.rewritings += usize::from(is_new_manifest && !phases.contains(&Phase::Recovery));
        let place = format!(
            "seed {seed:#x}, operation {number}, {:?} of {}",
            moment.operation,
            moment.path.display()
        );
        let failures = failures(&moment.disk, &mut rng, SUBSETS);
        // One opening is tested with a failure at each of its operations; another one at each operation of
        // the workload.
        let deep = number % failures.len();
        let mut next = failures;
        for depth in 1..=3 {
            let mut opening = Vec::new();
            let middle = next.len() / 2;
            for (i, disk) in next.into_iter().enumerate() {
                if !seen.insert(fingerprint(&disk)) {
                    continue;
                }
                let at = format!("{place}, depth {depth}, failure {i}");
                let bounds = history.bounds(number);
                let goes_on = match depth {
                    1 => i == deep,
                    2 => i == middle && number % 20 == 0,
                    _ => false,
                };
                let case = Case { disk, history: &history, keys: &keys, bounds, at: &at };
                let moments = case.check(goes_on);
                if goes_on {
                    opening = moments;
                }
                tally.count(&phases, depth);
            }
            next = opening.iter().flat_map(|m| failures_of_opening(&m.disk, &mut rng)).collect();
        }
    }
    tally
}

fn failures_of_opening(disk: &SimDisk, rng: &mut ChaCha8Rng) -> Vec<SimDisk> {
    let [all_lost, _] = ends(disk);
    let subsets = (0..SUBSETS_OF_OPENING).map(|_| some(disk, Unit::Sector, rng));
    std::iter::once(all_lost).chain(subsets).collect()
}

const WORKLOADS: usize = 5;

fn workloads() -> usize {
    // CRASH_WORKLOADS=100 for a long run.
    let usual = if is_full() { WORKLOADS } else { 2 };
    std::env::var("CRASH_WORKLOADS").map_or(usual, |n| n.parse().unwrap())
}

/// Runs a workload in a child process: threads of one process wait for each other when they map filters.
#[test]
#[ignore = "run by the test below"]
fn one_workload() {
    let number: u64 = std::env::var(WORKLOAD).expect("run by the test below").parse().unwrap();
    let keys = if number % 8 == 1 { Keys::Long } else { Keys::Short };
    println!("\n{WORKLOAD} {}", crash_everywhere(SEED + number, keys));
}

/// Runs the workload of a child process.
fn tally_of(workload: usize) -> Tally {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "everywhere::one_workload", "--ignored", "--nocapture"])
        .env(WORKLOAD, workload.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let numbers = said.lines().find_map(|line| line.strip_prefix(WORKLOAD)?.strip_prefix(' '));
    Tally::parse(numbers.unwrap())
}

#[test]
fn a_store_survives_a_power_failure_after_every_operation() {
    let start = Instant::now();
    let mut tally = Tally::default();
    for workload in on_two_threads(workloads(), tally_of) {
        tally.add(workload);
    }
    println!(
        "{} workloads, {} operations, {} manifests written anew, {} tables compressed, {:.0} s",
        workloads(),
        tally.operations,
        tally.rewritings,
        tally.compressed,
        start.elapsed().as_secs_f64()
    );
    println!(
        "crash states: {} distinct, flush {}, compaction {}, rebuild {}, recovery {}, max depth {}, \
         seed {SEED:#x}, violations 0",
        tally.distinct,
        tally.of(Phase::Flush),
        tally.of(Phase::Compaction),
        tally.of(Phase::Rebuild),
        tally.of(Phase::Recovery),
        tally.max_depth
    );
    assert!(tally.distinct > 1000 && tally.compressed > 0);
    if workloads() >= WORKLOADS && is_full() {
        assert!(tally.distinct >= 36_000 && tally.rewritings > 0);
        for phase in Phase::ALL {
            assert!(20 * tally.of(phase) >= tally.distinct, "{phase:?}");
        }
    }
}
