//! What a task needs to write tables.

use std::sync::Arc;

use crate::expiry::{Millis, Moment};
use crate::sstable::{TableEnv, TableSettings, TableWriter};
use criba_filter::store::Recipe;

pub(crate) struct MergeContext<'a> {
    pub(crate) env: &'a Arc<TableEnv>,
    pub(crate) settings: &'a TableSettings,
    /// The recipe for a table that is written; `None` for no filter.
    pub(crate) filter_for: &'a dyn Fn(&TableWriter) -> Option<Recipe>,
    /// The data bytes at which an output ends, at the next new user key.
    pub(crate) table_bytes: u64,
    /// Whether filters are ignored, as if each answered "maybe".
    pub(crate) ignore_filters: bool,
    /// Ascending.
    pub(crate) snapshots: Vec<Moment>,
    /// What expired up to this time may go, unless a snapshot needs it.
    pub(crate) over: Millis,
    /// Whether to stop: the store is closing, or the merge is no longer wanted.
    pub(crate) cancelled: &'a dyn Fn() -> bool,
}

impl<'a> MergeContext<'a> {
    /// A context without snapshots that is never cancelled, as of a flush outside an open store.
    pub(crate) fn of_flush(
        env: &'a Arc<TableEnv>,
        settings: &'a TableSettings,
        filter_for: &'a dyn Fn(&TableWriter) -> Option<Recipe>,
        ignore_filters: bool,
    ) -> Self {
        Self {
            env,
            settings,
            filter_for,
            table_bytes: u64::MAX,
            ignore_filters,
            snapshots: Vec::new(),
            over: 0,
            cancelled: &|| false,
        }
    }
}
