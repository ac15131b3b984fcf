//! The experiments, a file each.

mod toy;

use super::experiment::Experiment;

/// All of them, in the order in which they are made.
pub static ALL: &[Experiment] = &[toy::EXPERIMENT];
