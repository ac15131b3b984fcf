//! After every flush and compaction no filter denies a key of its table, neither in its file nor in the
//! open store, and each has the size for the exact number of distinct keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use criba::{
    Db, EntryKind, FilterInfo, FilterPolicy, Geometry, HashFunction, Options, Snapshot, Step,
    TableFile, TableStep, Verdict,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common;

/// Whether a filter of `keys` keys may have this shape.
type Shape<'a> = &'a dyn Fn(u64, Geometry) -> bool;

#[derive(Debug, Default)]
struct Probed {
    tables: u64,
    keys: u64,
    /// Of these, through the open store: the lookups that came to the table.
    through_the_store: u64,
    tombstones: u64,
    overwritten: u64,
    empty_keys: u64,
    absent: u64,
    denied: u64,
}

/// Probes the filter of every table with all its keys, and some absent ones.
fn ask(dir: &Path, db: &Db, shape: Shape<'_>, probed: &mut Probed) {
    let live: BTreeMap<u64, _> = db.tables().into_iter().map(|table| (table.id, table)).collect();
    let files = common::files_with(dir, "sst");
    assert_eq!(files.len(), live.len(), "a table too many or too few");
    for path in files {
        let table = TableFile::open(&path).unwrap();
        let properties = table.properties();
        let mut keys = BTreeSet::new();
        let (mut entries, mut tombstones) = (0, 0);
        for entry in table.entries() {
            let entry = entry.unwrap();
            assert_ne!(table.verdict(&entry.key), Verdict::No, "{:?}", entry.key);
            entries += 1;
            tombstones += u64::from(entry.kind == EntryKind::Delete);
            probed.empty_keys += u64::from(entry.key.is_empty());
            keys.insert(entry.key.to_vec());
        }
        assert_eq!(properties.keys, keys.len() as u64);
        assert_eq!((properties.entries, properties.tombstones), (entries, tombstones));
        let known = &live[&properties.id];
        assert_eq!((known.keys, known.entries), (properties.keys, entries));
        match table.filter() {
            FilterInfo::Active { geometry, predicted_rate, .. } => {
                assert!(shape(properties.keys, geometry), "{} keys: {geometry:?}", properties.keys);
                assert!((0.0..=1.0).contains(&predicted_rate));
            }
            other => panic!("{other:?}"),
        }
        for key in &keys {
            let explanation = db.explain(key).unwrap();
            let verdicts = explanation.steps.iter().filter_map(|step| match *step {
                Step::Table { id, step: TableStep::Probed { verdict, .. }, .. } => {
                    (id == properties.id).then_some(verdict)
                }
                _ => None,
            });
            for verdict in verdicts {
                assert_eq!(verdict, Verdict::Maybe, "table {}: {key:?}", properties.id);
                probed.through_the_store += 1;
            }
        }
        probed.tables += 1;
        probed.keys += properties.keys;
        probed.tombstones += tombstones;
        probed.overwritten += entries - properties.keys;
        for number in 0..20_u32 {
            probed.absent += 1;
            let absent = [b"absent ".to_vec(), number.to_be_bytes().to_vec()].concat();
            probed.denied += u64::from(table.verdict(absent) == Verdict::No);
        }
    }
}

/// The rule in the documentation of `FilterPolicy`.
fn with_best_k(keys: u64, m: f64) -> Geometry {
    let k = (m / keys as f64 * std::f64::consts::LN_2).round().max(1.0);
    Geometry { m: m as u64, k: k as u32, wide: 0 }
}

fn with_bits(keys: u64, bits: f64) -> Geometry {
    with_best_k(keys, (keys as f64 * bits).ceil())
}

/// The textbook's shape, or more bits in a small filter.
fn delivers(rate: f64, keys: u64, shape: Geometry) -> bool {
    let m = (-(keys as f64) * rate.ln() / std::f64::consts::LN_2.powi(2)).ceil();
    let textbook = with_best_k(keys, m);
    shape.m >= textbook.m && Geometry { m: textbook.m, ..shape } == textbook
}

fn churn(policy: FilterPolicy, shape: Shape<'_>, seed: u64) -> Probed {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = Options::new()
        .background_threads(0)
        .filter(policy)
        .memtable_bytes(1 << 20)
        .table_bytes(3000)
        .level_base_bytes(500)
        .block_bytes(400)
        .vfs(common::HookVfs::without_syncs())
        .open(&dir)
        .unwrap();
    let mut probed = Probed::default();
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for round in 0..25 {
        for _ in 0..120 {
            let key = match rng.random_range(0..30) {
                0 => vec![],
                1 => vec![rng.random_range(0..3); rng.random_range(1..300)],
                _ => format!("{:05}", rng.random_range(0..2000)).into_bytes(),
            };
            if rng.random_range(0..3) == 0 {
                db.delete(key).unwrap();
            } else {
                db.put(key, vec![7; rng.random_range(0..20)]).unwrap();
            }
            if rng.random_range(0..60) == 0 {
                snapshots.push(db.snapshot()); // so that tables keep several versions
            }
        }
        db.flush().unwrap(); // and with it what compactions are due
        ask(&dir, &db, shape, &mut probed);
        if round % 6 == 5 {
            snapshots.drain(..snapshots.len() / 2);
            db.compact().unwrap();
            ask(&dir, &db, shape, &mut probed);
        }
    }
    let activity = db.stats().activity;
    assert_eq!(activity.tables_written, activity.filters_built);
    assert!(activity.compactions > 5);
    probed
}

#[test]
fn no_key_of_any_table_is_ever_denied() {
    let fixed = Geometry { m: 997, k: 4, wide: 0 };
    let classic = FilterPolicy::classic();
    let (bloom, ribbon) = (FilterPolicy::bloom(), FilterPolicy::ribbon());
    let any: Shape<'_> = &|_, _| true; // the size of these depends on the other tables
    let policies: [(FilterPolicy, Shape<'_>); 12] = [
        (classic, &|keys, shape| delivers(0.01, keys, shape)),
        (classic.with_rate(0.3), &|keys, shape| delivers(0.3, keys, shape)),
        (classic.with_rate(1e-6), &|keys, shape| delivers(1e-6, keys, shape)),
        (classic.with_bits_per_key(2.3), &|keys, shape| shape == with_bits(keys, 2.3)),
        (classic.with_bits_per_key(17.0), &|keys, shape| shape == with_bits(keys, 17.0)),
        (classic.with_geometry(997, 4), &move |_, shape| shape == fixed),
        (bloom, any),
        (bloom.with_rate(1e-4), any),
        (bloom.with_hash(HashFunction::MurmurHash2), any),
        (ribbon, any),
        (ribbon.with_bits_per_key(3.7), any),
        (ribbon.with_hash(HashFunction::MurmurHash2), any),
    ];
    let seed = 77;
    let mut keys = 0;
    for (number, (policy, geometry)) in policies.into_iter().enumerate() {
        let probed = churn(policy, geometry, seed + number as u64);
        println!("seed {}, {policy:?}: {probed:?}", seed + number as u64);
        assert!(probed.tombstones > 1000 && probed.overwritten > 50 && probed.empty_keys > 20);
        assert!(probed.denied > probed.absent / 4, "filters that deny nothing are no filters");
        assert!(probed.through_the_store > probed.keys / 2, "the store is probed, too");
        keys += probed.keys;
    }
    println!("{keys} keys probed for, none denied");
    assert!(keys > 200_000);
}

/// A shape fixed for few keys gets many: the filter works, and reports its rate.
#[test]
fn a_filter_whose_every_bit_is_set_passes_everything_and_is_accepted_again() {
    let dir = common::tempdir();
    let options = || {
        Options::new().background_threads(0).filter(FilterPolicy::classic().with_geometry(2500, 7))
    };
    let key = |i: u32| format!("key{i:05}");
    let check = |db: &Db| {
        let FilterInfo::Active { predicted_rate, .. } = db.tables()[0].filter else {
            panic!("{:?}", db.tables()[0].filter);
        };
        assert!(predicted_rate > 0.999_999, "{predicted_rate}");
        let before = db.stats().total();
        for i in 0..10_000 {
            assert_eq!(db.get(key(i)).unwrap().is_some(), i % 2 == 0);
        }
        let counts = db.stats().total() - before;
        assert_eq!((counts.true_negatives, counts.true_positives), (0, 5000));
    };
    let db = options().open(dir.path()).unwrap();
    for i in (0..10_000).step_by(2) {
        db.put(key(i), "v").unwrap();
    }
    db.flush().unwrap();
    check(&db);
    db.close().unwrap();
    check(&options().open(dir.path()).unwrap());
}
