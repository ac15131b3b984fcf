//! A store keeps no removed file open: such a file takes space on the disk.

use std::io;
use std::sync::{Arc, Mutex};

use criba::vfs::{FileKind, Operation};
use criba::{Error, FilterPolicy};

use crate::common::{self, HookVfs, files_with};

type Failing = Option<(FileKind, Operation)>;

/// A file layer on which one operation on one kind of file fails.
fn failing() -> (Arc<HookVfs>, Arc<Mutex<Failing>>) {
    let failing: Arc<Mutex<Failing>> = Arc::default();
    let hook = Arc::clone(&failing);
    let vfs = HookVfs::new(move |kind, operation| match *hook.lock().unwrap() {
        Some(fails) if fails == (kind, operation) => Err(io::Error::other("as the test wants it")),
        _ => Ok(()),
    });
    (vfs, failing)
}

/// Each new table is read back before it is recorded. One that fails is removed.
#[test]
fn tables_that_fail_their_read_back_are_not_kept_open() {
    let dir = common::tempdir();
    let (vfs, failing) = failing();
    let options = || common::options().vfs(Arc::clone(&vfs)).background_threads(0);
    let tables = || (vfs.open_files(FileKind::Table), files_with(dir.path(), "sst").len());
    let db = options().auto_compaction(false).open(dir.path()).unwrap();
    for number in 0..3 {
        db.put("key", number.to_string()).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(tables(), (3, 3));

    // Compactions read no length but that of the table they wrote.
    *failing.lock().unwrap() = Some((FileKind::Table, Operation::Length));
    for _ in 0..5 {
        assert!(matches!(db.compact(), Err(Error::Io { .. })));
        assert_eq!(tables(), (3, 3), "after a compaction");
    }
    db.put("key", "last").unwrap();
    for operation in [Operation::Length, Operation::Read] {
        *failing.lock().unwrap() = Some((FileKind::Table, operation));
        for _ in 0..5 {
            assert!(matches!(db.flush(), Err(Error::Io { .. })));
            assert_eq!(tables(), (3, 3), "after a flush");
        }
    }

    *failing.lock().unwrap() = None;
    db.close().unwrap();
    assert_eq!(tables(), (0, 3));

    *failing.lock().unwrap() = Some((FileKind::Table, Operation::Length));
    for _ in 0..5 {
        assert!(matches!(options().open(dir.path()), Err(Error::Io { .. })));
        assert_eq!(tables(), (0, 3), "after an opening that failed");
    }
    *failing.lock().unwrap() = None;
    let db = options().open(dir.path()).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "last");
    db.compact().unwrap();
    assert_eq!(tables(), (1, 1));
}

#[test]
fn filters_that_fail_their_read_back_are_not_kept_open() {
    let dir = common::tempdir();
    let (vfs, failing) = failing();
    let options = common::options().vfs(Arc::clone(&vfs)).background_threads(0);
    let db = options.filter(FilterPolicy::none()).open(dir.path()).unwrap();
    let filters = || (vfs.open_files(FileKind::Filter), files_with(dir.path(), "flt").len());
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    for operation in [Operation::Length, Operation::Read, Operation::Open, Operation::Sync] {
        *failing.lock().unwrap() = Some((FileKind::Filter, operation));
        for _ in 0..5 {
            db.rebuild_filters(&common::another_policy()).unwrap_err();
            assert_eq!(filters(), (0, 0), "{operation:?}");
        }
    }
    *failing.lock().unwrap() = None;
    db.rebuild_filters(&common::another_policy()).unwrap();
    assert_eq!(filters(), (0, 1));
}
