//! Filters that cannot be read, and how a store comes to sound ones again.

use std::sync::Arc;

use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};
use criba::{Error, FilterInfo};

use crate::common::files_with;
use crate::store::{KEYS, Store, filter_block, key, options, policies};

/// What follows the filter is then missing, too, and without an index there is no table.
#[test]
fn a_table_cut_within_its_filter_is_refused() {
    let mut cuts = 0;
    for policy in policies() {
        let store = Store::new(policy);
        for length in filter_block(store.sound(0)) {
            store.set(&[(&store.tables[0], &store.sound(0)[..length])]);
            match options(policy).open(&store.dir) {
                Err(Error::Corrupt { path, .. }) => assert_eq!(path, store.tables[0]),
                other => panic!("cut to {length}: {other:?}"),
            }
            cuts += 1;
        }
        store.set(&[]);
        store.check(&[], "whole again");
    }
    println!("{cuts} tables cut within their filters: all refused");
}

#[test]
fn a_filter_that_cannot_be_read_costs_reads_and_no_more() {
    for policy in policies() {
        let store = Store::new(policy);
        // Opening reads two pieces of each table: its tail, then its filter.
        let vfs = FaultVfs::new(Arc::new(RealVfs));
        let rule = FaultRule::new(Fault::Io).kinds([FileKind::Table]);
        vfs.add(rule.operations([Operation::Read]).skip(1));
        let db = options(policy).vfs(Arc::new(vfs)).open(&store.dir).unwrap();
        let bad = |filter: &FilterInfo| matches!(filter, FilterInfo::Degraded { reason } if reason.contains("output error"));
        assert_eq!(db.tables().iter().filter(|table| bad(&table.filter)).count(), 1);
        for number in 0..KEYS {
            assert!(db.get(key(0, number)).unwrap().is_some());
            assert!(db.get(key(1, number)).unwrap().is_some());
        }
        // A flush or compaction writes a sound one again.
        db.compact().unwrap();
        assert!(db.tables().iter().all(|table| matches!(table.filter, FilterInfo::Active { .. })));
    }
}

/// Even a store that is one run already is rewritten, when a filter of it is degraded.
#[test]
fn compact_gives_a_degraded_table_a_new_filter() {
    for policy in policies() {
        let store = Store::new(policy);
        let db = options(policy).open(&store.dir).unwrap();
        db.compact().unwrap();
        db.close().unwrap();
        let [path] = files_with(&store.dir, "sst").try_into().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let at = filter_block(&bytes).start + 130;
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let db = options(policy).open(&store.dir).unwrap();
        assert!(matches!(db.tables()[0].filter, FilterInfo::Degraded { .. }));
        db.compact().unwrap();
        assert!(matches!(db.tables()[0].filter, FilterInfo::Active { .. }));
        for (table, number) in (0..2).flat_map(|table| (0..KEYS).map(move |n| (table, n))) {
            let expected = format!("value {table} {number:03}");
            assert_eq!(db.get(key(table, number)).unwrap().unwrap(), expected);
        }
        assert_eq!(db.stats().total().degraded, 0);
    }
}
