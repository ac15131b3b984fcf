//! What writers hand to the one that writes for them all.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::key::Seq;
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, OnceLock, yield_now};
use crate::wal::LogWriter;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A crash of the process: the operating system has the data.
    #[default]
    Buffered,
    /// A power failure: the data is synced, and so is everything written before it.
    Synced,
}

/// A group takes no further batches beyond this many bytes.
const GROUP_BYTES: usize = 4 << 20;
/// How long the first of a group that will be synced waits for those that wrote a moment ago: about half
/// of what a sync takes, which they would wait for else.
const GATHERING: Duration = Duration::from_micros(50);

/// What the one writer at a time holds.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: LogWriter,
    pub(crate) next_seq: Seq,
    /// How long writes have still to wait because L0 has grown too far.
    pub(crate) owed: Duration,
}

/// A batch waiting to be written.
#[derive(Debug)]
pub(crate) struct Request {
    /// Its encoded changes, and their number.
    pub(crate) ops: Vec<u8>,
    pub(crate) changes: u64,
    pub(crate) durability: Durability,
    /// What came of it.
    done: OnceLock<Result<()>>,
}

impl Request {
    pub(crate) fn new(ops: Vec<u8>, changes: u64, durability: Durability) -> Self {
        Self { ops, changes, durability, done: OnceLock::new() }
    }

    /// Says what came of it, to be seen once its group is dropped.
    pub(crate) fn finish(&self, result: Result<()>) {
        let _ = self.done.set(result);
    }
}

/// The batches waiting to be written, in the order in which they came. The first of them is written by
/// its own thread, together with those behind it; the others wait until that is done.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<Request>>,
    /// Whether a group is being written.
    writing: bool,
    /// How many threads wrote or waited when the last group was written.
    writers: usize,
}

/// What a request that waited is to do.
pub(crate) enum Turn<'a> {
    /// Nothing: another thread has written it.
    Written(Result<()>),
    /// Write this group, which it is the first of.
    Write(Group<'a>),
}

impl Requests {
    /// Waits until another thread has written the batch, or no thread before this one is left to do so.
    pub(crate) fn wait_for_turn(&self, request: Request) -> Turn<'_> {
        let request = Arc::new(request);
        let mut queue = self.queue.lock();
        queue.waiting.push_back(Arc::clone(&request));
        loop {
            if let Some(result) = request.done.get() {
                return Turn::Written(result.clone());
            }
            let first = queue.waiting.front().is_some_and(|first| Arc::ptr_eq(first, &request));
            if first && !queue.writing {
                queue.writing = true;
                if request.durability == Durability::Synced {
                    queue = self.gather(queue);
                }
                return Turn::Write(Group { requests: self, members: queue.next_group() });
            }
            queue = self.changed.wait(queue);
        }
    }

    /// Lets the threads of the last group come back with their next batch. Without this they would find
    /// the first of them syncing its own alone, and so on in turn: two syncs where one does.
    fn gather<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        if queue.waiting.len() < queue.writers {
            let start = Instant::now();
            while queue.waiting.len() < queue.writers && start.elapsed() < GATHERING {
                drop(queue);
                yield_now();
                queue = self.queue.lock();
            }
        }
        queue
    }
}

impl Queue {
    /// The next ones that go together.
    fn next_group(&mut self) -> Vec<Arc<Request>> {
        let mut bytes = 0;
        let mut group = Vec::new();
        while bytes < GROUP_BYTES
            && let Some(request) = self.waiting.pop_front()
        {
            bytes += request.ops.len();
            group.push(request);
        }
        group
    }
}

/// Batches that one thread writes together. When it is dropped, their threads see what came of them,
/// and the next group can be written.
pub(crate) struct Group<'a> {
    requests: &'a Requests,
    members: Vec<Arc<Request>>,
}

impl Group<'_> {
    /// What came of the first batch.
    pub(crate) fn result_of_first(&self) -> Result<()> {
        self.members[0].done.get().cloned().unwrap_or(Err(Error::Closed))
    }
}

impl Deref for Group<'_> {
    type Target = [Arc<Request>];

    fn deref(&self) -> &[Arc<Request>] {
        &self.members
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        // All have finished, unless their writer panicked.
        for request in self.members.iter().filter(|request| request.done.get().is_none()) {
            request.finish(Err(Error::Closed));
        }
        let mut queue = self.requests.queue.lock();
        queue.writing = false;
        queue.writers = self.members.len() + queue.waiting.len();
        if queue.writers > 1 {
            self.requests.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::scope;

    use super::*;

    fn request(bytes: usize) -> Request {
        Request::new(vec![0; bytes], 1, Durability::Buffered)
    }

    fn first(requests: &Requests) -> Group<'_> {
        match requests.wait_for_turn(request(1)) {
            Turn::Write(group) => group,
            Turn::Written(result) => panic!("nobody else writes: {result:?}"),
        }
    }

    fn wait_for(requests: &Requests, waiting: usize) {
        while requests.queue.lock().waiting.len() < waiting {
            yield_now();
        }
    }

    #[test]
    fn who_waits_goes_together_and_sees_what_came_of_it() {
        let requests = Requests::default();
        let groups = AtomicUsize::new(0);
        scope(|scope| {
            let group = first(&requests);
            for _ in 0..6 {
                scope.spawn(|| match requests.wait_for_turn(request(1)) {
                    Turn::Written(result) => assert!(matches!(result, Err(Error::Closed))),
                    Turn::Write(group) => {
                        groups.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(group.len(), 6);
                        group[0].finish(Ok(()));
                        assert!(group.result_of_first().is_ok());
                        // And nothing of the others, as after a panic.
                    }
                });
            }
            wait_for(&requests, 6);
            drop(group);
        });
        assert_eq!(groups.into_inner(), 1);
        drop(first(&requests));
    }

    #[test]
    fn a_group_ends_with_the_batch_that_makes_it_large() {
        let requests = Requests::default();
        let sizes = Mutex::new(Vec::new());
        scope(|scope| {
            let group = first(&requests);
            for (waiting, bytes) in [1, GROUP_BYTES, 1, 1].into_iter().enumerate() {
                let (requests, sizes) = (&requests, &sizes);
                scope.spawn(move || {
                    if let Turn::Write(group) = requests.wait_for_turn(request(bytes)) {
                        sizes.lock().push(group.len());
                    }
                });
                wait_for(requests, waiting + 1);
            }
            drop(group);
        });
        assert_eq!(*sizes.lock(), [2, 2]);
    }

    /// Or not for long, if they do not come.
    #[test]
    fn who_syncs_waits_for_those_that_wrote_a_moment_ago() {
        let requests = Requests::default();
        requests.queue.lock().writers = 3;
        let synced = || Request::new(vec![0; 1], 1, Durability::Synced);
        let start = Instant::now();
        let Turn::Write(group) = requests.wait_for_turn(synced()) else { panic!("nobody writes") };
        assert!(start.elapsed() >= GATHERING);
        assert_eq!(group.len(), 1);
        drop(group);
        assert_eq!(requests.queue.lock().writers, 1);
    }
}
