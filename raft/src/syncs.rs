//! The thread that syncs. All that wait when a sync begins share it.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, spawn};

use criba::{Db, Result};
use tokio::sync::oneshot;

type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// Clones share the thread. The last one waits until it ended, so that the store is closed then.
#[derive(Debug, Clone)]
pub(crate) struct Syncs(Arc<Thread>);

struct Thread {
    /// `None` while the thread ends.
    waiting: Option<Sender<Callback>>,
    handle: Option<JoinHandle<()>>,
}

impl Syncs {
    pub(crate) fn start(db: Db) -> Self {
        let (waiting, callbacks) = channel();
        let handle = spawn(move || run(&db, &callbacks));
        Self(Arc::new(Thread { waiting: Some(waiting), handle: Some(handle) }))
    }

    /// Calls `callback`, on the thread that syncs, once all earlier writes are synced, or have failed.
    pub(crate) fn then(&self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        let sent = self.0.waiting.as_ref().map(|waiting| waiting.send(Box::new(callback)));
        // The thread ended: only a panic does that.
        if let Some(Err(unsent)) = sent {
            unsent.0(Err(criba::Error::Closed));
        }
    }

    /// Waits until all earlier writes are synced.
    pub(crate) async fn done(&self) -> crate::Result<()> {
        let (sender, receiver) = oneshot::channel();
        self.then(move |result| {
            let _ = sender.send(result); // the task that waited may be gone
        });
        Ok(receiver.await.unwrap_or(Err(criba::Error::Closed))?)
    }
}

fn run(db: &Db, callbacks: &Receiver<Callback>) {
    while let Ok(first) = callbacks.recv() {
        let group: Vec<_> = std::iter::once(first).chain(callbacks.try_iter()).collect();
        let result = db.sync();
        for callback in group {
            callback(result.clone());
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.waiting.take());
        let _ = self.handle.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").finish_non_exhaustive()
    }
}
