use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use criba_cli::readamp::input::Input;
use criba_cli::{Answer, Failure, Result, print_error};
use criba_report::output::Output;

use crate::measure::{Settings, measure};
use crate::place::Place;
use crate::report::Prices;
use crate::{page, print};

/// Count the requests of lookups on a bucket, with filters and without, and what they cost
///
/// Loads made-up keys into a store in a new directory of the bucket, and looks keys up with readers on empty local
/// directories: without filters, with Bloom filters, and with ribbon filters in as many bytes. Compares the requests
/// with the disk reads of the store's ledger. Removes its objects at the end, and at Ctrl-C; if it is killed, remove
/// the directory readamp-… by hand. Exit code 1 if a count or an answer is wrong. The default prices are those of S3
/// Standard in us-east-1 (November 2026).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The bucket; objects are made below it, in a directory of their own
    #[arg(long, default_value = "memory:///")]
    url: String,
    /// How many keys to make up and load
    #[arg(long, default_value_t = 120_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    n: u64,
    /// How many present keys to look up, and how many absent ones without filters
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    lookups: u64,
    /// How many absent keys to look up with filters
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    absent: u64,
    /// Bits per key of the Bloom filters
    #[arg(long, default_value_t = 10.0)]
    bits_per_key: f64,
    /// The size at which compactions cut SSTables, and at which a memtable is flushed. A small store of small SSTables
    /// has the levels of a large one
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = clap::value_parser!(u64).range(4096..=1 << 30))]
    table_bytes: u64,
    /// The threads that make lookups
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// What each request takes longer, such as 50ms: a bucket far away, on one machine
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = humantime::parse_duration)]
    delay: Duration,
    /// The dollars of a thousand GETs
    #[arg(long, value_name = "DOLLARS", default_value_t = 0.0004)]
    get_price: f64,
    /// The dollars of a thousand PUTs or listings
    #[arg(long, value_name = "DOLLARS", default_value_t = 0.005)]
    put_price: f64,
    /// The lookups a second that the money of a month is for
    #[arg(long, value_name = "N", default_value_t = 10_000.0)]
    rate: f64,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a page with plots, report.html, into this directory: new, empty, or from an earlier run; each plot also as
    /// .svg, its points as .csv
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let amounts = [
        ("--bits-per-key", args.bits_per_key),
        ("--get-price", args.get_price),
        ("--put-price", args.put_price),
        ("--rate", args.rate),
    ];
    for (name, amount) in amounts {
        if !(amount.is_finite() && amount >= 0.0) {
            return Err(Failure::Usage(format!("{name} takes a number of 0 or more")));
        }
    }
    let settings = Settings {
        bits_per_key: args.bits_per_key,
        delay: args.delay,
        lookups: args.lookups as usize,
        threads: args.threads.into(),
        seed: args.seed,
        table_bytes: args.table_bytes,
        prices: Prices { thousand_gets: args.get_price, thousand_puts: args.put_price },
        lookups_a_second: args.rate,
    };
    let output = args.report.as_deref();
    let output = output.map(|dir| Output::in_directory(dir, "criba-object readamp")).transpose()?;
    let input = Input::made_up(args.n, args.absent.max(args.lookups), args.seed);
    let place = Place::below(&args.url)?;
    let progress = criba_cli::Progress::of_time();
    let report = measure((place.store(), place.path()), &input, &settings, &|what| {
        progress.wait(what.to_owned());
    });
    progress.finish_and_clear();
    let report = report?;
    if args.json {
        criba_cli::print_json(&report, out)?;
    } else {
        print::print(&report, out)?;
    }
    out.flush()?; // the result, even if the page cannot be written
    if let (Some(output), Some(dir)) = (output, &args.report) {
        output.replace(&page::files(&report))?;
        if !args.json {
            writeln!(out, "\nThe report: {}", dir.join("report.html").display())?;
            out.flush()?;
        }
    }
    for run in &report.runs {
        for failed in &run.failed_checks {
            print_error(&format!("{}: {failed}", run.name));
        }
    }
    Ok(if report.checks_hold { Answer::Yes } else { Answer::No })
}
