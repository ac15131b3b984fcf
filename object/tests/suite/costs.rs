//! The requests that a call makes, as the README's table has them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criba_object::object_store::memory::InMemory;
use criba_object::{Options, Purpose, open, open_reader};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::bucket::{Client, Fate, key, options, store};

/// Compacting a gibibyte takes at most 300 GETs. This is a sixteenth of it: at most 18, and one more for the end of each
/// table. A scan has shorter requests at the beginning of each.
#[test]
fn a_compaction_and_a_scan_of_64_mib_make_a_request_for_each_4_mib() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let client = Client::new(&bucket, Fate::Works);
    let store_options = criba::Options::new().background_threads(0).cache_bytes(0);
    let options = options().store(store_options).local_bytes(0);
    let writer = open(client.store(), dir.path().join("a"), options).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for number in 0..64 {
        let mut batch = criba::Batch::new();
        for part in 0..256 {
            let mut value = vec![0; 4096];
            random.fill(&mut value[..]);
            batch.put(key(number * 256 + part), value);
        }
        writer.write(batch).unwrap();
    }
    writer.compact().unwrap();
    writer.put(key(7), "another value").unwrap();
    writer.sync_remote().unwrap();
    assert!(writer.tables().iter().map(|table| table.data_bytes).sum::<u64>() > 64 << 20);
    let tables = writer.tables().len() as u64;
    let before = client.gets();
    assert_eq!(writer.iter().count(), 64 * 256);
    let gets = client.gets() - before;
    println!("{gets} GETs of a scan of {tables} tables");
    assert!((16..=16 + 4 * tables).contains(&gets), "{gets} GETs of a scan of {tables} tables");
    let before = client.gets();
    writer.compact().unwrap();
    let gets = client.gets() - before;
    println!("{gets} GETs of a compaction");
    assert!((16..=18 + tables).contains(&gets), "{gets} GETs of a compaction of {tables} tables");
    assert_eq!(writer.get(key(7)).unwrap().unwrap(), "another value");
}

/// A bucket of a store with several levels: even numbers are present. Tables have default filters.
fn filled(dir: &Path, keys: u64) -> Arc<InMemory> {
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), dir.join("writer"), levels()).unwrap();
    for number in 0..keys {
        writer.put(key(number * 7919 % keys * 2), [7; 100]).unwrap();
    }
    writer.sync_remote().unwrap();
    let levels: Vec<usize> = writer.tables().iter().map(|table| table.level).collect();
    assert!(levels.iter().max() > levels.iter().min(), "{levels:?}");
    bucket
}

fn levels() -> Options {
    let store = criba::Options::new().background_threads(0).memtable_bytes(512 << 10);
    options().store(store.table_bytes(512 << 10).cache_bytes(0))
}

#[test]
fn a_cold_present_key_takes_102_gets_in_a_hundred_lookups() {
    const KEYS: u64 = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path(), KEYS);
    let client = Client::new(&bucket, Fate::Works);
    let reader = open_reader(client.store(), dir.path().join("reader"), levels()).unwrap();
    let before = client.gets();
    for number in 0..KEYS {
        assert!(reader.get(key(number * 2)).unwrap().is_some(), "{number}");
    }
    let gets = client.gets() - before;
    println!("{:.4} GETs for a lookup", gets as f64 / KEYS as f64);
    assert!((KEYS * 9 / 10..=KEYS * 102 / 100).contains(&gets), "{gets} GETs for {KEYS} lookups");
}

#[test]
fn an_empty_machine_opens_in_three_round_trips_and_then_denies_without_requests() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path(), 40_000);
    let local = dir.path().join("reader");
    for round in 0..2 {
        // All requests that wait at the same time are one round trip.
        let client = Client::with_latency(&bucket, Duration::from_millis(300));
        let reader = open_reader(client.store(), &local, levels()).unwrap();
        let tables = reader.tables().len() as u64;
        assert!((4..=16).contains(&tables), "{tables}");
        assert_eq!((client.depth(), client.requests()), (3, tables + 2), "round {round}");
        // The first lookups: a request for each false positive, and no other.
        for number in 0..500 {
            assert_eq!(reader.get(key(number * 2 + 1)).unwrap(), None);
        }
        let gets = client.requests() - tables - 2;
        println!("{gets} GETs for 500 absent keys");
        assert_eq!(gets, reader.requests(Purpose::Blocks).requests);
        assert!(gets <= 25, "{gets} GETs for 500 absent keys");
        drop(reader);
        std::fs::remove_dir_all(&local).unwrap();
    }
}
