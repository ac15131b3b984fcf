//! criba-object beside SlateDB: the same keys, and the same counted requests of 50 ms.

mod keys;
#[path = "../../peers/src/lines.rs"]
mod lines;
#[path = "../../peers/src/machine.rs"]
mod machine;
mod measure;
#[path = "../../peers/src/random.rs"]
#[allow(dead_code, reason = "other programs need more of it")]
mod random;
mod stores;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use stores::{Kind, Setup};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Debug, Parser)]
#[command(about = "criba-object beside SlateDB, in requests")]
struct Arguments {
    /// The stores.
    #[arg(long, value_delimiter = ',', default_value = "slatedb,criba-bloom,criba-ribbon")]
    stores: Vec<Kind>,
    /// The seeds of keys, one repetition for each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// Present keys.
    #[arg(long, default_value_t = 1_000_000)]
    n: u64,
    /// The time of a request, in milliseconds.
    #[arg(long, default_value_t = 50)]
    request_ms: u64,
    /// The sizes of memtables, in MiB.
    #[arg(long, value_delimiter = ',', default_value = "64,8")]
    memtables: Vec<usize>,
    /// Local directories are made here, and removed.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Raw lines are appended to this file.
    #[arg(long, default_value = "results/results.jsonl")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let Arguments { stores, seeds, n, request_ms, memtables, dir, out } = Arguments::parse();
    let request = Duration::from_millis(request_ms);
    for seed in seeds {
        for &mib in &memtables {
            for &kind in &stores {
                let setup = Setup { kind, memtable_bytes: mib << 20 };
                let here = tempfile::tempdir_in(&dir)?;
                measure::measure(setup, keys::Keys { n, seed }, request, here.path(), &out)?;
            }
        }
    }
    Ok(())
}
