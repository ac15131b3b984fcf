//! The faults that no call returns an error for, because the store goes on without what failed, and
//! says so. Everything else must surface.

use criba::vfs::{Fault, FileKind, Injected, Operation};

use crate::script::Step;

/// What the store told during a call, beside its result.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// An event or the list of tables reported a degraded or damaged filter.
    pub(crate) bad_filter: bool,
    /// Tables on L0 of which a compaction was due and did not take place.
    pub(crate) compaction_is_due: bool,
    /// Opening reported that the end of a log is not whole, and the disk gives the same wrong bytes
    /// each time.
    pub(crate) lost_to_rot: bool,
}

/// What the store does without, if a call may succeed in spite of this fault.
pub(crate) fn degradation(step: &Step, fault: &Injected, told: &Told) -> Option<&'static str> {
    match (step, fault.operation, fault.kind) {
        // It goes when the store is next opened.
        (_, Operation::Remove, _) => Some("a file that nothing refers to stays"),
        (Step::Open { .. }, Operation::List, FileKind::Directory) => {
            Some("files that nothing refers to are not looked for")
        }
        // Its table answers "maybe", or with what is in memory of it.
        (
            _,
            Operation::Open | Operation::Read | Operation::Length,
            FileKind::Filter | FileKind::Table,
        ) if told.bad_filter => Some("a filter is degraded"),
        (Step::Open { .. }, ..) if told.compaction_is_due => {
            Some("a compaction at opening is put off")
        }
        // The checksum is that of the whole filter, which is read anew before it is asked.
        (
            Step::Open { filter_memory: Some(_) },
            Operation::Read,
            FileKind::Filter | FileKind::Table,
        ) if matches!(fault.fault, Fault::FlippedBit(_)) => {
            Some("the header of a filter is misread")
        }
        (Step::Open { .. }, Operation::Read, FileKind::Wal | FileKind::Manifest)
            if told.lost_to_rot =>
        {
            Some("the end of a log is dropped and reported")
        }
        // The old one serves on.
        (Step::Flush, _, FileKind::Manifest | FileKind::Current | FileKind::Directory) => {
            Some("the manifest is not written anew")
        }
        _ => None,
    }
}
