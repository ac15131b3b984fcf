//! The events of flushes and compactions.

use std::sync::{Arc, Mutex};

use criba::vfs::SimVfs;
use criba::{Error, Event, FilterPolicy};

use crate::common;

#[test]
fn events_mark_the_start_and_the_end_of_tasks() {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let taken = || std::mem::take(&mut *events.lock().unwrap());
    let listener = Arc::clone(&events);
    let db = common::options()
        .vfs(Arc::new(SimVfs::new()))
        .background_threads(0)
        .auto_compaction(false)
        .on_event(move |event| listener.lock().unwrap().push(event.clone()))
        .open("/store")
        .unwrap();
    let ids = || -> Vec<u64> { db.tables().iter().map(|table| table.id).collect() };
    assert_eq!(taken(), []);
    db.flush().unwrap();
    assert_eq!(taken(), [], "there was nothing to flush");

    for round in 0..2 {
        db.put("key", round.to_string()).unwrap();
        db.flush().unwrap();
        let new = ids().into_iter().max().unwrap();
        match taken().as_slice() {
            [Event::FlushStarted { .. }, Event::FlushEnded { tables, error: None, .. }] => {
                assert_eq!(*tables, [new]);
            }
            other => panic!("{other:?}"),
        }
    }

    let mut before = ids();
    before.sort_unstable();
    db.compact().unwrap();
    match taken().as_slice() {
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
    assert!(matches!(taken()[..], [Event::FilterRebuilt { .. }]), "no key had to be read");
    db.rebuild_filters(&common::another_policy()).unwrap();
    let [table] = ids()[..] else { panic!("one table") };
    match taken()[..] {
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
    let dir = common::tempdir();
    let db = common::options()
        .vfs(vfs)
        .background_threads(0)
        .on_event(move |event| listener.lock().unwrap().push(event.clone()))
        .open(dir.path())
        .unwrap();
    db.put("key", "value").unwrap();
    let error = db.flush().unwrap_err();
    let taken = std::mem::take(&mut *events.lock().unwrap());
    match taken.as_slice() {
        [Event::FlushStarted { .. }, Event::FlushEnded { tables, error: Some(said), .. }] => {
            assert!(tables.is_empty());
            assert_eq!(*said, error.to_string());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// After a panic on a background thread, half-done work is not installed, and no thread waits for ever.
#[test]
fn a_panic_in_background_work_poisons_and_loses_nothing() {
    for panics_at in [
        |event: &Event| matches!(event, Event::FlushStarted { .. }),
        |event: &Event| matches!(event, Event::CompactionStarted { .. }),
    ] {
        let vfs = Arc::new(SimVfs::new());
        let options = || common::options().vfs(Arc::clone(&vfs)).memtable_bytes(4096);
        let listener = move |event: &Event| assert!(!panics_at(event), "as the test wants it");
        let db = options()
            .background_threads(1)
            .l0_compaction_trigger(2)
            .on_event(listener)
            .open("/store")
            .unwrap();
        let key = |number: u32| number.to_be_bytes();
        let refused = (0..).find_map(|i| db.put(key(i), [0; 100]).err().map(|error| (i, error)));
        let (written, error) = refused.unwrap();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        assert!(error.to_string().contains("a panic"), "{error}");
        assert!(matches!(db.sync(), Err(Error::Poisoned { .. })));
        for number in 0..written {
            assert!(db.get(key(number)).unwrap().is_some(), "{number} of {written}");
        }
        assert!(db.close().is_err());

        let db = options().background_threads(0).open("/store").unwrap();
        for number in 0..written {
            assert!(db.get(key(number)).unwrap().is_some(), "{number} of {written}, reopened");
        }
    }
}
