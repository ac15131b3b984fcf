//! Draws a figure as SVG. Each hue has its own dash and mark, for black and white.

use std::io;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figure::{Figure, HUES, Series, Style};
use crate::ink::{COLOURS, GRID, INK, Ink, PAPER, colour, dark_rules, escaped, hex};
use crate::rows;
use crate::ruler::Ruler;

// The page shows 3 of these units as one pixel or so: what is drawn is rounded to whole units.
const WIDTH: u32 = 1680;
const PLOT_HEIGHT: u32 = 1000;
const LEGEND_LINE: u32 = 62;
const MARGIN: u32 = 30;
const FONT: u32 = 52; // plotters writes it a fifth smaller
const THICK: u32 = 6;
const MARK: f64 = 13.0;
const BAR: f64 = 0.45; // how dense bars are

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failed = DrawingAreaErrorKind<io::Error>;

/// A figure for a file of its own.
pub(super) fn standalone(figure: &Figure) -> String {
    let style = format!(">\n<style>\n{}</style>", dark_rules());
    svg(figure).replacen('>', &style, 1)
}

/// A figure for a page with the [`dark_rules`].
pub(super) fn svg(figure: &Figure) -> String {
    if has_points(figure) && figure.series.iter().any(|series| series.style == Style::Rows) {
        return rows::svg(figure);
    }
    let mut svg = String::new();
    draw(figure, &mut svg).expect("a string takes everything");
    for (Ink { light, .. }, dash) in &COLOURS {
        if !dash.is_empty() {
            let stroke = format!("stroke=\"{}\"", hex(*light));
            svg = svg.replace(&stroke, &format!("{stroke} stroke-dasharray=\"{dash}\""));
        }
    }
    // For screen readers.
    let title = escaped(&figure.title);
    svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{title}\" "), 1)
}

/// A figure for a page with the [`dark_rules`], titled for readers that point at it.
pub(super) fn titled(figure: &Figure) -> String {
    svg(figure).replacen('>', &format!(">\n<title>{}</title>", escaped(&figure.title)), 1)
}

fn draw(figure: &Figure, svg: &mut String) -> Result<(), Failed> {
    let legend = LEGEND_LINE * figure.series.len() as u32 + MARGIN;
    let root = SVGBackend::with_string(svg, (WIDTH, PLOT_HEIGHT + legend)).into_drawing_area();
    root.fill(&PAPER.light)?;
    if !has_points(figure) {
        let text = ("sans-serif", FONT).into_font().color(&INK.light);
        let text = text.pos(Pos::new(HPos::Center, VPos::Center));
        let centre = (WIDTH as i32 / 2, PLOT_HEIGHT as i32 / 2);
        root.draw(&Text::new("no points", centre, text))?;
        return root.present();
    }
    let (plot, legend) = root.split_vertically(PLOT_HEIGHT);
    draw_plot(figure, &plot)?;
    draw_legend(figure, &legend)?;
    root.present()
}

/// Axes without a point have no range.
fn has_points(figure: &Figure) -> bool {
    figure.series.iter().any(|series| !series.points.is_empty())
}

fn draw_plot(figure: &Figure, area: &Area) -> Result<(), Failed> {
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let bars = figure.series.iter().filter(|series| series.style == Style::Bars);
    let stand_on_zero = bars.clone().next().is_some();
    let half_bars = bars.flat_map(|series| {
        let half = half_width(series);
        series.points.iter().flat_map(move |(x, _)| [x - half, x + half])
    });
    let x = Ruler::over(&figure.x, false, points().map(|(x, _)| *x).chain(half_bars));
    let y = Ruler::over(&figure.y, stand_on_zero, points().map(|(_, y)| *y));
    let bottom = y.from();
    let text = ("sans-serif", FONT).into_font().color(&INK.light);
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_right(2 * MARGIN)
        .x_label_area_size(130)
        .y_label_area_size(215)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(figure.x.name())
        .y_desc(figure.y.name())
        .label_style(text.clone())
        .axis_desc_style(text)
        .axis_style(INK.light.stroke_width(3))
        .bold_line_style(GRID.light.stroke_width(2))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for series in &figure.series {
        let colour = colour(series);
        let line = colour.stroke_width(THICK);
        match series.style {
            Style::Bars => {
                let half = half_width(series);
                chart.draw_series(series.points.iter().map(|&(x, y)| {
                    Rectangle::new([(x - half, 0.0), (x + half, y)], colour.mix(BAR).filled())
                }))?;
            }
            Style::Stems => {
                chart.draw_series(
                    series
                        .points
                        .iter()
                        .map(|&(x, y)| PathElement::new([(x, bottom), (x, y)], line)),
                )?;
            }
            Style::Line | Style::Marked => {
                chart.draw_series([PathElement::new(series.points.clone(), line)])?;
            }
            Style::Marks | Style::Rows => {}
        }
        if has_marks(series.style) {
            let at = |&point: &(f64, f64)| EmptyElement::at(point) + mark(series.hue);
            chart.draw_series(series.points.iter().map(at))?;
        }
    }
    Ok(())
}

fn has_marks(style: Style) -> bool {
    matches!(style, Style::Marks | Style::Marked | Style::Stems)
}

fn half_width(series: &Series) -> f64 {
    let mut places: Vec<f64> = series.points.iter().map(|(x, _)| *x).collect();
    places.sort_unstable_by(f64::total_cmp);
    let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
    let least = gaps.filter(|gap| *gap > 0.0).fold(f64::INFINITY, f64::min);
    if least.is_finite() { least * 0.45 } else { 0.4 }
}

/// The corners of each hue's mark, centred on the mark; a circle first.
fn corners(hue: usize) -> Vec<(i32, i32)> {
    let unit: &[(f64, f64)] = match hue % HUES {
        0 => {
            let around = |i: i32| (f64::from(i) * std::f64::consts::TAU / 16.0).sin_cos();
            return (0..16).map(around).map(scaled).collect();
        }
        1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        2 => &[(0.0, -1.4), (1.3, 0.7), (-1.3, 0.7)],
        3 => &[(0.0, -1.4), (1.4, 0.0), (0.0, 1.4), (-1.4, 0.0)],
        4 => &[(0.0, 1.4), (1.3, -0.7), (-1.3, -0.7)],
        _ => &[(-1.4, -0.6), (1.4, -0.6), (1.4, 0.6), (-1.4, 0.6)],
    };
    unit.iter().copied().map(scaled).collect()
}

fn scaled((x, y): (f64, f64)) -> (i32, i32) {
    ((x * MARK).round() as i32, (y * MARK).round() as i32)
}

fn mark(hue: usize) -> Polygon<(i32, i32)> {
    Polygon::new(corners(hue), COLOURS[hue % HUES].0.light.filled())
}

fn draw_legend(figure: &Figure, area: &Area) -> Result<(), Failed> {
    let text = ("sans-serif", FONT).into_font().color(&INK.light);
    let text = text.pos(Pos::new(HPos::Left, VPos::Center));
    for (line, series) in figure.series.iter().enumerate() {
        let y = (LEGEND_LINE * line as u32 + LEGEND_LINE / 2) as i32;
        let (from, to) = (245, 385);
        let colour = colour(series);
        match series.style {
            Style::Line | Style::Marked => {
                let line = vec![(from, y), (to, y)];
                area.draw(&PathElement::new(line, colour.stroke_width(THICK)))?;
            }
            Style::Bars => {
                let corners = [(from + 35, y - 18), (to - 35, y + 18)];
                area.draw(&Rectangle::new(corners, colour.mix(BAR).filled()))?;
            }
            Style::Marks | Style::Stems | Style::Rows => {}
        }
        if has_marks(series.style) {
            area.draw(&(EmptyElement::at((i32::midpoint(from, to), y)) + mark(series.hue)))?;
        }
        area.draw(&Text::new(series.name.clone(), (to + 40, y), text.clone()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Axis;

    fn figure() -> Figure {
        let series = [Style::Line, Style::Marks, Style::Marked, Style::Bars, Style::Stems];
        let series = series.into_iter().enumerate().map(|(hue, style)| Series {
            name: format!("a & b <{hue}>"),
            style,
            hue,
            points: vec![(1.0, 0.1), (2.0, 0.2), (3.0, 0.4)],
        });
        Figure {
            id: "all",
            title: "\"All\" styles <&>".into(),
            asked: String::new(),
            theory: String::new(),
            measured: String::new(),
            x: Axis::linear("x", "m"),
            y: Axis::linear("y", ""),
            series: series.collect(),
        }
    }

    #[test]
    fn figures_are_well_formed_whatever_their_words() {
        for text in [svg(&figure()), standalone(&figure())] {
            let document = roxmltree::Document::parse(&text).expect("well-formed");
            assert_eq!(document.root_element().attribute("aria-label"), Some("\"All\" styles <&>"));
        }
    }

    #[test]
    fn a_figure_without_points_says_so() {
        let (empty, rows) = (Series::marked("a", 0, vec![]), Series::rows("a", 0, vec![]));
        for series in [vec![], vec![empty], vec![rows]] {
            for y in [Axis::linear("y", ""), Axis::log("y", "")] {
                let x = Axis::named("x", &["one"]);
                let text = standalone(&Figure { series: series.clone(), x, y, ..figure() });
                let document = roxmltree::Document::parse(&text).expect("well-formed");
                let texts = document.descendants().filter(|node| node.has_tag_name("text"));
                let texts: Vec<_> = texts.filter_map(|node| node.text()).map(str::trim).collect();
                assert_eq!(texts, ["no points"]);
                assert!(!text.contains("NaN"), "{text}");
            }
        }
    }

    #[test]
    fn each_hue_has_a_mark_and_a_dash_of_its_own() {
        let marks: Vec<_> = (0..HUES).map(corners).collect();
        for (place, (mark, (_, dash))) in marks.iter().zip(&COLOURS).enumerate() {
            assert!(!marks[..place].contains(mark), "{mark:?}");
            assert!(COLOURS[..place].iter().all(|(_, other)| other != dash), "{dash}");
            let (x, y) = mark.iter().fold((0, 0), |(x, y), (dx, dy)| (x + dx, y + dy));
            assert!(x.abs() <= 2 && y.abs() <= 2, "mark {place} is centred: {x}, {y}");
        }
    }

    #[test]
    fn what_is_dashed_is_dashed_wherever_it_is_read() {
        let svg = svg(&figure());
        let dashed = svg.matches("stroke-dasharray=\"6 12\"").count();
        assert_eq!(dashed, 2, "the line and its sample in the legend");
    }

    #[test]
    fn every_colour_has_a_dark_one() {
        let (svg, rules) = (svg(&figure()), dark_rules());
        for attribute in ["fill=\"#", "stroke=\"#"] {
            for (place, _) in svg.match_indices(attribute) {
                let rule = &svg[place..place + attribute.len() + 7];
                assert!(rules.contains(rule), "{rule}");
            }
        }
    }
}
