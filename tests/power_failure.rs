//! Power failures: after every operation that changes something, the disk holds some of what was not
//! synced, sector by sector and name by name, and the store must come back from it.
//!
//! The file layer here keeps everything in memory, beside what is durable by POSIX: the bytes of a
//! file at its last sync, and the names of the directory at its last sync. A crash takes, of each file,
//! some of its unsynced sectors of 512 bytes and a length between the two; of each name, any state
//! that it had since the directory was synced.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use criba::vfs::{FileKind, FileLock, Vfs, VfsFile};
use criba::{Batch, Db, Durability, FilterInfo, FilterPolicy};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SEED: u64 = 0x0F0F_2026;
const SECTOR: usize = 512;
const DIR: &str = "/store";

/// A file's bytes as programs see them, and as they were at the last sync.
#[derive(Debug, Clone, Default)]
struct Bytes {
    seen: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
struct Disk {
    files: Vec<Bytes>,
    names: BTreeMap<OsString, usize>,
    durable_names: BTreeMap<OsString, usize>,
    /// What each name stood for, change by change, since the directory was synced.
    changes: BTreeMap<OsString, Vec<Option<usize>>>,
    dir: bool,
    locked: bool,
    /// How many writes were begun, and how many of them must survive.
    begun: usize,
    promised: usize,
}

/// What a crash leaves of that which is not synced.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Left {
    Nothing,
    Everything,
    /// All bytes, but no names; and the other way round.
    BytesOnly,
    NamesOnly,
    Some,
}

impl Disk {
    fn name(&mut self, name: OsString, file: Option<usize>) {
        match file {
            Some(file) => self.names.insert(name.clone(), file),
            None => self.names.remove(&name),
        };
        self.changes.entry(name).or_default().push(file);
    }

    /// The disk after a power failure.
    fn crash(&self, left: Left, rng: &mut impl Rng) -> Self {
        let mut names = self.durable_names.clone();
        for (name, states) in &self.changes {
            let state = match left {
                Left::Nothing | Left::BytesOnly => continue,
                Left::Everything | Left::NamesOnly => states.len(),
                Left::Some => rng.random_range(0..=states.len()),
            };
            match state.checked_sub(1).map(|last| states[last]) {
                None => continue,
                Some(Some(file)) => names.insert(name.clone(), file),
                Some(None) => names.remove(name),
            };
        }
        let files = self.files.iter().map(|file| {
            let bytes = match left {
                Left::Nothing | Left::NamesOnly => Arc::clone(&file.durable),
                Left::Everything | Left::BytesOnly => Arc::clone(&file.seen),
                Left::Some => Arc::new(mixed(file, rng)),
            };
            Bytes { seen: Arc::clone(&bytes), durable: bytes }
        });
        Self {
            files: files.collect(),
            durable_names: names.clone(),
            names,
            changes: BTreeMap::new(),
            locked: false,
            ..self.clone()
        }
    }
}

/// Some of the unsynced sectors of a file; the others are as they were, or zeros.
fn mixed(file: &Bytes, rng: &mut impl Rng) -> Vec<u8> {
    let (old, new) = (&file.durable, &file.seen);
    if old == new {
        return old.to_vec();
    }
    let length = match rng.random_range(0..4) {
        0 => old.len(),
        1 => rng.random_range(old.len().min(new.len())..=old.len().max(new.len())),
        _ => new.len(),
    };
    let kept = rng.random_range(1..=100);
    let mut bytes = vec![0; length];
    for (number, sector) in bytes.chunks_mut(SECTOR).enumerate() {
        let from = if rng.random_range(0..100) < kept { new } else { old };
        let from = from.get(number * SECTOR..).unwrap_or_default();
        let most = from.len().min(sector.len());
        sector[..most].copy_from_slice(&from[..most]);
    }
    bytes
}

/// A disk, and what it was after each operation that changed it.
#[derive(Debug, Clone, Default)]
struct MemoryVfs {
    disk: Arc<Mutex<Disk>>,
    moments: Option<Arc<Mutex<Vec<Disk>>>>,
}

impl MemoryVfs {
    fn on(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)), moments: None }
    }

    fn recording(disk: Disk) -> Self {
        Self { moments: Some(Arc::default()), ..Self::on(disk) }
    }

    fn moments(&self) -> Vec<Disk> {
        self.moments.as_ref().map(|moments| moments.lock().unwrap().clone()).unwrap_or_default()
    }

    fn now(&self) -> Disk {
        self.disk.lock().unwrap().clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.lock().unwrap();
        let changed = change(&mut disk)?;
        if let Some(moments) = &self.moments {
            moments.lock().unwrap().push(disk.clone());
        }
        Ok(changed)
    }

    fn file(&self, number: usize) -> Arc<dyn VfsFile> {
        Arc::new(MemoryFile { vfs: self.clone(), number })
    }
}

fn name_of(path: &Path) -> OsString {
    assert_eq!(path.parent(), Some(Path::new(DIR)));
    path.file_name().unwrap().to_owned()
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Vfs for MemoryVfs {
    fn create(&self, path: &Path, _: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        self.change(|disk| {
            if disk.names.contains_key(&name_of(path)) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            disk.files.push(Bytes::default());
            disk.name(name_of(path), Some(disk.files.len() - 1));
            Ok(self.file(disk.files.len() - 1))
        })
    }

    fn open(&self, path: &Path, _: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        let number = self.now().names.get(&name_of(path)).copied();
        number.map(|number| self.file(number)).ok_or_else(missing)
    }

    fn open_writable(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        self.open(path, kind)
    }

    fn rename(&self, from: &Path, to: &Path, _: FileKind) -> io::Result<()> {
        self.change(|disk| {
            let file = disk.names.get(&name_of(from)).copied().ok_or_else(missing)?;
            disk.name(name_of(to), Some(file));
            disk.name(name_of(from), None);
            Ok(())
        })
    }

    fn remove(&self, path: &Path, _: FileKind) -> io::Result<()> {
        self.change(|disk| {
            disk.names.get(&name_of(path)).ok_or_else(missing)?;
            disk.name(name_of(path), None);
            Ok(())
        })
    }

    fn hard_link(&self, _: &Path, _: &Path, _: FileKind) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        let disk = self.now();
        if disk.dir { Ok(disk.names.into_keys().collect()) } else { Err(missing()) }
    }

    fn length(&self, path: &Path, kind: FileKind) -> io::Result<u64> {
        self.open(path, kind)?.length()
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        self.change(|disk| {
            disk.dir = true;
            Ok(())
        })
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.change(|disk| {
            disk.durable_names = disk.names.clone();
            disk.changes.clear();
            Ok(())
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.change(|disk| {
            if disk.locked {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            disk.locked = true;
            if !disk.names.contains_key(&name_of(path)) {
                disk.files.push(Bytes::default());
                disk.name(name_of(path), Some(disk.files.len() - 1));
            }
            Ok(Box::new(MemoryLock(self.clone())) as Box<dyn FileLock>)
        })
    }
}

#[derive(Debug)]
struct MemoryLock(MemoryVfs);

impl FileLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.0.disk.lock().unwrap().locked = false;
    }
}

#[derive(Debug)]
struct MemoryFile {
    vfs: MemoryVfs,
    number: usize,
}

impl MemoryFile {
    fn change(&self, change: impl FnOnce(&mut Bytes)) -> io::Result<()> {
        self.vfs.change(|disk| {
            change(&mut disk.files[self.number]);
            Ok(())
        })
    }

    fn bytes(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.vfs.disk.lock().unwrap().files[self.number].seen)
    }
}

impl VfsFile for MemoryFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.bytes();
        let from = bytes.get(offset as usize..offset as usize + buffer.len());
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.change(|file| Arc::make_mut(&mut file.seen).extend_from_slice(data))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(|file| {
            let (bytes, start) = (Arc::make_mut(&mut file.seen), offset as usize);
            bytes.resize(bytes.len().max(start + data.len()), 0);
            bytes[start..start + data.len()].copy_from_slice(data);
        })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.change(|file| Arc::make_mut(&mut file.seen).resize(length as usize, 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(|file| file.durable = Arc::clone(&file.seen))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(vfs: &MemoryVfs) -> criba::Result<Db> {
    common::options()
        .vfs(Arc::new(vfs.clone()))
        .background_threads(0)
        .memtable_bytes(2048)
        .table_bytes(1024)
        .block_bytes(256)
        .level_base_bytes(1024)
        .l0_compaction_tables(2)
        .max_open_files(2)
        .seed(1)
        .open(DIR)
}

/// A scripted history on a fresh disk: what the store held after each write, and the disk after each
/// operation.
fn workload(rng: &mut ChaCha8Rng, steps: usize) -> (Vec<Contents>, Vec<Disk>) {
    let vfs = MemoryVfs::recording(Disk::default());
    let mut states = vec![Contents::new()];
    let mut db = open(&vfs).unwrap();
    let promise = |states: &[Contents]| vfs.disk.lock().unwrap().promised = states.len() - 1;
    for step in 0..steps {
        match rng.random_range(0..40) {
            0 => {
                db.flush().unwrap();
                promise(&states);
            }
            1 => {
                db.compact().unwrap();
                promise(&states);
            }
            2 => {
                db.sync().unwrap();
                promise(&states);
            }
            3 => {
                db.close().unwrap();
                promise(&states);
                db = open(&vfs).unwrap();
            }
            4 => {
                // As if the process had been killed.
                std::mem::forget(db);
                vfs.disk.lock().unwrap().locked = false;
                db = open(&vfs).unwrap();
                promise(&states);
            }
            5 | 6 => {
                let policies =
                    [FilterPolicy::compact(), FilterPolicy::classic(), FilterPolicy::none()];
                db.rebuild_filters(&policies[rng.random_range(0..3)]).unwrap();
            }
            _ => {
                let (mut batch, mut state) = (Batch::new(), states[states.len() - 1].clone());
                let changes = if rng.random_ratio(1, 3) { rng.random_range(2..8) } else { 1 };
                for _ in 0..changes {
                    let mut key = format!("key{:02}", rng.random_range(0..40)).into_bytes();
                    if rng.random_ratio(1, 60) {
                        key.resize(3000, b'-'); // makes the manifest long
                    }
                    if rng.random_ratio(1, 4) {
                        batch.delete(&key);
                        state.remove(&key);
                    } else {
                        let longest = if rng.random_ratio(1, 50) { 40_000 } else { 200 };
                        let mut value = vec![0; rng.random_range(0..longest)];
                        rng.fill_bytes(&mut value);
                        value.extend_from_slice(&step.to_le_bytes());
                        batch.put(&key, &value);
                        state.insert(key, value);
                    }
                }
                states.push(state);
                vfs.disk.lock().unwrap().begun = states.len() - 1;
                if rng.random_ratio(1, 6) {
                    db.write_with(batch, Durability::Synced).unwrap();
                    promise(&states);
                } else {
                    db.write(batch).unwrap();
                }
            }
        }
    }
    db.close().unwrap();
    promise(&states);
    (states, vfs.moments())
}

fn contents(db: &Db) -> Contents {
    let items = db.range::<&[u8]>(..).unwrap().map(|item| item.unwrap());
    items.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Opens a disk and gives the number of writes that it still holds.
fn recovered(vfs: &MemoryVfs, states: &[Contents], keys: &BTreeSet<Vec<u8>>, at: &str) -> usize {
    let disk = vfs.now();
    let db = open(vfs).unwrap_or_else(|error| panic!("{at}: {error}"));
    for table in db.tables() {
        // What the manifest names was durable before, filters beside their tables included.
        let degraded = matches!(table.filter, FilterInfo::Degraded { .. });
        assert!(!degraded, "{at}: table {}: {:?}", table.id, table.filter);
    }
    let found = contents(&db);
    let held = (disk.promised..=disk.begun).rev().find(|&held| states[held] == found);
    let Some(held) = held else {
        let other = states.iter().position(|state| *state == found);
        panic!("{at}: {}..={} writes, not {other:?}", disk.promised, disk.begun);
    };
    for key in keys {
        let value = db.get(key).unwrap();
        assert_eq!(value.as_deref(), found.get(key).map(Vec::as_slice), "{at}");
    }
    held
}

#[test]
fn a_store_survives_a_power_failure_after_every_operation() {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let (mut moments, mut disks, mut lost, mut filters) = (0, 0, 0, 0);
    // POWER_RUNS=100 for a long one.
    let runs = std::env::var("POWER_RUNS").map_or(1, |runs| runs.parse().unwrap());
    for run in 0..runs {
        let (states, history) = workload(&mut rng, 100);
        let keys: BTreeSet<Vec<u8>> = states.iter().flat_map(|s| s.keys().cloned()).collect();
        moments += history.len();
        for (number, moment) in history.iter().enumerate() {
            for left in [
                Left::Nothing,
                Left::Everything,
                Left::BytesOnly,
                Left::NamesOnly,
                Left::Some,
                Left::Some,
                Left::Some,
            ] {
                let at = format!("seed {SEED:#x}, run {run}, operation {number}, left {left:?}");
                let vfs = MemoryVfs::recording(moment.crash(left, &mut rng));
                let held = recovered(&vfs, &states, &keys, &at);
                let opening = vfs.moments();
                disks += 2;
                lost += moment.begun - held;
                let names = vfs.now().names.into_keys();
                filters += names.filter(|name| name.to_str().unwrap().contains(".flt")).count();
                // Another failure within the opening; then one right after it, which loses nothing.
                let again = opening[rng.random_range(0..opening.len())].crash(Left::Some, &mut rng);
                recovered(&MemoryVfs::on(again), &states, &keys, &format!("{at}, twice"));
                if left == Left::Some {
                    goes_on(&vfs, &states[held], &mut rng, &at);
                }
            }
        }
    }
    println!(
        "seed {SEED:#x}: {runs} runs, {moments} operations, {disks} disks opened; \
         {lost} unsynced writes lost, {filters} filters beside their tables found"
    );
    assert!(filters > 1000);
}

/// What was recovered is durable; writing goes on, and survives the next power failure.
fn goes_on(vfs: &MemoryVfs, state: &Contents, rng: &mut ChaCha8Rng, at: &str) {
    let vfs = MemoryVfs::on(vfs.now().crash(Left::Nothing, rng));
    let db = open(&vfs).unwrap_or_else(|error| panic!("{at}, after: {error}"));
    assert!(contents(&db) == *state, "{at}: not the same the second time");
    let mut batch = Batch::new();
    batch.put("later", "written").put("key00", "again");
    db.write_with(batch, Durability::Synced).unwrap();
    let vfs = MemoryVfs::on(vfs.now().crash(Left::Nothing, rng));
    let db = open(&vfs).unwrap_or_else(|error| panic!("{at}, later: {error}"));
    let mut expected = state.clone();
    expected.insert(b"later".to_vec(), b"written".to_vec());
    expected.insert(b"key00".to_vec(), b"again".to_vec());
    assert!(contents(&db) == expected, "{at}: what was written afterwards");
}
