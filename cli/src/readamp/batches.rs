//! The present keys of the first act again, in batches.

use std::time::Duration;

use criba::Stats;
use criba::vfs::{FileKind, Operation};
use serde::Serialize;

use super::bench::{Bench, since_1970};
use super::checks::{Check, Checks, PassReads, file_layer_agrees, kernel_agrees};
use super::kernel::ReadMeter;
use super::other_filters::copy;
use super::pass::{Found, PassReport};
use super::work::Work;
use crate::failure::Result;
use crate::text::counted;

/// The keys of a batch.
const BATCH: usize = 64;

/// One pass of lookups by [`Db::get_many`](criba::Db::get_many).
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Batches {
    /// The keys of a batch.
    pub batch: usize,
    /// The pass.
    pub pass: PassReport,
    /// Blocks that were announced to the operating system after slow reads: few of files in memory.
    pub blocks_announced: u64,
    /// Their bytes.
    pub bytes_announced: u64,
    /// Those that were not read.
    pub announced_unread: u64,
    /// The checks: true, false, or null.
    pub checks: Checks,
}

/// Looks up the keys of `work`, which found their values in `single` reads.
pub(super) fn look_up(bench: &Bench, work: &Work, single: &PassReport) -> Result<Batches> {
    // In a copy: the numbers of the store's later files stay the same.
    let copy = copy(bench)?;
    let db = bench.open_unseeded(copy.path())?;
    bench.begin("batches", work.0.len());
    let file_reads = || bench.engine.counting.counts().of(FileKind::Table, Operation::Read).calls;
    let (files_before, before) = (file_reads(), db.stats());
    let meter = ReadMeter::start();
    let start = since_1970();
    let mut missed = 0;
    for wanted in work.0.chunks(BATCH) {
        let keys: Vec<&[u8]> = wanted.iter().map(|wanted| wanted.key).collect();
        for (value, wanted) in db.get_many(&keys)?.into_iter().zip(wanted) {
            missed += u64::from(Found::new(value, wanted.value) != Found::AsLoaded);
        }
    }
    let end = since_1970();
    let kernel = meter.and_then(ReadMeter::stop);
    let file_reads = file_reads() - files_before;
    let stats = db.stats() - before;
    db.close()?;
    let reads = [PassReads {
        name: "batches",
        explained: stats.total().disk_reads,
        engine: stats.total().disk_reads,
        file_layer: file_reads,
        kernel: kernel.clone(),
    }];
    let activity = stats.activity;
    let pass = pass_report(work, &stats, file_reads, kernel.ok(), [start, end]);
    Ok(Batches {
        batch: BATCH,
        checks: Checks(vec![
            ("no_key_missed", no_key_missed(missed, pass.lookups)),
            ("reads_equal", reads_equal(&pass, single)),
            ("file_layer_agrees", file_layer_agrees(&reads)),
            ("kernel_agrees", kernel_agrees(&reads)),
        ]),
        pass,
        blocks_announced: activity.blocks_announced,
        bytes_announced: activity.bytes_announced,
        announced_unread: activity.announced_unread,
    })
}

fn pass_report(
    work: &Work,
    stats: &Stats,
    file_reads: u64,
    kernel_reads: Option<u64>,
    [start, end]: [Duration; 2],
) -> PassReport {
    PassReport {
        name: "present_batches",
        lookups: work.0.len() as u64,
        start_ns: start.as_nanos() as u64,
        end_ns: end.as_nanos() as u64,
        cache_hits: stats.total().cache_hits,
        disk_reads: stats.total().disk_reads,
        file_reads,
        kernel_reads,
    }
}

fn no_key_missed(missed: u64, lookups: u64) -> Check {
    let lookups = counted(lookups, "lookup");
    match missed {
        0 => Check::holds(format!("{lookups} in batches found the values that were written")),
        _ => Check::fails(format!("{missed} of {lookups} in batches found no value, or another")),
    }
}

fn reads_equal(batches: &PassReport, single: &PassReport) -> Check {
    let [of_batches, of_single] =
        [batches, single].map(|pass| counted(pass.cache_hits + pass.disk_reads, "block"));
    if of_batches == of_single {
        Check::holds(format!("lookups in batches searched {of_batches}, as single ones did"))
    } else {
        Check::fails(format!("batches searched {of_batches}, single lookups {of_single}"))
    }
}
