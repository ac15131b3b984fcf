//! What opening a store came to.

use crate::wal::LostTail;

/// What opening a store found and mended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Write-ahead logs read.
    pub logs: usize,
    /// Changes replayed from them, now in tables.
    pub changes: u64,
    /// What a crash had left of unsynced writes at the end of the logs, if it was not whole.
    pub lost_tail: Option<LostTail>,
    /// The same for the manifest: a flush or compaction that was being recorded.
    pub lost_edit: Option<LostTail>,
    /// Files removed because nothing refers to them.
    pub removed_files: usize,
}
