//! `verify` finds all damage of a store, reports each place, and changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::common::{self, HookVfs, contents, files_with};
use criba::vfs::{
    CountingVfs, Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs, SimVfs, Vfs,
};
use criba::{Batch, Error, FilterPolicy, Options, TableFile, Verification, verify, verify_with};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn options() -> Options {
    Options::new()
        .background_threads(0)
        .auto_compaction(false)
        .block_bytes(128)
        .vfs(HookVfs::without_syncs())
        .seed(9)
}

/// A closed store of three tables: one with a filter within and a newer one beside it; one without a
/// filter; one with a filter within.
fn three_tables(dir: &Path) {
    let db = options().open(dir).unwrap();
    let fill = |db: &criba::Db, table: u32| {
        for number in 0..12 {
            db.put(format!("key {number:02} of {table}"), format!("value {number}")).unwrap();
        }
        db.delete("key 03 of 0").unwrap();
        db.flush().unwrap();
    };
    fill(&db, 0);
    db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
    db.close().unwrap();
    let db = options().filter(FilterPolicy::none()).open(dir).unwrap();
    fill(&db, 1);
    db.close().unwrap();
    let db = options().filter(FilterPolicy::bloom()).open(dir).unwrap();
    fill(&db, 2);
    db.put("in the log", "only").unwrap();
    db.close().unwrap();
    assert_eq!(files_with(dir, "sst").len(), 3);
    assert_eq!(files_with(dir, "flt").len(), 1);
}

fn sound(found: &Verification) {
    assert!(found.is_sound() && found.notes.is_empty(), "{found:#?}");
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn of_file<'a>(found: &'a Verification, path: &Path) -> Vec<&'a criba::Finding> {
    found.findings.iter().filter(|finding| finding.path == path).collect()
}

#[test]
fn a_sound_store_has_no_findings_and_stays_as_it_is() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    three_tables(&dir);
    let state = |dir: &Path| -> Vec<(PathBuf, SystemTime)> {
        let mut paths: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        let changed = |path: &Path| path.metadata().unwrap().modified().unwrap();
        let changed: Vec<_> =
            paths.into_iter().map(|path| (path.clone(), changed(&path))).collect();
        [vec![(dir.to_owned(), dir.metadata().unwrap().modified().unwrap())], changed].concat()
    };
    let before = (state(&dir), contents(&dir));
    let counting = CountingVfs::new(Arc::new(RealVfs));
    let vfs: Arc<dyn Vfs> = Arc::new(counting.clone());
    let mut progress = Vec::new();
    let found = verify_with(&dir, &vfs, |done, left| progress.push((done, left))).unwrap();
    sound(&found);
    assert_eq!((found.tables, found.logs, found.changes), (3, 1, 1));
    // The first flush drops the tombstone and its put, the second one the tombstone, which the filter of the first
    // table denies. The second table has no filter, so the third one keeps its tombstone.
    assert_eq!((found.entries, found.keys), (36, 11 + 12 + 13));
    assert_eq!((found.filters, found.probed_keys, found.denied_keys), (2, 11 + 13, 0));
    assert!(found.blocks > 6);
    let bytes: u64 = files_with(&dir, "sst").iter().map(|p| p.metadata().unwrap().len()).sum();
    assert_eq!((progress.len(), progress[0], progress[3]), (4, (0, bytes), (bytes, 0)));
    assert!((state(&dir), contents(&dir)) == before);
    let counts = counting.counts();
    for operation in Operation::ALL {
        use Operation as O;
        let reads = matches!(
            operation,
            O::OpenDir | O::Identity | O::Open | O::Read | O::Length | O::List | O::Lock
        );
        let calls: u64 =
            FileKind::ALL.into_iter().map(|kind| counts.of(kind, operation).calls).sum();
        assert!(reads || calls == 0, "{operation:?}");
    }
}

/// After each of many steps with snapshots, compactions and new filters.
#[test]
fn what_the_engine_writes_is_sound() {
    let seed = 12;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let parent = common::tempdir();
    let (dir, copy) = (parent.path().join("store"), parent.path().join("copy"));
    let policies = [FilterPolicy::default(), FilterPolicy::ribbon(), FilterPolicy::classic()];
    let (mut sum, mut runs) = (Verification::default(), 0);
    for round in 0..6 {
        let db = options()
            .auto_compaction(true)
            .filter(policies[round % 3])
            .memtable_bytes(4000)
            .table_bytes(3000)
            .level_base_bytes(1500)
            .open(&dir)
            .unwrap();
        let mut snapshots = Vec::new();
        for step in 0..300 {
            let mut batch = Batch::new();
            for _ in 0..rng.random_range(1..6) {
                let key = format!("key {}", rng.random_range(0..700));
                match rng.random_range(0..4) {
                    0 => batch.delete(key),
                    _ => batch.put(key, vec![1; rng.random_range(0..60)]),
                };
            }
            db.write(batch).unwrap();
            match rng.random_range(0..40) {
                0 => snapshots.push(db.snapshot()),
                1 => snapshots.clear(),
                2 => drop(db.rebuild_filters(&policies[rng.random_range(0..3)]).unwrap()),
                3 => db.compact().unwrap(),
                _ => {}
            }
            if step % 30 == 7 {
                // As after a crash; the copy has no owner.
                common::copy_dir(&dir, &copy);
                let found = verify(&copy).unwrap();
                assert!(found.is_sound(), "seed {seed}: {found:#?}");
                sum.keys += found.keys;
                sum.tables += found.tables;
                sum.probed_keys += found.probed_keys;
                sum.changes += found.changes;
                runs += 1;
            }
        }
        assert!(matches!(verify(&dir), Err(Error::Locked { .. })));
        drop(snapshots);
        db.close().unwrap();
        sound(&verify(&dir).unwrap());
    }
    println!(
        "seed {seed}: {runs} crashes, {} tables, {} keys in them, {} probed, {} changes in \
         logs; nothing found",
        sum.tables, sum.keys, sum.probed_keys, sum.changes
    );
    assert!(sum.tables > 200 && sum.probed_keys == sum.keys && sum.changes > 500);
}

/// One flipped bit in every byte of every file, one at a time.
#[test]
fn a_flipped_bit_anywhere_is_found() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    three_tables(&dir);
    let (mut found_in, mut noted_in) = (BTreeMap::new(), BTreeMap::new());
    for (name, bytes) in contents(&dir) {
        let path = dir.join(&name);
        let kind = name.split_once(['.', '-']).map_or(name.as_str(), |_| {
            path.extension().map_or("MANIFEST", |extension| extension.to_str().unwrap())
        });
        for at in (0..bytes.len()).step_by(common::stride()) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(&path, flipped).unwrap();
            let found = verify(&dir).unwrap();
            let is_unused = |note: &&criba::Finding| note.what.contains("no lookup uses it");
            let unused = found.notes.iter().filter(is_unused).count();
            if matches!(kind, "sst" | "flt") {
                let own = of_file(&found, &path).len() + unused;
                assert_eq!(own, 1, "{name}, byte {at}: {found:#?}");
                assert_eq!(found.findings.len() + unused, 1, "{name}, byte {at}: {found:#?}");
            }
            // The last record of a log may be one that a crash cut short.
            let is_noted = found.is_sound() && unused == 0;
            let count = if is_noted { &mut noted_in } else { &mut found_in };
            assert!(!found.is_sound() || !found.notes.is_empty(), "{name}, byte {at}");
            *count.entry(kind.to_owned()).or_insert(0) += 1;
        }
        std::fs::write(&path, &bytes).unwrap();
    }
    println!("bytes flipped and found: {found_in:?}; noted as unsynced ends: {noted_in:?}");
    sound(&verify(&dir).unwrap());
    assert!(found_in["sst"] > common::part(1000) && found_in["flt"] > common::part(128));
    assert!(noted_in.keys().all(|kind| kind == "log" || kind == "MANIFEST"), "{noted_in:?}");
}

/// A bit that the disk returns otherwise once, in any read of a store without filters beside tables: what
/// `verify` finds sound is what it has read.
#[test]
fn one_wrong_read_is_found() {
    let sim = SimVfs::new();
    let options = options().filter(FilterPolicy::bloom()).vfs(Arc::new(sim.clone()));
    let db = options.open("/store").unwrap();
    db.put("in a table", "value").unwrap();
    db.flush().unwrap();
    db.put("in the log", "value").unwrap();
    db.close().unwrap();
    let mut reads = 0;
    loop {
        for bit in (0..1 << 17).step_by(1019) {
            let faults = FaultVfs::new(Arc::new(sim.clone()));
            let wrong = FaultRule::new(Fault::FlippedBit(bit)).operations([Operation::Read]);
            faults.add(wrong.skip(reads));
            let vfs: Arc<dyn Vfs> = Arc::new(faults.clone());
            let found = verify_with("/store", &vfs, |_, _| {});
            if faults.injected().is_empty() {
                assert!(found.unwrap().is_sound() && reads > 5, "{reads} reads");
                return;
            }
            let is_sound = found.is_ok_and(|found| found.is_sound() && found.notes.is_empty());
            assert!(!is_sound, "bit {bit} of {:?}", faults.injected());
        }
        reads += 1;
    }
}

#[test]
fn everything_is_found_not_only_the_first() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    three_tables(&dir);
    let [first, second, third] = files_with(&dir, "sst").try_into().unwrap();
    let [filter] = files_with(&dir, "flt").try_into().unwrap();
    // Two data blocks of the first table, its filter; the second is gone; the index of the third.
    change(&first, |bytes| {
        bytes[10] ^= 1;
        bytes[200] ^= 1;
    });
    change(&filter, |bytes| bytes.truncate(20));
    std::fs::remove_file(&second).unwrap();
    let third_index = |bytes: &[u8]| {
        let footer = &bytes[bytes.len() - 128..];
        u64::from_le_bytes(footer[16..24].try_into().unwrap()) as usize
    };
    change(&third, |bytes| {
        let at = third_index(bytes);
        bytes[at] ^= 1;
    });
    std::fs::write(dir.join("foreign"), "").unwrap();
    std::fs::write(dir.join("000099.sst"), "").unwrap();
    std::fs::write(dir.join("000001-0007.flt"), "").unwrap();
    let found = verify(&dir).unwrap();
    let offsets: Vec<_> = of_file(&found, &first).iter().map(|finding| finding.offset).collect();
    assert!(offsets.len() == 2 && offsets[0] == Some(0) && offsets[1] > Some(99), "{offsets:?}");
    let message = |path: &Path| {
        let [finding] = of_file(&found, path)[..] else { panic!("{found:#?}") };
        finding.what.clone()
    };
    assert!(message(&filter).contains("expected a sound filter"), "{}", message(&filter));
    assert!(message(&second).contains("named by the manifest"), "{}", message(&second));
    assert!(message(&third).contains("an index block"), "{}", message(&third));
    assert_eq!(found.findings.len(), 5, "{found:#?}");
    let mut noted: Vec<_> = found.notes.iter().map(|note| note.path.clone()).collect();
    noted.sort();
    assert_eq!(noted, ["000001-0007.flt", "000099.sst", "foreign"].map(|name| dir.join(name)));
}

/// Changes a block of a table, its trailer of five bytes included, and corrects its checksum.
fn forge(path: &Path, block: std::ops::Range<usize>, forgery: impl FnOnce(&mut [u8])) {
    change(path, |bytes| {
        // The first of the random bytes in the footer.
        let salt = bytes[bytes.len() - 48..][..8].to_vec();
        forgery(&mut bytes[block.clone()]);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&salt);
        hasher.update(&(block.start as u64).to_le_bytes());
        hasher.update(&bytes[block.start..block.end - 4]);
        bytes[block.end - 4..block.end].copy_from_slice(&hasher.finalize().to_le_bytes());
    });
}

/// Every checksum is right: only comparing the parts reveals the change.
#[test]
fn what_contradicts_itself_is_found() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    three_tables(&dir);
    let files = contents(&dir);
    let [first, second, third] = files_with(&dir, "sst").try_into().unwrap();
    let block = |path: &Path, number: usize| {
        let block = &TableFile::open(path).unwrap().index()[number];
        block.offset as usize..(block.offset + block.bytes) as usize
    };
    let properties = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        let footer = bytes.len() - 128;
        let field = |at: usize| {
            u64::from_le_bytes(bytes[footer + at..footer + at + 8].try_into().unwrap()) as usize
        };
        field(32)..field(32) + field(40) + 5
    };
    let found_in = |path: &Path, what: &str| {
        let found = verify(&dir).unwrap();
        let [finding] = &found.findings[..] else { panic!("{what}: {found:#?}") };
        assert_eq!(finding.path, path, "{what}");
        assert!(finding.what.contains(what), "{finding}");
        common::restore(&dir, &files);
    };
    // The first key of a table, and of a later block: at their places they are another's.
    let at_key = |bytes: &[u8]| bytes.windows(4).position(|found| found == b"key ").unwrap();
    forge(&second, block(&second, 0), |bytes| bytes[at_key(bytes)] += 1);
    found_in(&second, "belong into this block");
    forge(&second, block(&second, 1), |bytes| bytes[at_key(bytes)] -= 1);
    found_in(&second, "belong into this block");
    // The kind of the first entry: a put becomes a tombstone, or nothing known.
    forge(&third, block(&third, 0), |bytes| bytes[4] ^= 1);
    found_in(&third, "");
    // The bytes of all values, which only the properties and the blocks know.
    forge(&first, properties(&first), |bytes| bytes[44] ^= 1);
    found_in(&first, "the contents that the properties describe");
    // The number of keys, which the manifest knows.
    forge(&first, properties(&first), |bytes| bytes[20] ^= 1);
    found_in(&first, "the properties that the manifest has");
    sound(&verify(&dir).unwrap());
}

#[test]
fn swapped_tables_and_filters_are_found() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    three_tables(&dir);
    let swap = |a: &Path, b: &Path| {
        let (in_a, in_b) = (std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
        std::fs::write(a, in_b).unwrap();
        std::fs::write(b, in_a).unwrap();
    };
    let [first, second, third] = files_with(&dir, "sst").try_into().unwrap();
    swap(&first, &third);
    let found = verify(&dir).unwrap();
    for path in [&first, &third] {
        assert_eq!(of_file(&found, path).len(), 1, "{found:#?}");
    }
    assert!(of_file(&found, &second).is_empty() && found.tables == 3);
    swap(&first, &third);

    let db = options().open(&dir).unwrap();
    db.rebuild_filters(&FilterPolicy::classic()).unwrap();
    db.close().unwrap();
    sound(&verify(&dir).unwrap());
    let filters = files_with(&dir, "flt");
    assert_eq!(filters.len(), 4, "one for the table of the log");
    swap(&filters[0], &filters[1]);
    let found = verify(&dir).unwrap();
    assert_eq!(found.findings.len(), 2, "{found:#?}");
    for path in &filters[..2] {
        assert!(of_file(&found, path)[0].what.contains("expected a sound filter"));
    }
}

#[test]
fn without_its_manifest_a_store_is_verified_table_by_table() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    three_tables(&dir);
    let [first, second, _] = files_with(&dir, "sst").try_into().unwrap();
    change(&first, |bytes| bytes[10] ^= 1);
    change(&second, |bytes| bytes.truncate(100));
    std::fs::remove_file(dir.join("CURRENT")).unwrap();
    let found = verify(&dir).unwrap();
    assert_eq!((found.tables, found.findings.len()), (3, 3), "{found:#?}");
    for path in [&dir.join("CURRENT"), &first, &second] {
        assert_eq!(of_file(&found, path).len(), 1, "{found:#?}");
    }
    assert!(found.entries > 13 && found.probed_keys == 0 && found.notes.len() == 1);
}

#[test]
fn what_is_no_store_is_refused() {
    let parent = common::tempdir();
    let dir = parent.path().join("none");
    let refused = |dir: &Path, what: &str| match verify(dir) {
        Err(Error::NotAStore { found, .. }) => assert!(found.contains(what), "{found}"),
        other => panic!("{other:?}"),
    };
    refused(&dir, "nothing");
    assert!(!dir.exists());
    std::fs::create_dir(&dir).unwrap();
    refused(&dir, "neither");
    let file = parent.path().join("file");
    std::fs::write(&file, "").unwrap();
    refused(&file, "a file");
    assert!(contents(&dir).is_empty(), "not even a lock");
}

/// Their bytes may be right: neither is a defect, and no repair helps.
#[test]
fn a_newer_format_and_a_file_without_permission_are_errors() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    three_tables(&dir);
    for kind in [FileKind::Manifest, FileKind::Table, FileKind::Wal] {
        let refuse = move |of: FileKind, operation| {
            if of == kind && operation == Operation::Open {
                return Err(std::io::ErrorKind::PermissionDenied.into());
            }
            Ok(())
        };
        let vfs: Arc<dyn Vfs> = HookVfs::new(refuse);
        match verify_with(&dir, &vfs, |_, _| {}) {
            Err(Error::Io { source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied);
            }
            other => panic!("{kind:?}: {other:?}"),
        }
    }
    let current = dir.join("CURRENT");
    let body = std::fs::read_to_string(&current).unwrap().replace("criba 2", "criba 3");
    let body = body.lines().take(2).fold(String::new(), |text, line| text + line + "\n");
    let text = format!("{body}{:08x}\n", crc32fast::hash(body.as_bytes()));
    std::fs::write(&current, text).unwrap();
    let refused = verify(&dir);
    assert!(matches!(&refused, Err(Error::Unsupported { path, .. }) if *path == current));
}

/// Once another filter is in its place, no lookup uses it.
#[test]
fn a_damaged_filter_block_that_was_replaced_is_a_note() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    three_tables(&dir);
    let [_, _, third] = files_with(&dir, "sst").try_into().unwrap();
    change(&third, |bytes| {
        let footer = bytes.len() - 128;
        let filter = u64::from_le_bytes(bytes[footer..footer + 8].try_into().unwrap());
        bytes[filter as usize + 20] ^= 1;
    });
    let found = verify(&dir).unwrap();
    assert!(of_file(&found, &third)[0].what.contains("expected a sound filter"), "{found:#?}");
    let db = options().open(&dir).unwrap();
    db.rebuild_filters(&FilterPolicy::default()).unwrap();
    db.close().unwrap();
    let found = verify(&dir).unwrap();
    assert!(found.is_sound(), "{found:#?}");
    let notes: Vec<_> = found.notes.iter().filter(|note| note.path == third).collect();
    let [note] = notes[..] else { panic!("{found:#?}") };
    assert!(note.what.contains("no lookup uses it"), "{note}");
}

/// Its header is read before the whole filter, as is done with more than 16 MiB.
#[test]
fn damage_of_a_large_filter_is_no_old_kind() {
    let dir = common::tempdir();
    let filter = FilterPolicy::classic().with_geometry(1 << 28, 7);
    let db = options().filter(filter).open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    assert!(verify(dir.path()).unwrap().is_sound());
    let path = files_with(dir.path(), "sst").pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let filter = bytes.windows(8).position(|eight| eight == b"cribaFLT").unwrap();
    bytes[filter + 10] = 3; // a ribbon of one layer
    bytes[filter + 2000] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let verified = verify(dir.path()).unwrap();
    assert!(!verified.is_sound() && verified.notes.is_empty(), "{verified}");
}
