//! Ten million keys of 16 bytes with values of 100 bytes: load, settle, reopen, look up a million
//! present and a million absent keys, and print what it took, the process's peak memory included.
//!
//! `cargo run --release --example ten_million [KEYS]`; needs about 3 GB of disk for the default.

use std::error::Error;
use std::time::Instant;

use criba::{Batch, Db};

const LOOKUPS: u64 = 1_000_000;
const BATCH: u64 = 1_000;

/// The i-th key, in an order that looks random; no two are equal, since both steps can be undone.
/// Odd numbers are never loaded, so they are absent keys within the range of the present ones.
fn key(i: u64) -> [u8; 16] {
    let mixed = (i ^ (i >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut key = *b"................";
    key[..8].copy_from_slice(&(mixed ^ (mixed >> 29)).to_be_bytes());
    key
}

fn value(i: u64) -> [u8; 100] {
    let mut value = [b'v'; 100];
    value[..8].copy_from_slice(&i.to_le_bytes());
    value
}

fn main() -> Result<(), Box<dyn Error>> {
    let keys: u64 = std::env::args().nth(1).map_or(Ok(10_000_000), |keys| keys.parse())?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");

    let begin = Instant::now();
    let db = Db::open(&path)?;
    for first in (0..keys).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(keys);
        db.write(numbers.map(|i| (key(2 * i), value(i))).collect::<Batch>())?;
    }
    println!("loaded   {keys} keys in {:.1} s", begin.elapsed().as_secs_f64());
    db.wait_until_settled()?;
    let stats = db.stats();
    println!("settled  after {:.1} s in all", begin.elapsed().as_secs_f64());
    println!(
        "         {} flushes, {} compactions, {} MB of tables written",
        stats.activity.flushes,
        stats.activity.compactions,
        stats.table_writes.bytes / 1_000_000
    );
    db.close()?;

    let begin = Instant::now();
    let db = Db::open(&path)?;
    let tables = db.tables();
    let filter_bytes: usize = tables.iter().map(|table| table.filter.bytes()).sum();
    println!(
        "reopened {} tables with {:.1} MB of filters in {:.2} s",
        tables.len(),
        filter_bytes as f64 / 1e6,
        begin.elapsed().as_secs_f64()
    );

    let lookups = LOOKUPS.min(keys);
    let stride = keys / lookups;
    let mut wrong = 0;
    for (what, odd) in [("present", 0), ("absent ", 1)] {
        let before = db.stats();
        let begin = Instant::now();
        for i in (0..keys).step_by(stride as usize).take(lookups as usize) {
            let found = db.get(key(2 * i + odd))?;
            let expected = (odd == 0).then(|| value(i));
            wrong += u64::from(found.as_deref() != expected.as_ref().map(<[u8; 100]>::as_slice));
        }
        let seconds = begin.elapsed().as_secs_f64();
        let counts = (db.stats() - before).total();
        println!(
            "{what}  {lookups} lookups in {seconds:.2} s: {} disk reads, {} cache hits, {} reads avoided",
            counts.disk_reads,
            counts.cache_hits,
            counts.reads_avoided()
        );
    }
    println!("wrong answers: {wrong}");
    match peak_memory_mib() {
        Some(peak) => println!("peak memory: {peak} MiB"),
        None => println!("peak memory: unknown (no /proc/self/status)"),
    }
    if wrong > 0 { Err("some answers were wrong".into()) } else { Ok(()) }
}

/// The most memory that the process ever had resident.
fn peak_memory_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}
