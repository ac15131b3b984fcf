//! The history of the requests of several clients, and whether it is linearizable: whether each request can
//! have had its effect at one moment between its call and its answer (Herlihy, Wing: "Linearizability: A
//! Correctness Condition for Concurrent Objects", 1990).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::Duration;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History as Actions};
use todc_utils::specifications::Specification;

/// A request for one key. Each written value is written once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Request {
    Put(u64),
    Delete,
    /// Whether it inserted; `None` if the answer is not known.
    Insert(u64, Option<bool>),
    /// What it found.
    Read(Option<u64>),
}

struct Register;

impl Specification for Register {
    type State = Option<u64>;
    type Operation = Request;

    fn init() -> Option<u64> {
        None
    }

    fn apply(request: &Request, state: &Option<u64>) -> (bool, Option<u64>) {
        match *request {
            Request::Put(value) => (true, Some(value)),
            Request::Delete => (true, None),
            Request::Insert(value, inserted) => {
                (inserted.is_none_or(|inserted| inserted == state.is_none()), state.or(Some(value)))
            }
            Request::Read(found) => (found == *state, *state),
        }
    }
}

const LONGEST_CHECK: Duration = Duration::from_secs(60);

/// Calls and answers in the order in which they happened.
#[derive(Default)]
pub(crate) struct History(Mutex<Events>);

#[derive(Default)]
struct Events {
    by_key: BTreeMap<usize, Vec<(usize, Action<Request>)>>,
    calls: usize,
}

/// A request without an answer.
pub(crate) struct Call {
    key: usize,
    process: usize,
    request: Request,
}

impl History {
    /// Notes a call. Each has a process number of its own, so that calls without an answer overlap all later
    /// ones.
    pub(crate) fn call(&self, key: usize, request: Request) -> Call {
        let mut events = self.0.lock().unwrap();
        let process = events.calls;
        events.calls += 1;
        events.by_key.entry(key).or_default().push((process, Action::Call(request)));
        Call { key, process, request }
    }

    /// Notes the answer to a call. `None`: the request had no effect, and is forgotten.
    pub(crate) fn answer(&self, call: &Call, answer: Option<Request>) {
        let mut events = self.0.lock().unwrap();
        let of_key = events.by_key.get_mut(&call.key).unwrap();
        match answer {
            Some(answer) => of_key.push((call.process, Action::Response(answer))),
            None => of_key.retain(|(process, _)| *process != call.process),
        }
    }

    /// Notes that a request may have its effect at any later time, or never.
    pub(crate) fn no_answer(&self, call: &Call) {
        if let Request::Read(_) = call.request {
            self.answer(call, None);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().by_key.values().map(|of_key| of_key.len() / 2).sum()
    }

    /// The keys whose history is not linearizable, or not found to be in a minute. (A history of several keys is linearizable if that of each
    /// key is.)
    pub(crate) fn violations(self) -> Vec<usize> {
        let mut violations = Vec::new();
        for (key, mut events) in self.0.into_inner().unwrap().by_key {
            let answered = |process| {
                events
                    .iter()
                    .any(|(p, event)| *p == process && matches!(event, Action::Response(_)))
            };
            // An effect behind all others is none.
            let late: Vec<_> = events
                .iter()
                .filter(|(process, _)| !answered(*process))
                .filter_map(|(process, event)| match event {
                    Action::Call(request) => Some((*process, Action::Response(*request))),
                    Action::Response(_) => None,
                })
                .collect();
            events.extend(late);
            // To find no order may take exponential time.
            let (sender, receiver) = channel();
            spawn(move || {
                let actions = Actions::from_actions(numbered(events));
                sender.send(WGLChecker::<Register>::is_linearizable(actions))
            });
            if receiver.recv_timeout(LONGEST_CHECK) != Ok(true) {
                violations.push(key);
            }
        }
        violations
    }
}

/// With processes numbered from zero, as the checker has a list for each.
fn numbered(events: Vec<(usize, Action<Request>)>) -> Vec<(usize, Action<Request>)> {
    let mut numbers = BTreeMap::new();
    let mut number = |process| {
        let next = numbers.len();
        *numbers.entry(process).or_insert(next)
    };
    events.into_iter().map(|(process, event)| (number(process), event)).collect()
}

#[test]
fn the_checker_knows_what_is_linearizable() {
    let history = |events: &[(Request, bool)]| {
        let history = History::default();
        for (request, answered) in events {
            let call = history.call(0, *request);
            if *answered {
                history.answer(&call, Some(*request));
            }
        }
        history.violations().is_empty()
    };
    let [put, other] = [1, 2].map(|value| (Request::Put(value), true));
    let read = |found| (Request::Read(found), true);
    assert!(history(&[put, read(Some(1)), other, read(Some(2))]));
    assert!(!history(&[put, other, read(Some(1))]));
    assert!(!history(&[put, read(None)]));
    // Without an answer, the effect may come later, or never.
    let late = (Request::Put(3), false);
    assert!(history(&[put, late, read(Some(1)), read(Some(3)), read(Some(3))]));
    assert!(history(&[put, late, read(Some(1))]));
    assert!(!history(&[put, late, read(Some(3)), read(Some(1))]));
    let insert = |inserted| (Request::Insert(4, Some(inserted)), true);
    assert!(history(&[insert(true), read(Some(4)), (Request::Delete, true), insert(true)]));
    assert!(!history(&[put, insert(true)]));
    assert!(!history(&[insert(false)]));
}
