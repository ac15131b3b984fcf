use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use criba::TableInfo;
use serde::Serialize;
use serde_json::json;

use crate::failure::Result;
use crate::policy::FilterArgs;
use crate::shell::quoted;
use crate::text::{counted, thousands};
use crate::{Answer, json, store};

/// Merge all tables into one run, without tombstones and overwritten values
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    #[command(flatten)]
    filters: FilterArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_compact(&args.dir, &args.filters)?;
    let before = db.tables();
    db.compact()?;
    let after = db.tables();
    let merged = !before.iter().map(|table| table.id).eq(after.iter().map(|table| table.id));
    let policy_given = args.filters.change(db.policy()).is_some();
    db.close()?;
    let (before, after) = (Size::of(&before), Size::of(&after));
    if args.json {
        json::print(&json!({ "before": before, "after": after, "merged": merged }), out)?;
        return Ok(Answer::Yes);
    }
    writeln!(out, "before: {before}\nafter:  {after}")?;
    if !merged {
        writeln!(out, "The tables are one run already: nothing was merged.")?;
        if policy_given {
            let dir = quoted(&args.dir);
            writeln!(
                out,
                "Their filters stay, and later tables have the new ones. To change these too:\n  \
                 criba rebuild-filters {dir}"
            )?;
        }
    }
    Ok(Answer::Yes)
}

#[derive(Debug, Serialize)]
struct Size {
    tables: u64,
    entries: u64,
    bytes: u64,
}

impl Size {
    fn of(tables: &[TableInfo]) -> Self {
        Self {
            tables: tables.len() as u64,
            entries: tables.iter().map(|table| table.entries).sum(),
            bytes: tables.iter().map(|table| table.file_bytes).sum(),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tables, bytes) = (counted(self.tables, "table"), counted(self.bytes, "byte"));
        let entries = if self.entries == 1 { "entry" } else { "entries" };
        write!(f, "{tables}, {} {entries}, {bytes}", thousands(self.entries))
    }
}
