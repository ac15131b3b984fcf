//! The report for people, in lines of at most 100 characters.

use std::io::Write;

use super::report::{Level, PassReport, Report};
use crate::failure::Result;
use crate::text::{counted, percent, ratio, thousands};

pub(super) fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    print_setup(report, out)?;
    print_levels(report, out)?;
    print_reads(report, out)?;
    print_checks(report, out)?;
    print_times(report, out)
}

fn print_setup(report: &Report, out: &mut dyn Write) -> Result<()> {
    let setup = &report.setup;
    let per_lookup = |name, lookups| {
        let reads = report.pass(name).map_or(0, |pass| pass.disk_reads);
        ratio(reads as f64, lookups).unwrap_or(0.0)
    };
    writeln!(
        out,
        "The filters avoided {} of {} disk reads ({}).\n\
         Looking up an absent key cost {:.4} disk reads; without filters it cost {:.4}.\n",
        thousands(report.reads_avoided.max(0).unsigned_abs()),
        thousands(report.disk_reads_unfiltered),
        percent(ratio(report.reads_avoided as f64, report.disk_reads_unfiltered)),
        per_lookup("absent", report.absent),
        per_lookup("absent_unfiltered", report.absent),
    )?;
    writeln!(
        out,
        "  loaded     {} into {} on {}",
        counted(report.keys, "key"),
        counted(report.tables, "table"),
        counted(report.levels.len() as u64, "level"),
    )?;
    writeln!(
        out,
        "  looked up  {} and {}, with filters and without",
        counted(report.absent, "absent key"),
        counted(report.present, "present key"),
    )?;
    let keys = match &setup.files {
        Some((present, absent)) => format!("present {present}\n             absent  {absent}"),
        None => "made-up user names, with e-mail addresses as values".into(),
    };
    writeln!(out, "  keys       {keys}")?;
    for (lines, why) in [
        (setup.present_repeated, "of the present file overruled by a later line of the same key"),
        (setup.absent_repeated, "of the absent file left out: repeated"),
        (setup.absent_present, "of the absent file left out: the key is present"),
    ] {
        if lines > 0 {
            writeln!(out, "             {} {why}", counted(lines, "line"))?;
        }
    }
    let cache = match setup.cache_bytes {
        0 => "no block cache".to_owned(),
        bytes => format!("a block cache of {}", counted(bytes, "byte")),
    };
    let settled = if setup.unsettled { "unsettled" } else { "settled" };
    writeln!(out, "  store      {}, {cache}, {settled}, seed {}", setup.filter, setup.seed)?;
    Ok(())
}

fn print_levels(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "\n{:<5}  {:>6}  {:>9}  {:>8}  {:>10}  {:>8}  {:>10}  {:>9}  {:>8}  {:>9}",
        "", "", "", "bits per", "", "range-", "true", "false", "FPR", "FPR"
    )?;
    writeln!(
        out,
        "{:<5}  {:>6}  {:>9}  {:>8}  {:>10}  {:>8}  {:>10}  {:>9}  {:>8}  {:>9}",
        "level",
        "tables",
        "keys",
        "key",
        "probes",
        "pruned",
        "negatives",
        "positives",
        "measured",
        "predicted"
    )?;
    for level in &report.levels {
        print_level(&format!("L{}", level.level), level, out)?;
    }
    print_total(report, out)?;
    writeln!(
        out,
        "Bits per key include the filters' headers. A probe is one lookup asking one table."
    )?;
    if report.unfiltered > 0 {
        writeln!(
            out,
            "{} met no filter in use, {} of them a degraded one.",
            counted(report.unfiltered, "probe"),
            thousands(report.degraded)
        )?;
    }
    Ok(())
}

fn print_level(name: &str, level: &Level, out: &mut dyn Write) -> Result<()> {
    let bits = level.bits_per_key.map_or("–".into(), |bits| format!("{bits:.2}"));
    writeln!(
        out,
        "{name:<5}  {:>6}  {:>9}  {bits:>8}  {:>10}  {:>8}  {:>10}  {:>9}  {:>8}  {:>9}",
        thousands(level.tables),
        thousands(level.keys),
        thousands(level.probes),
        thousands(level.range_pruned),
        thousands(level.true_negatives),
        thousands(level.false_positives),
        percent(level.fpr_measured),
        percent(level.fpr_predicted),
    )?;
    Ok(())
}

fn print_total(report: &Report, out: &mut dyn Write) -> Result<()> {
    let level = Level {
        level: 0,
        tables: report.tables,
        keys: report.levels.iter().map(|level| level.keys).sum(),
        filter_bytes: report.filter_bytes,
        bits_per_key: report.bits_per_key,
        probes: report.probes,
        range_pruned: report.range_pruned,
        true_negatives: report.true_negatives,
        true_positives: report.true_positives,
        false_positives: report.false_positives,
        fpr_measured: report.fpr_measured,
        fpr_predicted: report.fpr_predicted,
        disk_reads: report.disk_reads,
    };
    print_level("total", &level, out)
}

/// Reads of absent keys, of present ones, and of both: in all, and per lookup.
fn print_reads(report: &Report, out: &mut dyn Write) -> Result<()> {
    let lookups = [report.absent, report.present, report.lookups];
    let with = both(report, "absent", "present", |pass| pass.disk_reads);
    let without = both(report, "absent_unfiltered", "present_unfiltered", |pass| pass.disk_reads);
    let row = |name: &str, cells: [String; 3], out: &mut dyn Write| {
        let [absent, present, both] = cells;
        writeln!(out, "{name:<24}  {absent:>22}  {present:>22}  {both:>22}")
    };
    let per_lookup = |reads: [u64; 3]| {
        std::array::from_fn(|i| match ratio(reads[i] as f64, lookups[i]) {
            Some(each) => format!("{}  {each:>8.4}", thousands(reads[i])),
            None => thousands(reads[i]),
        })
    };
    let avoided = std::array::from_fn(|i| {
        let count = without[i] as i64 - with[i] as i64;
        let sign = if count < 0 { "-" } else { "" }; // a cache may do so
        let share = percent(ratio(count as f64, without[i]));
        format!("{sign}{}  {share:>8}", thousands(count.unsigned_abs()))
    });
    writeln!(out)?;
    let heads = ["absent keys", "present keys", "both"];
    row("disk reads; per lookup", heads.map(str::to_owned), out)?;
    row("  without filters", per_lookup(without), out)?;
    row("  with filters", per_lookup(with), out)?;
    row("  avoided by filters", avoided, out)?;
    if report.setup.cache_bytes > 0 {
        writeln!(out, "blocks from the cache")?;
        let hits = |absent, present| both(report, absent, present, |pass| pass.cache_hits);
        row("  without filters", per_lookup(hits("absent_unfiltered", "present_unfiltered")), out)?;
        row("  with filters", per_lookup(hits("absent", "present")), out)?;
    }
    Ok(())
}

/// A count of two passes, and their sum.
fn both(report: &Report, absent: &str, present: &str, of: fn(&PassReport) -> u64) -> [u64; 3] {
    let [absent, present] = [absent, present].map(|name| report.pass(name).map_or(0, of));
    [absent, present, absent + present]
}

fn print_checks(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nchecks")?;
    for (name, check) in &report.checks.0 {
        let holds = match check.holds {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "unknown",
        };
        writeln!(out, "  {name:<18}  {holds:<7}  {}", check.said)?;
    }
    Ok(())
}

fn print_times(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\ntimes, of this machine (its page cache holds the tables)")?;
    writeln!(out, "  {:<30}  {:>7.2} s", "loading and settling", report.load_ns as f64 / 1e9)?;
    for pass in &report.passes {
        let name = pass.name.replace("_unfiltered", " keys without filters");
        let name = if name.contains(' ') { name } else { name + " keys with filters" };
        let ns = (pass.end_ns - pass.start_ns) as f64;
        let each = ratio(ns / 1e3, pass.lookups)
            .map_or(String::new(), |each| format!("  {each:>7.2} µs a lookup"));
        writeln!(out, "  {name:<30}  {:>7.2} s{each}", ns / 1e9)?;
    }
    Ok(())
}
