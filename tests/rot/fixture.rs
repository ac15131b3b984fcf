//! The store to damage: three levels, one of which has an ingested table, several blocks per table, tombstones, entries
//! that expire after all tests, a compressed table, filters of each kind within tables and beside them, a partly synced log, a manifest of
//! several edits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use criba::vfs::{FileKind, SimDisk, SimVfs, Vfs};
use criba::{
    Batch, Compression, Db, Durability, Error, Expiry, FilterInfo, FilterKind, FilterPolicy,
    Options,
};

use crate::common::{ManualClock, written};

pub(crate) const SEED: u64 = 2026;
pub(crate) const DIR: &str = "/store";

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A disk with the store of a killed process.
pub(crate) struct Fixture {
    pub(crate) disk: SimDisk,
    /// The disk at earlier times.
    pub(crate) older: Vec<SimDisk>,
    /// The contents before the log's records, and after each.
    pub(crate) states: Vec<Map>,
    /// The ends of the log's header and records.
    pub(crate) ends: Vec<usize>,
    /// The number of records that later records prove to be synced.
    pub(crate) synced: usize,
}

pub(crate) static FIXTURE: LazyLock<Fixture> = LazyLock::new(Fixture::new);

/// The time of the store, since 1970.
pub(crate) const TIME: Duration = Duration::from_secs(1_700_000_000);

/// A time in some two hundred years.
fn expiry(number: usize) -> SystemTime {
    SystemTime::UNIX_EPOCH + 5 * TIME + Duration::from_secs(number as u64)
}

/// The clock stands still, and forged times do not stop it.
pub(crate) fn options() -> Options {
    Options::new()
        .clock(Arc::new(ManualClock::at(TIME)))
        .accept_clock(true)
        .seed(SEED)
        .background_threads(0)
        .auto_compaction(false)
        .cache_bytes(0)
        .block_bytes(128)
}

pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("key {number:02}").into_bytes()
}

pub(crate) const KEYS: usize = 42;

fn policy(kind: FilterKind) -> FilterPolicy {
    FilterPolicy::bits_per_key(10.0).with_kind(kind)
}

/// Every `step`th key from `first` on gets a value, and some a tombstone. In one table, some expire.
fn fill(db: &Db, map: &mut Map, first: usize, step: usize) {
    let mut batch = Batch::new();
    for number in (first..KEYS).step_by(step) {
        let key = key(number);
        if first > 0 && number % 7 == 3 {
            batch.delete(&key);
            map.remove(&key);
        } else {
            let value = format!("value {first} {number} {}", ".".repeat(18)).into_bytes();
            if first == 2 && number % 3 == 0 {
                batch.put_expiring(&key, &value, expiry(number));
            } else {
                batch.put(&key, &value);
            }
            map.insert(key, value);
        }
    }
    db.write(batch).unwrap();
    db.flush().unwrap();
}

/// Every third key gets a value that expires, in a table above those of the last level.
fn ingest(db: &Db, map: &mut Map) {
    let entries = (0..KEYS).step_by(3).map(|number| {
        let value = format!("ingested {number} {}", ".".repeat(18)).into_bytes();
        (key(number), value, Expiry::At(expiry(number)))
    });
    let entries: Vec<_> = entries.collect();
    db.ingest_expiring(entries.iter().cloned().map(Ok::<_, Error>)).unwrap();
    map.extend(entries.into_iter().map(|(key, value, _)| (key, value)));
}

/// Flips a bit in the first byte of each L0 table, in a new file of the same name. The store keeps no table
/// open between reads.
fn flip_l0(vfs: &SimVfs, db: &Db) {
    let dir = vfs.open_dir(DIR.as_ref()).unwrap();
    for table in db.tables().iter().filter(|table| table.level == 0) {
        let name = format!("{:06}.sst", table.id);
        let mut bytes = vfs.disk().read(Path::new(DIR).join(&name)).unwrap().to_vec();
        bytes[0] ^= 1;
        dir.remove(name.as_ref(), FileKind::Table).unwrap();
        let file = dir.create(name.as_ref(), FileKind::Table, 0o600).unwrap();
        file.append(&bytes).unwrap();
        file.sync_all().unwrap();
    }
    dir.sync().unwrap();
}

impl Fixture {
    fn new() -> Self {
        let vfs = SimVfs::new();
        let open_with = |policy: FilterPolicy, compression: Compression| {
            let options = options().filter(policy).vfs(Arc::new(vfs.clone()));
            let options = options.compression(compression);
            options.table_bytes(1024).max_open_files(0).open(DIR).unwrap()
        };
        let open = |policy: FilterPolicy| open_with(policy, Compression::None);
        let (mut map, mut older) = (Map::new(), Vec::new());
        let db = open(FilterPolicy::none());
        fill(&db, &mut map, 0, 2);
        fill(&db, &mut map, 0, 1);
        db.compact().unwrap();
        ingest(&db, &mut map);
        db.close().unwrap();
        for (kind, first, compression) in
            [(FilterKind::Bloom, 1, Compression::Lz4), (FilterKind::Ribbon, 2, Compression::None)]
        {
            let db = open_with(policy(kind), compression);
            older.push(vfs.disk());
            fill(&db, &mut map, first, 4);
            older.push(vfs.disk());
            db.close().unwrap();
        }
        let db = open(policy(FilterKind::Bloom));
        // Now, so that later this needs no other manifest.
        for kind in [FilterKind::Ribbon, FilterKind::Bloom] {
            db.set_policy(policy(kind)).unwrap();
        }
        older.push(vfs.disk());
        fill(&db, &mut map, 3, 4);
        older.push(vfs.disk());
        // A table that cannot be read keeps its filter, so those on L0 do, and the others get one beside
        // them, and another.
        for kind in [FilterKind::Ribbon, FilterKind::Bloom] {
            flip_l0(&vfs, &db);
            let rebuilt = db.rebuild_filters(&policy(kind));
            assert!(matches!(rebuilt, Err(Error::Corrupt { .. })), "{rebuilt:?}");
            flip_l0(&vfs, &db);
            older.push(vfs.disk());
        }
        check_tables(&db);

        let log = |disk: &SimDisk| {
            let path = of_kind(disk, Kind::Log).pop().unwrap().clone();
            let bytes = written(disk.read(&path).unwrap()).to_vec();
            (path, bytes)
        };
        let (mut states, mut ends) = (vec![map.clone()], vec![log(&vfs.disk()).1.len()]);
        let (records, synced) = (9, 5);
        for record in 1..=records {
            let mut batch = Batch::new();
            for number in [record, 2 * record] {
                let value = format!("logged {record}").into_bytes();
                if number % 4 == 0 {
                    batch.put_expiring(key(number), &value, expiry(number));
                } else {
                    batch.put(key(number), &value);
                }
                map.insert(key(number), value);
            }
            batch.delete(key(3 * record));
            map.remove(&key(3 * record));
            if record > 1 {
                older.push(vfs.disk());
            }
            let durability =
                if record == synced { Durability::Synced } else { Durability::Buffered };
            db.write_with(batch, durability).unwrap();
            states.push(map.clone());
            ends.push(log(&vfs.disk()).1.len());
        }
        // The log as if it had not been filled ahead: those zeros have a test of their own.
        let mut disk = vfs.disk();
        let (path, bytes) = log(&disk);
        disk.write(path, bytes);
        Self { disk, older, states, ends, synced }
    }

    pub(crate) fn file(&self, name: &str) -> &[u8] {
        self.disk.read(path(name)).unwrap()
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> Vec<String> {
        of_kind(&self.disk, kind).iter().map(|path| name(path)).collect()
    }

    /// The only file of its kind.
    pub(crate) fn only(&self, kind: Kind) -> String {
        let [name] = self.of_kind(kind).try_into().unwrap();
        name
    }

    pub(crate) fn last(&self) -> &Map {
        self.states.last().unwrap()
    }

    /// The disk with other bytes in one file.
    pub(crate) fn with(&self, name: &str, bytes: impl Into<Vec<u8>>) -> SimDisk {
        let mut disk = self.disk.clone();
        disk.write(path(name), bytes);
        disk
    }
}

/// Asserts that the store has all parts that these tests need.
fn check_tables(db: &Db) {
    let tables = db.tables();
    let levels = |level: usize| tables.iter().filter(|table| table.level == level).count();
    assert!(levels(0) == 3 && levels(5) == 1 && levels(6) >= 2, "{tables:#?}");
    let mut filters = BTreeMap::new();
    for table in &tables {
        assert!(table.level == 0 || table.tombstones == 0);
        let FilterInfo::Active { kind, generation, .. } = table.filter else { panic!("{table:?}") };
        *filters.entry((kind.to_string(), generation > 0)).or_insert(0) += 1;
    }
    assert!(tables.iter().any(|table| table.tombstones > 0));
    let compressed = tables.iter().filter(|table| table.data_bytes < table.contents_bytes);
    assert_eq!(compressed.count(), 1, "{tables:#?}");
    assert_eq!(filters.len(), 3, "{filters:?}");
}

/// The kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Table,
    Filter,
    Log,
    Manifest,
    Current,
    Lock,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Table, Self::Filter, Self::Log, Self::Manifest, Self::Current, Self::Lock];

    pub(crate) fn of(name: &str) -> Self {
        let extension = Path::new(name).extension().map(|extension| extension.to_str().unwrap());
        match (name, extension) {
            ("CURRENT", _) => Self::Current,
            ("LOCK", _) => Self::Lock,
            (_, Some("sst")) => Self::Table,
            (_, Some("flt")) => Self::Filter,
            (_, Some("log")) => Self::Log,
            _ if name.starts_with("MANIFEST") => Self::Manifest,
            other => panic!("{other:?}"),
        }
    }
}

fn of_kind(disk: &SimDisk, kind: Kind) -> Vec<PathBuf> {
    let paths = disk.files().map(|(path, _)| path.to_owned());
    paths.filter(|path| Kind::of(&name(path)) == kind).collect()
}

pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// The number in a file's name; the table's number for a filter beside it.
pub(crate) fn number(name: &str) -> u64 {
    let digits: String =
        name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}
