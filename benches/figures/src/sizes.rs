//! Cost over size: the figures of W13, and their plot.

use criba_report::figure::{Axis, Figure, Series};

use crate::compare::group;
use crate::lines::{Line, median};

/// The numbers of keys that were measured.
pub(crate) const SIZES: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];

/// The median of a figure of W13.
pub(crate) fn at_size(lines: &[Line], n: u64, store: &str, figure: &str) -> Option<f64> {
    let group = group(lines, n, "names");
    let value = median(group.get(&("w13", store, "alike"))?, figure)?[0];
    Some(if figure == "open_mib" { value * f64::from(1 << 20) / n as f64 } else { value })
}

/// The picture for `docs/figures`, under its name.
///
/// # Errors
/// A figure was not measured; the text names it.
pub fn plot(lines: &[Line]) -> Result<(String, Vec<u8>), String> {
    let mut series = Vec::new();
    for (figure, words, hue) in [
        ("absent_ns", "nanoseconds", 0),
        ("open_mib", "bytes of memory a key", 2),
        ("absent_reads", "disk reads", 4),
    ] {
        for (store, filter, more) in [("criba", "Bloom", 0), ("criba-ribbon", "ribbon", 1)] {
            let mut points = Vec::new();
            for n in SIZES {
                let value = at_size(lines, n, store, figure)
                    .ok_or_else(|| format!("not measured: {store} {figure} {n}"))?;
                points.push((n as f64, value));
            }
            series.push(Series::marked(format!("{words}, {filter}"), hue + more, points));
        }
    }
    let figure = Figure {
        id: "size",
        title: "An absent key in a store that grows".to_owned(),
        asked: String::new(),
        theory: String::new(),
        measured: String::new(),
        x: Axis::log("keys", ""),
        y: Axis::log("an absent key", ""),
        series,
    };
    figure.check("cost").map_err(|error| error.to_string())?;
    let [_, picture] = criba_report::files(&figure, &figure.file_stem("cost"));
    Ok(picture)
}
