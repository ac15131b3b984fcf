//! Maps the values of an axis to places, and chooses its ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::figure::{Axis, Scale};

/// An axis with its range.
#[derive(Debug, Clone)]
pub(super) struct Ruler {
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Ruler {
    /// An axis for these values, with a margin; from zero if requested.
    pub(super) fn over(axis: &Axis, from_zero: bool, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (from, to) = match &axis.scale {
            Scale::Linear => {
                let room = if high > low { (high - low) * 0.04 } else { low.abs().max(1.0) * 0.1 };
                // Zero belongs to the picture unless the values are far from it.
                let from_zero = from_zero || (low > 0.0 && low < high / 2.0);
                (if from_zero { 0.0 } else { low - room }, high + room)
            }
            Scale::Log => {
                let room = (high / low).powf(0.04).max(1.05);
                (low / room, high * room)
            }
            Scale::Named(names) => (0.5, names.len() as f64 + 0.5),
        };
        let ticks = match &axis.scale {
            Scale::Linear => linear_ticks(from, to),
            Scale::Log => log_ticks(from, to),
            Scale::Named(names) => (1..=names.len()).map(|place| place as f64).collect(),
        };
        Self { scale: axis.scale.clone(), from, to, ticks }
    }

    pub(super) fn from(&self) -> f64 {
        self.from
    }

    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear | Scale::Named(_) => (value - self.from) / (self.to - self.from),
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
        }
    }
}

/// Four to nine round numbers.
fn linear_ticks(from: f64, to: f64) -> Vec<f64> {
    let rough = (to - from) / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    let step = step.into_iter().find(|step| *step >= rough * 0.8).unwrap_or(rough);
    let (first, last) = ((from / step).ceil() as i64, (to / step).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// Powers of ten; with few of them, also twice and five times these; with fewer, as on a linear axis.
fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    let decades = (to / from).log10();
    let digits: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = (decades / 8.0).ceil().max(1.0) as i32;
    let ticks: Vec<f64> = (first..=last)
        .filter(|power| power % every == 0)
        .flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)))
        .filter(|tick| (from..=to).contains(tick))
        .collect();
    if ticks.len() < 3 { linear_ticks(from, to) } else { ticks }
}

impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        low + (self.place(*value) * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Ruler {
    fn format_ext(&self, value: &f64) -> String {
        let name = match &self.scale {
            Scale::Named(names) => names.get((value.round() as usize).wrapping_sub(1)),
            Scale::Linear | Scale::Log => None,
        };
        name.map_or_else(|| tick(*value), Clone::clone)
    }
}

/// A round number, short.
fn tick(value: f64) -> String {
    let size = value.abs();
    let trimmed = |text: String| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    match size {
        0.0 => "0".into(),
        1e9.. => format!("{value:e}"),
        1e6.. => format!("{} M", trimmed(format!("{:.3}", value / 1e6))),
        1e4.. => crate::numbers::thousands(value.round() as u64),
        1e-4.. => trimmed(format!("{value:.6}")),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(linear_ticks(0.0, 10.4), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(log_ticks(0.9, 55.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(log_ticks(1e-5, 2.0).len(), 6);
        assert_eq!(log_ticks(110.0, 330.0), [150.0, 200.0, 250.0, 300.0]);
        for (from, to) in [(0.07, 0.12), (-3.0, 4.0), (0.0, 1.04), (1e5, 3e6)] {
            let ticks = linear_ticks(from, to);
            assert!((4..=9).contains(&ticks.len()), "{ticks:?}");
        }
    }

    #[test]
    fn ticks_are_written_short() {
        let shown = [0.0, 0.05, 2.0, 0.1 + 0.2, 20_000.0, 1e6, 2.5e6, 1e-5].map(tick);
        assert_eq!(shown, ["0", "0.05", "2", "0.3", "20,000", "1 M", "2.5 M", "1e-5"]);
    }

    #[test]
    fn named_places_are_written_by_their_names() {
        let axis = Axis::named("fruit", &["fig", "pear"]);
        let ruler = Ruler::over(&axis, false, [0.8, 2.2].into_iter());
        let written: Vec<_> = ruler.ticks.iter().map(|tick| ruler.format_ext(tick)).collect();
        assert_eq!((ruler.from, ruler.to), (0.5, 2.5));
        assert_eq!(written, ["fig", "pear"]);
    }

    #[test]
    fn a_place_is_in_proportion_to_the_scale() {
        let values = || [1.0, 100.0].into_iter();
        let log = Ruler::over(&Axis::log("x", ""), false, values());
        assert!((log.place(10.0) - 0.5).abs() < 1e-9);
        let linear = Ruler::over(&Axis::linear("x", ""), false, values());
        assert!((linear.place(51.98) - 0.5).abs() < 1e-9);
    }
}
