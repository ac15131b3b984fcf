use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use criba::Db;
use serde::Serialize;
use serde_json::json;

use crate::failure::Result;
use crate::policy::PolicyArgs;
use crate::progress::{Progress, ProgressArgs};
use crate::store::ClockArgs;
use crate::text::{counted, ratio, thousands};
use crate::{Answer, json, store};

/// Build new filters beside the tables of a store, without rewriting its data
///
/// Tables that have the filter already are skipped, so another run continues an interrupted one. Degraded
/// filters are rebuilt. Without options the filters are those of the store's policy; with options the policy
/// changes too, so that later tables have such filters.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    #[command(flatten)]
    filters: PolicyArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    progress: ProgressArgs,
    #[command(flatten)]
    clock: ClockArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    args.filters.check()?;
    let db = store::without_compactions(&args.dir, args.clock)?;
    let policy = args.filters.applied_to(db.policy());
    db.set_policy(policy)?; // fails on a wrong number, before anything is printed
    let before = Size::of(&db);
    let total = db.tables().iter().map(|table| table.data_bytes).sum();
    let progress = Progress::over_bytes(args.progress, "building filters");
    let read = || db.stats().rebuild_reads.bytes;
    let report = progress.watch(total, read, || db.rebuild_filters(&policy));
    progress.finish_and_clear();
    let report = report?;
    let after = Size::of(&db);
    db.close()?;
    if args.json {
        let object = json!({
            "before": before,
            "after": after,
            "rebuilt": report.rebuilt,
            "already_right": report.already_right,
            "removed": report.removed,
        });
        json::print(&object, out)?;
        return Ok(Answer::Yes);
    }
    writeln!(
        out,
        "before: {before}\nafter:  {after}\n{} rebuilt, {} already right, {} removed",
        counted(report.rebuilt, "filter"),
        thousands(report.already_right),
        thousands(report.removed),
    )?;
    Ok(Answer::Yes)
}

#[derive(Debug, Serialize)]
struct Size {
    tables: u64,
    filter_bytes: u64,
    bits_per_key: Option<f64>,
}

impl Size {
    fn of(db: &Db) -> Self {
        let tables = db.tables();
        let filter_bytes = tables.iter().map(|table| table.filter.bytes() as u64).sum();
        let keys = tables.iter().map(|table| table.keys).sum();
        let bits_per_key = ratio(filter_bytes as f64 * 8.0, keys);
        Self { tables: tables.len() as u64, filter_bytes, bits_per_key }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tables, bytes) = (counted(self.tables, "table"), counted(self.filter_bytes, "byte"));
        let bits = self.bits_per_key.unwrap_or(0.0);
        write!(f, "{tables}, {bytes} of filters in use, {bits:.2} bits a key")
    }
}
