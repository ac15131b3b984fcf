//! Repair of the same damaged stores. A key gets its newest value, or it is set aside, or a loss names it. No
//! deleted key and no older value comes back.

use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use criba::vfs::{
    Fault, FaultRule, FaultVfs, FileKind, Keep, Operation, SimDisk, SimVfs, Unit, Vfs,
};
use criba::{Error, Loss, Options, Repaired, Uncertain, repair_with, verify_with};

use crate::bytes::parts;
use crate::common::stride;
use crate::fixture::{DIR, FIXTURE, KEYS, Kind, Map, key, name, path};
use crate::forge::{FRAME_HEADER, Frame, LOG_HEADER, Log, MANIFEST_HEADER, checksum};
use crate::sweep::{all, in_parallel};

const NEW: &str = "/new";

/// The flips of the short form, over all files.
const FLIPS: usize = 2000;

struct Salvaged {
    repaired: Repaired,
    sound: Map,
    uncertain: Map,
}

fn contents(vfs: &Arc<dyn Vfs>, dir: &Path) -> Map {
    assert!(verify_with(dir, vfs, |_, _| {}).unwrap().is_sound());
    let db = Options::new().vfs(Arc::clone(vfs)).open_read_only(dir).unwrap();
    let entries = db.iter().map(Result::unwrap);
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn of_dir(disk: &SimDisk) -> Vec<(&Path, &[u8])> {
    disk.files().filter(|(path, _)| path.starts_with(DIR)).collect()
}

/// Repairs the store on a disk, which must not change, and checks what holds for all damage.
fn salvage(what: &str, disk: &SimDisk) -> Salvaged {
    let sim = SimVfs::on(disk.clone());
    let repaired = repair_with(DIR, NEW, Uncertain::SetAside, None, &layer(&sim));
    check(what, disk, &sim, repaired.unwrap_or_else(|error| panic!("{what}: {error}")))
}

fn layer(vfs: &(impl Vfs + Clone + 'static)) -> Arc<dyn Vfs> {
    Arc::new(vfs.clone())
}

fn check(what: &str, disk: &SimDisk, sim: &SimVfs, repaired: Repaired) -> Salvaged {
    // All of it is durable.
    let vfs = layer(&SimVfs::on(sim.disk().power_failure(Unit::Sector, |_| Keep::OLD)));
    assert_eq!(of_dir(&sim.disk()), of_dir(disk), "{what}: the store has changed");
    let sound = contents(&vfs, NEW.as_ref());
    let aside = Path::new(NEW).join("uncertain");
    let uncertain = match vfs.open_dir(&aside) {
        Ok(_) => contents(&vfs, &aside),
        Err(_) => Map::new(),
    };
    assert_eq!((repaired.keys, repaired.uncertain), (sound.len() as u64, uncertain.len() as u64));
    for (key, value) in &sound {
        let newest = FIXTURE.last().get(key);
        assert_eq!(newest, Some(value), "{what}: {} came back", key.escape_ascii());
    }
    for key in FIXTURE.last().keys().filter(|key| !sound.contains_key(*key)) {
        let named = repaired.losses.iter().any(|loss| names(loss, key));
        assert!(named, "{what}: no loss names {}", key.escape_ascii());
    }
    Salvaged { repaired, sound, uncertain }
}

fn names(loss: &Loss, key: &[u8]) -> bool {
    RangeBounds::<Vec<u8>>::contains(&loss.keys, &key.to_vec())
}

/// The keys of the log's record that has this byte; none for the header.
fn keys_of_record(at: usize) -> Vec<Vec<u8>> {
    let record = FIXTURE.ends.partition_point(|&end| end <= at);
    if record == 0 { Vec::new() } else { [1, 2, 3].map(|times| key(times * record)).to_vec() }
}

/// Checks that only what is damaged is lost, and only what it makes doubtful is uncertain.
fn check_flip(kind: Kind, bytes: &[u8], at: usize, what: &str, found: &Salvaged) {
    let Salvaged { repaired, sound, uncertain } = found;
    let damaged = match kind {
        Kind::Table if at < parts(bytes)[0] => {
            let [loss] = &repaired.losses[..] else { panic!("{what}: {:?}", repaired.losses) };
            let named: Vec<_> = (0..KEYS).map(key).filter(|key| names(loss, key)).collect();
            assert!((1..16).contains(&named.len()), "{what}: {loss}");
            for key in FIXTURE.last().keys().filter(|key| !named.contains(*key)) {
                assert!(sound.contains_key(key), "{what}: {}", key.escape_ascii());
            }
            named
        }
        Kind::Log if at >= FIXTURE.ends[0] => {
            let [loss] = &repaired.losses[..] else { panic!("{what}: {:?}", repaired.losses) };
            assert!(
                loss.finding.offset.is_some_and(|offset| offset <= at as u64),
                "{what}: {loss}"
            );
            // What later records say is newer than what is lost; without the length, where they are is uncertain.
            let record = FIXTURE.ends.partition_point(|&end| end <= at);
            let is_length = (4..6).contains(&(at - FIXTURE.ends[record - 1]));
            let kept = if is_length { uncertain } else { sound };
            for number in record + 1..FIXTURE.ends.len() {
                assert!(kept.contains_key(&key(number)), "{what}: record {number}");
            }
            keys_of_record(at)
        }
        Kind::Manifest if at >= MANIFEST_HEADER => {
            assert!(sound.is_empty(), "{what}: nothing is certain");
            Vec::new()
        }
        _ => {
            assert_eq!(sound, FIXTURE.last(), "{what}");
            assert_eq!(uncertain.len(), 0, "{what}");
            assert!(repaired.losses.is_empty(), "{what}: {:?}", repaired.losses);
            return;
        }
    };
    for (key, value) in FIXTURE.last().iter().filter(|(key, _)| !damaged.contains(key)) {
        let kept = sound.get(key).or(uncertain.get(key));
        assert_eq!(kept, Some(value), "{what}: {}", key.escape_ascii());
    }
}

#[test]
fn a_flipped_bit_costs_what_it_damages_and_brings_back_nothing() {
    let files = Kind::ALL
        .into_iter()
        .flat_map(|kind| FIXTURE.of_kind(kind).into_iter().map(move |name| (kind, name)));
    let flips = files.flat_map(|(kind, name)| {
        (0..FIXTURE.file(&name).len()).map(move |at| (kind, name.clone(), at))
    });
    let flips: Vec<_> = flips.collect();
    let step = if all() { 1 } else { (flips.len() / FLIPS).max(1) };
    let chosen: Vec<_> = flips.iter().step_by(step).collect();
    in_parallel(chosen.len(), |number, begun| {
        let (kind, name, at) = chosen[number];
        let what = format!("{name}: byte {at} flipped");
        begun(&what);
        let mut bytes = FIXTURE.file(name).to_vec();
        bytes[*at] ^= 1 << (at * 5 % 8);
        let found = salvage(&what, &FIXTURE.with(name, bytes));
        check_flip(*kind, FIXTURE.file(name), *at, &what, &found);
    });
    println!("repaired: {} of {} bytes flipped", chosen.len(), flips.len());
}

#[test]
fn a_sound_store_is_copied() {
    let found = salvage("sound", &FIXTURE.disk);
    assert_eq!(&found.sound, FIXTURE.last());
    assert!(found.repaired.policy_known && found.repaired.losses.is_empty());
}

#[test]
fn files_that_are_missing_are_named() {
    for kind in Kind::ALL {
        for name in FIXTURE.of_kind(kind) {
            let mut disk = FIXTURE.disk.clone();
            disk.remove(path(&name));
            let found = salvage(&format!("without {name}"), &disk);
            let Repaired { losses, .. } = &found.repaired;
            match kind {
                Kind::Filter | Kind::Lock | Kind::Current => {
                    assert_eq!(losses.len(), 0, "{losses:?}");
                }
                _ => assert!(
                    losses.iter().any(|loss| loss.finding.path == path(&name)),
                    "{losses:?}"
                ),
            }
        }
    }
}

#[test]
fn files_cut_short_bring_back_nothing() {
    for kind in [Kind::Table, Kind::Manifest, Kind::Current] {
        for name in FIXTURE.of_kind(kind) {
            let bytes = FIXTURE.file(&name);
            for length in (0..bytes.len()).step_by(if all() { 1 } else { 29 }) {
                salvage(
                    &format!("{name}: cut to {length} bytes"),
                    &FIXTURE.with(&name, &bytes[..length]),
                );
            }
        }
    }
}

/// As after a disk that lost its newest writes of one file, or that kept a removed one.
#[test]
fn an_older_manifest_brings_back_nothing() {
    let is_manifest = |path: &Path| Kind::of(&name(path)) == Kind::Manifest;
    let manifest = FIXTURE.only(Kind::Manifest);
    for (number, older) in FIXTURE.older.iter().enumerate() {
        let mut replaced = FIXTURE.disk.clone();
        replaced.remove(path(&manifest));
        let mut beside = FIXTURE.disk.clone();
        beside.remove(path(&FIXTURE.only(Kind::Current)));
        for (path, bytes) in older.files().filter(|(path, _)| is_manifest(path)) {
            replaced.write(path, bytes);
            if beside.read(path).is_none() {
                beside.write(path, bytes);
            }
        }
        salvage(&format!("without CURRENT, beside manifest {number}"), &beside);
        salvage(&format!("manifest {number}, not named by CURRENT"), &replaced);
        let current = older.read(path(&FIXTURE.only(Kind::Current))).unwrap();
        replaced.write(path(&FIXTURE.only(Kind::Current)), current);
        salvage(&format!("manifest {number}"), &replaced);
    }
}

/// It is no log without changes.
#[test]
fn a_log_without_header_and_frames_brings_back_nothing() {
    let log = FIXTURE.only(Kind::Log);
    let length = FIXTURE.file(&log).len();
    salvage("a log of zeros", &FIXTURE.with(&log, vec![0; length]));
    for length in [0, 1, 39, 40, 51] {
        salvage("a log cut short", &FIXTURE.with(&log, &FIXTURE.file(&log)[..length]));
    }
}

/// With all files that it needs, beside those of now, which hold nothing: the only key was deleted.
#[test]
fn an_older_current_brings_back_nothing() {
    let sim = SimVfs::new();
    let options = Options::new().background_threads(0).vfs(sim.clone());
    let db = options.clone().open(DIR).unwrap();
    db.put("deleted", "value").unwrap();
    db.flush().unwrap();
    let older = sim.disk();
    db.close().unwrap();
    let db = options.open(DIR).unwrap();
    db.delete("deleted").unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let mut disk = sim.disk();
    for (path, bytes) in older.files() {
        if disk.read(path).is_none() || Kind::of(&name(path)) == Kind::Current {
            disk.write(path, bytes);
        }
    }
    let repaired =
        repair_with(DIR, NEW, Uncertain::SetAside, None, &layer(&SimVfs::on(disk))).unwrap();
    assert_eq!((repaired.keys, repaired.losses.len()), (0, 1), "{:?}", repaired.losses);
}

#[test]
fn a_table_without_its_index_and_one_of_its_blocks_brings_back_nothing() {
    for name in FIXTURE.of_kind(Kind::Table) {
        let sound = FIXTURE.file(&name);
        let [data, _, index] = parts(sound);
        for at in (0..data).step_by(stride()) {
            let flipped = |other: usize| {
                let mut bytes = sound.to_vec();
                bytes[at] ^= 1;
                bytes[other] ^= 1;
                let what = format!("{name}: bytes {at} and {other} flipped");
                let found = salvage(&what, &FIXTURE.with(&name, bytes));
                assert_eq!(found.repaired.losses.len(), 1);
                (what, found)
            };
            flipped(index);
            // The manifest says where the index begins.
            let (what, found) = flipped(sound.len() - 1);
            check_flip(Kind::Table, sound, at, &what, &found);
        }
    }
}

#[test]
fn bad_sectors_bring_back_nothing() {
    for kind in [FileKind::Table, FileKind::Wal, FileKind::Manifest, FileKind::Current] {
        for number in 0.. {
            let sim = SimVfs::on(FIXTURE.disk.clone());
            let faults = FaultVfs::new(layer(&sim));
            let rule = FaultRule::new(Fault::Io).operations([Operation::Read]);
            faults.add(rule.kinds([kind]).skip(number));
            let repaired = repair_with(DIR, NEW, Uncertain::SetAside, None, &layer(&faults));
            // Those of the new store are tried, too.
            if !faults.injected().iter().any(|fault| fault.path.starts_with(DIR)) {
                assert!(number > 0, "no read of a {kind:?}");
                break;
            }
            check(&format!("{kind:?} read {number}"), &FIXTURE.disk, &sim, repaired.unwrap());
        }
    }
}

/// A table that a compaction replaced, and whose file a crash left, has keys that were deleted since.
#[test]
fn a_table_that_nothing_names_counts_only_in_place_of_a_missing_one_and_is_uncertain() {
    let sim = SimVfs::new();
    let db = Options::new().background_threads(0).vfs(sim.clone()).open(DIR).unwrap();
    db.put("deleted", "value").unwrap();
    db.flush().unwrap();
    let older = sim.disk();
    db.delete("deleted").unwrap();
    db.put("kept", "value").unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let mut disk = sim.disk();
    let tables = |disk: &SimDisk| {
        let paths = disk.files().map(|(path, _)| path.to_owned());
        paths.filter(|path| path.extension().is_some_and(|is| is == "sst")).collect::<Vec<_>>()
    };
    let (compacted, left) = (tables(&disk).remove(0), tables(&older).remove(0));
    disk.write(&left, older.read(&left).unwrap());
    let repaired = |disk: SimDisk| {
        let vfs = layer(&SimVfs::on(disk));
        let repaired = repair_with(DIR, NEW, Uncertain::SetAside, None, &vfs).unwrap();
        let keys = |dir: &Path| contents(&vfs, dir).into_keys().collect::<Vec<_>>();
        let uncertain = Path::new(NEW).join("uncertain");
        let uncertain = if repaired.uncertain > 0 { keys(&uncertain) } else { Vec::new() };
        (keys(NEW.as_ref()), uncertain)
    };
    assert_eq!(repaired(disk.clone()), (vec![b"kept".to_vec()], Vec::new()));
    disk.remove(&compacted);
    assert_eq!(repaired(disk), (Vec::new(), vec![b"deleted".to_vec()]));
}

/// With the same number, keys and sequence numbers, and sound in itself.
#[test]
fn a_table_of_another_store_does_not_count() {
    let store = |value: &str| {
        let sim = SimVfs::new();
        let db = Options::new().background_threads(0).vfs(sim.clone()).open(DIR).unwrap();
        (0..KEYS).for_each(|number| db.put(key(number), value).unwrap());
        db.flush().unwrap();
        let table = path(&format!("{:06}.sst", db.tables()[0].id));
        db.close().unwrap();
        (sim.disk(), table)
    };
    let ((mut disk, table), (other, same_table)) = (store("right"), store("wrong"));
    assert_eq!(table, same_table);
    disk.write(&table, other.read(&table).unwrap());
    let repaired =
        repair_with(DIR, NEW, Uncertain::Accept, None, &layer(&SimVfs::on(disk))).unwrap();
    assert_eq!((repaired.keys, repaired.losses.len()), (0, 1));
}

/// A value can be a whole frame for its place in the log. If the frame around it loses its length, it is found.
#[test]
fn bytes_of_a_value_that_look_like_a_frame_are_uncertain() {
    let mut log = Log::of(Kind::Log);
    let before: usize = log.frames.iter().map(|frame| FRAME_HEADER + frame.payload.len()).sum();
    let outer = LOG_HEADER + before;
    let last = log.frames.last().unwrap().clone();
    let changes = 3;
    let seq = last.seq + changes;
    let forged = [&[1, 6][..], b"key 00", &[6], b"forged"].concat();
    let put_value = [&[1, 1][..], b"x", &[FRAME_HEADER as u8 + forged.len() as u8]].concat();
    let place = outer + FRAME_HEADER + put_value.len();
    let mut inner = vec![0; 4];
    inner.extend((forged.len() as u16).to_le_bytes());
    inner.push(1);
    inner.extend(last.log.to_le_bytes());
    inner.extend(seq.to_le_bytes());
    inner.extend(0_u64.to_le_bytes());
    inner.extend(forged);
    let sum = checksum(log.salt, place, &inner[4..]);
    inner[..4].copy_from_slice(&sum);
    let payload = [put_value, inner].concat();
    log.frames.push(Frame { length: payload.len() as u16, seq, payload, ..last });
    let mut bytes = log.encode();
    let name = FIXTURE.only(Kind::Log);
    let vfs = layer(&SimVfs::on(FIXTURE.with(&name, bytes.clone())));
    let value = Options::new().vfs(vfs).open_read_only(DIR).unwrap().get("x").unwrap().unwrap();
    assert!(value.ends_with(b"forged"));

    bytes[outer + 5] ^= 1;
    let found = salvage("a forged frame", &FIXTURE.with(&name, bytes));
    assert_eq!(found.uncertain.get(&key(0)).map(Vec::as_slice), Some(&b"forged"[..]));
}

#[test]
fn uncertain_keys_are_accepted_on_demand() {
    let mut disk = FIXTURE.disk.clone();
    disk.remove(path(&FIXTURE.only(Kind::Manifest)));
    let set_aside = salvage("without manifest", &disk);
    assert!(set_aside.sound.is_empty() && !set_aside.repaired.policy_known);
    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::on(disk));
    let repaired = repair_with(DIR, NEW, Uncertain::Accept, None, &vfs).unwrap();
    assert_eq!(repaired.uncertain, repaired.keys);
    assert!(vfs.open_dir(&Path::new(NEW).join("uncertain")).is_err());
    assert_eq!(contents(&vfs, NEW.as_ref()), set_aside.uncertain);
}

#[test]
fn a_new_store_that_cannot_be_written_leaves_nothing() {
    let mut disk = FIXTURE.disk.clone();
    disk.remove(path(&FIXTURE.only(Kind::Manifest))); // so that all keys go to the second store
    let writes = [
        Operation::Create,
        Operation::Append,
        Operation::Sync,
        Operation::SyncDir,
        Operation::Rename,
        Operation::CreateDir,
    ];
    for number in 0.. {
        let sim = SimVfs::on(disk.clone());
        let faults = FaultVfs::new(layer(&sim));
        faults.add(FaultRule::new(Fault::NoSpace).operations(writes).skip(number).from_then_on());
        let repaired = repair_with(DIR, NEW, Uncertain::SetAside, None, &layer(&faults));
        if faults.injected().is_empty() {
            assert!(repaired.is_ok() && number > 20, "{number} {repaired:?}");
            break;
        }
        assert!(repaired.is_err(), "operation {number}");
        let last_sync = sim.open_dir(NEW.as_ref()).is_ok();
        let left = sim.disk();
        if last_sync {
            contents(&layer(&sim), NEW.as_ref());
        } else {
            assert_eq!(left.files().count(), of_dir(&disk).len(), "operation {number}");
        }
    }
}

#[test]
fn only_a_store_that_is_not_open_is_repaired_and_only_into_a_new_directory() {
    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::on(FIXTURE.disk.clone()));
    let repair = |from: &str, to: &str| repair_with(from, to, Uncertain::SetAside, None, &vfs);
    for to in [DIR, "/store/new", "/store/../store/new"] {
        assert!(matches!(repair(DIR, to), Err(Error::InvalidPath { .. })), "{to}");
    }
    assert!(matches!(repair("/nothing", NEW), Err(Error::NotAStore { .. })));
    repair(DIR, NEW).unwrap();
    assert!(matches!(repair(DIR, NEW), Err(Error::Io { .. })), "it is there");
    let db = Options::new().vfs(Arc::clone(&vfs)).open(NEW).unwrap();
    assert!(matches!(repair(NEW, "/newer"), Err(Error::Locked { .. })));
    db.close().unwrap();
}

/// Only the manifest has the number of an ingested table: without its record, each of its keys is uncertain, also if
/// the manifest is sound, whose last edit may be lost.
#[test]
fn an_ingested_table_that_nothing_names_makes_its_keys_uncertain_and_no_others() {
    let sim = SimVfs::new();
    let db = Options::new().background_threads(0).vfs(sim.clone()).open(DIR).unwrap();
    for key in ["a", "b", "c", "d"] {
        db.put(key, "put").unwrap();
    }
    db.flush().unwrap();
    let before = sim.disk();
    let pairs = [("b", "ingested"), ("c", "ingested"), ("e", "ingested")];
    db.ingest(pairs.map(Ok::<_, Error>)).unwrap();
    db.put("c", "later").unwrap();
    db.sync().unwrap();
    let after = sim.disk();
    let repaired = |what: &str, disk: SimDisk, certain: &[(&str, &str)], aside: &[(&str, &str)]| {
        let vfs = layer(&SimVfs::on(disk));
        let repaired = repair_with(DIR, NEW, Uncertain::SetAside, None, &vfs).unwrap();
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
            pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<Map>()
        };
        assert_eq!(contents(&vfs, NEW.as_ref()), map(certain), "{what}");
        if repaired.uncertain > 0 {
            let found = contents(&vfs, &Path::new(NEW).join("uncertain"));
            assert_eq!(found, map(aside), "{what}");
        }
        assert_eq!(repaired.uncertain, aside.len() as u64, "{what}");
        repaired
    };
    let all = [("a", "put"), ("b", "ingested"), ("c", "later"), ("d", "put"), ("e", "ingested")];
    repaired("sound", after.clone(), &all, &[]);
    // The table of an ingest that a crash ended, or one whose edit is lost.
    let tables = after.files().filter(|(path, _)| Kind::of(&name(path)) == Kind::Table);
    let new = tables.filter(|(path, _)| before.read(path).is_none());
    let (path, bytes) = new.map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).next().unwrap();
    let mut left = before.clone();
    left.write(&path, bytes.clone());
    let certain = [("a", "put"), ("d", "put")];
    let aside = [("b", "put"), ("c", "put"), ("e", "ingested")];
    repaired("a table of no record", left.clone(), &certain, &aside);
    // Without the manifest nothing is certain, and what was written later is set aside.
    let mut unnamed = after.clone();
    for (path, _) in after.files().filter(|(path, _)| Kind::of(&name(path)) == Kind::Manifest) {
        unnamed.remove(path);
    }
    repaired("without a manifest", unnamed, &[], &all);
    // A damaged part of it may have had any key within its range.
    let mut damaged = bytes;
    damaged[0] ^= 1;
    left.write(&path, damaged);
    let aside = [("b", "put"), ("c", "put"), ("d", "put")];
    let found = repaired("a damaged table of no record", left, &[("a", "put")], &aside);
    assert!(found.losses.iter().any(|loss| names(loss, b"b") && !names(loss, b"a")));
}
