//! Elimination in a layer that bumps keys (Dillinger, Hübschle-Schneider, Sanders and Walzer, *Fast Succinct
//! Retrieval and Approximate Membership using Ribbon*, 2022): bucket by bucket, and in a bucket from high rows to low
//! ones. At the first equation that contradicts others, the half of the bucket in which it starts is bumped, and the
//! lower half with it.

use super::array::{Equation, equation, halves};
use super::layers::{HALF, Layer};
use super::solver::RibbonSolver;
use crate::hash::mix;

/// Equations that are reduced side by side: each step of one waits for its step before.
const SIDE_BY_SIDE: usize = 6;

/// The keys that a layer does not hold.
#[derive(Default)]
pub(crate) struct Bumped {
    /// Their hashes for the next layer.
    pub(crate) hashes: Vec<u64>,
    /// The two bits of each bucket.
    pub(crate) bits: Vec<u8>,
}

/// Columns count if they are in `mask`.
pub(crate) fn eliminate(layer: &Layer, mask: u64, mut hashes: Vec<u64>) -> (RibbonSolver, Bumped) {
    hashes.sort_unstable(); // in the order of their start rows
    let rows = Vec::with_capacity(64 * layer.segments as usize);
    let mut solver = RibbonSolver { pivots: Vec::new(), rights: Vec::new(), rows };
    solver.rights.reserve_exact(hashes.len());
    let mut bumped = Bumped::default();
    let mut window = Window::default();
    let mut next = 0;
    for bucket in layer.base as usize..(layer.base + layer.segments) as usize {
        let first = next;
        let end = 64 * (bucket + 1);
        while hashes.get(next).is_some_and(|&hash| equation(layer, hash).start < end) {
            next += 1;
        }
        let offset = window.place_bucket(layer, mask, &hashes[first..next]);
        for &hash in &hashes[first..next] {
            if equation(layer, hash).start % 64 >= offset {
                break;
            }
            bumped.hashes.push(mix(hash));
        }
        bumped.bits.push(!(u8::MAX << (offset / HALF)));
        for row in 0..64 {
            let pivot = window.pivot(row);
            if let Some((coefficients, right)) = pivot {
                hashes[solver.rights.len()] = coefficients; // overwrites a hash that was used
                solver.rights.push(right);
            }
            solver.push_row(pivot.is_some());
        }
        window.advance();
    }
    hashes.truncate(solver.rights.len());
    solver.pivots = hashes;
    (solver, bumped)
}

/// An equation seen from the first row of a bucket: the coefficients in this bucket and in the next one, and the
/// right-hand side.
#[derive(Clone, Copy, Default)]
struct Reduced {
    near: u64,
    far: u64,
    right: u64,
}

impl Reduced {
    /// The row of the first coefficient; [`NO_ROW`] if there is none.
    #[inline]
    fn row(&self) -> usize {
        if self.near != 0 {
            self.near.trailing_zeros() as usize
        } else {
            64 + self.far.trailing_zeros() as usize
        }
    }

    #[inline]
    fn add(&mut self, other: Self) {
        self.near ^= other.near;
        self.far ^= other.far;
        self.right ^= other.right;
    }
}

const NO_ROW: usize = 128;

/// The pivots of the rows of a bucket and of the next one. A row without a pivot has zeros, as has [`NO_ROW`].
struct Window {
    pivots: [Reduced; NO_ROW + 1],
    /// For each pivot of this bucket, in order: its row, and the offset at which its equation starts.
    placed: Vec<(usize, usize)>,
}

impl Default for Window {
    fn default() -> Self {
        Self { pivots: [Reduced::default(); NO_ROW + 1], placed: Vec::new() }
    }
}

impl Window {
    /// Places the keys of a bucket. Returns the offset below which they are bumped.
    fn place_bucket(&mut self, layer: &Layer, mask: u64, hashes: &[u64]) -> usize {
        self.placed.clear();
        for some in hashes.rchunks(SIDE_BY_SIDE) {
            let mut equations = [(0, Reduced::default()); SIDE_BY_SIDE];
            for (place, &hash) in equations.iter_mut().zip(some.iter().rev()) {
                let Equation { start, coefficients, right } = equation(layer, hash);
                let (near, far) = halves(start, coefficients);
                *place = (start % 64, Reduced { near, far, right: right & mask });
            }
            self.reduce(&mut equations);
            for &(offset, equation) in &equations[..some.len()] {
                if !self.place(offset, equation) {
                    let bumped_below = HALF * (1 + offset / HALF);
                    self.remove_below(bumped_below);
                    return bumped_below;
                }
            }
        }
        0
    }

    /// Adds pivots to each equation until its first row has none.
    #[inline]
    fn reduce(&self, equations: &mut [(usize, Reduced); SIDE_BY_SIDE]) {
        loop {
            let mut added = 0;
            for (_, equation) in &mut *equations {
                let pivot = self.pivots[equation.row()];
                equation.add(pivot);
                added |= pivot.near | pivot.far;
            }
            if added == 0 {
                return;
            }
        }
    }

    /// Whether the equation fits: it is independent of the others, or follows from them.
    fn place(&mut self, offset: usize, mut equation: Reduced) -> bool {
        loop {
            let row = equation.row();
            let pivot = self.pivots[row];
            if row == NO_ROW {
                return equation.right == 0;
            }
            if pivot.near | pivot.far == 0 {
                self.pivots[row] = equation;
                self.placed.push((row, offset));
                return true;
            }
            equation.add(pivot); // one that was placed side by side with this
        }
    }

    /// Removes the pivots of equations that start below the offset. They were placed last, so no other has been
    /// reduced by them.
    fn remove_below(&mut self, offset: usize) {
        while let Some((row, _)) = self.placed.pop_if(|(_, start)| *start < offset) {
            self.pivots[row] = Reduced::default();
        }
    }

    /// The coefficients from this row on and the right-hand side of its pivot.
    fn pivot(&self, row: usize) -> Option<(u64, u64)> {
        let Reduced { near, far, right } = self.pivots[row];
        let coefficients = near >> row | (far << 1).wrapping_shl(!row as u32); // by 63 − row
        (near != 0).then_some((coefficients, right))
    }

    /// Moves on by a bucket.
    fn advance(&mut self) {
        for row in 0..64 {
            let Reduced { far, right, .. } = std::mem::take(&mut self.pivots[64 + row]);
            self.pivots[row] = Reduced { near: far, far: 0, right };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ribbon::layers::is_bumped;

    /// The reference: an equation is held if its layer does not bump it.
    #[test]
    fn a_layer_holds_what_it_does_not_bump() {
        let mut most = 0;
        for (keys, segments) in [(0, 4), (200, 4), (1000, 16), (3000, 45), (30, 1), (500, 1)] {
            let layer = Layer { base: 3, segments, share: 1.0 };
            let hashes: Vec<u64> = (0..keys).map(|i| mix(mix(keys) ^ i)).collect();
            let (solver, bumped) = eliminate(&layer, 0xff, hashes.clone());
            assert_eq!(bumped.bits.len() as u64, segments);
            let mut bits = vec![0; (3 + segments as usize).div_ceil(4)];
            for (bucket, two) in (3..).zip(&bumped.bits) {
                bits[bucket / 4] |= two << (2 * (bucket % 4));
            }
            let is_bumped =
                |&hash: &u64| is_bumped(&bits, equation(&layer, hash).start) == Some(true);
            let mut expected: Vec<_> = hashes.iter().copied().filter(is_bumped).map(mix).collect();
            let mut found = bumped.hashes.clone();
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "{keys} keys in {segments} segments");
            let held = solver.pivots.len();
            assert!(held + found.len() <= keys as usize && solver.rights.len() == held);
            // Nearly each key that is not bumped has a row; some follow from others.
            assert!(held + found.len() + 12 >= keys as usize, "{held} of {keys} held");
            most = most.max(100 * held / (64 * segments as usize));
        }
        assert!(most > 95, "{most} %");
    }
}
