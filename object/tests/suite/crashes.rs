//! Death between any two requests, with or without a power failure. A new machine then opens from the bucket, and the
//! old one from its disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use criba::vfs::{Keep, SimVfs, Unit};
use criba::{Db, Durability};
use criba_object::object_store::memory::InMemory;
use criba_object::{ObjectDb, Options, open, open_reader};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::bucket::{Client, Fate, key, options, sim};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(pairs: impl Iterator<Item = criba::Result<(criba::Value, criba::Value)>>) -> Content {
    pairs.map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect::<Result<_, _>>().unwrap()
}

/// What the store had after each write, oldest first.
struct History {
    contents: Vec<Content>,
    /// The first that a new machine may have.
    published: usize,
    /// The first that this machine may have after a power failure.
    synced: usize,
}

impl History {
    fn last(&self) -> usize {
        self.contents.len() - 1
    }

    /// The newest moment, from `first` on, at which the store had this content.
    fn moment_of(&self, found: &Content, first: usize, what: &str) -> usize {
        let moment = (first..self.contents.len()).rev().find(|&n| self.contents[n] == *found);
        moment.unwrap_or_else(|| {
            panic!("{what}: no state from {first} to {}: {found:?}", self.last())
        })
    }
}

fn sim_options(vfs: &SimVfs) -> Options {
    options().vfs(vfs.clone()).local_bytes(30 << 10)
}

/// One step of the script. Requests may fail when the client is dead.
fn step(random: &mut ChaCha8Rng, writer: &ObjectDb, history: &mut History) {
    let db: &Db = writer;
    match random.random_range(0..12) {
        0 | 3 => {
            if writer.sync_remote().is_ok() {
                history.published = history.last();
                history.synced = history.last();
            }
        }
        1 => {
            if db.flush().is_ok() {
                history.synced = history.last();
            }
        }
        // It reads from the bucket, and so may fail.
        2 => drop(db.compact()),
        _ => {
            let mut next = history.contents[history.last()].clone();
            let mut batch = criba::Batch::new();
            for _ in 0..random.random_range(1..40) {
                let key = key(random.random_range(0..300));
                if random.random_bool(0.2) {
                    next.remove(&key);
                    batch.delete(key);
                } else {
                    let value = vec![random.random(); random.random_range(0..400)];
                    next.insert(key.clone(), value.clone());
                    batch.put(key, value);
                }
            }
            let durability =
                if random.random_bool(0.2) { Durability::Synced } else { Durability::Buffered };
            // A write that fails may be there after a crash.
            history.contents.push(next);
            let written = db.write_with(batch, durability);
            if written.is_ok() && durability == Durability::Synced {
                history.synced = history.last();
            }
        }
    }
}

/// A script of one seed on a client of this fate. Returns the number of its requests.
fn script(seed: u64, fate: Fate) -> u64 {
    let what = &format!("seed {seed}, {fate:?}");
    let bucket = Arc::new(InMemory::new());
    let vfs = sim();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut history = History { contents: vec![Content::new()], published: 0, synced: 0 };
    let client = Client::new(&bucket, fate);
    let opened = open(client.store(), "/local", sim_options(&vfs));
    if let Ok(writer) = &opened {
        for _ in 0..60 {
            step(&mut random, writer, &mut history);
            if client.is_dead() {
                break;
            }
        }
    }
    drop(opened);
    let requests = client.requests();

    let at_works = || Client::new(&bucket, Fate::Works).store();
    let reopened = |path: &str, vfs: &SimVfs| {
        let opened = open(at_works(), path, sim_options(vfs));
        opened.unwrap_or_else(|error| panic!("{what}: {error}"))
    };
    // A reader on a new machine.
    let reader_disk = sim();
    let mut published = history.published;
    match open_reader(at_works(), "/local", sim_options(&reader_disk)) {
        Ok(reader) => {
            let found = content(reader.iter());
            published = history.moment_of(&found, history.published, what);
        }
        Err(criba_object::Error::NothingPublished { .. }) => {
            assert_eq!(history.published, 0, "{what}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
    // The old machine. A dead process loses nothing that was acknowledged, only perhaps the last write, which was not;
    // a power failure loses what was not synced.
    let (disk, first) = if random.random_bool(0.5) {
        let disk = vfs.disk().power_failure(Unit::Sector, |_| {
            if random.random_bool(0.5) { Keep::OLD } else { Keep::NEW }
        });
        (disk, history.synced)
    } else {
        (vfs.disk(), history.last().saturating_sub(1))
    };
    let vfs = SimVfs::on(disk);
    let writer = reopened("/local", &vfs);
    let moment = history.moment_of(&content(writer.iter()), first, what);
    assert!(moment >= published, "{what}: readers have more than the writer");
    // It goes on, and a new machine gets all that it has.
    writer.put("later", "1").unwrap();
    writer.sync_remote().unwrap_or_else(|error| panic!("{what}: {error}"));
    drop(writer);
    let new = sim();
    let writer = reopened("/local", &new);
    let mut expected = history.contents[moment].clone();
    expected.insert(b"later".to_vec(), b"1".to_vec());
    assert_eq!(content(writer.iter()), expected, "{what}");
    requests
}

#[test]
fn a_death_between_any_two_requests_loses_nothing_that_was_published_or_synced() {
    let seeds = if std::env::var("CRIBA_TEST_SWEEPS").is_ok_and(|s| s == "full") { 24 } else { 6 };
    let mut deaths = 0;
    for seed in 0..seeds {
        let requests = script(seed, Fate::Works);
        for number in 1..=requests {
            script(seed, Fate::DiesBefore(number));
            script(seed, Fate::DiesAfter(number));
            script(seed, Fate::Refuses(number));
            deaths += 3;
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 200, "{deaths}");
}
