//! One writer: a later one fences the earlier.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use criba_object::object_store::memory::InMemory;
use criba_object::{Error, open, open_local, open_reader};

use crate::bucket::{Client, Fate, options, until_one_is_written};

#[test]
fn the_later_writer_goes_on_and_the_earlier_stops() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let client = Client::new(&bucket, Fate::Works);
    let at = |name: &str| dir.path().join(name);
    let first = open(client.store(), at("a"), options()).unwrap();
    first.put("of both", "1").unwrap();
    first.sync_remote().unwrap();
    first.put("of the first", "1").unwrap();

    let second = open(client.store(), at("b"), options()).unwrap();
    assert_eq!(second.publications().epoch, 2);
    assert_eq!(second.get("of both").unwrap().as_deref(), Some(&b"1"[..]));
    second.put("of the second", "1").unwrap();
    second.sync_remote().unwrap();

    for _ in 0..2 {
        let error = first.sync_remote().unwrap_err();
        let Error::Fenced { epoch: 1, newest: 2, unpublished: 1, .. } = error else {
            panic!("{error}");
        };
    }
    first.put("x", "").unwrap_err();
    drop(first);
    // Nor does its directory open again.
    let error = open(client.store(), at("a"), options()).unwrap_err();
    assert!(matches!(error, Error::Fenced { unpublished: 1, .. }), "{error}");
    // What it did not publish can be read.
    let local = open_local(client.store(), at("a"), options()).unwrap();
    assert!(local.get("of the first").unwrap().is_some());
    assert!(local.get("of both").unwrap().is_some());
    let reader = open_reader(client.store(), at("c"), options()).unwrap();
    assert_eq!(reader.get("of the first").unwrap(), None);
    assert!(reader.get("of the second").unwrap().is_some());
    second.close().unwrap();
    // The directory of the newest epoch opens again, and begins the next.
    let second = open(client.store(), at("b"), options()).unwrap();
    assert_eq!(second.publications().epoch, 3);
}

#[test]
fn an_own_success_whose_answer_was_lost_is_no_other_writer() {
    let mut lost = 0;
    for number in 1.. {
        let dir = tempfile::tempdir().unwrap();
        let bucket = Arc::new(InMemory::new());
        let client = Client::new(&bucket, Fate::LosesAnswer(number));
        // Each request is repeated once or more.
        let options = options().retry_for(Duration::from_secs(5));
        let writer = open(client.store(), dir.path().join("a"), options.clone()).unwrap();
        writer.put("a", "1").unwrap();
        writer.sync_remote().unwrap();
        writer.put("b", "1").unwrap();
        writer.sync_remote().unwrap();
        if client.requests() < number {
            break;
        }
        lost += 1;
        let reader = open_reader(client.store(), dir.path().join("b"), options).unwrap();
        assert_eq!(reader.iter().count(), 2, "request {number}");
    }
    assert!(lost >= 6, "{lost}");
}

#[test]
fn of_two_writers_that_open_at_once_one_goes_on() {
    let mut fenced = 0;
    for round in 0..200 {
        let dir = tempfile::tempdir().unwrap();
        let bucket = Arc::new(InMemory::new());
        let barrier = std::sync::Barrier::new(2);
        let works = std::thread::scope(|scope| {
            let threads = ["a", "b"].map(|name| {
                let (path, bucket, barrier) = (dir.path().join(name), &bucket, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let client = Client::new(bucket, Fate::Works);
                    let writer = open(client.store(), path, options()).unwrap();
                    barrier.wait();
                    writer.put(name, "1").and_then(|()| writer.put("by", name)).unwrap();
                    writer.sync_remote().map(|()| name)
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        let winners: Vec<&str> = works.iter().flatten().copied().collect();
        let [winner] = winners[..] else { panic!("round {round}: {winners:?}") };
        for work in &works {
            assert!(matches!(work, Ok(_) | Err(Error::Fenced { .. })), "{work:?}");
            fenced += usize::from(work.is_err());
        }
        let client = Client::new(&bucket, Fate::Works);
        let reader = open_reader(client.store(), dir.path().join("c"), options()).unwrap();
        assert_eq!(reader.get("by").unwrap().as_deref(), Some(winner.as_bytes()));
        assert_eq!(reader.iter().count(), 2);
    }
    assert_eq!(fenced, 200);
}

#[test]
fn an_older_copy_of_the_directory_and_an_emptied_bucket_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let client = Client::new(&bucket, Fate::Works);
    let at = |name: &str| dir.path().join(name);
    let writer = open(client.store(), at("a"), options()).unwrap();
    writer.put("a", "1").unwrap();
    writer.close().unwrap();
    let other = Client::new(&Arc::new(InMemory::new()), Fate::Works);
    let error = open(other.store(), at("a"), options()).unwrap_err();
    assert!(matches!(error, Error::OtherBucket { .. }), "{error}");
    let copied = std::process::Command::new("cp").arg("-r").arg(at("a")).arg(at("old")).status();
    assert!(copied.unwrap().success());
    // The copy has an epoch that has ended.
    open(client.store(), at("a"), options()).unwrap().close().unwrap();
    let error = open(client.store(), at("old"), options()).unwrap_err();
    assert!(matches!(error, Error::Fenced { unpublished: 0, .. }), "{error}");
}

/// A version that was published beside a busy writer opens on a new machine, and there again.
#[test]
fn a_new_machine_goes_on_from_what_was_published_beside_a_busy_writer() {
    for round in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let bucket = Arc::new(InMemory::new());
        let client = Client::new(&bucket, Fate::Works);
        let at = |name: &str| dir.path().join(name);
        let writer = open(client.store(), at("a"), options()).unwrap();
        let is_published = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in (0..u64::MAX).take_while(|_| is_published.load(SeqCst) == 0) {
                    writer.put(number.to_be_bytes(), "").unwrap();
                }
            });
            until_one_is_written(&writer);
            writer.sync_remote().unwrap();
            is_published.store(1, SeqCst);
        });
        drop(writer);
        for _ in 0..2 {
            let new = open(client.store(), at("b"), options());
            let new = new.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert!(new.iter().count() > 0);
        }
    }
}
