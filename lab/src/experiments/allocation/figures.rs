//! Wasted reads by bits per key, with the curves of theory.

use criba::FilterKind;
use criba_report::figure::{Axis, Figure, Series};

use super::{Line, name, theory};
use crate::experiment::drawn;
use crate::kinds::Share;
use crate::shown;

pub(super) fn id(kind: FilterKind) -> &'static str {
    match kind {
        FilterKind::Bloom => "bloom",
        _ => "ribbon",
    }
}

/// A curve of theory over the measured sizes.
fn curve(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    (8..=64).map(|quarter| f64::from(quarter) / 4.0).map(|bits| (bits, of(bits))).collect()
}

pub(super) fn by_kind(kind: FilterKind, lines: &[Line], shares: &[Share]) -> Figure {
    let mut series = Vec::new();
    let of_kind = || lines.iter().filter(|line| line.kind == kind);
    for (hue, line) in of_kind().enumerate() {
        let how = name(line.allocation);
        let curve = curve(|bits| theory(kind, line.allocation, shares, bits));
        series.push(Series::line(format!("theory, {how}"), hue, curve));
        // Where nothing was wasted there is no place on the axis.
        let wasted = line.cells.iter().map(|cell| (cell.bits_per_key, cell.wasted));
        let wasted = wasted.filter(|(_, wasted)| *wasted > 0.0).collect();
        series.push(Series::marks(format!("measured, {how}"), hue, wasted));
    }
    let cells = || of_kind().flat_map(|line| &line.cells);
    let lookups = |most: bool| {
        let all = cells().map(|cell| cell.lookups);
        shown(if most { all.max() } else { all.min() }.unwrap_or_default() as f64)
    };
    let rate = match kind {
        FilterKind::Bloom => "p = (1 − e^(−k/b))^k at b bits a key",
        _ => "p = 2^−r, where r columns take b = r · (1.045 + r/128) bits a key",
    };
    drawn(
        id(kind),
        [
            &format!("Wasted reads against bits a key: {kind} filters"),
            "What does a bit more for each key avoid, and what the same bits in better places?",
            &format!(
                "{rate}. Uniform: the sum of p over the tables that a key comes to. Balanced: the \
                 least sum there is for the same bits, by Lagrange's multiplier."
            ),
            &format!(
                "Disk reads counted over {} to {} lookups of absent keys, each asked once, on one \
                 store whose filters were built anew for each mark.",
                lookups(false),
                lookups(true)
            ),
        ],
        [
            Axis::linear("filter bits a key, in the mean of the store", ""),
            Axis::log("wasted reads an absent lookup", ""),
        ],
        series,
    )
}
