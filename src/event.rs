//! Events of an open store, and the callback that gets them.

use std::cell::Cell;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::inspect::FilterInfo;
use crate::sync::thread_local;

/// An event of an open store; see [`Options::on_event`](crate::Options::on_event).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A table's filter is damaged or unreadable, so it answers "maybe": lookups cost disk reads and miss no
    /// key. [`Db::rebuild_filters`](crate::Db::rebuild_filters) or a compaction of the table makes it again.
    #[non_exhaustive]
    FilterDegraded {
        /// The table's id.
        table: u64,
        /// The file of the filter: the table, or a filter file.
        path: PathBuf,
        /// Where the filter starts in the file.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A table has a new filter, or none any more.
    #[non_exhaustive]
    FilterRebuilt {
        /// The table's id.
        table: u64,
        /// The new filter.
        filter: FilterInfo,
    },
    /// A table's keys are read, to build a new filter.
    #[non_exhaustive]
    FilterRebuildStarted {
        /// The table's id.
        table: u64,
    },
    /// A flush began.
    #[non_exhaustive]
    FlushStarted {},
    /// A flush ended.
    #[non_exhaustive]
    FlushEnded {
        /// The ids of the new tables; none if no entry was left to write, or on an error.
        tables: Vec<u64>,
        /// Why it failed; the memtable is flushed again later.
        error: Option<String>,
    },
    /// A compaction began.
    #[non_exhaustive]
    CompactionStarted {
        /// The ids of its inputs.
        tables: Vec<u64>,
        /// The level of its outputs.
        output_level: usize,
    },
    /// A compaction ended.
    #[non_exhaustive]
    CompactionEnded {
        /// The ids of its outputs, moved tables included; none on an error.
        tables: Vec<u64>,
        /// Their level.
        output_level: usize,
        /// Why it failed; its inputs stay.
        error: Option<String>,
    },
}

impl fmt::Display for Event {
    /// One line, for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FilterDegraded { table, path, offset, reason } => {
                let path = path.display();
                write!(f, "table {table}: degraded filter in {path} at offset {offset}: {reason}")
            }
            Self::FilterRebuilt { table, filter } => {
                write!(f, "table {table}: another filter: {filter}")
            }
            Self::FilterRebuildStarted { table } => {
                write!(f, "table {table}: another filter is being made")
            }
            Self::FlushStarted {} => f.write_str("flush: began"),
            Self::FlushEnded { error: Some(error), .. } => write!(f, "flush: failed: {error}"),
            Self::FlushEnded { tables, .. } => write!(f, "flush: ended, tables {tables:?}"),
            Self::CompactionStarted { tables, output_level } => {
                write!(f, "compaction to L{output_level}: began, tables {tables:?}")
            }
            Self::CompactionEnded { output_level, error: Some(error), .. } => {
                write!(f, "compaction to L{output_level}: failed: {error}")
            }
            Self::CompactionEnded { tables, output_level, .. } => {
                write!(f, "compaction to L{output_level}: ended, tables {tables:?}")
            }
        }
    }
}

/// The callback for events, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Listener(pub(crate) Option<Arc<Callback>>);

type Callback = dyn Fn(&Event) + Send + Sync;

impl Listener {
    pub(crate) fn notify(&self, event: &Event) {
        if let Some(callback) = &self.0 {
            let _running = Running::begin();
            callback(event);
        }
    }
}

thread_local! {
    /// How many callbacks run on this thread, one inside another.
    static CALLBACKS: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread runs a callback; work of a store waits for its return.
pub(crate) fn in_callback() -> bool {
    CALLBACKS.with(|callbacks| callbacks.get() > 0)
}

/// A callback that runs on this thread, until this is dropped.
struct Running;

impl Running {
    fn begin() -> Self {
        CALLBACKS.with(|callbacks| callbacks.set(callbacks.get() + 1));
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CALLBACKS.with(|callbacks| callbacks.set(callbacks.get() - 1));
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a callback" } else { "no callback" })
    }
}
