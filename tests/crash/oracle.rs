//! What must hold of every disk after a power failure.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use criba::vfs::{Keep, Moment, SimDisk, SimVfs, Unit};
use criba::{Batch, Db, Durability, FilterInfo, Options, RecoveryReport};
use foldhash::quality::FixedState;

use crate::history::{Contents, DIR, History, options};

/// A disk after a power failure, and the contents that it may have.
pub(crate) struct Case<'a> {
    pub(crate) disk: SimDisk,
    pub(crate) history: &'a History,
    /// Every key of the history.
    pub(crate) keys: &'a BTreeSet<Vec<u8>>,
    /// The number of writes that must be there, and that may be.
    pub(crate) bounds: (usize, usize),
    /// For the message of a failure.
    pub(crate) at: &'a str,
}

/// A hash of the files' names and bytes.
pub(crate) fn fingerprint(disk: &SimDisk) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    for (path, bytes) in disk.files() {
        (path, bytes).hash(&mut hasher);
    }
    hasher.finish()
}

fn open(vfs: &SimVfs, options: Options, at: &str) -> Db {
    let db = options.vfs(Arc::new(vfs.clone())).open(DIR);
    let db = db.unwrap_or_else(|error| panic!("{at}: {error}"));
    for table in db.tables() {
        // All files that the manifest names were durable before it, filters beside tables included.
        let degraded = matches!(table.filter, FilterInfo::Degraded { .. });
        assert!(!degraded, "{at}: table {}: {:?}", table.id, table.filter);
    }
    db
}

pub(crate) fn contents(db: &Db) -> Contents {
    let items = db.iter().map(|item| item.unwrap());
    items.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// The disk after a second power failure, which loses all unsynced changes.
fn all_lost(vfs: &SimVfs) -> SimVfs {
    SimVfs::on(vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD))
}

impl Case<'_> {
    /// Opens the disk, compares, writes, and reopens it. Returns the disks after each operation of the
    /// first opening, if requested; then it also opens it a second time without a write between.
    ///
    /// # Panics
    /// If the contents are not those after a prefix of the history that includes all acknowledged writes;
    /// if they differ the second time; or if a new write is lost.
    pub(crate) fn check(self, thoroughly: bool) -> Vec<Moment> {
        let Self { disk, history, keys, bounds: (promised, begun), at } = self;
        let mut vfs = SimVfs::on(disk);
        if thoroughly {
            vfs = vfs.recording();
        }
        let mut db = open(&vfs, options(), at);
        let opening = vfs.take_moments();
        let found = contents(&db);
        let held = (promised..=begun).rev().find(|&held| history.states[held] == found);
        assert!(
            held.is_some(),
            "{at}: {promised}..={begun} writes, not {:?}",
            history.states.iter().position(|state| *state == found)
        );
        for key in keys {
            let value = db.get(key).unwrap();
            assert_eq!(value.as_deref(), found.get(key).map(Vec::as_slice), "{at}");
        }

        if thoroughly {
            vfs = all_lost(&vfs); // with the store open: nothing is written by closing it
            db = open(&vfs, options(), at);
            let RecoveryReport { changes, .. } = *db.recovery();
            assert_eq!(changes, 0, "{at}: what was recovered is in tables");
            assert!(contents(&db) == found, "{at}: not the same the second time");
        }
        let mut expected = found;
        let mut batch = Batch::new();
        for (key, value) in [("key00", "again"), ("later", "written")] {
            batch.put(key, value);
            expected.insert(key.into(), value.into());
        }
        db.write_with(batch, Durability::Synced).unwrap();
        // The filters were verified above; without them in memory this takes half the time.
        let db = open(&all_lost(&vfs), options().filter_memory(0), at);
        assert!(contents(&db) == expected, "{at}: what was written afterwards");
        opening
    }
}
