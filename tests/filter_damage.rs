//! A filter that is damaged, at any bit, never hides a key: its table is degraded, named as such, and
//! gives the right values all the same.

mod common;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use common::{HookVfs, contents, files_with, restore};
use criba::{Db, Error, FilterInfo, FilterPolicy, Options, TableFile, Verdict};

const KEYS: u32 = 24;

fn options() -> Options {
    Options::new()
        .background_threads(0)
        .auto_compaction(false)
        .cache_bytes(0)
        .filter(FilterPolicy::bits_per_key(10.0))
        .vfs(HookVfs::without_syncs())
}

fn key(table: u32, number: u32) -> Vec<u8> {
    // Each table's range covers the other's keys.
    format!("key {number:03} of {table}").into_bytes()
}

/// A closed store of two tables of equal size.
fn two_tables(dir: &Path) -> [PathBuf; 2] {
    let db = options().open(dir).unwrap();
    for table in 0..2 {
        for number in 0..KEYS {
            db.put(key(table, number), format!("value {table} {number:03}")).unwrap();
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
    // Opening goes on in new files; the tables stay.
    let [a, b] = files_with(dir, "sst").try_into().unwrap();
    assert_eq!(a.metadata().unwrap().len(), b.metadata().unwrap().len());
    [a, b]
}

/// Where the filter block of a table lies, its trailer of five bytes included.
fn filter_block(table: &[u8]) -> Range<usize> {
    let footer = &table[table.len() - 128..];
    let field = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize;
    let (offset, length) = (field(0), field(8));
    assert_eq!(offset % 64, 0);
    offset..offset + length + 5
}

/// Opens a store in which the filters of some tables are damaged, and asks for every key.
fn check(dir: &Path, damaged: &[&Path], what: &str) {
    let db = options().open(dir).unwrap_or_else(|error| panic!("{what}: {error}"));
    let ids: Vec<String> =
        damaged.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    for table in db.tables() {
        let named = ids.contains(&format!("{:06}", table.id));
        match table.filter {
            FilterInfo::Degraded { reason } => assert!(named && !reason.is_empty(), "{what}"),
            FilterInfo::Active { .. } => assert!(!named, "{what}: table {}", table.id),
            other => panic!("{what}: {other:?}"),
        }
    }
    for table in 0..2 {
        for number in 0..KEYS {
            let value = db.get(key(table, number)).unwrap();
            let expected = format!("value {table} {number:03}");
            assert_eq!(value.as_deref(), Some(expected.as_bytes()), "{what}");
        }
    }
    for number in 1..KEYS - 1 {
        assert_eq!(db.get(format!("key {number:03} of x")).unwrap(), None, "{what}");
    }
    let total = db.stats().total();
    assert!(total.degraded > 0, "{what}: not counted");
    assert_eq!(total.degraded, total.unfiltered(), "{what}");
    let of_tables: u64 = db
        .tables()
        .iter()
        .filter(|table| matches!(table.filter, FilterInfo::Degraded { .. }))
        .map(|table| table.counts.degraded)
        .sum();
    assert_eq!(of_tables, total.degraded, "{what}");
    for path in damaged {
        let table = TableFile::open(path).unwrap();
        // On its own, a table is taken by its own word; but this checksum does not match either.
        assert!(matches!(table.filter(), FilterInfo::Degraded { .. }), "{what}");
        assert_eq!(table.verdict("anything"), Verdict::Degraded, "{what}");
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_filter_costs_reads_and_no_more() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let [table, _] = two_tables(&dir);
    let files = contents(&dir);
    let whole = std::fs::read(&table).unwrap();
    let mut flips = 0_usize;
    for place in filter_block(&whole) {
        for bit in 0..8 {
            restore(&dir, &files);
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << bit;
            std::fs::write(&table, bytes).unwrap();
            check(&dir, &[&table], &format!("byte {place}, bit {bit}"));
            flips += 1;
        }
    }
    println!("{flips} flips in a filter block, {} lookups", flips * 3 * KEYS as usize);
    assert_eq!(flips, 8 * filter_block(&whole).len());
}

#[test]
fn zeroed_overwritten_and_swapped_filters_cost_reads_and_no_more() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let [a, b] = two_tables(&dir);
    let files = contents(&dir);
    let (in_a, in_b) = (std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    let block = filter_block(&in_a);
    assert_eq!(block, filter_block(&in_b));
    let mut tried = 0;
    for fill in [0, 0xff] {
        for start in block.clone().step_by(4) {
            // From here to the end, and four bytes only.
            for end in [block.end, (start + 4).min(block.end)] {
                let mut bytes = in_a.clone();
                bytes[start..end].fill(fill);
                if bytes == in_a {
                    continue;
                }
                restore(&dir, &files);
                std::fs::write(&a, bytes).unwrap();
                check(&dir, &[&a], &format!("{start}..{end} filled with {fill}"));
                tried += 1;
            }
        }
    }
    // The filters of two tables, each sound, each at the right offset, in the wrong table.
    restore(&dir, &files);
    let (mut new_a, mut new_b) = (in_a.clone(), in_b.clone());
    new_a[block.clone()].copy_from_slice(&in_b[block.clone()]);
    new_b[block.clone()].copy_from_slice(&in_a[block.clone()]);
    assert!(new_a != in_a);
    std::fs::write(&a, new_a).unwrap();
    std::fs::write(&b, new_b).unwrap();
    check(&dir, &[&a, &b], "swapped");
    println!("{tried} filters overwritten in part, 2 swapped");
    assert!(tried > 80);
}

/// As the format's checksums are made: bound to the table's number and the place in it.
fn checksum(number: u64, offset: u64, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

#[test]
fn a_sound_filter_of_other_keys_is_told_by_the_manifest() {
    // The other table's filter, its checksum made to fit: only the manifest can tell.
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let [a, b] = two_tables(&dir);
    let (mut in_a, in_b) = (std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    let block = filter_block(&in_a);
    in_a[block.clone()].copy_from_slice(&in_b[block.clone()]);
    let id: u64 = a.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let sum = checksum(id, block.start as u64, &in_a[block.start..block.end - 4]);
    in_a[block.end - 4..block.end].copy_from_slice(&sum);
    std::fs::write(&a, in_a).unwrap();
    let db = options().open(&dir).unwrap();
    let values: BTreeMap<u32, _> =
        (0..KEYS).map(|number| (number, db.get(key(0, number)).unwrap())).collect();
    assert!(values.values().all(Option::is_some), "{values:?}");
    assert!(db.stats().total().degraded > 0);
}

#[test]
fn a_table_cut_within_its_filter_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let [table, _] = two_tables(&dir);
    let whole = std::fs::read(&table).unwrap();
    for length in filter_block(&whole) {
        std::fs::write(&table, &whole[..length]).unwrap();
        match options().open(&dir) {
            Err(Error::Corrupt { path, .. }) => assert_eq!(path, table),
            other => panic!("cut to {length}: {other:?}"),
        }
    }
    std::fs::write(&table, &whole).unwrap();
    Db::open(&dir).unwrap();
}

#[test]
fn a_filter_that_cannot_be_read_costs_reads_and_no_more() {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use criba::vfs::{FileKind, Operation};

    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    two_tables(&dir);
    // Opening reads two pieces of each table: its tail, then its filter.
    let reads = Arc::new(AtomicU64::new(0));
    let hook = Arc::clone(&reads);
    let vfs = HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Table, Operation::Read)
            && hook.fetch_add(1, Ordering::SeqCst) == 1
        {
            return Err(io::Error::other("a bad sector"));
        }
        Ok(())
    });
    let db = options().vfs(vfs).open(&dir).unwrap();
    let degraded = db
        .tables()
        .iter()
        .filter(|table| matches!(&table.filter, FilterInfo::Degraded { reason } if reason.contains("bad sector")))
        .count();
    assert_eq!(degraded, 1);
    for number in 0..KEYS {
        assert!(db.get(key(0, number)).unwrap().is_some());
        assert!(db.get(key(1, number)).unwrap().is_some());
    }
    // A flush or compaction writes a sound one again.
    db.compact().unwrap();
    assert!(db.tables().iter().all(|table| matches!(table.filter, FilterInfo::Active { .. })));
}

/// Even a store that is one run already is rewritten, when a filter of it is degraded.
#[test]
fn compact_gives_a_degraded_table_a_new_filter() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let _ = two_tables(&dir);
    let db = options().open(&dir).unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let [path] = files_with(&dir, "sst").try_into().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = filter_block(&bytes).start + 130;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let db = options().open(&dir).unwrap();
    assert!(matches!(db.tables()[0].filter, FilterInfo::Degraded { .. }));
    db.compact().unwrap();
    assert!(matches!(db.tables()[0].filter, FilterInfo::Active { .. }));
    for (table, number) in (0..2).flat_map(|table| (0..KEYS).map(move |number| (table, number))) {
        let expected = format!("value {table} {number:03}");
        assert_eq!(db.get(key(table, number)).unwrap().unwrap(), expected);
    }
    assert_eq!(db.stats().total().degraded, 0);
}
