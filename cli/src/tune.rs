use std::io::Write;
use std::path::PathBuf;

use criba::{Advice, Allocation, Compression, Estimate};
use serde::Serialize;

use crate::compression::{self, DataBytes};
use crate::failure::Result;
use crate::layout::{self, size, wrapped};
use crate::shell::quoted;
use crate::store::ClockArgs;
use crate::text::{counted, percent, thousands};
use crate::{Answer, json, store};

/// Print what other filters would cost and avoid for a store as it is, and which to choose
///
/// Computes the disk reads that a lookup of an absent key wastes, for each kind of filter, uniform and
/// balanced, at today's bits per key and some more and fewer. Absent keys are taken to be distributed like
/// the present ones; a program that has the store open can use the counts of its own lookups (Db::advise).
/// Reads what opening reads, and samples of the data blocks, for what LZ4 would save.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_read(&args.dir, ClockArgs::ACCEPTED)?;
    let (advice, data) = (db.advise(), DataBytes::of(&db.tables()));
    let lz4 = compression::estimates(&db);
    let (mut sentence, filters) = recommendation(&advice);
    if args.json {
        if let Some(filters) = filters {
            sentence = format!("{sentence}: {}", command("DIR", filters, " "));
        }
        sentence.push('.');
        json::print(
            &Json::new(&advice, data, compression::name(db.compression()), &lz4, &sentence),
            out,
        )?;
        return Ok(Answer::Yes);
    }
    print(&advice, data, &lz4, out)?;
    if advice.tables > 0 {
        writeln!(out)?;
    }
    sentence.push(if filters.is_some() { ':' } else { '.' });
    writeln!(out, "{}", wrapped(&sentence, 0))?;
    let dir = quoted(&args.dir);
    if advice.degraded > 0 {
        writeln!(out, "  criba rebuild-filters {dir}")?;
    }
    if let Some(filters) = filters {
        writeln!(out, "  {}", command(&dir, filters, " \\\n    "))?;
    }
    let [(_, share), ..] = lz4;
    if share.is_some_and(|share| share < 0.875) && db.compression() == Compression::None {
        writeln!(
            out,
            "LZ4 would keep {} of the data, for longer reads of present keys:",
            percent(share)
        )?;
        writeln!(out, "  criba compact {dir} --rewrite --compression lz4")?;
    }
    Ok(Answer::Yes)
}

/// What to do, without its last mark, and the filters to make.
fn recommendation(advice: &Advice) -> (String, Option<&Estimate>) {
    if advice.tables == 0 {
        return ("There are no tables yet, and so nothing to advise".into(), None);
    }
    if advice.degraded > 0 {
        return ("Rebuild the damaged filters first: the estimates leave them out".into(), None);
    }
    if advice.has_few_keys() {
        let sentence = "The tables have few keys, fewer than 100 on average: their filters are rounded up, and \
                        others would save nothing that matters";
        return (sentence.into(), None);
    }
    if advice.estimates.is_empty() {
        let sentence = "These filters have more bits a key than the largest setting, as those of few keys do, \
                        and there is nothing to advise";
        return (sentence.into(), None);
    }
    let present_reads = significant(advice.reads_per_absent_lookup);
    let present_bytes = thousands(advice.filter_bytes);
    let recommended = advice.recommended();
    if let Some(best) = recommended {
        let (name, reads) = (name(best), significant(best.reads_per_absent_lookup));
        let bytes = thousands(best.filter_bytes);
        let sentence = if advice.filter_bytes == 0 {
            format!(
                "No filter is in memory, and an absent lookup wastes {present_reads} reads; {name} of {} \
                 bits a key would waste {reads} in {bytes} bytes",
                best.bits_per_key,
            )
        } else {
            let (first, rest) = name.split_at(1);
            format!(
                "{}{rest} would waste {reads} reads per absent lookup instead of {present_reads}, in {bytes} \
                 bytes instead of {present_bytes}",
                first.to_ascii_uppercase(),
            )
        };
        return (sentence, recommended);
    }
    let present = format!(
        "These filters are right for their memory: they waste {present_reads} reads per absent lookup in \
         {present_bytes} bytes"
    );
    let Some(more) = advice.best(2) else { return (present, None) };
    let (name, reads) = (name(more), significant(more.reads_per_absent_lookup));
    let bytes = thousands(more.filter_bytes);
    (
        format!("{present}; 2 bits a key more, {name} would bring {reads} in {bytes} bytes"),
        Some(more),
    )
}

/// Such as "ribbon filters, balanced,".
fn name(filters: &Estimate) -> String {
    format!("{} filters, {},", filters.kind, allocation(filters.allocation))
}

/// The command that makes the filters. Its last options are on a line of their own where `space` breaks it.
fn command(dir: &str, filters: &Estimate, space: &str) -> String {
    let Estimate { kind, bits_per_key, .. } = filters;
    let allocation = allocation(filters.allocation);
    format!(
        "criba rebuild-filters {dir} --filter {kind} --allocation {allocation}{space}--bits-per-key {bits_per_key}"
    )
}

/// Three significant digits.
fn significant(number: f64) -> String {
    let decimals = if number > 0.0 { (2.0 - number.log10().floor()).clamp(0.0, 8.0) } else { 0.0 };
    format!("{number:.0$}", decimals as usize)
}

fn print(
    advice: &Advice,
    data: DataBytes,
    lz4: &[(usize, Option<f64>); 3],
    out: &mut dyn Write,
) -> Result<()> {
    if advice.tables == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "tables   {} with {}; {:.2} in the way of an absent key",
        thousands(advice.tables),
        counted(advice.keys, "key"),
        advice.reads_without_filters,
    )?;
    writeln!(out, "today    {} reads per absent lookup", reads(advice.reads_per_absent_lookup))?;
    let (bytes, bits) = (counted(advice.filter_bytes, "byte"), advice.bits_per_key);
    let with_all = advice.bits_per_key_with_headers;
    match advice.prefixes {
        0 => writeln!(
            out,
            "filters  {bytes} in memory, {bits:.2} bits a key, {with_all:.2} with headers"
        )?,
        prefixes => {
            writeln!(out, "filters  {bytes} in memory, {bits:.2} bits a key or prefix")?;
            let prefixes = thousands(prefixes);
            writeln!(out, "prefixes {prefixes}; with them and headers {with_all:.2} bits a key")?;
        }
    }
    if data.is_compressed() {
        writeln!(out, "data     {}", data.as_text())?;
        writeln!(out, "of these {} in compressed tables", percent(data.share()))?;
    }
    writeln!(out, "lz4      {}", compression::estimates_as_text(lz4))?;
    if advice.degraded > 0 {
        writeln!(out, "degraded {}", counted(advice.degraded, "filter"))?;
    }
    match advice.absent_probes {
        0 => writeln!(out, "assumed  absent keys are spread as the present ones")?,
        probes => writeln!(out, "counted  {}", counted(probes, "absent probe"))?,
    }
    if advice.has_few_keys() {
        return Ok(());
    }
    let of = |allocation| -> Vec<_> {
        advice.estimates.iter().filter(|e| e.allocation == allocation).collect()
    };
    let each = if advice.prefixes > 0 { "bits for each" } else { "bits per key" };
    let (uniform, balanced) = (of(Allocation::Uniform), of(Allocation::Balanced));
    let alike = |(a, b): (&&Estimate, &&Estimate)| {
        (a.reads_per_absent_lookup - b.reads_per_absent_lookup).abs()
            <= 0.02 * a.reads_per_absent_lookup
    };
    if uniform.iter().zip(&balanced).all(alike) {
        print_table("uniform or balanced, which are alike here", each, &balanced, out)?;
    } else {
        print_table("balanced", each, &balanced, out)?;
        print_table("uniform", each, &uniform, out)?;
    }
    Ok(())
}

/// A row for each number of bits: the expected disk reads and the bytes of each kind.
fn print_table(
    title: &str,
    each: &str,
    estimates: &[&Estimate],
    out: &mut dyn Write,
) -> Result<()> {
    if estimates.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{title}\ndisk reads per absent lookup, and sizes of all filters, headers included"
    )?;
    let (mut head, mut rows) = (vec![each.to_owned()], Vec::new());
    for row in estimates.chunk_by(|a, b| a.change == b.change) {
        if rows.is_empty() {
            head.extend(row.iter().map(|estimate| estimate.kind.to_string()));
            head.extend(row.iter().map(|estimate| format!("{} size", estimate.kind)));
        }
        let change = match row[0].change {
            0 => "today".to_owned(),
            change => format!("{change:+}"),
        };
        let mut cells = vec![format!("{:>5.2}  {change}", row[0].bits_per_key)];
        cells.extend(row.iter().map(|estimate| reads(estimate.reads_per_absent_lookup)));
        cells.extend(row.iter().map(|estimate| size(estimate.filter_bytes)));
        rows.push(cells);
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut widths = vec![13; head.len()];
    widths[0] = 14;
    Ok(write!(out, "{}", layout::table(&head, &widths, &rows))?)
}

fn allocation(allocation: Allocation) -> &'static str {
    if allocation == Allocation::Uniform { "uniform" } else { "balanced" }
}

/// Four decimals, or three significant digits of a small number.
fn reads(reads: f64) -> String {
    let places = if reads > 0.0 { (2.0 - reads.log10().floor()).clamp(4.0, 8.0) } else { 4.0 };
    format!("{reads:.0$}", places as usize)
}

/// As [`Advice`] has it, with a command to run.
#[derive(Debug, Serialize)]
struct Json<'a> {
    tables: u64,
    keys: u64,
    prefixes: u64,
    degraded: u64,
    absent_probes: u64,
    compression: &'a str,
    data_bytes: u64,
    contents_bytes: u64,
    compressed: Option<f64>,
    lz4: Vec<JsonLz4>,
    filter_bytes: u64,
    bits_per_key: f64,
    bits_per_key_with_headers: f64,
    reads_per_absent_lookup: f64,
    reads_without_filters: f64,
    estimates: Vec<JsonEstimate>,
    recommendation: &'a str,
}

#[derive(Debug, Serialize)]
struct JsonLz4 {
    block_bytes: usize,
    share: Option<f64>,
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
    fn new(
        advice: &Advice,
        data: DataBytes,
        compression: &'a str,
        lz4: &[(usize, Option<f64>)],
        recommendation: &'a str,
    ) -> Self {
        Self {
            compression,
            data_bytes: data.stored,
            contents_bytes: data.contents,
            compressed: data.share(),
            lz4: lz4.iter().map(|&(block_bytes, share)| JsonLz4 { block_bytes, share }).collect(),
            tables: advice.tables,
            keys: advice.keys,
            prefixes: advice.prefixes,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.0413, 4.567, 1.0e-5, 12_345.6, 1e-12].map(significant);
        assert_eq!(shown, ["0", "0.0413", "4.57", "0.0000100", "12346", "0.00000000"]);
    }
}
