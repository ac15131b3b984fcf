use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use criba::{EntryKind, Explanation, Outcome, Step, TableStep, Verdict};
use serde_json::{Map, Value, json};

use crate::failure::Result;
use crate::layout::wrapped;
use crate::store::ClockArgs;
use crate::{Answer, json, store, text};

/// Print what a lookup of a key does, step by step; exit code 1 if the key is absent
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The key; \xNN stands for a byte
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    clock: ClockArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_read(&args.dir, args.clock)?;
    let key = text::of_argument(&args.key)?;
    let explanation = db.explain(&key)?;
    if args.json {
        json::print(&as_json(&key, &explanation), out)?;
    } else {
        let text = explanation.to_string().replacen("; disk reads", "\ndisk reads", 1);
        for line in text.lines() {
            writeln!(out, "{}", wrapped(line, 4))?;
        }
    }
    Ok(if explanation.value.is_some() { Answer::Yes } else { Answer::No })
}

fn as_json(key: &[u8], explanation: &Explanation) -> Map<String, Value> {
    let counts = explanation.counts();
    let mut object = Map::new();
    json::insert_bytes(&mut object, "key", key);
    object.insert("found".into(), explanation.value.is_some().into());
    object.insert("expired".into(), explanation.is_expired().into());
    if let Some(value) = &explanation.value {
        json::insert_bytes(&mut object, "value", value);
    }
    for (name, count) in [
        ("disk_reads", counts.disk_reads),
        ("cache_hits", counts.cache_hits),
        ("reads_avoided", counts.reads_avoided()),
        ("range_pruned", counts.range_pruned),
    ] {
        object.insert(name.into(), count.into());
    }
    let steps: Vec<_> = explanation.steps.iter().map(step).collect();
    object.insert("steps".into(), steps.into());
    object
}

fn step(step: &Step) -> Value {
    match *step {
        Step::Memtable { age, filter, found } => {
            json!({ "memtable": age, "filter": verdict(filter), "holds": holds(found) })
        }
        Step::Table {
            id,
            level,
            step: TableStep::Probed { verdict: said, block, outcome, found },
        } => {
            json!({
                "table": id,
                "level": level,
                "filter": verdict(said),
                "block_offset": block.map(|block| block.offset),
                "block_bytes": block.map(|block| block.bytes),
                "from_cache": block.map(|block| block.from_cache),
                "outcome": self::outcome(outcome),
                "holds": holds(found),
            })
        }
        Step::Table { id, level, .. } => {
            json!({ "table": id, "level": level, "outcome": "range pruned" })
        }
        _ => Value::Null,
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::No => "no",
        Verdict::Maybe => "maybe",
        Verdict::Degraded => "degraded",
        Verdict::NotResident => "not resident",
        _ => "none",
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::TrueNegative => "true negative",
        Outcome::TruePositive => "true positive",
        Outcome::FalsePositive => "false positive",
        Outcome::UnfilteredFound => "unfiltered found",
        Outcome::UnfilteredNotFound => "unfiltered not found",
        Outcome::Expired => "expired",
        _ => "failed",
    }
}

fn holds(found: Option<EntryKind>) -> Option<&'static str> {
    found.map(|kind| match kind {
        EntryKind::Put => "put",
        EntryKind::Expiring => "expiring",
        EntryKind::Delete => "tombstone",
    })
}
