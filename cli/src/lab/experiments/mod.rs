//! The experiments, a file each.

mod cpp_paper;
mod disk_accesses;
mod small_filter;
mod toy;

use super::experiment::Experiment;

/// All of them, in the order in which they are made.
pub static ALL: &[Experiment] =
    &[cpp_paper::EXPERIMENT, disk_accesses::EXPERIMENT, small_filter::EXPERIMENT, toy::EXPERIMENT];
