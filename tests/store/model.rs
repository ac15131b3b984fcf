//! Random operations beside a `BTreeMap`: all answers are equal, under all options, with flushes,
//! compactions, snapshots, reopenings, crashes and restored checkpoints, and a clock that jumps; and the ledger counts
//! each lookup once.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use criba::{
    Activity, Allocation, Batch, Compression, Counts, Db, Durability, Error, Expiry, FilterPolicy,
    Options, Outcome, PrefixExtractor, Range, Reader, Snapshot, Stats, Step, TableInfo, TableStep,
    Value, Verdict,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{self, ManualClock};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const FILTERS: usize = 6;

#[derive(Debug, Clone, Copy)]
struct Config {
    threads: usize,
    cache: u64,
    filter: usize,
    max_open_files: usize,
    auto_compaction: bool,
    seed: u64,
    of_session: Session,
}

/// The options that may change at an opening.
#[derive(Debug, Clone, Copy)]
struct Session {
    allocation: Allocation,
    prefix: Option<PrefixExtractor>,
    filter_memory: Option<u64>,
    strict: bool,
    default_ttl: Option<Duration>,
    /// `None`: as the store has it.
    compression: Option<Compression>,
}

impl Session {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        let prefixes = [
            None,
            Some(PrefixExtractor::fixed(1)),
            Some(PrefixExtractor::fixed(3)),
            Some(PrefixExtractor::until(b'a')),
        ];
        Self {
            allocation: [Allocation::Balanced, Allocation::Uniform][rng.random_range(0..2)],
            prefix: prefixes[rng.random_range(0..prefixes.len())],
            filter_memory: draw_budget(rng),
            strict: rng.random(),
            default_ttl: rng.random_bool(0.3).then(|| Duration::from_secs(rng.random_range(1..60))),
            compression: [None, Some(Compression::None), Some(Compression::Lz4)]
                [rng.random_range(0..3)],
        }
    }
}

/// The memory budget of filters: mostly none; else for no filter, for a few, or for all.
fn draw_budget(rng: &mut ChaCha8Rng) -> Option<u64> {
    [None, None, None, Some(0), Some(8 << 10), Some(1 << 20)][rng.random_range(0..6)]
}

impl Config {
    fn options(self, clock: &Arc<ManualClock>) -> Options {
        let policy = common::policy();
        let policy = match self.filter {
            0 => policy.with_rate(0.3),
            1 => policy.with_bits_per_key(3.5),
            2 => policy.with_geometry(50, 2),
            3 => FilterPolicy::none(),
            4 => policy,
            _ => policy.with_total_bytes(100),
        };
        let Session { allocation, prefix, filter_memory, strict, default_ttl, compression } =
            self.of_session;
        let mut options = common::options();
        if let Some(compression) = compression {
            options = options.compression(compression);
        }
        if let Some(extractor) = prefix {
            options = options.prefix(extractor);
        }
        if let Some(bytes) = filter_memory {
            options = options.filter_memory(bytes);
        }
        options
            .background_threads(self.threads)
            .cache_bytes(self.cache)
            .filter(policy.with_allocation(allocation))
            .strict_filters(strict)
            .ignore_filters(self.filter == 4)
            .max_open_files(self.max_open_files)
            .auto_compaction(self.auto_compaction)
            .memtable_bytes(3000)
            .table_bytes(1024)
            .level_base_bytes(20)
            .l0_compaction_trigger(2)
            .block_bytes(256)
            .default_ttl(default_ttl)
            .clock(Arc::clone(clock) as _)
            .vfs(common::HookVfs::without_syncs())
    }
}

/// About 150 keys: the empty one, prefixes of others, lowest and highest bytes, long ones.
fn universe(rng: &mut ChaCha8Rng) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        vec![0, 0],
        vec![0xff],
        vec![0xff, 0xff],
        vec![0xff; 300],
        vec![0; 300],
        b"a".to_vec(),
        b"aa".to_vec(),
        b"aa\0".to_vec(),
        b"aa\xff".to_vec(),
        b"aaa".to_vec(),
        b"ab".to_vec(),
    ];
    for _ in 0..140 {
        let length = rng.random_range(1..6);
        keys.push((0..length).map(|_| b"\0ab\xff"[rng.random_range(0..4)]).collect());
    }
    keys
}

/// Counts over all runs, compared with floors.
#[derive(Debug, Default)]
struct Tested {
    operations: u64,
    lookups: u64,
    items: u64,
    reopened: u64,
    crashes: u64,
    restored: u64,
    probes: u64,
    memtables_denied: u64,
    true_negatives: u64,
    false_positives: u64,
    cache_hits: u64,
    rebuilt: u64,
    prefix_skips: u64,
    not_resident: u64,
    compactions: u64,
    flushes: u64,
    moved: u64,
    ingested: u64,
    expired_found: u64,
    expired_dropped: u64,
    expired_to_tombstones: u64,
    tables_expired: u64,
    /// Those at the ends of sessions.
    tables_compressed: u64,
    expired_writes: u64,
    probes_by_level: [u64; criba::LEVELS],
}

impl Tested {
    fn add(&mut self, stats: &Stats) {
        let total = stats.total();
        self.probes += total.probes();
        self.true_negatives += total.true_negatives;
        self.false_positives += total.false_positives;
        self.cache_hits += total.cache_hits;
        self.prefix_skips += stats.prefix.skipped;
        self.compactions += stats.activity.compactions;
        self.flushes += stats.activity.flushes;
        self.moved += stats.activity.tables_moved;
        self.ingested += stats.activity.tables_ingested;
        self.expired_found += total.expired;
        self.expired_dropped += stats.activity.expired_dropped;
        self.expired_to_tombstones += stats.activity.expired_to_tombstones;
        self.tables_expired += stats.activity.tables_expired;
        self.expired_writes += stats.activity.expired_writes;
        for (sum, level) in self.probes_by_level.iter_mut().zip(stats.levels) {
            *sum += level.probes();
        }
    }
}

struct Held {
    snapshot: Snapshot,
    map: Map,
}

struct Scan {
    range: Range,
    expected: VecDeque<(Vec<u8>, Vec<u8>)>,
}

struct Run {
    config: Config,
    rng: ChaCha8Rng,
    keys: Vec<Vec<u8>>,
    parent: tempfile::TempDir,
    path: PathBuf,
    copies: usize,
    db: Option<Db>,
    clock: Arc<ManualClock>,
    /// The time of the store: the latest that the clock has shown.
    time: Duration,
    /// Whether the store has, or had, expiring entries. Without them it records no time.
    has_expiries: bool,
    /// What has not expired.
    map: Map,
    /// The keys of the map that will expire.
    expiries: BTreeMap<Vec<u8>, Duration>,
    snapshots: Vec<Held>,
    scans: Vec<Scan>,
    /// The explained counts of lookups since the last opening, their hits and their misses.
    counted: Counts,
    hits: u64,
    misses: u64,
    by_memtable: u64,
    writes: u64,
    tested: Tested,
}

impl Run {
    fn new(config: Config) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        let keys = universe(&mut rng);
        let parent = common::tempdir();
        let path = parent.path().join("0");
        let clock = Arc::new(ManualClock::at(Duration::from_secs(1_700_000_000)));
        let db = config.options(&clock).open(&path).unwrap();
        Self {
            config,
            rng,
            keys,
            parent,
            path,
            copies: 0,
            db: Some(db),
            time: clock.now(),
            has_expiries: config.of_session.default_ttl.is_some(),
            clock,
            map: Map::new(),
            expiries: BTreeMap::new(),
            snapshots: Vec::new(),
            scans: Vec::new(),
            counted: Counts::default(),
            hits: 0,
            misses: 0,
            by_memtable: 0,
            writes: 0,
            tested: Tested::default(),
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn key(&mut self) -> Vec<u8> {
        // Now and then one that was never written.
        if self.rng.random_range(0..12) == 0 {
            return vec![b'a', self.rng.random(), self.rng.random()];
        }
        self.keys[self.rng.random_range(0..self.keys.len())].clone()
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.rng.random_range(0..40) {
            0 => 700, // larger than a block
            1 => 0,
            _ => self.rng.random_range(0..30),
        };
        self.writes += 1;
        let mut value = self.writes.to_le_bytes().to_vec();
        value.resize(length.max(usize::from(length > 0) * 8), 7);
        value
    }

    /// The expiry that a write takes which has none of its own.
    fn default_expiry(&self) -> Option<Duration> {
        self.config.of_session.default_ttl.map(|ttl| self.time + ttl)
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let expiry = self.default_expiry();
        self.set_until(key, value, expiry);
    }

    fn set_until(&mut self, key: Vec<u8>, value: Vec<u8>, expiry: Option<Duration>) {
        self.unset(&key);
        self.has_expiries |= expiry.is_some();
        if expiry.is_some_and(|expiry| expiry <= self.time) {
            return;
        }
        if let Some(expiry) = expiry {
            self.expiries.insert(key.clone(), expiry);
        }
        self.map.insert(key, value);
    }

    fn unset(&mut self, key: &[u8]) {
        self.map.remove(key);
        self.expiries.remove(key);
    }

    /// The clock goes on, or jumps in either direction, less than an hour back.
    fn tick(&mut self) {
        let step = Duration::from_millis(self.rng.random_range(0..20_000));
        match self.rng.random_range(0..20) {
            0 => self.clock.jump(self.clock.now() + 1000 * step),
            1 | 2 => self.clock.jump(self.time.saturating_sub(100 * step)),
            _ => self.clock.advance(step),
        }
        self.note_time();
    }

    fn note_time(&mut self) {
        // The store need not look at the clock before.
        assert_eq!(since_1970(self.db().now()), self.time.max(self.clock.now()));
        self.time = self.time.max(self.clock.now());
        let (map, time) = (&mut self.map, self.time);
        self.expiries.retain(|key, expiry| {
            if *expiry <= time {
                map.remove(key);
            }
            *expiry > time
        });
    }

    /// An expiry of its own: never, in the past, soon, or long after.
    fn expiry(&mut self) -> Option<Duration> {
        match self.rng.random_range(0..10) {
            0 => None,
            1 => {
                let past = Duration::from_millis(self.rng.random_range(0..5000));
                Some(self.time.saturating_sub(past))
            }
            2 => Some(self.time + Duration::from_secs(36_000_000)),
            _ => Some(self.time + Duration::from_millis(self.rng.random_range(1..50_000))),
        }
    }

    fn put(&mut self) {
        let (key, value) = (self.key(), self.value());
        if self.rng.random_bool(0.6) {
            self.db().put(&key, &value).unwrap();
            self.set(key, value);
        } else {
            let expiry = self.expiry();
            self.db().put_with_expiry(&key, &value, stored(expiry)).unwrap();
            self.set_until(key, value, expiry);
        }
    }

    fn delete(&mut self) {
        let key = self.key();
        self.db().delete(&key).unwrap();
        self.unset(&key);
    }

    fn batch(&mut self) {
        let mut batch = Batch::new();
        let few = self.rng.random_range(1..4); // few keys, so some come more than once
        let keys: Vec<_> = (0..few).map(|_| self.key()).collect();
        for _ in 0..self.rng.random_range(0..7) {
            let key = &keys[self.rng.random_range(0..keys.len())].clone();
            match self.rng.random_range(0..5) {
                0 | 1 => {
                    let value = self.value();
                    batch.put(key, &value);
                    self.set(key.clone(), value);
                }
                2 => {
                    let (value, expiry) = (self.value(), self.expiry());
                    batch.put_expiring(key, &value, stored(expiry));
                    self.set_until(key.clone(), value, expiry);
                }
                _ => {
                    batch.delete(key);
                    self.unset(key);
                }
            }
        }
        let synced = self.rng.random_bool(0.2);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        self.db().write_with(batch, durability).unwrap();
    }

    /// Adds the lookups of a call, which may look a key up twice if a flush comes between.
    fn note_all(&mut self, spent: &Stats) {
        let Activity { hits, misses, memtable_answers, .. } = spent.activity;
        self.counted += spent.total();
        self.hits += hits;
        self.misses += misses;
        self.by_memtable += memtable_answers;
        self.tested.lookups += hits + misses;
    }

    /// Some pairs in order; now and then one that is not, and then nothing changes.
    fn ingest(&mut self) {
        let mut pairs = Map::new();
        for _ in 0..self.rng.random_range(0..100) {
            let (key, value) = (self.key(), self.value());
            pairs.insert(key, value);
        }
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        let is_sorted = pairs.len() < 2 || self.rng.random_bool(0.9);
        if !is_sorted {
            let place = self.rng.random_range(1..pairs.len());
            pairs.swap(place - 1, place);
        }
        let own = self.rng.random_bool(0.5).then(|| self.expiry());
        let items = pairs.iter().cloned();
        let ingested = match own {
            None => self.db().ingest(items.map(Ok::<_, Error>)),
            Some(expiry) => {
                let items = items.map(|(key, value)| Ok::<_, Error>((key, value, stored(expiry))));
                self.db().ingest_expiring(items)
            }
        };
        if is_sorted {
            assert_eq!(ingested.unwrap(), pairs.len() as u64);
            let expiry = own.unwrap_or(self.default_expiry());
            for (key, value) in pairs {
                self.set_until(key, value, expiry);
            }
        } else {
            assert!(matches!(ingested, Err(Error::Unsorted { .. })), "{ingested:?}");
        }
    }

    fn insert_many(&mut self) {
        let few = self.rng.random_range(1..5); // few keys, so some come more than once
        let keys: Vec<_> = (0..few).map(|_| self.key()).collect();
        let pairs: Vec<_> = (0..self.rng.random_range(0..7))
            .map(|_| (keys[self.rng.random_range(0..keys.len())].clone(), self.value()))
            .collect();
        let before = self.db().stats();
        let inserted = self.db().insert_many_if_absent(pairs.clone()).unwrap();
        let spent = self.db().stats() - before;
        assert!(spent.activity.lookups >= pairs.len() as u64);
        self.note_all(&spent);
        let mut expected = Vec::new();
        for (key, value) in pairs {
            let absent = !self.map.contains_key(&key);
            if absent {
                self.set(key, value);
            }
            expected.push(absent);
        }
        assert_eq!(inserted, expected);
    }

    fn insert_until(&mut self) {
        let (key, value, expiry) = (self.key(), self.value(), self.expiry());
        let before = self.db().stats();
        let inserted = self.db().insert_if_absent_until(&key, &value, stored(expiry)).unwrap();
        self.note_all(&(self.db().stats() - before));
        assert_eq!(inserted, !self.map.contains_key(&key));
        if inserted {
            self.set_until(key, value, expiry);
        }
    }

    fn transact(&mut self) {
        let (read, key, value) = (self.key(), self.key(), self.value());
        let before = self.db().stats();
        let mut transaction = self.db().transaction();
        let found = transaction.get(&read).unwrap();
        assert_eq!(found.as_deref(), self.map.get(&read).map(Vec::as_slice));
        let own = self.rng.random_bool(0.5).then(|| self.expiry());
        match own {
            None => transaction.put(&key, &value),
            Some(expiry) => transaction.put_expiring(&key, &value, stored(expiry)),
        };
        let has_expired = own.flatten().is_some_and(|expiry| expiry <= self.time);
        assert_eq!(transaction.get(&key).unwrap().is_some(), !has_expired);
        if self.rng.random_bool(0.3) {
            // Expiry is no write: what was read may expire before the commit.
            self.tick();
        }
        transaction.commit(Durability::Buffered).unwrap();
        self.note_all(&(self.db().stats() - before));
        let expiry = own.unwrap_or(self.default_expiry());
        self.set_until(key, value, expiry);
    }

    fn compare_and_swap(&mut self) {
        let (key, new) = (self.key(), self.value());
        let new = self.rng.random_bool(0.7).then_some(new);
        let present = self.map.get(&key).cloned();
        let expected = if self.rng.random_bool(0.7) { present.clone() } else { Some(self.value()) };
        let before = self.db().stats();
        let made = self.db().compare_and_swap(&key, expected.as_deref(), new.as_deref()).unwrap();
        let spent = self.db().stats() - before;
        self.note_all(&spent);
        assert_eq!(made, expected == present);
        match new.filter(|_| made) {
            Some(new) => self.set(key, new),
            None if made => self.unset(&key),
            None => {}
        }
    }

    fn note(&mut self, found: bool, counts: Counts) {
        self.counted += counts;
        self.hits += u64::from(found);
        self.misses += u64::from(!found);
        self.tested.lookups += 1;
    }

    fn check_steps(&mut self, steps: &[Step], found: bool) {
        let mut probed = 0;
        let mut counts = Counts::default();
        for (number, step) in steps.iter().enumerate() {
            let last = number + 1 == steps.len();
            counts += Counts::from(step);
            if let Step::Memtable { filter, found, .. } = *step {
                assert!(filter != Verdict::No || found.is_none());
                assert_eq!(filter == Verdict::Unfiltered, self.config.filter == 4);
                self.tested.memtables_denied += u64::from(filter == Verdict::No);
            }
            match *step {
                Step::Memtable { found: Some(_), .. } => {
                    assert!(last);
                    self.by_memtable += 1;
                }
                Step::Table {
                    step: TableStep::Probed { verdict, block, outcome, .. },
                    level,
                    ..
                } => {
                    probed += 1;
                    assert!(level < criba::LEVELS);
                    let read = match outcome {
                        Outcome::TrueNegative => verdict == Verdict::No && block.is_none(),
                        Outcome::TruePositive | Outcome::FalsePositive => {
                            verdict == Verdict::Maybe && block.is_some()
                        }
                        Outcome::UnfilteredFound | Outcome::UnfilteredNotFound => {
                            self.tested.not_resident += u64::from(verdict == Verdict::NotResident);
                            let unfiltered = [Verdict::Unfiltered, Verdict::NotResident];
                            unfiltered.contains(&verdict) && block.is_some()
                        }
                        Outcome::Expired => !found && last && block.is_some(),
                        other => panic!("{other:?}"),
                    };
                    assert!(read, "{step:?}");
                    let holds = matches!(outcome, Outcome::TruePositive | Outcome::UnfilteredFound);
                    assert!(!(last && found) || holds, "found by the last step: {step:?}");
                    if self.config.filter == 3 || self.config.filter == 4 {
                        assert_eq!(verdict, Verdict::Unfiltered);
                    }
                    if self.config.cache == 0 {
                        assert!(block.is_none_or(|block| !block.from_cache));
                    }
                }
                _ => {}
            }
        }
        assert_eq!(counts.probes(), probed);
        assert_eq!(counts.cache_hits + counts.disk_reads, probed - counts.reads_avoided());
    }

    fn get(&mut self) {
        if self.rng.random_range(0..4) == 0 {
            return self.get_many();
        }
        let key = self.key();
        let expected = self.map.get(&key).cloned();
        let found = expected.is_some();
        match self.rng.random_range(0..3) {
            // A plain lookup adds to the totals what the same lookup explained before, if nothing runs
            // beside it and nothing is cached.
            0 if self.config.threads == 0 && self.config.cache == 0 => {
                let explained = self.db().explain(&key).unwrap();
                let before = self.db().stats();
                if self.rng.random_bool(0.5) {
                    assert_eq!(self.db().get(&key).unwrap().as_deref(), expected.as_deref());
                } else {
                    assert_eq!(self.db().contains(&key).unwrap(), found);
                }
                let (first, again) = (explained.counts(), (self.db().stats() - before).total());
                assert_eq!(again, first);
                self.note(found, first);
                self.note(found, again);
                let by_memtable = self.by_memtable;
                self.check_steps(&explained.steps, found);
                self.by_memtable += self.by_memtable - by_memtable;
            }
            _ => {
                let explained = self.db().explain(&key).unwrap();
                assert_eq!(explained.value.as_deref(), expected.as_deref(), "{key:?}");
                self.note(found, explained.counts());
                self.check_steps(&explained.steps, found);
            }
        }
    }

    /// On the store or a snapshot; more keys than are in flight at once, with repeats.
    fn get_many(&mut self) {
        let keys: Vec<_> = (0..self.rng.random_range(0..40)).map(|_| self.key()).collect();
        let held = self.snapshots.get(self.rng.random_range(0..8));
        let before = self.db().stats();
        let values = match held {
            Some(held) => held.snapshot.get_many(&keys),
            None => self.db().get_many(&keys),
        };
        let (values, spent) = (values.unwrap(), self.db().stats() - before);
        let map = held.map_or(&self.map, |held| &held.map);
        let expected: Vec<_> = keys.iter().map(|key| map.get(key).map(Vec::as_slice)).collect();
        let values: Vec<_> = values.iter().map(Option::as_deref).collect();
        assert_eq!(values, expected, "{keys:?}");
        let found = expected.iter().flatten().count() as u64;
        assert_eq!(spent.activity.lookups, keys.len() as u64);
        self.counted += spent.total();
        self.hits += found;
        self.misses += keys.len() as u64 - found;
        self.by_memtable += spent.activity.memtable_answers;
        self.tested.lookups += keys.len() as u64;
    }

    fn snapshot_get(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let key = self.key();
        let number = self.rng.random_range(0..self.snapshots.len());
        let held = &self.snapshots[number];
        let explained = held.snapshot.explain(&key).unwrap();
        assert_eq!(explained.value.as_deref(), held.map.get(&key).map(Vec::as_slice), "{key:?}");
        let found = explained.value.is_some();
        self.note(found, explained.counts());
        self.check_steps(&explained.steps, found);
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.rng.random_range(0..5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }

    /// Begins a scan of all keys, a range or a prefix, on the store or a snapshot.
    fn scan(&mut self) -> Scan {
        let held = (!self.snapshots.is_empty() && self.rng.random_bool(0.4))
            .then(|| self.rng.random_range(0..self.snapshots.len()));
        let by_prefix = self.rng.random_bool(0.3);
        let prefix = self.key();
        let prefix = prefix[..self.rng.random_range(0..=prefix.len().min(3))].to_vec();
        let bounds = (self.bound(), self.bound());
        let lies_within = |key: &[u8]| {
            let after = match &bounds.0 {
                Bound::Unbounded => true,
                Bound::Included(start) => key >= start.as_slice(),
                Bound::Excluded(start) => key > start.as_slice(),
            };
            let before = match &bounds.1 {
                Bound::Unbounded => true,
                Bound::Included(end) => key <= end.as_slice(),
                Bound::Excluded(end) => key < end.as_slice(),
            };
            if by_prefix { key.starts_with(&prefix) } else { after && before }
        };
        let map = held.map_or(&self.map, |number| &self.snapshots[number].map);
        let expected = map
            .iter()
            .filter(|(key, _)| lies_within(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let range = match (held, by_prefix) {
            (Some(number), true) => self.snapshots[number].snapshot.prefix(&prefix),
            (Some(number), false) => self.snapshots[number].snapshot.range(bounds),
            (None, true) => self.db().prefix(&prefix),
            (None, false) => self.db().range(bounds),
        };
        Scan { range, expected }
    }

    /// Takes up to `items` items of a scan, from the ends that `both` selects; returns whether it ended.
    fn advance(&mut self, scan: &mut Scan, items: usize, backward: f64) -> bool {
        for _ in 0..items {
            let (item, expected) = if self.rng.random_bool(backward) {
                (scan.range.next_back(), scan.expected.pop_back())
            } else {
                (scan.range.next(), scan.expected.pop_front())
            };
            let item = item.map(|item| item.unwrap());
            let item = item.map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(item, expected);
            self.tested.items += 1;
            if item.is_none() {
                assert!(scan.range.next().is_none() && scan.range.next_back().is_none());
                return true;
            }
        }
        false
    }

    /// All entries count once, so no key is left out; a part counts no more than the whole.
    fn estimate(&mut self) {
        let bounds = (self.bound(), self.bound());
        let db = self.db();
        let (before, part) =
            (db.approximate_len(..).unwrap(), db.approximate_len(&bounds).unwrap());
        assert!(before >= self.map.len() as u64, "{before} of {}", self.map.len());
        // A thread may merge entries meanwhile.
        assert!(self.config.threads > 0 || part <= before, "{bounds:?}: {part} of {before}");
    }

    /// The keys alone, and the first and last one, of the store or a snapshot.
    fn ends(&mut self) {
        fn check(reader: &impl Reader, map: &Map) {
            let pair = |item: Option<(Value, Value)>| {
                item.map(|(key, value)| (key.to_vec(), value.to_vec()))
            };
            let expected = |item: Option<(&Vec<u8>, &Vec<u8>)>| {
                item.map(|(key, value)| (key.clone(), value.clone()))
            };
            assert_eq!(pair(reader.first().unwrap()), expected(map.first_key_value()));
            assert_eq!(pair(reader.last().unwrap()), expected(map.last_key_value()));
            assert!(reader.keys().map(Result::unwrap).eq(map.keys()));
            assert!(reader.keys().rev().map(Result::unwrap).eq(map.keys().rev()));
        }
        match self.snapshots.get(self.rng.random_range(0..8)) {
            Some(held) => check(&held.snapshot, &held.map),
            None => check(self.db(), &self.map),
        }
        self.estimate();
    }

    fn scan_some(&mut self) {
        if self.rng.random_bool(0.2) {
            return self.ends();
        }
        let mut scan = self.scan();
        let backward = [0.0, 1.0, 0.5][self.rng.random_range(0..3)];
        if self.rng.random_bool(0.3) && self.scans.len() < 3 {
            self.advance(&mut scan, 3, backward);
            self.scans.push(scan); // to go on with later, when much has changed
        } else {
            let items = if self.rng.random_bool(0.3) { usize::MAX } else { 10 };
            self.advance(&mut scan, items, backward);
        }
    }

    fn go_on_scanning(&mut self) {
        if let Some(mut scan) = self.scans.pop()
            && !self.advance(&mut scan, 5, 0.5)
        {
            self.scans.insert(0, scan);
        }
    }

    /// The sum of all lookups' explained counts is in the statistics.
    fn check_ledger(&mut self) {
        let stats = self.db().stats();
        assert_eq!(stats.total(), self.counted);
        assert_eq!(stats.activity.lookups, self.hits + self.misses);
        assert_eq!((stats.activity.hits, stats.activity.misses), (self.hits, self.misses));
        assert_eq!(stats.activity.memtable_answers, self.by_memtable);
        let live: Counts = self.db().tables().iter().map(|table| table.counts).sum();
        assert!(live.probes() <= stats.total().probes());
    }

    fn end_session(&mut self) {
        self.check_ledger();
        self.tested.add(&self.db().stats());
        let compressed = |table: &TableInfo| table.data_bytes < table.contents_bytes;
        self.tested.tables_compressed +=
            self.db().tables().iter().filter(|table| compressed(table)).count() as u64;
        self.snapshots.clear();
        self.scans.clear();
        (self.counted, self.hits, self.misses) = (Counts::default(), 0, 0);
        self.by_memtable = 0;
    }

    fn begin_session(&mut self) {
        self.config.of_session = Session::draw(&mut self.rng);
        let db = self.config.options(&self.clock).open(&self.path).unwrap();
        assert_eq!(db.recovery().lost_tail, None);
        assert_eq!(db.recovery().lost_edit, None);
        self.db = Some(db);
        self.has_expiries |= self.config.of_session.default_ttl.is_some();
        if !self.has_expiries {
            self.time = self.clock.now();
        }
        self.note_time();
        self.check_all();
    }

    fn reopen(&mut self) {
        self.end_session();
        let db = self.db.take().unwrap();
        if self.rng.random_bool(0.5) {
            db.close().unwrap();
        } else {
            drop(db);
        }
        self.begin_session();
        self.tested.reopened += 1;
    }

    /// A crash: another process opens the directory without a close.
    fn crash(&mut self) {
        if self.config.threads > 0 {
            self.db().wait_until_settled().unwrap(); // so that nothing changes during the copy
        }
        for _ in 0..3 {
            let key = self.key();
            self.db().put(&key, b"small").unwrap(); // too little for another flush
            self.set(key, b"small".to_vec());
            self.delete();
        }
        self.copies += 1;
        let copy = self.parent.path().join(self.copies.to_string());
        common::copy_dir(&self.path, &copy);
        self.end_session();
        self.db = None;
        // The time since the last edit of the manifest is lost.
        self.clock.jump(self.clock.now().max(self.time));
        std::fs::remove_dir_all(&self.path).unwrap();
        self.path = copy;
        self.begin_session();
        assert!(self.db().recovery().changes > 0);
        self.tested.crashes += 1;
    }

    /// The store is lost, and goes on as its checkpoint.
    fn restore(&mut self) {
        self.copies += 1;
        let copy = self.parent.path().join(self.copies.to_string());
        self.db().checkpoint(&copy).unwrap();
        self.end_session();
        self.db = None;
        std::fs::remove_dir_all(&self.path).unwrap();
        self.path = copy;
        self.begin_session();
        self.tested.restored += 1;
    }

    fn check_all(&mut self) {
        let found: Vec<(Vec<u8>, Vec<u8>)> = self
            .db()
            .iter()
            .map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
            .collect();
        let expected: Vec<_> =
            self.map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_eq!(found, expected);
    }

    fn step(&mut self) {
        self.tested.operations += 1;
        match self.rng.random_range(0..1000) {
            0..320 => self.put(),
            320..330 => self.ingest(),
            330..380 => self.tick(),
            380..450 => self.delete(),
            450..500 => self.batch(),
            500..510 => self.insert_many(),
            510..515 => self.insert_until(),
            515..525 => self.compare_and_swap(),
            525..530 => self.transact(),
            530..740 => self.get(),
            740..810 => self.snapshot_get(),
            810..890 => self.scan_some(),
            890..930 => self.go_on_scanning(),
            930..945 if self.snapshots.len() < 4 => {
                let snapshot = self.db().snapshot();
                self.snapshots.push(Held { snapshot, map: self.map.clone() });
            }
            930..955 if !self.snapshots.is_empty() => {
                let number = self.rng.random_range(0..self.snapshots.len());
                self.snapshots.swap_remove(number);
            }
            955..970 => self.db().flush().unwrap(),
            970..974 => self.db().compact().unwrap(),
            974..980 => self.db().wait_until_settled().unwrap(),
            980..984 => self.reopen(),
            984..988 => self.crash(),
            988 => self.db().sync().unwrap(),
            989 => self.restore(),
            990..994 if self.config.filter != 3 => {
                let policies = [
                    FilterPolicy::ribbon(),
                    FilterPolicy::classic(),
                    FilterPolicy::bits_per_key(2.0),
                    FilterPolicy::default().with_total_bytes(200),
                    FilterPolicy::none(),
                ];
                let policy = policies[self.rng.random_range(0..policies.len())];
                self.tested.rebuilt += self.db().rebuild_filters(&policy).unwrap().rebuilt;
            }
            994..997 => {
                let budget = draw_budget(&mut self.rng);
                self.db().set_filter_memory(budget).unwrap();
            }
            _ => self.check_ledger(),
        }
    }
}

fn stored(expiry: Option<Duration>) -> Expiry {
    expiry.map_or(Expiry::Never, |expiry| Expiry::At(SystemTime::UNIX_EPOCH + expiry))
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

fn run(config: Config, operations: usize) -> Tested {
    let mut run = Run::new(config);
    let mut number = 0;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        while number < operations {
            run.step();
            number += 1;
        }
        run.check_all();
        run.reopen();
        run.end_session();
    }));
    if let Err(panic) = outcome {
        println!("failed at operation {number} of {config:?}");
        std::panic::resume_unwind(panic);
    }
    run.tested
}

fn matrix(threads: usize) {
    // MODEL_OPERATIONS=20000 for a long one.
    let usual = if common::is_full() { 700 } else { 300 };
    let operations =
        std::env::var("MODEL_OPERATIONS").map_or(usual, |number| number.parse().unwrap());
    let mut sum = Tested::default();
    let mut runs = 0;
    for filter in 0..FILTERS {
        for cache in [0, 8192] {
            for (max_open_files, auto_compaction) in [(0, true), (1, false), (1000, true)] {
                let seed = 1000 * threads as u64 + runs;
                let of_session = Session::draw(&mut ChaCha8Rng::seed_from_u64(seed));
                let config = Config {
                    threads,
                    cache,
                    filter,
                    max_open_files,
                    auto_compaction,
                    seed,
                    of_session,
                };
                let tested = run(config, operations);
                sum.operations += tested.operations;
                sum.lookups += tested.lookups;
                sum.items += tested.items;
                sum.reopened += tested.reopened;
                sum.crashes += tested.crashes;
                sum.restored += tested.restored;
                sum.probes += tested.probes;
                sum.memtables_denied += tested.memtables_denied;
                sum.true_negatives += tested.true_negatives;
                sum.false_positives += tested.false_positives;
                sum.cache_hits += tested.cache_hits;
                sum.compactions += tested.compactions;
                sum.rebuilt += tested.rebuilt;
                sum.prefix_skips += tested.prefix_skips;
                sum.not_resident += tested.not_resident;
                sum.flushes += tested.flushes;
                sum.moved += tested.moved;
                sum.ingested += tested.ingested;
                sum.expired_found += tested.expired_found;
                sum.expired_dropped += tested.expired_dropped;
                sum.expired_to_tombstones += tested.expired_to_tombstones;
                sum.tables_expired += tested.tables_expired;
                sum.tables_compressed += tested.tables_compressed;
                sum.expired_writes += tested.expired_writes;
                for (sum, level) in sum.probes_by_level.iter_mut().zip(tested.probes_by_level) {
                    *sum += level;
                }
                runs += 1;
            }
        }
    }
    println!("{threads} background threads, seeds from {}, {runs} runs: {sum:?}", 1000 * threads);
    assert!(sum.ingested > 100, "{}", sum.ingested);
    assert!(
        sum.expired_found > 100 && sum.expired_dropped > 100 && sum.expired_to_tombstones > 100
    );
    assert!(sum.expired_writes > 100 && sum.tables_expired > 0);
    assert!(sum.tables_compressed > 20, "{}", sum.tables_compressed);
    if operations < 700 {
        assert!(sum.true_negatives > 500 && sum.rebuilt > 20 && sum.crashes > 10);
        return;
    }
    assert!(sum.true_negatives > 500 && sum.false_positives > 50 && sum.cache_hits > 500);
    assert!(sum.memtables_denied > 500);
    assert!(sum.prefix_skips > 25 && sum.not_resident > 100);
    assert!(sum.rebuilt > 200 && sum.compactions > 100 && sum.flushes > 500 && sum.crashes > 20);
    assert!(sum.restored > 5, "{}", sum.restored);
    let levels = sum.probes_by_level.iter().filter(|&&probes| probes > 100).count();
    assert!(levels >= 3, "only {levels} levels were probed");
}

#[test]
fn a_store_without_threads_answers_as_a_map_does() {
    matrix(0);
}

#[test]
fn a_store_with_one_thread_answers_as_a_map_does() {
    matrix(1);
}

#[test]
fn a_store_with_two_threads_answers_as_a_map_does() {
    matrix(2);
}
