//! Loads the store, runs the four passes, and then the other acts.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use criba::vfs::{CountingVfs, FileKind, Operation, Vfs};
use criba::{Batch, Counts, Db, FilterPolicy, Options, Outcome, Step, TableStep};
use indicatif::ProgressBar;
use rand::RngExt;
use rand::seq::SliceRandom;

use super::compaction::{Changes, compact};
use super::input::{Input, Stream, random};
use super::kernel::ReadMeter;
use super::other_filters::rebuild;
use super::pass::{Found, Lookup, Pass, probes_among};
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

/// A lookup to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) key: &'a [u8],
    /// The expected value.
    pub(super) value: Option<&'a [u8]>,
    /// Whether no earlier lookup has this key.
    first: bool,
}

/// The lookups of one kind.
pub(super) struct Work<'a>(pub(super) Vec<Wanted<'a>>);

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
    /// `count` lookups in random order; all keys come once before any comes again, but by Zipf's law.
    pub(super) fn new(
        keys: &[(&'a [u8], Option<&'a [u8]>)],
        settings: &Settings,
        stream: Stream,
    ) -> Result<Self> {
        let count = settings.lookups.map_or(keys.len(), |count| count as usize);
        if keys.is_empty() && count > 0 {
            return Err(Failure::Usage("--lookups asks for absent keys, and there is none".into()));
        }
        let mut random = random(settings.seed, stream);
        let mut places: Vec<usize> = (0..keys.len()).collect();
        let mut order = Vec::with_capacity(count);
        match (stream, settings.zipf) {
            (Stream::Absent, Some(theta)) => {
                places.shuffle(&mut random);
                let ranks = zipf_ranks(keys.len(), theta, settings.seed);
                order.extend(ranks.take(count).map(|rank| places[rank]));
            }
            _ => {
                while order.len() < count {
                    places.shuffle(&mut random);
                    order.extend(places.iter().take(count - order.len()));
                }
            }
        }
        let mut seen = vec![false; keys.len()];
        let lookups = order.into_iter().map(|place| {
            let (key, value) = keys[place];
            Wanted { key, value, first: !std::mem::replace(&mut seen[place], true) }
        });
        Ok(Self(lookups.collect()))
    }
}

/// Loads the input into an empty directory, looks keys up, and compares; then the other acts, if the settings
/// ask for them.
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
    let bench = Bench { dir, settings, engine, progress };
    let absent: Vec<_> = input.absent.iter().map(|key| (&key[..], None)).collect();
    let present: Vec<_> =
        input.present.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
    let work = [
        Work::new(&absent, settings, Stream::Absent)?,
        Work::new(&present, settings, Stream::Present)?,
    ];
    let loading = Instant::now();
    load(&bench, input)?;
    let loading = loading.elapsed();
    let mut report = Report::new(input, settings, loading, &bench.passes(settings.filter, &work)?);
    if !settings.only_lookups {
        let changes = Changes::new(input, settings.seed);
        let work = changes.work(input, settings)?;
        let compaction = compact(&bench, &changes, &work)?;
        let filter_bytes = compaction.after.filter_bytes;
        report.other_filters = rebuild(&bench, &changes, filter_bytes, &work)?;
        report.compaction = Some(compaction);
    }
    Ok(report)
}

/// The store under measurement.
pub(super) struct Bench<'a> {
    pub(super) dir: &'a Path,
    pub(super) settings: &'a Settings,
    engine: &'a Engine,
    progress: &'a ProgressBar,
}

impl Bench<'_> {
    /// Opens the store so that its tables stay as they are: no write or lookup makes a compaction due.
    pub(super) fn open(&self, change: impl FnOnce(Options) -> Options) -> Result<Db> {
        let options = options(self.settings, self.engine);
        let options = options.auto_compaction(false).create_if_missing(false);
        Ok(change(options).open(self.dir)?)
    }

    /// Looks up absent and present keys, with filters and without, in a store opened anew for each pass.
    pub(super) fn passes(
        &self,
        filter: FilterPolicy,
        [absent, present]: &[Work; 2],
    ) -> Result<[Pass; 4]> {
        let pass = |name, work: &Work, ignore_filters| {
            let db = self.open(|options| {
                let options = options.filter(filter).ignore_filters(ignore_filters);
                match self.settings.filter_memory {
                    Some(bytes) => options.filter_memory(bytes),
                    None => options,
                }
            })?;
            let pass = run_pass(name, &db, work, self.engine, self.progress)?;
            db.close()?;
            Ok::<_, Failure>(pass)
        };
        let passes = [
            pass("absent", absent, false)?,
            pass("present", present, false)?,
            pass("absent_unfiltered", absent, true)?,
            pass("present_unfiltered", present, true)?,
        ];
        let files = |pass: &Pass| -> Vec<_> {
            pass.tables.iter().map(|table| (table.id, table.level, table.file_bytes)).collect()
        };
        for pass in &passes {
            if files(pass) != files(&passes[0]) {
                return Err(Failure::unfit(self.dir, "the same tables in every pass", "others"));
            }
        }
        Ok(passes)
    }

    pub(super) fn begin(&self, what: &str, length: usize) {
        begin(self.progress, what, length);
    }
}

/// Writes the present keys in random order, so that tables overlap, and settles the store; then looks up the
/// history.
fn load(bench: &Bench, input: &Input) -> Result<()> {
    let Bench { settings, progress, .. } = bench;
    let db =
        options(settings, bench.engine).auto_compaction(!settings.unsettled).open(bench.dir)?;
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
    let mut lookups = Vec::with_capacity(work.0.len());
    let mut explained = Counts::default();
    let mut first_outcomes = Vec::new();
    begin(progress, &name.replace('_', ", "), work.0.len());

    let before = db.stats();
    let file_reads = table_reads();
    let meter = ReadMeter::start();
    let start = since_1970();
    for (number, wanted) in work.0.iter().enumerate() {
        let lookup = db.explain(wanted.key)?;
        let counts = lookup.counts();
        explained += counts;
        lookups.push(Lookup {
            blocks: counts.disk_reads + counts.cache_hits,
            true_negatives: counts.true_negatives,
            found: Found::new(lookup.value, wanted.value),
        });
        if wanted.first {
            first_outcomes.extend(lookup.steps.iter().filter_map(outcome));
        }
        if number % 1024 == 1023 {
            progress.inc(1024);
        }
    }
    let end = since_1970();
    let kernel_reads = meter.and_then(ReadMeter::stop);
    let file_reads = table_reads() - file_reads;

    let tables = db.tables();
    Ok(Pass {
        name,
        lookups,
        explained,
        stats: db.stats() - before,
        first_probes: probes_among(&tables, &first_outcomes),
        tables,
        file_reads,
        kernel_reads,
        start,
        end,
    })
}

/// The table of a step and how its probe ended.
fn outcome(step: &Step) -> Option<(u64, Outcome)> {
    match *step {
        Step::Table { id, step: TableStep::Probed { outcome, .. }, .. } => Some((id, outcome)),
        _ => None,
    }
}

fn begin(progress: &ProgressBar, what: &str, length: usize) {
    progress.set_length(length as u64);
    progress.set_position(0);
    progress.set_message(what.to_owned());
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
