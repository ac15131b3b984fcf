use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use criba::vfs::{RealVfs, Vfs};

use crate::failure::Result;
use crate::text::{counted, thousands};
use crate::{Answer, progress};

/// Read a whole store and print everything that is wrong with it; the exit code is 1 if anything is
///
/// Checks all checksums, each key and its prefix against the filter of its table, the tables against the
/// manifest, order and ranges, and the logs. Changes nothing. The store must not be open.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
    let bar = progress::over_bytes("verifying");
    let found = criba::verify_with(&args.dir, &vfs, |done, left| progress::at(&bar, done, left));
    bar.finish_and_clear();
    let found = found?;
    for note in &found.notes {
        writeln!(out, "note: {note}")?;
    }
    for finding in &found.findings {
        writeln!(out, "{finding}")?;
    }
    let keys = counted(found.probed_keys, "key");
    let asked = match found.probed_prefixes {
        0 => keys,
        1 => keys + " and 1 prefix",
        more => format!("{keys} and {} prefixes", thousands(more)),
    };
    writeln!(
        out,
        "{} with {}, {} and {}; {} asked for {asked}, {} denied; {} with {}",
        counted(found.tables, "table"),
        counted(found.blocks, "block"),
        counted(found.keys, "key"),
        if found.entries == 1 { "1 entry".into() } else { thousands(found.entries) + " entries" },
        counted(found.filters, "filter"),
        thousands(found.denied_keys + found.denied_prefixes),
        counted(found.logs, "log"),
        counted(found.changes, "change"),
    )?;
    match found.findings.len() {
        0 => writeln!(out, "sound")?,
        1 => writeln!(out, "1 finding")?,
        more => writeln!(out, "{} findings", thousands(more as u64))?,
    }
    Ok(if found.is_sound() { Answer::Yes } else { Answer::No })
}
