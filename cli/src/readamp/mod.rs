//! `criba readamp`: loads keys into a new store, looks up present and absent ones, and counts what the
//! filters avoided: per lookup, in the engine, in the file layer and in the kernel.
//!
//! [`input`] has the keys, [`measure`] makes the acts, each of four [passes](pass), [`checks`] compares the
//! counts, [`report`] combines them, `print` and `page` show them, the page with a [`sample_table`].
//! [`mod@compare`] compares policies, [`sweep`] sizes.

pub mod batches;
mod bench;
mod changes;
pub mod checks;
pub mod compaction;
pub mod compare;
pub mod input;
pub mod kernel;
pub mod measure;
pub mod other_filters;
mod page;
pub mod pass;
mod print;
mod provenance;
pub mod report;
mod runs_page;
pub mod sample_table;
pub mod scans;
pub mod settings;
pub mod state;
pub mod sweep;
mod table_files;
mod unsynced;
mod words;
mod work;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criba::vfs::{CountingVfs, RealVfs, Vfs};

use self::compare::{Comparison, Row};
use self::input::Input;
use self::measure::Engine;
use self::report::Report;
use self::sample_table::SampleTable;
use self::settings::Settings;
use self::sweep::{Bits, Sweep};
use self::unsynced::unsynced;
use crate::compression::CompressionArgs;
use crate::failure::{Failure, Result};
use crate::interrupt::TemporaryDir;
use crate::policy::PolicyArgs;
use crate::progress::{Progress, ProgressArgs};
use crate::text::bytes_of;
use crate::{Answer, json, print_error};
use criba_report::figure::Figure;
use criba_report::output::Output;

/// Made-up keys are in memory.
const MOST_KEYS: u64 = 1_000_000_000;

/// Count the disk reads of lookups, with filters and without, and check the counts against the file layer's
/// and the kernel's
///
/// Loads keys into a new store and looks up present and absent ones: with filters, then with every filter
/// answering "maybe". Does so again before and after a compaction, with a tenth of the keys overwritten, a
/// fortieth deleted and a fortieth expired, and with filters of another kind beside the same tables. Scans
/// absent and present prefixes, too, with filters that have them. Exit code 1 if a check does not hold.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub struct Args {
    /// How many keys to make up and load
    #[arg(long, default_value_t = 120_000, value_parser = clap::value_parser!(u64).range(1..=MOST_KEYS), conflicts_with_all = ["present", "absent"])]
    n: u64,
    /// How many present keys to look up, and again how many absent ones [default: each key once]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_KEYS))]
    lookups: Option<u64>,
    /// The seed of all random choices; the same seed gives the same counts, but of announced blocks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    compression: CompressionArgs,
    /// Run the classic policy, then each kind uniform and balanced and the requested one in as many bytes, and
    /// print them side by side
    #[arg(long, conflicts_with_all = ["fpr", "filter_bytes", "dir"])]
    compare: bool,
    /// Run each kind of filter with each of these bits a key: bits=FROM..TO or bits=FROM..TO..STEP
    #[arg(
        long,
        value_name = "RANGE",
        value_parser = Bits::parse,
        conflicts_with_all = [
            "compare", "policy", "filter", "fpr", "bits_per_key", "filter_bytes", "allocation", "hash", "dir",
        ]
    )]
    sweep: Option<Bits>,
    /// Absent keys looked up after loading and before measuring, and not measured
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(..=MOST_KEYS)
    )]
    history: u64,
    /// The memory budget of filters during the measurement; filters that avoid the fewest reads stay on disk
    /// [default: none, all filters are in memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes_of)]
    filter_memory: Option<u64>,
    /// Draw absent keys from a Zipf distribution of this exponent, such as 0.99
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    /// The block cache; 0 for none, so that each access to a block is a disk read
    #[arg(long, value_name = "BYTES", value_parser = bytes_of, default_value_t = 0)]
    cache_bytes: u64,
    /// The size at which compactions cut tables. The three sizes are 1/1024 of the library's, so that 120,000
    /// keys make a store like one of 120 million
    #[arg(long, value_name = "BYTES", value_parser = bytes_of, default_value_t = 64 << 10)]
    table_bytes: u64,
    /// When a memtable is flushed
    #[arg(long, value_name = "BYTES", value_parser = bytes_of, default_value_t = 64 << 10)]
    memtable_bytes: u64,
    /// The least target of a level in use
    #[arg(long, value_name = "BYTES", value_parser = bytes_of, default_value_t = 256 << 10)]
    level_base_bytes: u64,
    /// No compactions: every flushed table stays on L0
    #[arg(long)]
    unsettled: bool,
    /// Compact everything into one run after loading
    #[arg(long, conflicts_with = "unsettled")]
    one_run: bool,
    /// Only the first act: no batches, no scans, no compaction, and no other filters
    #[arg(long)]
    only_lookups: bool,
    /// What ends each prefix that is scanned, such as a directory of a path [default: / for keys from a file, . for
    /// made-up ones]
    #[arg(long, value_name = "CHARACTER", value_parser = one_byte)]
    delimiter: Option<u8>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    progress: ProgressArgs,
    /// Write a page with figures, report.html, into this directory: new, empty, or from an earlier run; each
    /// figure also as .svg, its points as .csv
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// An empty or new directory for the store, which is kept; otherwise a temporary one
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Load these keys instead: one a line, or key TAB value; byte for byte; plain or gzipped
    #[arg(long, value_name = "FILE", requires = "absent")]
    present: Option<PathBuf>,
    /// Look these up as absent keys, one a line
    #[arg(long, value_name = "FILE", requires = "present")]
    absent: Option<PathBuf>,
}

impl Args {
    fn settings(&self) -> Settings {
        Settings {
            filter: self.policy.policy(),
            compression: self.compression.of_new(),
            seed: self.seed,
            lookups: self.lookups,
            cache_bytes: self.cache_bytes,
            memtable_bytes: self.memtable_bytes as usize,
            table_bytes: self.table_bytes,
            level_base_bytes: self.level_base_bytes,
            unsettled: self.unsettled,
            one_run: self.one_run,
            zipf: self.zipf,
            only_lookups: self.only_lookups || self.compare || self.sweep.is_some(),
            rebuilt_filters: self.compare || self.sweep.is_some(),
            filter_memory: self.filter_memory,
            delimiter: self.delimiter.unwrap_or(if self.present.is_some() { b'/' } else { b'.' }),
        }
    }

    fn input(&self) -> Result<Input> {
        let input = match (&self.present, &self.absent) {
            (Some(present), Some(absent)) => Input::read(present, absent)?,
            _ => {
                let absent = self.lookups.unwrap_or(self.n) + self.history;
                Input::made_up(self.n, absent, self.seed)
            }
        };
        input.with_history(self.history, self.seed)
    }
}

fn one_byte(text: &str) -> std::result::Result<u8, String> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err("it takes one ASCII character".into()),
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    if args.zipf.is_some_and(|theta| !(theta.is_finite() && theta >= 0.0)) {
        return Err(Failure::Usage("--zipf takes an exponent of 0 or more".into()));
    }
    args.policy.check()?;
    if args.compare && args.policy.is_none() {
        return Err(Failure::Usage("--compare and --filter none contradict each other".into()));
    }
    let input = args.input()?;
    match &args.sweep {
        Some(bits) => sweep(args, bits, &input, out),
        None if args.compare => compare(args, &input, out),
        None => measure_one(args, &input, out),
    }
}

fn measure_one(args: &Args, input: &Input, out: &mut dyn Write) -> Result<Answer> {
    let settings = args.settings();
    if args.report.is_some() && args.report == args.dir {
        return Err(Failure::Usage("--report and --dir take directories of their own".into()));
    }
    let output = output(args)?;
    let report = match &args.dir {
        Some(dir) => {
            check_free(dir)?;
            run_in(dir, input, &settings)?
        }
        None => run_in_temporary(input, &settings, &progress(args.progress))?,
    };
    if args.json {
        json::print(&report, out)?;
    } else {
        print::print(&report, out)?;
    }
    if let (Some(output), Some(dir)) = (&output, &args.report) {
        out.flush()?; // print the result even if the report cannot be written
        let sample = SampleTable::new(temporary_dir()?.path(), args.seed)?;
        output.replace(&page::files(&report, &sample))?;
        if !args.json {
            writeln!(out, "\nThe report: {}", dir.join("report.html").display())?;
        }
    }
    out.flush()?; // so that the report stands before what follows
    for (state, (name, check)) in report.failed() {
        print_error(&format!("{name} ({state}) does not hold: {}", check.said));
    }
    Ok(if report.failed().next().is_none() { Answer::Yes } else { Answer::No })
}

/// Where the report goes, if one is wanted.
fn output(args: &Args) -> Result<Option<Output>> {
    let output = args.report.as_deref().map(|dir| Output::in_directory(dir, "criba readamp"));
    Ok(output.transpose()?)
}

/// Writes the report of several runs.
fn write_runs(
    args: &Args,
    output: Option<Output>,
    figure: &Figure,
    rows: &[&Row],
    out: &mut dyn Write,
) -> Result<()> {
    if let (Some(output), Some(dir)) = (output, &args.report) {
        out.flush()?;
        output.replace(&runs_page::files(figure, rows, args.seed))?;
        if !args.json {
            writeln!(out, "\nThe report: {}", dir.join("report.html").display())?;
        }
    }
    Ok(())
}

fn sweep(args: &Args, bits: &Bits, input: &Input, out: &mut dyn Write) -> Result<Answer> {
    let output = output(args)?;
    let runs = bits.runs();
    let count = runs.len();
    let mut reports = Vec::new();
    for (number, (name, bits, filter)) in (1..).zip(runs) {
        let progress = progress(args.progress);
        progress.set_prefix(format!("{number} of {count}, {name} {bits} "));
        let report = run_in_temporary(input, &Settings { filter, ..args.settings() }, &progress)?;
        reports.push((name, bits, report));
    }
    let sweep = Sweep::new(&reports);
    if args.json {
        json::print(&sweep, out)?;
    } else {
        sweep.print(out)?;
    }
    let rows: Vec<&Row> = sweep.runs.iter().map(|run| &run.row).collect();
    write_runs(args, output, &sweep.figure(), &rows, out)?;
    Ok(sweep.answer())
}

/// The default size of compared filters.
const COMPARED_BITS: f64 = 10.0;

fn compare(args: &Args, input: &Input, out: &mut dyn Write) -> Result<Answer> {
    let output = output(args)?;
    let bits = args.policy.bits().unwrap_or(COMPARED_BITS);
    let asked = args.policy.policy().with_bits_per_key(bits);
    let mut reports: Vec<(String, Report)> = Vec::new();
    let policies = compare::policies(bits, asked);
    let count = policies.len();
    for (number, (name, filter)) in (1..).zip(policies) {
        // Small tables round their bits up, each kind in its own way: bytes are comparable.
        let filter = match reports.first() {
            Some((_, classic)) => filter.with_total_bytes(classic.filter_bytes),
            None => filter,
        };
        let progress = progress(args.progress);
        progress.set_prefix(format!("{number} of {count}, {name} "));
        let report = run_in_temporary(input, &Settings { filter, ..args.settings() }, &progress)?;
        reports.push((name, report));
    }
    let comparison = Comparison::new(&reports);
    if args.json {
        json::print(&comparison, out)?;
    } else {
        comparison.print(out)?;
    }
    let rows: Vec<&Row> = comparison.rows.iter().collect();
    write_runs(args, output, &comparison.figure(), &rows, out)?;
    Ok(comparison.answer())
}

fn temporary_dir() -> Result<TemporaryDir> {
    TemporaryDir::new("criba-readamp-")
}

fn run_in_temporary(input: &Input, settings: &Settings, progress: &Progress) -> Result<Report> {
    let dir = temporary_dir()?;
    let mut report = run_on(unsynced(), dir.path(), input, settings, progress)?;
    report.setup.synced = false;
    Ok(report)
}

/// Measures a store in an empty directory on the real file system.
///
/// # Errors
/// Those of [`measure::measure`].
pub fn run_in(dir: &Path, input: &Input, settings: &Settings) -> Result<Report> {
    run_on(Arc::new(RealVfs), dir, input, settings, &progress(ProgressArgs::default()))
}

fn run_on(
    files: Arc<dyn Vfs>,
    dir: &Path,
    input: &Input,
    settings: &Settings,
    progress: &Progress,
) -> Result<Report> {
    let counting = CountingVfs::new(files);
    let engine = Engine { vfs: Arc::new(counting.clone()), counting };
    let report = measure::measure(dir, input, settings, &engine, progress);
    progress.finish_and_clear();
    report
}

/// Prints a report as `criba readamp` does.
///
/// # Errors
/// [`Failure::Output`].
pub fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    print::print(report, out)
}

/// Fails if the directory has files: the measurement must make the store.
fn check_free(dir: &Path) -> Result<()> {
    let expected = "an empty directory or none";
    match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            Err(Failure::unfit(dir, expected, "a file"))
        }
        Err(e) => Err(Failure::file("list", dir, e)),
        Ok(_) if dir.join("CURRENT").exists() => Err(Failure::unfit(dir, expected, "a store")),
        Ok(mut names) => match names.next() {
            Some(_) => Err(Failure::unfit(dir, expected, "files")),
            None => Ok(()),
        },
    }
}

/// `inc` draws it on this thread: another thread might read something while a pass is counted.
fn progress(args: ProgressArgs) -> Progress {
    Progress::over_count(args, "")
}
