//! Whether the concurrent calls on one key have an order that explains their results.

use std::collections::HashSet;

/// A call on the key, with its result. `None` is an absent key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Set(Option<u64>),
    Get(Option<u64>),
    Swap { expected: Option<u64>, new: Option<u64>, made: bool },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) call: Call,
    /// The times before the call and after it.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Call {
    /// Whether the call has its result with this value before.
    fn fits(self, value: Option<u64>) -> bool {
        match self {
            Self::Set(_) => true,
            Self::Get(found) => found == value,
            Self::Swap { expected, made, .. } => made == (expected == value),
        }
    }

    fn value_after(self, value: Option<u64>) -> Option<u64> {
        match self {
            Self::Set(new) | Self::Swap { new, made: true, .. } => new,
            Self::Get(_) | Self::Swap { made: false, .. } => value,
        }
    }
}

/// Searches for an order of the calls of several threads that has each result and puts no call before one
/// that ended earlier (Wing and Gong: "Testing and Verifying Concurrent Objects", 1993). At first the key is
/// absent.
pub(crate) fn is_linearizable(threads: &[Vec<Event>]) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(vec![0; threads.len()], None)];
    while let Some((done, value)) = open.pop() {
        let next = |thread: usize| threads[thread].get(done[thread]);
        let Some(first_end) = (0..threads.len()).filter_map(next).map(|event| event.to).min()
        else {
            return true;
        };
        for thread in 0..threads.len() {
            let Some(event) = next(thread).filter(|event| event.from <= first_end) else {
                continue;
            };
            if event.call.fits(value) {
                let mut done = done.clone();
                done[thread] += 1;
                let state = (done, event.call.value_after(value));
                if seen.insert(state.clone()) {
                    open.push(state);
                }
            }
        }
    }
    false
}

#[test]
fn two_winners_and_a_stale_read_are_not_linearizable() {
    let event = |call, from, to| Event { call, from, to };
    let insert = |new, made| Call::Swap { expected: None, new: Some(new), made };
    let beside =
        |first, second| is_linearizable(&[vec![event(first, 0, 5)], vec![event(second, 1, 4)]]);
    assert!(beside(insert(1, true), insert(2, false)));
    assert!(!beside(insert(1, true), insert(2, true)));
    assert!(!beside(insert(1, false), insert(2, false)));
    assert!(beside(insert(1, true), Call::Get(None)));
    let then =
        |first, second| is_linearizable(&[vec![event(first, 0, 1)], vec![event(second, 2, 3)]]);
    assert!(then(insert(1, true), Call::Get(Some(1))));
    assert!(!then(insert(1, true), Call::Get(None)));
    assert!(then(Call::Set(None), insert(1, true)));
}
