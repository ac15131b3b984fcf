//! Draws horizontal bars, each below its name and its value. All lengths along a bar are shares of the width,
//! so that text keeps its size on a phone.

use std::fmt::Write;

use crate::figure::{Figure, Scale, Series};
use crate::ink::{GRID, INK, colour, escaped, hex};

/// In a file of its own; a page takes its own width.
const WIDTH: u32 = 704;
const GROUP: u32 = 30;
const ROW: u32 = 38;
const GAP: u32 = 12;
const BAR: u32 = 12;

/// The bars of each place of the axis `x`, series by series, below the place's name.
pub(super) fn svg(figure: &Figure) -> String {
    let Scale::Named(places) = &figure.x.scale else { return String::new() };
    let longest = figure.series.iter().flat_map(|series| &series.points);
    let longest = longest.map(|(_, value)| *value).fold(0.0, f64::max);
    let (mut body, mut y) = (String::new(), 0);
    for (place, name) in (1..).zip(places) {
        let rows: Vec<_> =
            figure.series.iter().filter_map(|s| Some((s, value_at(s, place)?))).collect();
        if rows.is_empty() {
            continue;
        }
        y += GROUP;
        text(&mut body, "start", y - 10, true, name);
        for (series, value) in rows {
            text(&mut body, "start", y + 15, false, &series.name);
            text(&mut body, "end", y + 15, false, &format!("{value:.4}"));
            let share = if longest > 0.0 { 100.0 * value / longest } else { 0.0 };
            for (width, fill) in [(100.0, GRID.light), (share, colour(series))] {
                let fill = hex(fill);
                let _ = writeln!(
                    body,
                    "<rect x=\"0\" y=\"{}\" width=\"{width:.3}%\" height=\"{BAR}\" fill=\"{fill}\"/>",
                    y + 21,
                );
            }
            y += ROW;
        }
        y += GAP;
    }
    let title = escaped(&figure.title);
    format!(
        "<svg role=\"img\" aria-label=\"{title}\" width=\"{WIDTH}\" height=\"{y}\" style=\"height: {y}px\" \
         font-family=\"system-ui, sans-serif\" font-size=\"15\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n{body}</svg>\n"
    )
}

fn value_at(series: &Series, place: usize) -> Option<f64> {
    series.points.iter().find(|(x, _)| x.round() as usize == place).map(|(_, value)| *value)
}

fn text(body: &mut String, anchor: &str, y: u32, bold: bool, text: &str) {
    let x = if anchor == "end" { "100%" } else { "0" };
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    let (fill, text) = (hex(INK.light), escaped(text));
    let _ = writeln!(
        body,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{fill}\"{weight}>{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Axis;

    #[test]
    fn bars_are_in_proportion_and_places_without_one_are_left_out() {
        let figure = Figure {
            id: "rows",
            title: "a < b".into(),
            asked: String::new(),
            theory: String::new(),
            measured: String::new(),
            x: Axis::named("state", &["one", "none", "two"]),
            y: Axis::linear("reads", ""),
            series: vec![
                Series::rows("without", 1, vec![(1.0, 2.0), (3.0, 0.5)]),
                Series::rows("with", 0, vec![(1.0, 0.0)]),
            ],
        };
        let svg = svg(&figure);
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        let of = |name| document.descendants().filter(move |node| node.has_tag_name(name));
        let texts: Vec<_> = of("text").filter_map(|node| node.text()).collect();
        let expected = ["one", "without", "2.0000", "with", "0.0000", "two", "without", "0.5000"];
        assert_eq!(texts, expected);
        let grid = hex(GRID.light);
        let bars = of("rect").filter(|node| node.attribute("fill") != Some(&grid));
        let widths: Vec<_> = bars.filter_map(|node| node.attribute("width")).collect();
        assert_eq!(widths, ["100.000%", "0.000%", "25.000%"]);
    }
}
