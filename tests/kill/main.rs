//! `kill -9` of a writing process: every acknowledged write is there, batches are whole, and no unissued
//! write is there. A second process reads meanwhile.

mod beside_a_reader;
#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use criba::{Batch, Db, Durability, Error, Event, Options, Reader};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CHILD_DIR: &str = "CRIBA_TEST_KILL_DIR";
const CHILD_THREADS: &str = "CRIBA_TEST_KILL_THREADS";
const SEED: u64 = 9;
const SIGKILL: i32 = 9;
/// A write deletes the keys of the write this many before it.
const KEPT: u64 = 200;

fn options(background_threads: usize) -> Options {
    common::options()
        .background_threads(background_threads)
        .memtable_bytes(8 << 10)
        .table_bytes(16 << 10)
        .level_base_bytes(2 << 10)
        .filter(common::policy().with_bits_per_key(6.0))
}

fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(8 + (number * 37 % 90) as usize, number as u8);
    value
}

/// Whether the changes are ingested. Then none deletes.
fn is_ingested(number: u64) -> bool {
    number % 400 == 7
}

/// The changes of write `number`: one put, or a batch of a counter, puts and deletes.
fn changes(number: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let key = |number: u64| format!("key {:08}", number.wrapping_mul(0x9E37_79B1) % 100_000_000);
    let mut changes = vec![(b"count".to_vec(), Some(number.to_be_bytes().to_vec()))];
    changes.push((key(number).into_bytes(), Some(value(number))));
    changes.push((format!("again {}", number % 50).into_bytes(), Some(value(number))));
    if number > KEPT && !is_ingested(number) {
        changes.push((key(number - KEPT).into_bytes(), None));
    }
    changes
}

fn apply(model: &mut BTreeMap<Vec<u8>, Vec<u8>>, number: u64) {
    for (key, value) in changes(number) {
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }
}

fn contents(db: &dyn Reader) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let items = db.iter().map(|item| item.unwrap());
    items.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn count(db: &dyn Reader) -> u64 {
    db.get(b"count").unwrap().map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
}

/// Writes a line into the pipe at once.
fn say(line: &str) {
    std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn write(db: &Db, number: u64) {
    let mut batch = Batch::new();
    for (key, value) in changes(number) {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
    }
    let durability =
        if number.is_multiple_of(64) { Durability::Synced } else { Durability::Buffered };
    db.write_with(batch, durability).unwrap();
}

/// Not a test: the process to kill. It prints a line for each acknowledged write, the end of a flush, and
/// the start and end of a compaction.
#[test]
#[ignore = "run by the test that kills it"]
fn a_writing_process() {
    let dir = std::env::var_os(CHILD_DIR).expect("run by the test that kills it");
    let threads = std::env::var(CHILD_THREADS).unwrap().parse().unwrap();
    let tell = |event: &Event| match event {
        Event::FlushEnded { .. } => say("flushed"),
        Event::CompactionStarted { .. } => say("compacting"),
        Event::CompactionEnded { .. } => say("compacted"),
        _ => {}
    };
    let db = options(threads).on_event(tell).open(dir).unwrap();
    say("");
    for number in count(&db) + 1.. {
        if is_ingested(number) {
            let pairs: BTreeMap<_, _> = changes(number).into_iter().collect();
            db.ingest(pairs.into_iter().map(|(key, value)| Ok::<_, Error>((key, value.unwrap()))))
                .unwrap();
        } else {
            write(&db, number);
        }
        say(&format!("ack {number}"));
    }
}

/// The output of a killed process.
#[derive(Debug, Default)]
struct Said {
    /// Its newest acknowledged write.
    acknowledged: u64,
    acknowledgements: u64,
    since_flush: u64,
    compactions_under_way: u64,
}

/// Starts a writing process and kills it after `enough` acknowledgements; or, with `compacting`, at the
/// next start of a compaction. `None` if it ended by itself. `acknowledged` follows the newest
/// acknowledgement.
fn killed(
    dir: &Path,
    threads: usize,
    enough: u64,
    compacting: bool,
    acknowledged: &AtomicU64,
) -> Option<Said> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_writing_process", "--ignored", "--nocapture"])
        .env(CHILD_DIR, dir)
        .env(CHILD_THREADS, threads.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Said::default();
    // What it had said before it was killed still comes.
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.as_str() {
            "flushed" => said.since_flush = 0,
            "compacting" => said.compactions_under_way += 1,
            "compacted" => said.compactions_under_way -= 1,
            line => {
                if let Some(number) = line.strip_prefix("ack ") {
                    said.acknowledged = number.parse().unwrap();
                    acknowledged.store(said.acknowledged, Ordering::SeqCst);
                    said.acknowledgements += 1;
                    said.since_flush += 1;
                }
            }
        }
        let now = if compacting { line == "compacting" } else { line.starts_with("ack ") };
        if now && said.acknowledgements >= enough {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    (status.signal() == Some(SIGKILL)).then_some(said)
}

/// A cycle counts if the signal ended the process and writes were acknowledged after the last flush.
#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    // KILL_CYCLES=2000 for a long run.
    let usual = if common::is_full() { 200 } else { 60 };
    let cycles: u64 = std::env::var("KILL_CYCLES").map_or(usual, |n| n.parse().unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let (mut model, mut modelled) = (BTreeMap::new(), 0_u64);
    let (mut counted, mut while_compacting, mut others, mut beyond) = (0, 0, 0, 0);
    for round in 0.. {
        if counted >= cycles && 3 * while_compacting >= cycles {
            break;
        }
        // On a busy machine most compactions end before the signal comes.
        assert!(round < 20 * cycles, "{counted} cycles, {while_compacting} while compacting");
        let compacting = round % 2 == 0;
        let threads = if compacting { rng.random_range(1..3) } else { rng.random_range(0..3) };
        let enough = rng.random_range(1..400);
        let said = killed(&dir, threads, enough, compacting, &AtomicU64::new(0));
        let said = said.expect("nothing else ends the process");
        if said.since_flush > 0 {
            counted += 1;
            while_compacting += u64::from(said.compactions_under_way > 0);
        } else {
            others += 1;
        }

        let db = options(threads).open(&dir).unwrap();
        let (written, acknowledged) = (count(&db), said.acknowledged.max(modelled));
        // One write may have been under way, done but not acknowledged.
        assert!((acknowledged..=acknowledged + 1).contains(&written), "{acknowledged} {written}");
        beyond += written - acknowledged;
        (modelled + 1..=written).for_each(|number| apply(&mut model, number));
        modelled = written;
        let found = contents(&db);
        assert_eq!(found.len(), model.len(), "round {round}");
        assert_eq!(found, model, "round {round}");
        for (key, value) in &model {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(value.as_slice()));
        }
    }
    println!(
        "kill cycles: {counted}, {while_compacting} of them while compacting; {others} more right \
         after a flush, seed {SEED}; {modelled} writes, {beyond} done but not yet acknowledged"
    );
}
