//! Calls and the last drop on threads of other runtimes.

use std::sync::Arc;

use criba_object::object_store::memory::InMemory;
use criba_object::{open, open_reader};

use crate::bucket::{Client, Fate, options};

fn work() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let client = Client::new(&bucket, Fate::Works);
    let writer = open(client.store(), dir.path().join("a"), options().local_bytes(0)).unwrap();
    writer.put("a", "1").unwrap();
    writer.sync_remote().unwrap();
    assert!(writer.get("a").unwrap().is_some());
    let reader = open_reader(client.store(), dir.path().join("b"), options()).unwrap();
    assert!(reader.get("a").unwrap().is_some());
    let db = writer.clone();
    drop(writer);
    // A clone of the store goes on locally, and still reads from the bucket.
    assert!(db.get("a").unwrap().is_some());
    db.put("b", "1").unwrap();
    drop(db);
    drop(reader);
}

#[tokio::test(flavor = "current_thread")]
async fn on_a_runtime_of_one_thread() {
    work();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_runtime_of_many_threads() {
    work();
    tokio::spawn(async { work() }).await.unwrap();
}
