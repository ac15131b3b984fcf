//! Loads a store into a bucket, and makes lookups with readers on empty local directories.

use std::path::Path as LocalPath;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use criba::{Batch, FilterInfo, FilterKind, FilterPolicy, TableInfo};
use criba_cli::interrupt::TemporaryDir;
use criba_cli::readamp::input::Input;
use criba_cli::{Failure, Result};
use criba_object::object_store::ObjectStore;
use criba_object::object_store::path::Path;
use criba_object::{Location, ObjectDb, ObjectReader, Options, Purpose, open, open_reader};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::failed;
use crate::metered::Metered;
use crate::report::{MONTH, Pass, Prices, Report, Requests, Run, percentile};

/// How a store is loaded and read.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bits per key of the Bloom filters. The ribbon filters take as many bytes.
    pub bits_per_key: f64,
    /// What each request takes longer.
    pub delay: Duration,
    /// Lookups of present keys, and of absent ones without filters.
    pub lookups: usize,
    /// Threads that make lookups.
    pub threads: usize,
    /// As [`criba::Options::seed`]; of the order of loading and of lookups, too.
    pub seed: u64,
    /// As [`criba::Options::table_bytes`].
    pub table_bytes: u64,
    /// The prices.
    pub prices: Prices,
    /// The lookups a second that the money of a month is for.
    pub lookups_a_second: f64,
}

/// Loads the present keys into a store at `path`, where there is none, and looks keys up: without filters, with Bloom
/// filters, with ribbon filters beside the same tables. `progress` is called with what is done now.
///
/// # Errors
/// Those of the bucket and of the local files.
pub fn measure(
    (store, path): (Arc<dyn ObjectStore>, Path),
    input: &Input,
    settings: &Settings,
    progress: &dyn Fn(&str),
) -> Result<Report> {
    let bench = Bench { metered: Metered::new(store, settings.delay), path, settings };
    let dir = TemporaryDir::new("criba-object-readamp-")?;
    let mut order: Vec<_> = input.present.iter().collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(settings.seed));
    let mut absent: Vec<Lookup> = input.absent.iter().map(|key| (&key[..], None)).collect();
    absent.shuffle(&mut ChaCha8Rng::seed_from_u64(settings.seed.wrapping_add(1)));
    let present: Vec<Lookup> =
        order.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
    let few = &absent[..settings.lookups.min(absent.len())];
    let present = &present[..settings.lookups.min(present.len())];

    progress("loading");
    let bloom = FilterPolicy::bits_per_key(settings.bits_per_key).with_kind(FilterKind::Bloom);
    let writer = bench.load(&dir.path().join("writer"), &order, bloom)?;
    let tables = writer.tables();
    let loading = bench.metered.requests();
    progress("without filters");
    let without = bench.run("without filters", &dir, true, few, present)?;
    progress("Bloom filters");
    let with_bloom = bench.run("Bloom", &dir, false, &absent, present)?;
    progress("ribbon filters");
    let before = bench.metered.requests();
    let ribbon = FilterPolicy::default().with_kind(FilterKind::Ribbon);
    writer.rebuild_filters(&ribbon.with_total_bytes(with_bloom.filter_bytes))?;
    writer.sync_remote().map_err(failed)?;
    let rebuilding = bench.metered.requests() - before;
    let with_ribbon = bench.run("ribbon", &dir, false, &absent, present)?;
    writer.close().map_err(failed)?;

    let runs = vec![without, with_bloom, with_ribbon];
    Ok(Report {
        keys: input.present.len() as u64,
        tables: tables.len() as u64,
        table_bytes: tables.iter().map(|table| table.file_bytes).sum(),
        sorted_runs: sorted_runs(&tables),
        delay_ms: settings.delay.as_secs_f64() * 1000.0,
        threads: settings.threads as u64,
        lookups_a_second: settings.lookups_a_second,
        prices: settings.prices,
        loading,
        loading_dollars: settings.prices.of(loading),
        rebuilding,
        checks_hold: runs.iter().all(|run| run.failed_checks.is_empty()),
        runs,
    })
}

/// A key, and its value if it is present.
type Lookup<'a> = (&'a [u8], Option<&'a [u8]>);

struct Bench<'a> {
    metered: Metered,
    path: Path,
    settings: &'a Settings,
}

impl Bench<'_> {
    fn location(&self) -> Location {
        Location::new(Arc::new(self.metered.clone()), self.path.clone())
    }

    /// Without a cache each read of a block is a request. Nothing is published or compacted meanwhile.
    fn options(&self, store: criba::Options) -> Options {
        let store = store.seed(self.settings.seed).cache_bytes(0).background_threads(0);
        Options::new().store(store).publish_every(None).local_bytes(0)
    }

    fn load(
        &self,
        dir: &LocalPath,
        order: &[&(Vec<u8>, Vec<u8>)],
        filter: FilterPolicy,
    ) -> Result<ObjectDb> {
        let table_bytes = self.settings.table_bytes;
        let store = criba::Options::new()
            .filter(filter)
            .table_bytes(table_bytes)
            .memtable_bytes(table_bytes as usize)
            .level_base_bytes(4 * table_bytes);
        let writer = open(self.location(), dir, self.options(store)).map_err(failed)?;
        for pairs in order.chunks(64) {
            let mut batch = Batch::new();
            for (key, value) in pairs {
                batch.put(key, value);
            }
            writer.write(batch)?;
        }
        writer.wait_until_settled()?;
        writer.sync_remote().map_err(failed)?;
        Ok(writer)
    }

    /// Opens a reader on a new directory, and looks keys up.
    fn run(
        &self,
        name: &'static str,
        dir: &TemporaryDir,
        ignore_filters: bool,
        absent: &[Lookup],
        present: &[Lookup],
    ) -> Result<Run> {
        let store = criba::Options::new().ignore_filters(ignore_filters);
        let before = self.metered.requests();
        let began = Instant::now();
        let reader = open_reader(self.location(), dir.path().join(name), self.options(store));
        let reader = reader.map_err(failed)?;
        let opening_ms = began.elapsed().as_secs_f64() * 1000.0;
        let opening = self.metered.requests() - before;
        let absent = self.pass(&reader, absent)?;
        let present = self.pass(&reader, present)?;
        let mut failed_checks = absent.failed_checks("absent");
        failed_checks.extend(present.failed_checks("present"));
        Ok(Run {
            name,
            filter_bytes: if ignore_filters { 0 } else { filter_bytes(&reader.tables()) },
            opening,
            opening_ms,
            absent,
            present,
            failed_checks,
        })
    }

    fn pass(&self, reader: &ObjectReader, lookups: &[Lookup]) -> Result<Pass> {
        let state = || {
            let blocks = reader.requests(Purpose::Blocks);
            (self.metered.requests(), blocks, reader.stats().total().disk_reads)
        };
        let (requests_before, blocks_before, reads_before) = state();
        let (mut times, wrong) = look_up(reader, lookups, self.settings.threads)?;
        let (requests, blocks, reads) = state();
        times.sort_unstable();
        let requests: Requests = requests - requests_before;
        let repeated = blocks.repeated - blocks_before.repeated;
        let each = lookups.len().max(1) as f64;
        let Settings { prices, lookups_a_second, .. } = self.settings;
        Ok(Pass {
            lookups: lookups.len() as u64,
            disk_reads: reads - reads_before,
            block_requests: blocks.requests - blocks_before.requests - repeated,
            repeated,
            requests,
            gets_each: requests.gets as f64 / each,
            p50_ms: percentile(&times, 0.5),
            p99_ms: percentile(&times, 0.99),
            dollars_a_month: prices.of(requests) / each * lookups_a_second * MONTH,
            wrong,
        })
    }
}

/// Looks keys up on several threads. Returns the time of each lookup, and how many answers are wrong.
fn look_up(
    reader: &ObjectReader,
    lookups: &[Lookup],
    threads: usize,
) -> Result<(Vec<Duration>, u64)> {
    let of_thread = |lookups: &[Lookup]| {
        let (mut times, mut wrong) = (Vec::with_capacity(lookups.len()), 0);
        for (key, value) in lookups {
            let began = Instant::now();
            let found = reader.get(key)?;
            times.push(began.elapsed());
            wrong += u64::from(found.as_deref() != *value);
        }
        Ok::<_, Failure>((times, wrong))
    };
    let share = lookups.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts = lookups.chunks(share);
        let running: Vec<_> = parts.map(|part| scope.spawn(move || of_thread(part))).collect();
        let (mut times, mut wrong) = (Vec::with_capacity(lookups.len()), 0);
        for thread in running {
            let (its_times, its_wrong) = thread.join().expect("a lookup does not panic")?;
            times.extend(its_times);
            wrong += its_wrong;
        }
        Ok((times, wrong))
    })
}

fn filter_bytes(tables: &[TableInfo]) -> u64 {
    let mut sum = 0;
    for table in tables {
        if let FilterInfo::Active { bytes, .. } = table.filter {
            sum += bytes as u64;
        }
    }
    sum
}

fn sorted_runs(tables: &[TableInfo]) -> u64 {
    let in_l0 = tables.iter().filter(|table| table.level == 0).count();
    let mut levels: Vec<_> =
        tables.iter().map(|table| table.level).filter(|&level| level > 0).collect();
    levels.sort_unstable();
    levels.dedup();
    (in_l0 + levels.len()) as u64
}
