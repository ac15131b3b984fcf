//! Prefixes at every delimiter: scans of a directory skip the tables that do not have it, at every depth.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use criba::vfs::{CountingVfs, FileKind, Operation};
use criba::{
    CheckpointFiles, Db, Event, FilterInfo, FilterPolicy, Options, PrefixExtractor, WeakDb,
};
use flate2::read::MultiGzDecoder;
use rand::SeedableRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::common;

const DIRECTORIES: PrefixExtractor = PrefixExtractor::every(b'/');

fn options() -> Options {
    common::options().background_threads(0).cache_bytes(0).seed(5).auto_compaction(false)
}

/// The sample of paths of Debian's files.
fn paths() -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/paths-present.tsv.gz");
    let mut text = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    MultiGzDecoder::new(file).read_to_end(&mut text).unwrap();
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| line.split(|&byte| byte == b'\t').next().unwrap().to_vec()).collect()
}

fn directories_of<'k>(keys: impl IntoIterator<Item = &'k Vec<u8>>) -> Vec<&'k [u8]> {
    let all: BTreeSet<_> = keys.into_iter().flat_map(|key| DIRECTORIES.prefixes_of(key)).collect();
    all.into_iter().collect()
}

/// A store of one table of these keys.
fn one_table(dir: &Path, keys: &[Vec<u8>], options: Options) -> (Db, CountingVfs) {
    let vfs = CountingVfs::new(common::HookVfs::without_syncs());
    let db = options.vfs(vfs.clone()).block_bytes(1024).open(dir).unwrap();
    for key in keys {
        db.put(key, "value").unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.tables().len(), 1);
    (db, vfs)
}

/// The reads of scans of these directories.
fn reads_of_scans((db, vfs): &(Db, CountingVfs), directories: &[&[u8]], expected: usize) -> u64 {
    let of_file = || vfs.counts().of(FileKind::Table, Operation::Read).calls;
    let (before, files_before) = (db.stats(), of_file());
    let found: usize = directories.iter().map(|dir| db.prefix(dir).count()).sum();
    assert_eq!(found, expected);
    let reads = (db.stats() - before).scan_reads.calls;
    assert_eq!(reads, of_file() - files_before);
    reads
}

#[test]
fn a_small_run_is_not_read_for_directories_that_it_does_not_have() {
    let paths = paths();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let all = directories_of(&paths);
    for (part, least) in [(10, 0.7), (100, 0.9)] {
        let (mut with, mut without, mut scans) = (0, 0, 0);
        for round in 0..10 {
            let run: Vec<Vec<u8>> = paths.sample(&mut rng, paths.len() / part).cloned().collect();
            let parent = common::tempdir();
            let of =
                |name: &str, options: Options| one_table(&parent.path().join(name), &run, options);
            let stores =
                [of("with", options().prefix(DIRECTORIES)), of("without", options().prefix(None))];
            let items = |directories: &[&[u8]]| {
                directories
                    .iter()
                    .map(|dir| run.iter().filter(|key| key.starts_with(dir)).count())
                    .sum()
            };
            let reads = stores.each_ref().map(|store| reads_of_scans(store, &all, items(&all)));
            scans += all.len();
            with += reads[0];
            without += reads[1];
            let present = directories_of(&run);
            let reads =
                stores.each_ref().map(|store| reads_of_scans(store, &present, items(&present)));
            assert_eq!(reads[0], reads[1], "round {round}: present directories");
        }
        let avoided = 1.0 - with as f64 / without as f64;
        println!(
            "a run of 1/{part} of {} paths, {scans} scans of random directories: {with} blocks read, \
             {without} without prefixes, {avoided:.3} avoided",
            paths.len()
        );
        assert!(avoided >= least);
    }
}

#[test]
fn directories_deeper_than_the_prefixes_in_filters_are_found() {
    let dir = common::tempdir();
    let deep = |first: &str, depth: usize| format!("{first}/{}", "x/".repeat(depth - 1));
    let mut keys: Vec<Vec<u8>> =
        (14..20).map(|depth| format!("{}file{depth}", deep("a", depth)).into_bytes()).collect();
    keys.push(b"a/z".to_vec()); // so that all scans are within the range of the table
    let store = one_table(dir.path(), &keys, options().prefix(DIRECTORIES));
    let FilterInfo::Active { prefixes, extractor, .. } = store.0.tables()[0].filter else {
        panic!()
    };
    assert_eq!((prefixes, extractor), (16, Some(DIRECTORIES)));
    for depth in 1..22 {
        assert_eq!(store.0.prefix(deep("b", depth)).count(), 0);
        let below = keys.iter().filter(|key| key.starts_with(deep("a", depth).as_bytes())).count();
        let found = store.0.prefix(deep("a", depth)).count();
        assert_eq!(found, below, "{depth}");
        let before = store.0.stats();
        let absent = format!("{}y/", deep("a", depth));
        assert_eq!(store.0.prefix(&absent).count(), 0);
        let met = (store.0.stats() - before).prefix;
        assert_eq!((met.skipped > 0, met.unfiltered), (depth < 16, 0), "{depth} {met:?}");
    }
}

/// Filters with the prefixes up to the first delimiter answer for those, and the others for the rest.
#[test]
fn a_changed_number_of_delimiters_keeps_the_prefixes_that_both_have() {
    let dir = common::tempdir();
    let rows = PrefixExtractor::until(b'/');
    let keys: Vec<Vec<u8>> =
        (0..1000).map(|n| format!("{:03}/{}/x", n / 5 * 2, n % 5 * 2).into_bytes()).collect();
    let policy = FilterPolicy::bits_per_key(20.0);
    drop(one_table(dir.path(), &keys, options().filter(policy).prefix(rows)));
    let denied = |extractor: PrefixExtractor, rebuild: bool| {
        let db = options().prefix(extractor).open(dir.path()).unwrap();
        if rebuild {
            db.rebuild_filters(&policy).unwrap();
        }
        let denied = |prefixes: [&str; 100]| {
            let before = db.stats();
            for prefix in prefixes {
                assert_eq!(db.prefix(prefix).count(), 0);
            }
            let met = (db.stats() - before).prefix;
            assert_eq!(met.unfiltered, 0);
            met.skipped
        };
        let rows: Vec<String> = (0..100).map(|n| format!("{:03}/2/", 2 * n + 1)).collect();
        let columns: Vec<String> = (0..100).map(|n| format!("{:03}/3/", 2 * n)).collect();
        [rows, columns].map(|all| denied(std::array::from_fn(|n| &*all[n])))
    };
    assert_eq!(denied(rows, false), [100, 0]);
    assert_eq!(denied(DIRECTORIES, false), [100, 0]);
    assert_eq!(denied(DIRECTORIES, true), [100, 100]);
    assert_eq!(denied(rows, false), [100, 0]);
}

/// A budget of bytes holds with prefixes, also for tables that do not know their number of prefixes.
#[test]
fn a_budget_of_bytes_counts_prefixes() {
    let total = 20_000;
    let policy = FilterPolicy::ribbon().with_total_bytes(total);
    let bytes = |db: &Db| db.tables().iter().map(|table| table.filter.bytes() as u64).sum::<u64>();
    let open = |dir: &Path, extractor| {
        let options = options().filter(policy).prefix(Some(extractor)).auto_compaction(true);
        let options = options.memtable_bytes(64 << 10).table_bytes(16 << 10);
        // With equal triggers L0 has at most three tables between the calls, whose filters come on top.
        options.level_base_bytes(32 << 10).l0_slowdown_trigger(4).open(dir).unwrap()
    };
    let write = |db: &Db| {
        let mut keys: Vec<u32> = (0..12_000).collect();
        keys.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
        for key in keys {
            db.put(format!("{}/{}/{}", key / 40, key / 2 % 20, key % 2), "value").unwrap();
        }
        db.flush().unwrap();
        assert!(db.tables().len() > 10);
    };
    let rebuild = |db: &Db, what: &str| {
        db.rebuild_filters(&policy).unwrap();
        let rebuilt = bytes(db);
        println!("{what}: {rebuilt} bytes");
        assert!((total * 95 / 100..=total).contains(&rebuilt), "{what}: {rebuilt}");
    };
    let dir = common::tempdir();
    let db = open(dir.path(), DIRECTORIES);
    write(&db);
    // Outputs of compactions have fewer prefixes than the sum of their inputs, for which they were planned.
    let written = bytes(&db);
    assert!((total * 85 / 100..=total).contains(&written), "{written}");
    let in_filter = |filter| match filter {
        FilterInfo::Active { prefixes, .. } => prefixes,
        other => panic!("{other:?}"),
    };
    let advice = db.advise();
    let in_filters: u64 = db.tables().into_iter().map(|table| in_filter(table.filter)).sum();
    assert_eq!(advice.prefixes, in_filters);
    assert!(advice.bits_per_key_with_headers > 1.4 * advice.bits_per_key, "{advice:?}");
    rebuild(&db, "the filters have the numbers");
    db.rebuild_filters(&FilterPolicy::none()).unwrap();
    db.compact().unwrap();
    assert_eq!(bytes(&db), 0);
    assert!(db.advise().prefixes > 6000, "compactions count what no filter does");
    rebuild(&db, "the manifest has the numbers");

    let other = common::tempdir();
    let db = open(other.path(), PrefixExtractor::until(b'/'));
    write(&db);
    drop(db);
    rebuild(&open(other.path(), DIRECTORIES), "after a change, the numbers are counted");
}

/// A key of nine directories of its own, so that most entries of a filter are prefixes.
fn deep(number: u32) -> String {
    let part = |at: u32| number.wrapping_add(at << 24).wrapping_mul(0x9E37_79B1) >> 8;
    let parts: Vec<String> = (0..9).map(|at| format!("{:x}", part(at))).collect();
    parts.join("/") + "/"
}

/// The first merge of tables that do not know their numbers of prefixes keeps the rate, or the bytes.
#[test]
fn the_first_compaction_after_a_change_is_as_planned() {
    for total in [None, Some(12_000)] {
        let dir = common::tempdir();
        let policy = FilterPolicy::default();
        let policy = total.map_or(policy, |bytes| policy.with_total_bytes(bytes));
        let open = |extractor| options().filter(policy).prefix(extractor).open(dir.path()).unwrap();
        let db = open(None);
        (0..5000).for_each(|number| db.put(deep(number), "value").unwrap());
        db.compact().unwrap();
        let before = db.advise();
        drop(db);
        let db = open(Some(DIRECTORIES));
        db.put(deep(77), "another").unwrap();
        db.compact().unwrap();
        let after = db.advise();
        println!("{policy}: {before:?}\n{after:?}");
        assert!(after.prefixes > 8 * after.keys);
        match total {
            None => assert!((after.bits_per_key / before.bits_per_key - 1.0).abs() < 0.01),
            Some(bytes) => assert!((bytes * 9 / 10..=bytes).contains(&after.filter_bytes)),
        }
    }
}

/// A table that a compaction adds meanwhile makes a rebuild plan again.
#[test]
fn a_rebuild_that_plans_again_counts_prefixes_once() {
    let dir = common::tempdir();
    let total = 40_000;
    let policy = FilterPolicy::default().with_total_bytes(total);
    let small = |extractor| options().filter(policy).prefix(extractor).table_bytes(8 << 10);
    let db = small(None).open(dir.path()).unwrap();
    (0..3000).for_each(|number| db.put(deep(number), "value").unwrap());
    db.compact().unwrap();
    drop(db);
    let rebuilding: Arc<Mutex<Option<WeakDb>>> = Arc::default();
    let (listening, rebuilt) = (Arc::clone(&rebuilding), AtomicU64::new(0));
    let listener = move |event: &Event| {
        let is_rebuilt = matches!(event, Event::FilterRebuilt { .. });
        if is_rebuilt && rebuilt.fetch_add(1, Ordering::Relaxed) == 5 {
            let db = listening.lock().unwrap().as_ref().and_then(WeakDb::upgrade).unwrap();
            let oldest = db.tables().iter().map(|table| table.id).min().unwrap();
            // Only the oldest table is written anew. A listener must not wait for work on its own thread.
            let rewrite = std::thread::spawn(move || db.compact_rewriting(oldest + 1).unwrap());
            rewrite.join().unwrap();
        }
    };
    let db = small(Some(DIRECTORIES)).on_event(listener).open(dir.path()).unwrap();
    *rebuilding.lock().unwrap() = Some(db.downgrade());
    let first = db.rebuild_filters(&policy).unwrap();
    let bytes: u64 = db.tables().iter().map(|table| table.filter.bytes() as u64).sum();
    let again = db.rebuild_filters(&policy).unwrap();
    println!("{first:?}: {bytes} bytes; again: {again:?}");
    assert!((total * 99 / 100..=total).contains(&bytes), "{bytes}");
    assert!(again.rebuilt <= 2, "{again:?}");
}

/// Another extractor makes no other table: a reader keeps what it counted, and a copy links its files.
#[test]
fn tables_stay_the_same_under_another_extractor() {
    let (dir, aside) = (common::tempdir(), common::tempdir());
    let db = options().prefix(DIRECTORIES).open(dir.path()).unwrap();
    (0..1000).for_each(|number| db.put(deep(number), "value").unwrap());
    db.compact().unwrap();
    let earlier = aside.path().join("earlier");
    db.checkpoint(&earlier).unwrap();
    drop(db);
    let reader = options().open_read_only(dir.path()).unwrap();
    (0..100).for_each(|number| assert!(reader.contains(deep(number)).unwrap()));
    let counted = reader.stats();
    drop(options().prefix(PrefixExtractor::until(b'/')).open(dir.path()).unwrap());
    reader.refresh().unwrap();
    assert_eq!(reader.stats().activity.lookups, counted.activity.lookups);
    assert_eq!(reader.stats().total(), counted.total());
    assert_eq!(reader.prefix(deep(5)).count(), 1);
    let files = CheckpointFiles { links: false, earlier: Some(&earlier) };
    let later = aside.path().join("later");
    reader.checkpoint(&later, files).unwrap();
    let inode = |dir: &Path| common::files_with(dir, "sst")[0].metadata().unwrap().ino();
    assert_eq!(inode(&later), inode(&earlier));
}
