//! `kill -9` of a real process that writes: everything acknowledged is there, batches are whole, and
//! nothing is there that was never issued.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use criba::{Batch, Db, Durability, Options};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CHILD_DIR: &str = "CRIBA_TEST_KILL_DIR";
const ROUNDS: u64 = 30;
/// A write takes back what the write this many before it put.
const KEPT: u64 = 200;

fn options(round: u64) -> Options {
    common::options()
        .background_threads((round % 3) as usize)
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

/// The changes of write `number`: a single put, or a batch that counts, puts and takes back.
fn changes(number: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let key = |number: u64| format!("key {:08}", number.wrapping_mul(0x9E37_79B1) % 100_000_000);
    let mut changes = vec![(b"count".to_vec(), Some(number.to_be_bytes().to_vec()))];
    changes.push((key(number).into_bytes(), Some(value(number))));
    changes.push((format!("again {}", number % 50).into_bytes(), Some(value(number))));
    if number > KEPT {
        changes.push((key(number - KEPT).into_bytes(), None));
    }
    changes
}

fn count(db: &Db) -> u64 {
    db.get("count").unwrap().map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
}

/// Not a test of its own: the process to be killed. Acknowledges each write on a line.
#[test]
#[ignore = "run by the test that kills it"]
fn a_writing_process() {
    let dir = std::env::var_os(CHILD_DIR).expect("run by the test that kills it");
    let round: u64 = std::env::var("CRIBA_TEST_KILL_ROUND").unwrap().parse().unwrap();
    let db = options(round).open(dir).unwrap();
    let mut out = std::io::stdout();
    writeln!(out).unwrap();
    for number in count(&db) + 1.. {
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
        writeln!(out, "ack {number}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let seed = 9;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let (mut model, mut modelled) = (BTreeMap::new(), 0_u64);
    let (mut beyond, mut in_flush) = (0, 0);
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_writing_process", "--ignored", "--nocapture"])
            .env(CHILD_DIR, &dir)
            .env("CRIBA_TEST_KILL_ROUND", round.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = rng.random_range(1..800);
        let mut acknowledged = modelled;
        let mut seen = 0;
        // When enough is written the process dies; what it had said before still comes.
        while let Some(Ok(line)) = lines.next() {
            if let Some(number) = line.strip_prefix("ack ") {
                // The last line may be cut short; no whole one is, since it ends with its newline.
                acknowledged = acknowledged.max(number.parse().unwrap());
                seen += 1;
                if seen == enough {
                    child.kill().unwrap();
                }
            }
        }
        assert!(!child.wait().unwrap().success());
        assert!(seen >= enough, "the process ended by itself");
        in_flush += u64::from(common::files_with(&dir, "log").len() > 1);

        let db = options(round).open(&dir).unwrap();
        let written = count(&db);
        // One write may have been under way, done but not acknowledged.
        assert!((acknowledged..=acknowledged + 1).contains(&written), "{acknowledged} {written}");
        beyond += written - acknowledged;
        for number in modelled + 1..=written {
            for (key, value) in changes(number) {
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
        }
        modelled = written;
        let found: BTreeMap<Vec<u8>, Vec<u8>> = db
            .range::<&[u8]>(..)
            .unwrap()
            .map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
            .collect();
        assert_eq!(found.len(), model.len(), "round {round}");
        assert_eq!(found, model, "round {round}");
        for (key, value) in &model {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(value.as_slice()));
        }
    }
    println!(
        "seed {seed}: {ROUNDS} processes killed, {modelled} writes, {beyond} done but not yet \
         acknowledged, {in_flush} with a memtable waiting to be flushed"
    );
}
