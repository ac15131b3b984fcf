//! A block list that arrives sorted each night, and is ingested while two threads look up names.
//!
//! `cargo run --release --example block_list [NAMES]`

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Instant;

use criba::{Db, Options, Reader};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A name's hash of 16 bytes; no two numbers have the same one.
fn hash(number: u64) -> [u8; 16] {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let first = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (u128::from(first) << 64 | u128::from(mixed)).to_be_bytes()
}

/// The list of a night, in ascending order. A tenth is new each night. Names with odd numbers are never listed.
fn list(night: u8, names: u64) -> Vec<[u8; 16]> {
    let first = u64::from(night) * names / 10;
    let mut list: Vec<_> = (first..first + names).map(|number| hash(2 * number)).collect();
    list.sort_unstable();
    list
}

/// The night of the newest list with this name. An ingest deletes nothing: a name that left the list keeps its night.
fn night_of(reader: &impl Reader, name: &[u8]) -> Result<Option<u8>> {
    Ok(reader.get(name)?.map(|value| value[0]))
}

/// Looks up names until the end. Returns the number of lookups.
fn look_up(db: &Db, list: &[[u8; 16]], night: u8, end: &AtomicBool) -> Result<u64> {
    let mut lookups = 0;
    while !end.load(Ordering::Relaxed) {
        assert_eq!(night_of(db, &hash(2 * lookups + 1))?, None, "never listed");
        // A snapshot sees all of the list, or nothing.
        let snapshot = db.snapshot();
        let first = night_of(&snapshot, &list[0])? == Some(night);
        let last = night_of(&snapshot, &list[list.len() - 1])? == Some(night);
        assert_eq!(first, last);
        lookups += 3;
    }
    Ok(lookups)
}

fn main() -> Result<()> {
    let names: u64 = std::env::args().nth(1).map_or(Ok(200_000), |names| names.parse())?;
    let parent = tempfile::tempdir()?;
    // Without a cache, so that each search of a block is a disk read.
    let db = Options::new().cache_bytes(0).open(parent.path().join("store"))?;
    for night in 1..=2 {
        let list = list(night, names);
        let (before, began, end) = (db.stats(), Instant::now(), AtomicBool::new(false));
        let (count, seconds, lookups) = scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(|| look_up(&db, &list, night, &end)));
            let count = db.ingest(list.iter().map(|name| criba::Result::Ok((name, [night]))));
            let seconds = began.elapsed().as_secs_f64();
            end.store(true, Ordering::Relaxed);
            let lookups = threads.map(|thread| thread.join().expect("no panic"));
            (count, seconds, lookups)
        });
        let (after, [one, two]) = (db.stats(), lookups);
        let tables = after.activity.tables_ingested - before.activity.tables_ingested;
        let bytes = after.table_writes.bytes - before.table_writes.bytes;
        println!("night {night}: {} names in {seconds:.2} s", count?);
        println!("  tables: {tables}; bytes written: {bytes}; lookups meanwhile: {}", one? + two?);
        assert_eq!(after.wal_writes.bytes, before.wal_writes.bytes, "not through the log");
        for name in &list {
            assert_eq!(night_of(&db, name)?, Some(night));
        }
    }
    let before = db.stats().total().disk_reads;
    for number in 0..names {
        assert_eq!(night_of(&db, &hash(2 * number + 1))?, None);
    }
    let reads = (db.stats().total().disk_reads - before) as f64 / names as f64;
    println!("disk reads per lookup of a name that is not listed: {reads:.4}");
    assert!(reads < 0.1, "filters answer nearly all");
    Ok(db.close()?)
}
