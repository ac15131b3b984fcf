use std::io::Write;
use std::path::PathBuf;

use criba::Batch;

use crate::failure::{Failure, Result};
use crate::lines::{Lines, check_lengths, split_at_tab};
use crate::policy::FilterArgs;
use crate::{Answer, store, text};

/// Write the keys and values of a file, key TAB value a line; makes the store if there is none
///
/// A line that is wrong ends it; lines before that one may have been written.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The file, gzipped if its name ends in .gz; - is standard input. \xNN stands for a byte
    file: PathBuf,
    #[command(flatten)]
    filters: FilterArgs,
}

/// The size of a batch: a system call per write would cost more than the write.
const BATCH_BYTES: usize = 64 << 10;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let lines = Lines::open(&args.file)?; // first: a mistyped name makes no store
    let db = store::to_fill(&args.dir, &args.filters)?;
    let (mut batch, mut count) = (Batch::new(), 0);
    lines.for_each(|number, line| {
        let (key, value) = split_at_tab(line);
        let value = value.ok_or_else(|| {
            let found = "a line without a TAB";
            Failure::unfit(&args.file, format!("key TAB value on line {number}"), found)
        })?;
        let (key, value) = (text::unescaped(key), text::unescaped(value));
        check_lengths(&args.file, number, &key, &value)?;
        batch.put(key, value);
        count += 1;
        if batch.bytes() >= BATCH_BYTES {
            db.write(&mut batch)?;
        }
        Ok(())
    })?;
    db.write(batch)?;
    db.wait_until_settled()?;
    let tables = db.tables().len() as u64;
    db.close()?;
    writeln!(
        out,
        "{} written; the store has {}",
        text::counted(count, "line"),
        text::counted(tables, "table")
    )?;
    Ok(Answer::Yes)
}
