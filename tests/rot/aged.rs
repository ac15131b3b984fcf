//! Repair of stores with a random past: crashes, power failures, files that could not be removed, then damage. No
//! value is in the new store that a synced change had replaced, or that a power failure had lost.
//!
//! `CRIBA_ROT=all` tries 200 times as many pasts, and `CRIBA_SEED` begins with another one.

use std::fmt::Write as _;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use criba::vfs::{
    Fault, FaultRule, FaultVfs, FileKind, Keep, Operation, SimDisk, SimVfs, Unit, Vfs,
};
use criba::{Batch, Db, Durability, FilterPolicy, Options, Snapshot, Uncertain, repair_with};

use crate::case::within_memory;
use crate::common::written;
use crate::fixture::{DIR, Kind, Map, SEED, name};
use crate::forge::{FRAME_HEADER, LOG_HEADER};
use crate::plants::{change, log_in_use, planted};
use crate::sweep::{all, in_parallel};

const NEW: &str = "/new";

/// Pasts of the short form, and damaged disks of each.
const PASTS: usize = 60;
const DAMAGED: usize = 12;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A store that lives through random operations.
struct Past {
    random: Random,
    seed: u64,
    sim: SimVfs,
    faults: FaultVfs,
    db: Option<Db>,
    snapshots: Vec<Snapshot>,
    /// The contents after each write that no crash undid.
    states: Vec<Map>,
    /// How many of them are certain to last: moment, begun, promised.
    marks: Vec<(usize, usize, usize)>,
    writes: usize,
    older: Vec<SimDisk>,
    /// States that the last crash undid, and the moment at which the opening after it had ended.
    undone: (Vec<Map>, usize),
}

fn options() -> Options {
    Options::new()
        .background_threads(0)
        .memtable_bytes(2048)
        .table_bytes(2048)
        .block_bytes(256)
        .level_base_bytes(1024)
        .l0_compaction_trigger(3)
        .max_open_files(2)
        .cache_bytes(0)
}

fn contents(vfs: &Arc<dyn Vfs>, dir: &Path) -> Map {
    let db = Options::new().vfs(Arc::clone(vfs)).open_read_only(dir).unwrap();
    let entries = db.iter().map(Result::unwrap);
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn layer(vfs: &(impl Vfs + Clone + 'static)) -> Arc<dyn Vfs> {
    Arc::new(vfs.clone())
}

impl Past {
    fn new(seed: u64) -> Self {
        let sim = SimVfs::new().recording();
        let mut past = Self {
            random: Random(seed),
            seed,
            faults: FaultVfs::new(layer(&sim)),
            sim,
            db: None,
            snapshots: Vec::new(),
            states: vec![Map::new()],
            marks: vec![(0, 0, 0)],
            writes: 0,
            older: Vec::new(),
            undone: (Vec::new(), 0),
        };
        past.open();
        past
    }

    fn open(&mut self) {
        self.faults = FaultVfs::new(layer(&self.sim));
        if self.random.one_in(3) {
            let kinds = [FileKind::Table, FileKind::Wal, FileKind::Manifest];
            let rule = FaultRule::new(Fault::Io).operations([Operation::Remove]).kinds(kinds);
            let skip = self.random.below(8) as u64;
            self.faults.add(rule.skip(skip).from_then_on());
        }
        let auto = self.random.one_in(2);
        let options = options().seed(self.seed).auto_compaction(auto).vfs(self.faults.clone());
        self.db = Some(options.open(DIR).unwrap());
        self.mark(true);
    }

    fn mark(&mut self, promised: bool) {
        let begun = self.states.len() - 1;
        let before = self.marks.last().map_or(0, |mark| mark.2);
        let promised = if promised { begun } else { before };
        self.marks.push((self.sim.moment_count(), begun, promised));
    }

    /// A value that holds frames for its own offsets, which claim that all was synced and that a key was deleted.
    fn plant(&mut self) {
        let (log, store, end) = log_in_use(&self.sim.disk());
        let key = format!("key {:02}", self.random.below(30)).into_bytes();
        let deleted = change(0, format!("key {:02}", self.random.below(30)).as_bytes(), b"");
        let value_at = (end + FRAME_HEADER + 2 + key.len() + 2) as u64;
        let seq = 1 + self.random.below(4 * self.writes + 4) as u64;
        let value = planted(log, store, value_at, seq, &deleted);
        let mut state = self.states.last().unwrap().clone();
        state.insert(key.clone(), value.clone());
        self.states.push(state);
        self.mark(false);
        self.db.as_ref().unwrap().put(key, value).unwrap();
        self.mark(false);
    }

    fn write(&mut self) {
        let (mut batch, mut state) = (Batch::new(), self.states.last().unwrap().clone());
        self.writes += 1;
        for _ in 0..=self.random.below(4) {
            let key = format!("key {:02}", self.random.below(30)).into_bytes();
            if self.random.one_in(3) {
                batch.delete(&key);
                state.remove(&key);
            } else {
                let long = if self.random.one_in(60) { 40_000 } else { 90 };
                let dots = ".".repeat(self.random.below(long));
                let value = format!("value {}{dots}", self.writes).into_bytes();
                batch.put(&key, &value);
                state.insert(key, value);
            }
        }
        let synced = self.random.one_in(3);
        self.states.push(state);
        self.mark(false);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        self.db.as_ref().unwrap().write_with(batch, durability).unwrap();
        self.mark(synced);
    }

    /// The store after a crash has one of the states that it may have.
    fn reopen_on(&mut self, sim: SimVfs) {
        let moments = self.sim.take_moments();
        if !moments.is_empty() {
            for _ in 0..3 {
                self.older.push(self.random.of(&moments).disk.clone());
            }
        }
        let (begun, promised) = self.marks.last().map_or((0, 0), |mark| (mark.1, mark.2));
        self.sim = sim.recording();
        self.marks.clear();
        let found = contents(&layer(&self.sim), DIR.as_ref());
        let held = (promised..=begun).rev().find(|&held| self.states[held] == found);
        let held = held.expect("a state that the store had");
        let undone = self.states.split_off(held + 1);
        self.marks.push((0, held, promised));
        self.open();
        self.undone = (undone, self.sim.moment_count());
    }

    fn step(&mut self) {
        let db = self.db.as_ref().unwrap();
        match self.random.below(100) {
            0..5 => self.plant(),
            5..70 => self.write(),
            70..74 => {
                db.sync().unwrap();
                self.mark(true);
            }
            74..82 => {
                db.flush().unwrap();
                self.mark(true);
            }
            82..86 => {
                db.compact().unwrap();
                self.mark(true);
            }
            86..89 => self.snapshots.push(db.snapshot()),
            89..91 => self.snapshots.clear(),
            91..94 => {
                let policies = [FilterPolicy::bloom(), FilterPolicy::ribbon()];
                let _ = db.rebuild_filters(self.random.of(&policies));
            }
            94..96 => {
                self.snapshots.clear();
                self.db.take().unwrap().close().unwrap();
                self.mark(true);
                self.reopen_on(SimVfs::on(self.sim.disk()));
            }
            96..98 => {
                self.snapshots.drain(..).for_each(std::mem::forget);
                std::mem::forget(self.db.take());
                self.reopen_on(SimVfs::on(self.sim.disk()));
            }
            _ => {
                self.snapshots.drain(..).for_each(std::mem::forget);
                std::mem::forget(self.db.take());
                let disk = self.power_failure(&self.sim.disk());
                self.reopen_on(SimVfs::on(disk));
            }
        }
    }

    fn power_failure(&mut self, disk: &SimDisk) -> SimDisk {
        let style = self.random.below(3);
        let random = &mut self.random;
        disk.power_failure(Unit::Sector, |unsynced| match style {
            0 => Keep::OLD,
            1 => Keep::NEW,
            _ => Keep::State(random.below(unsynced.states())),
        })
    }

    /// A disk of the last life, and the states that it may have.
    fn disk(&mut self, moments: &[criba::vfs::Moment]) -> (SimDisk, Vec<SimDisk>, Vec<Map>) {
        let at = if self.random.one_in(2) {
            moments.len() - 1
        } else {
            self.random.below(moments.len())
        };
        let promised = self.marks.iter().filter(|mark| mark.0 <= at + 1);
        let promised = promised.map(|mark| mark.2).max().unwrap_or(0);
        let begun = self.marks.iter().filter(|mark| mark.0 <= at).map(|mark| mark.1).max();
        let mut states = self.states[promised..=begun.unwrap_or(0).max(promised)].to_vec();
        if at < self.undone.1 {
            states.extend(self.undone.0.iter().cloned()); // the opening can still find them
        }
        let disk = moments[at].disk.clone();
        let mut older = self.older.clone();
        (0..3).for_each(|_| older.push(moments[self.random.below(at + 1)].disk.clone()));
        (if self.random.one_in(2) { self.power_failure(&disk) } else { disk }, older, states)
    }
}

/// Another store, of other keys.
static FOREIGN: LazyLock<SimDisk> = LazyLock::new(|| {
    let sim = SimVfs::new();
    let db = options().seed(0xF0E).auto_compaction(false).vfs(sim.clone()).open(DIR).unwrap();
    for number in 0..40 {
        db.put(format!("foreign {number}"), "value").unwrap();
        if number % 4 == 3 {
            db.flush().unwrap();
        }
    }
    db.put("foreign", "in the log").unwrap();
    db.close().unwrap();
    sim.disk()
});

/// Whether the rest of a log is what it may be after a crash: whole frames.
fn ends_with_a_frame(log: &[u8]) -> bool {
    let mut at = LOG_HEADER;
    while at + 27 <= log.len() {
        let length = u16::from_le_bytes([log[at + 4], log[at + 5]]);
        at += 27 + usize::from(length);
        if 32768 - at % 32768 < 35 {
            at += 32768 - at % 32768;
        }
    }
    (LOG_HEADER..=at).contains(&log.len())
}

/// Damages a disk at random. `None` for damage that no reader could see.
fn damage(
    random: &mut Random,
    older: &[SimDisk],
    whole: &SimDisk,
    disk: &mut SimDisk,
) -> Option<String> {
    let paths = |disk: &SimDisk| -> Vec<PathBuf> {
        disk.files().map(|(path, _)| path.to_owned()).filter(|path| path.starts_with(DIR)).collect()
    };
    if paths(disk).is_empty() {
        return None;
    }
    let path = random.of(&paths(disk)).clone();
    let before = disk.read(&path).unwrap().to_vec();
    let mut bytes = before.clone();
    let what = match random.below(9) {
        0 | 1 if !bytes.is_empty() => {
            let at = random.below(written(&bytes).len().max(1));
            bytes[at] ^= 1 << random.below(8);
            format!("{}: flip at {at}", name(&path))
        }
        2 => {
            disk.remove(&path);
            return Some(format!("{} removed", name(&path)));
        }
        3 => {
            let length = random.below(bytes.len() + 1);
            bytes.truncate(length);
            format!("{} cut to {length}", name(&path))
        }
        4 => {
            let first = random.below(bytes.len() / 512 + 1) * 512;
            let end = (first + 512 * (1 + random.below(3))).min(bytes.len());
            bytes[first..end].fill(0);
            format!("{}: zeros from {first} to {end}", name(&path))
        }
        5 if !older.is_empty() => {
            let from = random.of(older);
            bytes = from.read(&path)?.to_vec();
            format!("{} from an earlier moment", name(&path))
        }
        6 => {
            let other = random.of(&paths(disk)).clone();
            let is_temp = [&other, &path].iter().any(|path| path.ends_with("CURRENT.tmp"));
            if is_temp || Kind::of(&name(&other)) != Kind::of(&name(&path)) {
                return None;
            }
            bytes = disk.read(&other).unwrap().to_vec();
            disk.write(&other, before.clone());
            format!("{} and {} swapped", name(&path), name(&other))
        }
        7 if !older.is_empty() => {
            // Names that come back, and are no others now.
            let from = random.of(older);
            let mut what = "leftovers:".to_owned();
            for (path, bytes) in from.files().filter(|(path, _)| path.starts_with(DIR)) {
                if whole.read(path).is_none() && !random.one_in(4) {
                    write!(what, " {}", name(path)).unwrap();
                    disk.write(path, bytes);
                }
            }
            return Some(what);
        }
        8 => {
            // Of another store, under names that are and were free: a CURRENT of an earlier moment that names the
            // other's manifest makes it a store of the other.
            let mut what = "strays:".to_owned();
            let disks: Vec<&SimDisk> = older.iter().chain([whole, &*disk]).collect();
            let is_free = |path: &Path| disks.iter().all(|disk| disk.read(path).is_none());
            let files = FOREIGN.files().filter(|(path, _)| path.starts_with(DIR));
            let free: Vec<_> = files.filter(|(path, _)| is_free(path)).collect();
            for (path, bytes) in free {
                if !random.one_in(4) {
                    write!(what, " {}", name(path)).unwrap();
                    disk.write(path, bytes);
                }
            }
            return Some(what);
        }
        _ => return None,
    };
    // A log cut behind a whole frame, or behind its header, whose last bytes can be 0: no write seems to follow.
    let (before, left) = (written(&before), written(&bytes));
    let is_shorter = (LOG_HEADER - 3..=LOG_HEADER).contains(&left.len())
        || before.starts_with(left) && ends_with_a_frame(left);
    if path.extension().is_some_and(|is| is == "log") && is_shorter {
        return None;
    }
    disk.write(&path, bytes);
    Some(what)
}

fn names(loss: &criba::Loss, key: &[u8]) -> bool {
    RangeBounds::<Vec<u8>>::contains(&loss.keys, &key.to_vec())
}

#[test]
fn a_store_with_a_past_brings_back_nothing() {
    let first = std::env::var("CRIBA_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let count = if all() { 200 * PASTS } else { PASTS };
    let (certain, cases) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    in_parallel(count, |number, begun| {
        let seed = first + number as u64;
        begun(&format!("seed {seed}"));
        let mut past = Past::new(seed);
        for _ in 0..30 + past.random.below(150) {
            past.step();
        }
        past.snapshots.drain(..).for_each(std::mem::forget);
        std::mem::forget(past.db.take());
        let moments = past.sim.take_moments();
        for damaged in 0..DAMAGED {
            let (whole, older, states) = past.disk(&moments);
            let mut disk = whole.clone();
            let mut what = format!("seed {seed}, damage {damaged}:");
            let opened = Options::new().vfs(SimVfs::on(disk.clone())).open(DIR).unwrap();
            let entries = opened.iter().map(Result::unwrap);
            let before: Map = entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            let held = states.iter().position(|state| *state == before);
            assert!(held.is_some(), "{what} before damage");
            for _ in 0..=past.random.below(2) {
                if let Some(done) = damage(&mut past.random, &older, &whole, &mut disk) {
                    write!(what, " {done};").unwrap();
                }
            }
            begun(&what);
            let sim = SimVfs::on(disk.clone());
            let repair = || repair_with(DIR, NEW, Uncertain::SetAside, None, &layer(&sim));
            let repaired = match within_memory(&what, repair) {
                Ok(repaired) => repaired,
                Err(criba::Error::NotAStore { .. }) => continue,
                Err(error) => panic!("{what} {error}"),
            };
            for (path, bytes) in disk.files().filter(|(path, _)| path.starts_with(DIR)) {
                assert_eq!(sim.disk().read(path), Some(bytes), "{what}");
            }
            let vfs = layer(&SimVfs::on(sim.disk().power_failure(Unit::Sector, |_| Keep::OLD)));
            let sound = contents(&vfs, NEW.as_ref());
            cases.fetch_add(1, Ordering::Relaxed);
            certain.fetch_add(usize::from(!sound.is_empty()), Ordering::Relaxed);
            for (key, value) in &sound {
                if !states.iter().any(|state| state.get(key) == Some(value)) {
                    failures.lock().unwrap().push(format!(
                        "{what} {} came back: {:?}; files {:?}; losses {:#?}",
                        key.escape_ascii(),
                        String::from_utf8_lossy(&value[..value.len().min(12)]),
                        disk.files()
                            .map(|(path, bytes)| (name(path), bytes.len()))
                            .collect::<Vec<_>>(),
                        repaired.losses.iter().map(ToString::to_string).collect::<Vec<_>>()
                    ));
                    break;
                }
            }
            for key in states[0].keys() {
                let stays = states.iter().all(|state| state.contains_key(key));
                if stays
                    && !sound.contains_key(key)
                    && !repaired.losses.iter().any(|loss| names(loss, key))
                {
                    failures.lock().unwrap().push(format!(
                        "{what} no loss names {}; losses {:?}",
                        key.escape_ascii(),
                        repaired.losses
                    ));
                    break;
                }
            }
        }
    });
    let failures = failures.into_inner().unwrap();
    println!("{cases:?} cases, {certain:?} with certain keys");
    assert!(
        failures.is_empty(),
        "{}: {}",
        failures.len(),
        failures.iter().take(20).cloned().collect::<Vec<_>>().join("\n")
    );
}
