//! `cargo bench -p criba-benches --bench writers`: puts of 1, 2, 4 and 8 threads as a multiple of those of
//! one thread; the same with a mutex of the program around each put; the floor, which is a mutex around a write
//! of as many bytes as the log gets for a put; synced puts of 1, 8 and 64 threads; and how long single puts take
//! where a sync takes 10 ms.
//!
//! The configurations take turns in each round, so that other load affects all. A ratio divides by one thread
//! in the same round. An argument selects a part: `buffered` (without the mutex of the program), `synced` or `beside`.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread::{available_parallelism, scope, sleep};
use std::time::{Duration, Instant};

use criba::vfs::{Call, Layer, LayeredVfs, Operation, RealVfs};
use criba::{Batch, Db, Durability, Options};

const ROUNDS: usize = 9;
/// Puts per measurement, of all threads together.
const PUTS: u64 = 200_000;
const SYNCED_PUTS: u64 = 4_000;
const VALUE: [u8; 100] = [b'v'; 100];
/// Bytes of the log for a put of eight and 100 bytes.
const RECORD: [u8; 135] = [b'v'; 135];

#[derive(Debug, Clone, Copy, PartialEq)]
struct Configuration {
    threads: u64,
    durability: Durability,
    /// Whether the program holds its own mutex around each put.
    own_mutex: bool,
    /// A mutex and a `pwrite`, instead of a put.
    floor: bool,
}

impl Configuration {
    const fn new(threads: u64) -> Self {
        Self { threads, durability: Durability::Buffered, own_mutex: false, floor: false }
    }

    const fn with_own_mutex(self) -> Self {
        Self { own_mutex: true, ..self }
    }

    const fn floor(self) -> Self {
        Self { floor: true, ..self }
    }

    const fn synced(self) -> Self {
        Self { durability: Durability::Synced, ..self }
    }

    const fn base(self) -> Self {
        Self { threads: 1, own_mutex: false, ..self }
    }

    fn puts(self) -> u64 {
        if self.durability == Durability::Synced { SYNCED_PUTS } else { PUTS }
    }

    fn name(self) -> String {
        let puts = match self.durability {
            _ if self.floor => "writes under a mutex",
            Durability::Synced => "synced puts",
            Durability::Buffered => "puts",
        };
        let mutex = if self.own_mutex { ", own mutex" } else { "" };
        format!("{puts}, {} threads{mutex}", self.threads)
    }

    /// Puts per second in a new store.
    fn run(self, dir: &Path) -> Result<f64, Box<dyn Error>> {
        let dir = tempfile::tempdir_in(dir)?;
        let db = Db::open(dir.path().join("store"))?;
        let mutex = Mutex::new(());
        let log = (File::create(dir.path().join("log"))?, Mutex::new(0));
        let start = Barrier::new(self.threads as usize + 1);
        let seconds = scope(|scope| {
            let writers: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (db, mutex, log, start) = (&db, &mutex, &log, &start);
                    scope.spawn(move || {
                        start.wait();
                        (thread..self.puts()).step_by(self.threads as usize).try_for_each(|put| {
                            if self.floor {
                                let (file, end) = log;
                                let mut end = end.lock().unwrap_or_else(PoisonError::into_inner);
                                file.write_all_at(&RECORD, *end)
                                    .map_err(|error| error.to_string())?;
                                *end += RECORD.len() as u64;
                                return Ok(());
                            }
                            let _held = self
                                .own_mutex
                                .then(|| mutex.lock().unwrap_or_else(PoisonError::into_inner));
                            let key = put.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                            let mut batch = Batch::new();
                            batch.put(key, VALUE);
                            db.write_with(batch, self.durability).map_err(|error| error.to_string())
                        })
                    })
                })
                .collect();
            start.wait();
            let start = Instant::now();
            for writer in writers {
                writer.join().map_err(|_| "a writer panicked")??;
            }
            Ok::<_, Box<dyn Error>>(start.elapsed().as_secs_f64())
        })?;
        black_box(db).close()?;
        Ok(self.puts() as f64 / seconds)
    }
}

/// Measures configurations. Ratios are those to one thread that does the same, without a mutex of the program.
fn compare(dir: &Path, configurations: &[Configuration]) -> Result<(), Box<dyn Error>> {
    let mut rates = vec![Vec::new(); configurations.len()];
    for _ in 0..ROUNDS {
        for (configuration, rates) in configurations.iter().zip(&mut rates) {
            rates.push(configuration.run(dir)?);
        }
    }
    println!("{:32}{:>10} {:>7} {:>6} {:>6}  rounds", "", "median/s", "ratio", "worst", "best");
    for (configuration, each) in configurations.iter().zip(&rates) {
        let rounds: Vec<_> = each.iter().map(|rate| format!("{:.0}", rate / 1e3)).collect();
        let base = configurations.iter().position(|&other| other == configuration.base());
        let base = &rates[base.ok_or("no base")?];
        let ratios = sorted(each.iter().zip(base).map(|(rate, base)| rate / base));
        println!(
            "{:32}{:>10.0} {:>7.2} {:>6.2} {:>6.2}  {} thousand/s",
            configuration.name(),
            sorted(each.iter().copied())[ROUNDS / 2],
            ratios[ROUNDS / 2],
            ratios[0],
            ratios[ROUNDS - 1],
            rounds.join(" "),
        );
    }
    Ok(())
}

/// The time of a sync in [`beside`].
const SYNC: Duration = Duration::from_millis(10);
/// One put begins so long after the last, and later if that took longer.
const INTERVAL: Duration = Duration::from_micros(20);
const PACED_PUTS: usize = 100_000;
/// Filled some 18 times.
const MEMTABLE_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct SlowSyncs;

impl Layer for SlowSyncs {
    fn call(&self, call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        if call.operation == Operation::Sync {
            sleep(SYNC);
        }
        next()
    }
}

/// Prints how long single buffered puts take where a sync takes 10 ms: alone, and beside a thread that syncs in a loop.
fn beside(dir: &Path) -> Result<(), Box<dyn Error>> {
    println!("{:32}{:>8} {:>8} {:>8} {:>8}  above 1 ms", "µs", "p50", "p99", "p99.9", "most");
    for round in 1..=3 {
        for syncs in [false, true] {
            let dir = tempfile::tempdir_in(dir)?;
            let vfs = LayeredVfs::new(Arc::new(RealVfs), SlowSyncs);
            let options = Options::new().vfs(Arc::new(vfs)).memtable_bytes(MEMTABLE_BYTES);
            let db = options.open(dir.path().join("store"))?;
            let done = AtomicBool::new(false);
            let mut times = scope(|scope| {
                if syncs {
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            let mut batch = Batch::new();
                            batch.put("synced", VALUE);
                            db.write_with(batch, Durability::Synced).expect("a sound disk");
                        }
                    });
                }
                let times = paced_puts(&db);
                done.store(true, Ordering::Relaxed);
                times
            })?;
            let stats = db.stats();
            times.sort();
            let micros = |of: usize| times[times.len() * of / 1000].as_secs_f64() * 1e6;
            let slow = times.iter().filter(|time| **time > Duration::from_millis(1)).count();
            let name = if syncs { "beside syncs" } else { "alone" };
            println!(
                "{:32}{:>8.1} {:>8.1} {:>8.1} {:>8.0}  {slow} of {PACED_PUTS}; {} flushes",
                format!("round {round}, {name}"),
                micros(500),
                micros(990),
                micros(999),
                times[times.len() - 1].as_secs_f64() * 1e6,
                stats.activity.flushes,
            );
        }
    }
    Ok(())
}

fn paced_puts(db: &Db) -> Result<Vec<Duration>, criba::Error> {
    let mut times = Vec::with_capacity(PACED_PUTS);
    let mut next = Instant::now();
    for put in 0..PACED_PUTS as u64 {
        while Instant::now() < next {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        db.put(put.to_be_bytes(), VALUE)?;
        times.push(start.elapsed());
        next = start + INTERVAL;
    }
    Ok(times)
}

fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// Other arguments, as those from cargo, have no effect.
fn main() -> Result<(), Box<dyn Error>> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{} processors, load {}", available_parallelism()?, load.trim());
    let memory = Path::new("/dev/shm");
    let plain = [1, 2, 4, 8].map(Configuration::new);
    let own_mutex = plain.map(Configuration::with_own_mutex);
    let floors = plain.map(Configuration::floor);
    let parts = ["buffered", "synced", "beside"];
    let part = std::env::args().find(|argument| parts.contains(&argument.as_str()));
    let is_selected = |name| part.as_ref().is_none_or(|part| part == name);
    if part.is_none() {
        compare(memory, &[plain, own_mutex, floors].concat())?;
    } else if is_selected("buffered") {
        compare(memory, &[plain, floors].concat())?;
    }
    if is_selected("synced") {
        // On a disk, whose syncs take time.
        let synced = [1, 8, 64].map(|threads| Configuration::new(threads).synced());
        compare(Path::new(env!("CARGO_TARGET_TMPDIR")), &synced)?;
    }
    if is_selected("beside") {
        beside(memory)?;
    }
    Ok(())
}
