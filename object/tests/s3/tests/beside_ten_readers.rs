//! Ten reader processes beside a writer that compacts, over HTTP.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criba_object::object_store::ObjectStore;
use criba_object::{Options, open};
use criba_object_s3::{Process, Server, client};

const KEYS: u32 = 1000;
const READERS: usize = 10;
const TIME: Duration = Duration::from_secs(8);

#[test]
fn each_version_is_whole_for_ten_processes_beside_a_writer_that_compacts() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("server");
    std::fs::create_dir(&root).unwrap();
    let server = Server::start(&root);
    let store = criba::Options::new().cache_bytes(0).memtable_bytes(64 << 10);
    // The writer compacts from the bucket.
    let options = Options::new().store(store).publish_every(None).local_bytes(0);
    let bucket: Arc<dyn ObjectStore> = Arc::new(client(&server.endpoint()));
    let writer = open(bucket, dir.path().join("writer"), options).unwrap();
    let publish = |generation: u64| {
        // A part of the keys in each of two batches would be no whole version.
        let mut batch = criba::Batch::new();
        for number in 0..KEYS {
            batch.put(format!("key{number:06}"), generation.to_string());
        }
        writer.write(batch).unwrap();
        if generation.is_multiple_of(4) {
            writer.compact().unwrap();
        }
        writer.sync_remote().unwrap();
    };
    publish(1);
    let mut readers: Vec<Process> = (0..READERS)
        .map(|number| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_reader"));
            command.arg(server.endpoint()).arg(dir.path().join(format!("reader{number}")));
            Process::start(command.arg(KEYS.to_string())).unwrap()
        })
        .collect();
    for reader in &mut readers {
        reader.until("opened", 0).unwrap();
    }
    let began = Instant::now();
    let mut generation = 1;
    while began.elapsed() < TIME {
        generation += 1;
        publish(generation);
    }
    assert!(generation > 20, "{generation} publications");
    let (mut refreshes, mut versions) = (0, 0);
    for reader in &mut readers {
        reader.finish().unwrap();
        let [last, refreshed, seen] = *reader.last("end") else { panic!("{reader:?}") };
        assert_eq!(last, generation, "the last version that was published");
        assert!(refreshed >= 10 && seen >= 4, "{refreshed} refreshes, {seen} versions");
        (refreshes, versions) = (refreshes + refreshed, versions + seen);
    }
    assert!(versions >= 60, "{versions} versions");
    println!(
        "{generation} publications; {READERS} readers: {refreshes} refreshes, {versions} versions"
    );
}
