//! Solves the equations of a layer: one elimination for all columns, then back substitution for
//! [`COLUMNS_AT_ONCE`] columns at a time.
//!
//! Memory: 16 bytes per key for the hashes, which are sorted in place and overwritten by the pivots, and for the
//! right-hand sides; and a byte per row. As the equations are sorted by start row, elimination holds only 64 rows at
//! a time, in a ring.

use super::array::{Equation, equation};
use super::layers::Layer;
use crate::hash::mix;

pub(crate) const COLUMNS_AT_ONCE: usize = 8;

const HAS_PIVOT: u8 = 0x80;
const WAITING: u8 = 0x7f;

pub(crate) struct RibbonSolver {
    /// For each row with a pivot: the coefficients of its equation, from this row on.
    pub(crate) pivots: Vec<u64>,
    /// For each row with a pivot: the right-hand side.
    pub(crate) rights: Vec<u64>,
    /// For each row: [`HAS_PIVOT`]; and in [`WAITING`], in the last layer, the number of equations that start at or
    /// before this row and have their pivots at or after it.
    pub(crate) rows: Vec<u8>,
}

impl RibbonSolver {
    /// Gaussian elimination in the last layer. The right-hand sides are 0, so that dependent equations always fit;
    /// they are dropped.
    pub(crate) fn eliminate(layer: &Layer, mut hashes: Vec<u64>) -> Self {
        hashes.sort_unstable(); // in the order of their start rows
        let base = 64 * layer.base as usize;
        let mut rows = vec![0; 64 * layer.segments as usize];
        let mut ring = [0_u64; 64]; // the pivots of rows done … done + 63
        let (mut done, mut pivots, mut waiting) = (0, 0, 0);
        for next in 0..=hashes.len() {
            let (start, mut c) = match hashes.get(next) {
                Some(&hash) => {
                    let Equation { start, coefficients, .. } = equation(layer, hash);
                    (start - base, coefficients)
                }
                None => (rows.len(), 0),
            };
            while done < start {
                // No later equation has this row. Its pivot overwrites a hash that was used.
                let pivot = std::mem::take(&mut ring[done % 64]);
                let is_one = pivot != 0;
                rows[done] = waiting | if is_one { HAS_PIVOT } else { 0 };
                if is_one {
                    hashes[pivots] = pivot;
                    pivots += 1;
                    waiting -= 1;
                }
                done += 1;
            }
            let mut row = start;
            while c != 0 {
                let pivot = ring[row % 64];
                if pivot == 0 {
                    ring[row % 64] = c;
                    waiting += 1;
                    break;
                }
                c ^= pivot;
                let skip = c.trailing_zeros();
                c = c.checked_shr(skip).unwrap_or(0);
                row += skip as usize;
            }
        }
        hashes.truncate(pivots);
        let rights = vec![0; pivots];
        Self { pivots: hashes, rights, rows }
    }

    pub(crate) fn push_row(&mut self, has_pivot: bool) {
        self.rows.push(if has_pivot { HAS_PIVOT } else { 0 });
    }

    /// Sums of the fractions of hashes with dependent equations, which pass any number of columns: over the
    /// start rows before `split`, and over the other start rows.
    ///
    /// The equations are reduced further, so that no two end at the same row. Then the d equations within
    /// rows s … s+63 span all dependent equations within these rows: 2^d of 2^64. Half of them start at row
    /// s, if one of the d does. Only d near 64 is significant, so only crowded rows are reduced.
    pub(crate) fn dependent(&self, columns: u32, split: u64) -> [f64; 2] {
        // One 8: the omitted rows add at most 2^−8 of the columns' rate. The other 8 is a margin, because d
        // is estimated.
        let crowded = 64 - (i32::from(columns as u8) + 1 + 8 + 8);
        self.dependent_where(split, crowded)
    }

    fn dependent_where(&self, split: u64, crowded: i32) -> [f64; 2] {
        let mut sums = [0.0; 2];
        let last_start = self.rows.len() - 64;
        let mut at = self.pivots.len();
        // A reduction can begin at a row where no equation is displaced. `quiet` is such a row, with the end
        // of its pivots; `quieter` is another one, at least 128 rows after it.
        let (mut displaced, mut quiet, mut quieter) = (0_i32, (usize::MAX, at), (usize::MAX, at));
        let mut ends: Option<(Ends, usize)> = None;
        for s in (0..self.rows.len()).rev() {
            let has_pivot = self.has_pivot(s);
            if displaced == 0 && quiet.0.saturating_sub(s) >= 128 {
                (quieter, quiet) = (quiet, (s + 1, at));
            }
            if self.waiting(s) + displaced >= crowded {
                let (_, crowded_at) = ends.get_or_insert_with(|| {
                    let (row, mut at) = quieter;
                    let mut ends = Ends::default();
                    for row in (s + 1..row.min(self.rows.len())).rev() {
                        self.reduce(row, &mut at, &mut ends);
                    }
                    (ends, s)
                });
                *crowded_at = s;
            }
            match &mut ends {
                Some((reduced, crowded_at)) if *crowded_at < s + 256 => {
                    self.reduce(s, &mut at, reduced);
                    if has_pivot && s <= last_start {
                        sums[usize::from(s as u64 >= split)] +=
                            f64::from(reduced.count - 64).exp2();
                    }
                }
                _ => {
                    ends = None;
                    at -= usize::from(has_pivot);
                }
            }
            // One equation ends at a row; further ones are displaced to other rows.
            displaced = (displaced + self.starting(s) - 1).max(0);
        }
        sums
    }

    fn starting(&self, row: usize) -> i32 {
        let above = row.checked_sub(1);
        let left = above.map_or(0, |row| self.waiting(row) - i32::from(self.has_pivot(row)));
        self.waiting(row) - left
    }

    fn waiting(&self, row: usize) -> i32 {
        i32::from(self.rows[row] & WAITING)
    }

    fn has_pivot(&self, row: usize) -> bool {
        self.rows[row] & HAS_PIVOT != 0
    }

    fn reduce(&self, row: usize, at: &mut usize, ends: &mut Ends) {
        ends.pass(row + 64);
        if self.has_pivot(row) {
            *at -= 1;
            ends.insert(row, self.pivots[*at]);
        }
    }

    /// Solves [`COLUMNS_AT_ONCE`] columns from column `first` on. Calls `take` for each segment of the layer, the last
    /// one first, with the rows of these columns.
    ///
    /// `next[j]` has the next 64 rows of column j. A row without a pivot gets pseudorandom bits: with zeros,
    /// the solution would be zero, and every key would pass.
    #[expect(clippy::inline_always, reason = "compiled anew for each processor's instructions")]
    #[inline(always)]
    pub(crate) fn solve_all(
        &self,
        seed: u64,
        first: usize,
        mut take: impl FnMut(u64, &[u64; COLUMNS_AT_ONCE]),
    ) {
        let mut next = [0_u64; COLUMNS_AT_ONCE];
        let mut at = self.pivots.len();
        for (segment, rows) in self.rows.chunks_exact(64).enumerate().rev() {
            for (i, row) in rows.iter().enumerate().rev() {
                let (mut c, mut right) = (0, mix(seed ^ (64 * segment + i) as u64));
                if row & HAS_PIVOT != 0 {
                    at -= 1;
                    (c, right) = (self.pivots[at], self.rights[at]);
                }
                right >>= first;
                for (j, column) in next.iter_mut().enumerate() {
                    let shifted = *column << 1;
                    let parity = u64::from((shifted & c).count_ones()) ^ right >> j;
                    *column = shifted | (parity & 1);
                }
            }
            take(segment as u64, &next);
        }
    }
}

/// Reduced equations, at most one per row of the last coefficient. They are inserted by falling start rows.
struct Ends {
    /// Bit 63 is the last coefficient.
    ring: [u64; 64],
    count: i32,
}

impl Default for Ends {
    fn default() -> Self {
        Self { ring: [0; 64], count: 0 }
    }
}

impl Ends {
    fn pass(&mut self, row: usize) {
        self.count -= i32::from(std::mem::take(&mut self.ring[row % 64]) != 0);
    }

    /// The equations in the ring start later, so their addition does not change the start row of the new one.
    fn insert(&mut self, start: usize, pivot: u64) {
        let mut end = start + 63;
        let mut c = pivot;
        loop {
            let gap = c.leading_zeros();
            c <<= gap;
            end -= gap as usize;
            let other = &mut self.ring[end % 64];
            if *other == 0 {
                *other = c;
                self.count += 1;
                return;
            }
            c ^= *other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(keys: u64, salt: u64) -> Vec<u64> {
        (0..keys).map(|i| mix(mix(salt) ^ i)).collect()
    }

    fn alone(m: u64) -> Layer {
        Layer { base: 0, segments: m / 64, share: 1.0 }
    }

    fn is_dependent(rows: &[u64], layer: &Layer, hash: u64) -> bool {
        let Equation { start: mut row, coefficients: mut c, .. } = equation(layer, hash);
        while c != 0 && rows[row] != 0 {
            c ^= rows[row];
            let skip = c.trailing_zeros();
            c = c.checked_shr(skip).unwrap_or(0);
            row += skip as usize;
        }
        c == 0
    }

    #[test]
    fn the_dependent_fraction_is_that_of_equations_that_reduce_to_zero() {
        let mut seen = 0;
        for (keys, m) in [(1000, 1024), (2000, 2048), (10_000, 10_240), (300, 320), (120, 128)] {
            let layer = alone(m);
            let solver = RibbonSolver::eliminate(&layer, hashes(keys, 1));
            let mut pivots = solver.pivots.iter();
            let pivot = |row: &u8| if row & HAS_PIVOT == 0 { 0 } else { *pivots.next().unwrap() };
            let rows: Vec<u64> = solver.rows.iter().map(pivot).collect();
            assert!(hashes(keys, 1).iter().all(|&key| is_dependent(&rows, &layer, key)));
            let [before, after] = solver.dependent_where(m / 2, i32::MIN);
            let rate = (before + after) / layer.start_rows() as f64;
            let absent = 400_000;
            let found =
                hashes(absent, 2).iter().filter(|&&h| is_dependent(&rows, &layer, h)).count();
            let (expected, deviation) = (rate * absent as f64, (rate * absent as f64).sqrt());
            println!("{keys} keys in {m} rows: {found} of {absent}, {expected:.1} expected");
            assert!((found as f64 - expected).abs() < 4.0 * deviation + 1.0);
            seen += found;
        }
        assert!(seen > 10_000);
    }

    #[test]
    fn equations_are_counted_at_their_start_rows() {
        let keys = hashes(1000, 1);
        let mut starts = vec![0; 2048];
        for &key in &keys {
            starts[equation(&alone(2048), key).start] += 1;
        }
        let solver = RibbonSolver::eliminate(&alone(2048), keys);
        assert_eq!(solver.pivots.len(), 1000);
        assert!((0..2048).all(|row| solver.starting(row) == starts[row]));
    }

    #[test]
    fn with_a_pivot_in_each_row_all_equations_are_dependent() {
        for (keys, m, split) in [(2000, 128, 64), (4000, 192, 0), (4000, 192, 1000)] {
            let solver = RibbonSolver::eliminate(&alone(m), hashes(keys, 1));
            assert_eq!(solver.pivots.len() as u64, m);
            let [before, after] = solver.dependent(1, split);
            let (starts, below) = (m - 63, split.min(m - 63));
            assert!((before - below as f64).abs() < 1e-9, "{before} of {below}");
            assert!((after - (starts - below) as f64).abs() < 1e-9, "{after} of {starts}");
        }
    }

    #[test]
    fn crowded_places_have_nearly_all_dependent_equations() {
        for (keys, rows_per_key, k) in [
            (1000, 1.05, 3),
            (30_000, 1.08, 5),
            (30_000, 1.10, 7),
            (30_000, 1.13, 10),
            (30_000, 1.17, 16),
        ] {
            let m = (keys as f64 * rows_per_key / 64.0).ceil() as u64 * 64;
            let mut worst: f64 = 0.0;
            for salt in 0..20 {
                let solver = RibbonSolver::eliminate(&alone(m), hashes(keys, salt));
                let sum = |[a, b]: [f64; 2]| (a + b) / (m - 63) as f64;
                let all = sum(solver.dependent_where(0, i32::MIN));
                let found = sum(solver.dependent(k, 0));
                assert!(found <= all * 1.000_001);
                worst = worst.max((all - found) * f64::from(k).exp2());
            }
            println!(
                "{keys} keys, {rows_per_key} rows each: {worst:.1e} of 2^-{k} missed at worst"
            );
            assert!(worst < 0.005);
        }
    }
}
