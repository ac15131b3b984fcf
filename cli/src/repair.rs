//! `criba repair`: what can be read of a damaged store, in a new one.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criba::vfs::{RealVfs, Vfs};
use criba::{Loss, Repaired, Uncertain, repair_with};
use serde_json::{Map, Value};

use crate::backup::bytes_in;
use crate::failure::{Failure, Result};
use crate::layout::wrapped;
use crate::progress::{Progress, ProgressArgs};
use crate::shell::{quoted, visible};
use crate::text::{counted, escaped};
use crate::{Answer, interrupt, json, print_error, store};

/// Salvage a damaged store into a new one; the damaged one is not changed
///
/// Prints each damaged place and the keys that it can have cost. A key whose newest value may be lost goes to a
/// second store, NEWDIR/uncertain. The exit code is 1 if anything may be lost. The store must not be open.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The damaged store's directory
    dir: PathBuf,
    /// The new store's directory, which must not exist
    #[arg(long, value_name = "NEWDIR")]
    to: PathBuf,
    /// Put uncertain keys into the new store: deleted keys and older values can come back
    #[arg(long)]
    accept_stale: bool,
    /// Salvage the store with this id, in hexadecimal, if the directory has files of several
    #[arg(long, value_name = "ID", value_parser = id)]
    store: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    progress: ProgressArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let uncertain = if args.accept_stale { Uncertain::Accept } else { Uncertain::SetAside };
    if fs::symlink_metadata(&args.to).is_ok() {
        let found = "a file or directory";
        return Err(Failure::unfit(&args.to, "a new name for the repaired store", found));
    }
    let to = args.to.clone();
    let _guard = interrupt::before_end(move || name_leftovers(&to));
    let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
    let total = bytes_in(&args.dir).unwrap_or(0);
    let written = || unfinished(&args.to).map(|dir| bytes_in(&dir).unwrap_or(0)).sum();
    let progress = Progress::over_bytes(args.progress, "salvaging");
    let repaired = progress
        .watch(total, written, || repair_with(&args.dir, &args.to, uncertain, args.store, &vfs));
    progress.finish_and_clear();
    let repaired = repaired.map_err(store::no_store)?;
    if args.json {
        json::print(&as_json(&repaired), out)?;
    } else {
        print(args, &repaired, out)?;
    }
    Ok(if repaired.losses.is_empty() { Answer::Yes } else { Answer::No })
}

/// Names the directories that an interrupted repair leaves.
fn name_leftovers(to: &Path) {
    for path in unfinished(to) {
        let path = path.display();
        print_error(&format!("interrupted; left is {path}, which the same command removes"));
    }
}

/// The hidden directories beside NEWDIR, in which a repair works until its end.
fn unfinished(to: &Path) -> impl Iterator<Item = PathBuf> {
    let to: PathBuf = to.components().collect();
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let begin = format!(".{name}.repair-tmp.");
    let parent = to.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named =
        entries.filter(move |entry| entry.file_name().to_string_lossy().starts_with(&begin));
    named.map(|entry| entry.path())
}

fn print(args: &Args, repaired: &Repaired, out: &mut dyn Write) -> Result<()> {
    let Repaired { losses, keys, uncertain, policy_known, tables, logs, .. } = repaired;
    for path in &repaired.leftovers {
        writeln!(
            out,
            "removed: {}, left by a repair that was killed",
            visible(&path.to_string_lossy())
        )?;
    }
    for (path, store) in &repaired.others {
        writeln!(
            out,
            "left out: {}, a file of store {store:016x}",
            visible(&path.to_string_lossy())
        )?;
    }
    let mut others: Vec<u64> = repaired.others.iter().map(|&(_, store)| store).collect();
    others.sort_unstable();
    others.dedup();
    for store in others {
        let dir = quoted(&args.dir);
        writeln!(out, "  criba repair {dir} --to NEW --store {store:016x} salvages that one")?;
    }
    for loss in losses {
        writeln!(out, "{}", wrapped(&loss.finding.to_string(), 4))?;
        writeln!(out, "  may have cost {}", keys_of(loss))?;
    }
    let sources = format!("{} and {}", counted(*tables, "table"), counted(*logs, "log"));
    let places = match losses.len() {
        0 => "nothing that may have cost a key".to_owned(),
        more => counted(more as u64, "place") + " that may have cost keys",
    };
    writeln!(out, "read:      {sources}, with {places}")?;
    writeln!(out, "salvaged:  {} into {}", counted(*keys, "key"), quoted(&args.to))?;
    match uncertain {
        0 => writeln!(out, "uncertain: none")?,
        _ if args.accept_stale => {
            writeln!(out, "uncertain: {} of them, accepted", counted(*uncertain, "key"))?;
        }
        _ => {
            let aside = args.to.join("uncertain");
            writeln!(out, "uncertain: {} into {}", counted(*uncertain, "key"), quoted(&aside))?;
            writeln!(
                out,
                "Newer changes of these may be lost: the values may be old, the keys deleted.\n\
                 To accept them as they are, and then remove them:"
            )?;
            let (aside, to) = (quoted(&aside), quoted(&args.to));
            writeln!(out, "  criba dump {aside} | criba load {to} - && rm -r {aside}")?;
        }
    }
    if !policy_known {
        writeln!(
            out,
            "The filter policy is lost, and with it prefixes, default time to live and\n\
             compression: the new store has none of these, and the default policy."
        )?;
    }
    Ok(())
}

/// The id of a store, as `inspect` prints it.
fn id(text: &str) -> std::result::Result<u64, String> {
    let is_id = text.len() <= 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| is_id);
    id.ok_or_else(|| "it is not a number of up to 16 hexadecimal digits".to_owned())
}

fn keys_of(loss: &Loss) -> String {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let begin = match &loss.keys.0 {
        Unbounded => String::new(),
        Included(key) => format!(" from {}", escaped(key)),
        Excluded(key) => format!(" after {}", escaped(key)),
    };
    match &loss.keys.1 {
        Unbounded if begin.is_empty() => "changes of any key".to_owned(),
        Unbounded => format!("keys{begin}"),
        Included(key) => format!("keys{begin} up to {}", escaped(key)),
        Excluded(key) => format!("keys{begin} before {}", escaped(key)),
    }
}

fn as_json(repaired: &Repaired) -> Value {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let losses = repaired.losses.iter().map(|loss| {
        let mut fields = Map::new();
        fields.insert("path".into(), loss.finding.path.to_string_lossy().into());
        fields.insert("offset".into(), loss.finding.offset.into());
        fields.insert("what".into(), loss.finding.what.clone().into());
        match &loss.keys.0 {
            Included(key) => json::insert_bytes(&mut fields, "from", key),
            Excluded(key) => json::insert_bytes(&mut fields, "after", key),
            Unbounded => {}
        }
        if let Included(key) = &loss.keys.1 {
            json::insert_bytes(&mut fields, "up_to", key);
        }
        fields
    });
    let others = repaired.others.iter().map(|(path, store)| {
        serde_json::json!({ "path": path.to_string_lossy(), "store": format!("{store:016x}") })
    });
    let leftovers = repaired.leftovers.iter().map(|path| path.to_string_lossy());
    serde_json::json!({
        "store": format!("{:016x}", repaired.store),
        "others": others.collect::<Vec<_>>(),
        "leftovers": leftovers.collect::<Vec<_>>(),
        "losses": losses.collect::<Vec<_>>(),
        "keys": repaired.keys,
        "uncertain": repaired.uncertain,
        "policy_known": repaired.policy_known,
        "tables": repaired.tables,
        "logs": repaired.logs,
    })
}
