//! `cargo bench -p criba-benches --bench writers`: puts of 1, 2, 4 and 8 threads as a multiple of those of
//! one thread; the same with a mutex of the program around each put; the floor, which is a mutex around a write
//! of as many bytes as the log gets for a put; and synced puts of one and 8 threads.
//!
//! The configurations take turns in each round, so that other load affects all. A ratio divides by one thread
//! in the same round. The argument `buffered` leaves out the mutex of the program and the synced puts.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread::{available_parallelism, scope};
use std::time::Instant;

use criba::{Batch, Db, Durability};

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
    if std::env::args().any(|argument| argument == "buffered") {
        return compare(memory, &[plain, floors].concat());
    }
    compare(memory, &[plain, own_mutex, floors].concat())?;
    // On a disk, whose syncs take time.
    let synced = [1, 8].map(|threads| Configuration::new(threads).synced());
    compare(Path::new(env!("CARGO_TARGET_TMPDIR")), &synced)
}
