//! Random transactions of many threads, beside plain and conditional writes. The log has the order of the commits:
//! replayed in this order, each committed transaction must have read what the writes before it left.
//!
//! `CRIBA_TEST_SWEEPS=full` runs more.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use criba::vfs::{Call, FileKind, Layer, LayeredVfs, Operation, RealVfs};
use criba::{Batch, Db, Durability, Error, FilterPolicy, Transaction, Value};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{is_full, policy, tempdir};

const THREADS: u64 = 8;
const KEYS: u32 = 24;
/// The start of a key that a write puts beside its changes. Its number follows.
const MARK: &[u8] = b"mark/";

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keeps the numbers of the marks in the order in which the log gets them.
#[derive(Debug, Default)]
struct Marks(Mutex<Vec<u64>>);

impl Layer for Marks {
    fn call(&self, call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let is_sync = matches!(call.operation, Operation::Sync | Operation::SyncDir);
        if is_sync { Ok(()) } else { next() }
    }

    fn write(
        &self,
        call: &Call<'_>,
        data: &[u8],
        next: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if call.kind == FileKind::Wal {
            let starts = data.windows(MARK.len()).enumerate().filter(|(_, start)| *start == MARK);
            let digits = starts.map(|(at, _)| &data[at + MARK.len()..][..8]);
            let numbers =
                digits.map(|digits| str::from_utf8(digits).unwrap().parse::<u64>().unwrap());
            self.0.lock().unwrap().extend(numbers);
        }
        next(data)
    }
}

fn mark(number: u64) -> Vec<u8> {
    [MARK, format!("{number:08}").as_bytes()].concat()
}

fn key(number: u32) -> Vec<u8> {
    format!("key/{number:02}").into_bytes()
}

/// A read of a transaction before its first change, and what it returned.
#[derive(Debug)]
enum Read {
    Key(Vec<u8>, Option<Value>),
    /// The first pairs of a range, or the last ones in reverse.
    Range {
        keys: RangeInclusive<Vec<u8>>,
        first: Vec<(Value, Value)>,
        last: Vec<(Value, Value)>,
    },
}

impl Read {
    fn holds(&self, contents: &Contents) -> bool {
        match self {
            Self::Key(key, value) => contents.get(key).map(Vec::as_slice) == value.as_deref(),
            Self::Range { keys, first, last } => {
                let is = |(key, value): &(&Vec<u8>, &Vec<u8>), read: &(Value, Value)| {
                    **key == *read.0 && **value == *read.1
                };
                let mut pairs = contents.range(keys.clone());
                first.iter().all(|read| pairs.next().is_some_and(|pair| is(&pair, read)))
                    && last.iter().all(|read| pairs.next_back().is_some_and(|pair| is(&pair, read)))
            }
        }
    }
}

/// A write that was made: what it read, and what it changed.
#[derive(Debug)]
struct Done {
    reads: Vec<Read>,
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn read(transaction: &Transaction, rng: &mut ChaCha8Rng) -> criba::Result<Vec<Read>> {
    let mut reads = Vec::new();
    for _ in 0..rng.random_range(1..4) {
        if rng.random_bool(0.6) {
            let keys: Vec<_> =
                (0..rng.random_range(1..4)).map(|_| key(rng.random_range(0..KEYS))).collect();
            let values = transaction.get_many(&keys)?;
            reads.extend(keys.into_iter().zip(values).map(|(key, value)| Read::Key(key, value)));
            continue;
        }
        let from = rng.random_range(0..KEYS);
        let keys = key(from)..=key(rng.random_range(from..KEYS));
        let mut range = transaction.range(keys.clone());
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for _ in 0..rng.random_range(0..6) {
            let forward = rng.random_bool(0.5);
            let pair = if forward { range.next() } else { range.next_back() };
            let Some(pair) = pair.transpose()? else { break };
            if forward { first.push(pair) } else { last.push(pair) }
        }
        drop(range);
        reads.push(Read::Range { keys, first, last });
    }
    Ok(reads)
}

/// One write of a thread. `None` if it was not made.
fn write(db: &Db, number: u64, rng: &mut ChaCha8Rng) -> criba::Result<Option<Done>> {
    let durability = if rng.random_bool(0.1) { Durability::Synced } else { Durability::Buffered };
    let (mut reads, mut changes) = (Vec::new(), vec![(mark(number), Some(Vec::new()))]);
    let transacts = rng.random_bool(0.8);
    for _ in 0..rng.random_range(1..4) {
        let value = rng.random_bool(0.7).then(|| format!("{number}").into_bytes());
        changes.push((key(rng.random_range(0..KEYS)), value));
    }
    let result = if transacts {
        let mut transaction = db.transaction();
        reads = read(&transaction, rng)?;
        if rng.random_bool(0.2) {
            let from = rng.random_range(0..KEYS);
            let keys = key(from)..=key(from + 2);
            let first = transaction.range(keys.clone()).collect::<criba::Result<Vec<_>>>()?;
            assert_eq!(transaction.delete_range(keys.clone())?, first.len() as u64);
            changes.splice(0..0, first.iter().map(|(key, _)| (key.to_vec(), None)));
            reads.push(Read::Range { keys, first, last: Vec::new() });
        }
        for (key, value) in &changes {
            match value {
                Some(value) => transaction.put(key, value),
                None => transaction.delete(key),
            };
        }
        if rng.random_bool(0.5) {
            std::thread::yield_now(); // another thread writes meanwhile, also on one processor
        }
        transaction.commit(durability)
    } else {
        let mut batch = Batch::new();
        for (key, value) in &changes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        if rng.random_bool(0.5) {
            let key = key(rng.random_range(0..KEYS));
            let found = db.get(&key)?;
            match &found {
                Some(value) => batch.require(&key, value),
                None => batch.require_absent(&key),
            };
            reads.push(Read::Key(key, found));
        }
        db.write_with(batch, durability)
    };
    match result {
        Ok(()) => Ok(Some(Done { reads, changes })),
        Err(Error::Conflict | Error::ConditionFailed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The writes that were made, by the numbers of their marks, and the number of those that were not.
fn run(db: &Db, seed: u64, writes: u64) -> (HashMap<u64, Done>, u64) {
    std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            scope.spawn(move || {
                let mut rng = ChaCha8Rng::seed_from_u64(seed * THREADS + thread);
                let (mut made, mut refused) = (HashMap::new(), 0);
                for number in (thread..writes).step_by(THREADS as usize) {
                    match write(db, number, &mut rng).unwrap() {
                        Some(done) => _ = made.insert(number, done),
                        None => refused += 1,
                    }
                    match rng.random_range(0..200) {
                        0 => db.compact().unwrap(),
                        1..6 => db.flush().unwrap(),
                        _ => {}
                    }
                }
                (made, refused)
            })
        });
        let threads: Vec<_> = threads.collect();
        let (mut made, mut refused) = (HashMap::new(), 0);
        for thread in threads {
            let (of_thread, refused_here) = thread.join().unwrap();
            made.extend(of_thread);
            refused += refused_here;
        }
        (made, refused)
    })
}

#[test]
fn committed_transactions_read_what_the_writes_before_them_left() {
    let rounds = if is_full() { 60 } else { 4 };
    for seed in 0..rounds {
        let dir = tempdir();
        let vfs = LayeredVfs::new(Arc::new(RealVfs), Marks::default());
        let options = criba::Options::new().vfs(Arc::new(vfs.clone()));
        let policy = if seed % 4 == 3 { FilterPolicy::none() } else { policy() };
        let options = options.filter(policy).memtable_bytes(32 << 10).table_bytes(8 << 10);
        let db = options.background_threads(1 + seed as usize % 2).open(dir.path()).unwrap();
        let (mut made, refused) = run(&db, seed, 4000);
        let order = vfs.layer().0.lock().unwrap().clone();
        assert_eq!(order.len(), made.len(), "writes in the log and writes that were made");
        let (mut contents, mut reads) = (Contents::new(), 0);
        for number in order {
            let Done { reads: of_write, changes } = made.remove(&number).expect("it was made once");
            for read in &of_write {
                assert!(
                    read.holds(&contents),
                    "seed {seed}, write {number}: {read:?} of {contents:?}"
                );
            }
            reads += of_write.len();
            for (key, value) in changes {
                match value {
                    Some(value) => _ = contents.insert(key, value),
                    None => _ = contents.remove(&key),
                }
            }
        }
        let stored = db.iter().map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())));
        assert!(stored.collect::<criba::Result<Contents>>().unwrap() == contents);
        let flushes = db.stats().activity.flushes;
        println!("seed {seed}: {reads} reads, {refused} writes refused, {flushes} flushes");
        assert!(reads > 1500 && refused > 100 && flushes > 20);
    }
}
