//! A writer that is killed, its successor, and two readers: `cargo run --release -p criba-object --example bucket`.
//!
//! The program starts a server that speaks S3, and itself again as each writer and reader.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{sleep, spawn};
use std::time::Duration;

use criba_object::object_store::ObjectStore;
use criba_object::{Error, Options, Purpose, RequestCounts, open, open_local, open_reader};
use criba_object_s3::{Process, Server, client, end_with_the_parent, report};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Each write gives so many keys its number, in one batch.
const KEYS: u64 = 1000;
/// A writer publishes after so many writes.
const BETWEEN_PUBLICATIONS: u64 = 10;
/// The first writer is killed after so many writes, between two publications.
const KILLED_AFTER: u64 = 43;
const LAST_WRITE: u64 = 80;
/// The purposes whose requests are GETs of objects.
const GETS: [Purpose; 5] =
    [Purpose::Blocks, Purpose::Ranges, Purpose::Tails, Purpose::Filters, Purpose::Manifests];

fn main() -> Result<()> {
    spawn(|| {
        sleep(Duration::from_secs(60));
        eprintln!("not done after a minute");
        std::process::exit(1);
    });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["writer", endpoint, dir] => write(endpoint, dir),
        ["reader", endpoint, dir] => read(endpoint, dir),
        _ => tell(),
    }
}

fn tell() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("server"))?;
    let server = Server::start(&at("server"));
    let endpoint = server.endpoint();
    println!("A server speaks S3 at {endpoint}. Its bucket is empty.");
    println!("Each write gives {KEYS} keys its number. A writer publishes each tenth.\n");

    let mut writer1 = start("writer", &endpoint, &at("writer1"))?;
    writer1.until("published", 1)?;
    let mut reader1 = start("reader", &endpoint, &at("reader1"))?;
    let mut reader2 = start("reader", &endpoint, &at("reader2"))?;
    writer1.until("written", KILLED_AFTER)?;
    writer1.kill()?;
    let (written, published) = (writer1.last("written")[0], writer1.last("published")[0]);
    println!("Writer 1 is killed (SIGKILL) after write {written}. It published {published}.");

    let mut writer2 = start("writer", &endpoint, &at("writer2"))?;
    let found = writer2.until("opened", 0)?[0];
    println!("Writer 2 opens the bucket on a new directory. {found} writes are there.");
    holds("a published write is lost", found >= published)?;
    let end = writer2.until("published", LAST_WRITE)?[0];
    println!("It goes on, and publishes write {end}.\n");

    writer2.finish()?;
    reader1.finish()?;
    reader2.finish()?;
    let gets_of_server = server.gets();

    let refused = open(connect(&endpoint), at("writer1"), options());
    holds("writer 1 opens again", matches!(refused, Err(Error::Fenced { .. })))?;
    let there = last_write(&open_local(connect(&endpoint), at("writer1"), options())?)?;
    holds("an acknowledged write is lost", there >= written)?;
    println!("Writer 1 cannot open its directory again. open_local reads it: {there} writes,");
    println!("{} of which are not in the bucket.\n", there - found);

    for (reader, name) in [(&reader1, "Reader 1"), (&reader2, "Reader 2")] {
        let (shown, versions) = (reader.last("shown")[0], reader.last("shown")[1]);
        println!(
            "{name} refreshed to {versions} versions. Each was whole, the last write {shown}."
        );
        holds("a reader misses published writes", shown == end)?;
    }
    println!(
        "\nrequests    {:>11}{:>11}{:>11}{:>11}",
        "writer 1", "writer 2", "reader 1", "reader 2"
    );
    let clients = [&writer1, &writer2, &reader1, &reader2];
    for purpose in Purpose::ALL {
        let counts = clients.map(|client| client.last("requests")[purpose as usize]);
        let counts = counts.map(|count| format!("{count:>11}")).concat();
        println!("{:<12}{counts}", format!("{purpose:?}"));
    }
    let gets = |client: &Process| GETS.map(|purpose| client.last("requests")[purpose as usize]);
    let counted: u64 = clients.into_iter().flat_map(gets).sum();
    println!("The clients count {counted} GETs of objects, the server {gets_of_server}.");
    holds("the counts of GETs differ", counted == gets_of_server)
}

fn start(role: &str, endpoint: &str, dir: &Path) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    Ok(Process::start(command.arg(role).arg(endpoint).arg(dir))?)
}

fn holds(failure: &str, holds: bool) -> Result<()> {
    if holds { Ok(()) } else { Err(failure.into()) }
}

fn connect(endpoint: &str) -> Arc<dyn ObjectStore> {
    Arc::new(client(endpoint))
}

fn options() -> Options {
    let store = criba::Options::new().memtable_bytes(256 << 10).cache_bytes(0);
    Options::new().store(store).publish_every(None)
}

/// The number of the last write, if no write before is missing, and all keys have it.
fn last_write(db: &criba::ReadOnlyDb) -> Result<u64> {
    let mut last = 0;
    for pair in db.prefix("write") {
        last += 1;
        holds("a write is missing", *pair?.0 == *format!("write{last:06}").as_bytes())?;
    }
    let mut keys = 0;
    for pair in db.prefix("key") {
        keys += 1;
        holds("a version is not whole", *pair?.1 == *last.to_string().as_bytes())?;
    }
    holds("a version lacks keys", keys == KEYS)?;
    Ok(last)
}

fn report_requests(of: impl Fn(Purpose) -> RequestCounts) {
    report("requests", &Purpose::ALL.map(|purpose| of(purpose).requests));
}

fn write(endpoint: &str, dir: &str) -> Result<()> {
    let is_over = end_with_the_parent();
    let writer = open(connect(endpoint), dir, options())?;
    let found = writer.prefix("write").count() as u64;
    report("opened", &[found]);
    for number in found + 1..=LAST_WRITE {
        let mut batch = criba::Batch::new();
        batch.put(format!("write{number:06}"), dir);
        for key in 0..KEYS {
            batch.put(format!("key{key:06}"), number.to_string());
        }
        writer.write(batch)?;
        report("written", &[number]);
        if number % BETWEEN_PUBLICATIONS == 0 {
            writer.sync_remote()?;
            report_requests(|purpose| writer.requests(purpose));
            report("published", &[number]);
        }
        sleep(Duration::from_millis(10));
    }
    while !is_over.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(1));
    }
    report_requests(|purpose| writer.requests(purpose));
    Ok(())
}

fn read(endpoint: &str, dir: &str) -> Result<()> {
    let is_over = end_with_the_parent();
    let reader = open_reader(connect(endpoint), dir, options())?;
    let (mut last, mut versions) = (last_write(&reader)?, 1);
    loop {
        let is_last = is_over.load(Ordering::SeqCst);
        if reader.refresh()? {
            let now = last_write(&reader)?;
            holds("a refresh went back", now >= last)?;
            (last, versions) = (now, versions + 1);
        }
        if is_last {
            break;
        }
        sleep(Duration::from_millis(5));
    }
    report_requests(|purpose| reader.requests(purpose));
    report("shown", &[last, versions]);
    Ok(())
}
