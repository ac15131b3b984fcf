//! criba measured beside other embedded stores, with the same work. See README.md.
//!
//! The program runs itself once for each store, workload and repetition: each process has its own heap, cache
//! and peak of memory. `plan` is the parent, `child` the measuring process; `stores` and `workloads` define
//! what is measured.

mod job;
mod keys;
mod lines;
mod loaded;
mod machine;
mod measure;
mod plan;
mod process;
mod random;
mod results;
mod settings;
mod stores;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use job::Workload;
use keys::KeyKind;
use settings::Setting;
use stores::Name;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// Measures embedded stores beside each other; with nothing said, all stores and workloads.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// Prints the tables and sentences of the documents, and draws their plot
    Table {
        /// Prints all results of these files instead
        files: Vec<PathBuf>,
    },
    /// One measurement, as the program runs it itself.
    #[command(hide = true)]
    Child { order: String },
}

#[derive(Debug, Clone, Args)]
pub struct Run {
    /// Which stores, one after another.
    #[arg(long, value_delimiter = ',', default_values_t = <Name as clap::ValueEnum>::value_variants().to_vec())]
    stores: Vec<Name>,
    /// The settings of the stores
    #[arg(long, value_delimiter = ',', default_value = "alike,best")]
    settings: Vec<Setting>,
    /// What is measured.
    #[arg(long, value_delimiter = ',', default_values_t = <Workload as clap::ValueEnum>::value_variants().to_vec())]
    workloads: Vec<Workload>,
    /// How many keys are in a store.
    #[arg(long, default_value_t = 1_000_000)]
    n: u64,
    /// What keys look like.
    #[arg(long, value_enum, default_value_t = KeyKind::Names)]
    keys: KeyKind,
    /// Files with a path per line, plain or gzipped, for `--keys paths`. Default: the samples in tests/data,
    /// repeated with numbers.
    #[arg(long, value_delimiter = ',')]
    paths: Vec<PathBuf>,
    /// How often everything is measured.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// The most lookups of a measurement
    #[arg(long, default_value_t = 1_000_000)]
    lookups: u64,
    /// The most seconds of a measurement
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many seconds W10 takes.
    #[arg(long, default_value_t = 10.0)]
    mixed_seconds: f64,
    /// The most seconds of a process, with loading; a longer one has failed
    #[arg(long, default_value_t = 1800)]
    limit: u64,
    /// Where the random numbers begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The directory of the stores, on the disk to measure. Default: `stores` in the build's directory
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The file of results, which are appended; existing ones are not measured again
    #[arg(long, default_value = "results/peers.jsonl")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let command = Command::parse();
    let done = match command.other {
        None => plan::run(&command.run),
        Some(Other::Table { files }) => print_tables(&files),
        Some(Other::Child { order }) => plan::child(&order),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the tables and sentences of the documents, or all results of some files.
fn print_tables(files: &[PathBuf]) -> Result<()> {
    if files.is_empty() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        print!("{}", criba_figures::page::of_documents(root.as_ref())?);
        return Ok(());
    }
    let mut lines = Vec::new();
    for file in files {
        lines.append(&mut criba_figures::read(file)?);
    }
    print!("{}", criba_figures::markdown(&lines));
    Ok(())
}
