//! Batches of lookups announce the blocks that they will read, once a read was slow.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criba::vfs::{
    AccessHint, Call, CountingVfs, Fault, FaultRule, FaultVfs, FileKind, Layer, LayeredVfs,
    Operation, SimVfs,
};
use criba::{Db, FilterPolicy, HashFunction, Options};

use crate::common;

/// A store of two runs in blocks of about three keys, on a disk whose reads of tables take a millisecond while
/// `slow` is not 0.
struct SlowStore {
    db: Db,
    hooks: Arc<common::HookVfs>,
    vfs: CountingVfs,
    faults: FaultVfs,
    millis: Arc<AtomicU64>,
}

const KEYS: u32 = 3000;

fn key(number: u32) -> String {
    format!("key {:06}", number * 7919 % KEYS)
}

fn fill(db: &Db) {
    (0..KEYS).for_each(|number| db.put(key(number), [1; 300]).unwrap());
    db.compact().unwrap();
    (0..KEYS).step_by(9).for_each(|number| db.put(key(number), [2; 300]).unwrap());
    db.flush().unwrap();
}

fn options() -> Options {
    // Each key reads one block: without a key of the hash, these filters have no false positive.
    let filter = FilterPolicy::bits_per_key(30.0).with_hash(HashFunction::MurmurHash2);
    let options = common::options().background_threads(0).auto_compaction(false).filter(filter);
    options.cache_bytes(0).block_bytes(1024).table_bytes(64 << 10)
}

impl SlowStore {
    fn open(dir: &Path, options: Options) -> Self {
        let slow = Arc::new(AtomicU64::new(0));
        let millis = Arc::clone(&slow);
        let hooks = common::HookVfs::new(move |kind, operation| {
            if (kind, operation) == (FileKind::Table, Operation::Read) {
                std::thread::sleep(Duration::from_millis(millis.load(Ordering::Relaxed)));
            }
            Ok(())
        });
        let faults = FaultVfs::new(hooks.clone());
        let vfs = CountingVfs::new(Arc::new(faults.clone()));
        let db = options.vfs(vfs.clone()).open(dir).unwrap();
        fill(&db);
        slow.store(1, Ordering::Relaxed);
        Self { db, hooks, vfs, faults, millis: slow }
    }

    fn reads(&self) -> u64 {
        self.vfs.counts().of(FileKind::Table, Operation::Read).calls
    }

    /// The announced blocks since there were so many hints.
    fn announced(&self, before: usize) -> Vec<(u64, u64)> {
        let hints = self.hooks.hints();
        let announced = hints[before..].iter().filter_map(|hint| match hint {
            AccessHint::WillNeed { offset, length } => Some((*offset, *length)),
            _ => None,
        });
        announced.collect()
    }
}

#[test]
fn a_batch_announces_what_it_reads_after_its_first_slow_read() {
    let dir = common::tempdir();
    let store = SlowStore::open(dir.path(), options());
    let keys: Vec<_> = (0..600).map(key).collect();
    let one_by_one: Vec<_> = keys.iter().take(100).map(|key| store.db.get(key).unwrap()).collect();
    let (before, reads, hints) = (store.db.stats(), store.reads(), store.hooks.hints().len());
    let values = store.db.get_many(&keys).unwrap();
    let spent = store.db.stats() - before;
    assert_eq!(values[..100], one_by_one);
    assert!(values.iter().all(Option::is_some));
    let announced = store.announced(hints);
    println!("{} keys, {} blocks announced: {:?}", keys.len(), announced.len(), spent.activity);
    // Announcements change no count of reads.
    assert_eq!((spent.total().disk_reads, spent.activity.lookups), (600, 600));
    assert_eq!(store.reads() - reads, 600);
    assert_eq!(spent.activity.blocks_announced, announced.len() as u64);
    let bytes = announced.iter().map(|(_, length)| length).sum::<u64>();
    assert_eq!(spent.activity.bytes_announced, bytes);
    assert_eq!(spent.activity.announced_unread, 0);
    // Each key has a block of its own. The page cache has it: after each wave, a slow read begins the next one.
    assert!((597..=599).contains(&announced.len()), "{}", announced.len());
}

#[test]
fn a_block_is_announced_once_and_not_if_the_cache_has_it() {
    let dir = common::tempdir();
    let store = SlowStore::open(dir.path(), options().cache_bytes(16 << 20));
    let cached: Vec<_> = (0..50).map(key).collect();
    assert!(cached.iter().all(|key| store.db.contains(key).unwrap()));
    // A slow read, absent keys, keys in the memtable, cached keys, and one block for all others.
    let mut keys = vec![key(2000)];
    keys.extend((0..20).map(|number| format!("absent {number}")));
    for number in 100..120 {
        store.db.put(key(number), "in the memtable").unwrap();
        keys.push(key(number));
    }
    keys.extend(cached);
    keys.extend((0..50).map(|_| "key 001501".to_owned()));
    let (before, hints) = (store.db.stats(), store.hooks.hints().len());
    store.db.get_many(&keys).unwrap();
    let spent = (store.db.stats() - before).activity;
    assert_eq!(store.announced(hints).len(), 1);
    assert_eq!((spent.blocks_announced, spent.announced_unread), (1, 0));
}

#[test]
fn announced_blocks_that_are_not_read_are_counted() {
    let dir = common::tempdir();
    let store = SlowStore::open(dir.path(), options());
    let keys: Vec<_> = (0..200).map(key).collect();
    let rule = FaultRule::new(Fault::Io).operations([Operation::Read]).kinds([FileKind::Table]);
    store.faults.add(rule.skip(99));
    let before = store.db.stats();
    store.db.get_many(&keys).unwrap_err();
    let spent = store.db.stats() - before;
    let (read, activity) = (spent.total().disk_reads, spent.activity);
    println!("{read} reads, {activity:?}");
    assert!(activity.announced_unread > 50, "{activity:?}");
    assert!(activity.blocks_announced - activity.announced_unread <= read);
    assert!(store.millis.load(Ordering::Relaxed) > 0);
}

/// No more blocks are under way than a bound, whatever the batch.
#[test]
fn at_most_256_blocks_are_announced_at_once() {
    let dir = common::tempdir();
    let store = SlowStore::open(dir.path(), options());
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let rule = FaultRule::new(Fault::Io).operations([Operation::Read]).kinds([FileKind::Table]);
    store.faults.add(rule.skip(1));
    let hints = store.hooks.hints().len();
    store.db.get_many(&keys).unwrap_err();
    let announced = store.announced(hints);
    assert_eq!(announced.len(), 256);
}

/// A hint that turns off reading ahead is for each table, and only if the option says so.
#[test]
fn the_operating_system_reads_ahead_unless_an_option_forbids_it() {
    let dir = common::tempdir();
    fill(&options().open(dir.path()).unwrap());
    for read_ahead in [true, false] {
        for read_only in [true, false] {
            let vfs = common::HookVfs::without_syncs();
            let options = options().vfs(vfs.clone()).read_ahead(read_ahead);
            let tables = if read_only {
                options.open_read_only(dir.path()).unwrap().tables().len()
            } else {
                options.open(dir.path()).unwrap().tables().len()
            };
            let random = vfs.hints().iter().filter(|hint| **hint == AccessHint::Random).count();
            assert_eq!(random, if read_ahead { 0 } else { tables }, "read-only: {read_only}");
        }
    }
}

#[derive(Debug)]
struct SlowReads;

impl Layer for SlowReads {
    fn call(&self, call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        if (call.kind, call.operation) == (FileKind::Table, Operation::Read) {
            std::thread::sleep(Duration::from_millis(1));
        }
        next()
    }
}

#[test]
fn a_seeded_store_and_a_simulated_disk_announce_nothing() {
    let dir = common::tempdir();
    let store = SlowStore::open(dir.path(), options().seed(1));
    let keys: Vec<_> = (0..40).map(key).collect();
    let hints = store.hooks.hints().len();
    store.db.get_many(&keys).unwrap();
    assert_eq!(store.announced(hints).len(), 0);
    assert_eq!(store.db.stats().activity.blocks_announced, 0);

    let slow = LayeredVfs::new(Arc::new(SimVfs::new()), SlowReads);
    let db = options().vfs(slow).open("/store").unwrap();
    fill(&db);
    db.get_many(&keys).unwrap();
    assert_eq!(db.stats().activity.blocks_announced, 0);
}
