//! Times with fitted lines. They depend on the machine and decide nothing.

use std::hint::black_box;
use std::time::Instant;

use criba_cli::Result;
use criba_filter::Bloom;
use criba_report::figure::{Axis, Series};

use crate::check::Check;
use crate::experiment::{Notes, Setting, drawn, key};
use crate::experiments::hash_families::hashes::Family;
use crate::shown;

/// The shortest of this many repetitions is the least disturbed.
const REPEATS: usize = 15;
const NOTE: &str = "times decide nothing";

fn nanoseconds(times: u64, mut call: impl FnMut(u64)) -> f64 {
    let once = |_| {
        let start = Instant::now();
        (0..times).for_each(&mut call);
        start.elapsed().as_secs_f64() * 1e9 / times as f64
    };
    (0..REPEATS).map(once).fold(f64::INFINITY, f64::min)
}

/// The line y = slope · x + intercept of least squares, and its R².
#[derive(Debug, Clone, Copy)]
pub(in crate::experiments) struct Fit {
    pub(in crate::experiments) slope: f64,
    intercept: f64,
    pub(in crate::experiments) r2: f64,
}

impl Fit {
    pub(in crate::experiments) fn of(points: &[(f64, f64)]) -> Self {
        let n = points.len() as f64;
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
        let xx = mean(&|point| (point.0 - x).powi(2));
        let yy = mean(&|point| (point.1 - y).powi(2));
        let xy = mean(&|point| (point.0 - x) * (point.1 - y));
        Self { slope: xy / xx, intercept: y - xy / xx * x, r2: xy * xy / (xx * yy) }
    }

    fn at(self, x: f64) -> (f64, f64) {
        (x, self.slope * x + self.intercept)
    }

    fn told(self, unit: &str) -> String {
        let Self { slope, intercept, r2 } = self;
        format!("{intercept:.1} ns + {slope:.2} ns a {unit}, R² = {r2:.3}")
    }
}

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    setting.begin("times", 3);
    initialisation(setting, notes)?;
    setting.step(1);
    by_probes(setting, notes)?;
    setting.step(1);
    by_length(setting, notes)?;
    setting.step(1);
    Ok(())
}

const EMPTY: [u64; 5] = [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// An empty filter alone: its bits cleared, its hash chosen. k costs nothing, as all probes share a hash.
fn initialisation(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let (mut series, mut bytes) = (Vec::new(), 0);
    let fastest = |make: &mut dyn FnMut() -> Result<usize>| -> Result<(f64, usize)> {
        let (mut fastest, mut bytes) = (f64::INFINITY, 0);
        for _ in 0..REPEATS {
            let start = Instant::now();
            bytes = make()?;
            fastest = fastest.min(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok((fastest, bytes))
    };
    for (hue, k) in [3, 7, 10, 0].into_iter().enumerate() {
        let mut points = Vec::new();
        for m in EMPTY {
            let hashing = setting.hashing("initialisation", m);
            let (time, of_filter) = fastest(&mut || match k {
                0 => Ok(8 * black_box(vec![1_u64; m.div_ceil(64) as usize]).len()),
                _ => {
                    let filter = Bloom::with_geometry(m, k)?.with_hashing(hashing)?;
                    Ok(black_box(&filter).bytes())
                }
            })?;
            points.push((m as f64, time));
            bytes += of_filter;
        }
        let name = if k == 0 { "each word written".into() } else { format!("k = {k}") };
        let times: Vec<_> = points.iter().map(|(_, time)| format!("{} µs", shown(*time))).collect();
        notes.measured(&format!("empty, m = 10⁴ … 10⁸, {name}"), times.join(", "), NOTE);
        series.push(Series::marked(name, hue, points));
    }
    let expected = 4 * EMPTY.map(|m| 8 * m.div_ceil(64)).iter().sum::<u64>();
    let quantity = "bytes of empty filters, whatever k";
    let check = Check::exact(quantity, "8 · ⌈m/64⌉ each", expected as f64, bytes as f64);
    notes.check(check.at("initialisation"));
    notes.figure(drawn(
        "initialisation",
        [
            "Time to make an empty filter",
            "Does initialisation take O(m + k)?",
            "m bits are cleared; one hash for all probes is chosen, so nothing depends on k. A \
             large array comes from the system, which clears a page when it is first used: that \
             part of O(m) is paid by insertions. With each word written at once, all of it shows.",
            &format!("No key is inserted; the shortest of {REPEATS} times."),
        ],
        [Axis::log("bits, m", ""), Axis::log("time", "µs")],
        series,
    ));
    Ok(())
}

fn by_probes(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let keys: u64 = 20_000;
    let mut points = [const { Vec::new() }; 3];
    for k in [1, 2, 4, 6, 8, 10, 12, 14, 16_u32] {
        let m = (keys * u64::from(k)) as f64 / std::f64::consts::LN_2;
        let filter = Bloom::with_geometry(m as u64, k)?;
        let mut filter = filter.with_hashing(setting.hashing("by probes", u64::from(k)))?;
        let insert = nanoseconds(keys, |i| {
            filter.insert(key(0, i));
        });
        let ask = |family: u32| {
            nanoseconds(keys, |i| {
                black_box(filter.contains(key(family, i)));
            })
        };
        let times = [insert, ask(0), ask(1)];
        for (points, time) in points.iter_mut().zip(times) {
            points.push((f64::from(k), time));
        }
    }
    let names = ["insert", "lookup of a present key", "lookup of an absent key"];
    let mut series = Vec::new();
    for (hue, (name, points)) in names.into_iter().zip(points).enumerate() {
        let fit = Fit::of(&points);
        let of = |k: f64| points.iter().find(|(x, _)| (x - k).abs() < 0.5).map_or(0.0, |p| p.1);
        notes.measured(
            &format!("{name}, k = 4 and 8"),
            format!("{:.1} ns and {:.1} ns", of(4.0), of(8.0)),
            &format!("{}; {:.0} million a second at k = 8", fit.told("probe"), 1e3 / of(8.0)),
        );
        series.push(Series::line(format!("{name}, fitted"), hue, vec![fit.at(1.0), fit.at(16.0)]));
        series.push(Series::marks(name, hue, points));
    }
    notes.figure(drawn(
        "by-probes",
        [
            "Time of an insert and a lookup by the number of probes",
            "How do inserts and lookups depend on k?",
            "One hash, and then a step a probe: T(length) + c·k for inserts and present keys. An \
             absent key ends after about two probes, whatever k.",
            &format!(
                "Filters of {} keys of 12 bytes, half full, SipHash-1-3; the shortest of {REPEATS} \
                 times each. The lines are fitted.",
                shown(keys as f64)
            ),
        ],
        [Axis::linear("probes a key, k", ""), Axis::linear("time", "ns")],
        series,
    ));
    Ok(())
}

const LENGTHS: [usize; 9] = [8, 64, 128, 256, 384, 512, 640, 768, 1024];

fn by_length(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let keys: u64 = 2000;
    let mut lines = Vec::new();
    for k in [4, 8_u32] {
        let mut points = Vec::new();
        for length in LENGTHS {
            let texts = texts(keys, length);
            let filter = Bloom::with_geometry(20 * keys, k)?;
            let hashing = setting.hashing("by length", length as u64);
            let mut filter = filter.with_hashing(hashing)?;
            let time = nanoseconds(keys, |i| {
                filter.insert(&texts[i as usize]);
            });
            points.push((length as f64, time));
        }
        lines.push((format!("one hash, k = {k}"), points));
    }
    for k in [4, 8_u64] {
        let points = LENGTHS.map(|length| {
            let texts = texts(keys, length);
            let time = nanoseconds(keys, |i| {
                for seed in 0..k {
                    black_box(Family::SipHash.hashes(seed, &texts[i as usize]));
                }
            });
            (length as f64, time)
        });
        lines.push((format!("a hash for each probe, k = {k}"), points.to_vec()));
    }
    let mut series = Vec::new();
    for (hue, (name, points)) in lines.into_iter().enumerate() {
        let fit = Fit::of(&points);
        let note = format!("keys of 8 to 1024 bytes; {NOTE}");
        notes.measured(&format!("insert, {name}"), fit.told("byte"), &note);
        series.push(Series::marked(name, hue, points));
    }
    notes.figure(drawn(
        "by-length",
        [
            "Time of an insert by the length of the key",
            "How do inserts depend on the length of the keys?",
            "O(T(length) + k) with one hash for all the probes of a key, as criba has it; O(k · \
             T(length)) with a hash for each.",
            &format!(
                "SipHash-1-3; {} keys of each length, the shortest of {REPEATS} times each. For a \
                 hash for each probe only the hashes are timed.",
                shown(keys as f64)
            ),
        ],
        [Axis::linear("length of a key", "bytes"), Axis::linear("time", "ns")],
        series,
    ));
    Ok(())
}

fn texts(keys: u64, length: usize) -> Vec<Vec<u8>> {
    let text = |i: u64| {
        let mut text = vec![b'k'; length];
        text[..8].copy_from_slice(&i.to_be_bytes());
        text
    };
    (0..keys).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fitted_by_least_squares() {
        let fit = Fit::of(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]);
        assert!((fit.slope - 2.0).abs() < 1e-12 && (fit.intercept - 1.0).abs() < 1e-12);
        assert!((fit.r2 - 1.0).abs() < 1e-12);
        // Around y = x: one point in four is off by 4.
        let fit = Fit::of(&[(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 7.0)]);
        assert!((fit.slope - 2.2).abs() < 1e-12 && (fit.r2 - 121.0 / 145.0).abs() < 1e-12);
    }
}
