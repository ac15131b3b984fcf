//! The report as text, in lines of at most 100 characters.

use std::io::Write;

use super::report::Report;
use crate::failure::Result;
use crate::text::{counted, percent, ratio, thousands};

pub(super) fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    print_setup(report, out)?;
    print_levels(report, out)?;
    print_reads(report, out)?;
    print_passes(report, out)?;
    print_checks(report, out)?;
    print_times(report, out)
}

fn print_setup(report: &Report, out: &mut dyn Write) -> Result<()> {
    for line in report.headlines() {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    for (name, text) in report.setup_lines() {
        for (place, line) in text.lines().enumerate() {
            writeln!(out, "  {:<9}  {line}", if place == 0 { name } else { "" })?;
        }
    }
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
    for (name, level) in report.named_levels() {
        let [tables, keys, bits, probes, pruned, negatives, positives, measured, predicted] =
            level.as_text();
        writeln!(
            out,
            "{name:<5}  {tables:>6}  {keys:>9}  {bits:>8}  {probes:>10}  {pruned:>8}  \
             {negatives:>10}  {positives:>9}  {measured:>8}  {predicted:>9}",
        )?;
    }
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

fn print_reads(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "\n{:<5}  {:>26}  {:>26}  {:>32}",
        "", "reads per absent lookup", "reads per present lookup", "reads avoided by filters"
    )?;
    let heads = ["without", "with filters", "without", "with filters", "count", "share"];
    let [a, b, c, d, e, f] = heads;
    writeln!(out, "{:<5}  {a:>12}  {b:>12}  {c:>12}  {d:>12}  {e:>21}  {f:>9}", "level")?;
    for (name, level) in report.named_levels() {
        let [a, b, c, d] = report.reads_as_text(&level);
        let [absent_reads, present_reads, rest @ ..] = level.pass_reads;
        let without: u64 = rest.iter().sum();
        let avoided = without as i64 - (absent_reads + present_reads) as i64;
        let sign = if avoided < 0 { "-" } else { "" }; // with a cache, at one level
        let count = format!("{sign}{}", thousands(avoided.unsigned_abs()));
        let share = percent(ratio(avoided as f64, without));
        writeln!(out, "{name:<5}  {a:>12}  {b:>12}  {c:>12}  {d:>12}  {count:>21}  {share:>9}")?;
    }
    Ok(())
}

fn print_passes(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "\n{:<31}  {:>10}  {:>12}  {:>12}  {:>12}  {:>12}",
        "reads counted in each pass", "lookups", "cache hits", "by engine", "by files", "by kernel"
    )?;
    for pass in &report.passes {
        let [lookups, hits, engine, files, kernel] = pass.as_text();
        writeln!(
            out,
            "  {:<29}  {lookups:>10}  {hits:>12}  {engine:>12}  {files:>12}  {kernel:>12}",
            pass.title(),
        )?;
    }
    Ok(())
}

fn print_checks(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nchecks")?;
    for (name, check) in &report.checks.0 {
        let holds = check.verdict();
        writeln!(out, "  {name:<18}  {holds:<7}  {}", check.said)?;
    }
    Ok(())
}

fn print_times(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\ntimes, of this machine (its page cache holds the tables)")?;
    writeln!(out, "  {:<30}  {:>7.2} s", "loading and settling", report.load_ns as f64 / 1e9)?;
    for pass in &report.passes {
        let ns = (pass.end_ns - pass.start_ns) as f64;
        let each = ratio(ns / 1e3, pass.lookups)
            .map_or(String::new(), |each| format!("  {each:>7.2} µs a lookup"));
        writeln!(out, "  {:<30}  {:>7.2} s{each}", pass.title(), ns / 1e9)?;
    }
    Ok(())
}
