use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criba::vfs::{RealVfs, Vfs};
use criba::{Finding, Verification};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::layout::wrapped;
use crate::progress::{Progress, ProgressArgs};
use crate::shell::quoted;
use crate::store::ClockArgs;
use crate::text::{counted, thousands};
use crate::{Answer, json, store};

/// Read a whole store and print everything that is wrong with it; the exit code is 1 if anything is
///
/// Checks all checksums, each key and its prefix against the filter of its table, the tables against the
/// manifest, order and ranges, and the logs. Changes nothing. No process may have the store open to write, but with
/// --live.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// Beside a process that writes to the store: what a reader sees now
    #[arg(long)]
    live: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    progress: ProgressArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let bar = Progress::over_bytes(args.progress, "verifying");
    let progress = |done, left| bar.at(done, left);
    let found = if args.live {
        store::to_read(&args.dir, ClockArgs::ACCEPTED)?.verify(progress)?
    } else {
        let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
        criba::verify_with(&args.dir, &vfs, progress).map_err(store::no_store)?
    };
    bar.finish_and_clear();
    if args.json {
        json::print(&as_json(&found), out)?;
    } else {
        print(&found, out)?;
        if !found.is_sound() {
            writeln!(out, "{}", advice(&args.dir, &found.findings))?;
        }
    }
    Ok(if found.is_sound() { Answer::Yes } else { Answer::No })
}

/// What to do next. Filters cost reads, no answers: the findings of others are not said in these words.
pub(crate) fn advice(dir: &Path, findings: &[Finding]) -> String {
    let dir = quoted(dir);
    let is_of_filter = |finding: &Finding| finding.what.contains("expected a sound filter");
    if !findings.is_empty() && findings.iter().all(is_of_filter) {
        format!("criba rebuild-filters {dir} makes filters anew")
    } else {
        format!("criba repair {dir} --to NEW salvages what is sound into a new store")
    }
}

fn print(found: &Verification, out: &mut dyn Write) -> Result<()> {
    for note in &found.notes {
        writeln!(out, "{}", wrapped(&format!("note: {note}"), 4))?;
    }
    for finding in &found.findings {
        writeln!(out, "{}", wrapped(&finding.to_string(), 4))?;
    }
    let entries =
        if found.entries == 1 { "1 entry".into() } else { thousands(found.entries) + " entries" };
    let (tables, blocks) = (counted(found.tables, "table"), counted(found.blocks, "block"));
    writeln!(out, "{tables} with {blocks}, {} and {entries}", counted(found.keys, "key"))?;
    let keys = counted(found.probed_keys, "key");
    let probed = match found.probed_prefixes {
        0 => keys,
        1 => keys + " and 1 prefix",
        more => format!("{keys} and {} prefixes", thousands(more)),
    };
    let denied = thousands(found.denied_keys + found.denied_prefixes);
    writeln!(out, "{} probed with {probed}, {denied} denied", counted(found.filters, "filter"))?;
    let changes = counted(found.changes, "change");
    writeln!(out, "{} with {changes} that no table has yet", counted(found.logs, "log"))?;
    match found.findings.len() {
        0 => writeln!(out, "sound")?,
        1 => writeln!(out, "1 finding")?,
        more => writeln!(out, "{} findings", thousands(more as u64))?,
    }
    Ok(())
}

fn as_json(found: &Verification) -> Value {
    let list = |findings: &[Finding]| -> Value {
        let object = |finding: &Finding| {
            let Finding { path, offset, what, .. } = finding;
            json!({ "path": path.display().to_string(), "offset": offset, "what": what })
        };
        findings.iter().map(object).collect()
    };
    json!({
        "sound": found.is_sound(),
        "findings": list(&found.findings),
        "notes": list(&found.notes),
        "tables": found.tables,
        "blocks": found.blocks,
        "keys": found.keys,
        "entries": found.entries,
        "filters": found.filters,
        "probed_keys": found.probed_keys,
        "denied_keys": found.denied_keys,
        "probed_prefixes": found.probed_prefixes,
        "denied_prefixes": found.denied_prefixes,
        "logs": found.logs,
        "logged_changes": found.changes,
    })
}
