//! Filters are replaced while the data stays: no byte of a table is rewritten, no key is missed at any
//! moment, and an interrupted rebuilding continues.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::common::{self, HookVfs, files_with, wait_until};
use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};
use criba::{
    Allocation, Db, Error, Event, FilterInfo, FilterKind, FilterPolicy, HashFunction, Options,
    RebuildReport, TableFile, Verdict,
};

const KEYS: u32 = 700;

fn options() -> Options {
    Options::new()
        .background_threads(0)
        .auto_compaction(false)
        .cache_bytes(0)
        .block_bytes(256)
        .table_bytes(2048)
        .vfs(HookVfs::without_syncs())
        .seed(3)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {:06}", number.wrapping_mul(0x9E37_79B1) % 1_000_000).into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("value {number}").into_bytes()
}

/// The final value of a key; `None` if it is deleted.
fn expected(number: u32) -> Option<Vec<u8>> {
    let deleted = number.is_multiple_of(7) && !number.is_multiple_of(5);
    (!deleted).then(|| value(number))
}

/// A closed store of one run, in which every fifth key stays, and a few tables on L0 with tombstones and
/// overwritten values.
fn build(dir: &Path, options: Options) -> usize {
    let db = options.open(dir).unwrap();
    for number in 0..KEYS {
        let earlier = b"an earlier value".to_vec();
        let stays = number.is_multiple_of(5);
        db.put(key(number), if stays { value(number) } else { earlier }).unwrap();
    }
    db.compact().unwrap();
    for part in 0..3 {
        for number in (part..KEYS).step_by(3).filter(|number| !number.is_multiple_of(5)) {
            match expected(number) {
                Some(value) => db.put(key(number), value).unwrap(),
                None => db.delete(key(number)).unwrap(),
            }
        }
        db.flush().unwrap();
    }
    let tables = db.tables().len();
    assert!(tables > 8, "{tables}");
    db.close().unwrap();
    tables
}

/// Looks up every key.
fn check(db: &Db, what: &str) {
    for number in 0..KEYS {
        let found = db.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), expected(number).as_deref(), "{what}: key {number}");
    }
}

/// Evidence of a change of a table: inode, time of the last change, bytes.
fn tables_on_disk(dir: &Path) -> BTreeMap<String, (u64, i64, i64, Vec<u8>)> {
    let of = |path: &Path| {
        let meta = path.metadata().unwrap();
        (meta.ino(), meta.mtime(), meta.mtime_nsec(), std::fs::read(path).unwrap())
    };
    files_with(dir, "sst").iter().map(|path| (path.display().to_string(), of(path))).collect()
}

fn count(report: RebuildReport) -> (u64, u64, u64, u64) {
    (report.rebuilt, report.already_right, report.removed, report.gone)
}

fn has_kind(filter: &FilterInfo, kind: FilterKind) -> bool {
    matches!(filter, FilterInfo::Active { kind: found, .. } if *found == kind)
}

#[test]
fn tables_stay_as_they_are_whatever_filters_they_get() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let tables = build(&dir, options().filter(FilterPolicy::classic())) as u64;
    let before = tables_on_disk(&dir);
    assert_eq!(before.len() as u64, tables);
    let mut wasted = Vec::new();
    for (round, policy) in [
        FilterPolicy::ribbon(),
        FilterPolicy::default(),
        FilterPolicy::classic().with_bits_per_key(4.0),
        FilterPolicy::none(),
        FilterPolicy::rate(0.001).with_kind(FilterKind::Bloom),
        FilterPolicy::default().with_hash(HashFunction::MurmurHash2),
    ]
    .into_iter()
    .enumerate()
    {
        let db = options().open(&dir).unwrap();
        let bare = policy == FilterPolicy::none();
        let report = db.rebuild_filters(&policy).unwrap();
        let expected = if bare { (0, 0, tables, 0) } else { (tables, 0, 0, 0) };
        assert_eq!(count(report), expected, "{policy}");
        assert_eq!(db.stats().activity.filters_rebuilt, report.rebuilt);
        assert_eq!(count(db.rebuild_filters(&policy).unwrap()), (0, tables, 0, 0), "{policy}");
        // One file for each filter; those of the round before are gone.
        let files = files_with(&dir, "flt");
        let ending = format!("-{:04}.flt", round + 1);
        assert_eq!(files.len() as u64, if bare { 0 } else { tables });
        assert!(files.iter().all(|path| path.to_str().unwrap().ends_with(&ending)), "{files:?}");
        let filters = |db: &Db| -> Vec<_> {
            db.tables().into_iter().map(|table| (table.id, table.filter)).collect()
        };
        let now = filters(&db);
        for (_, filter) in &now {
            match filter {
                FilterInfo::None => assert!(bare),
                FilterInfo::Active { generation, .. } => assert_eq!(*generation, round as u64 + 1),
                other => panic!("{other:?}"),
            }
        }
        check(&db, &format!("{policy}"));
        db.close().unwrap();
        let db = options().open(&dir).unwrap();
        assert_eq!(db.recovery().removed_files, 2, "the log and the manifest before");
        assert_eq!(filters(&db), now, "{policy}, opened again");
        check(&db, &format!("{policy}, opened again"));
        let mut counts = criba::Counts::default();
        for number in 0..20_000 {
            let explained = db.explain(format!("key {number:06}x")).unwrap();
            assert_eq!(explained.value, None);
            counts += explained.counts();
        }
        wasted.push((policy.to_string(), counts.disk_reads));
        assert_eq!(counts.degraded, 0);
        assert!(tables_on_disk(&dir) == before, "{policy}: a table was touched");
    }
    let rounds = wasted.len();
    println!("{rounds} rounds over {tables} tables; disk reads of 20,000 absent keys: {wasted:?}");
    // Few bits, none, many: the filters did change.
    assert!(wasted[4].1 < wasted[0].1 && wasted[2].1 > 5 * wasted[0].1);
    assert!(wasted[3].1 > 5 * wasted[2].1);
}

#[test]
fn only_tables_without_the_right_filter_are_read() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir, options());
    let db = options().filter(FilterPolicy::ribbon()).open(&dir).unwrap();
    let old = db.tables().len() as u64;
    db.put("new", "value").unwrap();
    db.flush().unwrap();
    let report = db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
    assert_eq!(count(report), (old, 1, 0, 0));
    let before = db.stats();
    db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
    assert_eq!(db.stats() - before, criba::Stats::default());
    for nonsense in [FilterPolicy::rate(0.0), FilterPolicy::bits_per_key(65.0)] {
        let refused = db.rebuild_filters(&nonsense);
        assert!(matches!(refused, Err(Error::InvalidOption { option: "filter", .. })));
    }
}

/// The process to kill after three rebuilt filters.
#[test]
#[ignore = "run by the test that wants it killed"]
fn a_rebuilding_process() {
    let dir = std::env::var_os("CRIBA_TEST_REBUILD_DIR").expect("run by another test");
    let rebuilt = AtomicU64::new(0);
    let callback = move |event: &Event| {
        if matches!(event, Event::FilterRebuilt { .. })
            && rebuilt.fetch_add(1, Ordering::SeqCst) == 2
        {
            std::process::abort();
        }
    };
    let db = options().on_event(callback).open(dir).unwrap();
    let _ = db.rebuild_filters(&FilterPolicy::ribbon());
}

#[test]
fn killed_halfway_the_second_run_rebuilds_only_the_rest() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let tables = build(&dir, options()) as u64;
    let before = tables_on_disk(&dir);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rebuild_filters::a_rebuilding_process", "--ignored"])
        .env("CRIBA_TEST_REBUILD_DIR", &dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!child.success());
    assert_eq!(files_with(&dir, "flt").len(), 3);
    let db = options().open(&dir).unwrap();
    check(&db, "after the kill");
    let report = db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
    println!("{report:?} of {tables} tables");
    assert_eq!(count(report), (tables - 3, 3, 0, 0));
    check(&db, "after the rest");
    assert!(tables_on_disk(&dir) == before);
}

/// With balanced bits the right filter of a table depends on all tables. A new process computes the same
/// plan from their keys.
#[test]
fn another_process_finds_right_what_the_first_one_did() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let options = || options().table_bytes(8 << 10);
    let db = options().open(&dir).unwrap();
    for number in 0..20_000 {
        db.put(key(number), "value").unwrap();
    }
    db.compact().unwrap();
    for number in (0..20_000).step_by(10) {
        db.put(key(number), "another").unwrap();
        if number % 5000 == 0 {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
    let (other, keyed) = (FilterPolicy::ribbon(), FilterPolicy::default());
    for policy in [other, keyed.with_hash(HashFunction::MurmurHash2), keyed.with_bits_per_key(5.0)]
    {
        let db = options().open(&dir).unwrap();
        let tables = db.tables().len() as u64;
        assert_eq!(count(db.rebuild_filters(&policy).unwrap()), (tables, 0, 0, 0), "{policy}");
        db.close().unwrap();
        let db = options().open(&dir).unwrap();
        // Too few lookups to say anything about the earlier ones.
        for number in 0..3000 {
            assert_eq!(db.get(format!("key {number:06}x")).unwrap(), None);
        }
        assert_eq!(count(db.rebuild_filters(&policy).unwrap()), (0, tables, 0, 0), "{policy}");
        db.close().unwrap();
    }
}

fn mutates(operation: Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::Create
            | O::Append
            | O::Write
            | O::SetLength
            | O::Sync
            | O::SyncDir
            | O::Rename
            | O::Remove
    )
}

/// Fails each mutating operation of a rebuilding in turn: alone, and with all later ones, as in a dying
/// process.
#[test]
fn a_rebuilding_that_fails_at_any_operation_loses_nothing() {
    let parent = common::tempdir();
    let whole = parent.path().join("whole");
    // From filters in files of their own: these must stay as long as the manifest may name them.
    let tables = rebuilt(&whole, &FilterPolicy::classic());
    let policy = FilterPolicy::ribbon();
    let (mut cut, mut poisoned, mut kept) = (0, 0, BTreeSet::new());
    // Alone, with another try right after it; alone, without; and with all after it.
    'kinds: for (dies, tries_again) in [(false, true), (false, false), (true, false)] {
        for failing in 0.. {
            let dir = parent.path().join("store");
            common::copy_dir(&whole, &dir);
            let before = common::contents(&dir);
            let armed = Arc::new(AtomicBool::new(false));
            let operations = Arc::new(AtomicU64::new(0));
            let (hook_armed, hook_operations) = (Arc::clone(&armed), Arc::clone(&operations));
            let vfs = HookVfs::new(move |_, operation| {
                if hook_armed.load(Ordering::SeqCst) && mutates(operation) {
                    let number = hook_operations.fetch_add(1, Ordering::SeqCst);
                    if number == failing || dies && number > failing {
                        return Err(common::no_space());
                    }
                }
                Ok(())
            });
            let what = format!("operation {failing}, {}", if dies { "the last" } else { "alone" });
            let db = options().vfs(vfs).open(&dir).unwrap();
            armed.store(true, Ordering::SeqCst);
            let ended = db.rebuild_filters(&policy);
            let all = operations.load(Ordering::SeqCst) <= failing;
            // Whatever failed, the store answers, and on from there as well as it can.
            check(&db, &what);
            if tries_again {
                match db.rebuild_filters(&policy) {
                    Ok(report) => assert_eq!(report.rebuilt + report.already_right, tables),
                    Err(Error::Poisoned { .. }) => poisoned += 1,
                    Err(other) => panic!("{what}: {other}"),
                }
                check(&db, &what);
            }
            drop(db);
            let db = options().strict_filters(true).open(&dir).unwrap();
            check(&db, &what);
            let of_kind =
                db.tables().iter().filter(|t| has_kind(&t.filter, FilterKind::Ribbon)).count();
            let report = db.rebuild_filters(&policy).unwrap();
            assert_eq!(report.already_right, of_kind as u64, "{what}");
            assert_eq!(report.rebuilt + report.already_right, tables, "{what}");
            assert_eq!(files_with(&dir, "flt").len() as u64, tables, "{what}");
            check(&db, &what);
            drop(db);
            for path in files_with(&dir, "sst") {
                let name = path.file_name().unwrap().to_str().unwrap();
                assert!(std::fs::read(&path).unwrap() == before[name], "{what}: {name}");
            }
            if all {
                assert_eq!(ended.unwrap().rebuilt, tables);
                assert!(failing >= 5 * tables, "{failing} operations");
                continue 'kinds;
            }
            kept.insert(of_kind);
            cut += 1;
        }
    }
    println!("{cut} operations failed, {poisoned} in doubt; {kept:?} of {tables} were rebuilt");
    assert!(poisoned > 0 && kept.len() as u64 >= tables);
}

/// Lookups, writes, flushes and compactions of other threads, while filters change.
#[test]
fn no_key_is_missed_while_filters_change() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir, options());
    let db = options()
        .background_threads(1)
        .auto_compaction(true)
        .memtable_bytes(16 << 10)
        .level_base_bytes(8 << 10)
        .open(&dir)
        .unwrap();
    let done = AtomicBool::new(false);
    let lookups = AtomicU64::new(0);
    let (mut runs, mut sum) = (0, (0, 0, 0, 0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    check(&db, "meanwhile");
                    lookups.fetch_add(u64::from(KEYS), Ordering::SeqCst);
                }
            });
        }
        scope.spawn(|| {
            for number in (0..u32::MAX).take_while(|_| !done.load(Ordering::SeqCst)) {
                // The same values again, so that every lookup has one answer, and others.
                let again = number % KEYS;
                if let Some(value) = expected(again) {
                    db.put(key(again), value).unwrap();
                }
                db.put(format!("other {}", number % 2000), [7; 100]).unwrap();
                if number % 200 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            }
        });
        let policies = [FilterPolicy::ribbon(), FilterPolicy::classic(), FilterPolicy::none()];
        for policy in policies.iter().cycle() {
            let (rebuilt, right, removed, gone) = count(db.rebuild_filters(policy).unwrap());
            sum = (sum.0 + rebuilt, sum.1 + right, sum.2 + removed, sum.3 + gone);
            runs += 1;
            let compactions = db.stats().activity.compactions;
            let looked_up = lookups.load(Ordering::SeqCst);
            if sum.0 > 100 && sum.2 > 50 && compactions > 5 && looked_up > 5000 {
                break;
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    let compactions = db.stats().activity.compactions;
    let lookups = lookups.load(Ordering::SeqCst);
    println!(
        "{runs} runs: {sum:?} rebuilt, right, removed, gone; {compactions} compactions, {lookups} \
         lookups meanwhile"
    );
    db.close().unwrap();
    let db = options().strict_filters(true).open(&dir).unwrap();
    check(&db, "in the end");
    let named: usize = db
        .tables()
        .iter()
        .filter(|t| matches!(t.filter, FilterInfo::Active { generation: 1.., .. }))
        .count();
    assert_eq!(files_with(&dir, "flt").len(), named);
}

/// A compaction takes the table while its filter is being written.
#[test]
fn a_compaction_in_between_wins() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let options = options().filter(FilterPolicy::bloom());
    let tables = build(&dir, options.clone()) as u64;
    let cell: Arc<OnceLock<Db>> = Arc::default();
    let compacted = Arc::new(AtomicBool::new(true));
    let (hook_cell, hook_compacted) = (Arc::clone(&cell), Arc::clone(&compacted));
    let vfs = HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Filter, Operation::Sync)
            && !hook_compacted.swap(true, Ordering::SeqCst)
        {
            hook_cell.get().unwrap().compact().unwrap();
        }
        Ok(())
    });
    let db = options.vfs(vfs).open(&dir).unwrap();
    cell.set(db.clone()).unwrap();
    compacted.store(false, Ordering::SeqCst);
    let report = db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
    let now = db.tables();
    println!("{tables} tables, then {}: {report:?}", now.len());
    // What it wrote has the filters of the new policy already.
    assert_eq!(count(report), (0, now.len() as u64, 0, 1));
    assert!(now.iter().all(|table| has_kind(&table.filter, FilterKind::Ribbon)));
    assert!(files_with(&dir, "flt").is_empty());
    check(&db, "after the compaction");
}

/// A compaction that began under another policy would end after this call, which therefore waits for it.
#[test]
fn a_compaction_under_way_leaves_no_filter_of_another_policy() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir, options());
    let (reached, rebuilt) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (hook_reached, hook_rebuilt) = (Arc::clone(&reached), Arc::clone(&rebuilt));
    let vfs = HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Table, Operation::Sync)
            && !hook_reached.swap(true, Ordering::SeqCst)
        {
            let start = std::time::Instant::now();
            while !hook_rebuilt.load(Ordering::SeqCst) && start.elapsed().as_millis() < 1500 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        Ok(())
    });
    let db = options().vfs(vfs).open(&dir).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| db.compact().unwrap());
        while !reached.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
        rebuilt.store(true, Ordering::SeqCst);
    });
    for table in db.tables() {
        assert!(has_kind(&table.filter, FilterKind::Ribbon), "{:?}", table.filter);
    }
    check(&db, "after both");
}

/// A flush that began under another policy would install its filter after this call, which therefore waits.
#[test]
fn a_flush_under_way_leaves_no_filter_of_another_policy() {
    let dir = common::tempdir();
    let (reached, rebuilt) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (hook_reached, hook_rebuilt) = (Arc::clone(&reached), Arc::clone(&rebuilt));
    let vfs = HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Table, Operation::Sync) {
            hook_reached.store(true, Ordering::SeqCst);
            let start = std::time::Instant::now();
            while !hook_rebuilt.load(Ordering::SeqCst) && start.elapsed().as_millis() < 500 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        Ok(())
    });
    let db = options().vfs(vfs).open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| db.flush().unwrap());
        wait_until("the flush", || reached.load(Ordering::SeqCst));
        db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
        rebuilt.store(true, Ordering::SeqCst);
    });
    let [table] = &db.tables()[..] else { panic!("one table") };
    assert!(has_kind(&table.filter, FilterKind::Ribbon), "{:?}", table.filter);
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// A store whose filters are all in separate files.
fn rebuilt(dir: &Path, policy: &FilterPolicy) -> u64 {
    let poor = FilterPolicy::rate(0.2).with_kind(FilterKind::Ribbon);
    let tables = build(dir, options().filter(poor)) as u64;
    let db = options().open(dir).unwrap();
    assert_eq!(db.rebuild_filters(policy).unwrap().rebuilt, tables);
    db.close().unwrap();
    tables
}

fn degraded(db: &Db) -> Vec<u64> {
    let tables = db.tables().into_iter();
    tables
        .filter(|table| matches!(table.filter, FilterInfo::Degraded { .. }))
        .map(|table| table.id)
        .collect()
}

#[test]
fn a_filter_file_damaged_in_any_way_hides_no_key() {
    let parent = common::tempdir();
    let (dir, small) = (parent.path().join("store"), parent.path().join("small"));
    let db = options().filter(FilterPolicy::none()).open(&small).unwrap();
    for table in 0..2 {
        for number in 0..20 {
            db.put(format!("key {number:02} of {table}"), "value").unwrap();
        }
        db.flush().unwrap();
    }
    let (mut tried, mut flips) = (BTreeMap::new(), 0);
    for policy in [FilterPolicy::default(), FilterPolicy::ribbon(), FilterPolicy::classic()] {
        db.rebuild_filters(&policy).unwrap();
        common::copy_dir(&small, &dir);
        let files = common::contents(&dir);
        let [first, second] = files_with(&dir, "flt").try_into().unwrap();
        let mut try_one = |how: &'static str, damaged: usize, damage: &dyn Fn()| {
            common::restore(&dir, &files);
            damage();
            let db = options().open(&dir).unwrap();
            assert_eq!(degraded(&db).len(), damaged, "{policy}, {how}");
            for (table, number) in (0..2).flat_map(|table| (0..20).map(move |n| (table, n))) {
                let found = db.get(format!("key {number:02} of {table}")).unwrap();
                assert!(found.is_some(), "{policy}, {how}: key {number} of {table}");
            }
            *tried.entry(how).or_insert(0) += 1;
        };
        let length = std::fs::read(&first).unwrap().len();
        let flip = |bit: usize| change(&first, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        // Some with the whole store, then every bit and every length with the table alone.
        for byte in (0..length).step_by(4) {
            try_one("bits flipped", 1, &|| flip(8 * byte + byte % 8));
        }
        common::restore(&dir, &files);
        let name = first.file_name().unwrap().to_str().unwrap();
        let table = dir.join(format!("{}.sst", &name[..6]));
        assert!(matches!(TableFile::open(&table).unwrap().filter(), FilterInfo::Active { .. }));
        for bit in 0..8 * length {
            flip(bit);
            let opened = TableFile::open(&table).unwrap();
            assert!(matches!(opened.filter(), FilterInfo::Degraded { .. }), "{policy}, bit {bit}");
            assert_eq!(opened.verdict("key 00 of 0"), Verdict::Degraded);
            flip(bit);
            flips += 1;
        }
        let whole = std::fs::read(&first).unwrap();
        for length in 0..length {
            std::fs::write(&first, &whole[..length]).unwrap();
            let opened = TableFile::open(&table).unwrap();
            assert!(matches!(opened.filter(), FilterInfo::Degraded { .. }), "{policy}, {length}");
        }
        for length in (0..length).step_by(4) {
            try_one("cut", 1, &|| change(&first, |bytes| bytes.truncate(length)));
        }
        try_one("one byte longer", 1, &|| change(&first, |bytes| bytes.push(0)));
        try_one("missing", 1, &|| std::fs::remove_file(&first).unwrap());
        try_one("a directory", 1, &|| {
            std::fs::remove_file(&first).unwrap();
            std::fs::create_dir(&first).unwrap();
        });
        std::fs::remove_dir(&first).unwrap();
        try_one("swapped", 2, &|| {
            let (a, b) = (std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
            assert_eq!(a.len(), b.len());
            std::fs::write(&first, b).unwrap();
            std::fs::write(&second, a).unwrap();
        });
        try_one("undamaged", 0, &|| {});
    }
    println!("{flips} bits flipped in tables alone; in stores: {tried:?}");
    assert!(flips > 3 * 8 * 128 && tried["bits flipped"] > 3 * 32 && tried["cut"] > 3 * 32);
}

/// The filter of the last generation, with its own right checksum, under the new name: only the generation,
/// to which the checksum is bound, and the manifest reveal it.
#[test]
fn an_older_filter_does_not_pass_for_the_newest() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let tables = rebuilt(&dir, &FilterPolicy::default()) as usize;
    let older: Vec<_> =
        files_with(&dir, "flt").iter().map(|path| std::fs::read(path).unwrap()).collect();
    let db = options().open(&dir).unwrap();
    db.rebuild_filters(&FilterPolicy::none()).unwrap();
    db.rebuild_filters(&FilterPolicy::default()).unwrap();
    db.close().unwrap();
    for (path, older) in files_with(&dir, "flt").iter().zip(older) {
        assert!(path.to_str().unwrap().ends_with("-0003.flt"));
        let newer = std::fs::read(path).unwrap();
        assert!(newer.len() == older.len() && newer != older, "each generation has its own salt");
        std::fs::write(path, older).unwrap();
    }
    let db = options().open(&dir).unwrap();
    assert_eq!(degraded(&db).len(), tables);
    check(&db, "older filters");
}

#[test]
fn degraded_filters_are_reported_refused_and_rebuilt() {
    // With uniform bits the filter of a table does not depend on other tables or on compactions.
    let even = FilterPolicy::default().with_allocation(Allocation::Uniform);
    let options = || options().filter(even);
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let tables = rebuilt(&dir, &even);
    let files = files_with(&dir, "flt");
    change(&files[1], |bytes| bytes[200] ^= 1);
    std::fs::remove_file(&files[2]).unwrap();
    let before = common::contents(&dir);

    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let listening = |options: Options| {
        let events = Arc::clone(&events);
        options.on_event(move |event| events.lock().unwrap().push(event.clone()))
    };
    let taken = || std::mem::take(&mut *events.lock().unwrap());
    let strict = listening(options().strict_filters(true)).open(&dir);
    match strict {
        Err(Error::Corrupt { path, offset: 0, expected, found }) => {
            assert_eq!(path, files[1]);
            assert_eq!(expected, "a sound filter");
            assert!(found.contains("checksum"), "{found}");
        }
        other => panic!("{other:?}"),
    }
    assert!(common::contents(&dir) == before, "what is refused stays as it was");
    let as_degraded = |event: Event| match event {
        Event::FilterDegraded { path, reason, .. } => {
            assert!(!reason.is_empty());
            path
        }
        other => panic!("{other:?}"),
    };
    let paths: Vec<_> = taken().into_iter().map(as_degraded).collect();
    assert_eq!(paths, files[1..3], "strict opening reports each, too");

    let db = listening(options()).open(&dir).unwrap();
    let paths: Vec<_> = taken().into_iter().map(as_degraded).collect();
    assert_eq!(paths, files[1..3]);
    let ids = degraded(&db);
    assert_eq!(ids.len(), 2);
    check(&db, "degraded");
    assert!(db.stats().total().degraded > 0);
    let report = db.rebuild_filters(&even).unwrap();
    assert_eq!(count(report), (2, tables - 2, 0, 0));
    let rebuilt: BTreeSet<u64> = taken()
        .into_iter()
        .filter_map(|event| match event {
            Event::FilterRebuildStarted { .. } => None,
            Event::FilterRebuilt { table, filter, .. } => {
                assert!(matches!(filter, FilterInfo::Active { generation: 2, .. }));
                Some(table)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(rebuilt, ids.into_iter().collect());
    check(&db, "mended");
    db.close().unwrap();
    let db = listening(options().strict_filters(true)).open(&dir).unwrap();
    assert_eq!(degraded(&db).len() + taken().len(), 0);
    drop(db);

    // Within a table, too; and the next compaction that takes the table mends it as well.
    let table = files_with(&dir, "sst").pop().unwrap();
    let in_table = |bytes: &mut Vec<u8>| {
        let footer = bytes.len() - 128;
        let offset = u64::from_le_bytes(bytes[footer..footer + 8].try_into().unwrap()) as usize;
        bytes[offset + 130] ^= 1;
    };
    change(&table, in_table);
    let db = options().open(&dir).unwrap();
    assert_eq!(degraded(&db).len(), 0, "the one in use lies beside the table");
    drop(db);
    let path = files_with(&dir, "flt").pop().unwrap();
    change(&path, |bytes| bytes[3] ^= 1);
    let db = options().open(&dir).unwrap();
    assert_eq!(degraded(&db).len(), 1);
    db.compact().unwrap();
    assert_eq!(degraded(&db).len(), 0);
    assert!(files_with(&dir, "flt").is_empty(), "they went with their tables");
    check(&db, "compacted");
    drop(db);
    let last = files_with(&dir, "sst").pop().unwrap();
    change(&last, in_table);
    match options().strict_filters(true).open(&dir) {
        Err(Error::Corrupt { path, offset, .. }) => {
            assert_eq!(path, last);
            assert!(offset > 0 && offset % 64 == 0);
        }
        other => panic!("{other:?}"),
    }
    let db = options().open(&dir).unwrap();
    let report = db.rebuild_filters(&even).unwrap();
    assert_eq!((report.rebuilt, degraded(&db).len()), (1, 0));
    check(&db, "mended");
}

/// Within a budget a filter is read after the opening, or never: damage is still reported, once, and strict
/// opening refuses it under every budget.
#[test]
fn degraded_filters_are_reported_and_refused_within_a_budget() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    rebuilt(&dir, &FilterPolicy::default());
    let files = files_with(&dir, "flt");
    change(&files[1], |bytes| bytes[200] ^= 1);
    let before = common::contents(&dir);
    for budget in [0, 4096, 1 << 30] {
        let strict = options().filter_memory(budget).strict_filters(true);
        match strict.open(&dir).map(drop) {
            Err(Error::Corrupt { path, .. }) => assert_eq!(path, files[1]),
            other => panic!("{budget}: {other:?}"),
        }
        assert!(common::contents(&dir) == before, "what is refused stays as it was");
    }

    let seen: Arc<Mutex<Vec<Event>>> = Arc::default();
    let events = Arc::clone(&seen);
    let callback = move |event: &Event| events.lock().unwrap().push(event.clone());
    let db = options().on_event(callback).filter_memory(0).open(&dir).unwrap();
    assert!(seen.lock().unwrap().is_empty(), "nothing of it was read yet");
    for _ in 0..2 {
        db.set_filter_memory(None).unwrap();
        assert_eq!(degraded(&db).len(), 1);
        match &seen.lock().unwrap()[..] {
            [Event::FilterDegraded { path, offset: 0, reason, .. }] => {
                assert_eq!(*path, files[1]);
                assert!(reason.contains("checksum"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    db.rebuild_filters(&FilterPolicy::default()).unwrap();
    db.close().unwrap();
    options().filter_memory(4096).strict_filters(true).open(&dir).unwrap();
}

/// A table with a damaged block keeps its filter; the other tables get new ones.
#[test]
fn a_damaged_table_keeps_its_filter_and_stands_in_nobodys_way() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let tables = build(&dir, options()) as u64;
    let damaged = files_with(&dir, "sst").remove(2);
    change(&damaged, |bytes| bytes[10] ^= 1);
    let db = options().open(&dir).unwrap();
    for _ in 0..2 {
        match db.rebuild_filters(&FilterPolicy::ribbon()) {
            Err(Error::Corrupt { path, .. }) => assert_eq!(path, damaged),
            other => panic!("{other:?}"),
        }
        let new = db.tables().iter().filter(|t| has_kind(&t.filter, FilterKind::Ribbon)).count();
        assert_eq!(new as u64, tables - 1);
        assert_eq!(db.stats().activity.filters_rebuilt, tables - 1);
    }
    assert_eq!(degraded(&db).len(), 0);
}

/// A filter file that fails its read-back is not installed, and is removed.
#[test]
fn a_new_filter_that_cannot_be_read_back_is_not_installed() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    build(&dir, options());
    let vfs = FaultVfs::new(Arc::new(RealVfs));
    let rule = FaultRule::new(Fault::Io).kinds([FileKind::Filter]);
    vfs.add(rule.operations([Operation::Read]).from_then_on());
    let db = options().vfs(Arc::new(vfs)).open(&dir).unwrap();
    match db.rebuild_filters(&FilterPolicy::ribbon()) {
        Err(Error::Corrupt { path, found, .. }) => {
            assert!(path.to_str().unwrap().ends_with("-0001.flt"));
            assert!(found.contains("output error"), "{found}");
        }
        other => panic!("{other:?}"),
    }
    assert!(files_with(&dir, "flt").is_empty());
    assert!(db.tables().iter().all(|table| has_kind(&table.filter, FilterKind::Bloom)));
    check(&db, "the filters before");
}
