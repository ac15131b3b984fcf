//! Runs a workload under many schedules, and prints the counts.

use std::collections::BTreeMap;
use std::env;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner};

use crate::bursts::BurstScheduler;

/// Replaces the number of schedules of each test.
const SCHEDULES: &str = "CRIBA_SCHEDULES";
/// Replaces [`FIRST_SEED`].
const SEED: &str = "CRIBA_SCHEDULES_SEED";
/// A file with a schedule that a failed test printed, to run alone.
const REPLAY: &str = "CRIBA_SCHEDULES_REPLAY";

const FIRST_SEED: u64 = 20_261_120;
/// The changes of priority in a PCT schedule: the depth of bugs that it finds with a known chance.
const DEPTH: usize = 3;

/// The events of all schedules of a test. shuttle does not switch threads in here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Seen {
    pub(crate) fn add(&self, what: &'static str, count: u64) {
        *self.0.lock().unwrap().entry(what).or_default() += count;
    }

    /// The store's counters at its end.
    pub(crate) fn add_activity(&self, db: &criba_schedules::Db) {
        let (stats, total) = (db.stats(), db.stats().total());
        self.add("lookups", stats.activity.lookups);
        self.add("flushes", stats.activity.flushes);
        self.add("compactions", stats.activity.compactions);
        self.add("tables moved", stats.activity.tables_moved);
        self.add("filters rebuilt", stats.activity.filters_rebuilt);
        self.add("block reads", total.disk_reads);
        self.add("filters' noes", total.true_negatives);
    }
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not {text:?}")))
}

/// Runs a workload under `schedules` schedules, in equal parts of three kinds: random at every step;
/// bursts; and PCT, where a thread runs until priorities change. A failure prints its schedule. Each event
/// in `needed` must have happened at least once.
pub(crate) fn explore(
    name: &str,
    schedules: usize,
    needed: &[&str],
    workload: impl Fn(&Seen) + Send + Sync + 'static,
) {
    let schedules: usize = setting(SCHEDULES).unwrap_or(schedules);
    let seed: u64 = setting(SEED).unwrap_or(FIRST_SEED);
    let (seen, start) = (Seen::default(), Instant::now());
    let (steps, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let workload = {
        let (seen, steps, most) = (seen.clone(), Arc::clone(&steps), Arc::clone(&most));
        Arc::new(move || {
            workload(&seen);
            let taken = shuttle::current::context_switches();
            steps.fetch_add(taken, Ordering::Relaxed);
            most.fetch_max(taken, Ordering::Relaxed);
        })
    };
    if let Some(path) = setting::<String>(REPLAY) {
        run(ReplayScheduler::new_from_file(path).unwrap(), workload);
        println!("{name}: one schedule replayed");
        return;
    }
    let part = schedules.div_ceil(3);
    let ran = run(RandomScheduler::new_from_seed(seed, part), Arc::clone(&workload))
        + run(BurstScheduler::new(seed, part), Arc::clone(&workload))
        + run(PctScheduler::new_from_seed(seed, DEPTH, part), workload);
    println!(
        "{name}: {ran} schedules, {} steps, {} at most in one, seed {seed}, {:.1} s; {:?}",
        steps.load(Ordering::Relaxed),
        most.load(Ordering::Relaxed),
        start.elapsed().as_secs_f64(),
        seen.0.lock().unwrap(),
    );
    for what in needed {
        assert!(seen.0.lock().unwrap().get(what) > Some(&0), "{what}: none");
    }
}

pub(crate) fn run(
    scheduler: impl Scheduler + 'static,
    workload: Arc<impl Fn() + Send + Sync + 'static>,
) -> usize {
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    // It is about orderings weaker than the one that shuttle has.
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || workload())
}
