//! A runtime on threads of its own.
//!
//! The store's calls are synchronous, those of `object_store` are not. A call sends its future to these threads and
//! waits on a channel. So it works on any thread, also on one of another runtime, which it blocks meanwhile.

use std::future::Future;
use std::sync::{Arc, mpsc};

use tokio::runtime::{Builder, Runtime as Tokio};
use tokio::task::AbortHandle;

use crate::error::{Error, Result};

/// Requests wait most of their time; two threads suffice for checksums and copies.
const THREADS: usize = 2;

#[derive(Debug)]
pub(crate) struct Runtime {
    /// `None` while it is dropped.
    tokio: Option<Tokio>,
    process: u32,
}

/// A result that comes later.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    result: mpsc::Receiver<T>,
    task: AbortHandle,
}

impl Runtime {
    pub(crate) fn start() -> std::io::Result<Arc<Self>> {
        let tokio = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("criba-object")
            .enable_all()
            .build()?;
        Ok(Arc::new(Self { tokio: Some(tokio), process: std::process::id() }))
    }

    /// Begins work.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Pending<T>> {
        // A forked process has no copy of the threads.
        if std::process::id() != self.process {
            return Err(criba::Error::Forked.into());
        }
        let tokio = self.tokio.as_ref().ok_or(Error::Closed)?;
        let (sender, result) = mpsc::sync_channel(1);
        let task = tokio.spawn(async move {
            // The receiver may have gone.
            let _ = sender.send(work.await);
        });
        Ok(Pending { result, task: task.abort_handle() })
    }

    /// Does work, and waits for its end.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.begin(work)?.wait()?
    }
}

impl<T> Pending<T> {
    pub(crate) fn wait(self) -> Result<T> {
        self.result.recv().map_err(|_| Error::Closed)
    }

    /// Ends the work at its next pause.
    pub(crate) fn aborter(&self) -> AbortHandle {
        self.task.clone()
    }
}

impl Drop for Runtime {
    /// Waits for nothing, so that it may run on a thread of a runtime.
    fn drop(&mut self) {
        let Some(tokio) = self.tokio.take() else { return };
        if std::process::id() == self.process {
            tokio.shutdown_background();
        } else {
            std::mem::forget(tokio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works_and_is_dropped_on_threads_of_other_runtimes() {
        for builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let mut builder = builder;
            let other = builder.enable_all().build().expect("a runtime");
            other.block_on(async {
                let runtime = Runtime::start().expect("a runtime");
                let answer = runtime.wait(async {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    Ok(7)
                });
                assert_eq!(answer.expect("it runs"), 7);
                drop(runtime);
            });
        }
    }

    #[test]
    fn aborted_work_ends_as_closed() {
        let runtime = Runtime::start().expect("a runtime");
        let pending = runtime.begin(std::future::pending::<()>()).expect("it begins");
        pending.aborter().abort();
        assert!(matches!(pending.wait(), Err(Error::Closed)));
    }
}
