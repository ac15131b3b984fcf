//! Loads the store and makes the three acts.

use std::path::Path;
use std::time::Instant;

use criba::Batch;
use rand::seq::SliceRandom;

use super::batches;
use super::bench::Bench;
pub use super::bench::Engine;
use super::changes::Changes;
use super::compaction::compact;
use super::input::{Input, Stream, random};
use super::other_filters::{rebuild, rebuild_in_copy};
use super::report::Report;
use super::scans::scan_in_copy;
use super::settings::Settings;
use super::work::Work;
use crate::failure::Result;
pub use crate::progress::Progress;

/// Loads the input into an empty directory, looks keys up, and compares; then the other acts, if the settings
/// ask for them.
///
/// # Errors
/// The errors of the store; [`Failure::Usage`](crate::Failure::Usage) for absent lookups without absent keys.
pub fn measure(
    dir: &Path,
    input: &Input,
    settings: &Settings,
    engine: &Engine,
    progress: &Progress,
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
        report.batches = Some(batches::look_up(&bench, &work[1], &report.passes[1])?);
        report.other_filters_loaded = rebuild_in_copy(&bench, report.filter_bytes, &work)?;
        report.scans = scan_in_copy(&bench, input, report.filter_bytes)?;
        let changes = Changes::new(input, settings.seed);
        let work = changes.work(input, settings)?;
        let compaction = compact(&bench, &changes, &work)?;
        let filter_bytes = compaction.after.filter_bytes;
        report.other_filters = rebuild(&bench, &changes, filter_bytes, &work)?;
        report.compaction = Some(compaction);
    }
    Ok(report)
}

/// Writes the present keys in random order, so that tables overlap, and settles the store; then looks up the
/// history.
fn load(bench: &Bench, input: &Input) -> Result<()> {
    let Bench { settings, progress, .. } = bench;
    let db = bench.create()?;
    let mut order: Vec<_> = input.present.iter().collect();
    order.shuffle(&mut random(settings.seed, Stream::Loading));
    bench.begin("loading", order.len());
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
    if settings.rebuilt_filters {
        db.rebuild_filters(&settings.filter)?;
    }
    if !input.history.is_empty() {
        bench.begin("history", input.history.len());
        for key in &input.history {
            db.get(key)?;
            progress.inc(1);
        }
    }
    db.close()?;
    Ok(())
}
