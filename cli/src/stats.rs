use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use criba::{FilterInfo, LEVELS, MemoryUse, Options, RecoveryReport, TableInfo};

use crate::failure::Result;
use crate::text::{counted, percent, ratio, thousands};
use crate::{Answer, store};

/// Print a store's tables by level, what their filters take and promise, and what recovery did
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// A budget for filters in memory, to see what it would leave of them [default: none, all are in
    /// memory]
    #[arg(long, value_name = "BYTES")]
    filter_memory: Option<u64>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let options =
        args.filter_memory.map_or(Options::new(), |budget| Options::new().filter_memory(budget));
    let db = store::to_read_with(&args.dir, options)?;
    let tables = db.tables();
    writeln!(
        out,
        "{:<5} {:>7} {:>13} {:>11} {:>15} {:>13} {:>8} {:>13}",
        "level",
        "tables",
        "keys",
        "tombstones",
        "file bytes",
        "filter bytes",
        "bits/key",
        "predicted FPR"
    )?;
    for level in 0..LEVELS {
        let of_level: Vec<_> = tables.iter().filter(|table| table.level == level).collect();
        if !of_level.is_empty() {
            print_row(&format!("L{level}"), &of_level, out)?;
        }
    }
    print_row("total", &tables.iter().collect::<Vec<_>>(), out)?;
    writeln!(
        out,
        "A key counts in each table that holds it. Bits per key include the filters' headers. A table \
         without\na filter in memory passes every absent key."
    )?;
    writeln!(out)?;
    writeln!(out, "policy: {}", db.policy())?;
    print_prefixes(&tables, out)?;
    print_resident(&tables, out)?;
    print_memory(db.memory(), out)?;
    print_degraded(&tables, out)?;
    print_recovery(&db.recovery(), out)?;
    Ok(Answer::Yes)
}

fn print_row(name: &str, tables: &[&TableInfo], out: &mut dyn Write) -> Result<()> {
    let sum = |of: fn(&TableInfo) -> u64| tables.iter().map(|table| of(table)).sum::<u64>();
    let keys = sum(|table| table.keys);
    let filter_bytes = sum(|table| table.filter.bytes() as u64);
    let rate = |table: &TableInfo| match table.filter {
        FilterInfo::Active { predicted_rate, .. } => predicted_rate,
        _ => 1.0,
    };
    let passing: f64 = tables.iter().map(|table| table.keys as f64 * rate(table)).sum();
    let bits =
        ratio(filter_bytes as f64 * 8.0, keys).map_or("–".into(), |bits| format!("{bits:.2}"));
    writeln!(
        out,
        "{name:<5} {:>7} {:>13} {:>11} {:>15} {:>13} {bits:>8} {:>13}",
        thousands(tables.len() as u64),
        thousands(keys),
        thousands(sum(|table| table.tombstones)),
        thousands(sum(|table| table.file_bytes)),
        thousands(filter_bytes),
        percent(ratio(passing, keys)),
    )?;
    Ok(())
}

fn print_prefixes(tables: &[TableInfo], out: &mut dyn Write) -> Result<()> {
    let mut of_extractor = BTreeMap::new();
    for table in tables {
        if let FilterInfo::Active { prefixes: prefixes @ 1.., extractor, .. } = table.filter {
            let name = extractor.map_or("of an unknown rule".into(), |rule| rule.to_string());
            let (filters, sum) = of_extractor.entry(name).or_insert((0, 0));
            *filters += 1;
            *sum += prefixes;
        }
    }
    if of_extractor.is_empty() {
        writeln!(out, "prefixes: none")?;
    }
    for (name, (filters, sum)) in of_extractor {
        let (filters, sum) = (counted(filters, "filter"), thousands(sum));
        writeln!(out, "prefixes: {sum} in {filters}, {name}")?;
    }
    Ok(())
}

fn print_resident(tables: &[TableInfo], out: &mut dyn Write) -> Result<()> {
    let mut lines = Vec::new();
    for table in tables {
        let what = match &table.filter {
            FilterInfo::Active { geometry, bytes, predicted_rate, stored, .. }
                if *bytes < stored.bytes =>
            {
                format!(
                    "{} of {} columns, {} of {}, an FPR of {} instead of {}",
                    geometry.k,
                    stored.geometry.k,
                    thousands(*bytes as u64),
                    counted(stored.bytes as u64, "byte"),
                    percent(Some(*predicted_rate)),
                    percent(Some(stored.predicted_rate)),
                )
            }
            FilterInfo::NotResident { stored, .. } => format!(
                "not resident, of {} and an FPR of {}",
                counted(stored.bytes as u64, "byte"),
                percent(Some(stored.predicted_rate))
            ),
            _ => continue,
        };
        lines.push(format!("  {:06}.sst on L{}: {what}", table.id, table.level));
    }
    writeln!(out, "filters in memory in part or not at all: {}", lines.len())?;
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn print_memory(memory: MemoryUse, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "memory: {}: memtables {}, filters {}, indexes {}, cache {}",
        counted(memory.total(), "byte"),
        thousands(memory.memtables),
        thousands(memory.filters.resident),
        thousands(memory.indexes),
        thousands(memory.cache),
    )?;
    Ok(())
}

fn print_degraded(tables: &[TableInfo], out: &mut dyn Write) -> Result<()> {
    let degraded = tables.iter().filter_map(|table| match &table.filter {
        FilterInfo::Degraded { reason } => Some((table, reason)),
        _ => None,
    });
    writeln!(out, "degraded filters: {}", degraded.clone().count())?;
    for (table, reason) in degraded {
        writeln!(out, "  {:06}.sst on L{}: {reason}", table.id, table.level)?;
    }
    Ok(())
}

fn print_recovery(recovery: &RecoveryReport, out: &mut dyn Write) -> Result<()> {
    let lost = recovery.lost_tail.iter().chain(&recovery.lost_edit);
    writeln!(
        out,
        "recovery: {} read, {} replayed, {} removed, {}",
        counted(recovery.logs as u64, "log"),
        counted(recovery.changes, "change"),
        counted(recovery.removed_files as u64, "unreferenced file"),
        if lost.clone().count() == 0 { "nothing dropped" } else { "dropped:" },
    )?;
    for lost in lost {
        writeln!(out, "  {}", store::lost_tail_as_text(lost))?;
    }
    Ok(())
}
