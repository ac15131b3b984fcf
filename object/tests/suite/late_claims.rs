//! Claims of an epoch that arrive late.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criba_object::object_store::ObjectStore;
use criba_object::object_store::memory::InMemory;
use criba_object::{open, open_reader};

use crate::bucket::{Answer, Client, Request, block_on, options, store};

/// A claim that is late by more than the grace time finds the number of a removed manifest free.
#[test]
fn a_late_claim_does_not_take_the_number_of_a_removed_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let at = |name: &str| dir.path().join(name);
    let busy = options().grace(Duration::from_millis(10)).publish_every(Duration::from_millis(5));
    let first = open(store(&bucket), at("a"), busy).unwrap();
    first.set_auto_compaction(false).unwrap();
    first.put("a", "1").unwrap();
    first.sync_remote().unwrap();
    first.put("a", "2").unwrap();
    first.sync_remote().unwrap();
    let first = Arc::new(first);
    let of_hook = Arc::clone(&first);
    // The second writer has read the newest manifest, and sleeps before it creates its own.
    let late = Client::before_manifests(&bucket, move |number| {
        if number == 1 {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(300) {
                of_hook.put("a", "while the second sleeps").unwrap();
                of_hook.sync_remote().unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let second = open(late.store(), at("b"), options()).unwrap();
    second.put("b", "1").unwrap();
    let by_second = second.sync_remote();
    first.put("c", "1").unwrap();
    let by_first = first.sync_remote();
    assert!(
        by_first.is_ok() != by_second.is_ok(),
        "first {by_first:?}, second {by_second:?}, {:?} {:?}",
        first.publications(),
        second.publications()
    );
    let newest = open_reader(store(&bucket), at("r"), options()).unwrap();
    if by_second.is_ok() {
        assert!(newest.get("b").unwrap().is_some(), "sync_remote of the second returned Ok");
    } else {
        assert!(newest.get("c").unwrap().is_some(), "sync_remote of the first returned Ok");
    }
}

/// A claim arrives after the time limit, behind a second one.
#[test]
fn an_own_claim_that_arrives_late_is_no_other_writer() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let local = dir.path().join("a");
    let writer = open(store(&bucket), &local, options()).unwrap();
    writer.put("a", "1").unwrap();
    writer.sync_remote().unwrap();
    writer.put("not published", "1").unwrap();
    drop(writer);
    // The PUT of the claim gets no answer within the limit. It is still on its way.
    let sent = Arc::new(Mutex::new(None));
    let of_hook = Arc::clone(&sent);
    let late = Client::with_hook(&bucket, move |request| {
        let Request::Put(to, payload, options) = *request else { return Answer::True };
        *of_hook.lock().unwrap() = Some((to.clone(), payload.clone(), options.clone()));
        Answer::Silence
    });
    let limit = options().request_timeout(Duration::from_millis(50));
    open(late.store(), &local, limit).unwrap_err();
    assert!(sent.lock().unwrap().is_some());
    // The program tries again; then the first PUT arrives, before the second.
    let of_hook = Arc::clone(&bucket);
    let again = Client::before_manifests(&bucket, move |_| {
        if let Some((to, payload, put)) = sent.lock().unwrap().take() {
            std::thread::scope(|scope| {
                scope.spawn(|| block_on(of_hook.put_opts(&to, payload, put)).unwrap());
            });
        }
    });
    let opened = open(again.store(), &local, options());
    // It may find its own late claim, and then succeeds the next time.
    let opened = opened.or_else(|_| open(store(&bucket), &local, options()));
    let opened = opened.expect("no other writer opened the store");
    assert!(opened.get("not published").unwrap().is_some());
}
