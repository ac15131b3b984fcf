use std::cell::Cell;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::filter::FilterPolicy;
use crate::inspect::FilterInfo;
use crate::sync::thread_local;
use criba_filter::store::shown;

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
        /// The file that holds the filter: the table's own file, or a filter file.
        path: PathBuf,
        /// The offset of the filter in the file.
        offset: u64,
        /// What is wrong with the filter.
        reason: String,
    },
    /// A compaction or rebuild met a damaged block. Compactions leave the table where it is, and what is newer
    /// above it; its keys are found, or give this error. [`verify`](crate::verify) lists all damage, and
    /// [`repair`](crate::repair) copies the rest. Comes once for each table, until the store is opened again.
    #[non_exhaustive]
    TableDamaged {
        /// The table's id.
        table: u64,
        /// The table's file.
        path: PathBuf,
        /// The offset of the damage in the file.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// The stored policy has blocked filters, which stores no longer have. Tables get Bloom filters of the same
    /// bits; a blocked filter of a table is degraded until it is replaced.
    #[non_exhaustive]
    PolicyReplaced {
        /// The stored policy.
        stored: FilterPolicy,
        /// The policy in force.
        policy: FilterPolicy,
    },
    /// At the opening, the clock is behind the time that the store recorded, by less than an hour. The [time of the
    /// store](crate::Db::now) stands still until the clock has caught up, and keys live longer by as much.
    #[non_exhaustive]
    ClockBehind {
        /// The time of the clock.
        clock: SystemTime,
        /// The time that the store recorded.
        recorded: SystemTime,
    },
    /// A table has a new filter, or its filter was removed.
    #[non_exhaustive]
    FilterRebuilt {
        /// The table's id.
        table: u64,
        /// The new filter.
        filter: FilterInfo,
        /// How long it took.
        duration: Duration,
    },
    /// The keys of a table are now read, to build a new filter.
    #[non_exhaustive]
    FilterRebuildStarted {
        /// The table's id.
        table: u64,
    },
    /// The path of the store leads to another directory, or to none, because the directory was renamed. The
    /// store continues in the directory that it opened. Comes once: before a later flush or compaction, after a
    /// later synced write (the path is looked up at every 64th), or at the close. A removed directory poisons the
    /// store instead.
    #[non_exhaustive]
    DirectoryMoved {
        /// The path.
        path: PathBuf,
    },
    /// Background work of one kind fails. It is tried again until it succeeds, without another of these events;
    /// [`Activity::tasks_failed`](crate::Activity::tasks_failed) counts the attempts. Writes wait once there are
    /// too many tables on L0 or too many memtables.
    #[non_exhaustive]
    BackgroundFailed {
        /// `flush` or `compaction`.
        work: &'static str,
        /// Why it fails.
        error: String,
    },
    /// Background work that failed succeeds again.
    #[non_exhaustive]
    BackgroundRecovered {
        /// As of [`BackgroundFailed`](Self::BackgroundFailed).
        work: &'static str,
    },
    /// A flush began.
    #[non_exhaustive]
    FlushStarted {},
    /// A flush ended.
    #[non_exhaustive]
    FlushEnded {
        /// The ids of the new tables. Empty on an error, or if there was no entry to write.
        tables: Vec<u64>,
        /// The bytes of these tables.
        bytes: u64,
        /// How long it took.
        duration: Duration,
        /// Why the flush failed. It is tried again.
        error: Option<String>,
    },
    /// A compaction began.
    #[non_exhaustive]
    CompactionStarted {
        /// The ids of the inputs.
        tables: Vec<u64>,
        /// The level of the outputs.
        output_level: usize,
    },
    /// A compaction ended.
    #[non_exhaustive]
    CompactionEnded {
        /// The ids of the outputs, moved tables included. Empty on an error.
        tables: Vec<u64>,
        /// The level of the outputs.
        output_level: usize,
        /// The bytes of the tables that it wrote; 0 if tables moved.
        bytes: u64,
        /// How long it took.
        duration: Duration,
        /// Why the compaction failed. The inputs stay live.
        error: Option<String>,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FilterDegraded { table, path, offset, reason } => {
                let path = shown(path);
                write!(f, "table {table}: degraded filter in {path} at offset {offset}: {reason}")
            }
            Self::TableDamaged { table, path, offset, reason } => {
                let path = shown(path);
                write!(f, "table {table}: damaged in {path} at offset {offset}: {reason}")
            }
            Self::PolicyReplaced { stored, policy } => {
                write!(f, "policy: {policy}, instead of {stored}, which stores no longer have")
            }
            Self::ClockBehind { clock, recorded } => {
                let [clock, recorded] = [*clock, *recorded].map(humantime::format_rfc3339_millis);
                write!(
                    f,
                    "the clock shows {clock}: the time of the store stands still at {recorded}"
                )
            }
            Self::FilterRebuilt { table, filter, .. } => {
                write!(f, "table {table}: its filter was replaced: {filter}")
            }
            Self::FilterRebuildStarted { table } => {
                write!(f, "table {table}: a new filter is being made")
            }
            Self::DirectoryMoved { path } => {
                let path = shown(path);
                write!(f, "{path}: leads elsewhere; the store continues in the directory it opened")
            }
            Self::BackgroundFailed { work, error } => {
                write!(f, "background work ({work}): fails: {error}")
            }
            Self::BackgroundRecovered { work } => {
                write!(f, "background work ({work}): succeeds again")
            }
            Self::FlushStarted {} => f.write_str("flush: began"),
            Self::FlushEnded { error: Some(error), .. } => write!(f, "flush: failed: {error}"),
            Self::FlushEnded { tables, bytes, duration, .. } => {
                write!(f, "flush: ended after {duration:.1?}, tables {tables:?}, {bytes} bytes")
            }
            Self::CompactionStarted { tables, output_level } => {
                write!(f, "compaction to L{output_level}: began, tables {tables:?}")
            }
            Self::CompactionEnded { output_level, error: Some(error), .. } => {
                write!(f, "compaction to L{output_level}: failed: {error}")
            }
            Self::CompactionEnded { tables, output_level, bytes, duration, .. } => write!(
                f,
                "compaction to L{output_level}: ended after {duration:.1?}, tables {tables:?}, {bytes} bytes"
            ),
        }
    }
}

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
    static CALLBACKS: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread runs a callback. The task that caused the event waits for the callback to return.
pub(crate) fn in_callback() -> bool {
    CALLBACKS.with(|callbacks| callbacks.get() > 0)
}

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
