//! A local directory that a reader and a writer use, one after the other.

use std::sync::Arc;
use std::time::Duration;

use criba::Durability;
use criba::vfs::{Fault, FaultRule, FaultVfs, Operation};
use criba_object::object_store::memory::InMemory;
use criba_object::{open, open_reader};

use crate::bucket::{Client, Fate, key, options, sim, store};

/// A process dies after it has begun its epoch, in a directory that a reader had used.
#[test]
fn a_readers_directory_becomes_a_writers_although_the_process_died_meanwhile() {
    let bucket = Arc::new(InMemory::new());
    let (vfs, first) = (sim(), sim());
    let writer = open(store(&bucket), "/a", options().vfs(first)).unwrap();
    writer.put("a", "1").unwrap();
    writer.sync_remote().unwrap();
    drop(open_reader(store(&bucket), "/local", options().vfs(vfs.clone())).unwrap());
    writer.put("b", "1").unwrap();
    for number in 0..2000 {
        writer.put(key(number), [1; 50]).unwrap();
    }
    writer.close().unwrap();
    // Requests: a listing, the manifest, the claim; then it is cut off.
    let client = Client::new(&bucket, Fate::DiesAfter(4));
    open(client.store(), "/local", options().vfs(vfs.clone())).unwrap_err();
    let writer = open(store(&bucket), "/local", options().vfs(vfs)).unwrap();
    assert!(writer.get("b").unwrap().is_some());
}

/// A writer comes and goes between a reader's look at the directory and its lock.
#[test]
fn a_reader_that_opens_while_a_writer_comes_and_goes_removes_nothing_of_it() {
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), "/w", options().vfs(sim())).unwrap();
    writer.put("a", "1").unwrap();
    writer.close().unwrap();
    let vfs = sim();
    let slow = FaultVfs::new(Arc::new(vfs.clone()));
    let delay = Fault::Delay(Duration::from_millis(800));
    slow.add(FaultRule::new(delay).operations([Operation::Lock]));
    std::thread::scope(|scope| {
        let reader = scope
            .spawn(|| drop(open_reader(store(&bucket), "/local", options().vfs(slow.clone()))));
        std::thread::sleep(Duration::from_millis(200));
        let writer = open(store(&bucket), "/local", options().vfs(vfs.clone())).unwrap();
        writer.put_with("not published", "1", Durability::Synced).unwrap();
        drop(writer);
        reader.join().unwrap();
    });
    assert!(!slow.injected().is_empty());
    let writer = open(store(&bucket), "/local", options().vfs(vfs)).unwrap();
    assert!(writer.get("not published").unwrap().is_some(), "the reader removed the writer's log");
}
