//! Filters in files: saved atomically, loaded, and mapped by two processes at once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use criba_filter::{
    Bloom, Error, FilterKind, FilterSize, Hashing, ScalableBloom, ShardedBloom, StaticFilter,
};

const PATH: &str = "CRIBA_TEST_MAPPED_FILTER";
const KEYS: u64 = 500_000;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_saved_is_loaded_and_nothing_else_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("filter");
    let mut bloom = Bloom::with_rate(100, 0.01).unwrap();
    bloom.insert("one");
    bloom.save(&path).unwrap();
    bloom.insert("two");
    bloom.save(&path).unwrap(); // over the first
    assert_eq!(Bloom::load(&path).unwrap().to_bytes(), bloom.to_bytes());
    assert_eq!(names(dir.path()), ["filter"]);

    let mut scalable = ScalableBloom::with_rate(10, 0.01).unwrap();
    scalable.extend((0..100_u32).map(u32::to_le_bytes));
    scalable.save(&path).unwrap();
    assert_eq!(ScalableBloom::load(&path).unwrap().to_bytes(), scalable.to_bytes());
    let sharded = ShardedBloom::with_rate(4, 100, 0.01).unwrap();
    sharded.insert("one");
    sharded.save(&path).unwrap();
    assert_eq!(ShardedBloom::load(&path).unwrap().to_bytes(), sharded.to_bytes());
    assert!(Bloom::load(&path).is_err(), "of another form");

    // What cannot be saved leaves nothing, and what was there as it was.
    let taken = dir.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    assert!(matches!(bloom.save(&taken), Err(Error::Io { .. })));
    assert!(matches!(bloom.save(dir.path().join("none/filter")), Err(Error::Io { .. })));
    assert!(matches!(bloom.save("/"), Err(Error::Io { .. })));
    assert_eq!(names(dir.path()), ["filter", "taken"]);
}

#[test]
#[expect(unsafe_code, reason = "the file is this test's own")]
fn what_is_no_filter_is_neither_loaded_nor_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("filter");
    let mut bloom = Bloom::with_rate(1000, 0.01).unwrap();
    bloom.insert("one");
    let whole = bloom.to_bytes();
    let mut flipped = whole.clone();
    flipped[700] ^= 1;
    for bytes in [&[][..], &whole[..10], &whole[..whole.len() - 1], &flipped] {
        std::fs::write(&path, bytes).unwrap();
        let loaded = Bloom::load(&path).map(|_| ());
        // SAFETY: no other code uses the file.
        let mapped = unsafe { Bloom::map(&path) }.map(|_| ());
        for refused in [loaded, mapped] {
            match refused {
                Err(Error::Corrupt { path: named, .. }) => assert_eq!(named, path),
                other => panic!("{} bytes: {other:?}", bytes.len()),
            }
        }
    }
    for path in [dir.path(), Path::new("/dev/zero"), &dir.path().join("none")] {
        assert!(Bloom::load(path).is_err());
        // SAFETY: it is no file.
        assert!(unsafe { Bloom::map(path) }.is_err());
    }
}

/// A mapped filter answers like the loaded one, and a save over its file does not disturb it. Its clone has
/// its own memory, and takes inserts.
#[test]
#[expect(unsafe_code, reason = "the file is this test's own")]
fn a_mapped_filter_outlives_a_save_over_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("filter");
    let mut bloom = Bloom::with_rate(1000, 0.01).unwrap();
    bloom.extend((0..1000_u32).map(u32::to_le_bytes));
    bloom.save(&path).unwrap();
    // SAFETY: no process changes the file; a save replaces it by another.
    let mapped = unsafe { Bloom::map(&path) }.unwrap();
    bloom.empty_like().unwrap().save(&path).unwrap();
    assert_eq!(mapped.to_bytes(), bloom.to_bytes());
    assert!((0..1000_u32).all(|i| mapped.contains(i.to_le_bytes())));
    let mut copy = Bloom::clone(&mapped);
    copy.insert("more");
    assert!(copy.contains("more"));
    assert_eq!(mapped.to_bytes(), bloom.to_bytes());
    assert_eq!(Bloom::load(&path).unwrap().bits_set(), 0);
}

/// The answers of a filter for many keys as one number. Half are present, and none of these is denied.
fn verdicts(filter: &StaticFilter) -> u64 {
    let mut digest = 0_u64;
    for i in 0..2 * KEYS {
        let verdict = filter.contains(i.to_le_bytes());
        assert!(verdict || i >= KEYS, "key {i} denied");
        digest = digest.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(verdict));
    }
    digest
}

/// The kilobytes of a mapped file that are resident here, and those that another process shares.
#[cfg(target_os = "linux")]
fn resident_and_shared(path: &Path) -> (u64, u64) {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(path.to_str().unwrap()));
    let mut field = |name: &str| -> u64 {
        let line = lines.find_map(|line| line.strip_prefix(name)).expect("mapped");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let resident = field("Rss:");
    (resident, field("Shared_Clean:") + field("Shared_Dirty:"))
}

/// The other process: maps the file, looks keys up, and prints the answers.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by the test below, in a process of its own"]
#[expect(unsafe_code, reason = "the file is that test's own")]
fn the_other_process() {
    let path = PathBuf::from(std::env::var_os(PATH).expect("run by the test below"));
    // SAFETY: the test that runs this one does not touch the file.
    let filter = unsafe { StaticFilter::map(&path) }.unwrap();
    let digest = verdicts(&filter);
    let (resident, shared) = resident_and_shared(&path);
    println!("\nseen: {digest} {resident} {shared}");
}

#[cfg(target_os = "linux")]
#[test]
#[expect(unsafe_code, reason = "the file is this test's own")]
fn two_processes_share_one_map() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("filter").canonicalize().unwrap_or(dir.path().join("filter"));
    for kind in [FilterKind::Bloom, FilterKind::Blocked, FilterKind::Ribbon] {
        let keys = (0..KEYS).map(u64::to_le_bytes);
        let size = FilterSize::Rate(0.01);
        let hashing = Hashing::keyed(*b"sixteen bytes...");
        let built = StaticFilter::build(kind, size, hashing, keys).unwrap();
        built.save(&path).unwrap();
        let digest = verdicts(&built);
        // SAFETY: this test does not change the file while it is mapped, and no other code uses it.
        let mapped = unsafe { StaticFilter::map(&path) }.unwrap();
        assert_eq!(verdicts(&mapped), digest);

        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "files::the_other_process", "--ignored", "--nocapture"])
            .env(PATH, &path);
        let output = child.stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let output = String::from_utf8(output.stdout).unwrap();
        let seen = output.lines().find_map(|line| line.strip_prefix("seen: ")).expect("its report");
        let seen: Vec<u64> = seen.split(' ').map(|number| number.parse().unwrap()).collect();
        let [digest_there, resident, shared] = seen[..] else { panic!("{seen:?}") };
        println!(
            "{kind}: {} keys probed in two processes, equal verdicts; {resident} kB resident there, \
             {shared} kB of them shared",
            2 * KEYS
        );
        assert_eq!(digest_there, digest);
        assert!(resident as usize >= built.bytes() / 1024);
        assert_eq!(shared, resident, "one copy for both");
    }
}

#[cfg(not(target_os = "linux"))]
#[test]
fn two_processes_share_one_map() {
    crate::skip::skip("no /proc/self/smaps");
}
