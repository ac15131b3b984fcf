//! Handles that a callback of the store holds or drops.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use criba::vfs::{SimVfs, Vfs};
use criba::{Db, Error, Event, Options, WeakDb};

use crate::common::{self, wait_until};

fn options(vfs: &SimVfs) -> Options {
    common::options()
        .vfs(Arc::new(vfs.clone()))
        .memtable_bytes(4096)
        .l0_compaction_trigger(2)
        .background_threads(1)
}

/// Makes two flushes and a compaction due, and waits for none.
fn fill(db: &Db) {
    for number in 0..3 {
        db.put("key", vec![number; 5000]).unwrap();
    }
}

fn check(db: &Db) {
    assert_eq!(db.get("key").unwrap().unwrap(), vec![2; 5000]);
}

/// Opens the store once its directory is unlocked.
fn reopened(vfs: &SimVfs) -> Db {
    let dir = vfs.open_dir("/store".as_ref()).unwrap();
    let free = || dir.lock("LOCK".as_ref(), 0o600).is_ok();
    wait_until("the store to be closed", free);
    options(vfs).open("/store").unwrap()
}

/// Closing waits for the store's threads. A thread that drops the last handle in a callback must not wait
/// for itself, nor for the task that called the callback.
#[test]
fn the_last_handle_dropped_in_a_callback_closes_the_store() {
    for drops_at in [
        |event: &Event| matches!(event, Event::FlushStarted { .. }),
        |event: &Event| matches!(event, Event::FlushEnded { .. }),
        |event: &Event| matches!(event, Event::CompactionStarted { .. }),
        |event: &Event| matches!(event, Event::CompactionEnded { .. }),
    ] {
        let vfs = SimVfs::new();
        let last: Arc<Mutex<Option<Db>>> = Arc::default();
        let (reached, dropped): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let callback = {
            let (last, reached, dropped) = (last.clone(), reached.clone(), dropped.clone());
            move |event: &Event| {
                if drops_at(event) && !reached.swap(true, Ordering::SeqCst) {
                    wait_until("the last handle", || last.lock().unwrap().is_some());
                    let db = last.lock().unwrap().take();
                    drop(db);
                    dropped.store(true, Ordering::SeqCst);
                }
            }
        };
        let db = options(&vfs).on_event(callback).open("/store").unwrap();
        fill(&db);
        wait_until("the event", || reached.load(Ordering::SeqCst));
        *last.lock().unwrap() = Some(db);
        wait_until("the handle to be dropped", || dropped.load(Ordering::SeqCst));
        check(&reopened(&vfs));
    }
}

/// A weak handle in a callback gives a handle while the store is open, and does not keep it open.
#[test]
fn a_store_closes_although_a_callback_holds_a_weak_handle() {
    for threads in [0, 1] {
        let vfs = SimVfs::new();
        let weak: Arc<OnceLock<WeakDb>> = Arc::default();
        let found = Arc::new(AtomicUsize::new(0));
        let callback = {
            let (weak, found) = (weak.clone(), found.clone());
            move |_: &Event| {
                if let Some(db) = weak.get().and_then(WeakDb::upgrade) {
                    assert!(db.get("key").unwrap().is_some());
                    found.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        let options = || options(&vfs).background_threads(threads);
        let db = options().on_event(callback).open("/store").unwrap();
        weak.set(db.downgrade()).unwrap();
        fill(&db);
        db.wait_until_settled().unwrap();
        assert!(found.load(Ordering::SeqCst) >= 4, "{threads} threads: {found:?}");
        let other = db.clone();
        drop(db);
        check(&weak.get().unwrap().upgrade().unwrap());
        drop(other);
        assert!(weak.get().unwrap().upgrade().is_none());
        check(&reopened(&vfs));
    }
}

/// `close` waits for a flush, whose callback takes and drops a handle meanwhile.
#[test]
fn a_callback_takes_a_handle_of_a_store_that_is_being_closed() {
    let vfs = SimVfs::new();
    let weak: Arc<OnceLock<WeakDb>> = Arc::default();
    let (flushing, saw_the_end): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
    let callback = {
        let (weak, flushing, saw_the_end) = (weak.clone(), flushing.clone(), saw_the_end.clone());
        move |event: &Event| {
            if matches!(event, Event::FlushStarted { .. }) && !flushing.swap(true, Ordering::SeqCst)
            {
                let upgrade = || weak.get().and_then(WeakDb::upgrade).expect("a handle is alive");
                let closed = || matches!(upgrade().get("key"), Err(Error::Closed));
                wait_until("the store to be closed", closed);
                saw_the_end.store(true, Ordering::SeqCst);
            }
        }
    };
    let db = options(&vfs).on_event(callback).open("/store").unwrap();
    weak.set(db.downgrade()).unwrap();
    fill(&db);
    wait_until("a flush", || flushing.load(Ordering::SeqCst));
    db.close().unwrap();
    assert!(saw_the_end.load(Ordering::SeqCst));
    check(&reopened(&vfs));
}

/// On a background thread, and on a flushing caller's.
#[test]
fn a_store_can_be_closed_in_a_callback() {
    for threads in [0, 1] {
        let vfs = SimVfs::new();
        let weak: Arc<OnceLock<WeakDb>> = Arc::default();
        let callback = {
            let weak = weak.clone();
            move |event: &Event| {
                if matches!(event, Event::FlushStarted { .. }) {
                    let db = weak.get().and_then(WeakDb::upgrade).expect("a handle is alive");
                    db.close().unwrap();
                }
            }
        };
        let options = options(&vfs).background_threads(threads);
        let db = options.on_event(callback).open("/store").unwrap();
        weak.set(db.downgrade()).unwrap();
        db.put("key", [2; 5000]).unwrap();
        assert!(matches!(db.flush(), Err(Error::Closed)));
        check(&reopened(&vfs));
        assert!(matches!(db.get("key"), Err(Error::Closed)));
    }
}
