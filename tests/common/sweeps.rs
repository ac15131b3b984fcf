//! How many cases of a long sweep a run tries.

/// The variable that makes sweeps full.
const SWEEPS: &str = "CRIBA_TEST_SWEEPS";

/// One case of so many is tried: all with `CRIBA_TEST_SWEEPS=full`, as `.ci/run` and the sabotages have it, else
/// one in five.
pub(crate) fn stride() -> usize {
    match std::env::var(SWEEPS) {
        Ok(part) if part == "full" => 1,
        Ok(other) => panic!("{SWEEPS} is full or not there, not {other:?}"),
        Err(_) => 5,
    }
}

/// Whether this run tries all cases.
pub(crate) fn is_full() -> bool {
    stride() == 1
}

/// The part of a number of cases that this run tries.
pub(crate) fn part(of_all: usize) -> usize {
    of_all / stride()
}
