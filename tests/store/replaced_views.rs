//! Background threads drop replaced views; a lookup or a scan does not.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use criba::FilterPolicy;
use criba::vfs::{FileKind, Operation};

use crate::common::{self, HookVfs, files_with, wait_until};

/// The scan is the last holder of the tables that a compaction replaced.
#[test]
fn the_last_reader_of_replaced_tables_removes_no_file() {
    let removed_by = Arc::new(Mutex::new(Vec::new()));
    let vfs = {
        let removed_by = Arc::clone(&removed_by);
        HookVfs::new(move |kind, operation| {
            let removes = operation == Operation::Remove;
            if removes && matches!(kind, FileKind::Table | FileKind::Filter) {
                let thread = std::thread::current().name().unwrap_or("?").to_owned();
                removed_by.lock().unwrap().push(thread);
            }
            Ok(())
        })
    };
    let dir = common::tempdir();
    // A compaction at another time than below would replace other tables.
    let options = common::options().background_threads(1).auto_compaction(false).vfs(vfs);
    let db = options.open(dir.path()).unwrap();
    let put = |value: &str| {
        for number in 0..1000 {
            db.put(format!("key {number}"), value).unwrap();
        }
        db.flush().unwrap();
    };
    put("one");
    put("two");
    // Neither is the policy of any run of this test, which would rebuild nothing.
    db.rebuild_filters(&FilterPolicy::bits_per_key(6.0)).unwrap();
    let mut scan = db.iter();
    assert!(scan.next().is_some());
    db.rebuild_filters(&FilterPolicy::bits_per_key(4.0)).unwrap();
    put("three");
    db.compact().unwrap();
    let left = || (files_with(dir.path(), "sst").len(), files_with(dir.path(), "flt").len());
    let live = db.tables().len();
    wait_until("only the files of the scan", || left() == (live + 2, 2));
    let before = removed_by.lock().unwrap().len();
    std::thread::Builder::new()
        .name("reader".into())
        .spawn(move || {
            assert_eq!(scan.by_ref().count(), 999);
            drop(scan);
        })
        .unwrap()
        .join()
        .unwrap();
    wait_until("the files to go", || left() == (live, 0));
    let removed_by = removed_by.lock().unwrap().split_off(before);
    assert_eq!(removed_by.len(), 4, "{removed_by:?}");
    assert!(removed_by.iter().all(|thread| thread.starts_with("criba-compact")), "{removed_by:?}");
}

/// Removing many large files takes long, and writers wait for flushes.
#[test]
fn writers_do_not_wait_for_the_removal_of_tables() {
    let (held, holds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let vfs = {
        let (held, holds) = (Arc::clone(&held), Arc::clone(&holds));
        HookVfs::new(move |kind, operation| {
            while (kind, operation) == (FileKind::Table, Operation::Remove) && holds.load(SeqCst) {
                held.store(true, SeqCst);
                sleep(Duration::from_millis(1));
            }
            Ok(())
        })
    };
    let dir = common::tempdir();
    let options = common::options().background_threads(1).memtable_bytes(4 << 10).vfs(vfs);
    let db = options.auto_compaction(false).open(dir.path()).unwrap();
    let put = |numbers: Range<usize>| {
        numbers.for_each(|number| db.put(format!("{number:04}"), [1; 100]).unwrap());
    };
    put(0..100);
    let finished = scope(|scope| {
        let compact = scope.spawn(|| db.compact());
        wait_until("the removal of a table", || held.load(SeqCst));
        let writes = scope.spawn(|| put(100..400));
        let start = Instant::now();
        while !writes.is_finished() && start.elapsed() < Duration::from_secs(30) {
            sleep(Duration::from_millis(1));
        }
        let finished = writes.is_finished();
        holds.store(false, SeqCst);
        compact.join().unwrap().unwrap();
        finished
    });
    assert!(finished, "writers waited for a removal");
}

/// A closed store has no background threads: the last scan removes the files.
#[test]
fn a_scan_that_outlives_the_store_removes_what_it_kept() {
    let dir = common::tempdir();
    let db = common::options().background_threads(1).open(dir.path()).unwrap();
    db.put("key", "one").unwrap();
    db.flush().unwrap();
    let scan = db.iter();
    db.put("key", "two").unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    assert!(files_with(dir.path(), "sst").len() > 1);
    drop(scan);
    assert_eq!(files_with(dir.path(), "sst").len(), 1);
}
