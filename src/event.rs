//! What an open store tells the program around it, as it happens.

use std::cell::Cell;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::inspect::FilterInfo;
use crate::sync::thread_local;

/// Something that the program around a store may want to know when it happens. See
/// [`Options::on_event`](crate::Options::on_event).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A table's filter cannot be trusted, so the table answers "maybe": its lookups cost disk reads,
    /// and none of its keys is missed. [`Db::rebuild_filters`](crate::Db::rebuild_filters) mends it,
    /// and so does the next compaction that takes the table.
    #[non_exhaustive]
    FilterDegraded {
        /// The table's id.
        table: u64,
        /// The file that holds the filter: the table's own, or one beside it.
        path: PathBuf,
        /// Where in that file the filter starts.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A table has another filter, or none any more, while its data stayed as it was.
    #[non_exhaustive]
    FilterRebuilt {
        /// The table's id.
        table: u64,
        /// Its filter from now on.
        filter: FilterInfo,
    },
    /// A table's keys are being read, to write another filter beside it.
    #[non_exhaustive]
    FilterRebuildStarted {
        /// The table's id.
        table: u64,
    },
    /// A memtable is being written to a table.
    #[non_exhaustive]
    FlushStarted {},
    /// That came to its end.
    #[non_exhaustive]
    FlushEnded {
        /// The ids of the new tables; none, if all was deleted again, or on an error.
        tables: Vec<u64>,
        /// Why the memtable stays, to be flushed again later.
        error: Option<String>,
    },
    /// Tables are being merged, or moved a level down.
    #[non_exhaustive]
    CompactionStarted {
        /// The tables' ids.
        tables: Vec<u64>,
        /// The level that the outcome goes to.
        output_level: usize,
    },
    /// That came to its end.
    #[non_exhaustive]
    CompactionEnded {
        /// The ids of the tables that came of it, those that were moved included; none on an error.
        tables: Vec<u64>,
        /// The level that they are on.
        output_level: usize,
        /// Why the tables that were to be merged stay.
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

/// Who is told.
#[derive(Clone, Default)]
pub(crate) struct Listener(pub(crate) Option<Arc<Callback>>);

type Callback = dyn Fn(&Event) + Send + Sync;

impl Listener {
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(callback) = &self.0 {
            let _running = Running::begin();
            callback(event);
        }
    }
}

thread_local! {
    /// How many callbacks are running on this thread, one inside another.
    static CALLBACKS: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is in a callback, so that some work of a store waits for its return.
pub(crate) fn in_callback() -> bool {
    CALLBACKS.with(|callbacks| callbacks.get() > 0)
}

/// Guard: a callback is running on this thread.
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
        f.write_str(if self.0.is_some() { "a callback" } else { "nobody" })
    }
}
