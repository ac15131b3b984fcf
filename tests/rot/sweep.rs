//! Runs many damaged disks on all processors, and counts the outcomes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::case::{Case, Outcome, outcome_of};
use crate::common::stride;
use crate::fixture::SEED;

/// The time after which a case counts as hanging.
const HANGS: Duration = Duration::from_secs(60);

/// Whether this is the long run.
pub(crate) fn all() -> bool {
    std::env::var("CRIBA_ROT").is_ok_and(|said| said == "all")
}

/// The number of cases with each outcome.
pub(crate) type Tally = BTreeMap<Outcome, usize>;

/// Runs `count` cases, each built when it starts, checks each outcome, and prints the tally.
pub(crate) fn sweep(
    title: &str,
    count: usize,
    case: impl Fn(usize) -> Case + Sync,
    expect: impl Fn(usize, Outcome) -> bool + Sync,
) -> Tally {
    let tally = Mutex::new(Tally::new());
    let tried = in_parallel(count, |number, begun| {
        let case = case(number);
        begun(&case.what);
        let outcome = outcome_of(&case);
        assert!(expect(number, outcome), "{}: {outcome:?} was not expected", case.what);
        *tally.lock().unwrap().entry(outcome).or_insert(0) += 1;
    });
    let tally = tally.into_inner().unwrap();
    println!("{title}: {tried} of {count} cases, seed {SEED}: {}", as_text(&tally));
    assert_eq!(tally.values().sum::<usize>(), tried);
    tally
}

/// Few cases are all tried.
const FEW: usize = 1000;

/// Runs `count` cases, or of many a part, on all processors. A case calls its second argument with what it is.
/// Returns how many it ran.
pub(crate) fn in_parallel(count: usize, case: impl Fn(usize, &dyn Fn(&str)) + Sync) -> usize {
    let stride = if count > FEW { stride() } else { 1 };
    let next = AtomicUsize::new(0);
    let work = || {
        let watched = watchdog();
        while let Some(number) =
            Some(next.fetch_add(stride, Ordering::Relaxed)).filter(|&n| n < count)
        {
            case(number, &|what| watched.send(what.to_owned()).unwrap());
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    count.div_ceil(stride)
}

/// Runs a list of cases.
pub(crate) fn sweep_all(
    title: &str,
    cases: &[Case],
    expect: impl Fn(&Case, Outcome) -> bool + Sync,
) -> Tally {
    sweep(title, cases.len(), |n| cases[n].clone(), |n, outcome| expect(&cases[n], outcome))
}

/// A tally as text.
pub(crate) fn as_text(tally: &Tally) -> String {
    let counts: Vec<_> =
        tally.iter().map(|(outcome, count)| format!("{count} {}", outcome.as_text())).collect();
    counts.join(", ")
}

/// Watches the start of cases, and ends the process if none starts for too long: a panic would not end a
/// thread that hangs.
fn watchdog() -> mpsc::Sender<String> {
    let (begun, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut what = String::new();
        loop {
            match told.recv_timeout(HANGS) {
                Ok(next) => what = next,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    eprintln!("{what}: it hangs");
                    std::process::abort();
                }
            }
        }
    });
    begun
}
