//! What an open store tells the program around it, as it happens.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::inspect::FilterInfo;

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
}

/// Who is told.
#[derive(Clone, Default)]
pub(crate) struct Listener(pub(crate) Option<Arc<Callback>>);

type Callback = dyn Fn(&Event) + Send + Sync;

impl Listener {
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(callback) = &self.0 {
            callback(event);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a callback" } else { "nobody" })
    }
}
