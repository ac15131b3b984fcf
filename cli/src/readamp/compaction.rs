//! The second act: keys are overwritten, deleted, and expire, and the store compacts.

use std::collections::BTreeSet;

use serde::Serialize;

use super::bench::Bench;
use super::changes::Changes;
use super::checks::Check;
use super::state::State;
use super::table_files;
use super::work::Work;
use crate::failure::Result;
use crate::text::{counted, thousands};

/// What a compaction did.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Compaction {
    /// Keys that got another value.
    pub overwritten: u64,
    /// Keys that were deleted.
    pub deleted: u64,
    /// Keys that got another value and an expiry, which is over.
    pub expired: u64,
    /// Expired entries that the compaction dropped: their keys left the filters.
    pub expired_dropped: u64,
    /// Tables that it read.
    pub tables_in: u64,
    /// Tables that it wrote.
    pub tables_out: u64,
    /// Those with a filter.
    pub filters_rebuilt: u64,
    /// The store with the changes in a table of L0.
    pub before: State,
    /// The store after the compaction. Its checks are these six and `filters_rebuilt`.
    pub after: State,
}

/// From so many bits a key on, headers included, each table has a filter of any kind.
const LEAST_BITS: u64 = 8;

/// Changes the store, measures it, compacts it, and measures it again.
pub(super) fn compact(bench: &Bench, changes: &Changes, work: &[Work; 2]) -> Result<Compaction> {
    let policy = bench.settings.filter;
    changes.write(bench)?;
    let before = State::measure(bench, policy, work, changes)?;
    let old: BTreeSet<_> = table_files::list(bench.dir)?.into_keys().collect();
    bench.begin("compaction", 0);
    let db = bench.open(|options| options)?;
    db.compact()?;
    let expired_dropped = db.stats().activity.expired_dropped;
    db.close()?;

    let files = table_files::list(bench.dir)?;
    let (mut tables, mut found_gone) = (Vec::new(), 0);
    for (&id, &generation) in files.iter().filter(|(id, _)| !old.contains(id)) {
        let keys = table_files::distinct_keys(bench.dir, id)?;
        found_gone += keys.iter().filter(|key| changes.gone.contains(&key[..])).count() as u64;
        let header = table_files::keys_in_filter(bench.dir, id, generation)?;
        tables.push(NewTable { id, distinct: keys.len() as u64, header });
    }
    let mut after = State::measure(bench, policy, work, changes)?;
    // With fewer bits a key, the allocation may leave tables without a filter.
    let all = before.filter_bytes >= before.keys * LEAST_BITS / 8;
    let check =
        filters_rebuilt(&tables, all && before.filter_bytes > 0, found_gone, after.found_in_tables);
    after.add_check("filters_rebuilt", check);
    Ok(Compaction {
        overwritten: changes.overwritten.len() as u64,
        deleted: (changes.gone.len() - changes.expired.len()) as u64,
        expired: changes.expired.len() as u64,
        expired_dropped,
        tables_in: old.iter().filter(|id| !files.contains_key(id)).count() as u64,
        tables_out: tables.len() as u64,
        filters_rebuilt: tables.iter().filter(|table| table.header.is_some()).count() as u64,
        before,
        after,
    })
}

/// A table that the compaction wrote, as its file has it.
#[derive(Debug, Clone)]
struct NewTable {
    id: u64,
    /// Distinct keys in its data blocks.
    distinct: u64,
    /// Keys by the header of its filter.
    header: Option<u64>,
}

/// Each new table's filter was built of exactly the table's distinct keys. No new table holds a key that was
/// deleted or has expired, and no lookup of an absent key finds one, so only a filter's mistake costs such a lookup a read. `all` tables
/// must have a filter, or some.
fn filters_rebuilt(tables: &[NewTable], all: bool, found_gone: u64, found_absent: u64) -> Check {
    let wrong = tables.iter().find(|table| match table.header {
        Some(keys) => keys != table.distinct,
        None => all,
    });
    if let Some(NewTable { id, distinct, header }) = wrong {
        let header = header.map_or("it has no filter".to_owned(), |keys| {
            format!("its filter's header says {}", thousands(keys))
        });
        return Check::fails(format!("table {id} holds {}; {header}", counted(*distinct, "key")));
    }
    if found_gone + found_absent > 0 {
        return Check::fails(format!(
            "{} in new tables, deleted or expired; {} of absent keys found an entry",
            counted(found_gone, "key"),
            counted(found_absent, "lookup")
        ));
    }
    let filters = tables.iter().filter_map(|table| table.header);
    Check::holds(format!(
        "{} in {}, as many as the tables hold; no deleted or expired key in any",
        counted(filters.clone().sum(), "key"),
        counted(filters.count() as u64, "new filter"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_too_many_in_a_filter_is_noticed() {
        let table = |id, header| NewTable { id, distinct: 1000, header };
        let check = |header, all, deleted, absent| {
            let tables = [table(1, Some(1000)), table(2, header)];
            filters_rebuilt(&tables, all, deleted, absent)
        };
        let sound = check(Some(1000), true, 0, 0);
        assert_eq!(sound.holds, Some(true));
        assert!(sound.said.starts_with("2,000 keys in 2 new filters"), "{}", sound.said);
        assert_eq!(filters_rebuilt(&[table(1, None)], false, 0, 0).holds, Some(true));
        for (header, deleted, absent) in [
            (Some(1001), 0, 0), // a key of another table, or a deleted one
            (Some(999), 0, 0),
            (None, 0, 0),
            (Some(1000), 1, 0),
            (Some(1000), 0, 1),
        ] {
            let check = check(header, true, deleted, absent);
            assert_eq!(check.holds, Some(false), "{}", check.said);
        }
    }
}
