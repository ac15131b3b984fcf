//! The experiments, a file each, or a folder.

mod allocation;
mod applications;
mod cpp_paper;
mod disk_accesses;
mod hierarchy;
mod set_algebra;
mod small_filter;
mod toy;
mod variants;

use super::experiment::Experiment;

/// All of them, in the order in which they are made.
pub static ALL: &[Experiment] = &[
    cpp_paper::EXPERIMENT,
    disk_accesses::EXPERIMENT,
    small_filter::EXPERIMENT,
    hierarchy::EXPERIMENT,
    set_algebra::EXPERIMENT,
    applications::EXPERIMENT,
    variants::EXPERIMENT,
    toy::EXPERIMENT,
    allocation::EXPERIMENT,
];
