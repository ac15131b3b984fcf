//! The ledger is exact for each lookup: reads without filters minus reads with filters are the true
//! negatives, the engine and the file layer count the same, and a negative filter answer does no I/O.

use std::path::Path;
use std::sync::Arc;

use criba::vfs::{AccessHint, CountingVfs, FileCounts, FileKind, Operation};
use criba::{Counts, Db, FilterPolicy, Options};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common;

/// A store with a counting file layer.
struct Counted {
    db: Db,
    vfs: CountingVfs,
}

fn options() -> Options {
    common::options()
        .background_threads(0)
        .auto_compaction(false)
        .seed(5)
        .cache_bytes(0)
        .block_bytes(512)
        .filter(common::policy().with_rate(0.05))
}

impl Counted {
    fn open(dir: &Path, options: Options) -> Self {
        let vfs = CountingVfs::new(common::HookVfs::without_syncs());
        let db = options.vfs(Arc::new(vfs.clone())).open(dir).unwrap();
        Self { db, vfs }
    }

    /// One lookup: whether it found a value, its explanation, and the counts of the file layer.
    fn get(&self, key: &[u8]) -> (bool, Counts, FileCounts) {
        let before = self.vfs.counts();
        let explained = self.db.explain(key).unwrap();
        (explained.value.is_some(), explained.counts(), self.vfs.counts() - before)
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("user/{:08}", number.wrapping_mul(0x9E37_79B1) % 10_000_000).into_bytes()
}

/// Overlapping tables on L0 and a run below, with tombstones and overwritten values: the same files for
/// each opening.
fn build(dir: &Path, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let db = options().table_bytes(16 << 10).open(dir).unwrap();
    let mut write = |count: u32| {
        for _ in 0..count {
            let key = key(rng.random_range(0..6000));
            if rng.random_range(0..8) == 0 {
                db.delete(key).unwrap();
            } else {
                db.put(key, vec![5; rng.random_range(0..40)]).unwrap();
            }
        }
        db.flush().unwrap();
    };
    write(3000);
    write(1500);
    db.compact().unwrap();
    for count in [800, 100, 500, 2, 300] {
        write(count);
    }
    let l0 = db.tables().iter().filter(|table| table.level == 0).count();
    assert!(l0 == 5 && db.tables().len() > 7, "{:?}", db.tables().len());
    db.close().unwrap();
}

fn lookups() -> impl Iterator<Item = Vec<u8>> {
    // Present, deleted and absent ones within the range, and some outside.
    (0..12_000).map(key).chain([vec![], b"user".to_vec(), b"user/99999999".to_vec(), vec![0xff; 3]])
}

fn sum_io(counts: &FileCounts) -> u64 {
    let all = FileKind::ALL.into_iter().flat_map(|kind| {
        Operation::ALL.into_iter().map(move |operation| counts.of(kind, operation).calls)
    });
    all.sum()
}

#[test]
fn reads_without_filters_minus_reads_with_them_are_the_reads_avoided() {
    for (seed, max_open_files) in [(1, 1000), (2, 0), (3, 1)] {
        let parent = common::tempdir();
        let (one, other) = (parent.path().join("one"), parent.path().join("other"));
        build(&one, seed);
        common::copy_dir(&one, &other);
        let with = Counted::open(&one, options().max_open_files(max_open_files));
        let ignoring = options().max_open_files(max_open_files).ignore_filters(true);
        let without = Counted::open(&other, ignoring);
        let (mut sum, mut sum_without) = (Counts::default(), Counts::default());
        let (mut present, mut absent) = (0, 0);
        for key in lookups() {
            let (found, counts, files) = with.get(&key);
            let (found_without, counts_without, files_without) = without.get(&key);
            assert_eq!(found, found_without);
            // The file layer and the ledger agree on every read and every byte.
            for (counts, files) in [(counts, files), (counts_without, files_without)] {
                let reads = files.of(FileKind::Table, Operation::Read);
                assert_eq!((reads.calls, reads.bytes), (counts.disk_reads, counts.disk_read_bytes));
                let opens = files.of(FileKind::Table, Operation::Open).calls;
                assert!(opens <= counts.disk_reads);
                if max_open_files == 0 {
                    assert_eq!(opens, counts.disk_reads);
                }
                assert_eq!(sum_io(&files), reads.calls + opens);
                assert_eq!(counts.cache_hits, 0);
            }
            let avoided = counts_without.disk_reads - counts.disk_reads;
            assert_eq!(avoided, counts.true_negatives);
            assert_eq!(avoided, counts.reads_avoided());
            assert_eq!(counts_without.probes(), counts.probes());
            assert_eq!(counts_without.range_pruned, counts.range_pruned);
            assert_eq!(counts_without.unfiltered(), counts_without.probes());
            // One read for each mistake of a filter, and one for where the key is.
            assert_eq!(counts.disk_reads, counts.false_positives + counts.true_positives);
            assert!(counts.true_positives <= 1);
            if found {
                assert!(counts.disk_reads <= 1 + counts.false_positives);
                present += 1;
            } else {
                absent += 1;
            }
            if counts.false_positives + counts.true_positives == 0 {
                assert_eq!(sum_io(&files), 0, "a key that every filter denies costs nothing");
            }
            sum += counts;
            sum_without += counts_without;
        }
        assert_eq!(with.db.stats().total(), sum);
        assert_eq!(without.db.stats().total(), sum_without);
        println!(
            "seed {seed}, {max_open_files} open files: {present} present, {absent} absent; {} reads, \
             {} without filters, {} true negatives, {} false positives",
            sum.disk_reads, sum_without.disk_reads, sum.true_negatives, sum.false_positives
        );
        assert!(present > 1000 && absent > 3000);
        assert!(sum.true_negatives > 5_000 && sum.false_positives > 200);
    }
}

#[test]
fn a_key_that_the_filters_deny_opens_no_file() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir, 4);
    let store = Counted::open(&dir, options().max_open_files(0));
    let before = store.vfs.counts();
    let (mut denied, mut passed) = (0, 0);
    let mut reads = 0;
    for number in 0..5000 {
        // In every table's range, in none of the tables.
        let (found, counts, files) = store.get(&[&key(number)[..], b"-"].concat());
        assert!(!found);
        reads += counts.disk_reads;
        assert_eq!(files.of(FileKind::Table, Operation::Read).calls, counts.false_positives);
        if counts.false_positives == 0 {
            assert_eq!(sum_io(&files), 0);
            denied += 1;
        } else {
            passed += 1;
        }
    }
    let files = store.vfs.counts() - before;
    assert_eq!(files.of(FileKind::Table, Operation::Open).calls, reads);
    println!(
        "{denied} absent keys without any I/O, {passed} with {reads} reads for as many mistakes"
    );
    assert!(denied > 3000 && passed > 100);
}

#[test]
fn one_false_positive_costs_exactly_one_read() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    {
        let db = options().filter(FilterPolicy::default().with_geometry(64, 1)).open(&dir).unwrap();
        for number in 0..200 {
            db.put(key(number), "value").unwrap();
        }
        db.close().unwrap();
    }
    // 200 keys in 64 bits: nearly every absent key passes.
    let full = options().filter(FilterPolicy::default().with_geometry(64, 1));
    let store = Counted::open(&dir, full);
    let tables = store.db.tables();
    assert_eq!(tables.len(), 1);
    let mut passed = 0;
    for number in 0..1000 {
        let absent = [&key(number)[..], b"-"].concat();
        let (_, counts, files) = store.get(&absent);
        assert_eq!(counts.disk_reads, counts.false_positives);
        assert_eq!(files.of(FileKind::Table, Operation::Read).calls, counts.false_positives);
        assert!(counts.probes() <= 1);
        passed += counts.false_positives;
    }
    println!("{passed} false positives, one read each");
    assert!(passed > 800);
}

#[test]
fn with_a_cache_hits_and_reads_together_differ_by_the_reads_avoided() {
    for cache in [4 << 10, 1 << 20] {
        let parent = common::tempdir();
        let (one, other) = (parent.path().join("one"), parent.path().join("other"));
        build(&one, 5);
        common::copy_dir(&one, &other);
        let with = Counted::open(&one, options().cache_bytes(cache));
        let without = Counted::open(&other, options().cache_bytes(cache).ignore_filters(true));
        let mut sum = Counts::default();
        for key in lookups().chain(lookups()) {
            let (found, counts, files) = with.get(&key);
            let (found_without, counts_without, files_without) = without.get(&key);
            assert_eq!(found, found_without);
            let fetched = |counts: &Counts| counts.cache_hits + counts.disk_reads;
            assert_eq!(fetched(&counts_without) - fetched(&counts), counts.reads_avoided());
            let reads = |files: &FileCounts| files.of(FileKind::Table, Operation::Read).calls;
            assert_eq!(reads(&files), counts.disk_reads);
            assert_eq!(reads(&files_without), counts_without.disk_reads);
            sum += counts;
        }
        assert_eq!(with.db.stats().total(), sum);
        println!("cache of {cache} bytes: {} hits, {} reads", sum.cache_hits, sum.disk_reads);
        // The smaller cache has 271 hits; with ribbon filters 273, with classic ones 315.
        assert!(sum.cache_hits > 100 && sum.disk_reads > 100);
    }
}

#[test]
fn opening_flushing_compacting_and_scanning_are_counted_too() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir, 6);
    let store = Counted::open(&dir, options());
    let tables = store.db.tables().len() as u64;
    // Two reads a table: its tail, and its filter.
    let opening = store.vfs.counts().of(FileKind::Table, Operation::Read);
    let stats = store.db.stats();
    assert_eq!((opening.calls, opening.bytes), (stats.open_reads.calls, stats.open_reads.bytes));
    assert_eq!(opening.calls, 2 * tables);

    let items = store.db.iter().map(Result::unwrap).count();
    let back = store.db.iter().rev().map(Result::unwrap).count();
    assert_eq!(items, back);
    store.db.put("new", "value").unwrap();
    store.db.flush().unwrap();
    store.db.compact().unwrap();
    let (stats, files) = (store.db.stats(), store.vfs.counts());
    let all = [stats.open_reads, stats.scan_reads, stats.compaction_reads];
    let reads = files.of(FileKind::Table, Operation::Read);
    assert_eq!(reads.calls, all.iter().map(|io| io.calls).sum::<u64>());
    assert_eq!(reads.bytes, all.iter().map(|io| io.bytes).sum::<u64>());
    assert_eq!(stats.rebuild_reads.calls, 0);
    assert!(all.iter().all(|io| io.calls > 0), "{all:?}");
    let appends = files.of(FileKind::Table, Operation::Append);
    assert_eq!(
        (appends.calls, appends.bytes),
        (stats.table_writes.calls, stats.table_writes.bytes)
    );
    assert_eq!(stats.total(), Counts::default());
}

#[test]
fn rebuilding_filters_is_counted_on_lines_of_its_own() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir, 7);
    let store = Counted::open(&dir, options());
    let tables = store.db.tables();
    let (stats, files) = (store.db.stats(), store.vfs.counts());
    store.db.rebuild_filters(&FilterPolicy::classic().with_rate(1e-6)).unwrap();
    let (stats, files) = (store.db.stats() - stats, store.vfs.counts() - files);
    let reads = files.of(FileKind::Table, Operation::Read);
    assert_eq!((reads.calls, reads.bytes), (stats.rebuild_reads.calls, stats.rebuild_reads.bytes));
    assert!(reads.calls >= tables.len() as u64);
    let back = files.of(FileKind::Filter, Operation::Read);
    assert_eq!((back.calls, back.bytes), (stats.open_reads.calls, stats.open_reads.bytes));
    let written = files.of(FileKind::Filter, Operation::Append);
    assert_eq!(
        (written.calls, written.bytes),
        (stats.filter_writes.calls, stats.filter_writes.bytes)
    );
    assert_eq!((written.calls, back.bytes), (tables.len() as u64, written.bytes));
    assert_eq!(stats.activity.filters_rebuilt, tables.len() as u64);
    assert_eq!((stats.compaction_reads.calls, stats.table_writes.calls), (0, 0));
    assert_eq!(files.of(FileKind::Table, Operation::Append).calls, 0);
    store.db.close().unwrap();

    // At opening, one read for each table's tail and one for the filter beside it.
    let store = Counted::open(&dir, options());
    let (stats, files) = (store.db.stats(), store.vfs.counts());
    let of = |kind| files.of(kind, Operation::Read);
    let (tails, filters) = (of(FileKind::Table), of(FileKind::Filter));
    assert_eq!((tails.calls, filters.calls), (tables.len() as u64, tables.len() as u64));
    assert_eq!(stats.open_reads.calls, tails.calls + filters.calls);
    assert_eq!(stats.open_reads.bytes, tails.bytes + filters.bytes);
    // And nothing but data blocks afterwards.
    for key in lookups() {
        let (_, counts, files) = store.get(&key);
        assert_eq!(files.of(FileKind::Table, Operation::Read).calls, counts.disk_reads);
        assert_eq!(files.of(FileKind::Filter, Operation::Read).calls, 0);
        assert_eq!(counts.disk_reads, counts.true_positives + counts.false_positives);
    }
}

/// A lookup that fails has made its read, which is counted.
#[test]
fn a_damaged_block_is_a_counted_read_and_a_failed_lookup() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir, 6);
    for path in common::files_with(&dir, "sst") {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20] ^= 1; // in the first data block
        std::fs::write(&path, bytes).unwrap();
    }
    let store = Counted::open(&dir, options());
    let (stats, files) = (store.db.stats(), store.vfs.counts());
    let mut errors = 0;
    for key in lookups() {
        errors += u64::from(store.db.get(&key).is_err());
    }
    let (stats, files) = (store.db.stats() - stats, store.vfs.counts() - files);
    let (activity, counts) = (stats.activity, stats.total());
    println!("{errors} of {} lookups failed", activity.lookups);
    assert!(errors > 100);
    assert_eq!((activity.failed, counts.failed), (errors, errors));
    assert_eq!(activity.lookups, lookups().count() as u64);
    assert_eq!(activity.hits + activity.misses + activity.failed, activity.lookups);
    assert_eq!(files.of(FileKind::Table, Operation::Read).calls, counts.disk_reads);
    assert_eq!(files.of(FileKind::Table, Operation::Read).bytes, counts.disk_read_bytes);
}

/// The announcement comes before the read, so that the disk reads ahead while other tables are opened.
#[test]
fn an_opening_announces_what_it_reads_of_tables() {
    let dir = common::tempdir();
    let db = options().table_bytes(4 << 10).open(dir.path()).unwrap();
    (0..6000).for_each(|number| db.put(key(number), [5; 20]).unwrap());
    db.compact().unwrap();
    let tables = db.tables().len();
    assert!(tables > 30, "{tables}");
    db.close().unwrap();
    for threads in [0, 1] {
        let vfs = common::HookVfs::without_syncs();
        let db = options().background_threads(threads).vfs(vfs.clone()).open(dir.path()).unwrap();
        let hints = vfs.hints();
        let announced = hints.iter().filter_map(|hint| match hint {
            AccessHint::WillNeed { length, .. } => Some(*length),
            _ => None,
        });
        let announced: Vec<u64> = announced.collect();
        assert_eq!(announced.len(), tables);
        assert_eq!(announced.iter().sum::<u64>(), db.stats().open_reads.bytes);
    }
}
