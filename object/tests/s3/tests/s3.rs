//! A writer and readers over the protocol of S3.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criba_object::object_store::ObjectStore;
use criba_object::{Error, Options, Purpose, open, open_reader};
use criba_object_s3::{SECRET_KEY, Server};

fn client(server: &Server) -> Arc<dyn ObjectStore> {
    Arc::new(criba_object_s3::client(&server.endpoint()))
}

fn options() -> Options {
    let store = criba::Options::new().cache_bytes(0).memtable_bytes(1 << 20);
    Options::new().store(store).publish_every(None).local_bytes(0)
}

fn server(dir: &Path) -> Server {
    let root = dir.join("server");
    std::fs::create_dir(&root).unwrap();
    Server::start(&root)
}

fn key(number: u32) -> String {
    format!("user{number:06}")
}

#[test]
fn requests_of_lookups_are_the_gets_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path());
    let writer = open(client(&server), dir.path().join("writer"), options()).unwrap();
    for number in 0..20_000 {
        writer.put(key(2 * number), [7; 600]).unwrap();
    }
    writer.compact().unwrap();
    // More than one part of 8 MiB.
    assert!(writer.tables().iter().any(|table| table.file_bytes > 8 << 20));
    writer.sync_remote().unwrap();
    let reader = open_reader(client(&server), dir.path().join("reader"), options()).unwrap();
    let before = server.gets();
    for number in 0..600 {
        let number = number * 61 % 40_000;
        assert_eq!(reader.get(key(number)).unwrap().is_some(), number % 2 == 0, "{number}");
    }
    let reads = reader.stats().total().disk_reads;
    assert!(reads >= 300, "{reads}");
    assert_eq!(server.gets() - before, reads);
    assert_eq!(reader.requests(Purpose::Blocks).requests, reads);
    assert_eq!(reader.iter().count(), 20_000);
    // Compacted again, from the bucket.
    writer.put("a", "1").unwrap();
    writer.compact().unwrap();
    writer.close().unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.iter().count(), 20_001);
}

#[test]
fn refused_requests_are_repeated_and_a_server_that_is_gone_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path());
    let short = options().retry_for(Duration::from_millis(300));
    let writer = open(client(&server), dir.path().join("writer"), short.clone()).unwrap();
    writer.put("a", "1").unwrap();
    // One request has at least three waits within its 300 ms.
    server.refuse(2);
    writer.sync_remote().unwrap();
    assert!(
        writer.requests(Purpose::Uploads).repeated
            + writer.requests(Purpose::Publications).repeated
            > 0
    );
    writer.put("b", "1").unwrap();
    server.refuse(u64::MAX);
    let error = writer.sync_remote().unwrap_err();
    assert!(matches!(error, Error::Request { .. }), "{error}");
    assert!(!error.to_string().contains(SECRET_KEY), "{error}");
    writer.put("c", "1").unwrap();
    server.refuse(0);
    writer.sync_remote().unwrap();
    let reader = open_reader(client(&server), dir.path().join("reader"), short).unwrap();
    assert_eq!(reader.iter().count(), 3);
}

#[test]
fn of_two_writers_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path());
    for round in 0..10 {
        let barrier = std::sync::Barrier::new(2);
        let works = std::thread::scope(|scope| {
            let threads = ["a", "b"].map(|name| {
                let (path, barrier) = (dir.path().join(format!("{name}{round}")), &barrier);
                let client = client(&server);
                scope.spawn(move || {
                    barrier.wait();
                    let writer = open(client, path, options()).unwrap();
                    barrier.wait();
                    writer.put("by", name).unwrap();
                    writer.sync_remote().map(|()| name)
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        let winners: Vec<&str> = works.iter().flatten().copied().collect();
        let [winner] = winners[..] else { panic!("round {round}: {works:?}") };
        let reader =
            open_reader(client(&server), dir.path().join(format!("c{round}")), options()).unwrap();
        assert_eq!(reader.get("by").unwrap().as_deref(), Some(winner.as_bytes()));
    }
}
