//! The store under measurement, and its passes of lookups.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use criba::vfs::{CountingVfs, FileKind, Operation, Vfs};
use criba::{Counts, Db, FilterPolicy, Options, Outcome, Step, TableStep};

use super::kernel::ReadMeter;
use super::pass::{Found, Lookup, Pass, probes_among};
use super::settings::Settings;
use super::work::Work;
use crate::failure::{Failure, Result};
use crate::progress::Progress;

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
        .compression(settings.compression)
        .seed(settings.seed)
        .cache_bytes(settings.cache_bytes)
        .memtable_bytes(settings.memtable_bytes)
        .table_bytes(settings.table_bytes)
        .level_base_bytes(settings.level_base_bytes)
        .background_threads(0)
        .vfs(Arc::clone(&engine.vfs))
}

/// The store under measurement.
pub(super) struct Bench<'a> {
    pub(super) dir: &'a Path,
    pub(super) settings: &'a Settings,
    pub(super) engine: &'a Engine,
    pub(super) progress: &'a Progress,
}

impl Bench<'_> {
    /// Opens the store, or makes it, as the settings say.
    pub(super) fn create(&self) -> Result<Db> {
        let compactions = !self.settings.unsettled;
        Ok(options(self.settings, self.engine).auto_compaction(compactions).open(self.dir)?)
    }

    /// Opens the store so that its tables stay as they are: no write or lookup makes a compaction due.
    pub(super) fn open(&self, change: impl FnOnce(Options) -> Options) -> Result<Db> {
        let options = options(self.settings, self.engine);
        let options = options.auto_compaction(false).create_if_missing(false);
        Ok(change(options).open(self.dir)?)
    }

    /// The store in another directory, with options that have no seed: it may announce what it will read.
    pub(super) fn open_unseeded(&self, dir: &Path) -> Result<Db> {
        let options = Options::new().filter(self.settings.filter).vfs(Arc::clone(&self.engine.vfs));
        let options = options.cache_bytes(self.settings.cache_bytes).background_threads(0);
        let options = self.within_budget(options);
        Ok(options.auto_compaction(false).create_if_missing(false).open(dir)?)
    }

    fn within_budget(&self, options: Options) -> Options {
        match self.settings.filter_memory {
            Some(bytes) => options.filter_memory(bytes),
            None => options,
        }
    }

    /// Looks up absent and present keys, with filters and without, in a store opened anew for each pass.
    pub(super) fn passes(
        &self,
        filter: FilterPolicy,
        [absent, present]: &[Work; 2],
    ) -> Result<[Pass; 4]> {
        let pass = |name, work: &Work, ignore_filters| {
            let db = self.open(|options| {
                self.within_budget(options.filter(filter).ignore_filters(ignore_filters))
            })?;
            let pass = run_pass(name, &db, work, self)?;
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
        self.progress.set_length(length as u64);
        self.progress.set_position(0);
        self.progress.begin(what.to_owned());
    }
}

fn run_pass(name: &'static str, db: &Db, work: &Work, bench: &Bench) -> Result<Pass> {
    let Bench { engine, progress, .. } = bench;
    let table_reads = || engine.counting.counts().of(FileKind::Table, Operation::Read).calls;
    let mut lookups = Vec::with_capacity(work.0.len());
    let mut explained = Counts::default();
    let mut first_outcomes = Vec::new();
    bench.begin(&name.replace('_', ", "), work.0.len());

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

pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
