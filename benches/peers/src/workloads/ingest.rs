//! W12: sorted pairs into an empty store, above all keys of a loaded one (W12f), and between its keys (W12o).
//! They are ingested as tables, or put one by one (W12p, W12fp, W12op).

use std::time::Instant;

use super::Bench;
use crate::job::Workload;
use crate::keys::{Keys, NAME_BYTES};
use crate::loaded::copy;
use crate::measure::check;
use crate::settings::{Shape, Told};
use crate::stores::{Reader, Store};
use crate::{Result, process};

/// How many keys of each sort are looked up afterwards.
const CHECKED: u64 = 10_000;

/// As many new pairs as keys are present.
pub fn ingest<S: Store>(bench: &mut Bench<'_>) -> Result<()> {
    let workload = bench.job.workload;
    let dir = bench.place.scratch()?;
    let config = bench.config(Shape::Settled);
    let has_present = workload.shape().is_some();
    if has_present {
        copy(&bench.loaded::<S>()?.0, &dir)?;
    } else {
        S::open(&dir, &config, &mut Told::default())?.close()?;
    }
    let new = New {
        keys: bench.keys,
        first: if matches!(workload, Workload::W12o | Workload::W12op) { b'u' } else { b'v' },
    };

    process::forget_peak()?;
    let before = process::resident_bytes()?;
    let mut store: S = bench.open(&dir, &config)?;
    let (written, cpu, start) = (process::written_bytes()?, process::cpu_seconds(), Instant::now());
    if matches!(workload, Workload::W12p | Workload::W12fp | Workload::W12op) {
        for (key, value) in new.pairs() {
            store.put(&key, value)?;
        }
        store.flush()?;
    } else {
        store.ingest(new.pairs())?;
    }
    let done = start.elapsed();
    let idle = store.settle()?;
    let settled = start.elapsed().saturating_sub(idle).max(done);
    let n = bench.job.n as f64;
    bench.figure("done_ns", done.as_secs_f64() * 1e9 / n);
    bench.figure("settled_ns", settled.as_secs_f64() * 1e9 / n);
    bench.figure("cpu_ns", (process::cpu_seconds() - cpu) * 1e9 / n);
    let written = process::written_bytes()? - written;
    // The names are as long, and the values.
    bench.figure("write_amp", written as f64 / bench.keys.live_bytes() as f64);
    bench.figure("peak_mib", (process::peak_bytes()? - before) as f64 / f64::from(1 << 20));
    bench.describe(&store)?;

    check_answers(bench, &store.reader()?, &new, has_present)?;
    store.close()?;
    bench.findings.disk_bytes = Some(crate::loaded::disk_bytes(&dir)?);
    Ok(std::fs::remove_dir_all(dir)?)
}

/// Sorted keys with their values.
pub(super) struct New<'k> {
    pub(super) keys: &'k Keys,
    /// The first byte of each key. Names begin with `u`.
    pub(super) first: u8,
}

impl<'k> New<'k> {
    pub(super) fn pairs(&self) -> impl Iterator<Item = ([u8; NAME_BYTES], &'k [u8])> {
        let (keys, n) = (self.keys, self.keys.n);
        (0..n).map(move |i| (self.key(i, b'_'), keys.value(n + i, 0)))
    }

    /// Key `i` in ascending order, evenly spread. The last byte is in no name.
    pub(super) fn key(&self, i: u64, last: u8) -> [u8; NAME_BYTES] {
        const DIGITS: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";
        let spread = i * ((1 << 55) / self.keys.n);
        let mut key = *b"_ser____________";
        key[0] = self.first;
        for (at, digit) in key[4..15].iter_mut().enumerate() {
            *digit = DIGITS[(spread >> (50 - 5 * at)) as usize % 32];
        }
        key[15] = last;
        key
    }
}

fn check_answers(
    bench: &Bench<'_>,
    reader: &impl Reader,
    new: &New<'_>,
    has_present: bool,
) -> Result<()> {
    let (keys, mut random) = (bench.keys, bench.random.clone());
    let mut name = Vec::new();
    for _ in 0..CHECKED {
        let i = random.below(keys.n);
        for (last, expected) in [(b'_', true), (b'-', false)] {
            let key = new.key(i, last);
            check(&key, expected, reader.get(&key)?)?;
        }
        for (number, expected) in [(i, has_present), (keys.absent_number(i), false)] {
            name.clear();
            keys.write(number, &mut name);
            check(&name, expected, reader.get(&name)?)?;
        }
    }
    let (pairs, _) = reader.scan(b"", usize::MAX)?;
    let expected = keys.n * if has_present { 2 } else { 1 };
    if pairs as u64 == expected {
        Ok(())
    } else {
        Err(format!("a scan finds {pairs} pairs, not {expected}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_ascend_and_lie_between_the_names_or_above_them() {
        let keys = Keys::names(1000, 1);
        for first in [b'u', b'v'] {
            let new = New { keys: &keys, first };
            let mut all: Vec<_> = new.pairs().map(|(key, _)| key).collect();
            assert!(all.is_sorted_by(|a, b| a < b));
            let mut names = Vec::new();
            for i in 0..keys.n {
                let mut name = Vec::new();
                keys.write(i, &mut name);
                names.push(<[u8; NAME_BYTES]>::try_from(name).unwrap());
            }
            let below = names.iter().filter(|&&name| name < all[500]).count();
            let expected = if first == b'u' { 400..600 } else { 1000..1001 };
            assert!(expected.contains(&below), "{below}");
            all.append(&mut names);
            all.extend((0..keys.n).map(|i| new.key(i, b'-')));
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 3000);
        }
    }
}
