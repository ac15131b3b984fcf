//! A sync covers all earlier writes, in every log: while a flush is held, writers go on in another log.

use std::sync::{Arc, Mutex};

use criba::vfs::{SimDisk, SimVfs, Unit};
use criba::{Batch, Db, Durability, Event};

use crate::common::LOG_HEADER_BYTES;
use crate::failures::{each_alone, ends};
use crate::history::{DIR, options};

/// A store with a held flush and writes in two logs. Returns the number of writes.
fn two_logs(vfs: &SimVfs, then: impl FnOnce(&Db)) -> usize {
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock().unwrap();
    let flush_waits = Arc::clone(&gate);
    let listener = move |event: &Event| {
        if matches!(event, Event::FlushStarted { .. }) {
            drop(flush_waits.lock().unwrap());
        }
    };
    let options = options().vfs(Arc::new(vfs.clone())).background_threads(1);
    let db = options.on_event(listener).open(DIR).unwrap();
    let written_logs = || {
        let disk = vfs.disk();
        let logs = disk.files().filter(|(path, _)| path.extension().is_some_and(|e| e == "log"));
        logs.filter(|(_, bytes)| bytes.len() > LOG_HEADER_BYTES).count()
    };
    let mut written = 0;
    while written_logs() < 2 {
        db.put(format!("key{written}"), [0; 100]).unwrap();
        written += 1;
    }
    then(&db);
    drop(held);
    db.close().unwrap();
    written
}

/// The number of writes that are there. They are the first ones, and later writes, which take their
/// sequence numbers, uncover no others.
fn prefix(disk: SimDisk, written: usize) -> usize {
    let db = options().vfs(Arc::new(SimVfs::on(disk))).open(DIR).unwrap();
    let is_there = |number: &usize| db.get(format!("key{number}")).unwrap().is_some();
    let found = (0..written).take_while(is_there).count();
    for number in 0..written {
        db.put(format!("later{number}"), "").unwrap();
    }
    assert_eq!(
        (found..written).find(is_there),
        None,
        "of {written} writes {found} and not the next"
    );
    found
}

#[test]
fn a_sync_covers_the_logs_of_memtables_that_are_still_to_be_flushed() {
    let syncs: [fn(&Db); 2] = [
        |db| db.sync().unwrap(),
        |db| {
            let mut batch = Batch::new();
            batch.put("last", "");
            db.write_with(batch, Durability::Synced).unwrap();
        },
    ];
    for sync in syncs {
        let vfs = SimVfs::new();
        let mut disk = SimDisk::default();
        let written = two_logs(&vfs, |db| {
            sync(db);
            [disk, _] = ends(&vfs.disk());
        });
        assert_eq!(prefix(disk, written), written);
    }
}

#[test]
fn a_log_that_was_kept_does_not_come_back_without_the_one_before_it() {
    let vfs = SimVfs::new();
    let mut disks = Vec::new();
    let written = two_logs(&vfs, |_| {
        let disk = vfs.disk();
        disks.extend(ends(&disk));
        disks.extend(each_alone(&disk, Unit::Page));
        disks.extend(each_alone(&disk, Unit::Sector));
    });
    let found: Vec<usize> = disks.into_iter().map(|disk| prefix(disk, written)).collect();
    println!("of {written} writes {found:?} were left");
    assert_eq!(found[..2], [0, written]);
    assert!(found[2..].iter().any(|&found| found < written));
}
