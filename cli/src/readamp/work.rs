//! The lookups to make: their keys, order and expected values.

use rand::RngExt;
use rand::seq::SliceRandom;

use super::input::{Stream, random};
use super::settings::Settings;
use crate::failure::{Failure, Result};

/// A lookup to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) key: &'a [u8],
    /// The expected value.
    pub(super) value: Option<&'a [u8]>,
    /// Whether no earlier lookup has this key.
    pub(super) first: bool,
}

/// The lookups of one kind.
pub(super) struct Work<'a>(pub(super) Vec<Wanted<'a>>);

/// Ranks from 0 to n − 1, each with a probability in proportion to (rank + 1)^−θ.
fn zipf_ranks(n: usize, theta: f64, seed: u64) -> impl Iterator<Item = usize> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=n)
        .map(|rank| {
            sum += (rank as f64).powf(-theta);
            sum
        })
        .collect();
    let mut random = random(seed, Stream::Ranks);
    std::iter::repeat_with(move || {
        let drawn = random.random::<f64>() * sum;
        sums.partition_point(|&below| below <= drawn).min(n - 1)
    })
}

impl<'a> Work<'a> {
    /// `count` lookups in random order; all keys come once before any comes again, but by Zipf's law.
    pub(super) fn new(
        keys: &[(&'a [u8], Option<&'a [u8]>)],
        settings: &Settings,
        stream: Stream,
    ) -> Result<Self> {
        let count = settings.lookups.map_or(keys.len(), |count| count as usize);
        if keys.is_empty() && count > 0 {
            return Err(Failure::Usage("--lookups asks for absent keys, and there is none".into()));
        }
        let mut random = random(settings.seed, stream);
        let mut places: Vec<usize> = (0..keys.len()).collect();
        let mut order = Vec::with_capacity(count);
        match (stream, settings.zipf) {
            (Stream::Absent, Some(theta)) => {
                places.shuffle(&mut random);
                let ranks = zipf_ranks(keys.len(), theta, settings.seed);
                order.extend(ranks.take(count).map(|rank| places[rank]));
            }
            _ => {
                while order.len() < count {
                    places.shuffle(&mut random);
                    order.extend(places.iter().take(count - order.len()));
                }
            }
        }
        let mut seen = vec![false; keys.len()];
        let lookups = order.into_iter().map(|place| {
            let (key, value) = keys[place];
            Wanted { key, value, first: !std::mem::replace(&mut seen[place], true) }
        });
        Ok(Self(lookups.collect()))
    }
}
