//! The report as text, in lines of at most 80 characters.

use std::fmt::Display;
use std::io::Write;

use super::checks::{Check, Checks};
use super::report::Report;
use super::words::avoided;
use crate::failure::Result;
use crate::layout::wrapped;
use crate::text::{counted, ratio, thousands};

const WIDTH: usize = 80;
/// The columns of the table of checks.
const CHECKS: [usize; 2] = [20, 12];

pub(super) fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    print_setup(report, out)?;
    print_levels(report, out)?;
    print_reads(report, out)?;
    print_states(report, out)?;
    print_passes(report, out)?;
    print_batches(report, out)?;
    print_scans(report, out)?;
    print_checks(report, out)?;
    print_times(report, out)
}

fn print_setup(report: &Report, out: &mut dyn Write) -> Result<()> {
    for (name, line) in report.headlines() {
        writeln!(out, "{:<13}{line}", format!("{name}:"))?;
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
    let rows = report.named_levels().map(|(name, level)| {
        let [tables, keys, bits, probes, _, negatives, positives, measured, predicted] =
            level.as_text();
        [name, tables, keys, bits, probes, negatives, positives, measured, predicted]
    });
    let heads = [
        ["", "", "", "bits", "", "true", "false", "FPR", "FPR"],
        [
            "level",
            "tables",
            "keys",
            "a key",
            "probes",
            "negatives",
            "positives",
            "measured",
            "predicted",
        ],
    ];
    writeln!(out)?;
    for [level, tables, keys, bits, probes, negatives, positives, measured, predicted] in
        heads.map(|head| head.map(str::to_owned)).into_iter().chain(rows)
    {
        writeln!(
            out,
            "{level:<5} {tables:>6} {keys:>9} {bits:>6} {probes:>10} {negatives:>10} \
             {positives:>9} {measured:>8} {predicted:>9}",
        )?;
    }
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
        "\n{:<5}  {:>21}  {:>21}  {:>27}",
        "", "reads per absent key", "reads per present key", "reads avoided by filters"
    )?;
    let [a, b, c, d] = ["without", "filters", "without", "filters"];
    writeln!(out, "level  {a:>10} {b:>10}  {c:>10} {d:>10}  {:>17} {:>9}", "count", "share")?;
    for (name, level) in report.named_levels() {
        let [a, b, c, d] = report.reads_as_text(&level);
        let [absent_reads, present_reads, rest @ ..] = level.pass_reads;
        let without: u64 = rest.iter().sum();
        let saved = without as i64 - (absent_reads + present_reads) as i64;
        let sign = if saved < 0 { "-" } else { "" }; // with a cache, at one level
        let count = format!("{sign}{}", thousands(saved.unsigned_abs()));
        let share = avoided(saved, without);
        writeln!(out, "{name:<5}  {a:>10} {b:>10}  {c:>10} {d:>10}  {count:>17} {share:>9}")?;
    }
    Ok(())
}

/// The second and the third act, side by side.
fn print_states(report: &Report, out: &mut dyn Write) -> Result<()> {
    for (place, line) in report.act_lines().into_iter().enumerate() {
        writeln!(out, "{}{line}", if place == 0 { "\n" } else { "" })?;
    }
    report
        .state_rows()
        .into_iter()
        .try_for_each(|(name, cells)| print_row(&name, [35, 15], cells, out))
}

/// A row of a table with a column for each state.
fn print_row(
    name: &str,
    [first, others]: [usize; 2],
    cells: impl IntoIterator<Item = impl Display>,
    out: &mut dyn Write,
) -> Result<()> {
    let cells: Vec<_> = cells.into_iter().map(|cell| format!("{cell:>others$}")).collect();
    writeln!(out, "{}", format!("{name:<first$}{}", cells.concat()).trim_end())?;
    Ok(())
}

fn print_passes(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "\n{:<29} {:>9} {:>10} {:>9} {:>9} {:>9}",
        "reads counted in each pass", "lookups", "cache hits", "by engine", "by files", "by kernel"
    )?;
    for pass in report.all_passes() {
        let [lookups, hits, engine, files, kernel] = pass.as_text();
        writeln!(
            out,
            "{:<29} {lookups:>9} {hits:>10} {engine:>9} {files:>9} {kernel:>9}",
            pass.title(),
        )?;
    }
    Ok(())
}

fn print_batches(report: &Report, out: &mut dyn Write) -> Result<()> {
    let (Some(batches), Some(line)) = (&report.batches, report.batches_line()) else {
        return Ok(());
    };
    writeln!(out)?;
    print_verdicts(&line, &batches.checks, out)
}

/// A line and the verdicts of checks.
fn print_verdicts(line: &str, checks: &Checks, out: &mut dyn Write) -> Result<()> {
    let verdict = |(name, check): &(&str, Check)| format!("{name} {}", check.verdict());
    let verdicts: Vec<_> = checks.0.iter().map(verdict).collect();
    writeln!(out, "{}", wrapped(&format!("{line}: {}", verdicts.join(", ")), 2))?;
    Ok(())
}

fn print_scans(report: &Report, out: &mut dyn Write) -> Result<()> {
    let Some(line) = report.scans_line() else { return Ok(()) };
    let Some(scans) = &report.scans else {
        writeln!(out, "\n{}", wrapped(&line, 2))?;
        return Ok(());
    };
    writeln!(
        out,
        "\n{:<33} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "reads of scans", "scans", "found", "denied", "engine", "files", "kernel"
    )?;
    for pass in &scans.passes {
        let [number, items, denied, engine, files, kernel] = pass.as_text();
        writeln!(
            out,
            "{:<33} {number:>6} {items:>7} {denied:>7} {engine:>7} {files:>7} {kernel:>7}",
            pass.title(),
        )?;
    }
    print_verdicts(&line, &scans.checks, out)
}

fn print_checks(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(out)?;
    print_row("checks", CHECKS, report.states().into_iter().map(|(state, ..)| state), out)?;
    for (name, cells) in report.check_rows() {
        print_row(name, CHECKS, cells, out)?;
    }
    for (name, text) in report.check_notes() {
        let mut line = format!("{name}:");
        for word in text.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                writeln!(out, "{line}")?;
                line = " ".into();
            }
            line += " ";
            line += word;
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn print_times(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\ntimes, of this machine (its page cache holds the tables)")?;
    let loading =
        if report.setup.synced { "loading and settling" } else { "loading and settling, unsynced" };
    writeln!(out, "  {loading:<30}  {:>7.2} s", report.load_ns as f64 / 1e9)?;
    for pass in report.all_passes() {
        let ns = (pass.end_ns - pass.start_ns) as f64;
        let each = ratio(ns / 1e3, pass.lookups)
            .map_or(String::new(), |each| format!("  {each:>7.2} µs a lookup"));
        writeln!(out, "  {:<30}  {:>7.2} s{each}", pass.title(), ns / 1e9)?;
    }
    Ok(())
}
