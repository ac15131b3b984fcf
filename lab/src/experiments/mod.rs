//! The experiments: a file or folder each.
//!
//! To add one, write a file with a constant `EXPERIMENT` and add it to [`ALL`]. Its function gets a
//! [`Setting`](super::experiment::Setting), with sizes (`pick`), seeds (`random`, `hashing`), directories and
//! threads (`each`), and fills [`Notes`](super::experiment::Notes):
//! * at least one [`Figure`](criba_report::figure::Figure), and
//! * a [`Check`](super::check::Check) for each count, answer or rate that theory gives, `at` the figure that
//!   shows it. Times, slopes and R² are for comparisons and figures only.
//!
//! A check must be able to fail: with theory shifted by 20 % it must be out of bounds, which takes about 3000
//! expected successes for a rate. Count the opposite of what should be 0. Other checks are illustrations.
//! Tests run all experiments and verify this.

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

/// All experiments in order.
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
