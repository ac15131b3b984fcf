//! The faults after which a call may succeed, because the store goes on without the failed part and reports
//! it. All others must surface.

use criba::vfs::{Fault, FileKind, Injected, Operation};

use crate::script::Step;

/// The reports of the store during a call.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// An event or the list of tables reported a degraded or damaged filter.
    pub(crate) bad_filter: bool,
    /// L0 has enough tables for a compaction, or a level with target 0 has one, or a table has expired entries, and
    /// none took place.
    pub(crate) compaction_is_due: bool,
    /// The opening reported a log with an incomplete end, and the disk returns the same wrong bytes each
    /// time.
    pub(crate) lost_to_rot: bool,
    /// The number of tables in which a compaction found damage.
    pub(crate) damaged_tables: usize,
}

/// The part that the store goes on without, if a call may succeed despite this fault. `file_stays`: the file with
/// the fault is there after the call.
pub(crate) fn degradation(
    step: &Step,
    fault: &Injected,
    file_stays: bool,
    reports: &Reports,
) -> Option<&'static str> {
    match (step, fault.operation, fault.kind) {
        // Of an open store, which goes on in its directory whatever the path leads to.
        (_, Operation::OpenDir | Operation::Identity, FileKind::Directory) => {
            Some("a move of the directory is not noticed")
        }
        // It goes when the store is next opened.
        (_, Operation::Remove | Operation::Identity, _) => {
            Some("a file that nothing refers to stays")
        }
        (Step::Open { .. }, Operation::List, FileKind::Directory) => {
            Some("files that nothing refers to are not looked for")
        }
        // Whether it is of another store is not known, so the next opening decides.
        (
            Step::Open { .. },
            Operation::Open | Operation::Read | Operation::Length,
            FileKind::Wal | FileKind::Manifest | FileKind::Table | FileKind::Filter,
        ) if file_stays => Some("a file that nothing refers to stays"),
        // A misread header names no store.
        (
            Step::Open { .. },
            Operation::Read,
            FileKind::Wal | FileKind::Manifest | FileKind::Filter,
        ) if matches!(fault.fault, Fault::FlippedBit(_)) && !file_stays => {
            Some("a file that nothing refers to goes")
        }
        // Its table answers "maybe", or with what is in memory of it.
        (
            _,
            Operation::Open | Operation::Read | Operation::Length,
            FileKind::Filter | FileKind::Table,
        ) if reports.bad_filter => Some("a filter is degraded"),
        (step, Operation::Read, FileKind::Table)
            if reports.damaged_tables > 0 && !matches!(step, Step::Scan | Step::Gets) =>
        {
            Some("a damaged table stays where it is")
        }
        (Step::Open { .. }, ..) if reports.compaction_is_due => {
            Some("a compaction at opening is put off")
        }
        // The checksum is that of the whole filter, which is read again before it is probed.
        (
            Step::Open { filter_memory: Some(_) },
            Operation::Read,
            FileKind::Filter | FileKind::Table,
        ) if matches!(fault.fault, Fault::FlippedBit(_)) => {
            Some("the header of a filter is misread")
        }
        (Step::Open { .. }, Operation::Read, FileKind::Wal | FileKind::Manifest)
            if reports.lost_to_rot =>
        {
            Some("the end of a log is dropped and reported")
        }
        (Step::Checkpoint, Operation::HardLink, _) => Some("a file is copied instead of linked"),
        // The old one serves on.
        (Step::Flush, _, FileKind::Manifest | FileKind::Current | FileKind::Directory) => {
            Some("the manifest is not written anew")
        }
        _ => None,
    }
}
