//! The suite runs under several policies; this test shows that a run uses the requested one.

use criba::{FilterInfo, FilterKind, HashFunction, Options};

use crate::common;

fn first_filter(options: Options) -> (FilterKind, HashFunction) {
    let dir = common::tempdir();
    let db = options.background_threads(0).open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    match db.tables()[0].filter {
        FilterInfo::Active { kind, hash, .. } => (kind, hash),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_of_the_tests_is_under_the_policy_that_it_names() {
    let expected = |policy: &str| match policy {
        "classic" => (FilterKind::Bloom, HashFunction::MurmurHash2),
        "ribbon" => (FilterKind::Ribbon, HashFunction::SipHash13),
        _ => (FilterKind::Bloom, HashFunction::SipHash13),
    };
    for name in ["bloom", "ribbon", "classic"] {
        assert_eq!(first_filter(Options::new().filter(common::named(name))), expected(name));
    }
    let this = std::env::var(common::POLICY).unwrap_or_else(|_| "bloom".to_owned());
    assert_eq!(first_filter(common::options()), expected(&this));
    println!("this run is under the {this} policy");
}

#[test]
#[should_panic(expected = "CRIBA_TEST_POLICY is bloom, ribbon or classic, not \"clasic\"")]
fn an_unknown_policy_fails() {
    common::named("clasic");
}
