//! Loading the store, and the four passes over it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use criba::vfs::{CountingVfs, FileKind, Operation, Vfs};
use criba::{Batch, Counts, Db, FilterInfo, FilterPolicy, Options, Stats, TableInfo, Value};
use indicatif::ProgressBar;
use rand::RngExt;
use rand::seq::SliceRandom;

use super::input::{Input, Stream, random};
use super::kernel::ReadMeter;
use super::report::Report;
use crate::failure::{Failure, Result};

/// How the store is built and looked into.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The filters that tables get.
    pub filter: FilterPolicy,
    /// Fixes the store's id, the order of loading and the order of lookups.
    pub seed: u64,
    /// How many present keys to look up, and again how many absent ones; each key once if `None`.
    /// Keys come round again where there are fewer of them.
    pub lookups: Option<u64>,
    /// The block cache of the measured passes.
    pub cache_bytes: u64,
    /// As [`Options::memtable_bytes`].
    pub memtable_bytes: usize,
    /// As [`Options::table_bytes`].
    pub table_bytes: u64,
    /// As [`Options::level_base_bytes`].
    pub level_base_bytes: u64,
    /// Whether L0 keeps every table.
    pub unsettled: bool,
    /// Whether everything is compacted into one run.
    pub one_run: bool,
    /// Absent keys are looked up with the frequencies of a Zipf distribution of this exponent, so
    /// that few of them make up most lookups; each key once if `None`.
    pub zipf: Option<f64>,
    /// The budget for filters in memory, in the measured passes; none if `None`.
    pub filter_memory: Option<u64>,
    /// The memo of keys that filters were wrong about, in bytes. 0 for none, and then a lookup changes
    /// nothing that a later one of the same key counts.
    pub memo: u64,
}

impl Default for Settings {
    /// As `criba readamp` without arguments: sizes of 1/512 of the library's, so that 200,000 keys make a
    /// store like that of a hundred million.
    fn default() -> Self {
        Self {
            filter: FilterPolicy::default(),
            seed: 1,
            lookups: None,
            cache_bytes: 0,
            memtable_bytes: 128 << 10,
            table_bytes: 128 << 10,
            level_base_bytes: 512 << 10,
            unsettled: false,
            one_run: false,
            zipf: None,
            filter_memory: None,
            memo: 0,
        }
    }
}

impl Settings {
    fn options(&self, engine: &Engine) -> Options {
        Options::new()
            .filter(self.filter)
            .seed(self.seed)
            .cache_bytes(self.cache_bytes)
            .memtable_bytes(self.memtable_bytes)
            .table_bytes(self.table_bytes)
            .level_base_bytes(self.level_base_bytes)
            .background_threads(0)
            .false_positive_memo(self.memo)
            .vfs(Arc::clone(&engine.vfs))
    }
}

/// The file layer of the measured store.
#[derive(Debug, Clone)]
pub struct Engine {
    /// What the store is given; calls end up in `counting`.
    pub vfs: Arc<dyn Vfs>,
    /// Whose counts are compared with the engine's.
    pub counting: CountingVfs,
}

/// What a lookup answered, next to what was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The key is absent.
    Absent,
    /// The value that was loaded.
    AsLoaded,
    /// Another value, or one for a key that was not loaded.
    Other(Vec<u8>),
}

impl Found {
    fn new(value: Option<Value>, loaded: Option<&[u8]>) -> Self {
        match value {
            None => Self::Absent,
            Some(value) if Some(&*value) == loaded => Self::AsLoaded,
            Some(value) => Self::Other(value.to_vec()),
        }
    }
}

/// One lookup, as far as the checks need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Data blocks asked for: disk reads and cache hits.
    pub blocks: u64,
    /// Filters that said no.
    pub true_negatives: u64,
    /// Filters that said maybe, and were known to be wrong.
    pub remembered: u64,
    /// The answer.
    pub found: Found,
}

/// What absent keys met at one table's filter, and what the filter promised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableProbes {
    /// Probes with keys that the table does not hold.
    pub absent: u64,
    /// Those that the filter passed.
    pub false_positives: u64,
    /// The share that its header predicts.
    pub predicted_rate: f64,
}

/// One pass: all lookups of one kind, in a store opened for it.
#[derive(Debug, Clone)]
pub struct Pass {
    /// "absent", "present", "absent_unfiltered" or "present_unfiltered".
    pub name: &'static str,
    /// The lookups, in order.
    pub lookups: Vec<Lookup>,
    /// The sum of what the lookups told.
    pub told: Counts,
    /// The engine's statistics, at the end.
    pub stats: Stats,
    /// The tables, at the end.
    pub tables: Vec<TableInfo>,
    /// The probes of the first lookup of each key. Later ones of the same key would answer the
    /// same, so they prove nothing about a rate.
    pub first_probes: Vec<TableProbes>,
    /// Calls of the file layer that read from a table.
    pub file_reads: u64,
    /// Read system calls, or why they are unknown.
    pub kernel_reads: std::result::Result<u64, String>,
    /// When the first lookup began, since 1970.
    pub start: Duration,
    /// When the last one had ended.
    pub end: Duration,
}

impl Pass {
    /// How long the lookups took.
    pub fn time(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }
}

/// The lookups of one kind: keys with the values that are to be found.
struct Work<'a> {
    keys: Vec<(&'a [u8], Option<&'a [u8]>)>,
    /// How many lookups come before a key comes round again; 0 if that is not known.
    first: usize,
}

/// Ranks from 0 to n − 1, each drawn in proportion to (rank + 1)^−θ.
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
    /// `count` lookups in random order, all keys once before any comes again.
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

/// Loads the input into an empty directory, looks everything up four times, and compares.
///
/// # Errors
/// What the store says; [`Failure::Usage`] for lookups of absent keys when there is none.
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
        let mut options = settings.options(engine).ignore_filters(ignore_filters);
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

/// Writes the present keys in random order, so that tables overlap as they do when keys come in any
/// order, and settles the store; then looks up the keys of its history.
fn load(
    dir: &Path,
    input: &Input,
    settings: &Settings,
    engine: &Engine,
    progress: &ProgressBar,
) -> Result<()> {
    let db = settings.options(engine).auto_compaction(!settings.unsettled).open(dir)?;
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
        db.wait_until_settled()?; // filters may be due that the history asks for
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
    let mut told = Counts::default();
    let mut first_tables = db.tables();
    begin(progress, &name.replace('_', ", "), work.keys.len());

    let before = db.stats();
    let file_reads = table_reads();
    let meter = ReadMeter::start();
    let start = since_1970();
    for (number, &(key, loaded)) in work.keys.iter().enumerate() {
        let (value, counts) = db.get_counted(key)?;
        told += counts;
        lookups.push(Lookup {
            blocks: counts.disk_reads + counts.cache_hits,
            true_negatives: counts.true_negatives,
            remembered: counts.remembered,
            found: Found::new(value, loaded),
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
        told,
        stats: db.stats() - before,
        first_probes: if work.first > 0 { probes(&first_tables) } else { Vec::new() },
        tables: db.tables(),
        file_reads,
        kernel_reads,
        start,
        end,
    })
}

/// What absent keys met at each table that has a filter in use.
pub(super) fn probes(tables: &[TableInfo]) -> Vec<TableProbes> {
    let probes = tables.iter().filter_map(|table| match table.filter {
        FilterInfo::Active { predicted_rate, .. } => Some(TableProbes {
            absent: table.counts.true_negatives + table.counts.false_positives,
            false_positives: table.counts.false_positives,
            predicted_rate,
        }),
        _ => None,
    });
    probes.collect()
}

fn begin(progress: &ProgressBar, what: &str, length: usize) {
    progress.set_length(length as u64);
    progress.set_position(0);
    progress.set_message(what.to_owned());
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
