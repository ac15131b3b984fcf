//! Scans of prefixes such as directories, in a copy of the loaded store whose filters have prefixes.

use std::collections::BTreeSet;

use criba::vfs::{FileKind, Operation};
use criba::{FilterInfo, PrefixExtractor};
use rand::seq::SliceRandom;
use serde::Serialize;

use super::bench::Bench;
use super::checks::{Check, Checks, PassReads, file_layer_agrees, kernel_agrees};
use super::input::{Input, Stream, random};
use super::kernel::ReadMeter;
use super::other_filters::copy;
use crate::failure::Result;
use crate::text::{counted, thousands};

/// The most prefixes of each kind that are scanned.
const MOST: usize = 10_000;

/// Scans of the prefixes up to each delimiter: those of absent keys that no present key has, and present ones.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Scans {
    /// The delimiter.
    pub delimiter: char,
    /// Distinct prefixes in all filters.
    pub prefixes: u64,
    /// Bytes of the filters with prefixes, headers included.
    pub filter_bytes: u64,
    /// Bytes of the filters of keys alone.
    pub filter_bytes_before: u64,
    /// Four passes: of absent prefixes, of present ones, and of both with every filter answering "maybe".
    pub passes: Vec<ScanPass>,
    /// The checks: true, false, or null.
    pub checks: Checks,
}

/// Scans of all prefixes of one kind, in a store opened for it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ScanPass {
    /// "absent", "present", "absent_unfiltered" or "present_unfiltered".
    pub name: &'static str,
    /// Scans.
    pub scans: u64,
    /// Keys that they found.
    pub items: u64,
    /// Tables that filters denied.
    pub tables_denied: u64,
    /// Disk reads, as the engine counts.
    pub disk_reads: u64,
    /// Disk reads, as the file layer counts.
    pub file_reads: u64,
    /// Read system calls, if the kernel counts them.
    pub kernel_reads: Option<u64>,
    /// The items and disk reads of each scan.
    #[serde(skip)]
    each: Vec<(u64, u64)>,
    #[serde(skip)]
    kernel: std::result::Result<u64, String>,
}

/// Scans in a copy of the store; `None` if no absent key has a prefix that no present key has.
pub(super) fn scan_in_copy(
    bench: &Bench,
    input: &Input,
    filter_bytes_before: u64,
) -> Result<Option<Scans>> {
    let delimiter = bench.settings.delimiter;
    let extractor = PrefixExtractor::every(delimiter);
    let [absent, present] = prefixes(input, extractor, bench.settings.seed);
    if absent.is_empty() || filter_bytes_before == 0 {
        return Ok(None);
    }
    let copy = copy(bench)?;
    let bench = Bench { dir: copy.path(), ..*bench };
    bench.begin("prefixes", 0);
    let db = bench.open(|options| options.prefix(extractor))?;
    db.rebuild_filters(&bench.settings.filter)?;
    let tables = db.tables();
    db.close()?;
    let passes = vec![
        ScanPass::run("absent", &bench, &absent, false)?,
        ScanPass::run("present", &bench, &present, false)?,
        ScanPass::run("absent_unfiltered", &bench, &absent, true)?,
        ScanPass::run("present_unfiltered", &bench, &present, true)?,
    ];
    Ok(Some(Scans {
        delimiter: char::from(delimiter),
        prefixes: tables.iter().map(|table| prefixes_in(&table.filter)).sum(),
        filter_bytes: tables.iter().map(|table| table.filter.stored_bytes() as u64).sum(),
        filter_bytes_before,
        checks: checks(&passes),
        passes,
    }))
}

fn prefixes_in(filter: &FilterInfo) -> u64 {
    if let FilterInfo::Active { prefixes, .. } = filter { *prefixes } else { 0 }
}

/// Some distinct prefixes of absent keys that no present key has, and some of present keys, drawn at random.
fn prefixes(input: &Input, extractor: PrefixExtractor, seed: u64) -> [Vec<&[u8]>; 2] {
    let present = input.present.iter().flat_map(|(key, _)| extractor.prefixes_of(key));
    let present: BTreeSet<&[u8]> = present.collect();
    let absent = input.absent.iter().flat_map(|key| extractor.prefixes_of(key));
    let absent: BTreeSet<&[u8]> = absent.filter(|prefix| !present.contains(prefix)).collect();
    let mut random = random(seed, Stream::Scans);
    [absent, present].map(|of_kind| {
        let mut drawn: Vec<&[u8]> = of_kind.into_iter().collect();
        drawn.shuffle(&mut random);
        drawn.truncate(MOST);
        drawn
    })
}

impl ScanPass {
    fn run(
        name: &'static str,
        bench: &Bench,
        prefixes: &[&[u8]],
        ignore_filters: bool,
    ) -> Result<Self> {
        let db = bench.open(|options| options.ignore_filters(ignore_filters))?;
        bench.begin(&format!("scans, {}", name.replace('_', ", ")), prefixes.len());
        let counting = &bench.engine.counting;
        let file_reads = || counting.counts().of(FileKind::Table, Operation::Read).calls;
        let mut each = Vec::with_capacity(prefixes.len());
        let (files_before, before) = (file_reads(), db.stats());
        let meter = ReadMeter::start();
        let mut reads_before = 0;
        for prefix in prefixes {
            let mut items = 0;
            for item in db.prefix(prefix) {
                item?;
                items += 1;
            }
            let reads = (db.stats() - before).scan_reads.calls;
            each.push((items, reads - reads_before));
            reads_before = reads;
        }
        let kernel = meter.and_then(ReadMeter::stop);
        let file_reads = file_reads() - files_before;
        let stats = db.stats() - before;
        db.close()?;
        Ok(Self {
            name,
            scans: each.len() as u64,
            items: each.iter().map(|(items, _)| items).sum(),
            tables_denied: stats.prefix.skipped,
            disk_reads: stats.scan_reads.calls,
            file_reads,
            kernel_reads: kernel.as_ref().ok().copied(),
            each,
            kernel,
        })
    }

    fn reads(&self) -> PassReads {
        PassReads {
            name: self.name,
            explained: self.each.iter().map(|(_, reads)| reads).sum(),
            engine: self.disk_reads,
            file_layer: self.file_reads,
            kernel: self.kernel.clone(),
        }
    }
}

fn checks(passes: &[ScanPass]) -> Checks {
    let reads: Vec<_> = passes.iter().map(ScanPass::reads).collect();
    Checks(vec![
        ("answers_equal", answers_equal(passes)),
        ("no_block_more", no_block_more(passes)),
        ("file_layer_agrees", file_layer_agrees(&reads)),
        ("kernel_agrees", kernel_agrees(&reads)),
    ])
}

/// Each pass with filters beside the same one without.
fn pairs(passes: &[ScanPass]) -> impl Iterator<Item = (&ScanPass, &ScanPass)> {
    passes.iter().zip(passes.iter().skip(passes.len() / 2))
}

fn answers_equal(passes: &[ScanPass]) -> Check {
    let items = |pass: &ScanPass| pass.each.iter().map(|(items, _)| *items).collect::<Vec<_>>();
    for (with, without) in pairs(passes) {
        if items(with) != items(without) {
            return Check::fails(format!("scans of {} prefixes found other keys", with.name));
        }
        if (with.items == 0) != (with.name == "absent") {
            let items = counted(with.items, "key");
            return Check::fails(format!("scans of {} prefixes found {items}", with.name));
        }
    }
    Check::holds("the scans found as many keys with filters and without, of absent prefixes none")
}

fn no_block_more(passes: &[ScanPass]) -> Check {
    let both = pairs(passes).flat_map(|(with, without)| with.each.iter().zip(&without.each));
    let (mut scans, mut more) = (0, 0);
    for ((_, with), (_, without)) in both {
        scans += 1;
        more += u64::from(with > without);
    }
    match more {
        0 => Check::holds(format!("{} read no block more with filters", counted(scans, "scan"))),
        _ => Check::fails(format!("{} of {scans} scans read more with filters", thousands(more))),
    }
}
