//! `cargo bench -p criba-benches --bench hidden`: scans that pass deleted, overwritten and newer entries, forward and
//! backward; a queue by `first` and `delete`; a flush beside many snapshots; space after a snapshot's release.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use criba::{Db, Options, Snapshot};

const ROUNDS: usize = 9;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism()?;
    println!("{processors} processors, load {load}");
    prefix()?;
    empty_ranges()?;
    hot_key()?;
    queue()?;
    flush_beside_snapshots()?;
    space()
}

fn open(dir: &Path) -> Outcome<Db> {
    Ok(Options::new().memtable_bytes(256 << 20).open(dir)?)
}

fn key(number: u32) -> String {
    format!("active/{number:08}")
}

/// The median time of a scan's first item, forward and backward.
fn both(what: &str, scan: impl Fn() -> criba::Range) -> Outcome<()> {
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (times, backward) in times.iter_mut().zip([false, true]) {
            let start = Instant::now();
            let mut range = scan();
            let item = if backward { range.next_back() } else { range.next() };
            times.push(start.elapsed());
            drop(item.transpose()?);
        }
    }
    let [forward, backward] = times.map(median);
    let ratio = backward.as_secs_f64() / forward.as_secs_f64();
    println!("{what:58} {forward:>10.1?} {backward:>10.1?}   {ratio:.2}");
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A prefix with one live key behind finished pairs of a put and a tombstone.
fn prefix() -> Outcome<()> {
    const PAIRS: u32 = 100_000;
    println!("\n{:58} {:>10} {:>10}   ratio", "", "forward", "backward");
    let dir = tempfile::tempdir()?;
    let db = open(dir.path())?;
    let early = db.snapshot();
    for number in 0..PAIRS {
        db.put(key(number), "a transaction")?;
        db.delete(key(number))?;
    }
    db.put(key(PAIRS / 2) + "!", "live")?;
    both("live key among 100,000 pairs, memtable kept by a snapshot", || db.prefix("active/"))?;
    drop(early);
    both("the same, first scans without the snapshot", || db.prefix("active/"))?;
    db.flush()?;
    both("the same, flushed", || db.prefix("active/"))?;
    db.wait_until_settled()?;
    both("the same, settled", || db.prefix("active/"))
}

fn empty_ranges() -> Outcome<()> {
    const KEYS: u32 = 1_000_000;
    let dir = tempfile::tempdir()?;
    let db = open(dir.path())?;
    let early = db.snapshot();
    for number in 0..KEYS {
        db.delete(key(number))?;
    }
    both("empty range behind a million tombstones", || db.range("z"..))?;
    both("empty range before them", || db.range(.."a"))?;
    let dir = tempfile::tempdir()?;
    let db = open(dir.path())?;
    db.put("active/00500000!", "old")?;
    let old = db.snapshot();
    for number in 0..KEYS {
        db.put(key(number), "new")?;
    }
    both("empty range of a snapshot before a million newer keys", || old.range(.."active/"))?;
    both("one key of a snapshot among a million newer ones", || old.iter())?;
    drop(early);
    Ok(())
}

/// Scans past a key that was put often, as a multiple of those past a key that was put once.
fn hot_key() -> Outcome<()> {
    let store = |puts: u32| -> Outcome<(tempfile::TempDir, Db, Snapshot)> {
        let dir = tempfile::tempdir()?;
        let db = open(dir.path())?;
        for name in ["a", "c"] {
            db.put(name, "other")?;
        }
        for number in 0..puts {
            db.put("b", number.to_le_bytes())?;
        }
        let snapshot = db.snapshot();
        Ok((dir, db, snapshot))
    };
    let (_once_dir, once, _) = store(1)?;
    let (_often_dir, often, snapshot) = store(300_000)?;
    let time = |scan: &dyn Fn() -> criba::Result<usize>| -> Outcome<Duration> {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..1000 {
                assert_eq!(scan()?, 3);
            }
            times.push(start.elapsed() / 1000);
        }
        Ok(median(times))
    };
    println!("\n{:58} {:>10} {:>10}   ratio", "", "put once", "often");
    for (what, backward) in [("scan past a key put 300,000 times", false), ("backward", true)] {
        let count = |range: criba::Range| -> criba::Result<usize> {
            if backward {
                range.rev().map(|item| item.map(|_| 1)).sum()
            } else {
                range.map(|item| item.map(|_| 1)).sum()
            }
        };
        let one = time(&|| count(once.iter()))?;
        let many = time(&|| count(often.iter()))?;
        println!(
            "{what:58} {one:>10.1?} {many:>10.1?}   {:.2}",
            many.as_secs_f64() / one.as_secs_f64()
        );
    }
    drop(snapshot);
    Ok(())
}

fn queue() -> Outcome<()> {
    const ITEMS: u32 = 100_000;
    println!();
    for settled in [false, true] {
        let dir = tempfile::tempdir()?;
        let db = Db::open(dir.path())?;
        for number in 0..ITEMS {
            db.put(key(number), [1; 20])?;
        }
        if settled {
            db.wait_until_settled()?;
        }
        let start = Instant::now();
        while let Some((key, _)) = db.first()? {
            db.delete(key)?;
        }
        let from = if settled { "in tables" } else { "in the memtable" };
        println!("100,000 pops by first and delete, {from:24} {:>10.2?}", start.elapsed());
    }
    Ok(())
}

fn flush_beside_snapshots() -> Outcome<()> {
    let time = |snapshots: usize| -> Outcome<Duration> {
        let dir = tempfile::tempdir()?;
        let db = open(dir.path())?;
        let mut taken = Vec::new();
        for number in 0..20_000 {
            db.put(format!("other/{number}"), "value")?;
            if taken.len() < snapshots {
                taken.push(db.snapshot());
            }
        }
        db.flush()?;
        for number in 0..50_000 {
            db.put(key(number), [1; 20])?;
        }
        let start = Instant::now();
        db.flush()?;
        Ok(start.elapsed())
    };
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        times[0].push(time(0)?);
        times[1].push(time(20_000)?);
    }
    let [alone, beside] = times.map(median);
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    println!(
        "\nflush of 50,000 keys {alone:.1?}, beside 20,000 snapshots {beside:.1?}: {ratio:.2}"
    );
    Ok(())
}

/// A store that is overwritten once under a snapshot.
fn space() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let db = Options::new().memtable_bytes(4 << 20).open(dir.path())?;
    let bytes = || db.tables().iter().map(|table| table.file_bytes).sum::<u64>() as f64;
    let write = |value: u8| (0..200_000).try_for_each(|number| db.put(key(number), [value; 100]));
    write(1)?;
    db.compact()?;
    let live = bytes();
    let snapshot = db.snapshot();
    write(2)?;
    db.compact()?;
    db.wait_until_settled()?;
    let under = bytes() / live;
    drop(snapshot);
    db.wait_until_settled()?;
    println!(
        "space under a snapshot {under:.2} times the live data, after its release {:.2}",
        bytes() / live
    );
    Ok(())
}
