//! Objects go when no reader can need them, and not before.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criba_object::object_store::memory::InMemory;
use criba_object::{Garbage, ObjectDb, Options, open, open_pinned, open_reader};

use crate::bucket::{Client, Fate, key, listed, options, store};

/// A writer that publishes, and so removes, again and again.
fn busy(grace: Duration) -> Options {
    options().publish_every(Duration::from_millis(5)).grace(grace).local_bytes(0)
}

/// The names of all tables and manifests in the bucket.
fn names(bucket: &Arc<InMemory>, directory: &str) -> Vec<String> {
    listed(bucket, directory).into_iter().map(|meta| meta.location.to_string()).collect()
}

/// Overwrites all keys and merges: no table stays.
fn overwrite(writer: &ObjectDb, value: u8) {
    for number in 0..2000 {
        writer.put(key(number), [value; 50]).unwrap();
    }
    writer.compact().unwrap();
    writer.sync_remote().unwrap();
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn open_at(bucket: &Arc<InMemory>, path: &Path, options: Options) -> ObjectDb {
    open(Client::new(bucket, Fate::Works).store(), path, options).unwrap()
}

#[test]
fn objects_go_after_the_grace_time_and_a_late_reader_refreshes() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let grace = Duration::from_secs(2);
    let writer = open_at(&bucket, &dir.path().join("a"), busy(grace));
    overwrite(&writer, 1);
    let old = names(&bucket, "tables");
    let client = Client::new(&bucket, Fate::Works);
    let reader = open_reader(client.store(), dir.path().join("b"), options()).unwrap();
    let began = Instant::now();
    (2..5).for_each(|value| overwrite(&writer, value));
    // Within the grace time the reader's version is whole.
    let read = reader.iter().filter(|pair| matches!(pair, Ok((_, value)) if *value == [1; 50]));
    let read = read.count();
    assert!(read == 2000 || began.elapsed() > grace, "{read}");
    let mut value = 5;
    let gone = || old.iter().all(|name| !names(&bucket, "tables").contains(name));
    while !gone() {
        assert!(began.elapsed() < Duration::from_secs(20), "never removed");
        std::thread::sleep(Duration::from_millis(100));
        overwrite(&writer, value);
        value += 1;
    }
    let error = reader.get(key(7)).unwrap_err().to_string();
    assert!(error.contains(".sst") && error.contains("not found"), "{error}");
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.get(key(7)).unwrap().unwrap(), [value - 1; 50]);
    // Of many manifests the first of the epoch, the newest and a few are left.
    let left = names(&bucket, "manifests");
    assert!(left[0].ends_with("0001") && left.len() < 100, "{left:?}");
}

#[test]
fn a_pinned_version_stays_until_it_is_unpinned() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let grace = Duration::from_secs(1);
    let writer = open_at(&bucket, &dir.path().join("a"), busy(grace));
    overwrite(&writer, 1);
    writer.pin("monday").unwrap();
    let old = names(&bucket, "tables");
    let mut between = Vec::new();
    for value in 2..8 {
        overwrite(&writer, value);
        between.push(names(&bucket, "tables"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let is_there = |name: &String| names(&bucket, "tables").contains(name);
    until("others go", || {
        overwrite(&writer, 9);
        between[0].iter().any(|name| !is_there(name))
    });
    let old: Vec<String> = old.into_iter().filter(is_there).collect();
    assert!(!old.is_empty());
    let client = Client::new(&bucket, Fate::Works);
    let monday = open_pinned(client.store(), "monday", dir.path().join("b"), options()).unwrap();
    assert_eq!(monday.get(key(7)).unwrap().unwrap(), [1; 50]);
    assert_eq!(monday.iter().count(), 2000);
    // It is too late to pin that version again, by another name.
    let error = monday.pin("tuesday").unwrap_err().to_string();
    assert!(error.contains("to be the newest"), "{error}");
    open_pinned(client.store(), "tuesday", dir.path().join("c"), options()).unwrap_err();
    writer.unpin("monday").unwrap();
    open_pinned(client.store(), "monday", dir.path().join("c"), options()).unwrap_err();
    drop(writer);
    // What the writer kept for the pin is garbage of its epoch.
    let next = open_at(&bucket, &dir.path().join("a"), options().grace(grace));
    next.put("a", "").unwrap();
    std::thread::sleep(grace + Duration::from_millis(20));
    next.sync_remote().unwrap();
    let garbage = Garbage::find(client.store(), &options()).unwrap();
    for name in &old {
        assert!(garbage.objects().iter().any(|object| object.name == *name), "{name}");
    }
}

#[test]
fn garbage_is_what_earlier_epochs_left_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let client = Client::new(&bucket, Fate::Works);
    let at = |name: &str| dir.path().join(name);
    let grace = Duration::from_secs(5);
    let first = open_at(&bucket, &at("a"), options().grace(grace));
    overwrite(&first, 1);
    overwrite(&first, 2);
    drop(first);
    let second = open_at(&bucket, &at("b"), options().grace(grace));
    overwrite(&second, 3);
    overwrite(&second, 4);
    // Within the grace time all manifests count.
    let find = || Garbage::find(client.store(), &options()).unwrap();
    assert_eq!(find().objects(), []);
    std::thread::sleep(grace + Duration::from_millis(20));
    second.put("later", "1").unwrap();
    second.sync_remote().unwrap();
    let before = [names(&bucket, "tables"), names(&bucket, "manifests")].concat();
    let garbage = find();
    assert_eq!([names(&bucket, "tables"), names(&bucket, "manifests")].concat(), before);
    let tables = garbage.objects().iter().filter(|object| object.name.starts_with("tables/"));
    let tables: Vec<_> = tables.collect();
    assert!(tables.iter().all(|table| table.name.contains("-000001-")), "{tables:?}");
    assert!(tables.len() >= 4 && garbage.objects().len() > tables.len(), "{tables:?}");
    garbage.remove().unwrap();
    assert_eq!(find().objects(), []);
    assert!(names(&bucket, "manifests")[0].ends_with("0001"), "it fences writers of its epoch");
    let reader = open_reader(client.store(), at("c"), options()).unwrap();
    assert_eq!(reader.iter().count(), 2001);
    assert_eq!(second.iter().count(), 2001);
}

/// A pin that was in time for one grace time must not be late for a shorter one.
#[test]
fn a_pin_stays_when_the_next_writer_has_a_shorter_grace_time() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let at = |name: &str| dir.path().join(name);
    let writer = open(store(&bucket), at("a"), options()).unwrap();
    for number in 0..2000 {
        writer.put(key(number), [1; 50]).unwrap();
    }
    writer.sync_remote().unwrap();
    let reader = open_reader(store(&bucket), at("r"), options()).unwrap();
    writer.put("later", "").unwrap();
    writer.sync_remote().unwrap();
    std::thread::sleep(Duration::from_millis(60));
    reader.pin("monday").unwrap();
    drop(open_pinned(store(&bucket), "monday", at("p"), options()).unwrap());
    writer.close().unwrap();
    let busy = options().grace(Duration::from_millis(100)).publish_every(Duration::from_millis(5));
    let writer = open(store(&bucket), at("a"), busy.local_bytes(0)).unwrap();
    for value in 2..12 {
        for number in 0..2000 {
            writer.put(key(number), [value; 50]).unwrap();
        }
        writer.compact().unwrap();
        writer.sync_remote().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(writer);
    let monday = open_pinned(store(&bucket), "monday", at("p2"), options()).unwrap();
    assert_eq!(monday.iter().flatten().count(), 2000);
}

/// The writer's own scan reads objects that no version has any more.
#[test]
fn a_scan_of_the_writer_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let busy = options().grace(Duration::from_millis(20)).publish_every(Duration::from_millis(5));
    let writer = open(store(&bucket), dir.path().join("a"), busy.local_bytes(0)).unwrap();
    for number in 0..2000 {
        writer.put(key(number), [1; 50]).unwrap();
    }
    writer.compact().unwrap();
    writer.sync_remote().unwrap();
    let mut scan = writer.iter();
    scan.next().unwrap().unwrap();
    for value in 2..8 {
        for number in 0..2000 {
            writer.put(key(number), [value; 50]).unwrap();
        }
        writer.compact().unwrap();
        writer.sync_remote().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut left = 0;
    for pair in scan {
        assert_eq!(pair.unwrap().1, [1; 50]);
        left += 1;
    }
    assert_eq!(left, 1999);
}
