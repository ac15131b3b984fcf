use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criba::{
    Compression, FilterInfo, FilterShape, MemoryUse, PrefixExtractor, RecoveryReport, TableInfo,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::compression::{self, DataBytes};
use crate::expiry::shown;
use crate::failure::Result;
use crate::layout::{self, size, wrapped};
use crate::shell::quoted;
use crate::store::ClockArgs;
use crate::text::{bytes_of, counted, percent, ratio, thousands};
use crate::{Answer, json, store};

/// Print a store's tables by level, and what their filters take and promise
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// A budget for filters in memory, to see what it would leave of them [default: none, all are in
    /// memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes_of)]
    filter_memory: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print tables, filters and memory in the text format of OpenMetrics, for example for the node exporter's textfile
    /// collector. Counts of activity are those of a program: see `Db::openmetrics`
    #[arg(long, conflicts_with = "json")]
    openmetrics: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_read_within(&args.dir, ClockArgs::ACCEPTED, args.filter_memory)?;
    if args.openmetrics {
        out.write_all(db.openmetrics_of_files().as_bytes())?;
        return Ok(Answer::Yes);
    }
    let tables = db.tables();
    // Sorted by level.
    let levels = tables.chunk_by(|a, b| a.level == b.level);
    let levels: Vec<_> =
        levels.map(|of_level| Row::of(Some(of_level[0].level), of_level)).collect();
    let total = Row::of(None, &tables);
    let (policy, memory, recovery) = (db.policy().to_string(), db.memory(), db.recovery());
    let replaced = recovery.replaced_policy.map(|stored| stored.to_string());
    if args.json {
        let object = json!({
            "policy": policy,
            "compression": compression::name(db.compression()),
            "prefix_extractor": db.prefix_extractor().map(|rule| rule.to_string()),
            "replaced_policy": replaced,
            "levels": levels,
            "total": total,
            "tables": tables.iter().map(table).collect::<Vec<_>>(),
            "memory_bytes": memory.total(),
            "logs": recovery.logs,
            "logged_changes": recovery.changes,
            "unreferenced_files": recovery.unreferenced_files,
            "has_expiries": db.has_expiries(),
            "default_ttl_ms": db.default_ttl().map(|ttl| ttl.as_millis() as u64),
            "left_out_bytes": left_out(&recovery).map(|lost| lost.bytes).sum::<u64>(),
        });
        json::print(&object, out)?;
        return Ok(Answer::Yes);
    }
    let head = ["level", "tables", "keys", "tombstones", "size", "filters", "bits/key", "FPR"];
    let rows: Vec<Vec<String>> = levels.iter().chain([&total]).map(Row::cells).collect();
    write!(out, "{}", layout::table(&head, &[5, 8, 14, 12, 11, 11, 9, 10], &rows))?;
    let notes = "A key counts in each table that holds it. Bits per key include the filters' headers. \
                 FPR is the predicted false-positive rate; without a filter in memory it is 100 %.";
    writeln!(out, "{}\n", wrapped(notes, 0))?;
    writeln!(out, "{}", wrapped(&format!("policy: {policy}"), 4))?;
    if let Some(replaced) = replaced {
        let text = format!("replaced policy: {replaced}; stores no longer have this kind");
        writeln!(out, "{}", wrapped(&text, 4))?;
    }
    print_prefixes(&tables, db.prefix_extractor(), &args.dir, out)?;
    print_bumped(&tables, out)?;
    print_resident(&tables, out)?;
    print_expiries(&tables, db.default_ttl(), out)?;
    print_compression(&tables, db.compression(), out)?;
    print_memory(memory, out)?;
    print_degraded(&tables, &args.dir, out)?;
    print_crowded(&tables, out)?;
    print_logs(&recovery, &args.dir, out)?;
    Ok(Answer::Yes)
}

/// The sums over the tables of a level, or over all.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<usize>,
    tables: u64,
    keys: u64,
    tombstones: u64,
    file_bytes: u64,
    data_bytes: u64,
    contents_bytes: u64,
    compressed: Option<f64>,
    filter_bytes: u64,
    bits_per_key: Option<f64>,
    prefixes: u64,
    bits_per_key_or_prefix: Option<f64>,
    fpr_predicted: Option<f64>,
}

impl Row {
    fn of(level: Option<usize>, tables: &[TableInfo]) -> Self {
        let sum = |of: fn(&TableInfo) -> u64| tables.iter().map(of).sum::<u64>();
        let keys = sum(|table| table.keys);
        let filter_bytes = sum(|table| table.filter.bytes() as u64);
        let prefixes = sum(prefixes);
        let data = DataBytes::of(tables);
        let passing: f64 = tables.iter().map(|table| table.keys as f64 * rate(table)).sum();
        Self {
            level,
            tables: tables.len() as u64,
            keys,
            tombstones: sum(|table| table.tombstones),
            file_bytes: sum(|table| table.file_bytes),
            data_bytes: data.stored,
            contents_bytes: data.contents,
            compressed: data.share(),
            filter_bytes,
            bits_per_key: ratio(filter_bytes as f64 * 8.0, keys),
            prefixes,
            bits_per_key_or_prefix: ratio(filter_bytes as f64 * 8.0, keys + prefixes),
            fpr_predicted: ratio(passing, keys),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.level.map_or("total".into(), |level| format!("L{level}")),
            thousands(self.tables),
            thousands(self.keys),
            thousands(self.tombstones),
            size(self.file_bytes),
            size(self.filter_bytes),
            self.bits_per_key.map_or("–".into(), |bits| format!("{bits:.2}")),
            percent(self.fpr_predicted),
        ]
    }
}

/// The distinct prefixes in the filter in memory.
fn prefixes(table: &TableInfo) -> u64 {
    if let FilterInfo::Active { prefixes, .. } = table.filter { prefixes } else { 0 }
}

fn rate(table: &TableInfo) -> f64 {
    match table.filter {
        FilterInfo::Active { predicted_rate, .. } => predicted_rate,
        _ => 1.0,
    }
}

fn table(table: &TableInfo) -> Value {
    let mut object = json!({
        "id": table.id,
        "level": table.level,
        "keys": table.keys,
        "entries": table.entries,
        "tombstones": table.tombstones,
        "file_bytes": table.file_bytes,
        "expired": table.expired,
        "data_bytes": table.data_bytes,
        "contents_bytes": table.contents_bytes,
        "filter": json::filter(&table.filter),
    });
    if let Value::Object(object) = &mut object {
        json::insert_bytes(object, "smallest", &table.smallest);
        json::insert_bytes(object, "largest", &table.largest);
        json::insert_expiries(object, table.expiries);
    }
    object
}

fn print_prefixes(
    tables: &[TableInfo],
    extractor: Option<PrefixExtractor>,
    dir: &Path,
    out: &mut dyn Write,
) -> Result<()> {
    let mut of_rule = BTreeMap::new();
    let mut without = 0;
    for table in tables {
        let FilterInfo::Active { prefixes, extractor: rule, bytes, .. } = table.filter else {
            continue;
        };
        without += u64::from(rule != extractor);
        if prefixes > 0 {
            let name = rule.map_or("of an unknown rule".into(), |rule| rule.to_string());
            let (filters, sum, hashed, all) = of_rule.entry(name).or_insert((0, 0, 0, 0));
            *filters += 1;
            *sum += prefixes;
            *hashed += table.keys + prefixes;
            *all += bytes as u64;
        }
    }
    if of_rule.is_empty() {
        writeln!(out, "prefixes: none")?;
    }
    for (name, (filters, sum, hashed, bytes)) in of_rule {
        let (filters, sum) = (counted(filters, "filter"), thousands(sum));
        let bits = 8.0 * bytes as f64 / hashed as f64;
        let text = format!(
            "prefixes: {sum} in {filters}, {name}; {bits:.2} bits a key or prefix, with headers"
        );
        writeln!(out, "{}", wrapped(&text, 4))?;
    }
    if let (Some(rule), 1..) = (extractor, without) {
        let filters = counted(without, "filter");
        let text =
            format!("{filters} without the prefixes of new ones, {rule}; this makes them anew:");
        writeln!(out, "{}", wrapped(&text, 4))?;
        writeln!(out, "  criba rebuild-filters {}", quoted(dir))?;
    }
    Ok(())
}

/// Of the probes of all ribbons with layers.
fn print_bumped(tables: &[TableInfo], out: &mut dyn Write) -> Result<()> {
    let (mut bumped, mut keys) = (0.0, 0);
    for table in tables {
        if let FilterInfo::Active { bumped: Some(share), .. } = table.filter {
            bumped += share * table.keys as f64;
            keys += table.keys;
        }
    }
    if let Some(share) = ratio(bumped, keys) {
        writeln!(out, "ribbons: {} of probes read a second layer", percent(Some(share)))?;
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
                    columns(stored),
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
        writeln!(out, "{}", wrapped(&line, 6))?;
    }
    Ok(())
}

/// The columns of a ribbon filter, on average: its first segments may have one more than the others.
fn columns(stored: &FilterShape) -> String {
    let criba::Geometry { m, k, wide } = stored.geometry;
    match wide {
        0 => k.to_string(),
        _ => format!("{:.2}", f64::from(k) + 64.0 * wide as f64 / m as f64),
    }
}

fn print_expiries(
    tables: &[TableInfo],
    default_ttl: Option<Duration>,
    out: &mut dyn Write,
) -> Result<()> {
    if let Some(ttl) = default_ttl {
        writeln!(out, "default time to live: {}", humantime::format_duration(ttl))?;
    }
    let expiries = tables.iter().filter_map(|table| table.expiries);
    if let Some(earliest) = expiries.clone().map(|expiries| expiries.earliest).min() {
        let tables_of_them = counted(expiries.count() as u64, "table");
        let first = shown(Some(earliest));
        let mut text = format!("expiring entries: in {tables_of_them}, the first from {first} on");
        let bytes = tables.iter().map(|table| table.file_bytes).sum();
        let expired = tables.iter().map(|table| table.expired * table.file_bytes as f64).sum();
        if expired > 0.0 {
            let share = percent(ratio(expired, bytes));
            text = format!("{text}; at least {share} of the bytes have expired");
        }
        writeln!(out, "{}", wrapped(&text, 4))?;
    }
    Ok(())
}

fn print_compression(
    tables: &[TableInfo],
    setting: Compression,
    out: &mut dyn Write,
) -> Result<()> {
    let data = DataBytes::of(tables);
    let mut text = format!("compression: {}", compression::name(setting));
    if data.stored > 0 {
        text = format!("{text}; data bytes {}", data.as_text());
    }
    if data.is_compressed() {
        text = format!("{text}; {} of these in compressed tables", percent(data.share()));
    }
    writeln!(out, "{}", wrapped(&text, 4))?;
    Ok(())
}

fn print_memory(memory: MemoryUse, out: &mut dyn Write) -> Result<()> {
    let text = format!(
        "memory: {}: memtables {}, filters {}, indexes {}, cache {}",
        counted(memory.total(), "byte"),
        thousands(memory.memtables),
        thousands(memory.filters.resident),
        thousands(memory.indexes),
        thousands(memory.cache),
    );
    writeln!(out, "{}", wrapped(&text, 4))?;
    Ok(())
}

fn print_degraded(tables: &[TableInfo], dir: &Path, out: &mut dyn Write) -> Result<()> {
    let degraded = tables.iter().filter_map(|table| match &table.filter {
        FilterInfo::Degraded { reason } => Some((table, reason)),
        _ => None,
    });
    writeln!(out, "degraded filters: {}", degraded.clone().count())?;
    for (table, reason) in degraded.clone() {
        let line = format!("  {:06}.sst on L{}: {reason}", table.id, table.level);
        writeln!(out, "{}", wrapped(&line, 6))?;
    }
    if degraded.count() > 0 {
        writeln!(out, "  criba rebuild-filters {} makes them anew", quoted(dir))?;
    }
    Ok(())
}

/// The number of tables on L0 from which on writes are slower, and that from which on they wait, by default.
const CROWDED: (usize, usize) = (12, 24);

fn print_crowded(tables: &[TableInfo], out: &mut dyn Write) -> Result<()> {
    let l0 = tables.iter().filter(|table| table.level == 0).count();
    if l0 >= CROWDED.0 {
        let text = format!(
            "crowded: {l0} tables on L0: compactions are behind, or fail. Writes wait from {} on. criba compact \
             merges them, or says what fails.",
            CROWDED.1
        );
        writeln!(out, "{}", wrapped(&text, 4))?;
    }
    Ok(())
}

fn print_logs(recovery: &RecoveryReport, dir: &Path, out: &mut dyn Write) -> Result<()> {
    let lost = left_out(recovery);
    let text = format!(
        "logs: {}, with {} that no table has yet{}",
        thousands(recovery.logs as u64),
        counted(recovery.changes, "change"),
        if lost.clone().next().is_some() { "; left out:" } else { "" },
    );
    writeln!(out, "{}", wrapped(&text, 4))?;
    for lost in lost {
        writeln!(
            out,
            "{}",
            wrapped(&format!("  {}", store::lost_tail_as_text(lost, Some(dir))), 6)
        )?;
    }
    if recovery.unreferenced_files > 0 {
        let files = thousands(recovery.unreferenced_files as u64);
        writeln!(out, "unreferenced files: {files}, which the next writing command removes")?;
    }
    Ok(())
}

fn left_out(recovery: &RecoveryReport) -> impl Iterator<Item = &criba::LostTail> + Clone {
    recovery.lost_tail.iter().chain(&recovery.lost_edit)
}
