//! The experiments, a file each.

mod costs;
mod growing;
mod hash_families;
mod skewed_input;
mod small_filter;
mod stored;
mod toy;
mod wrong_n;

use super::experiment::Experiment;

/// All of them, in the order in which they are made.
pub static ALL: &[Experiment] = &[
    small_filter::EXPERIMENT,
    hash_families::EXPERIMENT,
    skewed_input::EXPERIMENT,
    wrong_n::EXPERIMENT,
    costs::EXPERIMENT,
    growing::EXPERIMENT,
    toy::EXPERIMENT,
];
