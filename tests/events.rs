//! What a store tells the program around it of its flushes and compactions.

mod common;

use std::sync::{Arc, Mutex};

use criba::vfs::SimVfs;
use criba::{Event, FilterPolicy};

#[test]
fn work_is_told_of_when_it_begins_and_when_it_ends() {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let told = || std::mem::take(&mut *events.lock().unwrap());
    let listener = Arc::clone(&events);
    let db = common::options()
        .vfs(Arc::new(SimVfs::new()))
        .background_threads(0)
        .auto_compaction(false)
        .on_event(Arc::new(move |event| listener.lock().unwrap().push(event.clone())))
        .open("/store")
        .unwrap();
    let ids = || -> Vec<u64> { db.tables().iter().map(|table| table.id).collect() };
    assert_eq!(told(), []);
    db.flush().unwrap();
    assert_eq!(told(), [], "there was nothing to flush");

    for round in 0..2 {
        db.put("key", round.to_string()).unwrap();
        db.flush().unwrap();
        let new = ids().into_iter().max().unwrap();
        match told().as_slice() {
            [Event::FlushStarted { .. }, Event::FlushEnded { tables, error: None, .. }] => {
                assert_eq!(*tables, [new]);
            }
            other => panic!("{other:?}"),
        }
    }

    let mut before = ids();
    before.sort_unstable();
    db.compact().unwrap();
    match told().as_slice() {
        [
            Event::CompactionStarted { tables: inputs, output_level: to, .. },
            Event::CompactionEnded { tables, output_level, error: None, .. },
        ] => {
            let mut inputs = inputs.clone();
            inputs.sort_unstable();
            assert_eq!(inputs, before);
            assert_eq!(*tables, ids());
            assert_eq!((*to, *output_level), (db.tables()[0].level, db.tables()[0].level));
        }
        other => panic!("{other:?}"),
    }

    db.rebuild_filters(&FilterPolicy::none()).unwrap();
    assert!(matches!(told()[..], [Event::FilterRebuilt { .. }]), "no key had to be read");
    db.rebuild_filters(&FilterPolicy::compact()).unwrap();
    let [table] = ids()[..] else { panic!("one table") };
    match told()[..] {
        [
            Event::FilterRebuildStarted { table: started, .. },
            Event::FilterRebuilt { table: rebuilt, .. },
        ] => assert_eq!((started, rebuilt), (table, table)),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_flush_that_fails_says_why() {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let listener = Arc::clone(&events);
    let vfs = common::HookVfs::new(|kind, operation| {
        use criba::vfs::{FileKind, Operation};
        let fails = (kind, operation) == (FileKind::Table, Operation::Append);
        if fails { Err(common::no_space()) } else { Ok(()) }
    });
    let dir = tempfile::tempdir().unwrap();
    let db = common::options()
        .vfs(vfs)
        .background_threads(0)
        .on_event(Arc::new(move |event| listener.lock().unwrap().push(event.clone())))
        .open(dir.path())
        .unwrap();
    db.put("key", "value").unwrap();
    let error = db.flush().unwrap_err();
    let told = std::mem::take(&mut *events.lock().unwrap());
    match told.as_slice() {
        [Event::FlushStarted { .. }, Event::FlushEnded { tables, error: Some(said), .. }] => {
            assert!(tables.is_empty());
            assert_eq!(*said, error.to_string());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}
