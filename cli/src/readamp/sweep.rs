//! `readamp --sweep bits=A..B`: reads per absent key against bits a key, for each kind of filter.

use std::io::Write;

use criba::{FilterKind, FilterPolicy};
use criba_report::figure::{Axis, Figure, Series};
use serde::Serialize;

use super::compare::Row;
use super::report::Report;
use crate::Answer;
use crate::failure::Result;
use crate::text::thousands;

/// The most runs of one kind.
const MOST_RUNS: usize = 64;

/// The bits a key of the runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bits(Vec<f64>);

impl Bits {
    /// Of `bits=A..B` or `bits=A..B..STEP`, both ends included.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        let expected =
            || "expected bits=FROM..TO or bits=FROM..TO..STEP, such as bits=4..20".to_owned();
        let numbers = text.strip_prefix("bits=").ok_or_else(expected)?;
        let numbers: Vec<f64> = numbers
            .split("..")
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| expected())?;
        let (from, to, step) = match numbers[..] {
            [from, to] => (from, to, 1.0),
            [from, to, step] => (from, to, step),
            _ => return Err(expected()),
        };
        if !(0.0 < from && from <= to && to <= 64.0 && step > 0.0) {
            return Err(
                "expected bits that ascend, above 0 and up to 64, and a step above 0".to_owned()
            );
        }
        let runs = ((to - from) / step + 1e-9).floor() as usize + 1;
        if runs > MOST_RUNS {
            return Err(format!("{runs} runs of each kind; at most {MOST_RUNS}"));
        }
        Ok(Self((0..runs).map(|run| from + run as f64 * step).collect()))
    }

    /// Name, bits a key and policy of each run: all kinds with some bits before the next ones.
    pub(super) fn runs(&self) -> Vec<(&'static str, f64, FilterPolicy)> {
        let mut runs = Vec::new();
        for &bits in &self.0 {
            let balanced = FilterPolicy::bits_per_key(bits);
            runs.push(("classic", bits, FilterPolicy::classic().with_bits_per_key(bits)));
            runs.push(("bloom", bits, balanced.with_kind(FilterKind::Bloom)));
            runs.push(("ribbon", bits, balanced.with_kind(FilterKind::Ribbon)));
        }
        runs
    }
}

/// What came of all runs.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Sweep {
    /// The runs, in ascending order of their bits.
    pub runs: Vec<Run>,
    /// Whether every check of every run holds or is unknown.
    pub checks_hold: bool,
}

/// What came of one run.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// Bits a key, as the policy has them: without headers.
    pub bits: f64,
    /// As of a comparison. `name` is the kind.
    #[serde(flatten)]
    pub row: Row,
}

impl Sweep {
    pub(super) fn new(reports: &[(&'static str, f64, Report)]) -> Self {
        let run = |(name, bits, report): &(&str, f64, Report)| Run {
            bits: *bits,
            row: Row::new(name, report),
        };
        let runs: Vec<Run> = reports.iter().map(run).collect();
        Self { checks_hold: runs.iter().all(|run| run.row.failed_checks.is_empty()), runs }
    }

    pub(super) fn answer(&self) -> Answer {
        if self.checks_hold { Answer::Yes } else { Answer::No }
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(
            out,
            "{:>5}  {:<8}{:>16}{:>12}{:>14}{:>18}",
            "bits", "filters", "bytes of them", "bits a key", "wasted reads", "per absent key"
        )?;
        for Run { bits, row } in &self.runs {
            writeln!(
                out,
                "{bits:>5}  {:<8}{:>16}{:>12.2}{:>14}{:>18.6}",
                row.name,
                thousands(row.filter_bytes),
                row.bits_per_key.unwrap_or(0.0),
                thousands(row.wasted_reads),
                row.wasted_per_lookup.unwrap_or(0.0),
            )?;
        }
        for Run { bits, row } in self.runs.iter().filter(|run| !run.row.failed_checks.is_empty()) {
            writeln!(out, "FAILS: {} of {bits} bits: {}", row.name, row.failed_checks.join(", "))?;
        }
        Ok(())
    }

    /// Reads per absent key against bits a key.
    pub(super) fn figure(&self) -> Figure {
        let mut series = Vec::new();
        for (hue, name) in ["classic", "bloom", "ribbon"].into_iter().enumerate() {
            let of_kind = self.runs.iter().filter(|run| run.row.name == name);
            let points = of_kind
                .filter_map(|Run { row, .. }| Some((row.bits_per_key?, row.wasted_per_lookup?)));
            // A run without a read has no place on the axis.
            let points: Vec<_> = points.filter(|(_, reads)| *reads > 0.0).collect();
            if !points.is_empty() {
                series.push(Series::marked(name, hue, points));
            }
        }
        Figure {
            id: "sweep",
            title: "Disk reads of absent keys".to_owned(),
            asked: "How many disk reads does an absent key cost with so many bits a key?".to_owned(),
            theory: "The rate of a Bloom filter is 0.6185 to the power of its bits a key, that of a ribbon half to \
                     that power. A lookup probes one SSTable of each sorted run."
                .to_owned(),
            measured: "Bits a key with headers. A run without a read is left out.".to_owned(),
            x: Axis::linear("bits a key", ""),
            y: Axis::log("disk reads per absent key", ""),
            series,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_both_ends() {
        let bits = |text| Bits::parse(text).map(|bits| bits.0);
        assert_eq!(bits("bits=4..6"), Ok(vec![4.0, 5.0, 6.0]));
        assert_eq!(bits("bits=9.5..10..0.25"), Ok(vec![9.5, 9.75, 10.0]));
        assert_eq!(bits("bits=4..4"), Ok(vec![4.0]));
        assert_eq!(bits("bits=4..7..2"), Ok(vec![4.0, 6.0]));
        for wrong in [
            "",
            "4..6",
            "bits=6..4",
            "bits=0..4",
            "bits=4..65",
            "bits=4..6..0",
            "bits=1..64..0.1",
            "bits=4..x",
            "bits=NaN..4",
        ] {
            assert!(Bits::parse(wrong).is_err(), "{wrong}");
        }
    }
}
