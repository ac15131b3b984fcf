//! `cargo bench -p criba-benches --bench beside_checkpoints [-- KEYS [DIRECTORY]]`: the longest put of a writer
//! at full speed, without and beside 20 checkpoints, over KEYS keys (default: 1 million) in tables of 64 KiB;
//! under a directory that stays empty (default: that of temporary files).
//!
//! Goal: no put longer than 50 ms because of a checkpoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criba::{Db, Options, Result};

const CHECKPOINTS: usize = 20;
const VALUE: [u8; 100] = [7; 100];

/// Keys in random order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// Puts at full speed while `work` runs; prints the longest put.
fn beside<T>(db: &Db, what: &str, from: &mut u64, work: impl FnOnce() -> T + Send) -> Result<T>
where
    T: Send,
{
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let made = work();
            done.store(true, Ordering::SeqCst);
            made
        });
        let (mut puts, start): (Vec<Duration>, _) = (Vec::new(), Instant::now());
        while !done.load(Ordering::SeqCst) {
            let before = Instant::now();
            db.put(key(*from), VALUE)?;
            puts.push(before.elapsed());
            *from += 1;
        }
        puts.sort_unstable_by(|a, b| b.cmp(a));
        println!(
            "{what}: {} puts in {:.1?}, the longest {:.1?}",
            puts.len(),
            start.elapsed(),
            &puts[..3]
        );
        Ok(worker.join().expect("no panic"))
    })
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let keys: u64 = arguments.next().map_or(1_000_000, |keys| keys.parse().expect("a number"));
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(parent).expect("a directory");
    let options = Options::new().memtable_bytes(8 << 20).table_bytes(64 << 10);
    let db = options.open(dir.path().join("store"))?;
    let mut number = 0;
    while number < keys {
        db.put(key(number), VALUE)?;
        number += 1;
    }
    db.wait_until_settled()?;
    let seconds = Duration::from_secs(5);
    for _ in 0..2 {
        beside(&db, "beside nothing", &mut number, || std::thread::sleep(seconds))?;
        db.wait_until_settled()?;
        println!("{} tables", db.tables().len());
        let made = beside(&db, "beside 20 checkpoints", &mut number, || {
            let make = |number: usize| {
                let path = dir.path().join(format!("checkpoint{number}"));
                let start = Instant::now();
                db.checkpoint(&path)?;
                let took = start.elapsed();
                std::fs::remove_dir_all(path).expect("a checkpoint");
                Ok(took)
            };
            (0..CHECKPOINTS).map(make).collect::<Result<Vec<Duration>>>()
        })??;
        let (least, most) = (made.iter().min(), made.iter().max());
        println!(
            "    a checkpoint took {:.1?} to {:.1?}",
            least.expect("some"),
            most.expect("some")
        );
        db.wait_until_settled()?;
    }
    db.close()
}
