//! The queue of writes. One thread commits its own write and those of threads that wait.

use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::condition::Condition;
use super::recent_writes::RecentWrites;
use crate::error::{Error, Result};
use crate::key::Seq;
use crate::sync::{
    AtomicUsize, Condvar, Instant, Mutex, MutexGuard, OnceLock, Ordering, yield_now,
};
use crate::wal::LogWriter;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A crash of the process: the operating system has the data.
    #[default]
    Buffered,
    /// A power failure: this write and all before it are synced. Readers may see the write before that; if the sync
    /// fails, they see it until the store is closed, and the store refuses writes.
    Synced,
}

/// A group with this many bytes takes no more batches.
const GROUP_BYTES: usize = 4 << 20;
/// The longest wait for more requests before a sync: less than the time of a sync.
const GATHERING: Duration = Duration::from_micros(120);

/// How often a thread yields while another thread has the writer. Then it sleeps.
const YIELDS: u32 = 32;

#[derive(Debug)]
pub(crate) struct CommitQueue {
    writer: Mutex<Writer>,
    buffered: Mutex<Waiting>,
    synced: Requests,
    validations: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: LogWriter,
    pub(crate) next_seq: Seq,
    /// How long the next write must wait because L0 has too many tables.
    pub(crate) throttle_debt: Duration,
    /// Whether the log after this one was demanded.
    pub(crate) has_demanded_log: bool,
    /// What was written since a validation began; empty without one.
    pub(crate) recent: RecentWrites,
}

/// A validation that goes on.
pub(crate) struct Validation<'a>(&'a AtomicUsize);

impl Drop for Validation<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the queue does with requests.
pub(crate) trait Commit {
    /// Runs before a group with synced requests is appended. An error changes nothing.
    fn before_sync(&self) -> Result<()>;

    /// Appends the requests of a group, inserts and publishes their entries.
    fn commit(&self, writer: &mut Writer, group: &[&Request]) -> Result<()>;

    /// Makes durable what was appended before the call, without the writer's lock: other threads write
    /// meanwhile.
    fn sync(&self) -> Result<()>;
}

impl CommitQueue {
    pub(crate) fn new(log: LogWriter, next_seq: Seq) -> Self {
        let throttle_debt = Duration::ZERO;
        let recent = RecentWrites::default();
        let writer = Writer { log, next_seq, throttle_debt, has_demanded_log: false, recent };
        Self {
            writer: Mutex::new(writer),
            buffered: Mutex::default(),
            synced: Requests::default(),
            validations: AtomicUsize::new(0),
        }
    }

    /// Lets commits keep the keys that they write, until the result is dropped.
    pub(crate) fn begin_validation(&self) -> Validation<'_> {
        // A commit that does not see this leaves a gap, which a later one notices.
        self.validations.fetch_add(1, Ordering::Relaxed);
        Validation(&self.validations)
    }

    /// The number of validations that go on.
    pub(crate) fn validations(&self) -> usize {
        self.validations.load(Ordering::Relaxed)
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    pub(crate) fn try_writer(&self) -> Option<MutexGuard<'_, Writer>> {
        self.writer.try_lock()
    }

    /// Passes a request to `store`, alone or in a group with requests of other threads. A group is written
    /// by one append and at most one sync.
    pub(crate) fn submit(&self, request: Request, store: &impl Commit) -> Result<()> {
        match request.durability {
            Durability::Buffered => self.submit_buffered(request, store),
            Durability::Synced => self.submit_synced(request, store),
        }
    }

    /// Flat combining (Hendler, Incze, Shavit, Tzafrir: "Flat Combining and the Synchronization-Parallelism
    /// Tradeoff", 2010). The thread that has the writer also commits the requests of the threads that wait
    /// for the writer. These threads yield: a commit takes less time than to sleep and wake up.
    fn submit_buffered(&self, request: Request, store: &impl Commit) -> Result<()> {
        if let Some(mut writer) = self.writer.try_lock() {
            let others = self.take_buffered();
            if others.0.is_empty() {
                return store.commit(&mut writer, &[&request]);
            }
            let group: Vec<&Request> = iter::once(&request).chain(others.requests()).collect();
            commit_buffered(&mut writer, &group, store);
            return request.result();
        }
        let request = Arc::new(request);
        self.buffered.lock().push_back(Arc::clone(&request));
        let mut yields = 0;
        while request.done.get().is_none() {
            let writer =
                if yields < YIELDS { self.writer.try_lock() } else { Some(self.writer.lock()) };
            match writer {
                Some(mut writer) => {
                    let others = self.take_buffered();
                    let group: Vec<&Request> = others.requests().collect();
                    commit_buffered(&mut writer, &group, store);
                }
                None => yield_now(),
            }
            yields += 1;
        }
        request.result()
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.buffered.lock().len()
    }

    fn take_buffered(&self) -> Members {
        next_group(&mut self.buffered.lock())
    }

    /// The thread of the first waiting request commits it together with the requests behind it. The other
    /// threads sleep: a sync takes long.
    fn submit_synced(&self, request: Request, store: &impl Commit) -> Result<()> {
        let group = match self.synced.wait_for_turn(request) {
            Turn::Written(result) => return result,
            Turn::Write(group) => group,
        };
        let requests: Vec<&Request> = group.members.requests().collect();
        let results = store.before_sync().map_or_else(
            |error| vec![Err(error); requests.len()],
            |()| commit_each(&mut self.writer.lock(), &requests, store),
        );
        let synced = if results.iter().any(Result::is_ok) { store.sync() } else { Ok(()) };
        for (request, result) in requests.iter().zip(results) {
            request.finish(result.and_then(|()| synced.clone()));
        }
        requests[0].result()
    }
}

fn commit_buffered(writer: &mut Writer, group: &[&Request], store: &impl Commit) {
    for (request, result) in group.iter().zip(commit_each(writer, group, store)) {
        request.finish(result);
    }
}

/// Commits a group. Returns the result of each request.
fn commit_each(writer: &mut Writer, group: &[&Request], store: &impl Commit) -> Vec<Result<()>> {
    if group.is_empty() {
        return Vec::new();
    }
    let result = store.commit(writer, group);
    // On a full disk a group may be too much where a small request still finds room. A failed append leaves
    // the log as it was.
    if group.len() > 1 && matches!(result, Err(Error::Io { .. })) {
        return group.iter().map(|request| store.commit(writer, &[request])).collect();
    }
    vec![result; group.len()]
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) ops: Vec<u8>,
    pub(crate) entries: u64,
    pub(crate) durability: Durability,
    pub(crate) condition: Option<Arc<Condition>>,
    done: OnceLock<Result<()>>,
}

impl Request {
    pub(crate) fn new(ops: Vec<u8>, entries: u64, durability: Durability) -> Self {
        Self { ops, entries, durability, condition: None, done: OnceLock::new() }
    }

    pub(crate) fn only_if(self, condition: Arc<Condition>) -> Self {
        Self { condition: Some(condition), ..self }
    }

    fn finish(&self, result: Result<()>) {
        let _ = self.done.set(result);
    }

    fn result(&self) -> Result<()> {
        self.done.get().cloned().unwrap_or(Err(Error::Closed))
    }
}

type Waiting = VecDeque<Arc<Request>>;

/// The requests of a group.
#[derive(Debug)]
struct Members(Vec<Arc<Request>>);

impl Members {
    fn requests(&self) -> impl Iterator<Item = &Request> {
        self.0.iter().map(Arc::as_ref)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        // The thread that commits a request gives it a result, unless that thread panics.
        for request in self.0.iter().filter(|request| request.done.get().is_none()) {
            request.finish(Err(Error::Closed));
        }
    }
}

fn next_group(waiting: &mut Waiting) -> Members {
    let mut bytes = 0;
    let mut group = Vec::new();
    while bytes < GROUP_BYTES
        && let Some(request) = waiting.pop_front()
    {
        bytes += request.ops.len();
        group.push(request);
    }
    Members(group)
}

#[derive(Debug, Default)]
struct Requests {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Waiting,
    writing: bool,
    /// The requests of the last group, and those that waited when it ended.
    writers: usize,
}

enum Turn<'a> {
    Written(Result<()>),
    /// The request is the first of this group. The caller writes the group.
    Write(Group<'a>),
}

impl Requests {
    /// Waits until another thread has written the request, or until this thread may write it.
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
                queue = self.gather(queue);
                return Turn::Write(Group {
                    requests: self,
                    members: next_group(&mut queue.waiting),
                });
            }
            queue = self.changed.wait(queue);
        }
    }

    /// Waits a moment for the next requests of the last group's threads. Otherwise the first of these threads
    /// would sync alone, and the others together: two syncs where one is enough.
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

/// The group that a thread writes. Dropping it wakes the threads of its requests, and the next group begins.
struct Group<'a> {
    requests: &'a Requests,
    members: Members,
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        let size = self.members.0.len();
        self.members = Members(Vec::new()); // all have a result before their threads wake up
        let mut queue = self.requests.queue.lock();
        queue.writing = false;
        queue.writers = size + queue.waiting.len();
        if queue.writers > 1 {
            self.requests.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::scope;

    use super::*;
    use crate::error::IoContext;
    use crate::store_dir::StoreDir;
    use crate::vfs::SimVfs;
    use crate::wal::{FileHeader, LogKind};

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
                        assert_eq!(group.members.0.len(), 6);
                        group.members.0[0].finish(Ok(()));
                        assert!(group.members.0[0].result().is_ok());
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

    fn queue() -> CommitQueue {
        let dir = StoreDir::of(SimVfs::new(), "/");
        let log = LogWriter::create(
            &dir,
            LogKind::Wal,
            4,
            FileHeader { features: 0, store: 77, salt: 5 },
            true,
        );
        CommitQueue::new(log.expect("a sound disk"), 1)
    }

    struct Sizes<F> {
        commit: F,
        sizes: Mutex<Vec<usize>>,
    }

    impl<F: Fn(usize) -> Result<()>> Commit for Sizes<F> {
        fn before_sync(&self) -> Result<()> {
            Ok(())
        }

        fn commit(&self, _: &mut Writer, group: &[&Request]) -> Result<()> {
            self.sizes.lock().push(group.len());
            (self.commit)(group.len())
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }
    }

    /// Submits three buffered requests while the writer is locked. Returns the sizes of the committed groups
    /// and the results, `None` for a panic.
    fn three_wait(
        commit: impl Fn(usize) -> Result<()> + Sync,
    ) -> (Vec<usize>, Vec<Option<Result<()>>>) {
        let (queue, store) = (queue(), Sizes { commit, sizes: Mutex::default() });
        let submit = || queue.submit(Request::new(vec![0; 1], 1, Durability::Buffered), &store);
        let results = scope(|scope| {
            let writer = queue.writer();
            let threads = [(); 3].map(|()| scope.spawn(submit));
            while queue.buffered.lock().len() < 3 {
                yield_now();
            }
            drop(writer);
            threads.map(|thread| thread.join().ok()).into()
        });
        let sizes = store.sizes.lock().clone();
        (sizes, results)
    }

    #[test]
    fn one_thread_commits_the_buffered_requests_that_wait() {
        let (sizes, results) = three_wait(|_| Ok(()));
        assert_eq!(sizes, [3]);
        assert!(results.iter().all(|result| matches!(result, Some(Ok(())))));
        let full = || {
            Err(io::Error::from(io::ErrorKind::StorageFull)).context("append", Path::new("/log"))
        };
        let (sizes, results) = three_wait(|size| if size > 1 { full() } else { Ok(()) });
        assert_eq!(sizes, [3, 1, 1, 1]);
        assert!(results.iter().all(|result| matches!(result, Some(Ok(())))));
    }

    #[test]
    fn a_panic_of_the_committing_thread_ends_the_wait_of_the_others() {
        let (sizes, results) = three_wait(|_| panic!("a bug"));
        assert_eq!(sizes, [3]);
        assert_eq!(results.iter().filter(|result| result.is_none()).count(), 1);
        let closed = |result: &&Option<_>| matches!(result, Some(Err(Error::Closed)));
        assert_eq!(results.iter().filter(closed).count(), 2);
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
                        sizes.lock().push(group.members.0.len());
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
        let Turn::Write(group) = requests.wait_for_turn(request(1)) else {
            panic!("no other thread writes")
        };
        assert!(start.elapsed() >= GATHERING);
        assert_eq!(group.members.0.len(), 1);
        drop(group);
        assert_eq!(requests.queue.lock().writers, 1);
    }
}
