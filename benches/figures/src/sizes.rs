//! The plot of cost over size.

use criba_report::figure::{Axis, Figure, Series};

use crate::lines::Line;
use crate::page::{SIZES, at_size};

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
