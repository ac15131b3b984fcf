use std::io::Write;
use std::path::PathBuf;

use criba::Db;

use crate::failure::Result;
use crate::policy::FilterArgs;
use crate::{Answer, store, text};

/// Merge all tables into one run, without tombstones and overwritten values
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    #[command(flatten)]
    filters: FilterArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_change(&args.dir, &args.filters)?;
    writeln!(out, "before: {}", size(&db))?;
    db.compact()?;
    writeln!(out, "after:  {}", size(&db))?;
    db.close()?;
    Ok(Answer::Yes)
}

fn size(db: &Db) -> String {
    let tables = db.tables();
    let (entries, bytes) = tables.iter().fold((0, 0), |(entries, bytes), table| {
        (entries + table.entries, bytes + table.file_bytes)
    });
    let tables = text::counted(tables.len() as u64, "table");
    let entries =
        if entries == 1 { "1 entry".into() } else { text::thousands(entries) + " entries" };
    format!("{tables}, {entries}, {}", text::counted(bytes, "byte"))
}
