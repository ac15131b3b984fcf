//! Recovery of logs after a crash: a prefix of the writes, or an error and no change. `rot` has damaged
//! files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::LOG_HEADER_BYTES as HEADER_BYTES;
use crate::common::{self, HookVfs, contents, copy_dir, files_with, restore, the_file, written};
use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Keep, Operation, SimVfs, Unit, Vfs};
use criba::{Batch, Db, Durability, Error, Options};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// No threads, and memtables that a test cannot fill.
fn options() -> Options {
    common::options()
        .background_threads(0)
        .cache_bytes(0)
        .block_bytes(128)
        .vfs(HookVfs::without_syncs())
}

/// Memtables so small that a replay writes several tables.
fn small() -> Options {
    options().memtable_bytes(1024)
}

fn all(db: &Db) -> Map {
    let items = db.iter();
    items.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

/// Batches of two keys that must agree and a third whose list grows; and the state after each batch.
struct History {
    states: Vec<Map>,
}

impl History {
    fn new(db: &Db) -> Self {
        Self { states: vec![all(db)] }
    }

    fn next(&mut self, db: &Db, durability: Durability) {
        let number = self.states.len();
        let mut state = self.states[number - 1].clone();
        let mut batch = Batch::new();
        for (key, value) in [
            (b"left".to_vec(), number.to_string().into_bytes()),
            (format!("key {number:03}").into_bytes(), vec![b'v'; number % 40]),
            (b"right".to_vec(), number.to_string().into_bytes()),
        ] {
            batch.put(&key, &value);
            state.insert(key, value);
        }
        if number.is_multiple_of(3) {
            let gone = format!("key {:03}", number - 2).into_bytes();
            batch.delete(&gone);
            state.remove(&gone);
        }
        db.write_with(batch, durability).unwrap();
        self.states.push(state);
    }
}

/// Opens a store that must be refused, and checks that no file changes.
fn refused(options: Options, dir: &Path) -> Error {
    let before = contents(dir);
    let error = options.open(dir).map(|_| ()).expect_err("it must be refused");
    let after = contents(dir);
    for (name, bytes) in &before {
        assert_eq!(after.get(name), Some(bytes), "{name} changed by: {error}");
    }
    let added: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    assert!(added.is_empty(), "{added:?} left by: {error}");
    error
}

fn corrupt_path(error: &Error) -> (&Path, u64) {
    match error {
        Error::Corrupt { path, offset, .. } => (path, *offset),
        other => panic!("expected Corrupt, found {other:?}"),
    }
}

/// An unclosed store of 25 batches in one log, and the end of each record.
struct OneLog {
    files: BTreeMap<String, Vec<u8>>,
    log: String,
    ends: Vec<usize>,
    history: History,
}

fn one_log(durability: impl Fn(usize) -> Durability) -> OneLog {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = options().open(&dir).unwrap();
    let log = the_file(&dir, "000001.log");
    let length = || written(&std::fs::read(&log).unwrap()).len();
    let mut history = History::new(&db);
    let mut ends = vec![HEADER_BYTES]; // its checksum may end with zeros
    for number in 1..=25 {
        history.next(&db, durability(number));
        ends.push(length());
    }
    let mut files = contents(&dir); // the process dies here
    // As if the log had not been filled ahead.
    files.get_mut("000001.log").unwrap().truncate(length());
    OneLog { files, log: "000001.log".into(), ends, history }
}

#[test]
fn a_log_cut_anywhere_gives_a_prefix_and_goes_on() {
    let OneLog { files, log, ends, history } =
        one_log(|number| if number % 5 == 0 { Durability::Synced } else { Durability::Buffered });
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let whole = &files[&log];
    assert_eq!(whole.len(), *ends.last().unwrap());
    let mut cuts = 0;
    for length in (ends[0]..=whole.len()).step_by(common::stride()) {
        let mut files = files.clone();
        files.insert(log.clone(), whole[..length].to_vec());
        restore(&dir, &files);
        let records = ends.iter().rposition(|&end| end <= length).unwrap();
        let db = if length % 2 == 0 { small() } else { options() }.open(&dir).unwrap();
        assert_eq!(all(&db), history.states[records], "cut to {length}");
        let lost = db.recovery().lost_tail.clone();
        let torn = written(&whole[ends[records]..length]).len() as u64;
        assert_eq!(lost.is_some(), torn > 0, "cut to {length}");
        if let Some(lost) = lost {
            assert_eq!(lost.path, dir.join(&log));
            assert_eq!((lost.offset, lost.bytes), (ends[records] as u64, torn));
            let shown = db.recovery().to_string();
            let line = shown.lines().nth(1).unwrap();
            assert!(line.starts_with("dropped: an unsynced write that a crash cut short: /"));
            assert!(line.ends_with(&format!("; {torn} bytes")), "{line}");
        }
        cuts += 1;
        if length % 3 > 0 && length < ends[23] {
            continue;
        }
        // The sequence goes on, and a second opening finds the same and nothing to complain of.
        db.put("left", "after").unwrap();
        let mut expected = history.states[records].clone();
        expected.insert(b"left".to_vec(), b"after".to_vec());
        drop(db);
        let db = options().open(&dir).unwrap();
        assert_eq!(all(&db), expected);
        assert_eq!(db.recovery().lost_tail, None);
    }
    // A log shorter than its header was damaged after it was made: the header was synced first.
    for length in (0..ends[0]).step_by(common::stride()) {
        let mut files = files.clone();
        files.insert(log.clone(), whole[..length].to_vec());
        restore(&dir, &files);
        assert_eq!(corrupt_path(&refused(options(), &dir)).0, dir.join(&log));
        cuts += 1;
    }
    println!("{cuts} cuts of a log of {} records", ends.len() - 1);
    let stride = common::stride();
    assert_eq!(cuts, (whole.len() - ends[0]) / stride + 1 + ends[0].div_ceil(stride));
}

/// A store without room for tables on its disk: two full logs and one in use, whose paths it returns in
/// order. `closed`: whether the first two have their end frames, so that the last one declares them
/// synced.
fn three_logs(dir: &Path, closed: bool) -> (History, Vec<PathBuf>, Vec<usize>) {
    let flusher_may_append = closed;
    let full = Arc::new(AtomicBool::new(false));
    let refusals = Arc::new(AtomicU64::new(0));
    let (hook, count) = (Arc::clone(&full), Arc::clone(&refusals));
    let vfs = HookVfs::new(move |kind, operation| {
        let flushes = std::thread::current().name().is_some_and(|name| name == "criba-flush");
        let refuse = match (kind, operation) {
            (FileKind::Table, Operation::Create) => true,
            (FileKind::Wal, Operation::Append) => flushes && !flusher_may_append,
            _ => false,
        };
        if refuse && hook.load(Ordering::Relaxed) {
            count.fetch_add(1, Ordering::SeqCst);
            return Err(common::no_space());
        }
        Ok(())
    });
    let db = common::options().memtable_bytes(4096).vfs(vfs).open(dir).unwrap();
    full.store(true, Ordering::Relaxed);
    let mut history = History::new(&db);
    let mut last_of_log = Vec::new();
    for _ in 0..2 {
        for _ in 0..5 {
            history.next(&db, Durability::Buffered);
        }
        last_of_log.push(history.states.len() - 1);
        // Seals the memtable, then finds that it cannot be flushed.
        let before = refusals.load(Ordering::SeqCst);
        let error = db.flush().unwrap_err();
        assert!(matches!(error, Error::Background { .. }), "{error}");
        // Two tries later the log is closed, or has failed to be.
        common::wait_until("flushes", || refusals.load(Ordering::SeqCst) >= before + 2);
    }
    for _ in 0..5 {
        history.next(&db, Durability::Buffered);
    }
    last_of_log.push(history.states.len() - 1);
    let logs = files_with(dir, "log");
    assert_eq!(logs.len(), 3);
    let copy = dir.with_extension("copy");
    copy_dir(dir, &copy);
    drop(db);
    restore(dir, &contents(&copy));
    (history, logs, last_of_log)
}

fn flip(path: &Path, place: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[place] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn several_logs_are_replayed_in_order() {
    for closed in [false, true] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let (history, ..) = three_logs(&dir, closed);
        let db = small().open(&dir).unwrap();
        assert_eq!(all(&db), *history.states.last().unwrap());
        assert_eq!(db.recovery().logs, 3);
        assert_eq!(db.recovery().lost_tail, None);
    }
}

#[test]
fn a_hole_in_the_first_log_ends_recovery_or_forbids_it() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let (history, logs, _) = three_logs(&dir, false);
    let files = contents(&dir);
    let lengths: Vec<u64> = logs.iter().map(|log| std::fs::metadata(log).unwrap().len()).collect();
    let mut prefixes = 0;
    for place in HEADER_BYTES..lengths[0] as usize {
        restore(&dir, &files);
        flip(&logs[0], place);
        let db = small().open(&dir).unwrap();
        let lost = db.recovery().lost_tail.clone().expect("a hole");
        assert_eq!(lost.path, logs[0]);
        assert_eq!(lost.bytes, lengths[0] - lost.offset + lengths[1] + lengths[2]);
        let state = all(&db);
        let prefix = history.states.iter().position(|known| *known == state);
        assert!(prefix.is_some_and(|prefix| prefix < 5), "flipped at {place}: {state:?}");
        prefixes += 1;
    }

    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let (_, logs, _) = three_logs(&dir, true);
    let files = contents(&dir);
    let mut refusals = 0;
    for place in HEADER_BYTES..std::fs::metadata(&logs[0]).unwrap().len() as usize {
        restore(&dir, &files);
        flip(&logs[0], place);
        let error = refused(small(), &dir);
        assert_eq!(corrupt_path(&error).0, logs[0], "{error}");
        refusals += 1;
    }
    println!("holes in the first of three logs: {prefixes} dropped, {refusals} refused");
    assert!(prefixes > 200 && refusals > 200);
}

#[test]
fn a_missing_log_is_a_hole_too() {
    for closed in [false, true] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let (history, logs, last_of_log) = three_logs(&dir, closed);
        let files = contents(&dir);
        for missing in 0..3 {
            restore(&dir, &files);
            std::fs::remove_file(&logs[missing]).unwrap();
            if missing == 0 || closed {
                // Named by the manifest, or by the end frame of the log before it.
                match refused(small(), &dir) {
                    Error::Missing { path, .. } => assert_eq!(path, logs[missing]),
                    other => panic!("log {missing} missing: {other}"),
                }
            } else {
                let db = small().open(&dir).unwrap();
                assert_eq!(all(&db), history.states[last_of_log[missing - 1]]);
                let lost = db.recovery().lost_tail.as_ref().map(|lost| lost.path.clone());
                assert_eq!(lost, (missing == 1).then(|| logs[2].clone()));
            }
        }
    }
}

/// An unclosed store with tables on several levels, edits in its manifest, and an empty log.
fn tables_and_edits(dir: &Path) -> Map {
    let db = options().table_bytes(1024).l0_compaction_trigger(3).open(dir).unwrap();
    let mut map = Map::new();
    for round in 0..7_u32 {
        for i in 0..12_u32 {
            let key = format!("key {:03}", (i * 7 + round * 5) % 60).into_bytes();
            if (i + round) % 5 == 0 {
                db.delete(&key).unwrap();
                map.remove(&key);
            } else {
                let value = format!("value {round}/{i} {}", ".".repeat(60)).into_bytes();
                db.put(&key, &value).unwrap();
                map.insert(key, value);
            }
        }
        db.flush().unwrap();
    }
    assert!(db.stats().activity.compactions > 0);
    let copy = dir.with_extension("copy");
    copy_dir(dir, &copy);
    drop(db);
    restore(dir, &contents(&copy));
    map
}

#[test]
fn an_edit_that_a_crash_cut_short_was_never_made_and_is_reported() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    for compacting in [false, true] {
        let _ = std::fs::remove_dir_all(&dir);
        let db = options().auto_compaction(false).open(&dir).unwrap();
        let mut history = History::new(&db);
        for _ in 0..3 {
            history.next(&db, Durability::Buffered);
            db.flush().unwrap();
        }
        if !compacting {
            history.next(&db, Durability::Buffered);
        }
        let before = contents(&dir);
        if compacting {
            db.compact().unwrap();
        } else {
            db.flush().unwrap();
        }
        let after = contents(&dir);
        drop(db);
        // What was there, the new table, and a part of the edit that names it.
        let name = before.keys().find(|name| name.starts_with("MANIFEST")).unwrap();
        let mut files = after.clone();
        files.extend(before.clone());
        let whole = &after[name];
        let old = before[name].len();
        assert!(whole.len() > old + 50);
        for length in old..=whole.len() {
            files.insert(name.clone(), whole[..length].to_vec());
            restore(&dir, &files);
            let db = options().auto_compaction(false).open(&dir).unwrap();
            assert_eq!(all(&db), *history.states.last().unwrap(), "cut to {length}");
            let lost = db.recovery().lost_edit.clone();
            // Of a checksum that begins with zeros, what was left may be no more than a log's end.
            let torn = length != whole.len() && !written(&whole[old..length]).is_empty();
            assert_eq!(lost.is_some(), torn, "cut to {length}");
            if let Some(lost) = lost {
                assert_eq!((lost.path, lost.offset), (dir.join(name), old as u64));
                assert_eq!(lost.bytes, (length - old) as u64);
            }
            assert_eq!(db.recovery().lost_tail, None);
            assert_eq!(files_with(&dir, "sst").len(), db.tables().len(), "what is not named goes");
        }
    }
}

#[test]
fn records_of_many_frames_are_cut_whole() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = options().open(&dir).unwrap();
    let log = the_file(&dir, "000001.log");
    let length = || std::fs::metadata(&log).unwrap().len() as usize;
    let mut states = vec![Map::new()];
    let mut ends = vec![length()];
    for (number, size) in [10, 32_000, 70_000, 32_768 - 27, 5, 100_000].into_iter().enumerate() {
        let mut batch = Batch::new();
        batch.put("first", [number as u8]);
        batch.put(number.to_string(), vec![number as u8; size]);
        batch.put("last", [number as u8]);
        db.write(batch).unwrap();
        states.push(all(&db));
        ends.push(length());
    }
    let files = contents(&dir);
    drop(db);
    let whole = &files["000001.log"];
    let near_ends = ends.iter().flat_map(|&end| end.saturating_sub(3).max(HEADER_BYTES)..end + 3);
    let near_blocks = (1..whole.len() / 32_768).flat_map(|n| n * 32_768 - 30..n * 32_768 + 30);
    let places = (HEADER_BYTES..whole.len()).step_by(2003).chain(near_ends).chain(near_blocks);
    let mut tried = 0;
    for place in places.filter(|&place| place < whole.len()) {
        let records = ends.iter().rposition(|&end| end <= place).unwrap();
        let cut = whole[..place].to_vec();
        let mut flipped = whole.clone();
        flipped[place] ^= 0x40;
        for (bytes, is_cut) in [(cut, true), (flipped, false)] {
            let mut files = files.clone();
            files.insert("000001.log".into(), bytes);
            restore(&dir, &files);
            let db = options().open(&dir).unwrap();
            // A byte that only fills the end of a block says nothing.
            let lost = db.recovery().lost_tail.is_some();
            let state = if !is_cut && !lost { states.len() - 1 } else { records };
            assert_eq!(all(&db), states[state], "at {place}, cut: {is_cut}");
            let torn = !written(&whole[ends[records]..place]).is_empty();
            assert_eq!(lost, if is_cut { torn } else { lost });
            tried += 1;
        }
    }
    println!("{tried} cuts and flips in records of many frames");
    assert!(tried > 500);
}

/// The frames of a long record are passed over once before it is collected.
#[test]
fn a_record_of_40_mib_is_replayed_if_its_end_is_there() {
    let parent = common::tempdir();
    let [whole, cut] = ["whole", "cut"].map(|name| parent.path().join(name));
    let options = options().memtable_bytes(64 << 20);
    let db = options.clone().open(&whole).unwrap();
    db.put("before", "it").unwrap();
    let value: Vec<_> = (0..40_u32 << 20).map(|at| (at / 1021) as u8).collect();
    db.put("long", &value).unwrap();
    drop(db);
    copy_dir(&whole, &cut);
    let log = File::options().write(true).open(the_file(&cut, "000001.log")).unwrap();
    log.set_len(30 << 20).unwrap();
    for (dir, expected) in [(&whole, Some(&value)), (&cut, None)] {
        let db = options.clone().open(dir).unwrap();
        assert_eq!(db.recovery().lost_tail.is_some(), expected.is_none());
        assert_eq!(db.get("before").unwrap().as_deref(), Some(b"it".as_slice()));
        assert!(db.get("long").unwrap().as_deref() == expected.map(Vec::as_slice));
    }
}

/// A record of more than 16 MiB is read twice from there on: first to find its last frame.
#[test]
fn one_wrong_read_of_a_long_record_refuses_the_store_and_loses_nothing() {
    let sim = SimVfs::new();
    let options = options().memtable_bytes(64 << 20);
    let db = options.clone().vfs(Arc::new(sim.clone())).open("/store").unwrap();
    let value: Vec<_> = (0..17_u32 << 20).map(|at| (at / 1021) as u8).collect();
    db.put("long", &value).unwrap();
    drop(db);
    let mut refused = 0;
    // The record is read in 512 blocks, then in 32 twice.
    for skip in (505..580).step_by(12) {
        let faults = FaultVfs::new(Arc::new(SimVfs::on(sim.disk())));
        let wrong = FaultRule::new(Fault::FlippedBit(100_000)).kinds([FileKind::Wal]);
        faults.add(wrong.operations([Operation::Read]).skip(skip));
        match options.clone().vfs(Arc::new(faults)).open("/store") {
            Ok(db) => assert!(db.get("long").unwrap().as_deref() == Some(&*value), "read {skip}"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("the same frame each time it is read"), "{text}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 4, "{refused}");
}

#[test]
fn what_is_not_ours_stays_and_what_nothing_refers_to_goes() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let map = tables_and_edits(&dir);
    let foreign = ["notes.txt", "7.sst", "000007.sst.bak", "MANIFEST", "current", "000009.LOG"];
    for name in foreign {
        std::fs::write(dir.join(name), name).unwrap();
    }
    std::fs::create_dir(dir.join("folder")).unwrap();
    let rubbish = ["900000.sst", "900001.log", "MANIFEST-900002", "CURRENT.tmp", "000000.sst"];
    for name in rubbish {
        std::fs::write(dir.join(name), "rubbish").unwrap();
    }
    let db = options().open(&dir).unwrap();
    assert_eq!(all(&db), map);
    // And the manifest and the log before this opening; but a new CURRENT.tmp was made meanwhile,
    // and became CURRENT.
    assert_eq!(db.recovery().removed_files, rubbish.len() + 2 - 1);
    for name in rubbish {
        assert!(!dir.join(name).exists(), "{name}");
    }
    db.put("new", "value").unwrap();
    db.flush().unwrap();
    let numbers = db.tables().into_iter().map(|table| table.id);
    assert!(numbers.max().unwrap() > 900_002, "a number is not used twice");
    drop(db);
    assert!(dir.join("folder").is_dir());
    for name in foreign {
        assert_eq!(std::fs::read(dir.join(name)).unwrap(), name.as_bytes());
    }
}

#[test]
fn a_directory_of_another_program_is_refused_unchanged() {
    let parent = common::tempdir();
    let dir = parent.path().join("other");
    for names in [
        &["CURRENT"][..],
        &["CURRENT", "MANIFEST-000001", "000003.log"], // as another engine names its files
        &["MANIFEST-000001"],
        &["000003.log"],
        &["000005.sst"],
        &["5.sst"],
        &["current"],
    ] {
        let theirs = b"theirs\n".repeat(10);
        let files = names.iter().map(|name| ((*name).to_owned(), theirs.clone())).collect();
        restore(&dir, &files);
        refused(options(), &dir);
        refused(options().create_if_missing(false), &dir);
    }
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::write(&dir, "a file").unwrap();
    assert!(matches!(options().open(&dir), Err(Error::NotAStore { .. })));
    let missing = parent.path().join("missing");
    let error = options().create_if_missing(false).open(&missing).unwrap_err();
    assert!(matches!(error, Error::NotAStore { .. }) && !missing.exists());
}

/// The checksum of the format: bound to a file number and an offset.
pub(crate) fn checksum(number: u64, offset: u64, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

#[test]
fn another_version_is_no_damage() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    tables_and_edits(&dir);
    let files = contents(&dir);
    let unsupported = |path: &Path, version: u8| match refused(options(), &dir) {
        Error::Unsupported { path: at, found, .. } => {
            let way_out = if version == 1 { "dump the store" } else { "a newer criba" };
            assert!(at == path && found.contains(way_out), "{found}");
        }
        other => panic!("{other:?}"),
    };

    let body = String::from_utf8(files["CURRENT"].clone()).unwrap();
    for other in ["criba 1", "criba 3"] {
        let body = body.replace("criba 2", other);
        let body = body.lines().take(2).fold(String::new(), |text, line| text + line + "\n");
        let text = format!("{body}{:08x}\n", crc32fast::hash(body.as_bytes()));
        std::fs::write(dir.join("CURRENT"), text).unwrap();
        match refused(options(), &dir) {
            Error::Unsupported { path, .. } => assert_eq!(path, dir.join("CURRENT")),
            other => panic!("{other:?}"),
        }
    }

    let logs = files.keys().filter(|name| name.starts_with("MANIFEST") || name.contains(".log"));
    for (name, version) in logs.flat_map(|name| [(name, 1), (name, 3)]) {
        restore(&dir, &files);
        let mut bytes = files[name].clone();
        bytes[8] = version;
        let number: u64 =
            name.trim_start_matches("MANIFEST-").trim_end_matches(".log").parse().unwrap();
        let sum = checksum(number, 0, &bytes[..36]);
        bytes[36..40].copy_from_slice(&sum);
        std::fs::write(dir.join(name), bytes).unwrap();
        unsupported(&dir.join(name), version);
    }

    let name = files.keys().find(|name| name.contains(".sst")).unwrap();
    for version in [1, 3] {
        restore(&dir, &files);
        let mut bytes = files[name].clone();
        let footer = bytes.len() - 128;
        bytes[footer + 112] = version;
        let number: u64 = name.trim_end_matches(".sst").parse().unwrap();
        let sum = checksum(number, footer as u64, &bytes[footer..footer + 116]);
        bytes[footer + 116..footer + 120].copy_from_slice(&sum);
        std::fs::write(dir.join(name), bytes).unwrap();
        unsupported(&dir.join(name), version);
    }
}

#[test]
fn an_opening_that_is_cut_short_anywhere_can_be_made_again() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let (history, ..) = three_logs(&dir, true);
    let files = contents(&dir);
    let expected = history.states.last().unwrap();
    let mut failed = 0;
    loop {
        restore(&dir, &files);
        let refused = Arc::new(AtomicBool::new(false));
        let (hook, count) = (Arc::clone(&refused), AtomicU64::new(0));
        let vfs = HookVfs::new(move |_, operation| {
            let reads = matches!(operation, Operation::Read | Operation::Length | Operation::List);
            if !reads && count.fetch_add(1, Ordering::Relaxed) >= failed {
                hook.store(true, Ordering::Relaxed);
                return Err(common::no_space());
            }
            Ok(())
        });
        // From this operation on everything fails, as if the process were gone.
        let opened = small().vfs(vfs).open(&dir);
        if let Ok(db) = &opened {
            assert_eq!(all(db), *expected);
        }
        drop(opened);
        let db = small().open(&dir).unwrap();
        assert_eq!(all(&db), *expected, "cut short at operation {failed}");
        assert_eq!(db.recovery().lost_tail, None);
        if !refused.load(Ordering::Relaxed) {
            break; // that was all it does
        }
        failed += 1;
    }
    assert!(failed > 30, "{failed}");
    println!("{failed} openings cut short");
}

/// A log of zeros, which no disk space backs: no reading takes time for them.
#[test]
fn the_hole_of_a_sparse_log_is_passed_over() {
    let dir = common::tempdir();
    let options = || common::options().background_threads(0);
    let db = options().open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let log = File::create(dir.path().join("000900.log")).unwrap();
    log.set_len(20 << 30).unwrap();
    let began = Instant::now();
    assert_eq!(options().open_read_only(dir.path()).unwrap().get("key").unwrap().unwrap(), "value");
    assert!(criba::verify(dir.path()).unwrap().is_sound());
    let repaired = dir.path().with_extension("repaired");
    let done = criba::repair(dir.path(), &repaired, criba::Uncertain::SetAside).unwrap();
    assert_eq!(done.keys, 1);
    std::fs::remove_dir_all(repaired).unwrap();
    assert_eq!(options().open(dir.path()).unwrap().get("key").unwrap().unwrap(), "value");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_new_store_has_missing_parents_that_a_power_failure_keeps() {
    let disk = SimVfs::new();
    let options = || Options::new().background_threads(0).vfs(disk.clone());
    let path = "/made/with/the/store";
    assert!(matches!(options().block_bytes(1).open(path), Err(Error::InvalidOption { .. })));
    let threads = options().background_threads(1025).open(path);
    assert!(matches!(threads, Err(Error::InvalidOption { option: "background_threads", .. })));
    assert!(matches!(options().memory_limit(1).open(path), Err(Error::MemoryLimit { .. })));
    let refused = options().create_if_missing(false).open(path);
    assert!(matches!(refused, Err(Error::NotAStore { .. })));
    assert!(matches!(options().open_read_only(path), Err(Error::NotAStore { .. })));
    assert!(disk.open_dir("/made".as_ref()).is_err(), "a refused opening makes nothing");

    let db = options().open(path).unwrap();
    db.put_with("key", "value", Durability::Synced).unwrap();
    let disk = disk.disk().power_failure(Unit::Sector, |_| Keep::OLD);
    let vfs = SimVfs::on(disk);
    let db = Options::new().vfs(vfs).create_if_missing(false).open(path).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
}
