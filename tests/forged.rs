//! What is wrong although every checksum is right: stray files, and tables that contradict the index
//! and the manifest.

mod common;

use std::path::Path;

use criba::{Batch, Error, Options};

fn options() -> Options {
    common::options().background_threads(0).block_bytes(64).seed(1)
}

/// The counter of file numbers goes on from the highest number found. So a stray file with a number
/// close to the greatest one made the store write names that its next opening did not accept.
#[test]
fn a_stray_file_with_an_enormous_number_does_not_cost_the_store() {
    for stray in
        ["4611686018427387904.sst", "4611686018427387902.log", "MANIFEST-4611686018427387903"]
    {
        let dir = tempfile::tempdir().unwrap();
        options().open(dir.path()).unwrap().put("key", "value").unwrap();
        std::fs::write(dir.path().join(stray), "").unwrap();
        for _ in 0..2 {
            let error = options().open(dir.path()).expect_err("no number is left above it");
            assert!(matches!(error, Error::Corrupt { .. }), "{stray}: {error}");
        }
        std::fs::remove_file(dir.path().join(stray)).unwrap();
        let db = options().open(dir.path()).unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

fn only_table(dir: &Path) -> std::path::PathBuf {
    let mut tables = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    tables.next().unwrap()
}

/// Rewrites the data block in which `from` stands, with the checksum that it then has.
fn forge(path: &Path, block: std::ops::Range<usize>, from: &[u8], to: &[u8]) {
    let id: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes[block.clone()].windows(from.len()).position(|found| found == from).unwrap();
    bytes[block.start + at..][..to.len()].copy_from_slice(to);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(&(block.start as u64).to_le_bytes());
    hasher.update(&bytes[block.start..block.end - 4]);
    bytes[block.end - 4..block.end].copy_from_slice(&hasher.finalize().to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

/// Keys that are not in order from one block to the next made a merge write a table that is not in
/// order, and a sequence number that the manifest does not know made it write a manifest that the next
/// opening refused.
#[test]
fn blocks_that_contradict_the_index_or_the_manifest_are_not_merged() {
    // An entry is: shared, suffix, value and sequence number as varints, kind, suffix, value. The
    // first block is that of "aaaaaaaa" alone.
    let entry = |key: &str, seq: u8| {
        let mut bytes = vec![0, 8, 40, seq, 1];
        bytes.extend_from_slice(key.as_bytes());
        bytes
    };
    for (what, forged) in [
        ("a key beyond the block's", entry("zzzzzzzz", 1)),
        ("a key before the table's", entry("AAAAAAAA", 1)),
        ("a sequence number beyond the table's", entry("aaaaaaaa", 100)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let db = options().open(dir.path()).unwrap();
        let mut batch = Batch::new();
        for key in ["aaaaaaaa", "bbbbbbbb", "cccccccc"] {
            batch.put(key, [b'v'; 40]);
        }
        db.write(batch).unwrap();
        db.flush().unwrap();
        drop(db);
        let sound = entry("aaaaaaaa", 1);
        let length = sound.len() + 40 + 4 + 4 + 5; // value, one restart point, their number, trailer
        forge(&only_table(dir.path()), 0..length, &sound, &forged);
        let db = options().open(dir.path()).unwrap();
        let scanned: Result<Vec<_>, _> = db.range::<&str>(..).unwrap().collect();
        assert!(matches!(scanned, Err(Error::Corrupt { .. })), "{what}: scanned");
        db.delete("bbbbbbbb").unwrap();
        assert!(matches!(db.compact(), Err(Error::Corrupt { .. })), "{what}: merged");
        drop(db);
        let db = options().open(dir.path()).unwrap();
        assert!(db.get("bbbbbbbb").unwrap().is_none(), "{what}");
        assert!(db.get("cccccccc").unwrap().is_some(), "{what}");
    }
}
