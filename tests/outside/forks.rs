//! A forked child owns nothing of a store that its parent opened: each call fails with `Forked`, no drop writes,
//! removes, unlocks or waits, and the store of the parent goes on.
//!
//! Each test runs in a process of its own, which has few threads besides those of the test. A child ends by
//! `_exit`, or after `SECONDS` by an alarm: a call that hangs fails the test.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use criba::vfs::{FileKind, Operation};
use criba::{
    Batch, CheckpointFiles, Compression, Db, Durability, Error, Expiry, FilterPolicy, Options,
    ReadOnlyDb, Snapshot, Stats, WeakDb,
};

use crate::common::{self, HookVfs, contents};

/// The variable that gives the forking process its work and its directory.
const WORK: &str = "CRIBA_TEST_FORKS";
const SECONDS: u32 = 20;
const SIGALRM: i32 = 14;
const PUTS: u32 = 1000;

/// Not a test: the process that opens stores and forks.
#[test]
#[ignore = "run by the tests that fork"]
fn a_forking_process() {
    let work = std::env::var(WORK).expect("run by the tests that fork");
    let (what, dir) = work.split_once('|').unwrap();
    end_after(3 * SECONDS);
    let dir = Path::new(dir);
    match what {
        "drop" => [0, 2].into_iter().for_each(|threads| drop_a_copy(dir, threads)),
        "ingest" => [0, 2].into_iter().for_each(|threads| fork_while_ingesting(dir, threads)),
        "call" => [0, 2].into_iter().for_each(|threads| call_everything(dir, threads)),
        "use" => [0, 2].into_iter().for_each(|threads| use_what_reads(dir, threads)),
        "daemon 0" => daemon(dir, 0),
        "daemon 2" => daemon(dir, 2),
        "threads" => beside_threads(dir),
        "layer" => in_a_file_layer(dir),
        "clone" => [0, 2].into_iter().for_each(|threads| without_handlers(dir, threads)),
        "again" => in_a_child_of_a_child(dir),
        other => panic!("{WORK}: {other}?"),
    }
    println!("\nall done");
}

/// Runs the work in a process of its own, and returns what it and its children printed.
fn forking(what: &str) -> String {
    let dir = common::tempdir();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "forks::a_forking_process", "--ignored", "--nocapture"])
        .env(WORK, format!("{what}|{}", dir.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    // Up to the end of the last child.
    process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let status = process.wait().unwrap();
    println!("{said}");
    assert!(status.signal() != Some(SIGALRM), "{what}: it hangs");
    assert!(status.success(), "{what}: {status}");
    assert!(said.contains("\nall done\n"), "{what}: {said}");
    said
}

#[expect(unsafe_code, reason = "the standard library has no alarm")]
fn end_after(seconds: u32) {
    // SAFETY: it changes no memory.
    unsafe { libc::alarm(seconds) };
}

#[expect(unsafe_code, reason = "the standard library has no fork")]
fn fork() -> i32 {
    // SAFETY: the child calls what is tested, and `_exit`.
    unsafe { libc::fork() }
}

/// A fork that runs no handler of `pthread_atfork`.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library has no clone")]
fn raw_clone() -> i32 {
    // SAFETY: as `fork`; the child shares no memory with the parent.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

#[cfg(not(target_os = "linux"))]
use self::fork as raw_clone;

#[expect(unsafe_code, reason = "a child must not end as a test does")]
fn exit(status: i32) -> ! {
    // SAFETY: it does not return.
    unsafe { libc::_exit(status) }
}

/// In the child, runs `body` and ends. Returns the child.
fn child_of(fork: fn() -> i32, body: impl FnOnce()) -> i32 {
    let child = fork();
    if child == 0 {
        end_after(SECONDS);
        let done = catch_unwind(AssertUnwindSafe(body));
        exit(i32::from(done.is_err()));
    }
    assert!(child > 0, "no fork");
    child
}

#[expect(unsafe_code, reason = "the child is none of the standard library's")]
fn wait_for(child: i32) {
    let mut status = 0;
    // SAFETY: `status` is there for the result.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    let status = std::process::ExitStatus::from_raw(status);
    assert!(status.signal() != Some(SIGALRM), "the child hangs");
    assert!(status.success(), "the child: {status}");
}

fn in_child(body: impl FnOnce()) {
    wait_for(child_of(fork, body));
}

/// Waits in a child until the process that forked it has ended.
#[expect(unsafe_code, reason = "the standard library has no parents")]
fn wait_for_the_end_of(parent: u32) {
    // SAFETY: it reads a number of the system.
    while unsafe { libc::getppid() } as u32 == parent {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn options(threads: usize) -> Options {
    common::options().background_threads(threads).memtable_bytes(16 << 10)
}

fn key(number: u32) -> String {
    format!("key {number:06}")
}

/// As puts, each with a sync of its own.
fn put_synced(db: &Db, numbers: std::ops::Range<u32>) {
    numbers.for_each(|n| db.put_with(key(n), n.to_be_bytes(), Durability::Synced).unwrap());
}

fn count(db: &Db) -> usize {
    db.keys().fold(0, |sum, key| key.map(|_| sum + 1).unwrap())
}

/// The puts that a copy of the files has, as after a power failure.
fn count_after_a_crash(dir: &Path) -> usize {
    let copy = dir.with_extension("copy");
    common::copy_dir(dir, &copy);
    let db = options(0).open(&copy).unwrap();
    let found = count(&db);
    drop(db);
    std::fs::remove_dir_all(copy).unwrap();
    found
}

fn is_locked(dir: &Path) -> bool {
    matches!(Db::open(dir), Err(Error::Locked { .. }))
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "callers have the value of a call")]
fn assert_forked<T: Debug>(call: &str, result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Forked)), "{call}: {result:?}");
}

/// Calls each method of the list, which must fail. Returns the names.
macro_rules! refused {
    ($store:expr, $($name:ident($($arg:expr),*))*) => {{
        $(assert_forked(stringify!($name), $store.$name($($arg),*));)*
        [$(stringify!($name)),*]
    }};
}

fn refuses_writes(db: &Db, aside: &Path) -> Vec<&'static str> {
    let (none, synced) = (None, Durability::Synced);
    refused!(db,
        put("k", "v") put_with("k", "v", synced) delete("k") delete_with("k", synced)
        write(Batch::new()) write_with(Batch::new(), synced) sync()
        insert_if_absent("k", "v") insert_if_absent_with("k", "v", synced)
        insert_many_if_absent([("k", "v")]) insert_many_if_absent_with([("k", "v")], synced)
        compare_and_swap("k", none, none) compare_and_swap_with("k", none, none, synced)
        flush() compact() compact_rewriting(9) wait_until_settled() set_policy(FilterPolicy::default())
        rebuild_filters(&FilterPolicy::ribbon()) set_filter_memory(Some(0)) checkpoint(aside)
        estimate_compression(4096)
        disk_bytes() set_auto_compaction(false) ingest([Ok::<_, Error>(("k", "v"))])
        put_with_expiry("k", "v", Expiry::Never) insert_if_absent_until("k", "v", SystemTime::now())
        ingest_expiring([Ok::<_, Error>(("k", "v", Expiry::Never))])
        transact(1, |tx| tx.get("k")) transact_with(1, synced, |_| Ok::<_, Error>(()))
    )
    .into()
}

fn refuses_reads(store: &dyn criba::Reader) -> Vec<&'static str> {
    let called = refused!(store,
        get(b"k") get_with_expiry(b"k") get_many(&[b"k"]) explain(b"k") contains(b"k") may_contain(b"k")
        approximate_len(&..) first() last()
    );
    for mut range in [store.range(&..), store.prefix(b"k"), store.iter()] {
        assert_forked("next", range.next().unwrap());
        assert!(range.next().is_none() && range.next_back().is_none());
    }
    assert_forked("keys", store.keys().next_back().unwrap());
    assert_forked("snapshot", store.snapshot().clone().get("k"));
    [&called[..], &["range", "prefix", "iter", "keys", "snapshot"]].concat()
}

/// Calls all methods of a store but `close`. Returns the names.
fn refuses(db: &Db, aside: &Path) -> Vec<&'static str> {
    let mut called = refuses_writes(db, aside);
    called.extend(refuses_reads(db));
    called.extend(refuses_transactions(db));
    assert_eq!(db.stats(), Stats::default());
    assert_eq!(db.tables(), []);
    assert_eq!(db.memory().total(), 0);
    assert_eq!(db.advise().tables, 0);
    assert_eq!(db.policy(), FilterPolicy::default());
    assert!(!db.has_expiries() && db.now() > SystemTime::UNIX_EPOCH);
    assert_eq!((db.default_ttl(), db.compression()), (None, Compression::None));
    let _ = (format!("{db:?}"), db.recovery().to_string());
    assert_forked("upgrade", db.downgrade().upgrade().unwrap().get("k"));
    assert_eq!(db.prefix_extractor(), None);
    assert!(db.latencies().is_none());
    assert_eq!(db.latest_sequence_number(), 0);
    called.push("latest_sequence_number");
    assert!(db.openmetrics().contains("criba_memory_bytes{kind=\"cache\"} 0\n"));
    called.extend(["latencies", "openmetrics"]);
    called.extend(["stats", "tables", "memory", "advise", "policy", "recovery", "downgrade"]);
    called.extend([
        "prefix_extractor",
        "upgrade",
        "has_expiries",
        "default_ttl",
        "compression",
        "now",
    ]);
    called
}

fn refuses_transactions(db: &Db) -> Vec<&'static str> {
    let mut transaction = db.transaction();
    transaction.put_expiring("m", "v", SystemTime::now()).put("k", "v").delete("l");
    assert_eq!(transaction.get("k").unwrap().unwrap(), "v");
    let mut called = refused!(transaction,
        get("a") contains("a") get_many(&["a"]) delete_range(..)
    )
    .to_vec();
    for mut range in [transaction.range(..), transaction.prefix("a")] {
        assert_forked("next", range.next().unwrap());
    }
    assert_forked("commit", transaction.commit(Durability::Buffered));
    assert_eq!(db.transaction().into_batch().len(), 0);
    called.extend([
        "transaction",
        "put",
        "put_expiring",
        "delete",
        "range",
        "prefix",
        "commit",
        "into_batch",
    ]);
    called
}

fn refuses_read_only(db: &ReadOnlyDb, aside: &Path) -> Vec<&'static str> {
    let mut called = refuses_reads(db);
    let files = CheckpointFiles::default();
    called.extend(refused!(db,
        refresh() checkpoint(aside, files) verify(|_, _| {}) disk_bytes() estimate_compression(4096)
    ));
    assert_ne!(db.store_id(), 0);
    assert_eq!(db.latest_sequence_number(), 0);
    called.extend(["store_id", "latest_sequence_number"]);
    called.extend(refuses_reads(&db.snapshot()));
    assert_eq!(db.stats(), Stats::default());
    assert_eq!(db.tables(), []);
    assert_eq!(db.memory().total(), 0);
    assert_eq!(db.advise().tables, 0);
    assert_eq!(db.policy(), FilterPolicy::default());
    let _ = (format!("{db:?}"), db.recovery().to_string());
    assert_eq!(db.prefix_extractor(), None);
    for page in [db.openmetrics(), db.openmetrics_of_files()] {
        assert!(page.contains("criba_memory_bytes{kind=\"cache\"} 0\n"));
    }
    called.extend(["stats", "tables", "memory", "advise", "policy"]);
    called.extend(["openmetrics", "openmetrics_of_files"]);
    assert!(!db.has_expiries() && db.now() > SystemTime::UNIX_EPOCH);
    assert_eq!((db.default_ttl(), db.compression()), (None, Compression::None));
    called.extend(["prefix_extractor", "has_expiries", "default_ttl", "compression", "now"]);
    called.extend(["recovery", "open_read_only"]);
    called
}

/// The public methods in a source file that take `self`.
fn methods(file: &str) -> BTreeSet<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../src/db").join(file);
    let source = std::fs::read_to_string(path).unwrap();
    let functions = source.split("\n    pub fn ").skip(1);
    let methods = functions.filter(|f| f.split_once(')').unwrap().0.contains("self"));
    methods.map(|f| f[..f.find(['(', '<']).unwrap()].to_owned()).collect()
}

fn assert_all_called(file: &str, called: &[&str]) {
    let called: BTreeSet<_> = called.iter().copied().collect();
    let missing: Vec<_> =
        methods(file).into_iter().filter(|name| !called.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{file}: not called: {missing:?}");
}

/// A child that drops its copy changes no file, and the parent's later puts are there after a crash.
fn drop_a_copy(dir: &Path, threads: usize) {
    let dir = &dir.join(format!("store {threads}"));
    // One log holds all puts.
    let db = options(threads).memtable_bytes(1 << 20).open(dir).unwrap();
    put_synced(&db, 0..1);
    if threads > 0 {
        // Half of the memtable is full, so the next log is made.
        db.put(key(0), vec![0; 600 << 10]).unwrap();
        put_synced(&db, 0..1);
        common::wait_until("the next log", || {
            let logs = common::files_with(dir, "log");
            let length = |log: &PathBuf| std::fs::metadata(log).unwrap().len() as usize;
            logs.len() == 2 && logs.iter().all(|log| length(log) >= common::LOG_HEADER_BYTES)
        });
    }
    let (mut may_go, go) = std::io::pipe().unwrap();
    let (mut go, copy) = (Some(go), Some(db.clone()));
    let child = child_of(fork, || {
        drop(go.take());
        may_go.read_to_end(&mut Vec::new()).unwrap();
        // All copies that the child has.
        drop(copy);
        drop(take(&db));
    });
    put_synced(&db, 1..PUTS + 1);
    let before = contents(dir);
    drop(go);
    wait_for(child);
    let left = count_after_a_crash(dir);
    assert_eq!(left, PUTS as usize + 1, "{threads} threads: synced puts");
    assert!(contents(dir) == before, "{threads} threads: the drop changed the files");
    assert!(is_locked(dir), "{threads} threads: the drop unlocked the store");
    put_synced(&db, PUTS + 1..PUTS + 100);
    db.flush().unwrap();
    assert_eq!(count(&db), PUTS as usize + 100);
    db.close().unwrap();
    assert!(!is_locked(dir));
}

/// The value behind a reference, which the parent uses in its own process.
#[expect(unsafe_code, reason = "a child drops what its parent still uses")]
fn take<T>(value: &T) -> T {
    // SAFETY: the child ends without another use of the reference.
    unsafe { std::ptr::read(value) }
}

/// The iterator of an ingest forks. The child has a copy of the unfinished tables; only the parent goes on.
fn fork_while_ingesting(dir: &Path, threads: usize) {
    const KEYS: u32 = 20_000;
    let dir = &dir.join(format!("store {threads}"));
    let db = options(threads).table_bytes(32 << 10).open(dir).unwrap();
    put_synced(&db, 0..10);
    let fork_at = |number| {
        let before = contents(dir);
        let child = fork();
        if child > 0 {
            wait_for(child);
            assert!(contents(dir) == before, "{threads} threads, pair {number}");
            return false;
        }
        end_after(SECONDS);
        true
    };
    let mut is_child = false;
    let ingested = db.ingest((0..KEYS).map(|number| {
        if !is_child && number % 5000 == 77 {
            is_child = fork_at(number);
        }
        Ok::<_, Error>((key(number), "ingested"))
    }));
    if is_child {
        assert_forked("ingest", ingested);
        exit(0);
    }
    assert_eq!(ingested.unwrap(), u64::from(KEYS));
    assert_eq!(count(&db), KEYS as usize);
    db.close().unwrap();
    assert!(criba::verify(dir).unwrap().findings.is_empty());
}

fn call_everything(dir: &Path, threads: usize) {
    let (aside, dir) = (dir.join("aside"), &dir.join(format!("store {threads}")));
    let db = options(threads).open(dir).unwrap();
    put_synced(&db, 0..PUTS);
    db.wait_until_settled().unwrap();
    let before = contents(dir);
    for ends in ["drop", "close", "flush"] {
        in_child(|| {
            let mut called = refuses(&db, &aside);
            match ends {
                "close" => assert_forked("close", take(&db).close()),
                "flush" => assert_forked("flush", db.flush()),
                _ => drop(take(&db)),
            }
            called.extend(["close", "open"]);
            assert_all_called("mod.rs", &called);
            assert_all_called("transaction.rs", &called);
            assert_all_called("ingest.rs", &called);
        });
        assert!(!aside.exists());
        assert!(contents(dir) == before, "{ends}, {threads} threads: a call changed the files");
    }
    // A child that runs another program does not count.
    assert!(Command::new("true").status().unwrap().success());
    put_synced(&db, PUTS..PUTS + 1);
    assert_eq!(count(&db), PUTS as usize + 1);
    assert_eq!(count_after_a_crash(dir), PUTS as usize + 1);
}

/// Iterators, snapshots and read-only stores of before the fork. They are the last that hold replaced tables.
fn use_what_reads(dir: &Path, threads: usize) {
    let dir = &dir.join(format!("store {threads}"));
    let db = options(threads).open(dir).unwrap();
    put_synced(&db, 0..PUTS);
    db.compact().unwrap();
    let read_only = Options::new().open_read_only(dir).unwrap();
    let (snapshot, seen) = (db.snapshot(), read_only.snapshot());
    let (mut begun, unused, mut keys) = (db.iter(), db.range("key".."z"), seen.keys());
    let (mut both, mut of_snapshot) = (read_only.iter(), snapshot.keys());
    assert!(begun.next().is_some() && begun.next_back().is_some() && keys.next().is_some());
    assert!(both.next().is_some() && both.next_back().is_some());
    // Other tables and filters: what the ranges hold is removed when the last of them is dropped.
    db.rebuild_filters(&FilterPolicy::bits_per_key(20.0)).unwrap();
    let with_filters = db.iter();
    put_synced(&db, PUTS..PUTS + 200);
    db.compact().unwrap();
    db.wait_until_settled().unwrap();
    let before = contents(dir);
    in_child(|| {
        assert_forked("next", take(&begun).next().unwrap());
        assert_forked("next_back", take(&unused).next_back().unwrap());
        assert_forked("next_back", take(&both).next_back().unwrap());
        assert_forked("next", take(&keys).next().unwrap());
        assert_forked("next_back", take(&of_snapshot).next_back().unwrap());
        drop(take(&with_filters));
        let mut called = refuses_reads(&snapshot);
        assert_all_called("snapshot.rs", &called);
        refuses_reads(&seen);
        called.extend(refuses_read_only(&read_only, &dir.with_extension("aside")));
        assert_all_called("read_only.rs", &called);
        assert!(called.contains(&"verify"), "it stands in src/offline/verify.rs");
        let _ = format!("{snapshot:?} {seen:?} {read_only:?}");
        drop((take(&snapshot), take(&seen), take(&read_only), take(&db)));
    });
    assert!(contents(dir) == before, "{threads} threads: the child changed the files");
    // The parent reads on.
    assert_eq!(begun.count(), PUTS as usize - 2);
    assert_eq!(unused.count(), PUTS as usize);
    assert_eq!(of_snapshot.by_ref().count(), PUTS as usize);
    assert_eq!(both.by_ref().count(), PUTS as usize - 2);
    assert_eq!(with_filters.count(), PUTS as usize);
    assert_eq!(count(&db), PUTS as usize + 200);
    assert!(read_only.refresh().unwrap());
    db.close().unwrap();
    // The snapshot is alive.
    assert!(is_locked(dir));
    drop((snapshot, of_snapshot));
    assert!(!is_locked(dir));
}

/// The parent opens the store and ends. The child uses its copy, drops it, and opens the store anew.
fn daemon(dir: &Path, threads: usize) {
    let dir = &dir.join("store");
    let db = options(threads).open(dir).unwrap();
    put_synced(&db, 0..PUTS);
    let (parent, snapshot) = (std::process::id(), db.snapshot());
    if fork() != 0 {
        exit(0);
    }
    end_after(SECONDS);
    wait_for_the_end_of(parent);
    for number in 0..PUTS {
        assert_forked("put", db.put(key(number), [0; 100]));
    }
    refuses(&db, Path::new("aside"));
    assert!(is_locked(dir), "the copy keeps the lock");
    drop(db);
    assert!(is_locked(dir), "the snapshot keeps the lock");
    drop(snapshot);
    let db = options(threads).open(dir).unwrap();
    assert_eq!(count(&db), PUTS as usize);
    put_synced(&db, PUTS..2 * PUTS);
    db.flush().unwrap();
    db.close().unwrap();
}

/// Forks while other threads read, write, flush, scan, and begin and end.
fn beside_threads(dir: &Path) {
    let (aside, own, dir) = (dir.join("aside"), dir.join("own"), &dir.join("store"));
    let db = options(2).cache_bytes(64 << 10).open(dir).unwrap();
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (snapshot, read_only) = (db.snapshot(), Options::new().open_read_only(dir));
    let read_only = read_only.unwrap();
    let going = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let numbers = (0..).take_while(|_| going());
            numbers.for_each(|number| {
                let durability = [Durability::Buffered, Durability::Synced][number as usize % 2];
                db.put_with(key(number), [7; 200], durability).unwrap();
                acknowledged.store(u64::from(number) + 1, Ordering::SeqCst);
            });
        });
        scope.spawn(|| {
            while going() {
                db.get(key(5)).unwrap();
                db.get("absent").unwrap();
                let _ = (db.stats(), db.tables(), db.memory(), db.policy(), db.advise());
            }
        });
        scope.spawn(|| {
            while going() {
                let snapshot = db.snapshot();
                assert!(snapshot.iter().take(20).all(|item| item.is_ok()));
                read_only.refresh().unwrap();
            }
        });
        scope.spawn(|| {
            while going() {
                db.flush().unwrap();
                // A thread's counters have a number, which it takes and returns.
                std::thread::scope(|s| _ = s.spawn(|| db.get("absent").unwrap()));
            }
        });
        for round in 0..200_u64 {
            std::thread::sleep(Duration::from_micros(round * 37 % 2000));
            let mut range = db.iter();
            let mine = db.snapshot();
            in_child(|| {
                refuses(&db, &aside);
                refuses_reads(&snapshot);
                refuses_read_only(&read_only, &aside);
                assert_forked("next", range.next().unwrap());
                drop((take(&range), take(&mine), take(&snapshot), take(&read_only)));
                drop(take(&db));
                if round % 20 == 0 {
                    open_its_own(&own);
                }
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    let there = acknowledged.into_inner() as usize;
    println!("200 forks beside {there} puts");
    assert_eq!(count(&db), there);
    drop(read_only);
    drop(snapshot);
    db.close().unwrap();
    assert_eq!(count(&options(0).open(dir).unwrap()), there);
}

/// A child uses a store of its own, also in a new thread.
fn open_its_own(dir: &Path) {
    let db = options(1).open(dir).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| db.get("absent").unwrap());
    });
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
}

/// A file layer forks before each operation of a writer, which holds locks meanwhile.
fn in_a_file_layer(dir: &Path) {
    static STORE: OnceLock<WeakDb> = OnceLock::new();
    let (aside, dir) = (dir.join("aside"), dir.join("store"));
    let forks = Arc::new(AtomicU64::new(0));
    let (store, counted) = (dir.clone(), Arc::clone(&forks));
    let vfs = HookVfs::new(move |_: FileKind, operation: Operation| {
        let Some(db) = STORE.get().and_then(WeakDb::upgrade) else { return Ok(()) };
        let before = contents(&store);
        in_child(|| {
            refuses(&db, &aside);
            drop(take(&db));
        });
        assert!(contents(&store) == before, "{operation:?}: the child changed the files");
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let db = options(0).vfs(vfs).open(&dir).unwrap();
    STORE.set(db.downgrade()).unwrap();
    (0..200).for_each(|n| db.put(key(n), [7; 200]).unwrap());
    put_synced(&db, 200..210);
    db.compact().unwrap();
    assert_eq!(count(&db), 210);
    assert_eq!(count_after_a_crash(&dir), 210);
    let forks = forks.load(Ordering::Relaxed);
    println!("{forks} forks in operations");
    assert!(forks > 100);
}

/// A child of `clone` runs no handler. What would write or unlock compares the process too.
fn without_handlers(dir: &Path, threads: usize) {
    let dir = &dir.join(format!("store {threads}"));
    let db = options(threads).open(dir).unwrap();
    put_synced(&db, 0..PUTS);
    db.wait_until_settled().unwrap();
    put_synced(&db, PUTS..PUTS + 10);
    let snapshot: Snapshot = db.snapshot();
    let before = contents(dir);
    for ends in ["flush", "compact", "close", "drop"] {
        wait_for(child_of(raw_clone, || match ends {
            "flush" => assert_forked("flush", db.flush()),
            "compact" => assert_forked("compact", db.compact()),
            "close" => assert_forked("close", take(&db).close()),
            _ => drop((take(&snapshot), take(&db))),
        }));
        assert!(contents(dir) == before, "{ends}: the child changed the files");
        assert!(is_locked(dir), "{ends}: the child unlocked the store");
    }
    assert_eq!(count_after_a_crash(dir), PUTS as usize + 10);
}

/// A store belongs to the process that opened it, at every depth.
fn in_a_child_of_a_child(dir: &Path) {
    let (aside, first) = (dir.join("aside"), Db::open(dir.join("first")).unwrap());
    in_child(|| {
        let second = Db::open(dir.join("second")).unwrap();
        refuses(&first, &aside);
        second.put("key", "value").unwrap();
        in_child(|| {
            refuses(&first, &aside);
            refuses(&second, &aside);
            drop((take(&first), take(&second)));
        });
        second.put("key", "value").unwrap();
        second.close().unwrap();
    });
    first.put("key", "value").unwrap();
    first.close().unwrap();
}

#[test]
fn a_child_that_drops_its_copy_takes_no_synced_put_and_no_lock() {
    forking("drop");
}

#[test]
fn each_call_in_a_child_is_refused_and_changes_nothing() {
    forking("call");
}

#[test]
fn a_fork_within_an_ingest_leaves_its_tables_to_the_parent() {
    forking("ingest");
}

#[test]
fn iterators_and_snapshots_are_refused_in_a_child_and_removed_by_no_drop() {
    forking("use");
}

#[test]
fn a_daemon_is_refused_and_opens_the_store_anew() {
    forking("daemon 0");
    forking("daemon 2");
}

#[test]
fn a_fork_beside_working_threads_hangs_in_no_call() {
    forking("threads");
}

#[test]
fn a_fork_within_each_operation_of_a_writer_changes_nothing() {
    forking("layer");
}

#[test]
fn a_child_without_handlers_writes_and_unlocks_nothing() {
    forking("clone");
}

#[test]
fn a_store_belongs_to_the_process_that_opened_it() {
    forking("again");
}
