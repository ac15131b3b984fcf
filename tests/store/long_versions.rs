//! Many long versions of one key: their blocks end within the key, and each lookup, a snapshot's too, reads one
//! of them.

use criba::vfs::{CountingVfs, FileKind, Operation};
use criba::{Db, Options, Snapshot, verify};

use crate::common;

const VERSIONS: usize = 12;
const BYTES: usize = 400 << 10;
/// The length of a block that is not longer for its first entry.
const BLOCK: u64 = 1 << 20;

fn options(vfs: &CountingVfs) -> Options {
    common::options()
        .background_threads(0)
        .auto_compaction(false)
        .cache_bytes(0)
        .memtable_bytes(64 << 20)
        .vfs(vfs.clone())
}

fn value(version: usize) -> Vec<u8> {
    let mut value = vec![version as u8; BYTES];
    value.extend(version.to_le_bytes());
    value
}

/// Puts versions of a key between two others, with a snapshot after each.
fn write(db: &Db) -> Vec<Snapshot> {
    db.put("a", "first").unwrap();
    db.put("z", "last").unwrap();
    let put = |version| {
        db.put("key", value(version)).unwrap();
        db.put(format!("key {version:02}"), "behind").unwrap();
        db.snapshot()
    };
    (0..VERSIONS).map(put).collect()
}

#[test]
fn each_lookup_of_an_old_version_reads_one_block() {
    let dir = common::tempdir();
    let vfs = CountingVfs::new(common::HookVfs::without_syncs());
    let db = options(&vfs).open(dir.path()).unwrap();
    let snapshots = write(&db);
    db.flush().unwrap();
    for round in ["flushed", "compacted"] {
        for (version, snapshot) in snapshots.iter().enumerate() {
            let before = vfs.counts();
            let found = snapshot.get("key").unwrap().unwrap();
            let reads = (vfs.counts() - before).of(FileKind::Table, Operation::Read);
            assert!(found == value(version).as_slice(), "{round}, version {version}");
            assert_eq!(reads.calls, 1, "{round}, version {version}");
            assert!(reads.bytes <= BLOCK + 100, "{round}: {} bytes", reads.bytes);
            assert_eq!(snapshot.get("a").unwrap().unwrap(), "first");
            assert_eq!(snapshot.get("z").unwrap().unwrap(), "last");
        }
        // Before, behind, and within the key, in both directions.
        for (version, snapshot) in snapshots.iter().enumerate() {
            let behind = (0..=version).map(|number| format!("key {number:02}"));
            let mut expected = vec!["a".to_owned(), "key".into()];
            expected.extend(behind);
            expected.push("z".into());
            let keys = |range: criba::Range| -> Vec<String> {
                range.map(|item| String::from_utf8(item.unwrap().0.to_vec()).unwrap()).collect()
            };
            assert_eq!(keys(snapshot.iter()), expected, "{round}");
            let mut backward: Vec<String> = snapshot
                .iter()
                .rev()
                .map(|item| String::from_utf8(item.unwrap().0.to_vec()).unwrap())
                .collect();
            backward.reverse();
            assert_eq!(backward, expected, "{round}");
            assert_eq!(keys(snapshot.range("key".."l")), expected[1..version + 3]);
            assert_eq!(keys(snapshot.range(..="key")), expected[..2]);
            assert_eq!(keys(snapshot.range(.."key")), expected[..1]);
            let found = snapshot.range("key"..="key").next().unwrap().unwrap().1;
            assert!(found == value(version).as_slice());
            let found = snapshot.range("key"..="key").next_back().unwrap().unwrap().1;
            assert!(found == value(version).as_slice());
        }
        db.compact().unwrap();
    }
    drop(snapshots);
    db.close().unwrap();
    let found = verify(dir.path()).unwrap();
    assert!(found.is_sound(), "{found}");
    let repaired = dir.path().join("repaired");
    let done = criba::repair(dir.path(), &repaired, criba::Uncertain::SetAside);
    assert!(done.is_err(), "it is in the store");
    let repaired = dir.path().with_extension("repaired");
    let done = criba::repair(dir.path(), &repaired, criba::Uncertain::SetAside).unwrap();
    assert_eq!((done.keys, done.losses.len()), (VERSIONS as u64 + 3, 0));
    std::fs::remove_dir_all(repaired).unwrap();
}
