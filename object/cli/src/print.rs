//! A report as text, in 80 columns.

use std::fmt::Write as _;
use std::io::Write;

use criba_cli::Result;
use criba_report::numbers::{counted, thousands};

use crate::report::{Pass, Report, Requests, Run};

type Cell = fn(&Run) -> String;

pub(crate) fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}", setup(report))?;
    writeln!(out, "\n{:<32}{}", "", cells(report, |run| run.name.to_owned()))?;
    let rows: [(&str, Cell); 12] = [
        ("bytes of filters", |run| thousands(run.filter_bytes)),
        ("opening, requests", |run| thousands(run.opening.total())),
        ("opening, bytes read", |run| thousands(run.opening.bytes_read)),
        ("opening, ms", |run| format!("{:.0}", run.opening_ms)),
        ("absent keys: GETs a lookup", |run| format!("{:.5}", run.absent.gets_each)),
        ("  p50, ms", |run| format!("{:.3}", run.absent.p50_ms)),
        ("  p99, ms", |run| format!("{:.3}", run.absent.p99_ms)),
        ("  $ a month", |run| format!("{:.2}", run.absent.dollars_a_month)),
        ("present keys: GETs a lookup", |run| format!("{:.5}", run.present.gets_each)),
        ("  p50, ms", |run| format!("{:.3}", run.present.p50_ms)),
        ("  p99, ms", |run| format!("{:.3}", run.present.p99_ms)),
        ("  $ a month", |run| format!("{:.2}", run.present.dollars_a_month)),
    ];
    for (name, cell) in rows {
        writeln!(out, "{name:<32}{}", cells(report, cell))?;
    }
    writeln!(out, "\n{}", money(report))?;
    writeln!(
        out,
        "\n{:<26}{:>8}{:>8}{:>8}{:>15}{:>15}",
        "requests", "GETs", "PUTs", "lists", "disk reads", "bytes"
    )?;
    line(out, "loading", report.loading, None)?;
    line(out, "rebuilding filters", report.rebuilding, None)?;
    for run in &report.runs {
        line(out, &format!("{}: opening", run.name), run.opening, None)?;
        for (keys, pass) in [("absent", &run.absent), ("present", &run.present)] {
            line(out, &format!("  {} {keys}", thousands(pass.lookups)), pass.requests, Some(pass))?;
        }
    }
    let holds = if report.checks_hold {
        "Each answer is right, and each disk read of the ledger is one GET."
    } else {
        "A CHECK DOES NOT HOLD."
    };
    Ok(writeln!(out, "\n{holds}")?)
}

fn cells(report: &Report, cell: Cell) -> String {
    let mut cells = String::new();
    for run in &report.runs {
        // A string takes everything.
        let _ = write!(cells, "{:>16}", cell(run));
    }
    cells
}

fn line(out: &mut dyn Write, name: &str, requests: Requests, pass: Option<&Pass>) -> Result<()> {
    let reads = pass.map_or("–".to_owned(), |pass| thousands(pass.disk_reads));
    let bytes = requests.bytes_read + requests.bytes_written;
    let [gets, puts, lists, bytes] =
        [requests.gets + requests.heads, requests.puts, requests.lists, bytes].map(thousands);
    Ok(writeln!(out, "{name:<26}{gets:>8}{puts:>8}{lists:>8}{reads:>15}{bytes:>15}")?)
}

/// The store, in a line.
pub(crate) fn setup(report: &Report) -> String {
    format!(
        "{} in {}, {}; {} bytes; {} ms added to a request",
        counted(report.keys, "key"),
        counted(report.tables, "SSTable"),
        counted(report.sorted_runs, "sorted run"),
        thousands(report.table_bytes),
        report.delay_ms
    )
}

/// What the money is for.
pub(crate) fn money(report: &Report) -> String {
    format!(
        "A month: 30 days of {} lookups a second, at ${} a thousand GETs.\n\
         Loading cost ${:.6}, with ${} a thousand PUTs or listings.",
        thousands(report.lookups_a_second as u64),
        report.prices.thousand_gets,
        report.loading_dollars,
        report.prices.thousand_puts
    )
}
