//! The options of a store in a bucket.

use std::sync::Arc;
use std::time::Duration;

use criba::vfs::{RealVfs, Vfs};

/// The options of [`open`](crate::open) and [`open_reader`](crate::open_reader).
#[derive(Debug, Clone)]
#[must_use = "options do nothing until a store is opened with them"]
pub struct Options {
    pub(crate) store: criba::Options,
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) file_mode: u32,
    pub(crate) local_bytes: u64,
    pub(crate) backlog_bytes: u64,
    pub(crate) publish_every: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) retry_for: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            store: criba::Options::new(),
            vfs: Arc::new(RealVfs),
            file_mode: 0o600,
            local_bytes: 1 << 30,
            backlog_bytes: 1 << 30,
            publish_every: Some(Duration::from_secs(60)),
            grace: Duration::from_secs(3600),
            request_timeout: Duration::from_secs(30),
            retry_for: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The options of the local store. Its [file layer](criba::Options::vfs) is replaced: set [`vfs`](Self::vfs).
    pub fn store(mut self, options: criba::Options) -> Self {
        self.store = options;
        self
    }

    /// The file layer of all local files. By default the operating system's.
    pub fn vfs(mut self, vfs: impl Vfs + 'static) -> Self {
        self.vfs = Arc::new(vfs);
        self
    }

    /// The mode of new local files. By default `0o600`.
    pub fn file_mode(mut self, mode: u32) -> Self {
        self.file_mode = mode;
        self.store = self.store.file_mode(mode);
        self
    }

    /// The bytes of published tables that a writer keeps whole on the local disk, tables of the first levels first. By
    /// default a gibibyte. Of other tables it keeps filter and index, about 2 % of the bytes. Readers keep no table
    /// whole.
    pub fn local_bytes(mut self, bytes: u64) -> Self {
        self.local_bytes = bytes;
        self
    }

    /// The bytes of tables that are not published yet, by default a gibibyte. The writer publishes at half of it. At
    /// all of it writes wait until a publication succeeds; nothing is lost. Memtables come on top.
    pub fn backlog_bytes(mut self, bytes: u64) -> Self {
        self.backlog_bytes = bytes;
        self
    }

    /// How often the writer publishes on its own, by default each minute. `None`: only at
    /// [`sync_remote`](crate::ObjectDb::sync_remote), at [`close`](crate::ObjectDb::close), and when
    /// [`backlog_bytes`](Self::backlog_bytes) is half full.
    pub fn publish_every(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.publish_every = interval.into();
        self
    }

    /// How long readers can use a version after a later one was published, by default an hour. Then the writer removes the
    /// objects that only earlier versions have. The manifest has it, for readers and other commands.
    /// A later writer can lengthen it, not shorten it.
    pub fn grace(mut self, time: Duration) -> Self {
        self.grace = time;
        self
    }

    /// The time limit of one request, by default 30 s.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// How long a request that fails is repeated, by default a minute. A lookup waits so long for its block.
    pub fn retry_for(mut self, limit: Duration) -> Self {
        self.retry_for = limit;
        self
    }
}
