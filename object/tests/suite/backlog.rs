//! Writers wait when the backlog is full, and for nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use criba::Durability;
use criba_object::object_store::ObjectStoreExt;
use criba_object::object_store::memory::InMemory;
use criba_object::{ObjectDb, open, open_reader};

use crate::bucket::{Client, Fate, block_on, key, options, store};

/// Waits until all writes are done. Each takes a minute at most.
fn wait_for(writer: &Arc<ObjectDb>, written: &AtomicU64, all: u64) {
    let (mut last, mut since) = (0, Instant::now());
    while last < all {
        let now = written.load(SeqCst);
        if now > last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > Duration::from_secs(60) {
            let status = writer.publications();
            // Its drop would wait, too.
            std::mem::forget(Arc::clone(writer));
            panic!("hangs after {now} writes: {status:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The checkpoint waits for the writer's lock, which a stalled write holds until a flush has room in the backlog, which
/// only this publication makes.
#[test]
fn a_full_backlog_and_a_publication_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    for threads in [2, 0] {
        let small = criba::Options::new()
            .background_threads(threads)
            .memtable_bytes(64 << 10)
            .table_bytes(64 << 10);
        let small = options()
            .store(small)
            .backlog_bytes(128 << 10)
            .publish_every(Duration::from_millis(50));
        let path = dir.path().join(format!("w{threads}"));
        let place = criba_object::Location::new(store(&bucket), format!("p{threads}"));
        let writer = Arc::new(open(place, path, small).unwrap());
        let written = Arc::new(AtomicU64::new(0));
        for of_thread in 0..3u64 {
            let (writer, written) = (Arc::clone(&writer), Arc::clone(&written));
            std::thread::spawn(move || {
                for number in 0..20_000u64 {
                    let key = key(number * 7919 % 20_000 + of_thread);
                    writer.put_with(key, [7; 400], Durability::Buffered).unwrap();
                    written.fetch_add(1, SeqCst);
                }
            });
        }
        wait_for(&writer, &written, 60_000);
    }
}

/// The bucket does not answer for two seconds, in which the backlog fills; then it works again. Background threads, one
/// program that writes.
#[test]
fn writes_go_on_when_the_bucket_answers_again() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let slow = Client::before_manifests(&bucket, |number| {
        if number == 2 {
            std::thread::sleep(Duration::from_secs(2));
        }
    });
    let small =
        criba::Options::new().background_threads(2).memtable_bytes(64 << 10).table_bytes(64 << 10);
    let small =
        options().store(small).backlog_bytes(1 << 20).publish_every(Duration::from_millis(50));
    let writer = Arc::new(open(slow.store(), dir.path().join("a"), small).unwrap());
    let written = Arc::new(AtomicU64::new(0));
    let (of_thread, count) = (Arc::clone(&writer), Arc::clone(&written));
    std::thread::spawn(move || {
        for number in 0..60_000u64 {
            of_thread.put_with(key(number), [7; 400], Durability::Buffered).unwrap();
            count.fetch_add(1, SeqCst);
            if number == 0 {
                std::thread::sleep(Duration::from_millis(200)); // a small publication is under way
            }
        }
    });
    wait_for(&writer, &written, 60_000);
}

/// With a damaged pin each removal fails, but no publication.
#[test]
fn a_damaged_pin_does_not_make_a_publication_each_second() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let rare = options()
        .publish_every(Duration::from_secs(3600))
        .backlog_bytes(1 << 20)
        .grace(Duration::ZERO);
    let writer = open(store(&bucket), dir.path().join("a"), rare).unwrap();
    block_on(bucket.put(&"pins/x".into(), "garbage".into())).unwrap();
    for number in 0..20_000 {
        writer.put(key(number), [1; 100]).unwrap();
    }
    std::thread::sleep(Duration::from_secs(1));
    let (began, before) = (Instant::now(), writer.publications().manifest);
    let mut number = 0;
    while began.elapsed() < Duration::from_secs(3) {
        writer.put(key(number), "x").unwrap();
        number += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(writer.publications().manifest <= before + 1, "{:?}", writer.publications());
}

/// A limit of unpublished bytes stops writers, not publications: with a thread for flushes, and without.
#[test]
fn writers_wait_for_the_bucket_and_lose_nothing() {
    // More than a writer does during the flush of a publication, for which there is room.
    const WRITES: u32 = 30_000;
    for threads in [0, 2] {
        let dir = tempfile::tempdir().unwrap();
        let bucket = Arc::new(InMemory::new());
        let client = Client::new(&bucket, Fate::Works);
        let store = criba::Options::new().background_threads(threads).memtable_bytes(64 << 10);
        let options = options().store(store).backlog_bytes(256 << 10);
        let writer = open(client.store(), dir.path().join("a"), options.clone()).unwrap();
        client.cut_off(true);
        let written = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..WRITES {
                    writer.put(number.to_be_bytes(), [7; 500]).unwrap();
                    written.store(number, SeqCst);
                }
            });
            // The writer waits.
            let mut before = u32::MAX;
            while std::mem::replace(&mut before, written.load(SeqCst)) != written.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(700));
            }
            let published = writer.sync_remote();
            // The writer goes on, also if an assertion fails.
            client.cut_off(false);
            published.unwrap_err();
            assert!(before < WRITES - 100, "{before}");
            writer.sync_remote().unwrap();
        });
        writer.wait_until_settled().unwrap(); // a later compaction would leave unpublished tables
        writer.sync_remote().unwrap();
        assert_eq!(writer.publications().unpublished_bytes, 0);
        drop(writer);
        let reader = open_reader(client.store(), dir.path().join("b"), options).unwrap();
        assert_eq!(reader.iter().count() as u32, WRITES);
    }
}
