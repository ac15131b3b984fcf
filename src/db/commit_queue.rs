//! The queue of writes: which thread appends to the log, and for which others.

use std::collections::VecDeque;
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
/// The longest wait for more requests before a sync: about half the time of a sync.
const GATHERING: Duration = Duration::from_micros(50);

/// The log in use, and the order in which threads write to it.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    writer: Mutex<Writer>,
    synced: Requests,
}

/// State of the thread that holds the writer's lock.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: LogWriter,
    pub(crate) next_seq: Seq,
    /// How long writes have still to wait because L0 has grown too far.
    pub(crate) owed: Duration,
}

impl CommitQueue {
    pub(crate) fn new(log: LogWriter, next_seq: Seq) -> Self {
        let writer = Mutex::new(Writer { log, next_seq, owed: Duration::ZERO });
        Self { writer, synced: Requests::default() }
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    /// Passes a request to `commit`. Synced requests go in groups: the first that waits commits all of them,
    /// and they share one append and one sync. A buffered request takes the writer's lock alone: the append
    /// that a group would share costs less than the wake-up of its threads.
    ///
    /// # Errors
    /// The error of `commit` for this request.
    pub(crate) fn submit(
        &self,
        request: Request,
        commit: impl Fn(&mut Writer, &[&Request]) -> Result<()>,
    ) -> Result<()> {
        if request.durability == Durability::Buffered {
            return commit(&mut self.writer.lock(), &[&request]);
        }
        let group = match self.synced.wait_for_turn(request) {
            Turn::Written(result) => return result,
            Turn::Write(group) => group,
        };
        let members: Vec<_> = group.members.iter().map(Arc::as_ref).collect();
        let mut writer = self.writer.lock();
        let result = commit(&mut writer, &members);
        // On a full disk a group may be too much where a small request still finds room. A failed append
        // leaves the log as it was.
        let one_by_one = members.len() > 1 && matches!(result, Err(Error::Io { .. }));
        for request in members {
            let result = if one_by_one { commit(&mut writer, &[request]) } else { result.clone() };
            request.finish(result);
        }
        group.result_of_first()
    }
}

/// A batch waiting to be written.
#[derive(Debug)]
pub(crate) struct Request {
    /// Its encoded changes, and their number.
    pub(crate) ops: Vec<u8>,
    pub(crate) changes: u64,
    pub(crate) durability: Durability,
    /// The result.
    done: OnceLock<Result<()>>,
}

impl Request {
    pub(crate) fn new(ops: Vec<u8>, changes: u64, durability: Durability) -> Self {
        Self { ops, changes, durability, done: OnceLock::new() }
    }

    /// Sets the result. The thread of the request sees it when its group is dropped.
    fn finish(&self, result: Result<()>) {
        let _ = self.done.set(result);
    }
}

/// Requests that wait, in order of arrival. The thread of the first one commits it with those behind it; the
/// threads of the others wait.
#[derive(Debug, Default)]
struct Requests {
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

/// How the wait of a request ended.
enum Turn<'a> {
    /// Another thread has written it.
    Written(Result<()>),
    /// It is the first of this group, and its thread writes the group.
    Write(Group<'a>),
}

impl Requests {
    /// Waits until another thread has written the request, or until it is the first in the queue.
    fn wait_for_turn(&self, request: Request) -> Turn<'_> {
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

    /// Waits a moment for the next requests of the last group's threads. Without it the first of these threads
    /// syncs alone and the others together, again and again: two syncs where one is enough.
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
    /// Takes the next group.
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

/// Requests that one thread commits. Dropping it wakes their threads and lets the next group begin.
struct Group<'a> {
    requests: &'a Requests,
    members: Vec<Arc<Request>>,
}

impl Group<'_> {
    /// The result of the first request.
    fn result_of_first(&self) -> Result<()> {
        self.members[0].done.get().cloned().unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        // A request without a result: the thread that wrote the group panicked.
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
            Turn::Written(result) => panic!("no other thread writes: {result:?}"),
        }
    }

    fn wait_for(requests: &Requests, waiting: usize) {
        while requests.queue.lock().waiting.len() < waiting {
            yield_now();
        }
    }

    #[test]
    fn waiting_requests_are_one_group_and_each_gets_its_result() {
        let requests = Requests::default();
        let groups = AtomicUsize::new(0);
        scope(|scope| {
            let group = first(&requests);
            for _ in 0..6 {
                scope.spawn(|| match requests.wait_for_turn(request(1)) {
                    Turn::Written(result) => assert!(matches!(result, Err(Error::Closed))),
                    Turn::Write(group) => {
                        groups.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(group.members.len(), 6);
                        group.members[0].finish(Ok(()));
                        assert!(group.result_of_first().is_ok());
                        // The others get no result, as after a panic.
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
                        sizes.lock().push(group.members.len());
                    }
                });
                wait_for(requests, waiting + 1);
            }
            drop(group);
        });
        assert_eq!(*sizes.lock(), [2, 2]);
    }

    #[test]
    fn a_sync_waits_a_moment_for_the_threads_of_the_last_group() {
        let requests = Requests::default();
        requests.queue.lock().writers = 3;
        let synced = || Request::new(vec![0; 1], 1, Durability::Synced);
        let start = Instant::now();
        let Turn::Write(group) = requests.wait_for_turn(synced()) else { panic!("no other thread writes") };
        assert!(start.elapsed() >= GATHERING);
        assert_eq!(group.members.len(), 1);
        drop(group);
        assert_eq!(requests.queue.lock().writers, 1);
    }
}
