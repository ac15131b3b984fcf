use std::io::Write;
use std::path::PathBuf;

use criba::Db;

use crate::failure::Result;
use crate::policy::PolicyArgs;
use crate::text::{counted, ratio, thousands};
use crate::{Answer, store};

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
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_change_filters(&args.dir)?;
    let policy = args.filters.applied_to(db.policy());
    db.set_policy(policy)?; // fails on a wrong number, before anything is printed
    writeln!(out, "before: {}", size(&db))?;
    let report = db.rebuild_filters(&policy)?;
    writeln!(out, "after:  {}", size(&db))?;
    db.close()?;
    writeln!(
        out,
        "{} rebuilt, {} already right, {} removed",
        counted(report.rebuilt, "filter"),
        thousands(report.already_right),
        thousands(report.removed),
    )?;
    Ok(Answer::Yes)
}

fn size(db: &Db) -> String {
    let tables = db.tables();
    let bytes: u64 = tables.iter().map(|table| table.filter.bytes() as u64).sum();
    let keys = tables.iter().map(|table| table.keys).sum();
    let bits = ratio(bytes as f64 * 8.0, keys).unwrap_or(0.0);
    let tables = counted(tables.len() as u64, "table");
    format!("{tables}, {} of filters in use, {bits:.2} bits a key", counted(bytes, "byte"))
}
