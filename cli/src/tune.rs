use std::io::Write;
use std::path::PathBuf;

use criba::{Advice, Allocation, Estimate};
use serde::Serialize;

use crate::failure::Result;
use crate::text::{counted, thousands};
use crate::{Answer, store};

/// Print what other filters would cost and avoid for a store as it is, and which to choose
///
/// Computes the disk reads that a lookup of an absent key wastes, for each kind of filter, uniform and
/// balanced, at today's bits per key and some more and fewer. Absent keys are taken to be distributed like
/// the present ones; a program that has the store open can use the counts of its own lookups (Db::advise).
/// Reads only what opening reads.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let advice = store::to_read(&args.dir)?.advise();
    let recommendation = advice.recommend(command);
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &Json::new(&advice, &recommendation))
            .map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&advice, out)?;
        writeln!(out, "\n{recommendation}")?;
    }
    Ok(Answer::Yes)
}

fn command(to: &Estimate) -> String {
    let Estimate { kind, bits_per_key, .. } = to;
    let allocation = allocation(to.allocation);
    format!(
        "criba rebuild-filters DIR --filter {kind} --allocation {allocation} --bits-per-key {bits_per_key}"
    )
}

fn print(advice: &Advice, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "tables  {} with {}; {:.2} lie in the way of an absent key",
        thousands(advice.tables),
        counted(advice.keys, "key"),
        advice.reads_without_filters,
    )?;
    writeln!(
        out,
        "today   {} reads per absent lookup, with {} of filters in memory:\n        {:.2} bits a key, \
         {:.2} with headers",
        reads(advice.reads_per_absent_lookup),
        counted(advice.filter_bytes, "byte"),
        advice.bits_per_key,
        advice.bits_per_key_with_headers,
    )?;
    if advice.degraded > 0 {
        writeln!(out, "        {}", counted(advice.degraded, "degraded filter"))?;
    }
    match advice.absent_probes {
        0 => writeln!(out, "loads   from the key ranges alone")?,
        probes => writeln!(out, "loads   from {}", counted(probes, "absent probe"))?,
    }
    if !advice.estimates.is_empty() {
        let title = "expected disk reads per absent lookup";
        print_table(title, advice, |estimate| reads(estimate.reads_per_absent_lookup), out)?;
        let title = "bytes of filters, headers included";
        print_table(title, advice, |estimate| thousands(estimate.filter_bytes), out)?;
    }
    Ok(())
}

/// A row for each number of bits, a column for each kind and allocation.
fn print_table(
    title: &str,
    advice: &Advice,
    cell: fn(&Estimate) -> String,
    out: &mut dyn Write,
) -> Result<()> {
    writeln!(out, "\n{title}")?;
    for (first, estimates) in advice.estimates.chunk_by(|a, b| a.change == b.change).enumerate() {
        if first == 0 {
            let kinds: Vec<_> = estimates.chunk_by(|a, b| a.kind == b.kind).collect();
            let heads = kinds.iter().map(|of_kind| format!("{:>26}", of_kind[0].kind.to_string()));
            writeln!(out, "{:<16}{}", "", heads.collect::<String>())?;
            let heads = estimates.iter().map(|e| format!("{:>13}", allocation(e.allocation)));
            writeln!(out, "{:<16}{}", "bits per key", heads.collect::<String>())?;
        }
        let change = match estimates[0].change {
            0 => "today".to_owned(),
            change => format!("{change:+}"),
        };
        let cells = estimates.iter().map(|estimate| format!("{:>13}", cell(estimate)));
        let bits = estimates[0].bits_per_key;
        writeln!(out, "{bits:>5.2}  {change:<9}{}", cells.collect::<String>())?;
    }
    Ok(())
}

fn allocation(allocation: Allocation) -> &'static str {
    if allocation == Allocation::Uniform { "uniform" } else { "balanced" }
}

/// Three significant digits or so.
fn reads(reads: f64) -> String {
    if reads > 0.0 && reads < 0.001 { format!("{reads:.2e}") } else { format!("{reads:.4}") }
}

/// As [`Advice`] has it, with a command to run.
#[derive(Debug, Serialize)]
struct Json<'a> {
    tables: u64,
    keys: u64,
    degraded: u64,
    absent_probes: u64,
    filter_bytes: u64,
    bits_per_key: f64,
    bits_per_key_with_headers: f64,
    reads_per_absent_lookup: f64,
    reads_without_filters: f64,
    estimates: Vec<JsonEstimate>,
    recommendation: &'a str,
}

#[derive(Debug, Serialize)]
struct JsonEstimate {
    change: i32,
    kind: String,
    allocation: &'static str,
    bits_per_key: f64,
    filter_bytes: u64,
    reads_per_absent_lookup: f64,
}

impl<'a> Json<'a> {
    fn new(advice: &Advice, recommendation: &'a str) -> Self {
        Self {
            tables: advice.tables,
            keys: advice.keys,
            degraded: advice.degraded,
            absent_probes: advice.absent_probes,
            filter_bytes: advice.filter_bytes,
            bits_per_key: advice.bits_per_key,
            bits_per_key_with_headers: advice.bits_per_key_with_headers,
            reads_per_absent_lookup: advice.reads_per_absent_lookup,
            reads_without_filters: advice.reads_without_filters,
            estimates: advice.estimates.iter().map(JsonEstimate::from).collect(),
            recommendation,
        }
    }
}

impl From<&Estimate> for JsonEstimate {
    fn from(estimate: &Estimate) -> Self {
        Self {
            change: estimate.change,
            kind: estimate.kind.to_string(),
            allocation: allocation(estimate.allocation),
            bits_per_key: estimate.bits_per_key,
            filter_bytes: estimate.filter_bytes,
            reads_per_absent_lookup: estimate.reads_per_absent_lookup,
        }
    }
}
