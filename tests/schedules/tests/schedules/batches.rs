//! Groups of writers that wait for each other.

use criba_schedules::Durability::{Buffered, Synced};
use criba_schedules::vfs::{Keep, SimVfs, Unit};
use criba_schedules::{Db, Options};
use shuttle::thread::scope;

use crate::explore::explore;
use crate::store::{History, batch, key, options, version};

/// Keys of every batch; each writer also has a key of its own.
const SHARED: usize = 3;
const WRITERS: usize = 4;
/// The first writers are synced, the others buffered. Writers of the same durability form groups.
const SYNCED: usize = 2;
const EACH: u64 = 2;

fn stamp(writer: usize, number: u64) -> u64 {
    number * 10 + writer as u64
}

/// The version of all shared keys, which must agree.
fn the_stamp(found: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    let found: Vec<_> = found.into_iter().collect();
    assert!(found.iter().all(|stamp| *stamp == found[0]), "half a batch: {found:?}");
    found[0]
}

fn scanned(range: criba_schedules::Range) -> Option<u64> {
    let mut found: Vec<_> = range.map(|item| Some(version(&item.unwrap().1))).collect();
    found.resize(SHARED, None);
    the_stamp(found)
}

/// Opens the store on a disk, which must have the version of some writer's last batch, and whole batches.
fn check_disk(options: Options, writer: usize, number: u64) {
    let db = options.background_threads(0).open("/store").unwrap();
    let own = db.get(key(SHARED + writer)).unwrap().expect("an acknowledged batch");
    assert!(version(&own) >= number, "batch {number} of writer {writer} is lost");
    assert!(scanned(db.range(key(0)..key(SHARED))).is_some());
    db.close().unwrap();
}

fn write(db: &Db, vfs: &SimVfs, history: &History<WRITERS>, writer: usize) {
    for number in 1..=EACH {
        let durability = if writer < SYNCED { Synced } else { Buffered };
        let mut batch = batch(0..SHARED, stamp(writer, number));
        batch.put(key(SHARED + writer), number.to_be_bytes());
        history.write(writer, number, || db.write_with(batch, durability).unwrap());
        if number == EACH && writer > 0 {
            let left = match durability {
                Synced => vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD),
                Buffered => vfs.disk(),
            };
            check_disk(options(SimVfs::on(left)), writer, number);
        }
    }
}

/// A reader sees all of a batch or nothing. An acknowledged batch is in the page cache or on the disk, as
/// its durability requires.
#[test]
fn a_batch_is_whole_to_readers_and_there_after_a_crash() {
    explore("writers in groups", 1200, &["groups of several", "flushes"], |seen| {
        let vfs = SimVfs::new();
        let db = options(vfs.clone()).open("/store").unwrap();
        let history = History::<WRITERS>::new();
        scope(|scope| {
            let (db, vfs, history) = (&db, &vfs, &history);
            for writer in 0..WRITERS {
                scope.spawn(move || write(db, vfs, history, writer));
            }
            scope.spawn(move || {
                for _ in 0..4 {
                    let snapshot = db.snapshot();
                    let gets = (0..SHARED).map(|shared| snapshot.get(key(shared)).unwrap());
                    let gets = the_stamp(gets.map(|value| value.as_ref().map(version)));
                    assert_eq!(gets, scanned(snapshot.range(key(0)..key(SHARED))));
                }
            });
            scope.spawn(move || {
                for lookup in 0..6 {
                    scanned(db.range(key(0)..key(SHARED)));
                    let writer = lookup % WRITERS;
                    history.check(writer, || db.get(key(SHARED + writer)).unwrap());
                }
            });
        });
        let records = db.stats().wal_writes.calls;
        seen.add("groups of several", WRITERS as u64 * EACH - records);
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
