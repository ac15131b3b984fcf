//! The memory that a store reports is what it takes, and a limit refuses what needs more.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criba::vfs::{FileKind, Operation, SimVfs};
use criba::{Db, Error, FilterPolicy, Options};

use crate::common::{self, HookVfs, contents};

fn options() -> Options {
    Options::new()
        .background_threads(0)
        .auto_compaction(false)
        .cache_bytes(0)
        .memtable_bytes(1 << 20)
}

fn key(number: u64, is_path: bool) -> Vec<u8> {
    let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    if is_path {
        let (group, package) = (number % 40, number % 70);
        format!("usr/share/{group:02}/package/{package:02}/{number:016x}").into_bytes()
    } else {
        number.to_be_bytes().to_vec()
    }
}

fn fill(db: &Db, keys: u64, is_path: bool) {
    for number in 0..keys {
        db.put(key(number, is_path), [7; 100]).unwrap();
    }
    db.flush().unwrap();
}

fn near(said: u64, taken: i64, what: &str) {
    println!("{what}: {said} bytes said, {taken} taken");
    let ratio = said as f64 / taken as f64;
    assert!((0.9..1.1).contains(&ratio), "{what}: {said} of {taken}");
}

/// On a simulated disk no memory is mapped, so the allocator sees all of it.
#[test]
fn the_bytes_of_each_kind_are_those_allocated() {
    for (is_path, block_bytes, policy) in [
        (false, 256, FilterPolicy::none()), // nearly all is indexes
        (true, 256, FilterPolicy::none()),
        (false, 4096, FilterPolicy::bits_per_key(12.0)), // nearly all is filters
        (true, 512, FilterPolicy::ribbon()),
    ] {
        let vfs = Arc::new(SimVfs::new());
        let options = || options().block_bytes(block_bytes).filter(policy).vfs(Arc::clone(&vfs));
        let dir = Path::new("/store");
        let db = options().open(dir).unwrap();
        fill(&db, 100_000, is_path);
        db.close().unwrap();
        // The files of this disk are memory, too: another opening leaves as many bytes of them.
        options().open(dir).unwrap().close().unwrap();

        let mut opened = None;
        let cache = 64 << 20;
        let open = || opened = Some(options().open(dir).unwrap());
        let taken = allocation_counter::measure(open).bytes_current;
        let db = opened.take().unwrap();
        let memory = db.memory();
        assert_eq!((memory.memtables, memory.cache, memory.limit), (0, 0, None));
        near(memory.total(), taken, &format!("{policy} {block_bytes} {is_path}: {memory:?}"));
        db.close().unwrap();

        let db = options().cache_bytes(cache).open(dir).unwrap();
        let read = || {
            for number in 0..100_000 {
                assert!(db.get(key(number, is_path)).unwrap().is_some());
            }
        };
        let taken = allocation_counter::measure(read).bytes_current;
        let cached = db.memory();
        assert_eq!((cached.indexes, cached.filters), (memory.indexes, memory.filters));
        // Each block was read once.
        let (blocks, length) = (db.stats().total().disk_reads, key(0, is_path).len() as u64);
        let ends = db.tables().len() as u64 * 8192; // properties, footer, the last page
        let bounds = blocks * 30..blocks * (30 + length) + ends;
        assert!(bounds.contains(&memory.indexes), "{blocks} blocks, {memory:?}");
        near(cached.cache, taken, &format!("{blocks} cached blocks of {block_bytes}"));
    }
}

/// (needed, memtables, filters, indexes, cache)
fn refusal(options: Options, dir: &Path) -> [u64; 5] {
    match options.open(dir).map(|_| ()).unwrap_err() {
        Error::MemoryLimit { needed, memtables, filters, indexes, cache, .. } => {
            [needed, memtables, filters, indexes, cache]
        }
        other => panic!("{other}"),
    }
}

/// As `options`, and the reads of tables.
fn counting_reads() -> (Options, Arc<AtomicU64>) {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let vfs = HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Table, Operation::Read) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    (options().cache_bytes(5000).vfs(vfs), reads)
}

#[test]
fn a_store_that_needs_more_than_the_limit_is_refused_unchanged() {
    let parent = common::tempdir();
    let (dir, copy) = (parent.path().join("store"), parent.path().join("copy"));
    let (options, reads) = counting_reads();
    let db = options.clone().open(&dir).unwrap();
    fill(&db, 30_000, false);
    let (tables, flushed) = (db.tables().len() as u64, db.memory());
    for number in 30_000..35_000 {
        db.put(key(number, false), [7; 100]).unwrap(); // into the log
    }
    db.close().unwrap();
    common::copy_dir(&dir, &copy);
    let files = contents(&dir);
    assert!(tables > 3 && flushed.memtables == 0);

    // What the log will add is not known yet, and no filter was read.
    let memtables = 3 << 20;
    let needs = |filters, indexes| {
        [memtables + filters + indexes + 5000, memtables, filters, indexes, 5000]
    };
    let before = needs(flushed.filters.resident, flushed.indexes);
    reads.store(0, Ordering::Relaxed);
    assert_eq!(refusal(options.clone().memory_limit(before[0] - 1), &dir), before);
    assert_eq!(reads.load(Ordering::Relaxed), tables);
    assert_eq!(refusal(options.clone().memory_limit(0), &dir), before);
    assert_eq!(contents(&dir), files);

    // With the table that the log becomes.
    let all = options.clone().open(&copy).unwrap().memory();
    let needed = needs(all.filters.resident, all.indexes);
    assert!(all.indexes > flushed.indexes && all.filters.resident > flushed.filters.resident);
    assert_eq!(refusal(options.clone().memory_limit(needed[0] - 1), &dir), needed);
    assert_eq!(contents(&dir), files, "the new table is gone");

    // Less of each kind fits.
    let less = options.clone().memory_limit(needed[0] - 4096);
    let fewer = needs(all.filters.resident - 4095, all.indexes);
    assert_eq!(refusal(less.clone().filter_memory(all.filters.resident - 4095), &dir), fewer);
    let fits = [
        less.clone().filter_memory(all.filters.resident - 4096),
        less.clone().cache_bytes(5000 - 4096),
        less.memtable_bytes((1 << 20) - 1366),
        options.clone().memory_limit(needed[0]),
    ];
    for options in fits {
        common::copy_dir(&dir, &copy);
        let db = options.open(&copy).unwrap();
        assert_eq!(db.get(key(34_999, false)).unwrap().unwrap(), [7; 100]);
        let memory = db.memory();
        assert!(memory.total() <= memory.limit.unwrap(), "{memory:?}");
    }

    let error = options.memory_limit(1).open(&dir).map(|_| ()).unwrap_err();
    let [needed, memtables, filters, indexes, cache] = before;
    let text = format!(
        "{}: {needed} bytes of memory are needed, memory_limit is 1: {memtables} for three memtables \
         (memtable_bytes), {filters} for filters (filter_memory), {indexes} for indexes (fewer after \
         compact with larger block_bytes), {cache} for cached blocks (cache_bytes)",
        dir.display()
    );
    assert_eq!(error.to_string(), text);
}

#[test]
fn where_no_store_fits_no_directory_is_made() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let limit = 3 << 20;
    let needed = [limit, limit, 0, 0, 0];
    assert_eq!(refusal(options().memory_limit(limit - 1), &dir), needed);
    assert!(!dir.exists());
    options().memory_limit(limit).open(&dir).unwrap();
}

#[test]
fn an_open_store_grows_beyond_the_limit_and_is_refused_the_next_time() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let options = || options().block_bytes(64).memtable_bytes(64 << 10);
    let limited = || options().memory_limit(300_000);
    let db = limited().open(&dir).unwrap();
    fill(&db, 10_000, true);
    let memory = db.memory();
    assert!(memory.total() > memory.limit.unwrap(), "{memory:?}");
    db.close().unwrap();
    let [needed, .., indexes, _] = refusal(limited(), &dir);
    assert_eq!(indexes, memory.indexes);
    let db = options().memory_limit(needed).open(&dir).unwrap();
    assert!(db.get(key(9_999, true)).unwrap().is_some());
}

#[test]
fn memtables_and_indexes_count_for_as_long_as_they_are_held() {
    let dir = common::tempdir();
    let db = options().cache_bytes(0).open(dir.path()).unwrap();
    for number in 0..4000 {
        db.put(key(number, false), [7; 100]).unwrap();
    }
    let memtables = db.memory().memtables;
    assert!((4000 * 108..1 << 20).contains(&memtables), "{memtables}");
    db.flush().unwrap();
    fill(&db, 4000, false);
    let two = db.memory();
    assert_eq!((two.memtables, db.tables().len()), (0, 2));
    let scan = db.prefix("");
    db.compact().unwrap();
    let held = db.memory();
    assert_eq!(
        held.indexes * 2,
        two.indexes * 3,
        "two old tables are held, and one of as many keys"
    );
    drop(scan);
    assert_eq!(db.memory().indexes * 2, two.indexes);
}
