//! All counts, as `--json` prints them.

use std::time::Duration;

use criba::{Counts, LEVELS, TableInfo};
use serde::Serialize;

use super::batches::Batches;
use super::checks::{Check, Checks, FalsePositives};
use super::compaction::Compaction;
use super::input::Input;
use super::other_filters::OtherFilters;
use super::pass::{Pass, PassReport, predicted, probes};
use super::scans::Scans;
use super::settings::Settings;
use super::state::State;
use crate::compression;
use crate::text::ratio;

/// The counts of `readamp`: of the passes with filters, unless the name says unfiltered.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Keys loaded.
    pub keys: u64,
    /// Lookups, of present and absent keys together.
    pub lookups: u64,
    /// Lookups of present keys.
    pub present: u64,
    /// Lookups of absent keys.
    pub absent: u64,
    /// Tables, all levels together.
    pub tables: u64,
    /// Probes.
    pub probes: u64,
    /// Tables passed over by their key range.
    pub range_pruned: u64,
    /// Filters that said no.
    pub true_negatives: u64,
    /// "Maybe" of a table that holds the key.
    pub true_positives: u64,
    /// "Maybe" of a table that does not hold the key.
    pub false_positives: u64,
    /// Always 0; kept for programs that read it.
    pub remembered: u64,
    /// Probes of tables without a usable filter.
    pub unfiltered: u64,
    /// Those whose table should have a filter.
    pub degraded: u64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Disk reads.
    pub disk_reads: u64,
    /// Disk reads of the same lookups with every filter answering "maybe".
    pub disk_reads_unfiltered: u64,
    /// The difference.
    pub reads_avoided: i64,
    /// Read system calls, if the kernel counts them.
    pub kernel_reads: Option<u64>,
    /// False positives / (false positives + true negatives).
    pub fpr_measured: Option<f64>,
    /// The same share as the filters' headers predict.
    pub fpr_predicted: Option<f64>,
    /// Bytes of all filters, headers included.
    pub filter_bytes: u64,
    /// The same in bits per key of each table.
    pub bits_per_key: Option<f64>,
    /// Each level that has tables.
    pub levels: Vec<Level>,
    /// The four passes.
    pub passes: Vec<PassReport>,
    /// The false positives of keys looked up for the first time, which the check of the rate covers.
    pub first_probes: FalsePositives,
    /// The checks: true, false, or null.
    pub checks: Checks,
    /// Why a check is false or null, by its name.
    pub check_reasons: serde_json::Map<String, serde_json::Value>,
    /// How it was done.
    pub setup: Setup,
    /// How long loading took, in nanoseconds.
    pub load_ns: u64,
    /// The present keys again, in batches; `None` with the first act alone.
    pub batches: Option<Batches>,
    /// Other filters beside the tables of the loaded store, in a copy of it; `None` with the first act alone,
    /// or without filters.
    pub other_filters_loaded: Option<OtherFilters>,
    /// Scans of prefixes in a copy of the loaded store; `None` with the first act alone, without filters, or
    /// without absent prefixes.
    pub scans: Option<Scans>,
    /// The second act; `None` without it.
    pub compaction: Option<Compaction>,
    /// The third act; `None` without it, or without filters.
    pub other_filters: Option<OtherFilters>,
}

/// One level.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Level {
    /// Its number.
    pub level: usize,
    /// Its tables.
    pub tables: u64,
    /// Their keys.
    pub keys: u64,
    /// Bytes of their filters, headers included.
    pub filter_bytes: u64,
    /// As [`Report::bits_per_key`].
    pub bits_per_key: Option<f64>,
    /// Probes.
    pub probes: u64,
    /// As [`Report::range_pruned`].
    pub range_pruned: u64,
    /// As [`Report::true_negatives`].
    pub true_negatives: u64,
    /// As [`Report::true_positives`].
    pub true_positives: u64,
    /// As [`Report::false_positives`].
    pub false_positives: u64,
    /// As [`Report::fpr_measured`].
    pub fpr_measured: Option<f64>,
    /// As [`Report::fpr_predicted`].
    pub fpr_predicted: Option<f64>,
    /// Disk reads.
    pub disk_reads: u64,
    /// Disk reads of each pass, in the order of [`Report::passes`].
    pub pass_reads: [u64; 4],
}

/// What the figures depend on.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Setup {
    /// The files of present and absent keys; `None` for made-up names.
    pub files: Option<(String, String)>,
    /// Lines of the present file overruled by a later one with the same key.
    pub present_repeated: u64,
    /// Lines of the absent file that repeat an earlier one.
    pub absent_repeated: u64,
    /// Lines of the absent file with a present key, left out.
    pub absent_present: u64,
    /// The seed.
    pub seed: u64,
    /// The requested filters.
    pub filter: String,
    /// The compression of data blocks.
    pub compression: &'static str,
    /// The block cache.
    pub cache_bytes: u64,
    /// As [`Settings::memtable_bytes`].
    pub memtable_bytes: usize,
    /// As [`Settings::table_bytes`].
    pub table_bytes: u64,
    /// As [`Settings::level_base_bytes`].
    pub level_base_bytes: u64,
    /// Whether L0 kept every table.
    pub unsettled: bool,
    /// Whether everything was compacted into one run.
    pub one_run: bool,
    /// Absent keys looked up before the measurement.
    pub history: u64,
    /// As [`Settings::zipf`].
    pub zipf: Option<f64>,
    /// As [`Settings::filter_memory`].
    pub filter_memory: Option<u64>,
    /// Always 0; kept for programs that read it.
    pub memo: u64,
    /// Whether the store's files were synced: those of a temporary store are not.
    pub synced: bool,
}

impl Setup {
    fn new(input: &Input, settings: &Settings) -> Self {
        let shown = |path: &std::path::PathBuf| path.display().to_string();
        Self {
            files: input.files.as_ref().map(|(present, absent)| (shown(present), shown(absent))),
            present_repeated: input.present_repeated,
            absent_repeated: input.absent_repeated,
            absent_present: input.absent_present,
            seed: settings.seed,
            filter: settings.filter.to_string(),
            compression: compression::name(settings.compression),
            cache_bytes: settings.cache_bytes,
            memtable_bytes: settings.memtable_bytes,
            table_bytes: settings.table_bytes,
            level_base_bytes: settings.level_base_bytes,
            unsettled: settings.unsettled,
            one_run: settings.one_run,
            history: input.history.len() as u64,
            zipf: settings.zipf,
            filter_memory: settings.filter_memory,
            memo: 0,
            synced: true,
        }
    }
}

impl Report {
    pub(super) fn new(
        input: &Input,
        settings: &Settings,
        loading: Duration,
        passes: &[Pass; 4],
    ) -> Self {
        let [absent, present, absent_unfiltered, present_unfiltered] = passes;
        let filtered = [absent, present];
        let counts: Counts = filtered.iter().map(|pass| pass.stats.total()).sum();
        let unfiltered: Counts =
            [absent_unfiltered, present_unfiltered].iter().map(|pass| pass.stats.total()).sum();
        let levels: Vec<_> = (0..LEVELS).filter_map(|number| Level::new(number, passes)).collect();
        let all_probes: Vec<_> = filtered.iter().flat_map(|pass| probes(&pass.tables)).collect();
        let sum = |of: fn(&Level) -> u64| levels.iter().map(of).sum::<u64>();
        let (filter_bytes, table_keys) = (sum(|l| l.filter_bytes), sum(|l| l.keys));
        let kernel_reads = filtered.iter().map(|pass| pass.kernel_reads.as_ref().ok());
        let first_probes = FalsePositives::of(filtered);
        let checks = Checks::new(passes, &first_probes);
        Self {
            keys: input.present.len() as u64,
            lookups: (absent.lookups.len() + present.lookups.len()) as u64,
            present: present.lookups.len() as u64,
            absent: absent.lookups.len() as u64,
            tables: absent.tables.len() as u64,
            probes: counts.probes(),
            range_pruned: counts.range_pruned,
            true_negatives: counts.true_negatives,
            true_positives: counts.true_positives,
            false_positives: counts.false_positives,
            remembered: 0,
            unfiltered: counts.unfiltered(),
            degraded: counts.degraded,
            cache_hits: counts.cache_hits,
            disk_reads: counts.disk_reads,
            disk_reads_unfiltered: unfiltered.disk_reads,
            reads_avoided: unfiltered.disk_reads as i64 - counts.disk_reads as i64,
            kernel_reads: kernel_reads.sum(),
            fpr_measured: counts.false_positive_rate(),
            fpr_predicted: predicted(&all_probes),
            filter_bytes,
            bits_per_key: ratio(filter_bytes as f64 * 8.0, table_keys),
            levels,
            passes: passes.iter().map(PassReport::from).collect(),
            check_reasons: checks.reasons(),
            first_probes,
            checks,
            setup: Setup::new(input, settings),
            load_ns: loading.as_nanos() as u64,
            batches: None,
            other_filters_loaded: None,
            scans: None,
            compaction: None,
            other_filters: None,
        }
    }

    /// The states of the store that were measured, in order, with their false positives and checks.
    pub(super) fn states(&self) -> Vec<(&str, &FalsePositives, &Checks)> {
        fn of<'a>(name: &'a str, state: &'a State) -> (&'a str, &'a FalsePositives, &'a Checks) {
            (name, &state.first_probes, &state.checks)
        }
        let mut states = vec![("loaded", &self.first_probes, &self.checks)];
        states.extend(self.other_filters_loaded.iter().map(|act| of(&act.kind, &act.state)));
        if let Some(act) = &self.compaction {
            states.extend([of("changed", &act.before), of("compacted", &act.after)]);
        }
        states.extend(self.other_filters.iter().map(|act| of(&act.kind, &act.state)));
        states
    }

    /// The passes of the first act, and the batches.
    pub(super) fn all_passes(&self) -> impl Iterator<Item = &PassReport> {
        self.passes.iter().chain(self.batches.iter().map(|batches| &batches.pass))
    }

    /// The checks of all states, with the state's name, of the batches and of the scans.
    pub(super) fn all_checks(&self) -> impl Iterator<Item = (&str, &(&'static str, Check))> {
        let states = self.states().into_iter().map(|(state, _, checks)| (state, checks));
        let batches = self.batches.iter().map(|batches| ("batches", &batches.checks));
        let all =
            states.chain(batches).chain(self.scans.iter().map(|scans| ("scans", &scans.checks)));
        all.flat_map(|(state, checks)| checks.0.iter().map(move |check| (state, check)))
    }

    /// The checks that fail, with the state's name.
    pub(super) fn failed(&self) -> impl Iterator<Item = (&str, &(&'static str, Check))> {
        self.all_checks().filter(|(_, (_, check))| check.holds == Some(false))
    }

    /// All levels together.
    pub(super) fn total(&self) -> Level {
        let reads = |pass: usize| self.levels.iter().map(|level| level.pass_reads[pass]).sum();
        Level {
            level: LEVELS,
            tables: self.tables,
            keys: self.levels.iter().map(|level| level.keys).sum(),
            filter_bytes: self.filter_bytes,
            bits_per_key: self.bits_per_key,
            probes: self.probes,
            range_pruned: self.range_pruned,
            true_negatives: self.true_negatives,
            true_positives: self.true_positives,
            false_positives: self.false_positives,
            fpr_measured: self.fpr_measured,
            fpr_predicted: self.fpr_predicted,
            disk_reads: self.disk_reads,
            pass_reads: std::array::from_fn(reads),
        }
    }
}

impl Level {
    /// A table of L0 is a sorted run of its own.
    pub(super) fn sorted_runs(&self) -> u64 {
        if self.level == 0 { self.tables } else { 1 }
    }

    /// A level with tables, with the counts of the passes.
    fn new(level: usize, all_passes: &[Pass; 4]) -> Option<Self> {
        let [absent, present, ..] = all_passes;
        let passes = [absent, present];
        let of_level = |pass: &Pass| -> Vec<TableInfo> {
            pass.tables.iter().filter(|table| table.level == level).cloned().collect()
        };
        let tables = of_level(passes[0]);
        if tables.is_empty() {
            return None;
        }
        let counts: Counts = passes.iter().map(|pass| pass.stats.levels[level]).sum();
        let probes: Vec<_> = passes.iter().flat_map(|pass| probes(&of_level(pass))).collect();
        let keys = tables.iter().map(|table| table.keys).sum();
        let filter_bytes = tables.iter().map(|table| table.filter.bytes() as u64).sum();
        Some(Self {
            level,
            tables: tables.len() as u64,
            keys,
            filter_bytes,
            bits_per_key: ratio(filter_bytes as f64 * 8.0, keys),
            probes: counts.probes(),
            range_pruned: counts.range_pruned,
            true_negatives: counts.true_negatives,
            true_positives: counts.true_positives,
            false_positives: counts.false_positives,
            fpr_measured: counts.false_positive_rate(),
            fpr_predicted: predicted(&probes),
            disk_reads: counts.disk_reads,
            pass_reads: all_passes.each_ref().map(|pass| pass.stats.levels[level].disk_reads),
        })
    }
}
