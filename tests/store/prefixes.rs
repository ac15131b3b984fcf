//! Scans within a prefix skip the tables whose filters deny it: fewer reads, counted, and the same answers.

use std::path::Path;
use std::sync::Arc;

use criba::vfs::{CountingVfs, FileKind, Operation};
use criba::{Db, FilterInfo, FilterPolicy, Options, PrefixCounts, PrefixExtractor};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::common;

const ROWS: PrefixExtractor = PrefixExtractor::until(b'/');

fn row(number: u32) -> String {
    format!("row{number:06}/")
}

fn options() -> Options {
    common::options().background_threads(0).cache_bytes(0).seed(5).block_bytes(1024)
}

/// A store with a counting file layer.
struct Counted {
    db: Db,
    vfs: CountingVfs,
}

impl Counted {
    fn open(dir: &Path, options: Options) -> Self {
        let vfs = CountingVfs::new(common::HookVfs::without_syncs());
        let db = options.vfs(Arc::new(vfs.clone())).open(dir).unwrap();
        Self { db, vfs }
    }

    fn reads(&self) -> u64 {
        self.vfs.counts().of(FileKind::Table, Operation::Read).calls
    }

    /// The reads of some calls, and their counts of tables.
    fn measure<T>(&self, calls: impl FnOnce(&Db) -> T) -> (T, u64, PrefixCounts) {
        let (reads, stats) = (self.reads(), self.db.stats());
        let answer = calls(&self.db);
        let (reads, stats) = (self.reads() - reads, self.db.stats() - stats);
        assert_eq!(reads, stats.scan_reads.calls + stats.total().disk_reads);
        let met = stats.prefix;
        assert_eq!(met.probes, met.skipped + met.passed);
        assert!(met.wasted <= met.passed);
        (answer, reads, met)
    }
}

fn predicted(db: &Db) -> Vec<f64> {
    let rate = |filter| match filter {
        FilterInfo::Active { predicted_rate, .. } => predicted_rate,
        other => panic!("{other:?}"),
    };
    db.tables().into_iter().map(|table| rate(table.filter)).collect()
}

/// The even rows, of one to nine columns each, on several levels whose tables have wide ranges.
fn even_rows(dir: &Path, options: Options) {
    let db = options
        .memtable_bytes(256 << 10)
        .table_bytes(64 << 10)
        .level_base_bytes(32 << 10)
        .open(dir)
        .unwrap();
    let mut rows: Vec<u32> = (0..20_000).step_by(2).collect();
    rows.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
    for number in rows {
        for column in 0..=number % 17 / 2 {
            db.put(format!("{}{column}", row(number)), [b'v'; 20]).unwrap();
        }
    }
    db.flush().unwrap();
    db.close().unwrap();
}

#[test]
fn empty_prefix_scans_read_what_the_rates_predict() {
    for policy in [FilterPolicy::classic(), FilterPolicy::ribbon()] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        even_rows(&dir, options().filter(policy).prefix(ROWS));
        let of_openings = options().filter(policy).auto_compaction(false);
        let with = Counted::open(&dir, of_openings.clone().prefix(ROWS));
        let levels: Vec<_> = with.db.tables().iter().map(|table| table.level).collect();
        let scan = |db: &Db| {
            for number in 0..10_000 {
                assert!(db.prefix(row(2 * number + 1)).next().is_none());
            }
        };
        let ((), reads, met) = with.measure(scan);
        // Each scan probes each table whose keys lie on both sides of the row.
        let (mut probes, mut expected) = (0, 0.0);
        for (table, rate) in with.db.tables().iter().zip(predicted(&with.db)) {
            let absent_rows = (0..10_000).map(|number| row(2 * number + 1)).filter(|row| {
                *table.smallest < *row.as_bytes() && *row.as_bytes() < *table.largest
            });
            let absent_rows = absent_rows.count();
            probes += absent_rows as u64;
            expected += absent_rows as f64 * rate;
        }
        drop(with);
        let without = Counted::open(&dir, of_openings.clone().prefix(None));
        let ((), reads_without, met_without) = without.measure(scan);
        drop(without);
        let ignoring = Counted::open(&dir, of_openings.prefix(ROWS).ignore_filters(true));
        let ((), reads_ignoring, met_ignoring) = ignoring.measure(scan);
        println!(
            "{policy}: {} tables on levels {:?} to {:?}; 10,000 empty scans: {reads} reads, \
             {expected:.1} predicted, {reads_without} without prefixes; {met:?}",
            levels.len(),
            levels.iter().min(),
            levels.iter().max()
        );
        assert!(reads as f64 <= 2.0 * expected);
        assert!(reads_without > 9000);
        assert_eq!((met.probes, met.passed), (probes, met.wasted));
        // 99.9 % of a normal distribution, on both sides.
        let spread = 3.3 * expected.sqrt() + 1.0;
        assert!((met.wasted as f64 - expected).abs() < spread, "{met:?}, {expected} predicted");
        assert_eq!(met.unfiltered, 0);
        assert_eq!(met_without, PrefixCounts::default());
        assert_eq!((reads_ignoring, met_ignoring.unfiltered), (reads_without, met.probes));
    }
}

/// With keys of `row SEP column`, HBase's ROW and ROWCOL filters are one filter here.
#[test]
fn row_and_rowcol_are_in_one_filter() {
    let parent = common::tempdir();
    let policy = FilterPolicy::rate(0.0001);
    let store = Counted::open(
        &parent.path().join("store"),
        options().filter(policy).prefix(ROWS).auto_compaction(false),
    );
    // Four tables over the same range; row n is in table n % 4 alone.
    for part in 0..4 {
        for number in (part..2000).step_by(4).filter(|number| number % 10 != 9) {
            for column in ["address", "name"] {
                store.db.put(row(number) + column, "value").unwrap();
            }
        }
        store.db.flush().unwrap();
    }
    let tables = store.db.tables();
    assert_eq!(tables.len(), 4);
    for table in &tables {
        let FilterInfo::Active { prefixes, .. } = table.filter else { panic!("{table:?}") };
        assert_eq!(2 * prefixes, table.keys);
    }
    let present = |number: &u32| number % 10 != 9;
    // ROW: a scan of a row reads from the one table that has it, of an absent row from none.
    let (items, reads, met) = store.measure(|db| {
        let rows = (10..1990).filter(present);
        rows.map(|number| db.prefix(row(number)).map(Result::unwrap).count()).sum::<usize>()
    });
    let rows = (10..1990).filter(present).count() as u64;
    println!("{rows} rows: {reads} reads, {met:?}");
    assert_eq!(items as u64, 2 * rows);
    assert!(met.passed >= rows && met.passed < rows + 10 && met.wasted == met.passed - rows);
    assert!(met.skipped >= 3 * rows - 10);
    // One block has the row, and now and then the next one has its end.
    assert!(reads >= rows && reads < rows + rows / 5, "{reads}");
    let ((), reads, met) = store.measure(|db| {
        for number in (10..1990).filter(|number| !present(number)) {
            assert!(db.prefix(row(number)).next_back().is_none());
        }
    });
    println!("absent rows: {reads} reads, {met:?}");
    assert!(reads <= 2 && met.skipped >= 4 * 198 - 2);
    // ROWCOL: a column that a present row lacks is denied, too, by the same filters.
    let (found, reads, met) = store.measure(|db| {
        let of = |column: &str| {
            (10..1990).filter(|&number| db.contains(row(number) + column).unwrap()).count() as u64
        };
        [of("address"), of("name"), of("phone")]
    });
    println!("columns: {found:?} found, {reads} reads, {met:?}");
    assert_eq!(found, [rows, rows, 0]);
    assert!(reads >= 2 * rows && reads <= 2 * rows + 10);
    assert_eq!(met, PrefixCounts::default());
}

#[test]
fn keys_beside_prefixes_have_the_requested_rate() {
    for policy in [
        FilterPolicy::classic(),
        FilterPolicy::default().with_rate(0.01),
        FilterPolicy::ribbon().with_rate(0.01),
    ] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let db = options().filter(policy).prefix(PrefixExtractor::fixed(9)).open(dir).unwrap();
        for number in 0..50_000_u32 {
            db.put(format!("{:08}{:04}", number / 2 * 7, number % 2), "").unwrap();
        }
        db.compact().unwrap();
        let rates = predicted(&db);
        let before = db.stats();
        for number in 0..170_000_u32 {
            assert!(!db.contains(format!("{number:08}x")).unwrap());
        }
        let met = (db.stats() - before).total();
        let (rate, predicted) =
            (met.false_positive_rate().unwrap(), rates.iter().sum::<f64>() / rates.len() as f64);
        println!("{policy}: {rate} measured, {predicted} predicted, {} probes", met.probes());
        assert!(predicted < 0.0115, "{predicted}");
        let spread = 4.0 * (predicted / met.probes() as f64).sqrt();
        assert!((rate - predicted).abs() < spread, "{rate}, {predicted} predicted");
    }
}

#[test]
fn a_scan_reads_nothing_before_its_first_item_and_nothing_beyond_its_bounds() {
    let parent = common::tempdir();
    let store = Counted::open(&parent.path().join("store"), options().auto_compaction(false));
    for part in 0..5 {
        for number in 0..100 {
            store.db.put(row(100 * part + number), "value").unwrap();
        }
        store.db.flush().unwrap(); // five tables that do not overlap
    }
    let (_, reads, _) = store.measure(|db| db.range(row(0)..row(400)));
    assert_eq!(reads, 0);
    let (found, reads, _) = store.measure(|db| db.prefix("row0002").count());
    println!("100 keys of one table: {reads} reads");
    assert_eq!(found, 100);
    let blocks = store.db.tables()[2].file_bytes / 1024;
    assert!(reads <= blocks + 1, "{reads} reads, {blocks} blocks");
    let (found, reads, _) = store.measure(|db| db.prefix("row0002").rev().count());
    assert_eq!(found, 100);
    assert!(reads <= blocks + 1);
    let (none, reads, _) = store.measure(|db| db.range(row(99) + "x"..row(100)).count());
    assert_eq!((none, reads), (0, 0), "between two tables there is nothing to read");
}

#[test]
fn a_forward_scan_reads_only_the_blocks_of_its_items() {
    let parent = common::tempdir();
    let store = Counted::open(&parent.path().join("store"), options().auto_compaction(false));
    for number in 0..10 {
        store.db.put(row(number), vec![b'v'; 5000]).unwrap(); // a block each
    }
    store.db.flush().unwrap();
    for items in 1..=10 {
        let (found, reads, _) = store.measure(|db| db.iter().take(items).count());
        assert_eq!((found, reads), (items, items as u64));
    }
}

#[test]
fn nonsense_is_refused() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    for length in [0, criba::MAX_KEY_BYTES + 1] {
        let refused = options().prefix(PrefixExtractor::fixed(length)).open(&dir);
        assert!(matches!(refused, Err(criba::Error::InvalidOption { option: "prefix", .. })));
        assert!(!dir.exists());
    }
}
