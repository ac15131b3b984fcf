//! The seen-set of a crawler: threads insert keys that may be present, and each key is new for one thread.
//!
//! `cargo run --release --no-default-features --bin insertions -- [--checks N] [--repetitions N] [--synced]`
//! runs criba, fjall and redb in turns, and appends lines of JSON. `cargo run --release -- table` prints them as
//! Markdown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::scope;
use std::time::Instant;

use clap::Parser;
use criba::{Db, Durability};
use fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode,
    SingleWriterTxDatabase, SingleWriterTxKeyspace, UserValue,
};
use redb::{Database, ReadableTable, TableDefinition};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

#[path = "../lines.rs"]
mod lines;
#[path = "../machine.rs"]
mod machine;

use lines::Line;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const THREADS: usize = 4;
const BATCH: usize = 64;
const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("keys");

#[derive(Parser)]
struct Arguments {
    /// Checks of one run; two of five are of new keys.
    #[arg(long, default_value_t = 2_000_000)]
    checks: usize,
    #[arg(long, default_value_t = 5)]
    repetitions: u32,
    /// For fjall and redb one by one, which take long: one of this many checks.
    #[arg(long, default_value_t = 1)]
    fewer: usize,
    /// Every insertion survives a power failure; else, a crash of the process (redb: neither).
    #[arg(long)]
    synced: bool,
    /// The file of results, which are appended.
    #[arg(long, default_value = "results/insertions.jsonl")]
    out: PathBuf,
}

/// What is measured: checks of so many keys of one call.
#[derive(Serialize)]
struct Job {
    store: &'static str,
    setting: &'static str,
    version: String,
    workload: String,
    repetition: u32,
    n: usize,
}

#[derive(Serialize)]
struct Findings {
    figures: BTreeMap<&'static str, f64>,
}

/// A store that threads insert into. Returns which keys were absent.
trait SeenSet: Sync {
    fn insert(&self, keys: &[[u8; 16]]) -> Result<Vec<bool>>;
}

struct Criba(Db, Durability);

impl SeenSet for Criba {
    fn insert(&self, keys: &[[u8; 16]]) -> Result<Vec<bool>> {
        let Self(db, durability) = self;
        if let [key] = keys {
            return Ok(vec![db.insert_if_absent_with(key, "", *durability)?]);
        }
        Ok(db.insert_many_if_absent_with(keys.iter().map(|key| (key, "")), *durability)?)
    }
}

fn if_absent(old: Option<&UserValue>) -> UserValue {
    old.cloned().unwrap_or_else(|| UserValue::from(&b""[..]))
}

/// Detects conflicts of concurrent transactions; each key has one.
struct Fjall(OptimisticTxDatabase, OptimisticTxKeyspace, bool);

impl SeenSet for Fjall {
    fn insert(&self, keys: &[[u8; 16]]) -> Result<Vec<bool>> {
        let Self(database, keyspace, synced) = self;
        let mut new = Vec::new();
        for key in keys {
            new.push(keyspace.fetch_update(&key[..], |old| Some(if_absent(old)))?.is_none());
        }
        if *synced {
            database.persist(PersistMode::SyncData)?;
        }
        Ok(new)
    }
}

/// Transactions exclude one another; all keys have one.
struct FjallSingle(SingleWriterTxDatabase, SingleWriterTxKeyspace, bool);

impl SeenSet for FjallSingle {
    fn insert(&self, keys: &[[u8; 16]]) -> Result<Vec<bool>> {
        let Self(database, keyspace, synced) = self;
        let mut transaction = database.write_tx();
        let mut new = Vec::new();
        for key in keys {
            new.push(
                transaction.fetch_update(keyspace, &key[..], |old| Some(if_absent(old)))?.is_none(),
            );
        }
        transaction.commit()?;
        if *synced {
            database.persist(PersistMode::SyncData)?;
        }
        Ok(new)
    }
}

struct Redb(Database, redb::Durability);

impl SeenSet for Redb {
    fn insert(&self, keys: &[[u8; 16]]) -> Result<Vec<bool>> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(self.1)?;
        let mut table = transaction.open_table(TABLE)?;
        let mut new = Vec::new();
        for key in keys {
            let absent = table.get(&key[..])?.is_none();
            if absent {
                table.insert(&key[..], &b""[..])?;
            }
            new.push(absent);
        }
        drop(table);
        transaction.commit()?;
        Ok(new)
    }
}

fn open(store: &str, kind: &str, dir: &Path, synced: bool) -> Result<Box<dyn SeenSet>> {
    Ok(match (store, kind) {
        ("criba", _) => {
            let durability = if synced { Durability::Synced } else { Durability::Buffered };
            Box::new(Criba(Db::open(dir)?, durability))
        }
        ("fjall", "optimistic") => {
            let database = OptimisticTxDatabase::builder(dir).open()?;
            let keyspace = database.keyspace("keys", KeyspaceCreateOptions::default)?;
            Box::new(Fjall(database, keyspace, synced))
        }
        ("fjall", _) => {
            let database = SingleWriterTxDatabase::builder(dir).open()?;
            let keyspace = database.keyspace("keys", KeyspaceCreateOptions::default)?;
            Box::new(FjallSingle(database, keyspace, synced))
        }
        _ => {
            let durability =
                if synced { redb::Durability::Immediate } else { redb::Durability::None };
            let database = Database::create(dir)?;
            let first = database.begin_write()?;
            first.open_table(TABLE)?;
            first.commit()?;
            Box::new(Redb(database, durability))
        }
    })
}

/// SplitMix64: a bijection, so distinct numbers are distinct keys.
fn key(number: usize) -> [u8; 16] {
    let mut z = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&(z ^ (z >> 31)).to_be_bytes());
    key
}

/// In the order of the turns: a store, its transactions if it has several kinds, and the keys of one call.
const TURNS: [(&str, &str, usize); 7] = [
    ("criba", "", 1),
    ("fjall", "optimistic", 1),
    ("fjall", "single-writer", 1),
    ("redb", "", 1),
    ("criba", "", BATCH),
    ("fjall", "single-writer", BATCH),
    ("redb", "", BATCH),
];

fn version(store: &str) -> String {
    match store {
        "criba" => machine::criba_version(),
        "fjall" => env!("VERSION_FJALL").to_owned(),
        _ => env!("VERSION_REDB").to_owned(),
    }
}

/// Checks per second, and processor time per check in microseconds. Every key must have one winner.
fn run(store: &dyn SeenSet, checks: usize, batch: usize) -> Result<[f64; 2]> {
    let keys = checks * 2 / 5;
    let wins: Vec<AtomicU8> = (0..keys).map(|_| AtomicU8::new(0)).collect();
    // The first checks are of all keys, the others of random ones.
    let number = |check: usize| {
        let z = (check as u64 ^ 0x5EED).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if check < keys { check } else { ((u128::from(z) * keys as u128) >> 64) as usize }
    };
    let (begin, before) = (Instant::now(), processor_seconds());
    scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (wins, number) = (&wins, &number);
                scope.spawn(move || -> Result<()> {
                    let mut numbers = Vec::with_capacity(batch);
                    let mut bytes = Vec::with_capacity(batch);
                    // New keys and repeats alternate, and the threads take turns.
                    let mine = (thread..checks).step_by(THREADS);
                    let order = mine.map(|check| {
                        let (group, place) = (check / 5, check % 5);
                        if place < 2 { group * 2 + place } else { keys + group * 3 + place - 2 }
                    });
                    let mut order = order.filter(|check| *check < checks).map(number).peekable();
                    while order.peek().is_some() {
                        numbers.clear();
                        numbers.extend(order.by_ref().take(batch));
                        bytes.clear();
                        bytes.extend(numbers.iter().map(|number| key(*number)));
                        for (number, new) in numbers.iter().zip(store.insert(&bytes)?) {
                            wins[*number].fetch_add(u8::from(new), Ordering::Relaxed);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let (seconds, processor) = (begin.elapsed().as_secs_f64(), processor_seconds() - before);
    let lost = wins.iter().filter(|wins| wins.load(Ordering::Relaxed) != 1).count();
    assert_eq!(lost, 0, "keys without one winner");
    Ok([checks as f64 / seconds, processor / checks as f64 * 1e6])
}

/// Of all threads of this process. Other load of the machine changes it less than the time on a clock.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<()> {
    let Arguments { checks, repetitions, fewer, synced, out } = Arguments::parse();
    let durability = if synced { "synced" } else { "buffered" };
    for repetition in 1..=repetitions {
        for (store, kind, batch) in TURNS {
            let checks = if store == "criba" || batch > 1 { checks } else { checks / fewer };
            let n = checks - checks % 20;
            let dir = tempfile::tempdir()?;
            let opened = open(store, kind, &dir.path().join("store"), synced)?;
            let [rate, time] = run(opened.as_ref(), n, batch)?;
            println!(
                "{repetition}: {batch:2} at once, {store} {kind}: {rate:.0} per second, {time:.2} µs"
            );
            let workload = format!("insertions-{batch}-{durability}");
            let job =
                Job { store, setting: kind, version: version(store), workload, repetition, n };
            let figures = BTreeMap::from([("checks_per_s", rate), ("check_cpu_us", time)]);
            Line::now(job, Findings { figures })?.append(&out)?;
        }
    }
    Ok(())
}
