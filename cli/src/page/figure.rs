//! A figure: what was asked, what theory says, what was measured, and the points of both.

use std::path::Path;

use super::output;
use crate::failure::{Failure, Result};

/// One figure of the report.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Names its files and its place in the page, after the experiment's name.
    pub id: &'static str,
    /// Its heading.
    pub title: String,
    /// What was asked.
    pub asked: String,
    /// What theory says: the formula.
    pub theory: String,
    /// What was measured.
    pub measured: String,
    /// The axis below.
    pub x: Axis,
    /// The axis to the left.
    pub y: Axis,
    /// What is plotted, first below, last on top.
    pub series: Vec<Series>,
}

/// An axis. Its range is that of the points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// What is along it.
    pub label: &'static str,
    /// In which unit; "" for a bare number.
    pub unit: &'static str,
    /// How it is divided.
    pub scale: Scale,
}

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal differences. Zero is shown if it is near.
    Linear,
    /// Equal steps are equal ratios; all values are above 0.
    Log,
    /// The places 1, 2, 3, … have these names; points lie at them or beside them.
    Named(&'static [&'static str]),
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: &'static str, unit: &'static str) -> Self {
        Self { label, unit, scale: Scale::Linear }
    }

    /// A logarithmic axis.
    pub fn log(label: &'static str, unit: &'static str) -> Self {
        Self { label, unit, scale: Scale::Log }
    }

    /// An axis of named places.
    pub fn named(label: &'static str, names: &'static [&'static str]) -> Self {
        Self { label, unit: "", scale: Scale::Named(names) }
    }

    /// As it is written beside the axis.
    pub fn name(&self) -> String {
        if self.unit.is_empty() {
            self.label.to_owned()
        } else {
            format!("{} ({})", self.label, self.unit)
        }
    }
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Which colour, dash and mark, of [`HUES`]. What is measured goes with its theory by having the
    /// same one.
    pub hue: usize,
    /// The points, in the order in which a line goes through them.
    pub points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line without marks: theory.
    Line,
    /// Marks without a line: what was measured.
    Marks,
    /// A line with marks: what was measured, and has no theory beside it.
    Marked,
    /// Bars from zero, each centred at its point and as wide as the least distance of two: how often.
    Bars,
    /// An upright line from the lower edge to each point, with a mark: a place to be noted.
    Stems,
}

/// How many hues there are.
pub const HUES: usize = 6;

impl Series {
    /// A line without marks.
    pub fn line(name: impl Into<String>, hue: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), style: Style::Line, hue, points }
    }

    /// Marks without a line.
    pub fn marks(name: impl Into<String>, hue: usize, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Marks, ..Self::line(name, hue, points) }
    }

    /// A line with marks.
    pub fn marked(name: impl Into<String>, hue: usize, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Marked, ..Self::line(name, hue, points) }
    }

    /// Bars.
    pub fn bars(name: impl Into<String>, hue: usize, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Bars, ..Self::line(name, hue, points) }
    }

    /// Upright lines.
    pub fn stems(name: impl Into<String>, hue: usize, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Stems, ..Self::line(name, hue, points) }
    }
}

impl Figure {
    /// What its files are called, without what tells their kind.
    pub fn file_stem(&self, experiment: &str) -> String {
        format!("{experiment}-{}", self.id)
    }

    /// All its points: series, x, y. Along an axis of names, the name comes before the place.
    pub fn csv(&self) -> Vec<u8> {
        let points = self.series.iter().flat_map(|series| {
            series.points.iter().map(|&(x, y)| (series.name.clone(), x, y.to_string()))
        });
        let (x_name, y_name) = (self.x.name(), self.y.name());
        if let Scale::Named(names) = self.x.scale {
            let nearest = |x: f64| names[(x.round() as usize).clamp(1, names.len()) - 1].to_owned();
            let points = points.map(|(series, x, y)| [series, nearest(x), x.to_string(), y]);
            return output::csv(["series", &x_name, "place", &y_name], points);
        }
        let points = points.map(|(series, x, y)| [series, x.to_string(), y]);
        output::csv(["series", &x_name, &y_name], points)
    }

    /// Refuses what cannot be drawn: an experiment that has it is wrong.
    ///
    /// # Errors
    /// [`Failure::Unfit`]: no point, a point that is no number, or one at or below 0 on a logarithmic
    /// axis.
    pub fn check(&self, experiment: &str) -> Result<()> {
        let name = self.file_stem(experiment);
        let unfit = |found: String| Failure::unfit(Path::new(&name), "points to be plotted", found);
        for series in &self.series {
            if series.points.is_empty() {
                return Err(unfit(format!("none for {}", series.name)));
            }
            for &(x, y) in &series.points {
                for (axis, value) in [(&self.x, x), (&self.y, y)] {
                    if !value.is_finite() || (axis.scale == Scale::Log && value <= 0.0) {
                        return Err(unfit(format!(
                            "{value} for {} of {}",
                            axis.label, series.name
                        )));
                    }
                }
            }
        }
        if self.series.is_empty() { Err(unfit("no series".into())) } else { Ok(()) }
    }
}
