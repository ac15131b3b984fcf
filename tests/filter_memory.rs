//! A memory budget for filters: dropped ones free their memory, the others deny no key and have their
//! stated rate, and dropped ones return when there is room.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use common::{HookVfs, contents, files_with};
use criba::vfs::{FileKind, Operation};
use criba::{
    Allocation, Batch, Counts, Db, FilterInfo, FilterKind, FilterPolicy, Membership, Options, Step,
    TableInfo, TableStep, Verdict,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Some tests measure the memory of the process: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options() -> Options {
    Options::new()
        .background_threads(0)
        .auto_compaction(false)
        .cache_bytes(0)
        .seed(5)
        .vfs(HookVfs::without_syncs())
}

/// Ribbons of `r` columns in every table, and some segments with one more: up to 1.02 rows per key.
fn ribbon(columns: f64) -> FilterPolicy {
    let bits = 1.006 * columns + 0.3;
    FilterPolicy::ribbon().with_bits_per_key(bits).with_allocation(Allocation::Uniform)
}

/// Present keys are even, absent ones odd; loaded in order, so that tables do not overlap.
fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn fill(db: &Db, numbers: std::ops::Range<u64>) {
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        let mut batch = Batch::new();
        for number in numbers.by_ref().take(1000) {
            batch.put(key(2 * number), "");
        }
        db.write(batch).unwrap();
    }
    db.flush().unwrap();
}

/// The absent keys in this range that the resident filters pass, without a disk read.
fn passing(db: &Db, keys: u64) -> u64 {
    let maybe = |&number: &u64| db.may_contain(key(2 * number + 1)).unwrap() == Membership::Maybe;
    (0..keys).filter(maybe).count() as u64
}

fn none_is_missed(db: &Db, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        assert_eq!(db.may_contain(key(2 * number)).unwrap(), Membership::Maybe, "{number}");
    }
}

/// (resident, stored) columns of a ribbon; the resident ones are 0 if it is not resident.
fn columns(table: &TableInfo) -> (u32, u32) {
    match &table.filter {
        FilterInfo::Active { geometry, stored, .. } => (geometry.k, stored.geometry.k),
        FilterInfo::NotResident { stored, .. } => (0, stored.geometry.k),
        other => panic!("{other:?}"),
    }
}

fn rate(table: &TableInfo) -> f64 {
    match table.filter {
        FilterInfo::Active { predicted_rate, .. } => predicted_rate,
        _ => 1.0,
    }
}

fn within_budget(db: &Db) -> u64 {
    let memory = db.memory().filters;
    assert!(memory.budget.is_none_or(|budget| memory.resident <= budget), "{memory:?}");
    assert!(memory.resident <= memory.stored, "{memory:?}");
    // Header and array, not more than the pages they are in.
    let tables: usize = db.tables().iter().map(|table| table.filter.bytes()).sum();
    assert!(tables as u64 <= memory.resident, "{tables} {memory:?}");
    memory.resident
}

/// The kernel's figures for the memory of this process: all of it, and its anonymous read-only pages, which
/// are the sealed ones. `None` where the kernel has none.
#[derive(Debug, Clone, Copy)]
struct Resident {
    all: u64,
    sealed: u64,
}

fn resident() -> Option<Resident> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let (mut all, mut sealed, mut is_sealed) = (0, 0, false);
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        if first == "Rss:" {
            let bytes = words.next()?.parse::<u64>().ok()? * 1024;
            all += bytes;
            sealed += if is_sealed { bytes } else { 0 };
        } else if !first.ends_with(':') {
            let fields: Vec<_> = words.collect();
            is_sealed = fields.len() == 4 && fields[0] == "r--p";
        }
    }
    Some(Resident { all, sealed })
}

/// The most memory of filters during a call.
fn peak_while(db: &Db, done: impl FnOnce()) -> u64 {
    let over = AtomicBool::new(false);
    scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while !over.load(Ordering::Acquire) {
                peak = peak.max(db.memory().filters.resident);
            }
            peak
        });
        done();
        over.store(true, Ordering::Release);
        watcher.join().unwrap()
    })
}

#[test]
fn half_the_budget_halves_the_memory_and_growing_restores_the_rate() {
    let _alone = alone();
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let keys = 2_000_000;
    let db = options().filter(ribbon(24.0)).memtable_bytes(12 << 20).open(&dir).unwrap();
    fill(&db, 0..keys);
    let files = contents(&dir);
    let stored = within_budget(&db);
    assert_eq!(stored, db.memory().filters.stored);
    assert!(db.tables().len() > 5);
    println!("{keys} keys in {} tables, {stored} bytes of filters", db.tables().len());
    assert!(stored > 6_000_000);

    let before = resident();
    // Down by half, by half again, and up by a third of that.
    for (share, least) in [(2, 10), (4, 4), (3, 6)] {
        let (was, tables) = (within_budget(&db), db.tables());
        let peak = peak_while(&db, || db.set_filter_memory(Some(stored / share)).unwrap());
        let now = within_budget(&db);
        // Beside what there was, or is in the end, one filter of the new size; one table may have a column
        // more than its share.
        let one = tables.iter().map(|table| table.filter.stored_bytes()).max().unwrap() as u64;
        println!("1/{share}: from {was} to {now} bytes, {peak} seen on the way");
        assert!(peak <= was.max(now) + one / share + one / 24 + 8192, "{peak} {was} {now} {one}");
        let dropped = stored - now;
        assert!(dropped >= stored - stored / share);
        assert!(now > stored / share * 9 / 10, "most of the budget is used: {now}");
        match (before, resident()) {
            (Some(before), Some(after)) => {
                let (all, sealed) = (before.all - after.all, before.sealed - after.sealed);
                println!(
                    "1/{share}: {dropped} bytes dropped; the kernel has {all} less, sealed {sealed}"
                );
                assert!(all as f64 > 0.8 * dropped as f64, "{all} of {dropped}");
                assert!(sealed as f64 > 0.99 * dropped as f64, "{sealed} of {dropped}");
            }
            _ => common::skip("no /proc/self/smaps"),
        }
        // The measured rate against the resident columns of each table, from both sides.
        let tables = db.tables();
        let of: Vec<_> = tables.iter().map(columns).collect();
        // The last table has what was left over of the keys. All of L0 is probed as often, so one with few
        // keys is worth its columns the longest.
        let large: Vec<_> = tables.iter().filter(|table| table.keys > 100_000).collect();
        assert!(large.len() + 1 >= tables.len());
        assert!(of.iter().all(|&(has, of)| has >= least && of == 24), "{of:?}");
        assert!(large.iter().all(|table| columns(table).0 < 24), "{of:?}");
        for table in large {
            let ideal = (-f64::from(columns(table).0)).exp2();
            // A filter is built again if more than an eighth of what passes 24 columns would pass any
            // number of them. Of half as many that is an eighth of 2^-12 at most.
            assert!((rate(table) / ideal - 1.0).abs() < 1.0 / 32768.0, "{}", rate(table) / ideal);
        }
        let expected: f64 = tables.iter().map(|table| table.keys as f64 * rate(table)).sum();
        let found = passing(&db, keys) as f64;
        // Four standard deviations, and a fiftieth for the span of the keys.
        let bound = 4.0 * expected.sqrt() + expected / 50.0;
        println!(
            "1/{share}: columns {of:?}, {found} of {keys} absent keys pass, {expected:.0} due"
        );
        assert!((found - expected).abs() < bound, "{found} {expected}");
        none_is_missed(&db, 0..keys);
    }

    db.set_filter_memory(None).unwrap();
    assert_eq!(within_budget(&db), stored);
    assert!(db.tables().iter().all(|table| columns(table) == (24, 24)));
    let found = passing(&db, keys);
    assert!(found <= 5, "{found} of {keys} pass 24 columns"); // 0.12 are due
    none_is_missed(&db, 0..keys);
    let counts = db.stats().total();
    assert_eq!((counts.probes(), counts.disk_reads), (0, 0), "none of this was a lookup");
    assert_eq!(contents(&dir), files, "nothing on disk changes");
}

/// The whole ledger: a table whose filter is not resident is unfiltered, and none is degraded.
#[test]
fn the_ledger_stays_exact_within_any_budget() {
    let _alone = alone();
    let parent = common::tempdir();
    let (one, other) = (parent.path().join("one"), parent.path().join("other"));
    let keys = 120_000;
    let options = || options().filter(ribbon(8.0)).memtable_bytes(2 << 20);
    let db = options().open(&one).unwrap();
    fill(&db, 0..keys);
    let table_files = || -> Vec<Vec<u8>> {
        files_with(&one, "sst").into_iter().map(|path| std::fs::read(path).unwrap()).collect()
    };
    let files = table_files();
    let stored = db.memory().filters.stored;
    db.close().unwrap();
    common::copy_dir(&one, &other);
    let db = options().open(&one).unwrap();
    let ignoring = options().ignore_filters(true).open(&other).unwrap();
    let seed = 31;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut seen = Counts::default();
    for round in 0..10 {
        let budget = if round == 9 { 0 } else { rng.random_range(0..stored * 11 / 10) };
        db.set_filter_memory(Some(budget)).unwrap();
        within_budget(&db);
        let (before, absent) = (db.stats().total(), 4000);
        for _ in 0..absent {
            let number = 2 * rng.random_range(0..keys - 1) + 1;
            let explained = db.explain(key(number)).unwrap();
            let counts = explained.counts();
            let without = ignoring.explain(key(number)).unwrap().counts();
            assert_eq!(explained.value, None);
            assert_eq!(without.disk_reads - counts.disk_reads, counts.true_negatives);
            assert_eq!(without.probes(), counts.probes());
            assert_eq!(
                counts.disk_reads,
                counts.false_positives + counts.unfiltered_not_found + counts.true_positives
            );
        }
        for _ in 0..1000 {
            let number = rng.random_range(0..keys);
            let explained = db.explain(key(2 * number)).unwrap();
            assert!(explained.value.is_some(), "{number} at {budget} bytes");
            assert_eq!(explained.counts().disk_reads, 1);
        }
        let counts = db.stats().total() - before;
        assert_eq!(counts.degraded, 0);
        println!("{budget} of {stored} bytes: {:?}", counts.false_positive_rate());
        seen += counts;
    }
    println!("seed {seed}: {seen:?}");
    assert!(seen.true_negatives > 10_000 && seen.false_positives > 100);
    assert!(seen.unfiltered_not_found >= 4000 && seen.unfiltered_found >= 1000);
    // With a budget of nothing, nothing is resident, and `explain` says why the block was read.
    assert_eq!(db.memory().filters.resident, 0);
    let explanation = db.explain(key(11)).unwrap();
    assert!(explanation.to_string().contains("its filter is not in memory"), "{explanation}");
    let not_resident = |step: &Step| {
        matches!(
            step,
            Step::Table { step: TableStep::Probed { verdict: Verdict::NotResident, .. }, .. }
        )
    };
    assert!(explanation.steps.iter().any(not_resident), "{explanation}");
    assert_eq!(table_files(), files);
}

#[test]
fn filters_without_columns_are_dropped_whole_and_come_back() {
    let _alone = alone();
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let policy = FilterPolicy::default().with_kind(FilterKind::Bloom);
    let db = options().filter(policy).memtable_bytes(512 << 10).open(&dir).unwrap();
    let keys = 100_000;
    fill(&db, 0..keys);
    let files = contents(&dir);
    let stored = db.memory().filters.stored;
    let whole = passing(&db, keys);
    let tables = db.tables();
    assert!(tables.len() >= 10);
    let mut dropped_at = Vec::new();
    for part in [9, 5, 1, 0, 3, 8] {
        db.set_filter_memory(Some(stored * part / 10)).unwrap();
        within_budget(&db);
        none_is_missed(&db, 0..keys);
        let now = db.tables();
        let dropped: Vec<_> = now
            .iter()
            .filter(|table| matches!(table.filter, FilterInfo::NotResident { .. }))
            .collect();
        for (now, before) in now.iter().zip(&tables) {
            assert_eq!(now.filter.stored_bytes(), before.filter.bytes());
            let resident = matches!(now.filter, FilterInfo::Active { .. });
            assert_eq!(now.filter.bytes() > 0, resident);
        }
        let unanswered: u64 = dropped.iter().map(|table| table.keys).sum();
        let passing = passing(&db, keys);
        assert!(passing >= unanswered.saturating_sub(2 * dropped.len() as u64));
        assert!(passing <= unanswered + whole);
        dropped_at.push((part, dropped.len()));
    }
    println!("{} filters dropped, by tenths: {dropped_at:?}", tables.len());
    assert!(dropped_at.windows(2).all(|pair| (pair[0].0 > pair[1].0) == (pair[0].1 < pair[1].1)));
    db.set_filter_memory(Some(stored)).unwrap();
    assert_eq!(db.tables(), tables);
    assert_eq!(passing(&db, keys), whole);
    assert_eq!(contents(&dir), files, "nothing on disk changes");
}

/// Readers of present keys, while the budget changes and tables are written and merged.
#[test]
fn no_lookup_ever_misses_a_key_while_filters_come_and_go() {
    let _alone = alone();
    for policy in [ribbon(10.0), FilterPolicy::ribbon()] {
        let parent = common::tempdir();
        let db = Options::new()
            .background_threads(2)
            .filter(policy)
            .memtable_bytes(256 << 10)
            .table_bytes(64 << 10)
            .level_base_bytes(256 << 10)
            .vfs(HookVfs::without_syncs())
            .open(parent.path().join("store"))
            .unwrap();
        // In no order, so that tables overlap and are merged.
        let scattered = |number: u64| key(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let write = |numbers: std::ops::Range<u64>| {
            let mut batch = Batch::new();
            for number in numbers {
                batch.put(scattered(number), "");
            }
            db.write(batch).unwrap();
        };
        write(0..30_000);
        db.flush().unwrap();
        let (written, over) = (AtomicU64::new(30_000), AtomicBool::new(false));
        let (lookups, budgets) = (AtomicU64::new(0), AtomicU64::new(0));
        let (db, written, over, lookups, budgets) = (&db, &written, &over, &lookups, &budgets);
        scope(|scope| {
            for seed in 0..3 {
                scope.spawn(move || {
                    let mut rng = ChaCha8Rng::seed_from_u64(seed);
                    while !over.load(Ordering::Acquire) {
                        let number = rng.random_range(0..written.load(Ordering::Acquire));
                        let found = db.contains(scattered(number)).unwrap();
                        assert!(found, "{number} was missed");
                        let may = db.may_contain(scattered(number)).unwrap();
                        assert_eq!(may, Membership::Maybe, "{number} was denied");
                        lookups.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for seed in [77, 78] {
                scope.spawn(move || {
                    let mut rng = ChaCha8Rng::seed_from_u64(seed);
                    while !over.load(Ordering::Acquire) {
                        let stored = db.memory().filters.stored;
                        let budget = rng.random_range(0..stored + stored / 4);
                        db.set_filter_memory((budget < stored).then_some(budget)).unwrap();
                        budgets.fetch_add(1, Ordering::Relaxed);
                        sleep(Duration::from_micros(300));
                    }
                });
            }
            for start in (30_000..90_000).step_by(500) {
                write(start..start + 500);
                written.store(start + 500, Ordering::Release);
                sleep(Duration::from_millis(10));
            }
            // Until there were enough of both, also on a busy machine.
            let start = Instant::now();
            let enough =
                || lookups.load(Ordering::Relaxed) > 1000 && budgets.load(Ordering::Relaxed) > 20;
            while !enough() && start.elapsed() < Duration::from_secs(60) {
                sleep(Duration::from_millis(10));
            }
            over.store(true, Ordering::Release);
        });
        println!("{policy}: {lookups:?} lookups, {budgets:?} budgets, {:?}", db.stats().activity);
        assert!(lookups.load(Ordering::Relaxed) > 1000 && budgets.load(Ordering::Relaxed) > 20);
        assert!(db.stats().activity.compactions > 0);
        let stored = db.memory().filters.stored;
        db.set_filter_memory(Some(stored / 2)).unwrap();
        db.wait_until_settled().unwrap();
        within_budget(db);
        db.set_filter_memory(None).unwrap();
        db.wait_until_settled().unwrap();
        assert_eq!(within_budget(db), db.memory().filters.stored);
        for number in 0..written.load(Ordering::Acquire) {
            let may = db.may_contain(scattered(number)).unwrap();
            assert_eq!(may, Membership::Maybe, "{number}");
        }
    }
}

/// Flushes and compactions within a budget: at each operation on a table file, filters take at most the
/// budget and one filter.
#[test]
fn tables_written_later_stay_within_the_budget() {
    let _alone = alone();
    let db: Arc<Mutex<Option<Db>>> = Arc::default();
    let (checked, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let hook = {
        let (db, checked, most) = (Arc::clone(&db), Arc::clone(&checked), Arc::clone(&most));
        move |kind: FileKind, _: Operation| {
            if kind == FileKind::Table
                && let Ok(db) = db.try_lock()
                && let Some(db) = &*db
            {
                let memory = db.memory().filters;
                most.fetch_max(memory.resident, Ordering::Relaxed);
                checked.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    };
    let parent = common::tempdir();
    let budget = 60_000;
    let opened = options()
        .auto_compaction(true)
        .filter(ribbon(12.0))
        .filter_memory(budget)
        .memtable_bytes(1 << 20)
        .table_bytes(100 << 10)
        .level_base_bytes(200 << 10)
        .l0_slowdown_trigger(4) // more compactions
        .vfs(HookVfs::new(hook))
        .open(parent.path().join("store"))
        .unwrap();
    *db.lock().unwrap() = Some(opened.clone());
    let mut largest = 0;
    for round in 0..12 {
        // Scattered, so that tables overlap and are merged.
        for number in 0..10_000 {
            opened.put(key(2 * (12 * number + round)), "").unwrap();
        }
        opened.flush().unwrap();
        within_budget(&opened);
        let stored = opened.tables().into_iter().map(|table| table.filter.stored_bytes());
        largest = largest.max(stored.max().unwrap_or(0) as u64);
    }
    db.lock().unwrap().take();
    let (checked, most) = (checked.load(Ordering::Relaxed), most.load(Ordering::Relaxed));
    let memory = opened.memory().filters;
    println!("{checked} checks, at most {most} bytes; {memory:?}, largest filter {largest}");
    assert!(opened.stats().activity.compactions > 2 && checked > 100);
    assert!(memory.stored > 2 * budget);
    assert!(memory.resident > budget * 3 / 4, "the budget is used");
    assert!(most <= budget + largest + 8192, "{most}");
    none_is_missed(&opened, 0..120_000);
    // What was let go comes back.
    opened.set_filter_memory(None).unwrap();
    assert_eq!(within_budget(&opened), memory.stored);
}

/// The same operations with and without a large budget, with merged and moved tables: the same tables, all
/// filters whole, and no read more.
#[test]
fn a_budget_that_is_never_reached_costs_nothing() {
    let _alone = alone();
    let work = |budget: Option<u64>| {
        let parent = common::tempdir();
        let options = options()
            .auto_compaction(true)
            .filter(ribbon(9.5))
            .memtable_bytes(128 << 10)
            .table_bytes(32 << 10)
            .level_base_bytes(50 << 10)
            .l0_slowdown_trigger(4); // more compactions
        let options = match budget {
            Some(budget) => options.filter_memory(budget),
            None => options,
        };
        let db = options.open(parent.path().join("store")).unwrap();
        fill(&db, 0..30_000);
        for number in 0..20_000 {
            db.put(key(2 * ((number * 7919) % 20_000)), "again").unwrap();
        }
        db.flush().unwrap();
        let mut stats = db.stats();
        // Only times differ.
        (stats.flush_work.nanos, stats.compaction_work.nanos) = (0, 0);
        (db.tables(), stats)
    };
    let (without, with) = (work(None), work(Some(100 << 20)));
    assert_eq!(with, without);
    let (tables, stats) = with;
    println!("{:?}", stats.activity);
    assert!(stats.activity.tables_moved > 5 && stats.activity.compactions > 1);
    assert!(tables.iter().all(|table| table.filter.bytes() == table.filter.stored_bytes()));
}

/// A flush or compaction that began within a budget keeps no filter in memory that is dropped meanwhile.
#[test]
fn jobs_under_way_hold_no_filters() {
    let _alone = alone();
    for compaction in [false, true] {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (waiting, hold) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let vfs = {
            let (gate, waiting, hold) =
                (Arc::clone(&gate), Arc::clone(&waiting), Arc::clone(&hold));
            HookVfs::new(move |kind, operation| {
                let (FileKind::Table, Operation::Append) = (kind, operation) else { return Ok(()) };
                if hold.swap(false, Ordering::AcqRel) {
                    waiting.store(true, Ordering::Release);
                    let mut open = gate.0.lock().unwrap();
                    while !*open {
                        open = gate.1.wait(open).unwrap();
                    }
                }
                Ok(())
            })
        };
        let parent = common::tempdir();
        let options = options().filter(ribbon(16.0)).memtable_bytes(2 << 20).vfs(vfs);
        let db = options.open(parent.path().join("store")).unwrap();
        fill(&db, 0..80_000);
        let stored = db.memory().filters.stored;
        db.set_filter_memory(Some(stored)).unwrap();
        db.put(key(160_000), "").unwrap();
        if compaction {
            db.flush().unwrap();
        }
        hold.store(true, Ordering::Release);
        scope(|scope| {
            let job = scope.spawn(|| if compaction { db.compact() } else { db.flush() });
            common::wait_until("a job to write", || waiting.load(Ordering::Acquire));
            let held = [stored / 2, 0].map(|budget| {
                db.set_filter_memory(Some(budget)).unwrap();
                db.memory().filters.resident
            });
            db.set_filter_memory(Some(stored)).unwrap();
            *gate.0.lock().unwrap() = true;
            gate.1.notify_all();
            job.join().unwrap().unwrap();
            println!("compaction {compaction}: {held:?} of {stored} bytes while it runs");
            assert!(held[0] <= stored / 2 && held[0] > stored / 3, "{held:?} of {stored}");
            assert_eq!(held[1], 0, "compaction: {compaction}");
        });
        within_budget(&db);
        none_is_missed(&db, 0..=80_000);
    }
}

/// A filter that a reader holds counts, and no other one takes its place.
#[test]
fn what_a_scan_still_holds_is_counted() {
    let _alone = alone();
    let parent = common::tempdir();
    let options = options().filter(ribbon(16.0)).memtable_bytes(2 << 20);
    let db = options.open(parent.path().join("store")).unwrap();
    fill(&db, 0..80_000);
    let stored = db.memory().filters.stored;
    let scan = db.iter();
    db.set_filter_memory(Some(stored / 2)).unwrap();
    let held = db.memory().filters.resident;
    assert!(held > stored && held <= stored + stored / 2, "{held} of {stored}");
    db.set_filter_memory(Some(stored * 3 / 4)).unwrap();
    assert_eq!(db.memory().filters.resident, held, "no room before the scan ends");
    assert_eq!(scan.count(), 80_000);
    within_budget(&db);
    db.set_filter_memory(Some(stored * 3 / 4)).unwrap();
    let resident = within_budget(&db);
    assert!(resident > stored * 2 / 3, "{resident} of {stored}");
    none_is_missed(&db, 0..80_000);
}

/// From the start of an opening: each operation on a table file finds at most the tables without filters,
/// and the budget, in memory.
#[test]
fn a_store_is_opened_within_its_budget() {
    let _alone = alone();
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let keys = 300_000;
    let db = options().filter(ribbon(16.0)).memtable_bytes(4 << 20).open(&dir).unwrap();
    fill(&db, 0..keys);
    let stored = db.memory().filters.stored;
    db.close().unwrap();
    if resident().is_none() {
        common::skip("no /proc/self/smaps");
        return;
    }
    let sealed_while_opening = |budget: Option<u64>| {
        let most = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&most);
        let vfs = HookVfs::new(move |kind, _| {
            if kind == FileKind::Table {
                seen.fetch_max(resident().unwrap().sealed, Ordering::Relaxed);
            }
            Ok(())
        });
        let before = resident().unwrap().sealed;
        let options = options().vfs(vfs);
        let options = match budget {
            Some(budget) => options.filter_memory(budget),
            None => options,
        };
        let db = options.open(&dir).unwrap();
        within_budget(&db);
        none_is_missed(&db, (0..keys).step_by(7));
        let after = resident().unwrap().sealed;
        let used = db.memory().filters.resident;
        db.close().unwrap();
        (most.load(Ordering::Relaxed).max(after) - before, used)
    };
    let (tails, nothing) = sealed_while_opening(Some(0));
    assert_eq!(nothing, 0);
    for budget in [stored / 8, stored / 3, stored - 1] {
        let (most, used) = sealed_while_opening(Some(budget));
        println!("budget {budget} of {stored}: {} bytes at most, {used} in the end", most - tails);
        assert!(most - tails <= budget, "{most} {tails} {budget}");
        assert!(used > budget * 9 / 10);
    }
    let (most, used) = sealed_while_opening(None);
    assert_eq!((most - tails, used), (stored, stored), "the measure sees filters");
}

/// The opening alone reads the filters that it loads.
#[test]
fn opening_within_a_budget_waits_for_no_reader() {
    let _alone = alone();
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = options().open(&dir).unwrap();
    fill(&db, 0..1000);
    db.close().unwrap();
    let open = || {
        let start = Instant::now();
        let db = options().filter_memory(1 << 20).open(&dir).unwrap();
        let took = start.elapsed();
        assert_eq!(db.memory().filters.resident, db.memory().filters.stored);
        db.close().unwrap();
        took
    };
    waits_for_no_reader(open);
}

/// The thread that sets a budget does not hold the filters that it drops.
#[test]
fn setting_a_budget_waits_for_no_reader() {
    let _alone = alone();
    let parent = common::tempdir();
    let db = options().open(parent.path().join("store")).unwrap();
    fill(&db, 0..1000);
    let set = || {
        db.set_filter_memory(None).unwrap();
        db.wait_until_settled().unwrap();
        assert!(db.memory().filters.resident > 0);
        let start = Instant::now();
        db.set_filter_memory(Some(0)).unwrap();
        let took = start.elapsed();
        assert_eq!(db.memory().filters.resident, 0);
        took
    };
    waits_for_no_reader(set);
}

/// One of many runs is quick. A run that waits for a reader that holds a filter is never.
fn waits_for_no_reader(mut run: impl FnMut() -> Duration) {
    let quick = (0..50).map(|_| run()).find(|took| took.as_millis() < 150);
    println!("done in {quick:?}");
    assert!(quick.is_some(), "each run waited");
}

/// The place of a table's filter block.
fn filter_block(table: &[u8]) -> std::ops::Range<usize> {
    let footer = &table[table.len() - 128..];
    let field = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize;
    let (offset, length) = (field(0), field(8));
    offset..offset + length + 5
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_filter_found_damaged_when_it_is_to_grow_never_hides_a_key() {
    let _alone = alone();
    // Where the bit flips: header, beginning, middle and end of the array, type, checksum.
    let places: [fn(usize) -> usize; 6] =
        [|_| 33, |_| 128, |n| n / 2, |n| n - 6, |n| n - 5, |n| n - 1];
    for (number, place) in places.into_iter().enumerate() {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let db = options().filter(ribbon(9.0)).memtable_bytes(8 << 20).open(&dir).unwrap();
        let keys = 60_000;
        fill(&db, 0..keys);
        let [path] = files_with(&dir, "sst").try_into().unwrap();
        let block = filter_block(&std::fs::read(&path).unwrap());
        let at = block.start + place(block.len());
        let stored = db.memory().filters.stored;
        db.set_filter_memory(Some(stored / 2)).unwrap();
        let narrow = db.tables();
        let (has, _) = columns(&narrow[0]);
        assert!((3..6).contains(&has));

        // Some columns resident: they stay in use, and the damage is reported.
        flip(&path, at);
        for budget in [Some(stored * 3 / 4), None] {
            db.set_filter_memory(budget).unwrap();
            let table = &db.tables()[0];
            let FilterInfo::Active { damaged: Some(reason), .. } = &table.filter else {
                panic!("{number}: {:?}", table.filter);
            };
            println!("place {number}, resident in part: {reason}");
            assert_eq!(columns(table), (has, 9));
            none_is_missed(&db, 0..keys);
            assert!(passing(&db, keys) < keys / 6);
        }
        // It can still be released. Nothing verified is left then, and it is degraded.
        db.set_filter_memory(Some(0)).unwrap();
        assert!(matches!(db.tables()[0].filter, FilterInfo::NotResident { .. }));
        db.set_filter_memory(Some(stored * 3 / 4)).unwrap();
        let FilterInfo::Degraded { reason } = &db.tables()[0].filter else {
            panic!("{number}: {:?}", db.tables()[0].filter);
        };
        println!("place {number}, nothing resident: {reason}");
        none_is_missed(&db, 0..keys);
        assert_eq!(db.explain(key(1)).unwrap().counts().degraded, 1);
        assert_eq!(db.memory().filters.resident, 0);
        // A compaction gives the table a new filter, within the budget.
        db.compact().unwrap();
        assert_eq!(columns(&db.tables()[0]).1, 9);
        within_budget(&db);
        none_is_missed(&db, 0..keys);
    }
}

/// With a budget, an opening reads only the header of a filter, whose checksum covers the array too. The
/// later read of the filter finds the damage.
#[test]
fn a_header_misread_at_opening_never_hides_a_key() {
    let _alone = alone();
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let options = || options().filter(ribbon(9.0)).memtable_bytes(8 << 20);
    let db = options().open(&dir).unwrap();
    fill(&db, 0..20_000);
    let stored = db.memory().filters.stored;
    db.close().unwrap();
    let [path] = files_with(&dir, "sst").try_into().unwrap();
    let salt = filter_block(&std::fs::read(&path).unwrap()).start + 16;
    for (budget, degraded) in [(Some(stored * 3 / 4), true), (None, false)] {
        flip(&path, salt);
        let db = options().filter_memory(0).open(&dir).unwrap();
        assert!(matches!(db.tables()[0].filter, FilterInfo::NotResident { .. }));
        flip(&path, salt);
        db.set_filter_memory(budget).unwrap();
        let filter = &db.tables()[0].filter;
        assert_eq!(matches!(filter, FilterInfo::Degraded { .. }), degraded, "{filter:?}");
        none_is_missed(&db, 0..20_000);
        db.close().unwrap();
    }
}

/// With a history, columns stay where absent keys are looked up.
#[test]
fn columns_are_dropped_where_they_avoid_the_fewest_reads() {
    let _alone = alone();
    let parent = common::tempdir();
    let options = options().filter(ribbon(12.0)).memtable_bytes(8 << 20);
    let db = options.open(parent.path().join("store")).unwrap();
    let keys = 700_000;
    fill(&db, 0..keys);
    let tables = db.tables();
    assert!(tables.len() >= 4);
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let (busy, calm) = (&tables[1], &tables[2]);
    assert!(busy.keys.abs_diff(calm.keys) < busy.keys / 20 && busy.keys > 100_000);
    let (first, last) = (number(&busy.smallest), number(&busy.largest));
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    for _ in 0..64_000 {
        db.get(key(rng.random_range(first..last - 1) | 1)).unwrap();
    }
    db.set_filter_memory(Some(db.memory().filters.stored / 2)).unwrap();
    within_budget(&db);
    let columns = |id| columns(db.tables().iter().find(|table| table.id == id).unwrap()).0;
    let (busy, calm) = (columns(busy.id), columns(calm.id));
    // 4,000 times the load, which is twelve columns more if the busy filter had them: it keeps all that it has.
    println!("{busy} columns with 64,000 absent probes, {calm} with none");
    assert!(busy >= 11 && (3..=6).contains(&calm), "{busy} {calm}");
}
