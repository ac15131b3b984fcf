//! Keys that expire: the rules of time, of conditions and snapshots, and of what merges drop. Random operations are in
//! `model`, windows in `expiry_window`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use criba::vfs::{Call, Layer, LayeredVfs, Operation, RealVfs};
use criba::{
    Batch, Change, CheckpointFiles, Db, Durability, Error, Event, Expiry, Membership, Options,
    Outcome, Reader, Step, TableStep, Uncertain, repair, verify,
};

use crate::common::{self, ManualClock};

const S: Duration = Duration::from_secs(1);
const BEGIN: Duration = Duration::from_secs(1_700_000_000);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(BEGIN))
}

fn options(clock: &Arc<ManualClock>) -> Options {
    common::options().background_threads(0).clock(Arc::clone(clock) as _)
}

/// A store in its own directory, and its clock.
fn store() -> (tempfile::TempDir, Arc<ManualClock>, Db) {
    let (dir, clock) = (common::tempdir(), clock());
    let db = options(&clock).open(dir.path().join("store")).unwrap();
    (dir, clock, db)
}

#[test]
fn a_key_is_absent_from_its_time_on_and_its_entry_ends_the_lookup() {
    for flushed in [false, true] {
        let (_dir, clock, db) = store();
        db.put("k", "old").unwrap();
        db.flush().unwrap();
        db.put_with_expiry("k", "new", clock.time() + 10 * S + Duration::from_nanos(1)).unwrap();
        if flushed {
            db.flush().unwrap();
        }
        clock.advance(10 * S);
        assert_eq!(db.get("k").unwrap().unwrap(), "new", "rounded up");
        clock.advance(Duration::from_millis(1));
        assert_eq!(db.get("k").unwrap(), None);
        assert_eq!(db.get_many(&["k"]).unwrap(), [None]);
        assert_eq!(db.iter().count() + db.iter().rev().count(), 0);
        let explained = db.explain("k").unwrap();
        let outcome = explained.steps.iter().find_map(|step| match step {
            Step::Table { step: TableStep::Probed { outcome, .. }, .. } => Some(*outcome),
            _ => None,
        });
        assert_eq!(outcome, flushed.then_some(Outcome::Expired), "{explained}");
        let counts = explained.counts();
        assert_eq!(counts.disk_reads + counts.cache_hits, flushed.into(), "only its own block");
        assert_eq!(db.may_contain("k").unwrap(), Membership::Maybe);
    }
}

#[test]
fn a_key_that_is_renewed_in_time_is_never_absent() {
    for how in 0..7 {
        for flushed in [false, true] {
            let (_dir, clock, db) = store();
            db.put_with_expiry("k", "1", clock.time() + 10 * S).unwrap();
            if how % 2 == 0 {
                db.flush().unwrap();
            }
            clock.advance(9 * S);
            let writer = db.clone();
            clock.before_next_reading(move |clock| {
                if flushed {
                    writer.flush().unwrap();
                }
                writer.put_with_expiry("k", "1", clock.time() + 100 * S).unwrap();
                if flushed {
                    writer.flush().unwrap();
                }
                clock.advance(2 * S);
            });
            let is_there = match how {
                0 | 1 => db.get("k").unwrap().is_some(),
                2 => db.get_many(&["k"]).unwrap()[0].is_some(),
                3 => db.iter().next().is_some(),
                4 => db.iter().next_back().is_some(),
                5 => db.explain("k").unwrap().value.is_some(),
                _ => db.write(Batch::new().require("k", "1").put("x", "")).is_ok(),
            };
            assert!(is_there, "{how}, flushed: {flushed}");
        }
    }
}

#[test]
fn each_write_takes_the_default_unless_it_has_an_expiry_of_its_own() {
    let (dir, clock) = (common::tempdir(), clock());
    let path = dir.path().join("store");
    let of = |clock: &Arc<ManualClock>, ttl: Option<Duration>| options(clock).default_ttl(ttl);
    let db = of(&clock, Some(10 * S)).open(&path).unwrap();
    db.put("put", "").unwrap();
    db.write(Batch::new().put("batch", "").put_expiring("never", "", Expiry::Never)).unwrap();
    assert!(db.insert_if_absent("inserted", "").unwrap());
    assert!(db.compare_and_swap("swapped", None, Some(b"")).unwrap());
    let mut transaction = db.transaction();
    transaction.put("transaction", "").put_expiring("later", "", clock.time() + 20 * S);
    transaction.commit(Durability::Buffered).unwrap();
    db.ingest([Ok::<_, Error>(("ingested", ""))]).unwrap();
    assert!(db.insert_if_absent_until("until", "", clock.time() + 20 * S).unwrap());
    let keys = |db: &Db| db.keys().map(|key| key.unwrap().to_vec()).collect::<Vec<_>>();
    let expiry = |db: &Db, key: &str| db.get_with_expiry(key).unwrap().unwrap().1;
    assert_eq!(keys(&db).len(), 9);
    clock.advance(10 * S);
    assert_eq!(keys(&db), [&b"later"[..], b"never", b"until"]);
    // The store keeps it: at an opening that says nothing, and in copies.
    db.checkpoint(dir.path().join("copy")).unwrap();
    db.close().unwrap();
    repair(&path, dir.path().join("repaired"), Uncertain::Accept).unwrap();
    for name in ["store", "copy", "repaired"] {
        let db = options(&clock).accept_clock(true).open(dir.path().join(name)).unwrap();
        assert_eq!(keys(&db), [&b"later"[..], b"never", b"until"], "{name}");
        assert_eq!(expiry(&db, "never"), None, "{name}");
        db.put("new", "").unwrap();
        assert_eq!(expiry(&db, "new"), Some(db.now() + 10 * S), "{name}");
        assert_eq!(db.default_ttl(), Some(10 * S), "{name}");
        db.close().unwrap();
        // And forgets it when it is removed.
        let db = of(&clock, None).open(dir.path().join(name)).unwrap();
        db.put("new", "").unwrap();
        assert_eq!(expiry(&db, "new"), None, "{name}");
        assert_eq!(db.default_ttl(), None, "{name}");
    }
}

#[test]
fn a_group_judges_its_conditions_by_one_time() {
    let (_dir, clock, db) = store();
    let until = clock.time() + 10 * S;
    assert!(db.insert_if_absent_until("k", "1", until).unwrap());
    assert!(!db.insert_if_absent("k", "2").unwrap());
    clock.advance(10 * S);
    assert!(db.insert_if_absent("k", "2").unwrap(), "the expired entry is in the memtable");
    // The value of a condition expires between its lookup and its commit.
    db.put_with_expiry("owner", "ada", clock.time() + 10 * S).unwrap();
    db.flush().unwrap();
    clock.advance(9 * S);
    // The lookup reads the clock first, then the commit does.
    let at_commit = Arc::clone(&clock);
    clock.before_next_reading(move |_| {
        at_commit.before_next_reading(|clock| clock.advance(2 * S));
    });
    let written = db.write(Batch::new().require("owner", "ada").put("taken", ""));
    assert!(matches!(written, Err(Error::ConditionFailed { key }) if key == "owner"));
    assert!(!db.contains("taken").unwrap());
}

#[test]
fn snapshots_scans_and_transactions_have_the_time_of_their_beginning() {
    let (_dir, clock, db) = store();
    db.put_with_expiry("k", "value", clock.time() + 10 * S).unwrap();
    db.put_with_expiry("l", "value", clock.time() + 10 * S).unwrap();
    let (snapshot, mut scan, transaction) = (db.snapshot(), db.iter(), db.transaction());
    clock.advance(20 * S);
    assert_eq!(db.iter().count(), 0);
    for _ in 0..2 {
        assert_eq!(snapshot.get("k").unwrap().unwrap(), "value");
        assert_eq!(transaction.get("k").unwrap().unwrap(), "value");
        assert_eq!(snapshot.iter().rev().count(), 2);
        db.compact().unwrap();
    }
    assert!(scan.next().is_some() && scan.next_back().is_some());
    // A hole that a later scan notes is none for the snapshot.
    for number in 0..200_u8 {
        db.put_with_expiry([number], "", clock.time() + S).unwrap();
    }
    let newer = db.snapshot();
    db.flush().unwrap();
    clock.advance(2 * S);
    assert_eq!(db.iter().count() + db.iter().count(), 0);
    assert_eq!((newer.iter().count(), newer.iter().rev().count()), (200, 200));
    drop((snapshot, scan, transaction, newer));
    db.compact().unwrap();
    assert_eq!(db.tables().len(), 0, "nothing is left, and no tombstone");
}

#[test]
fn expiry_is_no_write_for_a_transaction() {
    let (_dir, clock, db) = store();
    db.put_with_expiry("k", "value", clock.time() + 10 * S).unwrap();
    let mut transaction = db.transaction();
    assert!(transaction.get("k").unwrap().is_some());
    transaction.put("own", "");
    clock.advance(20 * S);
    db.compact().unwrap();
    transaction.commit(Durability::Buffered).unwrap();
    // Its own changes have its time, also before the store has a first expiry.
    let (_dir, clock, db) = store();
    let mut transaction = db.transaction();
    transaction.put_expiring("past", "", clock.time()).put_expiring("later", "", clock.time() + S);
    assert_eq!(transaction.get("past").unwrap(), None);
    assert_eq!(transaction.range(..).count(), 1);
}

#[test]
fn a_jump_of_the_clock_hides_keys_and_destroys_none_until_the_next_opening() {
    let (dir, clock, db) = store();
    let until = clock.time() + 10 * S;
    db.put_with_expiry("k", "value", until).unwrap();
    let now = clock.now();
    clock.jump(now + 100 * S);
    assert_eq!(db.get("k").unwrap(), None);
    db.compact().unwrap();
    assert_eq!(db.stats().activity.expired_dropped, 0);
    assert_eq!(db.tables().len(), 1);
    clock.jump(now);
    assert_eq!(db.get("k").unwrap(), None, "the time of the store does not go back");
    assert_eq!(db.now(), SystemTime::UNIX_EPOCH + now + 100 * S);
    db.close().unwrap();
    let path = dir.path().join("store");
    let db = options(&clock).open(&path).unwrap();
    assert_eq!(db.get("k").unwrap(), None, "nor does it at an opening");
    // A fresh key is not born expired.
    db.put_with_expiry("fresh", "", db.now() + S).unwrap();
    assert!(db.contains("fresh").unwrap());
    db.close().unwrap();
    clock.jump(now + 200 * S);
    let db = options(&clock).open(&path).unwrap();
    db.compact().unwrap();
    assert_eq!(db.tables().len(), 0);
}

#[test]
fn a_clock_that_is_far_behind_is_an_error_that_names_both_times() {
    let (dir, clock, db) = store();
    let path = dir.path().join("store");
    db.put_with_expiry("k", "value", clock.time() + 10_000 * S).unwrap();
    let hour = 3600 * S;
    clock.advance(hour + 5000 * S);
    assert!(db.contains("k").unwrap());
    db.close().unwrap();
    clock.jump(BEGIN + 5000 * S);
    options(&clock).open(&path).unwrap().close().unwrap();
    clock.jump(BEGIN + 4999 * S);
    let before = common::contents(&path);
    let errors = [
        options(&clock).open(&path).unwrap_err(),
        options(&clock).open_read_only(&path).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(
            error.to_string(),
            "the clock shows 2023-11-14T23:36:39Z, but the store was in use at 2023-11-15T00:36:40Z: \
             set the clock, or open the store with accept_clock"
        );
        assert!(matches!(error, Error::ClockBehind { .. }));
    }
    assert!(common::contents(&path) == before);
    let db = options(&clock).accept_clock(true).open(&path).unwrap();
    assert_eq!(db.now(), clock.time(), "set back");
    db.close().unwrap();
    options(&clock).open(&path).unwrap();
    // A repair does not judge the clock. Neither it nor a checkpoint forgets the time.
    clock.jump(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let (path, new) = (dir.path().join("ahead"), dir.path().join("repaired"));
    let db = options(&clock).open(&path).unwrap();
    db.put_with_expiry("k", "1", clock.time() + 10 * S).unwrap();
    clock.advance(2 * hour);
    assert_eq!(db.get("k").unwrap(), None);
    let copy = dir.path().join("copy");
    db.checkpoint(&copy).unwrap();
    db.close().unwrap();
    assert_eq!(repair(&path, &new, Uncertain::Accept).unwrap().losses, []);
    for path in [new, copy] {
        assert!(matches!(Options::new().open(&path), Err(Error::ClockBehind { .. })));
        assert_eq!(options(&clock).open(&path).unwrap().get("k").unwrap(), None);
    }
}

#[test]
fn a_clock_at_the_end_of_time_or_before_its_beginning_is_a_clock() {
    for shown in [Duration::ZERO, S, Duration::from_secs(1 << 40)] {
        let (dir, clock) = (common::tempdir(), clock());
        clock.jump(shown);
        let path = dir.path().join("store");
        for _ in 0..2 {
            let db = options(&clock).open(&path).unwrap();
            db.put_with_expiry(
                "never over",
                "",
                Expiry::At(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 41)),
            )
            .unwrap();
            db.put_with_expiry("over", "", SystemTime::UNIX_EPOCH).unwrap();
            assert_eq!(db.get_many(&["never over", "over"]).unwrap()[1], None);
            assert_eq!((db.iter().count(), db.snapshot().iter().count()), (1, 1));
            db.compact().unwrap();
            db.close().unwrap();
        }
        repair(&path, dir.path().join("repaired"), Uncertain::Accept).unwrap();
    }
}

#[test]
fn what_hides_nothing_goes_and_what_hides_something_becomes_a_tombstone() {
    let (_dir, clock, db) = store();
    db.put("hidden", "old").unwrap();
    db.compact().unwrap();
    db.set_auto_compaction(false).unwrap();
    for key in ["alone", "hidden"] {
        db.put_with_expiry(key, vec![7; 1000], clock.time() + 10 * S).unwrap();
    }
    clock.advance(10 * S);
    db.flush().unwrap();
    let activity = db.stats().activity;
    assert_eq!((activity.expired_dropped, activity.expired_to_tombstones), (1, 1));
    let newest = db.tables()[0].clone();
    assert_eq!((newest.level, newest.entries, newest.tombstones), (0, 1, 1));
    assert!(newest.file_bytes < 1000, "its bytes are gone");
    assert_eq!(db.get("hidden").unwrap(), None);
}

#[test]
fn a_table_goes_unread_once_all_has_expired_and_no_older_table_has_its_keys() {
    let (_dir, clock, db) = store();
    db.ingest_expiring((0..50_u8).map(|number| {
        Ok::<_, Error>(([number], "value", Expiry::At(SystemTime::UNIX_EPOCH + BEGIN + 10 * S)))
    }))
    .unwrap();
    let snapshot = db.snapshot();
    clock.advance(10 * S);
    db.wait_until_settled().unwrap();
    assert_eq!((db.tables().len(), snapshot.iter().count()), (1, 50));
    // What was written after the snapshot goes: it cannot see it.
    db.put_with_expiry("later", "value", clock.time() + S).unwrap();
    db.flush().unwrap();
    clock.advance(S);
    db.wait_until_settled().unwrap();
    assert_eq!(db.tables().len(), 1);
    drop(snapshot);
    let before = db.stats();
    db.wait_until_settled().unwrap();
    let spent = db.stats() - before;
    assert_eq!(db.tables().len(), 0);
    assert_eq!((spent.activity.tables_expired, spent.compaction_reads.calls), (1, 0));
    // Without the newer table, the entry of the older one would come back.
    db.put("k", "old").unwrap();
    db.flush().unwrap();
    db.put_with_expiry("k", "new", clock.time() + S).unwrap();
    db.flush().unwrap();
    clock.advance(S);
    db.wait_until_settled().unwrap();
    assert_eq!(db.get("k").unwrap(), None);
    assert_eq!(db.stats().activity.tables_expired, 1 + before.activity.tables_expired);
}

#[test]
fn a_table_is_rewritten_once_a_quarter_of_its_bytes_has_expired() {
    let (_dir, clock, db) = store();
    for number in 0..100_u8 {
        let expiry = match number {
            0..20 => Expiry::At(clock.time() + S),
            20..30 => Expiry::At(clock.time() + 2 * S),
            _ => Expiry::Never,
        };
        db.put_with_expiry([number], [0; 100], expiry).unwrap();
    }
    db.compact().unwrap();
    for entries in [100, 70] {
        clock.advance(S);
        db.wait_until_settled().unwrap();
        assert_eq!(db.tables().iter().map(|table| table.entries).sum::<u64>(), entries);
    }
}

#[test]
fn a_settled_store_settles_again_when_time_has_passed() {
    let (dir, clock) = (common::tempdir(), clock());
    let db = options(&clock).background_threads(1).open(dir.path()).unwrap();
    db.put_with_expiry("k", "v", clock.time() + 10 * S).unwrap();
    db.wait_until_settled().unwrap();
    let snapshot = db.snapshot();
    clock.advance(20 * S);
    db.wait_until_settled().unwrap();
    assert_eq!(db.tables().len(), 1, "the snapshot sees it");
    drop(snapshot);
    db.wait_until_settled().unwrap();
    assert_eq!(db.tables().len(), 0);
}

#[test]
fn only_what_is_written_is_counted_as_written_expired() {
    let (dir, clock, db) = store();
    let current = || std::fs::read(dir.path().join("store/CURRENT")).unwrap();
    let before = current();
    db.put("k", "").unwrap();
    let too_long = vec![0; criba::MAX_KEY_BYTES + 1];
    let past = clock.time() - S;
    let refused = db.write(Batch::new().put_expiring("a", "", past).put(too_long, ""));
    assert!(matches!(refused, Err(Error::TooLong { .. })));
    assert!(current() == before && !db.has_expiries());
    assert!(!db.insert_if_absent_until("k", "", past).unwrap());
    let refused = db.write(Batch::new().require_absent("k").put_expiring("a", "", past));
    assert!(matches!(refused, Err(Error::ConditionFailed { .. })));
    assert_eq!(db.stats().activity.expired_writes, 0);
    db.put_with_expiry("a", "", past).unwrap();
    db.put_with_expiry("b", "", SystemTime::UNIX_EPOCH - S).unwrap();
    assert!(db.insert_if_absent_until("a", "", past).unwrap());
    db.ingest_expiring([Ok::<_, Error>(("c", "", Expiry::At(past)))]).unwrap();
    assert_eq!(db.stats().activity.expired_writes, 4);
    assert!(db.has_expiries() && current() != before);
    assert_eq!(db.iter().count(), 1);
}

/// Runs something once, between the reading of the manifest and that of the logs.
struct Between(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Between")
    }
}

impl Layer for Between {
    fn call(
        &self,
        call: &Call<'_>,
        next: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let hook =
            if call.operation == Operation::List { self.0.lock().unwrap().take() } else { None };
        if let Some(hook) = hook {
            hook();
        }
        next()
    }
}

#[test]
fn a_copy_by_a_reader_beside_the_first_expiring_write_has_its_time() {
    let (dir, clock, db) = store();
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    db.put("a", "1").unwrap();
    let (writer, until) = (db.clone(), clock.time() + 10 * S);
    let hook = move || writer.put_with_expiry("k", "v", until).unwrap();
    let layer = Between(Mutex::new(Some(Box::new(hook))));
    let vfs = LayeredVfs::new(Arc::new(RealVfs), layer);
    let reader = options(&clock).vfs(vfs).open_read_only(&path).unwrap();
    assert_eq!(reader.get("k").unwrap().unwrap(), "v");
    clock.advance(1000 * S);
    assert_eq!((reader.get("k").unwrap(), reader.iter().count()), (None, 1));
    reader.checkpoint(&copy, CheckpointFiles::default()).unwrap();
    let copied = options(&clock).open(&copy).unwrap();
    assert!(copied.has_expiries() && !copied.contains("k").unwrap());
    copied.close().unwrap();
    assert_eq!(verify(&copy).unwrap().findings, []);
}

#[test]
fn a_batch_lists_its_expiries() {
    let time = SystemTime::UNIX_EPOCH + BEGIN;
    let mut batch = Batch::new();
    batch.put("a", "1").put_expiring("b", "2", time).put_expiring("c", "3", Expiry::Never);
    batch.put_expiring("d", "4", 10 * S);
    let (key, value) = (&b"b"[..], &b"2"[..]);
    let changes: Vec<_> = batch.iter().collect();
    assert_eq!(changes[0], Change::Put { key: b"a", value: b"1" });
    assert_eq!(changes[1], Change::PutExpiring { key, value, expiry: Expiry::At(time) });
    assert!(matches!(changes[2], Change::PutExpiring { expiry: Expiry::Never, .. }));
    let (key, value) = (&b"d"[..], &b"4"[..]);
    assert_eq!(changes[3], Change::PutExpiring { key, value, expiry: Expiry::In(10 * S) });
}

#[test]
fn a_time_to_live_counts_from_the_write_and_reads_return_when_it_ends() {
    let (dir, clock, db) = store();
    let batch = Batch::new().put_expiring("batch", "1", 10 * S).clone();
    let mut transaction = db.transaction();
    transaction.put_expiring("transaction", "1", 10 * S);
    assert_eq!(transaction.get("transaction").unwrap().unwrap(), "1");
    clock.advance(3 * S);
    db.write(batch).unwrap();
    transaction.commit(Durability::Buffered).unwrap();
    db.put_with_expiry("put", "1", 10 * S).unwrap();
    assert!(db.insert_if_absent_until("until", "1", 10 * S).unwrap());
    db.ingest_expiring([Ok::<_, Error>(("ingested", "1", Expiry::In(10 * S)))]).unwrap();
    db.put_with_expiry("long", "1", Duration::MAX).unwrap();
    db.put("never", "1").unwrap();
    let all = ["batch", "transaction", "put", "until", "ingested"];
    let ends = clock.time() + 10 * S;
    db.flush().unwrap();
    let read_only = options(&clock).open_read_only(dir.path().join("store")).unwrap();
    let readers: [&dyn Reader; 3] = [&db, &db.snapshot(), &read_only];
    for reader in readers {
        for key in all {
            let found = reader.get_with_expiry(key.as_bytes()).unwrap().unwrap();
            assert_eq!(found, ("1".into(), Some(ends)), "{key}");
        }
        assert_eq!(reader.get_with_expiry(b"never").unwrap().unwrap(), ("1".into(), None));
        assert!(reader.get_with_expiry(b"long").unwrap().unwrap().1 > Some(ends));
        assert_eq!(reader.get_with_expiry(b"absent").unwrap(), None);
    }
    assert_eq!(read_only.default_ttl(), None);
    clock.advance(10 * S);
    for key in all {
        assert_eq!(db.get_with_expiry(key).unwrap(), None, "{key}");
        assert_eq!(read_only.get_with_expiry(key).unwrap(), None, "{key}");
    }
    assert_eq!(read_only.now(), db.now());
}

#[test]
fn an_event_says_that_the_clock_is_behind_by_less_than_an_hour() {
    let (dir, clock, db) = store();
    db.put_with_expiry("a", "", S).unwrap();
    db.close().unwrap();
    let opened = |clock: &Arc<ManualClock>| {
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let options = options(clock).accept_clock(true);
        let options = options.on_event(move |event| seen.lock().unwrap().push(event.clone()));
        options.open(dir.path().join("store")).unwrap();
        let events = std::mem::take(&mut *events.lock().unwrap());
        events
            .into_iter()
            .filter(|event| matches!(event, Event::ClockBehind { .. }))
            .collect::<Vec<_>>()
    };
    clock.advance(10 * S);
    assert_eq!(opened(&clock), []);
    let recorded = clock.time();
    clock.jump(BEGIN);
    let events = opened(&clock);
    assert!(
        matches!(events[..], [Event::ClockBehind { clock: shown, recorded: last, .. }]
            if shown == clock.time() && last == recorded),
        "{events:?}"
    );
    // A clock that is far behind, and accepted, is right. It goes on between its first two readings.
    clock.jump(Duration::from_secs(1_600_000_000));
    let at_second = Arc::clone(&clock);
    clock.before_next_reading(move |_| {
        at_second.before_next_reading(|clock| clock.advance(S));
    });
    assert_eq!(opened(&clock), []);
    assert_eq!(clock.now(), Duration::from_secs(1_600_000_001));
}

/// As after a backup that put back an earlier manifest: the log is whole, and has what no manifest announces.
#[test]
fn a_log_with_expiries_of_which_the_manifest_does_not_know() {
    let (dir, clock, db) = store();
    db.put("a", "1").unwrap();
    let path = dir.path().join("store");
    let before = common::contents(&path);
    db.put_with_expiry("k", "1", clock.time() + 10 * S).unwrap();
    let mut after = common::contents(&path);
    drop(db);
    after.retain(|name, _| !name.starts_with("MANIFEST"));
    after.extend(before.into_iter().filter(|(name, _)| name.starts_with('M') || name == "CURRENT"));
    common::restore(&path, &after);
    let reader = options(&clock).open_read_only(&path).unwrap();
    assert!(reader.has_expiries());
    drop(reader);
    assert!(verify(&path).unwrap().is_sound());
    let db = options(&clock).open(&path).unwrap();
    assert!(db.has_expiries());
    db.flush().unwrap();
    clock.advance(11 * S);
    assert_eq!(db.get("k").unwrap(), None);
    db.close().unwrap();
}
