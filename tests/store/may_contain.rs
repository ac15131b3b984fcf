//! `may_contain` does no I/O, never denies a present key, and denies most absent ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{self, HookVfs};
use criba::vfs::{CountingVfs, Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};
use criba::{Db, Error, FilterKind, FilterPolicy, Membership, Options};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn calls(vfs: &CountingVfs) -> u64 {
    let counts = vfs.counts();
    let of = |kind| Operation::ALL.into_iter().map(move |op| counts.of(kind, op).calls);
    FileKind::ALL.into_iter().flat_map(of).sum()
}

fn options() -> Options {
    common::options().background_threads(0).cache_bytes(0).seed(3)
}

/// Random puts and deletes beside a model, with flushes and compactions, without a block cache, with closed
/// table files.
#[test]
fn no_call_to_the_file_layer_and_never_a_no_for_a_key_that_is_there() {
    let policies = [
        FilterPolicy::default(),
        FilterPolicy::ribbon(),
        FilterPolicy::classic(),
        FilterPolicy::none(),
    ];
    for (number, policy) in policies.into_iter().enumerate() {
        let seed = 40 + number as u64;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let parent = common::tempdir();
        let vfs = Arc::new(CountingVfs::new(HookVfs::without_syncs()));
        let db = options()
            .filter(policy)
            .max_open_files(0)
            .memtable_bytes(64 << 10)
            .table_bytes(8 << 10)
            .level_base_bytes(16 << 10)
            .vfs(Arc::clone(&vfs))
            .open(parent.path().join("store"))
            .unwrap();
        let mut model: BTreeSet<u32> = BTreeSet::new();
        let key = |number: u32| format!("key {number:06}");
        let (mut present, mut absent, mut denied) = (0, 0, 0);
        for round in 0..30 {
            for _ in 0..400 {
                let number = rng.random_range(0..6000);
                if rng.random_range(0..4) == 0 {
                    db.delete(key(number)).unwrap();
                    model.remove(&number);
                } else {
                    db.put(key(number), [0; 20]).unwrap();
                    model.insert(number);
                }
            }
            if round % 10 == 9 {
                db.compact().unwrap();
            }
            let (before, stats) = (calls(&vfs), db.stats());
            for number in 0..6000 {
                let may = db.may_contain(key(number)).unwrap();
                if model.contains(&number) {
                    assert_eq!(may, Membership::Maybe, "{number}, seed {seed}");
                    present += 1;
                } else {
                    absent += 1;
                    denied += u64::from(may == Membership::No);
                }
            }
            assert_eq!(calls(&vfs), before, "a call to the file layer");
            assert_eq!(db.stats(), stats, "it is no lookup, and counts nothing");
        }
        println!(
            "seed {seed}, {policy}: {present} present, {denied} of {absent} absent ones denied"
        );
        assert!(present > 10_000 && absent > 10_000);
        assert!(db.stats().activity.compactions > 3);
        if number == 3 {
            assert!(denied < absent / 2, "without filters only ranges and memtables deny");
        } else {
            // Tombstones in tables are held, and so are maybes.
            assert!(denied > absent * 7 / 10, "{denied} of {absent}");
        }
    }
}

#[test]
fn most_keys_that_never_were_are_denied() {
    for kind in [FilterKind::Bloom, FilterKind::Ribbon] {
        let parent = common::tempdir();
        let policy = FilterPolicy::rate(0.01).with_kind(kind);
        let options = options().filter(policy).vfs(HookVfs::without_syncs());
        let db = options.open(parent.path().join("store")).unwrap();
        for number in 0..20_000_u32 {
            db.put((2 * number).to_be_bytes(), "").unwrap();
        }
        db.flush().unwrap();
        let maybe = |number: &u32| {
            db.may_contain((2 * number + 1).to_be_bytes()).unwrap() == Membership::Maybe
        };
        let passed = (0..20_000_u32).filter(maybe).count();
        println!("{kind}: {passed} of 20,000");
        assert!((130..=270).contains(&passed), "{kind}: {passed}"); // 200, five deviations
    }
}

/// In a memtable, active or sealed, the newest change decides.
#[test]
fn the_newest_change_in_memory_decides() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let ask = |db: &Db, key: &str| db.may_contain(key).unwrap();
    let db = options().vfs(HookVfs::without_syncs()).open(&dir).unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, "in a table").unwrap();
    }
    db.flush().unwrap();
    db.delete("b").unwrap();
    assert_eq!(["a", "b", "c"].map(|key| ask(&db, key)), {
        use Membership::{Maybe, No};
        [Maybe, No, Maybe]
    });
    db.put("b", "again").unwrap();
    assert_eq!(ask(&db, "b"), Membership::Maybe);
    db.delete("b").unwrap();
    db.flush().unwrap();
    // In a table a filter does not tell a tombstone from a value.
    assert_eq!(ask(&db, "b"), Membership::Maybe);
    assert_eq!(ask(&db, "out of every range"), Membership::No);
    let other = db.clone();
    db.close().unwrap();
    assert!(matches!(other.may_contain("a"), Err(Error::Closed)));
    // Degraded or not, what is ignored answers "maybe".
    let db = options().ignore_filters(true).vfs(HookVfs::without_syncs()).open(&dir).unwrap();
    assert_eq!(ask(&db, "aa"), Membership::Maybe);
    assert_eq!(ask(&db, "d"), Membership::No);
}

/// A sealed memtable whose flush fails is probed too.
#[test]
fn sealed_memtables_are_probed() {
    let parent = common::tempdir();
    let vfs = FaultVfs::new(Arc::new(RealVfs));
    let rule = FaultRule::new(Fault::NoSpace).kinds([FileKind::Table]);
    vfs.add(rule.operations([Operation::Create]).from_then_on());
    let db = options().vfs(Arc::new(vfs)).open(parent.path().join("store")).unwrap();
    db.put("a", "").unwrap();
    db.delete("b").unwrap();
    assert!(db.flush().is_err());
    assert!(db.explain("a").unwrap().to_string().contains("sealed memtable 1: holds the key"));
    assert_eq!(db.may_contain("a").unwrap(), Membership::Maybe);
    assert_eq!(db.may_contain("b").unwrap(), Membership::No);
    assert_eq!(db.may_contain("c").unwrap(), Membership::No);
    db.delete("a").unwrap();
    assert_eq!(db.may_contain("a").unwrap(), Membership::No, "the newer one goes first");
}
