//! Filters that cannot be read, and their replacement by sound ones.

use std::sync::Arc;

use criba::FilterInfo;
use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};

use crate::common::files_with;
use crate::store::{KEYS, Store, filter_block, key, options, policies};

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
        // A flush or compaction writes a sound filter.
        db.compact().unwrap();
        assert!(db.tables().iter().all(|table| matches!(table.filter, FilterInfo::Active { .. })));
    }
}

/// `compact` rewrites even a single run if one of its filters is degraded.
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
