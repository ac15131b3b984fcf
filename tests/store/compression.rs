//! Compression belongs to the store, changes no answer and no account, and what it cannot shrink stays as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criba::{
    Compression, Db, Error, FilterPolicy, Options, TableFile, TableInfo, Uncertain, repair, verify,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{self, contents, copy_dir, files_with, tempdir};

const DATA: u8 = 1;
const COMPRESSED_DATA: u8 = 6;

fn options() -> Options {
    common::options().background_threads(0).auto_compaction(false).seed(3).block_bytes(512)
}

fn lz4() -> Options {
    options().compression(Compression::Lz4)
}

fn key(number: u32) -> String {
    format!("key {number:05}")
}

fn value(number: u32) -> String {
    format!("{number} ").repeat(20)
}

fn fill(db: &Db, numbers: std::ops::Range<u32>) {
    for number in numbers {
        db.put(key(number), value(number)).unwrap();
    }
    db.flush().unwrap();
}

fn pairs(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pairs = db.iter().map(Result::unwrap);
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn is_compressed(table: &TableInfo) -> bool {
    let ratio = table.data_bytes as f64 / table.contents_bytes as f64;
    assert!(ratio < 0.6 || table.data_bytes == table.contents_bytes, "{table:?}");
    ratio < 0.6
}

/// Of each table, newest first: whether its blocks take fewer bytes than their contents.
fn compressed(db: &Db) -> Vec<bool> {
    db.tables().iter().map(is_compressed).collect()
}

fn feature_of_manifest(dir: &Path) -> bool {
    let current = std::fs::read_to_string(dir.join("CURRENT")).unwrap();
    std::fs::read(dir.join(current.lines().nth(1).unwrap())).unwrap()[12] & 8 != 0
}

fn feature_of_table(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap();
    bytes[bytes.len() - 20] & 4 != 0
}

/// The type of each data block, and its bytes in the file.
fn blocks(path: &Path) -> Vec<(u8, u64)> {
    let bytes = std::fs::read(path).unwrap();
    let index = TableFile::open(path).unwrap().index();
    let block_type = |end: u64| bytes[end as usize - 5];
    index.iter().map(|block| (block_type(block.offset + block.bytes), block.bytes)).collect()
}

fn the_table(dir: &Path) -> PathBuf {
    let mut tables = files_with(dir, "sst");
    assert_eq!(tables.len(), 1);
    tables.pop().unwrap()
}

#[test]
fn a_store_keeps_its_compression_until_the_options_change_it() {
    let (parent, copy) = (tempdir(), tempdir());
    let dir = parent.path().join("store");
    let db = options().open(&dir).unwrap();
    fill(&db, 0..300);
    assert_eq!(compressed(&db), [false]);
    assert!(!feature_of_manifest(&dir) && !feature_of_table(&the_table(&dir)));
    db.close().unwrap();

    let opened = lz4().open(&dir).unwrap();
    copy_dir(&dir, copy.path()); // as a crash leaves it before the first write
    drop(opened);
    let db = options().open(copy.path()).unwrap();
    fill(&db, 300..600);
    let older_and_newer = |db: &Db| {
        let mut tables = db.tables();
        tables.sort_by_key(|table| table.id);
        tables.iter().map(is_compressed).collect::<Vec<_>>()
    };
    assert_eq!(older_and_newer(&db), [false, true], "the older table stays as it is");
    assert!(feature_of_manifest(copy.path()));
    let features: Vec<_> =
        files_with(copy.path(), "sst").iter().map(|p| feature_of_table(p)).collect();
    assert_eq!(features, [false, true]);
    let expected = pairs(&db);
    assert_eq!(expected.len(), 600);
    let (checkpoint, repaired) = (parent.path().join("checkpoint"), parent.path().join("repaired"));
    db.checkpoint(&checkpoint).unwrap();
    db.compact().unwrap();
    assert_eq!(compressed(&db), [true]);
    // Another setting of the store leaves this one.
    db.set_policy(FilterPolicy::bits_per_key(7.0)).unwrap();
    db.close().unwrap();

    repair(&checkpoint, &repaired, Uncertain::SetAside).unwrap();
    for dir in [copy.path(), &checkpoint, &repaired] {
        let db = options().open(dir).unwrap();
        fill(&db, 0..1);
        db.compact().unwrap();
        assert_eq!((compressed(&db), pairs(&db)), (vec![true], expected.clone()), "{dir:?}");
        db.close().unwrap();
    }
    let db = options().compression(Compression::None).open(copy.path()).unwrap();
    fill(&db, 600..700);
    assert_eq!(older_and_newer(&db), [true, false]);
    db.close().unwrap();
    let db = options().open(copy.path()).unwrap();
    fill(&db, 700..701);
    db.compact().unwrap();
    assert_eq!(compressed(&db), [false], "none is kept, too");
    assert!(feature_of_manifest(copy.path()), "once given, it is recorded");
    assert_eq!(pairs(&db).len(), 701);
}

#[test]
fn a_store_without_compression_has_the_bytes_that_it_had() {
    let [plain, none] = [options(), options().compression(Compression::None)].map(|options| {
        let dir = tempdir();
        for numbers in [0..200, 100..300] {
            let db = options.clone().open(dir.path()).unwrap();
            fill(&db, numbers);
            db.compact().unwrap();
            db.close().unwrap();
        }
        contents(dir.path())
    });
    assert!(plain == none, "the same files");
}

#[test]
fn every_kind_of_reading_decompresses() {
    let (dir, read_only) = (tempdir(), tempdir());
    let db = lz4().open(dir.path()).unwrap();
    fill(&db, 0..500);
    db.ingest((1000..1500).map(|number| Ok::<_, Error>((key(number), value(number))))).unwrap();
    db.delete(key(7)).unwrap();
    fill(&db, 400..600);
    assert_eq!(compressed(&db), [true; 3]);
    let expected: BTreeMap<Vec<u8>, Vec<u8>> = (0..600)
        .chain(1000..1500)
        .filter(|&number| number != 7)
        .map(|number| (key(number).into_bytes(), value(number).into_bytes()))
        .collect();
    for compacted in [false, true] {
        if compacted {
            db.compact().unwrap();
        }
        assert_eq!(pairs(&db), expected);
        let backward: Vec<_> = db.iter().rev().map(|pair| pair.unwrap().0.to_vec()).collect();
        assert!(backward.iter().rev().eq(expected.keys()));
        for number in 0..1600 {
            let key = key(number);
            let found = db.get(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(found.as_ref(), expected.get(key.as_bytes()));
        }
        let keys: Vec<_> = (0..1600).map(key).collect();
        let found = db.get_many(&keys).unwrap();
        assert_eq!(found.iter().flatten().count(), expected.len());
        let range: Vec<_> =
            db.range(key(1200)..key(1300)).map(|pair| pair.unwrap().1.to_vec()).collect();
        assert!(
            range.iter().eq((1200..1300)
                .map(value)
                .map(String::into_bytes)
                .collect::<Vec<_>>()
                .iter())
        );
        let about = db.approximate_len(key(1000)..key(1500)).unwrap();
        assert!((450..=600).contains(&about), "{about}, by blocks");
        assert!(verify(dir.path()).is_err(), "it is open");
        copy_dir(dir.path(), read_only.path());
        assert!(verify(read_only.path()).unwrap().is_sound());
        let reader = Options::new().open_read_only(read_only.path()).unwrap();
        assert_eq!(reader.iter().count(), expected.len());
    }
}

#[test]
fn a_compaction_brings_a_whole_store_to_its_setting() {
    let dir = tempdir();
    let db = options().table_bytes(8192).open(dir.path()).unwrap();
    fill(&db, 0..1000);
    db.compact().unwrap();
    assert!(db.tables().len() > 5);
    let expected = pairs(&db);
    let plain: u64 = db.tables().iter().map(|table| table.file_bytes).sum();
    db.close().unwrap();
    for (setting, is_compressed) in [(Compression::Lz4, true), (Compression::None, false)] {
        let db = options().table_bytes(8192).compression(setting).open(dir.path()).unwrap();
        assert!(compressed(&db).iter().all(|&found| found != is_compressed));
        db.compact().unwrap();
        assert!(compressed(&db).iter().all(|&found| found != is_compressed), "one run stays");
        let newest = db.tables().iter().map(|table| table.id).max().unwrap();
        db.compact_rewriting(newest + 1).unwrap();
        assert!(compressed(&db).iter().all(|&found| found == is_compressed));
        assert_eq!(pairs(&db), expected);
        let bytes: u64 = db.tables().iter().map(|table| table.file_bytes).sum();
        let share = bytes as f64 / plain as f64;
        assert!(if is_compressed { share < 0.7 } else { (0.99..1.01).contains(&share) }, "{share}");
        db.close().unwrap();
    }
}

#[test]
fn what_does_not_shrink_or_is_long_stays_as_it_is() {
    let mut rng = ChaCha8Rng::seed_from_u64(49);
    let mut noise = |bytes: usize| -> Vec<u8> { (0..bytes).map(|_| rng.random()).collect() };
    let dir = tempdir();
    let db = lz4().open(dir.path()).unwrap();
    let mut expected = BTreeMap::new();
    for number in 0..50_u32 {
        let value = match number {
            10 => vec![b'x'; (256 << 10) - 40], // with its key just short enough
            20 => vec![b'x'; 256 << 10],        // with its key too long
            30 => vec![b'x'; 3 << 20],
            even if even % 2 == 0 => noise(400),
            _ => vec![b'x'; 400],
        };
        db.put(key(number), &value).unwrap();
        expected.insert(key(number).into_bytes(), value);
    }
    db.flush().unwrap();
    let read = |db: &Db| {
        assert_eq!(pairs(db), expected);
        for (key, value) in &expected {
            assert!(db.get(key).unwrap().unwrap() == value[..]);
        }
    };
    read(&db);
    db.compact().unwrap();
    read(&db);
    let info = db.tables().pop().unwrap();
    db.close().unwrap();
    let path = the_table(dir.path());
    let blocks = blocks(&path);
    let of_type =
        |of: u8| blocks.iter().filter(move |(found, _)| *found == of).map(|block| block.1);
    assert_eq!(of_type(DATA).count() + of_type(COMPRESSED_DATA).count(), blocks.len());
    assert_eq!(of_type(DATA).filter(|&bytes| bytes > 256 << 10).count(), 2);
    assert!(of_type(COMPRESSED_DATA).all(|bytes| bytes < 1200), "{blocks:?}");
    assert!(of_type(COMPRESSED_DATA).any(|bytes| bytes > 1000), "256 KiB of one byte");
    assert!(of_type(DATA).filter(|bytes| (400..512).contains(bytes)).count() > 20, "noise");
    assert!(of_type(COMPRESSED_DATA).filter(|bytes| (20..100).contains(bytes)).count() > 20);
    // The counts of the table.
    let properties = TableFile::open(&path).unwrap().properties();
    let stored: u64 = blocks.iter().map(|(_, bytes)| bytes - 5).sum();
    assert_eq!((properties.data_bytes, properties.data_blocks), (stored, blocks.len() as u64));
    let values: usize = expected.values().map(Vec::len).sum();
    assert!((values as u64..values as u64 + 3000).contains(&properties.contents_bytes));
    let of_info = (info.data_bytes, info.contents_bytes);
    assert_eq!(of_info, (properties.data_bytes, properties.contents_bytes));
    assert!(verify(dir.path()).unwrap().is_sound());

    // A table without a compressed block has no feature.
    let db = lz4().open(dir.path()).unwrap();
    for number in 0..50 {
        db.put(key(number), noise(400)).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(compressed(&db), [false]);
    db.close().unwrap();
    assert!(!feature_of_table(&the_table(dir.path())));
}

/// Entries that repeat take less than a byte each.
#[test]
fn a_table_may_have_more_entries_than_bytes() {
    let dir = tempdir();
    let options = || lz4().filter(FilterPolicy::none()).block_bytes(1 << 18);
    let db = options().open(dir.path()).unwrap();
    let keys = (0..1_000_000_u32).map(u32::to_be_bytes);
    db.ingest(keys.map(|key| Ok::<_, Error>((key, [])))).unwrap();
    let table = db.tables().pop().unwrap();
    println!("{} bytes, {} decompressed", table.file_bytes, table.contents_bytes);
    assert!(table.file_bytes < table.entries);
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    assert_eq!(db.iter().count(), 1_000_000);
    assert!(db.contains(77_u32.to_be_bytes()).unwrap());
}

#[test]
fn disk_reads_count_bytes_of_the_file_and_the_cache_counts_decompressed_ones() {
    let dir = tempdir();
    let db = lz4().open(dir.path()).unwrap();
    fill(&db, 0..400);
    let table = db.tables().pop().unwrap();
    db.close().unwrap();
    let blocks = TableFile::open(the_table(dir.path())).unwrap().index();
    let stored: u64 = blocks.iter().map(|block| block.bytes).sum();
    assert_eq!(stored, table.data_bytes + 5 * blocks.len() as u64);
    let db = options().filter(FilterPolicy::none()).open(dir.path()).unwrap();
    let read = |db: &Db| db.stats().total().disk_read_bytes;
    for block in &blocks {
        for bytes in [block.bytes, 0] {
            let before = read(&db);
            let _ = db.get(&block.separator).unwrap();
            assert_eq!(read(&db) - before, bytes, "the second time the cache has it");
        }
    }
    assert_eq!(read(&db), stored);
    let least = table.contents_bytes;
    let cached = db.memory().cache;
    assert!((least..least + 200 * blocks.len() as u64).contains(&cached), "{cached} {least}");
    db.close().unwrap();
    let db = options().cache_bytes(0).open(dir.path()).unwrap();
    assert_eq!(db.iter().count(), 400);
    let scanned = db.stats().scan_reads;
    assert_eq!((scanned.calls, scanned.bytes), (blocks.len() as u64, stored));
    db.compact_rewriting(u64::MAX).unwrap();
    assert_eq!(db.stats().compaction_reads.bytes, stored);
}

/// Reads as a lookup, as a scan, as a compaction.
#[test]
fn damage_of_a_compressed_block_names_the_file_and_the_block() {
    let parent = tempdir();
    let dir = parent.path().join("store");
    let options = || lz4().filter(FilterPolicy::none()).cache_bytes(0);
    let db = options().open(&dir).unwrap();
    fill(&db, 0..40);
    db.close().unwrap();
    let path = the_table(&dir);
    let (sound, index) = (std::fs::read(&path).unwrap(), TableFile::open(&path).unwrap().index());
    assert!(index.len() > 3 && blocks(&path).iter().all(|block| block.0 == COMPRESSED_DATA));
    let says = |error: Error| match error {
        Error::Corrupt { path: found, offset, expected, .. } => {
            assert_eq!(found, path);
            assert_eq!(expected, "a data block");
            offset
        }
        other => panic!("{other}"),
    };
    let flip = |at: u64| {
        let mut bytes = sound.clone();
        bytes[at as usize] ^= 1 << (at % 8);
        std::fs::write(&path, bytes).unwrap();
    };
    let db = options().open(&dir).unwrap();
    for block in &index {
        for at in (block.offset..block.offset + block.bytes).step_by(common::stride()) {
            flip(at);
            assert_eq!(says(db.get(&block.separator).unwrap_err()), block.offset);
            let scanned = db.iter().find_map(Result::err).unwrap();
            assert_eq!(says(scanned), block.offset);
            let entries = TableFile::open(&path).unwrap().entries().find_map(Result::err);
            assert_eq!(says(entries.unwrap()), block.offset);
        }
    }
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(pairs(&db).len(), 40);
    db.close().unwrap();

    // A repair loses the keys of this block alone, and none without the footer, or without index and footer.
    let second = &index[1];
    let within = |key: &[u8]| &index[0].separator[..] < key && key <= &second.separator[..];
    let of_second = (0..40).filter(|&number| within(key(number).as_bytes())).count() as u64;
    assert!(of_second > 0);
    let index_at = (sound.len() - 128 + 16) as u64;
    let of_index = u64::from_le_bytes(sound[index_at as usize..][..8].try_into().unwrap());
    for (name, places, losses, keys) in [
        ("block", vec![second.offset], 1, 40 - of_second),
        ("footer", vec![sound.len() as u64 - 1], 0, 40),
        ("index", vec![of_index, sound.len() as u64 - 1], 0, 40),
    ] {
        let mut bytes = sound.clone();
        for at in places {
            bytes[at as usize] ^= 1;
        }
        std::fs::write(&path, bytes).unwrap();
        let to = parent.path().join(name);
        let repaired = repair(&dir, &to, Uncertain::SetAside).unwrap();
        assert_eq!((repaired.losses.len(), repaired.keys), (losses, keys), "{name}: {repaired:?}");
        assert_eq!(options().open(&to).unwrap().iter().count() as u64, keys);
    }
}

/// A sixteenth of what the entries take, not of the shorter file.
#[test]
fn hidden_entries_are_weighed_by_decompressed_bytes() {
    let dir = tempdir();
    let db = lz4().auto_compaction(true).open(dir.path()).unwrap();
    let value = |number: u32| format!("{number} ").repeat(40);
    for number in 0..2000 {
        db.put(key(number), value(number)).unwrap();
    }
    db.compact().unwrap();
    let (snapshot, mut hidden) = (db.snapshot(), 0);
    for number in (0..2000).step_by(40) {
        hidden += (key(number).len() + value(number).len()) as u64;
        db.put(key(number), "new").unwrap();
    }
    db.compact().unwrap();
    let table = db.tables().pop().unwrap();
    assert!(table.file_bytes < 16 * hidden && 16 * hidden < table.contents_bytes, "{table:?}");
    let compactions = db.stats().activity.compactions;
    drop(snapshot);
    db.wait_until_settled().unwrap();
    assert_eq!(db.stats().activity.compactions, compactions, "they are few");
}

/// The share that a store with LZ4 keeps of its data blocks.
fn kept(dir: &Path, block_bytes: usize, load: impl Fn(&Db)) -> f64 {
    let db = lz4().block_bytes(block_bytes).open(dir.join(format!("lz4 {block_bytes}"))).unwrap();
    load(&db);
    let sum = |of: fn(&TableInfo) -> u64| db.tables().iter().map(of).sum::<u64>() as f64;
    sum(|table| table.data_bytes) / sum(|table| table.contents_bytes)
}

fn noise(rng: &mut ChaCha8Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.random()).collect()
}

#[test]
fn an_estimate_is_near_what_compression_keeps() {
    let dir = tempdir();
    // The first half shrinks, the second does not.
    let load = |db: &Db| {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for number in 0..40_000 {
            if number % 10_000 == 0 {
                db.flush().unwrap();
            }
            let noise = noise(&mut rng, 100);
            let value = if number < 20_000 { value(number).into_bytes() } else { noise };
            db.put(key(number), value).unwrap();
        }
        db.flush().unwrap();
    };
    let db = options().open(dir.path().join("plain")).unwrap();
    assert_eq!(db.estimate_compression(4096).unwrap(), None, "no tables");
    load(&db);
    let mut last = 1.0;
    for block_bytes in [512, 4096, 16_384, 200 << 10] {
        let before = db.stats().check_reads.bytes;
        let estimate = db.estimate_compression(block_bytes).unwrap().unwrap();
        let read = db.stats().check_reads.bytes - before;
        let most = 64 * (65_536.max(block_bytes) + 1024) as u64;
        assert!((1 << 20..most).contains(&read), "{block_bytes}: {read}");
        assert!(estimate < last, "{block_bytes}: {estimate}");
        last = estimate;
        let kept = kept(dir.path(), block_bytes, load);
        assert!((estimate / kept - 1.0).abs() < 0.05, "{block_bytes}: {estimate}, {kept}");
        // Half the keys have most of the bytes in the compressed files.
        let db = options().open(dir.path().join(format!("lz4 {block_bytes}"))).unwrap();
        let estimate = db.estimate_compression(block_bytes).unwrap().unwrap();
        assert!(
            (estimate / kept - 1.0).abs() < 0.05,
            "compressed, {block_bytes}: {estimate}, {kept}"
        );
    }
    assert_eq!(db.estimate_compression((256 << 10) + 1).unwrap(), Some(1.0));
}

/// A sample that begins at a large value does not read it.
#[test]
fn an_estimate_of_small_and_large_values() {
    let dir = tempdir();
    let load = |db: &Db| {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for number in 0..50_000 {
            db.put(key(number), value(number)).unwrap();
        }
        for number in 0..6 {
            db.put(format!("large {number}"), noise(&mut rng, 2 << 20)).unwrap();
        }
        db.flush().unwrap();
    };
    let db = options().open(dir.path().join("plain")).unwrap();
    load(&db);
    let (before, mut estimate) = (db.stats().check_reads.bytes, 0.0);
    let memory = allocation_counter::measure(|| {
        estimate = db.estimate_compression(4096).unwrap().unwrap();
    });
    let read = db.stats().check_reads.bytes - before;
    assert!(read < 5 << 20 && memory.bytes_max < 1 << 20, "{read} bytes, {memory:?}");
    let kept = kept(dir.path(), 4096, load);
    assert!((estimate / kept - 1.0).abs() < 0.1, "{estimate}, {kept}");
}

#[test]
fn an_estimate_counts_a_read_that_fails() {
    let dir = tempdir();
    let db = options().open(dir.path()).unwrap();
    fill(&db, 0..1);
    let path = files_with(dir.path(), "sst").pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let before = db.stats().check_reads.calls;
    assert!(matches!(db.estimate_compression(4096), Err(Error::Corrupt { .. })));
    assert_eq!(db.stats().check_reads.calls - before, 1);
}

#[test]
fn a_closed_store_still_has_its_settings() {
    let dir = tempdir();
    let ttl = Duration::from_secs(9);
    let db = lz4().default_ttl(ttl).open(dir.path()).unwrap();
    db.clone().close().unwrap();
    assert_eq!((db.default_ttl(), db.compression()), (Some(ttl), Compression::Lz4));
}
