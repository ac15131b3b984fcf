//! What readers see, and the requests that they make.

use std::sync::Arc;
use std::time::Duration;

use criba_object::object_store::memory::InMemory;
use criba_object::{Error, Purpose, open, open_reader};

use crate::bucket::{Client, Fate, key, options, store};

const KEYS: u64 = 5000;

/// A bucket with `KEYS` keys in several tables, all even numbers, and the writer's directory.
fn filled(dir: &std::path::Path) -> Arc<InMemory> {
    let bucket = Arc::new(InMemory::new());
    let client = Client::new(&bucket, Fate::Works);
    let writer = open(client.store(), dir.join("writer"), options()).unwrap();
    for number in 0..KEYS {
        writer.put(key(2 * number), vec![b'v'; 100]).unwrap();
    }
    writer.compact().unwrap();
    writer.sync_remote().unwrap();
    writer.close().unwrap();
    bucket
}

#[test]
fn requests_of_lookups_are_the_disk_reads_of_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path());
    let client = Client::new(&bucket, Fate::Works);
    let reader = open_reader(client.store(), dir.path().join("reader"), options()).unwrap();
    assert!(reader.tables().len() > 3, "{:?}", reader.tables().len());
    let at_start = client.gets();
    for number in 0..2000 {
        // Even numbers are present, odd ones absent.
        let number = number * 7919 % (2 * KEYS);
        let found = reader.get(key(number)).unwrap();
        assert_eq!(found.is_some(), number.is_multiple_of(2), "{number}");
    }
    let stats = reader.stats();
    let reads = stats.total().disk_reads;
    assert!(reads > 1000, "{reads}");
    assert_eq!(client.gets() - at_start, reads);
    assert_eq!(reader.requests(Purpose::Blocks).requests, reads);
    assert_eq!(reader.requests(Purpose::Ranges).requests, 0);
    // A reader whose directory is emptied opens in three round trips, and one that has the tails in two.
    drop(reader);
    let client = Client::new(&bucket, Fate::Works);
    let reader = open_reader(client.store(), dir.path().join("reader"), options()).unwrap();
    assert_eq!(client.requests(), 2, "the listing and the manifest");
    drop(reader);
}

#[test]
fn a_refresh_without_news_is_one_request_and_shows_whole_versions() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path());
    let writer =
        open(Client::new(&bucket, Fate::Works).store(), dir.path().join("writer"), options())
            .unwrap();
    let client = Client::new(&bucket, Fate::Works);
    let reader = open_reader(client.store(), dir.path().join("reader"), options()).unwrap();
    let before = client.requests();
    assert!(!reader.refresh().unwrap());
    assert_eq!(client.requests() - before, 1);
    let snapshot = reader.snapshot();
    writer.put("new", "1").unwrap();
    writer.delete(key(0)).unwrap();
    assert!(!reader.refresh().unwrap(), "not published");
    writer.sync_remote().unwrap();
    assert_eq!(reader.get("new").unwrap(), None, "not refreshed");
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.get("new").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(reader.get(key(0)).unwrap(), None);
    assert_eq!(snapshot.get("new").unwrap(), None);
    assert!(snapshot.get(key(0)).unwrap().is_some());
    assert_eq!(reader.iter().count() as u64, KEYS);
    // Nothing was changed: no request but the one that finds it out.
    let published = writer.publications().manifest;
    writer.sync_remote().unwrap();
    assert_eq!(writer.publications().manifest, published);
}

#[test]
fn tables_leave_the_local_disk_and_are_read_compacted_and_scanned_from_the_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path());
    let client = Client::new(&bucket, Fate::Works);
    let local = dir.path().join("writer");
    let writer = open(client.store(), &local, options().local_bytes(0)).unwrap();
    writer.put("one more", "").unwrap();
    writer.sync_remote().unwrap();
    let names = |end: &str| {
        let files = std::fs::read_dir(local.join("store")).unwrap();
        files
            .filter(|file| file.as_ref().unwrap().file_name().to_str().unwrap().ends_with(end))
            .count()
    };
    assert_eq!((names(".sst"), names(".stub")), (0, writer.tables().len()));
    for number in 0..200 {
        assert_eq!(writer.get(key(number)).unwrap().is_some(), number % 2 == 0);
    }
    assert_eq!(writer.requests(Purpose::Blocks).requests, writer.stats().total().disk_reads);
    let ranges = || writer.requests(Purpose::Ranges).requests;
    let blocks = writer.requests(Purpose::Blocks).requests;
    assert_eq!(writer.iter().count() as u64, KEYS + 1);
    let blocks = writer.requests(Purpose::Blocks).requests - blocks;
    let tables = writer.tables().len() as u64;
    assert!(blocks <= tables, "{blocks} for {tables} tables");
    assert!(ranges() <= 3 * tables, "{} for {tables} tables", ranges());
    let before = ranges();
    writer.compact().unwrap();
    assert!(ranges() - before <= tables, "{} for {tables} tables", ranges() - before);
    assert!(names(".sst") > 0, "a compaction writes whole tables");
    writer.sync_remote().unwrap();
    assert_eq!(names(".sst"), 0);
    assert_eq!(writer.iter().count() as u64, KEYS + 1);
    writer.close().unwrap();
    // All again from the stubs.
    let writer = open(client.store(), &local, options().local_bytes(0)).unwrap();
    assert_eq!(writer.iter().count() as u64, KEYS + 1);
}

#[test]
fn a_batch_has_many_requests_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path());
    let client = Client::with_latency(&bucket, Duration::from_millis(5));
    let reader = open_reader(client.store(), dir.path().join("reader"), options()).unwrap();
    let opening = client.most_under_way();
    assert!(opening > 3, "{opening} tails at once");
    let keys: Vec<Vec<u8>> = (0..300).map(|number| key(number * 32 % (2 * KEYS))).collect();
    let before = client.gets();
    let found = reader.get_many(&keys).unwrap();
    assert!(found.iter().all(Option::is_some));
    assert!(client.most_under_way() > 16, "{}", client.most_under_way());
    assert!(client.gets() - before <= reader.stats().total().disk_reads);
}

#[test]
fn a_batch_after_a_slow_one_takes_the_time_of_one_request() {
    const REQUEST: Duration = Duration::from_millis(400);
    let dir = tempfile::tempdir().unwrap();
    let bucket = filled(dir.path());
    let client = Client::with_latency(&bucket, REQUEST);
    let reader = open_reader(client.store(), dir.path().join("reader"), options()).unwrap();
    let time_of = |first: u64| {
        // One of 64 present keys: few share a block.
        let keys: Vec<Vec<u8>> = (first..first + 25).map(|number| key(number * 128)).collect();
        let began = std::time::Instant::now();
        let found = reader.get_many(&keys).unwrap();
        assert!(found.iter().all(Option::is_some));
        began.elapsed()
    };
    let first = time_of(0);
    assert!(first >= 2 * REQUEST, "{first:?}: the first read shows that reads are slow");
    // Absent keys make no request, and do not change that.
    reader.get_many(&(0..25).map(|number| key(2 * number + 1)).collect::<Vec<_>>()).unwrap();
    let second = time_of(25);
    assert!(second < 2 * REQUEST, "{second:?}: the first block's request waits alone");
}

#[test]
fn an_empty_bucket_and_the_directory_of_a_writer_are_refused_for_reading() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let client = Client::new(&bucket, Fate::Works);
    let at = |name: &str| dir.path().join(name);
    let error = open_reader(client.store(), at("reader"), options()).unwrap_err();
    assert!(matches!(error, Error::NothingPublished { .. }), "{error}");
    let writer = open(client.store(), at("writer"), options()).unwrap();
    // The epoch has begun, but no store is published.
    let error = open_reader(client.store(), at("reader"), options()).unwrap_err();
    assert!(matches!(error, Error::NothingPublished { .. }), "{error}");
    writer.sync_remote().unwrap();
    open_reader(client.store(), at("reader"), options()).unwrap();
    let error = open_reader(client.store(), at("writer"), options()).unwrap_err();
    assert!(matches!(error, Error::OtherBucket { .. }), "{error}");
}

/// A reader whose lookups are of 1000 keys at once.
#[test]
fn a_large_batch_makes_one_request_for_each_block() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let writer_options = || {
        let store = criba::Options::new().background_threads(0).cache_bytes(0);
        options().store(store)
    };
    let writer = open(store(&bucket), dir.path().join("a"), writer_options()).unwrap();
    for number in 0..20_000 {
        writer.put(key(number), [1; 1000]).unwrap();
    }
    writer.compact().unwrap();
    writer.close().unwrap();
    let client = Client::new(&bucket, Fate::Works);
    let reader = open_reader(client.store(), dir.path().join("r"), writer_options()).unwrap();
    let keys: Vec<_> = (0..2000).map(|number| key(number * 10)).collect();
    let before = client.gets();
    assert!(reader.get_many(&keys).unwrap().iter().all(Option::is_some));
    let gets = client.gets() - before;
    assert!(
        gets <= reader.stats().total().disk_reads,
        "{gets} {}",
        reader.stats().total().disk_reads
    );
}
