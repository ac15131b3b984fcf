//! How a ribbon's equations are solved: elimination over a band of 64 rows, which knows nothing of
//! columns; then back substitution, some columns at a time.
//!
//! Memory, beside the caller's array: the hashes, sorted in place and then overwritten by the pivots (8
//! bytes a key), and one byte a row (1.1 to 1.4 a key): under 10 bytes a key. No table of rows is made: in
//! the order of their start rows, all that is at work at a time fits in a ring.

use super::hash::mix;
use super::kind::Geometry;
use super::ribbon::equation;
#[cfg(target_arch = "x86_64")]
use super::simd;
use super::simd::Path;

/// Back substitution takes so many columns at a time.
pub(super) const COLUMNS_AT_ONCE: usize = 8;

const HAS_PIVOT: u8 = 0x80;
const WAITING: u8 = 0x7f;

/// The equations in echelon form.
pub(super) struct Band {
    /// For each row that has one, the coefficients of the equation that determines it, bit 0 its own.
    pub(super) pivots: Vec<u64>,
    /// [`HAS_PIVOT`] for a row that has one; in [`WAITING`] how many equations that start here or before
    /// have their pivots here or later.
    pub(super) rows: Vec<u8>,
}

impl Band {
    /// Gaussian elimination. Equations that follow from others leave no trace.
    pub(super) fn eliminate(geometry: &Geometry, mut hashes: Vec<u64>) -> Self {
        hashes.sort_unstable(); // in the order of their start rows
        let mut rows = vec![0; geometry.m as usize];
        let mut ring = [0_u64; 64]; // the pivots of rows done … done+63
        let (mut done, mut pivots, mut waiting) = (0, 0, 0);
        for next in 0..=hashes.len() {
            let (start, mut c) = match hashes.get(next) {
                Some(&hash) => equation(geometry, hash),
                None => (rows.len(), 0),
            };
            while done < start {
                // No later equation reaches this row. There are no more pivots than equations so far,
                // so this one overwrites a hash that has been used.
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
        Self { pivots: hashes, rows }
    }

    /// The parts of hashes, start row by start row, whose equations follow from the band's: their sums
    /// over the start rows before `split` and from it on. Such hashes pass any number of columns.
    ///
    /// Reduce the equations so that no two have their last coefficient at one row either. Those that
    /// begin and end within rows s … s+63 then span all that follows and lies there: d of them make 2^d
    /// of the 2^64 possible equations, half of which begin at s if one of the d does. Only where d is
    /// near 64 does this come to anything, and d is about the number of equations waiting at s plus what
    /// those after s displace towards it. So the reduction is made in crowded places alone.
    pub(super) fn dependent(&self, geometry: &Geometry, split: u64) -> [f64; 2] {
        // What is left out is at most 2^−8 of the columns' own rate; a margin of 8 is for the estimate.
        let crowded = 64 - (i32::from(geometry.k as u8) + 1 + 8 + 8);
        self.dependent_where(geometry, split, crowded)
    }

    fn dependent_where(&self, geometry: &Geometry, split: u64, crowded: i32) -> [f64; 2] {
        let mut sums = [0.0; 2];
        let last_start = geometry.m as usize - 64;
        let mut at = self.pivots.len();
        // Without anything displaced, `quiet` is where the last reduction could begin: a row, the end of
        // its pivots. It stays well behind.
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
            // Each that starts here takes a row from above if it can.
            displaced = (displaced + self.starting(s) - 1).max(0);
        }
        sums
    }

    /// How many of the equations start at a row: of those that wait there, all but what the one above left.
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

    /// Takes the row above the ones before into the reduction.
    fn reduce(&self, row: usize, at: &mut usize, ends: &mut Ends) {
        ends.pass(row + 64);
        if self.has_pivot(row) {
            *at -= 1;
            ends.insert(row, self.pivots[*at]);
        }
    }

    /// Solves [`COLUMNS_AT_ONCE`] columns, the first of them `first`, and hands over the 64 rows of each
    /// segment, from the last segment to the first.
    pub(super) fn solve(
        &self,
        seed: u64,
        first: usize,
        take: impl FnMut(u64, &[u64; COLUMNS_AT_ONCE]),
    ) {
        #[cfg(target_arch = "x86_64")]
        let take = match simd::ribbon::solve(Path::best(), self, seed, first, take) {
            Ok(()) => return,
            Err(take) => take,
        };
        self.solve_all(seed, first, take);
    }

    /// From the last row up: `next[j]` holds the 64 rows of column j that follow. A row that no key
    /// determines takes any bits, but not always 0: the zero solution contains everything.
    #[expect(clippy::inline_always, reason = "compiled anew for each processor's instructions")]
    #[inline(always)]
    pub(super) fn solve_all(
        &self,
        seed: u64,
        first: usize,
        mut take: impl FnMut(u64, &[u64; COLUMNS_AT_ONCE]),
    ) {
        let mut next = [0_u64; COLUMNS_AT_ONCE];
        let mut at = self.pivots.len();
        for (segment, rows) in self.rows.chunks_exact(64).enumerate().rev() {
            for (i, row) in rows.iter().enumerate().rev() {
                let (mut c, mut free) = (0, 0);
                if row & HAS_PIVOT != 0 {
                    at -= 1;
                    c = self.pivots[at];
                } else {
                    free = mix(seed ^ (64 * segment + i) as u64) >> first;
                }
                for (j, column) in next.iter_mut().enumerate() {
                    let shifted = *column << 1;
                    let parity = u64::from((shifted & c).count_ones()) & 1;
                    *column = shifted | parity | (free >> j & 1);
                }
            }
            take(segment as u64, &next);
        }
    }
}

/// Equations of which no two end at one row, by the row they end at, while start rows fall.
struct Ends {
    /// Bit 63 is the coefficient of the row they end at.
    ring: [u64; 64],
    count: i32,
}

impl Default for Ends {
    fn default() -> Self {
        Self { ring: [0; 64], count: 0 }
    }
}

impl Ends {
    /// Drops what ends at a row.
    fn pass(&mut self, row: usize) {
        self.count -= i32::from(std::mem::take(&mut self.ring[row % 64]) != 0);
    }

    /// Those here start later, so that adding them leaves the start of this one where it is.
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

    /// Whether an equation follows from the band's: whether it reduces to nothing.
    fn follows(rows: &[u64], (mut row, mut c): (usize, u64)) -> bool {
        while c != 0 && rows[row] != 0 {
            c ^= rows[row];
            let skip = c.trailing_zeros();
            c = c.checked_shr(skip).unwrap_or(0);
            row += skip as usize;
        }
        c == 0
    }

    #[test]
    fn the_dependent_part_is_what_reduces_to_nothing() {
        let mut seen = 0;
        for (keys, m) in [(1000, 1024), (2000, 2048), (10_000, 10_240), (300, 320), (120, 128)] {
            let geometry = Geometry { m, k: 1, wide: 0 };
            let band = Band::eliminate(&geometry, hashes(keys, 1));
            let mut pivots = band.pivots.iter();
            let pivot = |row: &u8| if row & HAS_PIVOT == 0 { 0 } else { *pivots.next().unwrap() };
            let rows: Vec<u64> = band.rows.iter().map(pivot).collect();
            assert!(hashes(keys, 1).iter().all(|&key| follows(&rows, equation(&geometry, key))));
            let [before, after] = band.dependent_where(&geometry, m / 2, i32::MIN);
            let rate = (before + after) / (m - 63) as f64;
            let absent = 400_000;
            let found = hashes(absent, 2)
                .iter()
                .filter(|&&h| follows(&rows, equation(&geometry, h)))
                .count();
            let (expected, deviation) = (rate * absent as f64, (rate * absent as f64).sqrt());
            println!("{keys} keys in {m} rows: {found} of {absent} follow, {expected:.1} expected");
            assert!((found as f64 - expected).abs() < 4.0 * deviation + 1.0);
            seen += found;
        }
        assert!(seen > 10_000);
    }

    /// Of few keys no equation follows from others: each is found where its hash lets it start.
    #[test]
    fn where_equations_start_is_told() {
        let geometry = Geometry { m: 2048, k: 1, wide: 0 };
        let keys = hashes(1000, 1);
        let mut starts = vec![0; 2048];
        for &key in &keys {
            starts[equation(&geometry, key).0] += 1;
        }
        let band = Band::eliminate(&geometry, keys);
        assert_eq!(band.pivots.len(), 1000);
        assert!((0..2048).all(|row| band.starting(row) == starts[row]));
    }

    /// Where each row has its pivot all equations follow, and none begins in the last 63 rows.
    #[test]
    fn among_many_keys_all_follow() {
        for (keys, m, split) in [(2000, 128, 64), (4000, 192, 0), (4000, 192, 1000)] {
            let band = Band::eliminate(&Geometry { m, k: 1, wide: 0 }, hashes(keys, 1));
            assert_eq!(band.pivots.len() as u64, m);
            let [before, after] = band.dependent(&Geometry { m, k: 1, wide: 0 }, split);
            let (starts, below) = (m - 63, split.min(m - 63));
            assert!((before - below as f64).abs() < 1e-9, "{before} of {below}");
            assert!((after - (starts - below) as f64).abs() < 1e-9, "{after} of {starts}");
        }
    }

    /// Where it looks only at crowded places, it misses next to nothing of what counts.
    #[test]
    fn little_is_missed_outside_crowded_places() {
        for (keys, rows_per_key, k) in [
            (1000, 1.05, 3),
            (30_000, 1.08, 5),
            (30_000, 1.10, 7),
            (30_000, 1.13, 10),
            (30_000, 1.17, 16),
        ] {
            let m = (keys as f64 * rows_per_key / 64.0).ceil() as u64 * 64;
            let geometry = Geometry { m, k, wide: 0 };
            let mut worst: f64 = 0.0;
            for salt in 0..20 {
                let band = Band::eliminate(&geometry, hashes(keys, salt));
                let sum = |[a, b]: [f64; 2]| (a + b) / (m - 63) as f64;
                let all = sum(band.dependent_where(&geometry, 0, i32::MIN));
                let found = sum(band.dependent(&geometry, 0));
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
