//! The number of distinct disks after failures, by the interrupted phase.

use std::fmt;

use crate::history::Phase;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) distinct: usize,
    by_phase: [usize; 4],
    pub(crate) max_depth: usize,
    pub(crate) operations: usize,
    /// Manifests written anew while the store was open.
    pub(crate) rewritings: usize,
    /// Compressed tables at the ends of openings.
    pub(crate) compressed: usize,
}

impl Tally {
    /// Counts a disk after failures at these depths; the first one interrupted these phases.
    /// these phases.
    pub(crate) fn count(&mut self, phases: &[Phase], depth: usize) {
        self.distinct += 1;
        self.max_depth = self.max_depth.max(depth);
        for phase in Phase::ALL {
            let recovers = depth > 1 && phase == Phase::Recovery;
            self.by_phase[phase as usize] += usize::from(recovers || phases.contains(&phase));
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.distinct += other.distinct;
        for (sum, more) in self.by_phase.iter_mut().zip(other.by_phase) {
            *sum += more;
        }
        self.max_depth = self.max_depth.max(other.max_depth);
        self.operations += other.operations;
        self.rewritings += other.rewritings;
        self.compressed += other.compressed;
    }

    pub(crate) fn of(&self, phase: Phase) -> usize {
        self.by_phase[phase as usize]
    }

    /// Parses the text that [`Display`](fmt::Display) writes.
    pub(crate) fn parse(text: &str) -> Self {
        let numbers: Vec<usize> = text.split(' ').map(|word| word.parse().unwrap()).collect();
        let [distinct, a, b, c, d, max_depth, operations, rewritings, compressed] = numbers[..]
        else {
            panic!("not a tally: {text}");
        };
        Self { distinct, by_phase: [a, b, c, d], max_depth, operations, rewritings, compressed }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { distinct, by_phase: [a, b, c, d], max_depth, operations, .. } = self;
        let Self { rewritings, compressed, .. } = self;
        write!(f, "{distinct} {a} {b} {c} {d} {max_depth} {operations} {rewritings} {compressed}")
    }
}
