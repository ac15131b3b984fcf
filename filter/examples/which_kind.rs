//! A filter without a store: built from all its keys, saved, mapped, probed.
//!
//! `cargo run --release -p criba-filter --example which_kind [KEYS]` prints the size and the rate of each kind, made
//! for 1 %.

use std::error::Error;
use std::time::Instant;

use criba_filter::{FilterKind, FilterSize, Hashing, StaticFilter};

#[expect(unsafe_code, reason = "mapping a file; see the SAFETY comment")]
fn main() -> Result<(), Box<dyn Error>> {
    let keys: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |keys| keys.parse())?;
    let dir = tempfile::tempdir()?;
    for kind in [FilterKind::Bloom, FilterKind::Blocked, FilterKind::Ribbon] {
        let path = dir.path().join(format!("seen.{kind}"));
        let begin = Instant::now();
        let present = (0..keys).map(|i| format!("user{i}"));
        let filter =
            StaticFilter::build(kind, FilterSize::Rate(0.01), Hashing::random()?, present)?;
        let built = begin.elapsed();
        filter.save(&path)?;
        drop(filter);

        // SAFETY: the file is in this program's own directory; no process writes to it.
        let filter = unsafe { StaticFilter::map(&path)? };
        assert!((0..keys).all(|i| filter.contains(format!("user{i}"))));
        let absent = keys..2 * keys;
        let passed = absent.filter(|i| filter.contains(format!("user{i}"))).count();
        println!(
            "{:8} {:9} bytes in the file, {:.2} bits a key; built in {built:.2?}; \
             {passed} of {keys} absent keys passed, {:.3} %, predicted {:.3} %",
            kind.to_string(),
            std::fs::metadata(&path)?.len(),
            8.0 * filter.bytes() as f64 / keys as f64,
            100.0 * passed as f64 / keys as f64,
            100.0 * filter.predicted_rate(),
        );
    }
    Ok(())
}
