use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use criba::{Db, TableInfo};
use serde::Serialize;
use serde_json::json;

use crate::compression::SettingArgs;
use crate::failure::Result;
use crate::progress::{Progress, ProgressArgs};
use crate::shell::quoted;
use crate::store::ClockArgs;
use crate::text::{counted, thousands};
use crate::{Answer, interrupt, json, print_error, store};

/// Merge all tables into one run, without tombstones and overwritten values
///
/// A store that is one run already stays as it is. With --rewrite every table is written anew, one after the other,
/// with the settings of now.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// Write every table anew, where it is
    #[arg(long)]
    rewrite: bool,
    /// Only tables with smaller numbers: goes on with a --rewrite that was interrupted
    #[arg(long, value_name = "NUMBER", requires = "rewrite")]
    before: Option<u64>,
    #[command(flatten)]
    settings: SettingArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    progress: ProgressArgs,
    #[command(flatten)]
    clock: ClockArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_compact(&args.dir, &args.settings, args.clock)?;
    if args.rewrite {
        return rewrite(args, db, out);
    }
    let before = db.tables();
    merging(args, &before, &db, || db.compact())?;
    let after = db.tables();
    let merged = !before.iter().map(|table| table.id).eq(after.iter().map(|table| table.id));
    let policy_given = args.settings.filters.change(db.policy()).is_some();
    db.close()?;
    let (before, after) = (Size::of(&before), Size::of(&after));
    if args.json {
        json::print(&json!({ "before": before, "after": after, "merged": merged }), out)?;
        return Ok(Answer::Yes);
    }
    writeln!(out, "before: {before}\nafter:  {after}")?;
    if !merged {
        let dir = quoted(&args.dir);
        writeln!(
            out,
            "The tables are one run already: nothing was merged. To write them anew:\n  \
             criba compact {dir} --rewrite"
        )?;
        if args.settings.has_block_settings() {
            writeln!(
                out,
                "Until then their data blocks stay, and later tables have the new ones."
            )?;
        }
        if policy_given {
            writeln!(
                out,
                "Their filters stay, and later tables have the new ones. To change these too:\n  \
                 criba rebuild-filters {dir}"
            )?;
        }
    }
    Ok(Answer::Yes)
}

fn rewrite(args: &Args, db: Db, out: &mut dyn Write) -> Result<Answer> {
    db.flush()?;
    let before = db.tables();
    let newest = before.iter().map(|table| table.id).max();
    let limit = args.before.unwrap_or_else(|| newest.map_or(0, |newest| newest + 1));
    let _guard = interrupt::before_end({
        let dir = quoted(&args.dir);
        move || {
            let next = format!("criba compact {dir} --rewrite --before {limit}");
            print_error(&format!("interrupted; to go on: {next}"));
        }
    });
    let rewritten = merging(args, &before, &db, || db.compact_rewriting(limit))?;
    let after = db.tables();
    db.close()?;
    let (before, after) = (Size::of(&before), Size::of(&after));
    if args.json {
        let object = json!({
            "before": before, "after": after, "merged": false, "rewritten": rewritten,
        });
        json::print(&object, out)?;
    } else {
        writeln!(
            out,
            "before: {before}\nafter:  {after}\n{} written anew",
            counted(rewritten, "table")
        )?;
    }
    Ok(Answer::Yes)
}

/// Runs a compaction, and reports the bytes that it has read.
fn merging<T>(args: &Args, tables: &[TableInfo], db: &Db, work: impl FnOnce() -> T) -> T {
    let total = tables.iter().map(|table| table.data_bytes).sum();
    let read = || db.stats().compaction_reads.bytes;
    let progress = Progress::over_bytes(args.progress, "compacting");
    let done = progress.watch(total, read, work);
    progress.finish_and_clear();
    done
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
