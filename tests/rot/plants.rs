//! Values that hold frames for their own offsets. The planter knows number, offset, store and format, but
//! not the hash key. Neither recovery nor repair takes them for real ones.

use std::path::Path;
use std::sync::Arc;

use criba::vfs::{Keep, SimDisk, SimVfs, Unit, Vfs};
use criba::{Db, Durability, Options, Uncertain, repair_with};

use crate::forge::FRAME_HEADER;

const DIR: &str = "/store";
const NEW: &str = "/new";
/// The header of a log.
const LOG_HEADER: usize = 52;

fn options(sim: &SimVfs) -> Options {
    Options::new().vfs(sim.clone()).background_threads(0).seed(7)
}

/// CRC-32 of a salt, an offset and bytes.
fn checksum(salt: u64, offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// A frame of one record, for an offset of a log.
fn frame(salt: u64, log: u64, offset: u64, seq: u64, synced: u64, payload: &[u8]) -> Vec<u8> {
    let mut covered = Vec::new();
    covered.extend((payload.len() as u16).to_le_bytes());
    covered.push(1); // Full
    covered.extend((log as u32).to_le_bytes());
    covered.extend(seq.to_le_bytes());
    covered.extend(synced.to_le_bytes());
    covered.extend(payload);
    let mut bytes = checksum(salt, offset, &covered).to_le_bytes().to_vec();
    bytes.extend(covered);
    bytes
}

/// The salts that the planter can guess.
fn guesses(log: u64, store: u64) -> [u64; 4] {
    [0, log, store, store ^ log]
}

/// The numbers of the log in use and of the store, as its header has them, and the end of the last frame.
pub(crate) fn log_in_use(disk: &SimDisk) -> (u64, u64, usize) {
    let logs = disk.files().filter(|(path, _)| path.extension().is_some_and(|end| end == "log"));
    let (_, bytes) = logs.last().expect("an open store has a log");
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // Zeros may follow.
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    (u64_at(16), u64_at(24), end)
}

/// A value with a frame for each guess. It begins at this offset of the log; the first change there has `seq`.
pub(crate) fn planted(log: u64, store: u64, value_at: u64, seq: u64, payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    for salt in guesses(log, store) {
        let at = value_at + value.len() as u64;
        value.extend(frame(salt, log, at, seq, 1 << 60, payload));
    }
    value
}

pub(crate) fn change(kind: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, key.len() as u8];
    bytes.extend(key);
    if kind == 1 {
        bytes.push(value.len() as u8);
        bytes.extend(value);
    }
    bytes
}

/// Puts a value that claims that all before it was synced, and loses one unsynced sector or length.
#[test]
fn a_planted_frame_makes_no_store_refuse_to_open() {
    let (mut states, mut plants) = (0, 0);
    for before in 1..=250 {
        let sim = SimVfs::new();
        let db = options(&sim).open(DIR).unwrap();
        db.put_with("synced", "value", Durability::Synced).unwrap();
        db.put("before", vec![b'v'; before * 7]).unwrap();
        let (log, store, end) = log_in_use(&sim.disk());
        // Behind the frame's header: tag, key, and a length of two bytes.
        let value_at = (end + FRAME_HEADER + 1 + 1 + 5 + 2) as u64;
        let value = planted(log, store, value_at, 3, &change(0, b"synced", b""));
        assert!(value.len() >= 128);
        db.put("plant", &value).unwrap();
        plants += guesses(log, store).len();
        let written = sim.disk();
        let (path, bytes) = (Path::new(DIR).join(format!("{log:06}.log")), value.clone());
        let found = written.read(&path).unwrap();
        assert_eq!(&found[value_at as usize..][..bytes.len()], bytes, "at the offset it is for");
        std::mem::forget(db);
        for lost in 0..written.unsynced(Unit::Sector).len() {
            let mut number = 0;
            let disk = written.power_failure(Unit::Sector, |_| {
                number += 1;
                if number - 1 == lost { Keep::OLD } else { Keep::NEW }
            });
            let sim = SimVfs::on(disk);
            let db =
                options(&sim).open(DIR).unwrap_or_else(|error| panic!("{before} {lost}: {error}"));
            assert_eq!(db.get("synced").unwrap().unwrap(), "value", "{before} {lost}");
            states += 1;
        }
    }
    println!("{plants} frames planted, {states} power failures");
    assert!(plants == 1000 && states > 500, "{states} states");
}

/// The value with the planted record is damaged, so a search within it finds what looks like a record.
#[test]
fn a_planted_record_is_no_change_for_a_repair() {
    let mut plants = 0;
    for before in 1..=250 {
        let sim = SimVfs::new();
        let db = options(&sim).open(DIR).unwrap();
        db.put("kept", "value").unwrap();
        db.put("before", vec![b'v'; before * 7]).unwrap();
        let (log, store, end) = log_in_use(&sim.disk());
        let value_at = (end + FRAME_HEADER + 1 + 1 + 5 + 2) as u64;
        let record = [change(0, b"kept", b""), change(1, b"forged", b"value")].concat();
        db.put("plant", planted(log, store, value_at, 4, &record)).unwrap();
        plants += guesses(log, store).len();
        for number in 0..3 {
            db.put_with(format!("after {number}"), "value", Durability::Synced).unwrap();
        }
        std::mem::forget(db);
        let sim = SimVfs::on(sim.disk());
        sim.edit(|disk| {
            let path = Path::new(DIR).join(format!("{log:06}.log"));
            let mut bytes = disk.read(&path).unwrap().to_vec();
            bytes[end + 4] ^= 0x55; // the length of the frame that has the plant
            disk.write(&path, bytes);
        });
        let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
        let repaired = repair_with(DIR, NEW, Uncertain::Accept, None, &vfs).unwrap();
        let db = self::repaired(&sim);
        assert!(db.get("forged").unwrap().is_none(), "{before}: {repaired:?}");
        assert_eq!(db.get("kept").unwrap().unwrap(), "value", "{before}");
        assert_eq!(db.get("after 2").unwrap().unwrap(), "value", "{before}");
    }
    println!("{plants} records planted");
}

fn repaired(sim: &SimVfs) -> Db {
    options(sim).open(NEW).unwrap()
}

/// Each byte of a log's header, damaged over synced records, with and without an end frame.
#[test]
fn no_damaged_header_hides_a_synced_record() {
    for closed in [false, true] {
        let sim = SimVfs::new();
        let db = options(&sim).open(DIR).unwrap();
        for number in 0..20 {
            db.put_with(format!("key {number:02}"), "value", Durability::Synced).unwrap();
        }
        if closed {
            db.close().unwrap();
        } else {
            std::mem::forget(db);
        }
        let disk = sim.disk();
        let (log, ..) = log_in_use(&disk);
        let path = Path::new(DIR).join(format!("{log:06}.log"));
        for at in 0..LOG_HEADER {
            for bit in [0x01, 0x80, 0xff] {
                let mut damaged = disk.clone();
                let mut bytes = disk.read(&path).unwrap().to_vec();
                bytes[at] ^= bit;
                damaged.write(&path, bytes);
                let sim = SimVfs::on(damaged);
                sim.unlock();
                let error = options(&sim).open(DIR).expect_err("a damaged header");
                assert!(error.to_string().contains(&format!("{log:06}.log")), "{error}");
                let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
                let repaired = repair_with(DIR, NEW, Uncertain::SetAside, None, &vfs);
                // A newer version is no damage; its checksum is wrong, so it never says so.
                let repaired = repaired.unwrap_or_else(|error| panic!("{at}: {error}"));
                assert_eq!((repaired.keys, repaired.uncertain), (20, 0), "{at}: {repaired:?}");
            }
        }
    }
}
