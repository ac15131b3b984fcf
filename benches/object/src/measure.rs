//! The measurements of one store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criba_object_cli::metered::{Metered, Requests};
use object_store::memory::InMemory;
use serde::Serialize;

use crate::Result;
use crate::keys::{Keys, VALUE_BYTES};
use crate::lines::Line;
use crate::random::Random;
use crate::stores::{Caches, Kind, Reader, Setup};

/// The default size of both stores.
const MEMTABLE: usize = 64 << 20;
const BLOCK_CACHE: u64 = 64 << 20;
/// Absent keys that an emptied machine looks up first.
const FIRST: u64 = 1_000;
/// Absent keys whose requests are counted.
const ABSENT: u64 = 100_000;
/// Present keys whose requests are counted.
const PRESENT: u64 = 5_000;
/// Keys that are looked up at once where requests are counted.
const AT_ONCE: usize = 1_000;
/// Keys of a timed batch.
const BATCH: usize = 100;

/// What was measured, as `benches/figures` reads it.
#[derive(Debug, Serialize)]
struct Job {
    store: Kind,
    setting: &'static str,
    version: String,
    workload: String,
    n: u64,
    /// The lookups of absent keys.
    lookups: u64,
    /// Which repetition: the seed of the keys.
    repetition: u64,
}

#[derive(Debug, Default, Serialize)]
struct Findings {
    figures: BTreeMap<String, f64>,
    runs: Option<u64>,
    filter_bytes: Option<u64>,
    settings: Vec<(&'static str, String)>,
}

impl Findings {
    fn set(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), value);
    }

    fn requests(&mut self, of: &str, counts: Requests, time: Duration) {
        self.set(format!("{of}_requests"), counts.total() as f64);
        for (name, value) in [
            ("gets", counts.gets),
            ("heads", counts.heads),
            ("puts", counts.puts),
            ("lists", counts.lists),
            ("deletes", counts.deletes),
            ("bytes_read", counts.bytes_read),
            ("bytes_written", counts.bytes_written),
        ] {
            self.set(format!("{of}_{name}"), value as f64);
        }
        self.set(format!("{of}_s"), time.as_secs_f64());
    }

    /// Median and 99th percentile, in microseconds.
    fn times(&mut self, of: &str, mut times: Vec<Duration>) {
        times.sort_unstable();
        for (name, part) in [("p50", 50), ("p99", 99)] {
            let time = times[(times.len() - 1) * part / 100];
            self.set(format!("{of}_{name}_us"), time.as_secs_f64() * 1e6);
        }
    }
}

struct Measured<'m> {
    setup: Setup,
    keys: Keys,
    request: Duration,
    out: &'m Path,
    bucket: Arc<Metered>,
}

/// Loads a store, and measures it as it was loaded; with the default memtables also after it was compacted to one run.
pub fn measure(setup: Setup, keys: Keys, request: Duration, dir: &Path, out: &Path) -> Result<()> {
    let bucket = Arc::new(Metered::new(Arc::new(InMemory::new()), request));
    let measured = Measured { setup, keys, request, out, bucket };
    let at = |name: &str| dir.join(name);
    let mut findings = Findings::default();
    let (before, begun) = (measured.bucket.requests(), Instant::now());
    setup.load(&measured.bucket, &at("writer"), keys)?;
    findings.requests("load", measured.bucket.requests() - before, begun.elapsed());
    measured.write("load", "", findings, None)?;
    measured.read("loaded", &at("loaded"))?;
    if setup.memtable_bytes != MEMTABLE {
        return Ok(());
    }

    let mut findings = Findings::default();
    let (before, begun) = (measured.bucket.requests(), Instant::now());
    let mut opened = None;
    setup.compact(&measured.bucket, &at("compactor"), || {
        opened = Some((measured.bucket.requests() - before, begun.elapsed()));
    })?;
    if let Some((counts, time)) = opened {
        measured.opening(&mut findings, counts, time);
    }
    measured.write("open-writer", "", findings, None)?;
    measured.read("compacted", &at("compacted"))
}

impl Measured<'_> {
    fn opening(&self, findings: &mut Findings, counts: Requests, time: Duration) {
        findings.requests("open", counts, time);
        findings.set("open_round_trips", time.as_secs_f64() / self.request.as_secs_f64());
    }

    fn read(&self, state: &str, dir: &Path) -> Result<()> {
        std::fs::create_dir(dir)?;
        for (setting, on_disk) in [("memory", false), ("disk", true)] {
            if on_disk && self.setup.kind != Kind::Slatedb {
                continue;
            }
            let caches = Caches { block_bytes: BLOCK_CACHE, on_disk };
            let mut findings = Findings::default();
            self.absent(&mut findings, &dir.join(setting), caches)?;
            let cold = Caches { block_bytes: 0, on_disk };
            self.present(&mut findings, &dir.join(format!("{setting}-cold")), cold)?;
            self.write(state, setting, findings, Some(caches))?;
        }
        Ok(())
    }

    /// Absent keys, from opening on.
    fn absent(&self, findings: &mut Findings, dir: &Path, caches: Caches) -> Result<()> {
        let bucket = &self.bucket;
        let (before, begun) = (bucket.requests(), Instant::now());
        let reader = self.setup.open(bucket, dir, caches)?;
        self.opening(findings, bucket.requests() - before, begun.elapsed());
        let (before, begun) = (bucket.requests(), Instant::now());
        let first = self.keys.absent(0, FIRST);
        for key in &first {
            check(reader.get(key)?, false)?;
        }
        findings.requests("first", bucket.requests() - before, begun.elapsed());

        // Indexes and filters of all tables are there from now on.
        let (before, begun) = (bucket.requests(), Instant::now());
        many(&*reader, &self.keys.absent(FIRST, ABSENT), AT_ONCE, false)?;
        let counts = bucket.requests() - before;
        findings.requests("absent", counts, begun.elapsed());
        findings.set("absent_gets_per_lookup", counts.gets as f64 / ABSENT as f64);

        let keys = self.keys.absent(FIRST + ABSENT, 5_000);
        findings.times("absent", one_by_one(&*reader, &keys, false)?);
        let keys = self.keys.absent(FIRST + ABSENT + 5_000, 10_000);
        findings.times("absent_batch", many(&*reader, &keys, BATCH, false)?);

        let shape = reader.shape();
        findings.runs = Some(shape.runs);
        findings.filter_bytes = Some(shape.filter_bytes);
        findings.set("tables", shape.tables as f64);
        findings.set("filter_bytes", shape.filter_bytes as f64);
        findings.set("index_bytes", shape.index_bytes as f64);
        findings.set("local_bytes", bytes_of(dir)? as f64);
        reader.close()?;

        // Again with what the local disk has.
        let (before, begun) = (bucket.requests(), Instant::now());
        let reader = self.setup.open(bucket, dir, caches)?;
        for key in self.keys.absent(FIRST + ABSENT + 15_000, FIRST) {
            check(reader.get(&key)?, false)?;
        }
        findings.requests("again", bucket.requests() - before, begun.elapsed());
        reader.close()
    }

    /// Present keys, without a cache of blocks in memory.
    fn present(&self, findings: &mut Findings, dir: &Path, caches: Caches) -> Result<()> {
        let reader = self.setup.open(&self.bucket, dir, caches)?;
        let mut random = Random::new(self.keys.seed);
        // Afterwards filters and indexes are there.
        many(&*reader, &self.keys.present(BATCH as u64, &mut random), BATCH, true)?;
        let (before, begun) = (self.bucket.requests(), Instant::now());
        let keys = self.keys.present(PRESENT, &mut random);
        many(&*reader, &keys, BATCH, true)?;
        let counts = self.bucket.requests() - before;
        findings.requests("present", counts, begun.elapsed());
        findings.set("present_gets_per_lookup", counts.gets as f64 / PRESENT as f64);
        let keys = self.keys.present(200, &mut random);
        findings.times("present", one_by_one(&*reader, &keys, true)?);
        let keys = self.keys.present(20 * BATCH as u64, &mut random);
        findings.times("present_batch", many(&*reader, &keys, BATCH, true)?);
        reader.close()
    }

    fn write(
        &self,
        state: &str,
        setting: &'static str,
        mut findings: Findings,
        caches: Option<Caches>,
    ) -> Result<()> {
        let Self { setup, keys, out, .. } = self;
        let caches = caches.unwrap_or(Caches { block_bytes: BLOCK_CACHE, on_disk: false });
        findings.settings = setup.settings(caches);
        let job = Job {
            store: setup.kind,
            setting,
            version: setup.version(),
            workload: format!("object-{state}-{}", setup.memtable_bytes >> 20),
            n: keys.n,
            lookups: ABSENT,
            repetition: keys.seed,
        };
        eprintln!("{:?} {} {setting} seed {}", job.store, job.workload, keys.seed);
        Line::now(job, findings)?.append(out)
    }
}

fn check(value: Option<usize>, is_present: bool) -> Result<()> {
    if value != is_present.then_some(VALUE_BYTES) {
        return Err(format!("a wrong answer: {value:?} for a key, present: {is_present}").into());
    }
    Ok(())
}

/// Looks keys up in batches. Returns the time of each.
fn many(
    reader: &dyn Reader,
    keys: &[[u8; 16]],
    batch: usize,
    is_present: bool,
) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for keys in keys.chunks(batch) {
        let begun = Instant::now();
        let values = reader.get_many(keys)?;
        times.push(begun.elapsed());
        if values.len() != keys.len() {
            return Err("an answer is missing".into());
        }
        values.into_iter().try_for_each(|value| check(value, is_present))?;
    }
    Ok(times)
}

/// Looks keys up one after another. Returns the time of each.
fn one_by_one(reader: &dyn Reader, keys: &[[u8; 16]], is_present: bool) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(keys.len());
    for key in keys {
        let begun = Instant::now();
        let value = reader.get(key)?;
        times.push(begun.elapsed());
        check(value, is_present)?;
    }
    Ok(times)
}

/// The bytes of all files in a directory, if it is there.
fn bytes_of(dir: &Path) -> Result<u64> {
    if !dir.exists() {
        return Ok(0);
    }
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_of(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
