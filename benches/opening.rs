//! `cargo bench -p criba-benches --bench opening`: the time of a read-only opening beside that of a normal one,
//! of a settled store of a million keys, and with 20 MB more in the log. Each opens a checkpoint of its own, in
//! turns.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use criba::{Db, Options};

const ROUNDS: usize = 11;
const KEYS: u64 = 1_000_000;

fn put(db: &Db, numbers: std::ops::Range<u64>) -> criba::Result<()> {
    for number in numbers {
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        db.put(format!("{key:016x}"), [b'v'; 100])?;
    }
    Ok(())
}

/// Milliseconds of `open`, in a new checkpoint.
fn time<T>(
    db: &Db,
    dir: &Path,
    open: impl FnOnce(&Path) -> criba::Result<T>,
) -> Result<f64, Box<dyn Error>> {
    let path = dir.join("checkpoint");
    db.checkpoint(&path)?;
    let begin = Instant::now();
    let opened = open(&path)?;
    let milliseconds = begin.elapsed().as_secs_f64() * 1000.0;
    drop(opened);
    std::fs::remove_dir_all(path)?;
    Ok(milliseconds)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("store"))?;
    put(&db, 0..KEYS)?;
    db.wait_until_settled()?;
    for logged in [0, 160_000] {
        put(&db, KEYS..KEYS + logged)?;
        let (mut normal, mut read_only) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            normal.push(time(&db, dir.path(), |path| Db::open(path))?);
            let open = |path: &Path| Options::new().open_read_only(path);
            read_only.push(time(&db, dir.path(), open)?);
        }
        let (normal, read_only) = (median(normal), median(read_only));
        println!(
            "{logged} keys in the log: normal {normal:.1} ms, read-only {read_only:.1} ms, {:+.1} ms",
            read_only - normal
        );
    }
    Ok(())
}
