//! The experiments, a file each, or a folder.
//!
//! To add one, write a file with a constant `EXPERIMENT`, and put its line into [`ALL`]. Its function
//! is given a [`Setting`](super::experiment::Setting), for sizes (`pick`), seeds (`random`, `hashing`),
//! directories and threads (`each`), and writes into [`Notes`](super::experiment::Notes):
//! * at least one [`Figure`](criba_cli::page::figure::Figure), and
//! * a [`Check`](super::check::Check) for each count, answer or rate that theory has a value for, `at` the
//!   figure that shows it. Times, slopes and R² go into comparisons and figures alone.
//!
//! A check must be able to fail: shifted by 20 %, theory must be out of bounds. For a rate that takes
//! some 3000 expected successes; what should be 0 is counted as its opposite; what cannot be made so is
//! an illustration. Tests make all experiments and see to this.

mod allocation;
mod applications;
mod costs;
mod cpp_paper;
mod disk_accesses;
mod growing;
mod hash_families;
mod hierarchy;
mod set_algebra;
mod skewed_input;
mod small_filter;
mod stored;
mod toy;
mod variants;
mod wrong_n;

use super::experiment::Experiment;

/// All of them, in the order in which they are made.
pub static ALL: &[Experiment] = &[
    cpp_paper::EXPERIMENT,
    disk_accesses::EXPERIMENT,
    small_filter::EXPERIMENT,
    hash_families::EXPERIMENT,
    skewed_input::EXPERIMENT,
    wrong_n::EXPERIMENT,
    costs::EXPERIMENT,
    growing::EXPERIMENT,
    hierarchy::EXPERIMENT,
    set_algebra::EXPERIMENT,
    applications::EXPERIMENT,
    variants::EXPERIMENT,
    toy::EXPERIMENT,
    allocation::EXPERIMENT,
];
