//! The usual trial: a Bloom filter of some keys, asked for absent ones.

use criba_cli::Result;
use criba_filter::{Bloom, Hashing};

use super::check::Sample;
use super::experiment::key;
use super::theory;

/// The expected rate.
pub const FORMULA: &str = "(1 − e^(−kn/m))^k, with the terms that it leaves out";

/// A filter of the first n keys of the family 0.
///
/// # Errors
/// The error of an unsound shape.
pub fn bloom(hashing: Hashing, (m, k): (u64, u32), n: u64) -> Result<Bloom> {
    let mut filter = Bloom::with_geometry(m, k)?.with_hashing(hashing)?;
    filter.extend((0..n).map(|i| key(0, i)));
    Ok(filter)
}

/// The answers of a filter of n keys to absent keys, those of the family 1.
pub fn asked(filter: &Bloom, n: u64, lookups: impl Iterator<Item = u64>) -> Sample {
    let (mut trials, mut passed) = (0, 0);
    for i in lookups {
        trials += 1;
        passed += u64::from(filter.contains(key(1, i)));
    }
    let shape = filter.geometry();
    of_shape(trials, passed, (shape.m, shape.k), n)
}

/// Counted answers of a filter of this shape with n keys.
pub fn of_shape(trials: u64, passed: u64, (m, k): (u64, u32), n: u64) -> Sample {
    Sample::of_filter(trials, passed, theory::rate(m, k, n), theory::spread(m, k, n))
}
