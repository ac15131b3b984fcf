//! W11 and W11c: threads transfer money between accounts. Each transfer is a transaction that reads and writes two
//! balances, and begins again after a conflict.
//!
//! A committed transfer survives a crash of the process, but no power failure. (With redb it does not survive either.)

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Bench;
use crate::random::Random;
use crate::settings::Shape;
use crate::stores::Store;
use crate::{Result, process};

pub const ACCOUNTS: u64 = 10_000;
/// The balance of each account before the first transfer.
const BALANCE: i64 = 1000;

/// Transfers between the first `used` accounts, with 1, 2, 4 and 8 threads: for each a new store.
pub fn transfers<S: Store>(bench: &mut Bench<'_>, used: u64) -> Result<()> {
    let keys: Vec<Vec<u8>> = (0..bench.job.n)
        .map(|number| {
            let mut key = Vec::new();
            bench.keys.write(number, &mut key);
            key
        })
        .collect();
    let used = &keys[..used.min(bench.job.n) as usize];
    for threads in [1, 2, 4, 8] {
        let dir = bench.place.scratch()?;
        let mut store: S = bench.open(&dir, &bench.config(Shape::Settled))?;
        for key in &keys {
            store.put(key, &BALANCE.to_le_bytes())?;
        }
        store.flush()?;
        store.settle()?;

        let (start, cpu) = (Instant::now(), process::cpu_seconds());
        let length = Duration::from_secs_f64(bench.job.seconds);
        let (made, conflicts) = run(&store, used, &bench.random, threads, length)?;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), process::cpu_seconds() - cpu);
        bench.figure(&format!("threads_{threads}_per_s"), made as f64 / seconds);
        bench.figure(&format!("threads_{threads}_conflicts"), conflicts as f64 / made as f64);
        bench.figure(&format!("threads_{threads}_cpu_us"), cpu * 1e6 / made as f64);

        check_sum(&store, &keys)?;
        store.close()?;
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// Returns the numbers of transfers and of conflicts.
fn run<S: Store>(
    store: &S,
    keys: &[Vec<u8>],
    random: &Random,
    threads: u64,
    length: Duration,
) -> Result<(u64, u64)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        let mut seeds = random.clone();
        let threads: Vec<_> = (0..threads)
            .map(|_| Random::new(seeds.next()))
            .map(|random| scope.spawn(move || transfer_until(store, keys, random, done)))
            .collect();
        std::thread::sleep(length);
        done.store(true, Ordering::Relaxed);
        let (mut made, mut conflicts) = (0, 0);
        for thread in threads {
            let of_thread = thread.join().map_err(|_| "a thread panicked")??;
            made += of_thread.0;
            conflicts += of_thread.1;
        }
        Ok((made, conflicts))
    })
}

fn transfer_until<S: Store>(
    store: &S,
    keys: &[Vec<u8>],
    mut random: Random,
    done: &AtomicBool,
) -> Result<(u64, u64)> {
    let n = keys.len() as u64;
    let (mut made, mut conflicts) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        let from = random.below(n);
        let to = (from + 1 + random.below(n - 1)) % n; // another one
        let amount = 1 + random.below(100).cast_signed();
        let accounts = [from, to].map(|number| &keys[number as usize][..]);
        conflicts += store.transact(accounts, |[from, to]| [from - amount, to + amount])?;
        made += 1;
    }
    Ok((made, conflicts))
}

/// A lost update or half a transfer is an error.
fn check_sum<S: Store>(store: &S, keys: &[Vec<u8>]) -> Result<()> {
    let mut sum = 0;
    for key in keys {
        store.transact([key, key], |balances| {
            sum += balances[0];
            balances
        })?;
    }
    let expected: i64 = keys.iter().map(|_| BALANCE).sum();
    if sum == expected { Ok(()) } else { Err(format!("the sum is {sum}, not {expected}").into()) }
}
