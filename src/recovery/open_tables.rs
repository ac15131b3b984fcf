//! Opening the tables of a store with several threads, and what is known once they are open.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::engine::write::MAX_SEALED;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::options::Options;
use crate::sstable::{FilterMeta, FilterState, OpenTable, Table, TableEnv, TableMeta};
use crate::sync::{AtomicUsize, Mutex, Ordering, available_parallelism, scope};

const OPENING_THREADS: usize = 8;
/// The number of tables that the operating system reads in advance.
const ANNOUNCED: usize = 16;

/// Opens tables with their filters, in the order of the entries.
pub(crate) fn open_tables(
    env: &Arc<TableEnv>,
    entries: &[(usize, TableMeta)],
    options: &Options,
) -> Result<Vec<(usize, OpenTable)>> {
    let threads = match options.background_threads {
        0 => 1,
        _ => available_parallelism().map_or(1, usize::from).min(OPENING_THREADS),
    };
    let threads = threads.min(entries.len());
    let whole = options.filter_memory.is_none() || options.strict_filters;
    let announce = |number: usize| match entries.get(number) {
        Some((_, meta)) => Table::announce(env, meta, whole),
        None => Ok(()),
    };
    (0..ANNOUNCED).try_for_each(announce)?;
    let open_data = |number: usize| {
        announce(number + ANNOUNCED)?;
        entries.get(number).map(|(_, meta)| Table::open_data(env, meta.clone())).transpose()
    };
    let with_filter = |table: Arc<Table>| {
        let meta = table.meta().filter;
        let filter = match options.filter_memory {
            None => table.load_filter(meta),
            // With a budget, residency is decided when all tables are open. Only a whole read finds damage.
            Some(_) if options.strict_filters => table.load_filter(meta).not_resident(),
            Some(_) => table.load_filter_header(meta),
        };
        OpenTable { table, filter: Arc::new(filter) }
    };
    let opened = if options.memory_limit.is_some() {
        // No filter is read before the size of all indexes is known.
        let tables = in_parallel(threads, open_data)?;
        let filters = entries.iter().map(|(_, meta)| meta.filter);
        check_memory(env.dir.path(), options, env.index_memory.bytes(), filters)?;
        in_parallel(threads, |number| Ok(tables.get(number).cloned().map(with_filter)))?
    } else {
        in_parallel(threads, |number| Ok(open_data(number)?.map(with_filter)))?
    };
    let levels = entries.iter().map(|(level, _)| *level);
    Ok(levels.zip(opened).collect())
}

/// The items of all numbers below the first that has none, in order, or an error.
fn in_parallel<T: Send>(
    threads: usize,
    item: impl Fn(usize) -> Result<Option<T>> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let items = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = item(number).transpose() else { break };
            let failed = item.is_err();
            items.lock().insert(number, item);
            if failed {
                break;
            }
        }
    };
    scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let items = std::mem::take(&mut *items.lock());
    items.into_values().collect()
}

/// Reports every degraded filter. With `strict_filters`, the first one is the error.
pub(crate) fn check_filters(tables: &[(usize, OpenTable)], options: &Options) -> Result<()> {
    let mut refused = None;
    for (_, open) in tables {
        if let FilterState::Degraded(reason) = &open.filter.state {
            let (path, offset) = open.filter_location();
            refused.get_or_insert_with(|| Error::corrupt(&path, offset, "a sound filter", reason));
            let (table, reason) = (open.table.id(), reason.clone());
            options.listener.notify(&Event::FilterDegraded { table, path, offset, reason });
        }
    }
    match refused {
        Some(error) if options.strict_filters => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a store that needs more than the memory limit for memtables, cache, indexes and these filters.
pub(crate) fn check_memory(
    dir: &Path,
    options: &Options,
    indexes: u64,
    filters: impl Iterator<Item = FilterMeta>,
) -> Result<()> {
    let Some(limit) = options.memory_limit else { return Ok(()) };
    let stored = filters.map(|filter| filter.resident_bytes()).fold(0, u64::saturating_add);
    let filters = options.filter_memory.map_or(stored, |budget| budget.min(stored));
    let memtables = (options.memtable_bytes as u64).saturating_mul(MAX_SEALED as u64 + 1);
    let cache = options.cache_bytes;
    let needed = [memtables, filters, indexes, cache].into_iter().fold(0, u64::saturating_add);
    if needed <= limit {
        return Ok(());
    }
    let path = dir.to_owned();
    Err(Error::MemoryLimit { path, limit, needed, memtables, filters, indexes, cache })
}
