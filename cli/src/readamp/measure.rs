//! Loads the store and runs the four passes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use criba::vfs::{CountingVfs, FileKind, Operation, Vfs};
use criba::{Batch, Counts, Db, Options};
use indicatif::ProgressBar;
use rand::RngExt;
use rand::seq::SliceRandom;

use super::input::{Input, Stream, random};
use super::kernel::ReadMeter;
use super::pass::{Found, Lookup, Pass, probes};
use super::report::Report;
use super::settings::Settings;
use crate::failure::{Failure, Result};

/// The file layer of the measured store.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The store's file layer; calls end up in `counting`.
    pub vfs: Arc<dyn Vfs>,
    /// Whose counts are compared with the engine's.
    pub counting: CountingVfs,
}

fn options(settings: &Settings, engine: &Engine) -> Options {
    Options::new()
        .filter(settings.filter)
        .seed(settings.seed)
        .cache_bytes(settings.cache_bytes)
        .memtable_bytes(settings.memtable_bytes)
        .table_bytes(settings.table_bytes)
        .level_base_bytes(settings.level_base_bytes)
        .background_threads(0)
        .vfs(Arc::clone(&engine.vfs))
}

/// The lookups of one kind: keys with their expected values.
struct Work<'a> {
    keys: Vec<(&'a [u8], Option<&'a [u8]>)>,
    /// The number of lookups before a key is repeated; 0 if unknown.
    first: usize,
}

/// Ranks from 0 to n − 1, each with a probability in proportion to (rank + 1)^−θ.
fn zipf_ranks(n: usize, theta: f64, seed: u64) -> impl Iterator<Item = usize> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=n)
        .map(|rank| {
            sum += (rank as f64).powf(-theta);
            sum
        })
        .collect();
    let mut random = random(seed, Stream::Ranks);
    std::iter::repeat_with(move || {
        let drawn = random.random::<f64>() * sum;
        sums.partition_point(|&below| below <= drawn).min(n - 1)
    })
}

impl<'a> Work<'a> {
    /// `count` lookups in random order; all keys come once before any comes again.
    fn new(
        mut keys: Vec<(&'a [u8], Option<&'a [u8]>)>,
        count: Option<u64>,
        settings: &Settings,
        stream: Stream,
    ) -> Result<Self> {
        let distinct = keys.len();
        let count = count.map_or(distinct, |count| count as usize);
        if distinct == 0 && count > 0 {
            return Err(Failure::Usage("--lookups asks for absent keys, and there is none".into()));
        }
        let mut random = random(settings.seed, stream);
        let mut order = Vec::with_capacity(count);
        if let (Stream::Absent, Some(theta)) = (stream, settings.zipf) {
            keys.shuffle(&mut random);
            let ranks = zipf_ranks(distinct, theta, settings.seed);
            order.extend(ranks.take(count).map(|rank| keys[rank]));
            return Ok(Self { keys: order, first: 0 });
        }
        while order.len() < count {
            keys.shuffle(&mut random);
            order.extend(keys.iter().take(count - order.len()));
        }
        Ok(Self { keys: order, first: distinct.min(count) })
    }
}

/// Loads the input into an empty directory, runs four passes of lookups, and compares.
///
/// # Errors
/// The errors of the store; [`Failure::Usage`] for absent lookups without absent keys.
pub fn measure(
    dir: &Path,
    input: &Input,
    settings: &Settings,
    engine: &Engine,
    progress: &ProgressBar,
) -> Result<Report> {
    let absent = input.absent.iter().map(|key| (&key[..], None)).collect();
    let absent = Work::new(absent, settings.lookups, settings, Stream::Absent)?;
    let present = input.present.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
    let present = Work::new(present, settings.lookups, settings, Stream::Present)?;

    let loading = Instant::now();
    load(dir, input, settings, engine, progress)?;
    let loading = loading.elapsed();

    let pass = |name, work: &Work, ignore_filters| {
        let mut options = options(settings, engine).ignore_filters(ignore_filters);
        if let Some(bytes) = settings.filter_memory {
            options = options.filter_memory(bytes);
        }
        // The tables stay as loading left them: no lookup may make a compaction due.
        let db = options.auto_compaction(false).create_if_missing(false).open(dir)?;
        let pass = run_pass(name, &db, work, engine, progress)?;
        db.close()?;
        Ok::<_, Failure>(pass)
    };
    let passes = [
        pass("absent", &absent, false)?,
        pass("present", &present, false)?,
        pass("absent_unfiltered", &absent, true)?,
        pass("present_unfiltered", &present, true)?,
    ];
    let files = |pass: &Pass| -> Vec<_> {
        pass.tables.iter().map(|table| (table.id, table.level, table.file_bytes)).collect()
    };
    for pass in &passes {
        if files(pass) != files(&passes[0]) {
            return Err(Failure::unfit(dir, "the same tables in every pass", "others"));
        }
    }
    Ok(Report::new(input, settings, loading, &passes))
}

/// Writes the present keys in random order, so that tables overlap, and settles the store; then looks up the
/// history.
fn load(
    dir: &Path,
    input: &Input,
    settings: &Settings,
    engine: &Engine,
    progress: &ProgressBar,
) -> Result<()> {
    let db = options(settings, engine).auto_compaction(!settings.unsettled).open(dir)?;
    let mut order: Vec<_> = input.present.iter().collect();
    order.shuffle(&mut random(settings.seed, Stream::Loading));
    begin(progress, "loading", order.len());
    for pairs in order.chunks(64) {
        let mut batch = Batch::new();
        for (key, value) in pairs {
            batch.put(key, value);
        }
        db.write(batch)?;
        progress.inc(pairs.len() as u64);
    }
    db.wait_until_settled()?;
    if settings.one_run {
        db.compact()?;
    }
    if !input.history.is_empty() {
        begin(progress, "history", input.history.len());
        for key in &input.history {
            db.get(key)?;
            progress.inc(1);
        }
        db.wait_until_settled()?; // the history may make refits due
    }
    db.close()?;
    Ok(())
}

fn run_pass(
    name: &'static str,
    db: &Db,
    work: &Work,
    engine: &Engine,
    progress: &ProgressBar,
) -> Result<Pass> {
    let table_reads = || engine.counting.counts().of(FileKind::Table, Operation::Read).calls;
    let mut lookups = Vec::with_capacity(work.keys.len());
    let mut explained = Counts::default();
    let mut first_tables = db.tables();
    begin(progress, &name.replace('_', ", "), work.keys.len());

    let before = db.stats();
    let file_reads = table_reads();
    let meter = ReadMeter::start();
    let start = since_1970();
    for (number, &(key, loaded)) in work.keys.iter().enumerate() {
        let lookup = db.explain(key)?;
        let counts = lookup.counts();
        explained += counts;
        lookups.push(Lookup {
            blocks: counts.disk_reads + counts.cache_hits,
            true_negatives: counts.true_negatives,
            found: Found::new(lookup.value, loaded),
        });
        if number + 1 == work.first {
            first_tables = db.tables();
        }
        if number % 1024 == 1023 {
            progress.inc(1024);
        }
    }
    let end = since_1970();
    let kernel_reads = meter.and_then(ReadMeter::stop);
    let file_reads = table_reads() - file_reads;

    Ok(Pass {
        name,
        lookups,
        explained,
        stats: db.stats() - before,
        first_probes: if work.first > 0 { probes(&first_tables) } else { Vec::new() },
        tables: db.tables(),
        file_reads,
        kernel_reads,
        start,
        end,
    })
}

fn begin(progress: &ProgressBar, what: &str, length: usize) {
    progress.set_length(length as u64);
    progress.set_position(0);
    progress.set_message(what.to_owned());
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
