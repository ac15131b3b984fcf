//! Group commit: one thread writes the synced requests of several.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::key::Seq;
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, OnceLock, yield_now};
use crate::wal::LogWriter;

/// What an acknowledged write survives. A write costs no disk read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A crash of the process: the operating system has the data.
    #[default]
    Buffered,
    /// A power failure: this write and all before it are synced.
    Synced,
}

/// A group of this many bytes takes no more requests.
const GROUP_BYTES: usize = 4 << 20;
/// The longest wait for more requests: about half the time of a sync.
const GATHERING: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub(crate) struct CommitQueue {
    writer: Mutex<Writer>,
    synced: Requests,
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: LogWriter,
    pub(crate) next_seq: Seq,
    /// Time that writes have to wait because L0 has too many tables.
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

    /// Passes a request to `commit`, and returns its result. Synced requests share one append and one sync. A
    /// buffered one is committed alone: an append costs less than to wake threads.
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
        // On a full disk there may be room for a single request. A failed append does not change the log.
        let one_by_one = members.len() > 1 && matches!(result, Err(Error::Io { .. }));
        for request in members {
            let result = if one_by_one { commit(&mut writer, &[request]) } else { result.clone() };
            request.finish(result);
        }
        group.result_of_first()
    }
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) ops: Vec<u8>,
    pub(crate) entries: u64,
    pub(crate) durability: Durability,
    result: OnceLock<Result<()>>,
}

impl Request {
    pub(crate) fn new(ops: Vec<u8>, entries: u64, durability: Durability) -> Self {
        Self { ops, entries, durability, result: OnceLock::new() }
    }

    /// Sets the result. The thread of the request gets it when the group is dropped.
    fn finish(&self, result: Result<()>) {
        let _ = self.result.set(result);
    }
}

/// The queue of synced requests. The thread of the first commits a group; the others wait.
#[derive(Debug, Default)]
struct Requests {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Arc<Request>>,
    writing: bool,
    /// Threads of the last group, and those that waited behind it.
    writers: usize,
}

enum Turn<'a> {
    /// Another thread committed it.
    Written(Result<()>),
    /// It is the first of this group, to be committed.
    Write(Group<'a>),
}

impl Requests {
    /// Waits until the request is committed or the first in the queue.
    fn wait_for_turn(&self, request: Request) -> Turn<'_> {
        let request = Arc::new(request);
        let mut queue = self.queue.lock();
        queue.waiting.push_back(Arc::clone(&request));
        loop {
            if let Some(result) = request.result.get() {
                return Turn::Written(result.clone());
            }
            let first = queue.waiting.front().is_some_and(|first| Arc::ptr_eq(first, &request));
            if first && !queue.writing {
                queue.writing = true;
                return Turn::Write(Group {
                    requests: self,
                    members: self.gather(queue).next_group(),
                });
            }
            queue = self.changed.wait(queue);
        }
    }

    /// Waits a moment for the threads of the last group. Otherwise the first syncs alone, and the others
    /// together: two syncs in place of one.
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

/// Requests that one thread commits. Its drop wakes their threads and lets the next group begin.
struct Group<'a> {
    requests: &'a Requests,
    members: Vec<Arc<Request>>,
}

impl Group<'_> {
    fn result_of_first(&self) -> Result<()> {
        self.members[0].result.get().cloned().unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        // A request has no result yet if the thread of the group panicked.
        for request in &self.members {
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
        Request::new(vec![0; bytes], 1, Durability::Synced)
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
    fn waiting_requests_are_one_group_and_each_gets_a_result() {
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
    fn a_group_ends_with_the_request_that_fills_it() {
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
        let start = Instant::now();
        let group = first(&requests);
        assert!(start.elapsed() >= GATHERING);
        assert_eq!(group.members.len(), 1);
        drop(group);
        assert_eq!(requests.queue.lock().writers, 1);
    }
}
