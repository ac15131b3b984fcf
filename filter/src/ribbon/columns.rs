//! The first columns of a ribbon filter are a filter too.
//!
//! The columns are independent: each gives 0 for every key, and for an absent key with probability 1/2.

use super::array::words;
use super::columns_alone;
use super::layers::SEGMENT;
use crate::geometry::Geometry;

/// The geometry of the first columns of a filter. `columns` is clamped to 1 … `k`.
pub fn narrowed(geometry: &Geometry, columns: u32) -> Geometry {
    Geometry { k: columns.clamp(1, geometry.k), wide: 0, ..*geometry }
}

/// The rate of the first columns of a filter. The fraction with dependent equations is the same for any
/// number of columns.
pub fn narrowed_rate(geometry: &Geometry, predicted_rate: f64, columns: u32) -> f64 {
    let all = columns_alone(geometry);
    let dependent = ((predicted_rate - all) / (1.0 - all)).max(0.0);
    let kept = columns_alone(&narrowed(geometry, columns));
    (dependent + (1.0 - dependent) * kept).min(1.0)
}

pub(crate) fn first_columns(from: &Geometry, array: &[u8], columns: u32) -> Vec<u8> {
    let narrow = narrowed(from, columns);
    let mut kept = vec![0; 8 * words(&narrow)];
    FirstColumns::new(from, narrow.k, &mut kept).push(array);
    kept
}

/// Copies the first columns of an array, and the bits of the buckets. The array is pushed in pieces of whole words.
#[derive(Debug)]
pub struct FirstColumns<'a> {
    from: Geometry,
    columns: u32,
    segment: u64,
    column: u32,
    into: std::slice::ChunksExactMut<'a, u8>,
}

impl<'a> FirstColumns<'a> {
    /// The copy to `into` of the first columns of an array of geometry `from`.
    pub fn new(from: &Geometry, columns: u32, into: &'a mut [u8]) -> Self {
        Self { from: *from, columns, segment: 0, column: 0, into: into.chunks_exact_mut(8) }
    }

    /// Takes the next piece of the array.
    pub fn push(&mut self, piece: &[u8]) {
        for word in piece.chunks_exact(8) {
            if self.column < self.columns
                && let Some(place) = self.into.next()
            {
                place.copy_from_slice(word);
            }
            if self.segment == self.from.m / SEGMENT {
                continue; // the bits of the buckets: all are kept
            }
            self.column += 1;
            if self.column == self.from.k + u32::from(self.segment < self.from.wide) {
                self.column = 0;
                self.segment += 1;
            }
        }
    }

    /// Whether the whole array was pushed.
    pub fn is_full(&self) -> bool {
        self.into.len() == 0 && self.segment == self.from.m / SEGMENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_fewer_columns_keeps_the_part_of_dependent_equations() {
        // In one layer; 256 of the 641 start rows test eleven columns.
        let geometry = Geometry { m: 11 * SEGMENT, k: 10, wide: 5 };
        let ideal = (1.0 - 128.0 / 641.0) * (-10_f64).exp2();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(narrowed_rate(&geometry, ideal, 4), 1.0 / 16.0);
        let excess = 0.001;
        let rate = narrowed_rate(&geometry, excess + (1.0 - excess) * ideal, 4);
        near(rate, excess + (1.0 - excess) / 16.0);
        near(narrowed_rate(&geometry, 0.0, 4), 1.0 / 16.0);
    }
}
