//! All operations at once, on real threads and files. A history checks every read: it must return a version
//! that was the newest of its key at some moment between the start and the end of the read.
//!
//! `CRIBA_STRESS_SECONDS` is the duration, `CRIBA_STRESS_SEED` the seed. Equal seeds do not give equal
//! runs: the speed of threads differs.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use criba::{Activity, Batch, Db, Durability, FilterPolicy, Membership, Snapshot, Value};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const WRITERS: usize = 3;
/// Of each writer; no other writer changes them.
const KEYS: usize = 700;
/// Every version of a key whose number is a multiple of this is a deletion.
const ABSENT: u64 = 5;

fn key(number: usize) -> [u8; 8] {
    (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// The keys of each batch of a writer.
fn twins(writer: usize) -> [String; 2] {
    ["left", "right"].map(|side| format!("{side} {writer}"))
}

fn version(value: &Value) -> u64 {
    u64::from_be_bytes(value[..8].try_into().expect("a version"))
}

/// The versions that a read may return: none before `known`, none after `begun`.
#[derive(Debug, Clone, Copy)]
struct Allowed {
    known: u64,
    begun: u64,
}

impl Allowed {
    /// The first allowed version that is a deletion.
    fn absence(self) -> Option<u64> {
        let first = self.known.next_multiple_of(ABSENT);
        (first <= self.begun).then_some(first)
    }

    /// Checks the result of a read; returns the oldest version that it can be.
    fn check(self, number: usize, found: Option<&Value>, how: &str) -> u64 {
        let Self { known, begun } = self;
        match found.map(version) {
            None => self.absence().unwrap_or_else(|| {
                panic!("{how} misses key {number}, of which version {known} to {begun} is there")
            }),
            Some(found) => {
                assert!(
                    (known..=begun).contains(&found) && !found.is_multiple_of(ABSENT),
                    "{how} gives version {found} of key {number}, not {known} to {begun}"
                );
                found
            }
        }
    }
}

/// The newest version of each key that was acknowledged or read, and the newest whose write began.
struct History {
    known: Vec<AtomicU64>,
    begun: Vec<AtomicU64>,
}

impl History {
    fn new() -> Self {
        let zeros = || (0..WRITERS * KEYS).map(|_| AtomicU64::new(0)).collect();
        Self { known: zeros(), begun: zeros() }
    }

    fn known(&self) -> Vec<u64> {
        self.known.iter().map(|known| known.load(SeqCst)).collect()
    }

    fn begun(&self) -> Vec<u64> {
        self.begun.iter().map(|begun| begun.load(SeqCst)).collect()
    }

    /// Reads a key, and records the result.
    fn read(&self, number: usize, how: &str, read: impl FnOnce(&[u8]) -> Option<Value>) {
        let known = self.known[number].load(SeqCst);
        let found = read(&key(number));
        let allowed = Allowed { known, begun: self.begun[number].load(SeqCst) };
        self.known[number].fetch_max(allowed.check(number, found.as_ref(), how), SeqCst);
    }
}

/// The number of operations by kind.
#[derive(Debug, Default)]
struct Done {
    changes: AtomicU64,
    synced: AtomicU64,
    lookups: AtomicU64,
    memberships: AtomicU64,
    snapshot_reads: AtomicU64,
    scanned: AtomicU64,
    flushes: AtomicU64,
    compactions: AtomicU64,
    rebuilds: AtomicU64,
    budgets: AtomicU64,
}

impl Done {
    /// A kind of work that was not done yet.
    fn missing(&self, activity: &Activity) -> Option<&'static str> {
        let by_threads = [
            ("changes", &self.changes),
            ("synced", &self.synced),
            ("lookups", &self.lookups),
            ("memberships", &self.memberships),
            ("snapshot reads", &self.snapshot_reads),
            ("scanned", &self.scanned),
            ("rebuilds", &self.rebuilds),
            ("budgets", &self.budgets),
        ];
        let by_the_store = [
            ("flushes", activity.flushes),
            ("compactions", activity.compactions),
            ("filters rebuilt", activity.filters_rebuilt),
        ];
        let by_threads = by_threads.map(|(what, count)| (what, count.load(SeqCst)));
        let mut all = by_threads.into_iter().chain(by_the_store);
        all.find(|(_, count)| *count == 0).map(|(what, _)| what)
    }
}

struct Stress<'a> {
    db: &'a Db,
    history: &'a History,
    done: &'a Done,
    over: &'a AtomicBool,
}

impl Stress<'_> {
    fn goes_on(&self) -> bool {
        !self.over.load(SeqCst)
    }

    fn write(&self, writer: usize, mut rng: ChaCha8Rng) {
        for number in 1_u64.. {
            if !self.goes_on() {
                break;
            }
            let mut batch = Batch::new();
            for twin in twins(writer) {
                batch.put(twin, number.to_be_bytes());
            }
            let first = rng.random_range(0..KEYS);
            let keys: Vec<usize> = (first..KEYS.min(first + rng.random_range(1..12)))
                .map(|key| writer * KEYS + key)
                .collect();
            let padding = vec![0; rng.random_range(0..60)];
            for &number in &keys {
                let version = self.history.begun[number].fetch_add(1, SeqCst) + 1;
                if version.is_multiple_of(ABSENT) {
                    batch.delete(key(number));
                } else {
                    batch.put(key(number), [&version.to_be_bytes(), padding.as_slice()].concat());
                }
            }
            let synced = rng.random_range(0..100) == 0;
            let durability = if synced { Durability::Synced } else { Durability::Buffered };
            self.db.write_with(batch, durability).unwrap();
            for &number in &keys {
                let begun = self.history.begun[number].load(SeqCst);
                self.history.known[number].fetch_max(begun, SeqCst);
            }
            self.done.changes.fetch_add(2 + keys.len() as u64, SeqCst);
            self.done.synced.fetch_add(u64::from(synced), SeqCst);
        }
    }

    fn look_up(&self, mut rng: ChaCha8Rng) {
        while self.goes_on() {
            let number = rng.random_range(0..WRITERS * KEYS);
            match rng.random_range(0..4) {
                0 => {
                    let known = self.history.known[number].load(SeqCst);
                    let answer = self.db.may_contain(key(number)).unwrap();
                    let allowed = Allowed { known, begun: self.history.begun[number].load(SeqCst) };
                    let may_be_absent = allowed.absence().is_some();
                    assert!(answer == Membership::Maybe || may_be_absent, "{number} {allowed:?}");
                    self.done.memberships.fetch_add(1, SeqCst);
                }
                1 => assert_eq!(self.db.get(key(WRITERS * KEYS + number)).unwrap(), None),
                _ => self.history.read(number, "a lookup", |key| self.db.get(key).unwrap()),
            }
            self.done.lookups.fetch_add(1, SeqCst);
        }
    }

    /// Takes a snapshot, and reads from it twice, with a full scan between.
    fn snapshots(&self, mut rng: ChaCha8Rng) {
        while self.goes_on() {
            let known = self.history.known();
            let snapshot = self.db.snapshot();
            let begun = self.history.begun();
            let allowed = |number: usize| Allowed { known: known[number], begun: begun[number] };
            for writer in 0..WRITERS {
                let [left, right] = twins(writer).map(|twin| snapshot.get(twin).unwrap());
                assert_eq!(left, right, "half a batch of writer {writer}");
            }
            let numbers: Vec<usize> =
                (0..20).map(|_| rng.random_range(0..WRITERS * KEYS)).collect();
            let read = |number: &usize| {
                let found = snapshot.get(key(*number)).unwrap();
                allowed(*number).check(*number, found.as_ref(), "a snapshot");
                found
            };
            let before: Vec<_> = numbers.iter().map(read).collect();
            self.scan(&snapshot, allowed);
            let after: Vec<_> = numbers.iter().map(read).collect();
            assert_eq!(before, after, "a snapshot changed");
            self.done.snapshot_reads.fetch_add(40, SeqCst);
        }
    }

    fn scan(&self, snapshot: &Snapshot, allowed: impl Fn(usize) -> Allowed) {
        let mut missing: std::collections::HashMap<_, _> =
            (0..WRITERS * KEYS).map(|number| (key(number), number)).collect();
        let mut last = None;
        for item in snapshot {
            let (found, value) = item.unwrap();
            assert!(last < Some(found.to_vec()), "out of order");
            last = Some(found.to_vec());
            if let Some(number) =
                <[u8; 8]>::try_from(&found[..]).ok().and_then(|k| missing.remove(&k))
            {
                allowed(number).check(number, Some(&value), "a scan");
            }
            self.done.scanned.fetch_add(1, SeqCst);
        }
        for (_, number) in missing {
            allowed(number).check(number, None, "a scan");
        }
    }

    fn maintain(&self, mut rng: ChaCha8Rng) {
        while self.goes_on() {
            if rng.random_range(0..4) == 0 {
                self.db.compact().unwrap();
                self.done.compactions.fetch_add(1, SeqCst);
            } else {
                self.db.flush().unwrap();
                self.done.flushes.fetch_add(1, SeqCst);
            }
            sleep(Duration::from_millis(rng.random_range(0..100)));
        }
    }

    fn rebuild_filters(&self, mut rng: ChaCha8Rng) {
        let policies = [FilterPolicy::classic(), FilterPolicy::default(), FilterPolicy::ribbon()];
        while self.goes_on() {
            let policy = policies[rng.random_range(0..policies.len())];
            let bits = f64::from(rng.random_range(4..16));
            self.db.rebuild_filters(&policy.with_bits_per_key(bits)).unwrap();
            self.done.rebuilds.fetch_add(1, SeqCst);
            sleep(Duration::from_millis(rng.random_range(0..50)));
        }
    }

    fn change_budget(&self, mut rng: ChaCha8Rng) {
        while self.goes_on() {
            let stored = self.db.memory().filters.stored;
            let budget = rng.random_range(0..=stored + stored / 4);
            self.db.set_filter_memory((budget <= stored).then_some(budget)).unwrap();
            self.done.budgets.fetch_add(1, SeqCst);
            sleep(Duration::from_millis(rng.random_range(0..20)));
        }
    }
}

/// After the last write every key has its last value.
fn check_end(db: &Db, history: &History) {
    for (number, begun) in history.begun().into_iter().enumerate() {
        let found = db.get(key(number)).unwrap();
        Allowed { known: begun, begun }.check(number, found.as_ref(), "a lookup at the end");
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn every_read_gives_what_was_newest_at_some_moment_of_it() {
    let seconds = setting("CRIBA_STRESS_SECONDS", 4);
    let seed = setting("CRIBA_STRESS_SEED", 20_261_120);
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let options = common::options()
        .background_threads(2)
        .memtable_bytes(64 << 10)
        .table_bytes(32 << 10)
        .level_base_bytes(128 << 10)
        .block_bytes(512)
        .cache_bytes(64 << 10)
        .max_open_files(8)
        .l0_compaction_trigger(3)
        .l0_slowdown_trigger(6)
        .l0_stop_trigger(10);
    let db = options.clone().open(&dir).unwrap();
    let (history, done, over) = (History::new(), Done::default(), AtomicBool::new(false));
    let stress = Stress { db: &db, history: &history, done: &done, over: &over };
    let rng = |thread| ChaCha8Rng::seed_from_u64(seed * 100 + thread);
    scope(|scope| {
        let stress = &stress;
        let actors = [
            scope.spawn(move || stress.maintain(rng(10))),
            scope.spawn(move || stress.rebuild_filters(rng(11))),
            scope.spawn(move || stress.change_budget(rng(12))),
            scope.spawn(move || stress.snapshots(rng(13))),
            scope.spawn(move || stress.look_up(rng(14))),
            scope.spawn(move || stress.look_up(rng(15))),
        ];
        let writers = (0..WRITERS)
            .map(|writer| scope.spawn(move || stress.write(writer, rng(writer as u64))));
        let threads: Vec<_> = actors.into_iter().chain(writers).collect();
        let start = Instant::now();
        // A thread that has failed ends all.
        while !threads.iter().any(ScopedJoinHandle::is_finished) {
            let took = start.elapsed().as_secs();
            let is_all_done = || done.missing(&db.stats().activity).is_none();
            // Longer on a busy machine.
            if took >= seconds.max(60) || (took >= seconds && is_all_done()) {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        over.store(true, SeqCst);
    });
    let activity = db.stats().activity;
    println!("{seconds} s, seed {seed}: {done:?}; {activity:?}");
    check_end(&db, &history);
    db.set_filter_memory(None).unwrap();
    db.wait_until_settled().unwrap();
    let memory = db.memory().filters;
    assert_eq!(memory.resident, memory.stored);
    check_end(&db, &history);
    db.close().unwrap();
    assert_eq!(criba::verify(&dir).unwrap().findings, []);
    check_end(&options.open(&dir).unwrap(), &history);
    assert_eq!(done.missing(&activity), None);
}
