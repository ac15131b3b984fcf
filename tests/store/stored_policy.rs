//! The filter policy and the prefix extractor belong to the store.

use std::path::Path;

use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, RealVfs};
use criba::{
    Db, Error, FilterInfo, FilterKind, FilterPolicy, HashFunction, Options, PrefixExtractor,
};

use crate::common::{copy_dir, tempdir, the_file};
use crate::recovery::checksum;

fn options() -> Options {
    Options::new().background_threads(0)
}

/// A hundred keys, in one more table.
fn fill(db: &Db, round: u32) {
    (0..100).for_each(|i| db.put(format!("{round}/{i}"), "value").unwrap());
    db.flush().unwrap();
}

fn filters(db: &Db) -> Vec<(FilterKind, HashFunction, Option<PrefixExtractor>)> {
    let of = |filter: &FilterInfo| match filter {
        FilterInfo::Active { kind, hash, extractor, .. } => (*kind, *hash, *extractor),
        other => panic!("{other:?}"),
    };
    db.tables().iter().map(|table| of(&table.filter)).collect()
}

#[test]
fn a_store_keeps_its_policy_and_its_extractor() {
    let dir = tempdir();
    let (policy, rows) = (FilterPolicy::ribbon().with_rate(0.002), PrefixExtractor::until(b'/'));
    let db = options().filter(policy).prefix(rows).open(dir.path()).unwrap();
    fill(&db, 0);
    db.close().unwrap();
    for round in 1..4 {
        let db = options().open(dir.path()).unwrap();
        assert_eq!(db.policy(), policy);
        fill(&db, round);
        db.compact().unwrap();
        let ribbon = (FilterKind::Ribbon, HashFunction::SipHash13, Some(rows));
        assert_eq!(filters(&db), [ribbon]);
        db.close().unwrap();
    }
}

#[test]
fn the_options_change_the_policy_before_open_returns_and_rebuild_nothing() {
    let (parent, dir, copy) = (tempdir(), "store", "copy");
    let [dir, copy] = [dir, copy].map(|name| parent.path().join(name));
    let db = options().open(&dir).unwrap();
    assert_eq!(db.policy(), FilterPolicy::bloom());
    fill(&db, 0);
    db.close().unwrap();
    let prefix = PrefixExtractor::fixed(2);
    let opened = options().filter(FilterPolicy::classic()).prefix(prefix).open(&dir).unwrap();
    copy_dir(&dir, &copy); // as a crash would leave it
    drop(opened);
    let db = options().open(&copy).unwrap();
    assert_eq!(db.policy(), FilterPolicy::classic());
    fill(&db, 1);
    let bloom = FilterKind::Bloom;
    let old = (bloom, HashFunction::SipHash13, None);
    assert_eq!(filters(&db), [(bloom, HashFunction::MurmurHash2, Some(prefix)), old]);
    assert_eq!(db.stats().activity.filters_rebuilt, 0);
    db.close().unwrap();

    let db = options().prefix(None).open(&copy).unwrap();
    assert_eq!(db.policy(), FilterPolicy::classic());
    db.compact().unwrap();
    assert_eq!(filters(&db), [(bloom, HashFunction::MurmurHash2, None)]);
}

#[test]
fn a_policy_that_is_set_or_rebuilt_by_is_the_stores() {
    let dir = tempdir();
    let db = options().open(dir.path()).unwrap();
    fill(&db, 0);
    db.set_policy(FilterPolicy::ribbon()).unwrap();
    let kinds = |db: &Db| filters(db).iter().map(|filter| filter.0).collect::<Vec<_>>();
    fill(&db, 1);
    assert_eq!(kinds(&db), [FilterKind::Ribbon, FilterKind::Bloom]);
    for wrong in [FilterPolicy::rate(2.0), FilterPolicy::bloom().with_kind(FilterKind::Blocked)] {
        let refused = db.set_policy(wrong);
        assert!(matches!(refused, Err(Error::InvalidOption { option: "filter", .. })), "{wrong}");
    }
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    assert_eq!(db.policy(), FilterPolicy::ribbon());
    db.rebuild_filters(&FilterPolicy::bloom()).unwrap();
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    assert_eq!(db.policy(), FilterPolicy::bloom());
    fill(&db, 2);
    assert_eq!(kinds(&db), [FilterKind::Bloom; 3]);
}

#[test]
fn a_policy_that_cannot_be_recorded_is_not_in_force() {
    let dir = tempdir();
    let vfs = std::sync::Arc::new(FaultVfs::new(std::sync::Arc::new(RealVfs)));
    let db = options().vfs(vfs.clone()).open(dir.path()).unwrap();
    vfs.add(FaultRule::new(Fault::Io).kinds([FileKind::Manifest]));
    let failed = db.set_policy(FilterPolicy::ribbon());
    assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
    assert_eq!(db.policy(), FilterPolicy::bloom());
    fill(&db, 0);
    assert_eq!(filters(&db)[0].0, FilterKind::Bloom);
    db.close().unwrap();
    assert_eq!(options().open(dir.path()).unwrap().policy(), FilterPolicy::bloom());
}

/// A newer criba may need a feature for its manifests, which this one then refuses.
#[test]
fn a_feature_that_is_not_known_is_unsupported_and_no_damage() {
    let dir = tempdir();
    options().open(dir.path()).unwrap().close().unwrap();
    let path = the_file(dir.path(), "MANIFEST");
    let name = path.file_name().unwrap().to_str().unwrap();
    let number = name["MANIFEST-".len()..].parse().unwrap();
    let sound = std::fs::read(&path).unwrap();
    let with_features = |features: u8| {
        let mut bytes = sound.clone();
        bytes[12] = features;
        let sum = checksum(number, 0, &bytes[..36]);
        bytes[36..40].copy_from_slice(&sum);
        std::fs::write(&path, bytes).unwrap();
        options().open(dir.path()).err()
    };
    for features in [16, 31, 128] {
        let error = with_features(features);
        let Some(Error::Unsupported { path: found, .. }) = &error else { panic!("{error:?}") };
        assert_eq!(found, &path);
    }
    assert!(with_features(0).is_none());
}

/// The required features of the manifest.
fn features(dir: &Path) -> u32 {
    let manifest = std::fs::read(the_file(dir, "MANIFEST")).unwrap();
    u32::from_le_bytes(manifest[12..16].try_into().unwrap())
}

#[test]
fn a_manifest_whose_extractor_gives_several_prefixes_requires_the_feature() {
    let dir = tempdir();
    let features_with = |options: Options| {
        options.open(dir.path()).unwrap().close().unwrap();
        features(dir.path())
    };
    let options = options();
    assert_eq!(features_with(options.clone().prefix(PrefixExtractor::until(b'/'))), 0);
    assert_eq!(features_with(options.clone().prefix(PrefixExtractor::every(b'/'))), 2);
    assert_eq!(features_with(options.clone()), 2);
    assert_eq!(features_with(options.clone().filter(FilterPolicy::ribbon())), 3);
    let db = options.clone().open(dir.path()).unwrap();
    db.set_policy(FilterPolicy::bloom()).unwrap();
    db.set_policy(FilterPolicy::ribbon()).unwrap();
    let aside = tempdir();
    db.checkpoint(aside.path().join("copy")).unwrap();
    assert_eq!(features(&aside.path().join("copy")), 3);
    db.close().unwrap();
    assert_eq!(features_with(options.prefix(None)), 1);
}

/// The bit is in force before the setting: an older criba refuses the manifest, and does not take it for damaged.
#[test]
fn a_manifest_whose_policy_is_of_ribbons_requires_the_feature() {
    let dir = tempdir();
    let db = options().open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    db.set_policy(FilterPolicy::bits_per_key(9.0)).unwrap();
    assert_eq!(features(dir.path()), 0);
    db.set_policy(FilterPolicy::ribbon()).unwrap();
    assert_eq!(features(dir.path()), 1);
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    assert_eq!((db.policy(), features(dir.path())), (FilterPolicy::ribbon(), 1));
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    let aside = tempdir();
    db.checkpoint(aside.path().join("copy")).unwrap();
    assert_eq!(features(&aside.path().join("copy")), 1);
    db.set_policy(FilterPolicy::bloom()).unwrap();
    db.close().unwrap();
    options().open(dir.path()).unwrap().close().unwrap();
    assert_eq!(features(dir.path()), 0);
}
