//! Lookups of absent keys, one by one and in batches, beside the work that each lookup must do.
//!
//! `cargo bench -p criba-benches --bench absent [-- KEYS …]`; default: 1,000,000 keys of 16 bytes. More than two
//! million keys are measured in one run only.
//!
//! The floor is a bare probe of a filter with as many keys and bits, plus its false-positive rate times the read
//! of a block of 4 KiB. It has no key to hash, no memtable, no choice of SSTables and no statistics. Figures are
//! medians of rounds, in which everything takes turns. If valgrind is installed, callgrind counts the
//! instructions of a lookup, false positives included; it counts those of AVX2, as it has no AVX-512.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use criba::{Db, FilterKind, FilterPolicy, HashFunction, Options};
use criba_filter::HashFilter;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 9;
const LOOKUPS: u64 = 500_000;
const BATCH: usize = 16;
const L0_TABLES: u64 = 15;
const IN_MEMTABLE: u64 = 300_000;
const BLOCK: usize = 4096;

/// A child process for callgrind: the directory of the store and the shape.
const CHILD: &str = "CRIBA_BENCH_ABSENT";
/// Lookups under callgrind, which is slow.
const COUNTED: u64 = 20_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    OneRun,
    Batches,
    FullMemtable,
    FullL0,
    /// On L0, over the same keys, each under a policy of its own.
    TwoTables,
}

impl Shape {
    const ALL: [Self; 5] =
        [Self::OneRun, Self::Batches, Self::FullMemtable, Self::FullL0, Self::TwoTables];

    /// Whether it is measured with more than two million keys, too.
    fn is_for_many_keys(self) -> bool {
        matches!(self, Self::OneRun | Self::Batches)
    }

    fn tables(self) -> u64 {
        match self {
            Self::FullL0 => L0_TABLES,
            Self::TwoTables => 2,
            _ => 1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::OneRun => "one run",
            Self::Batches => "one run, batches of 16",
            Self::FullMemtable => "one run, 300,000 keys in the memtable",
            Self::FullL0 => "15 tables on L0",
            Self::TwoTables => "two tables on L0",
        }
    }
}

/// Sixteen bytes, in random order.
fn key(number: u64) -> String {
    format!("user{:012x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16)
}

fn absent(keys: u64, count: u64) -> Vec<String> {
    (keys..keys + count).map(key).collect()
}

fn open(dir: &Path, policy: FilterPolicy) -> Result<Db> {
    let options = Options::new().filter(policy).auto_compaction(false).seed(1);
    Ok(options.memtable_bytes(256 << 20).open(dir)?)
}

fn fill(dir: &Path, policies: [FilterPolicy; 2], keys: u64, shape: Shape) -> Result<()> {
    let db = open(dir, policies[0])?;
    let tables = shape.tables();
    for number in 0..keys {
        db.put(key(number), [7; 100])?;
        if number % (keys / tables) == keys / tables - 1 {
            db.flush()?;
            db.set_policy(policies[1])?;
        }
    }
    db.flush()?;
    if tables == 1 {
        db.compact()?;
    }
    Ok(db.close()?)
}

fn enter(dir: &Path, policy: FilterPolicy, shape: Shape) -> Result<Db> {
    let db = open(dir, policy)?;
    if shape == Shape::FullMemtable {
        for number in 0..IN_MEMTABLE {
            db.put(key(1 << 40 | number), [7; 20])?;
        }
    }
    Ok(db)
}

#[inline(never)]
fn counted_lookups(db: &Db, keys: &[String], shape: Shape) -> criba::Result<usize> {
    if shape == Shape::Batches {
        let found = |keys: &[String]| Ok(db.get_many(keys)?.iter().flatten().count());
        return keys.chunks(BATCH).map(found).sum();
    }
    keys.iter().map(|key| db.contains(key).map(usize::from)).sum()
}

/// Nanoseconds of one of `count`.
fn time(count: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(1e9 * start.elapsed().as_secs_f64() / count as f64)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Instructions of a lookup; `None` without valgrind.
fn instructions(dir: &Path, policy: usize, keys: u64, shape: Shape) -> Result<Option<f64>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok(None);
    }
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*counted_lookups*")
        .arg(std::env::current_exe()?)
        .env(CHILD, format!("{}|{policy}|{keys}|{}", dir.display(), shape as usize))
        .output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let line = printed.lines().find(|line| line.contains("Collected"));
    let count = line.filter(|_| output.status.success()).and_then(|line| line.rsplit(' ').next());
    let count: f64 = count.ok_or_else(|| format!("callgrind: {printed}"))?.parse()?;
    Ok(Some(count / COUNTED as f64))
}

/// Under the last two, stores have filters of two kinds or hashes.
fn policies() -> [(&'static str, [FilterPolicy; 2], FilterKind); 4] {
    let (bloom, ribbon) = (FilterPolicy::default(), FilterPolicy::ribbon());
    let other_hash = bloom.with_hash(HashFunction::MurmurHash2);
    [
        ("bloom", [bloom; 2], FilterKind::Bloom),
        ("ribbon", [ribbon; 2], FilterKind::Ribbon),
        ("bloom and ribbon", [bloom, ribbon], FilterKind::Ribbon),
        ("bloom of two hashes", [bloom, other_hash], FilterKind::Bloom),
    ]
}

/// What a lookup must do at least: filters of the same size to probe, and blocks to read.
struct Floor {
    tables: u64,
    filter: HashFilter,
    hashes: Vec<u64>,
    file: File,
    blocks: u64,
}

impl Floor {
    fn new(dir: &Path, kind: FilterKind, keys: u64, tables: u64) -> Result<Self> {
        let db = Db::open(dir)?;
        let bytes: usize = db.tables().iter().map(|table| table.filter.bytes()).sum();
        db.close()?;
        let hash = |number: u64| {
            let mut hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            hash ^ (hash >> 31)
        };
        let bits = 8.0 * bytes as f64 / keys as f64;
        let filter = HashFilter::build(kind, bits, (0..keys / tables).map(hash).collect());
        let paths = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path()));
        let paths: Vec<PathBuf> = paths.collect::<Result<_>>()?;
        let length = |path: &PathBuf| path.metadata().map_or(0, |file| file.len());
        let files = paths.iter().filter(|path| path.extension().is_some_and(|end| end == "sst"));
        let file = File::open(files.max_by_key(|path| length(path)).ok_or("no SSTable")?)?;
        let blocks = file.metadata()?.len() / BLOCK as u64;
        Ok(Self {
            tables,
            filter,
            hashes: (keys..keys + LOOKUPS).map(hash).collect(),
            file,
            blocks,
        })
    }

    /// Nanoseconds of a lookup that does nothing else.
    fn measure(&self) -> Result<f64> {
        let probe = time(self.hashes.len(), || {
            black_box(self.hashes.iter().filter(|&&hash| self.filter.may_contain(hash)).count());
            Ok(())
        })?;
        let mut block = [0; BLOCK];
        let places = self.hashes.iter().take(20_000).map(|hash| hash % self.blocks * BLOCK as u64);
        let read = time(20_000, || {
            for place in places {
                self.file.read_exact_at(&mut block, place)?;
            }
            Ok(())
        })?;
        Ok(self.tables as f64 * (probe + self.filter.predicted_rate() * read))
    }
}

fn compare(keys: u64) -> Result<()> {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let absent = absent(keys, LOOKUPS);
    let mut rows = Vec::new();
    for (number, (name, policies, kind)) in policies().into_iter().enumerate() {
        let deep = dir.path().join(format!("{name}, one run"));
        let is_mixed = policies[0] != policies[1];
        fill(&deep, policies, keys, Shape::OneRun)?;
        for shape in Shape::ALL {
            if (keys > 2_000_000 && !shape.is_for_many_keys())
                || (is_mixed && shape != Shape::TwoTables)
            {
                continue;
            }
            let copy = dir.path().join(format!("{name}, {}", shape as u8));
            if shape.tables() == 1 {
                copy_dir(&deep, &copy)?;
            } else {
                fill(&copy, policies, keys, shape)?;
            }
            let instructions = instructions(&copy, number, keys, shape)?;
            let floor = Floor::new(&copy, kind, keys, shape.tables())?;
            let db = enter(&copy, policies[0], shape)?;
            let (times, floors) = (Vec::new(), Vec::new());
            rows.push(Row { name, shape, instructions, db, floor, times, floors });
        }
        std::fs::remove_dir_all(deep)?;
    }
    for _ in 0..ROUNDS {
        for row in &mut rows {
            row.times.push(time(absent.len(), || {
                black_box(counted_lookups(&row.db, &absent, row.shape)?);
                Ok(())
            })?);
            row.floors.push(row.floor.measure()?);
        }
    }
    println!(
        "\n{:48}{:>8} {:>8} {:>13}  all rounds",
        format!("{keys} keys"),
        "ns",
        "floor",
        "instructions"
    );
    for Row { name, shape, instructions, times, floors, .. } in rows {
        let rounds: Vec<_> = times.iter().map(|time| format!("{time:.0}")).collect();
        println!(
            "{:48}{:>8.1} {:>8.1} {:>13}  {}",
            format!("{name}, {}", shape.name()),
            median(times),
            median(floors),
            instructions.map_or("-".into(), |count| format!("{count:.0}")),
            rounds.join(" "),
        );
    }
    Ok(())
}

struct Row {
    name: &'static str,
    shape: Shape,
    instructions: Option<f64>,
    db: Db,
    floor: Floor,
    times: Vec<f64>,
    floors: Vec<f64>,
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// The process that callgrind runs.
fn child(work: &str) -> Result<()> {
    let [dir, policy, keys, shape] = work.split('|').collect::<Vec<_>>()[..] else {
        return Err(format!("{CHILD}: {work}?").into());
    };
    let (policy, shape): (usize, usize) = (policy.parse()?, shape.parse()?);
    let shape = Shape::ALL[shape];
    let db = enter(Path::new(dir), policies()[policy].1[0], shape)?;
    let keys = absent(keys.parse()?, COUNTED);
    black_box(counted_lookups(&db, &keys, shape)?);
    Ok(())
}

/// Arguments that are no numbers, as those from cargo, have no effect.
fn main() -> Result<()> {
    if let Ok(work) = std::env::var(CHILD) {
        return child(&work);
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {}", load.trim());
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let numbers = if numbers.is_empty() { vec![1_000_000] } else { numbers };
    numbers.into_iter().try_for_each(compare)
}
