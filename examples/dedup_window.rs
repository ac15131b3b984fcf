//! A window of messages: four threads drop each message that came before within three seconds.
//!
//! `cargo run --release --example dedup_window [SECONDS]` prints a line a second. The window moves, and stays as large.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use criba::{Db, Options, Result};

const THREADS: u64 = 4;
const WINDOW: Duration = Duration::from_secs(3);
/// Of each thread.
const MESSAGES_A_SECOND: u64 = 5000;

#[derive(Default)]
struct Counts {
    seen: AtomicU64,
    duplicates: AtomicU64,
}

/// Receives messages at a constant rate. Every fourth comes to another thread, too.
fn receive(db: &Db, thread: u64, messages: u64, counts: &Counts) -> Result<()> {
    let begin = Instant::now();
    for number in 0..messages {
        let message = if number % 4 == 3 {
            (number - 3) * THREADS + (thread + 1) % THREADS
        } else {
            number * THREADS + thread
        };
        let id = message.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        // The store's own time to live is the window.
        let is_new = db.insert_if_absent(id, "")?;
        counts.seen.fetch_add(1, Ordering::Relaxed);
        counts.duplicates.fetch_add(u64::from(!is_new), Ordering::Relaxed);
        let due = Duration::from_micros((number + 1) * 1_000_000 / MESSAGES_A_SECOND);
        sleep(due.saturating_sub(begin.elapsed()));
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(8), |seconds| seconds.parse())?;
    let parent = tempfile::tempdir()?;
    // Small sizes, because a few seconds of messages are few.
    let options = Options::new().default_ttl(WINDOW).memtable_bytes(256 << 10).cache_bytes(1 << 20);
    let db = options.open(parent.path().join("window"))?;

    let (counts, messages) = (Counts::default(), seconds * MESSAGES_A_SECOND);
    scope(|scope| -> Result<()> {
        let (db, counts) = (&db, &counts);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || receive(db, thread, messages, counts)))
            .collect();
        for second in 1..=seconds {
            sleep(Duration::from_secs(1));
            println!(
                "{second} s: {} messages, {} duplicates; {} keys live; {} KiB of memory, {} KiB on disk",
                counts.seen.load(Ordering::Relaxed),
                counts.duplicates.load(Ordering::Relaxed),
                db.iter().count(),
                db.memory().total() >> 10,
                db.disk_bytes()? >> 10,
            );
        }
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let stats = db.stats();
    println!(
        "{} expired keys dropped by merges, {} tables removed unread",
        stats.activity.expired_dropped, stats.activity.tables_expired
    );
    Ok(())
}
