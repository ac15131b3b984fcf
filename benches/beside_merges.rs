//! `cargo bench -p criba-benches --bench beside_merges [-- KEYS]`: a writer at full speed beside `compact`,
//! and beside an idle merge, over KEYS keys (default: 20 million). Prints the puts of the slowest whole
//! second, the mean, and the longest put.
//!
//! Goal: at least 50,000 puts in each second, and no put longer than 100 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criba::{Db, Event, Options, Result};

const VALUE: [u8; 100] = [7; 100];

/// Keys in random order.
fn key(number: u64) -> [u8; 16] {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut key = *b"user\0\0\0\0\0\0\0\0\0\0\0\0";
    key[4..12].copy_from_slice(&mixed.to_be_bytes());
    key
}

/// Puts at full speed until `done`; prints the result.
fn write(db: &Db, what: &str, mut number: u64, done: impl Fn() -> bool) -> Result<u64> {
    let start = Instant::now();
    let (mut seconds, mut longest) = (vec![0_u64], Duration::ZERO);
    let mut before = start;
    while !done() {
        db.put(key(number), VALUE)?;
        number += 1;
        let now = Instant::now();
        longest = longest.max(now - before);
        before = now;
        seconds.resize(seconds.len().max((now - start).as_secs() as usize + 1), 0);
        if let Some(last) = seconds.last_mut() {
            *last += 1;
        }
    }
    let whole = &seconds[..seconds.len() - 1];
    let (slowest, puts) = (whole.iter().min(), whole.iter().sum::<u64>());
    println!(
        "{what}: {} s, {} puts in the slowest second, {} in the mean one, longest put {longest:?}",
        whole.len(),
        slowest.unwrap_or(&0),
        puts / whole.len().max(1) as u64,
    );
    println!("    puts a second: {seconds:?}");
    Ok(number)
}

fn main() -> Result<()> {
    let keys = std::env::args().find_map(|argument| argument.parse().ok());
    let keys: u64 = keys.unwrap_or(20_000_000);
    let dir = tempfile::tempdir().expect("a directory");
    let merging = Arc::new(AtomicBool::new(false));
    let listener = {
        let merging = Arc::clone(&merging);
        move |event: &Event| match event {
            Event::CompactionStarted { .. } => merging.store(true, Ordering::SeqCst),
            Event::CompactionEnded { .. } => merging.store(false, Ordering::SeqCst),
            _ => {}
        }
    };
    let options = Options::new().memtable_bytes(8 << 20).on_event(listener);
    let db = options.open(dir.path().join("store"))?;
    for number in 0..keys {
        db.put(key(number), VALUE)?;
    }
    db.wait_until_settled()?;

    let mut number = write(&db, "beside nothing", keys, {
        let start = Instant::now();
        move || start.elapsed() > Duration::from_secs(5)
    })?;
    let compacted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let compact = scope.spawn(|| {
            let ended = db.compact();
            compacted.store(true, Ordering::SeqCst);
            ended
        });
        number = write(&db, "beside compact", number, || compacted.load(Ordering::SeqCst))?;
        compact.join().expect("no panic")
    })?;

    // Level 0 gets enough to be merged into all of the level below while the store is quiet.
    db.wait_until_settled()?;
    for _ in 0..keys / 15 {
        db.put(key(number), VALUE)?;
        number += 1;
    }
    db.flush()?;
    while merging.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let start = Instant::now();
    while !merging.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let from = Instant::now();
    let until = move || from.elapsed() > Duration::from_secs(15);
    write(&db, "beside a merge begun in quiet", number, until)?;
    db.close()
}
