//! The seen-set of a crawler: four threads check URLs in batches, and each URL is new for one of them.
//!
//! `cargo run --release --example seen_set [CHECKS]` prints the rate. Of the checks, 60 % are repeats.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::scope;
use std::time::Instant;

use criba::{Db, Result};

const THREADS: usize = 4;
const BATCH: usize = 64;

fn url(number: usize) -> String {
    format!("https://example.org/page/{number}")
}

/// The URL of a check. Five checks in a row come to two URLs, in an order that looks random.
fn check(number: usize, urls: usize) -> usize {
    (number * 2 / 5).wrapping_mul(0x9E37_79B9) % urls
}

/// Checks URLs of one thread. Notes those that were new.
fn crawl(db: &Db, checks: std::ops::Range<usize>, urls: usize, wins: &[AtomicU8]) -> Result<()> {
    let checks: Vec<usize> = checks.map(|number| check(number, urls)).collect();
    for batch in checks.chunks(BATCH) {
        let new = db.insert_many_if_absent(batch.iter().map(|number| (url(*number), "")))?;
        for (number, new) in batch.iter().zip(new) {
            if new {
                // Here the page would be fetched.
                wins[*number].fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let checks: usize = std::env::args().nth(1).map_or(Ok(200_000), |checks| checks.parse())?;
    let urls = checks * 2 / 5;
    let parent = tempfile::tempdir()?;
    let db = Db::open(parent.path().join("seen"))?;

    let wins: Vec<AtomicU8> = (0..urls).map(|_| AtomicU8::new(0)).collect();
    let begin = Instant::now();
    let crawled = scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let part = checks * thread / THREADS..checks * (thread + 1) / THREADS;
                let (db, wins) = (&db, &wins);
                scope.spawn(move || crawl(db, part, urls, wins))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    });
    crawled?;
    let seconds = begin.elapsed().as_secs_f64();

    let seen = wins.iter().filter(|wins| wins.load(Ordering::Relaxed) == 1).count();
    let won_twice = wins.iter().filter(|wins| wins.load(Ordering::Relaxed) > 1).count();
    println!("{checks} checks of {urls} URLs by {THREADS} threads");
    println!("{seen} URLs had one winner, {won_twice} had more");
    println!("{:.0} checks per second", checks as f64 / seconds);
    assert!(won_twice == 0 && seen == db.prefix("https://").count());
    Ok(())
}
