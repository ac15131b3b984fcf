//! A figure: question, theory, measurement, and their points.

use std::path::Path;

use crate::error::{Error, Result};
use crate::output;

/// One figure of the report.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its name in file names and in the page, after the experiment's name.
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
    /// The series, the bottom one first.
    pub series: Vec<Series>,
}

/// An axis. Its range is that of the points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// What is along it.
    pub label: &'static str,
    /// The unit; "" for none.
    pub unit: &'static str,
    /// How it is divided.
    pub scale: Scale,
}

/// How an axis is divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal differences. Contains zero if it is near.
    Linear,
    /// Equal steps are equal ratios; all values are above 0.
    Log,
    /// The names of the places 1, 2, 3, …; points lie at or beside them.
    Named(Vec<String>),
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
    pub fn named(label: &'static str, names: &[impl ToString]) -> Self {
        let names = names.iter().map(ToString::to_string).collect();
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
    /// Colour, dash and mark, of [`HUES`]. A measurement has the hue of its theory.
    pub hue: usize,
    /// The points, in the order of a line.
    pub points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line without marks: theory.
    Line,
    /// Marks without a line: what was measured.
    Marks,
    /// A line with marks: a measurement without theory.
    Marked,
    /// Bars from zero, centred on their points, as wide as the least distance of two.
    Bars,
    /// A line from the lower edge to each point, with a mark.
    Stems,
    /// Horizontal bars from zero, one below the other, with their names and values. All series of a figure
    /// have this style or none; the axis `x` is [`Scale::Named`].
    Rows,
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

    /// Horizontal bars.
    pub fn rows(name: impl Into<String>, hue: usize, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Rows, ..Self::line(name, hue, points) }
    }

    /// Upright lines.
    pub fn stems(name: impl Into<String>, hue: usize, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Stems, ..Self::line(name, hue, points) }
    }
}

impl Figure {
    /// The names of its files, without extension.
    pub fn file_stem(&self, experiment: &str) -> String {
        format!("{experiment}-{}", self.id)
    }

    /// All points: series, x, y. On an axis of names, the name comes before the place.
    pub fn csv(&self) -> Vec<u8> {
        let points = self.series.iter().flat_map(|series| {
            series.points.iter().map(|&(x, y)| (series.name.clone(), x, y.to_string()))
        });
        let (x_name, y_name) = (self.x.name(), self.y.name());
        if let Scale::Named(names) = &self.x.scale {
            let nearest = |x: f64| names[(x.round() as usize).clamp(1, names.len()) - 1].clone();
            let points = points.map(|(series, x, y)| [series, nearest(x), x.to_string(), y]);
            return output::csv(["series", &x_name, "place", &y_name], points);
        }
        let points = points.map(|(series, x, y)| [series, x.to_string(), y]);
        output::csv(["series", &x_name, &y_name], points)
    }

    /// Checks that it can be drawn.
    ///
    /// # Errors
    /// [`Error::Unfit`]: no point, a point that is not a number, or one at or below 0 on a logarithmic
    /// axis.
    pub fn check(&self, experiment: &str) -> Result<()> {
        let name = self.file_stem(experiment);
        let unfit = |found: String| Error::unfit(Path::new(&name), "points to be plotted", found);
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
