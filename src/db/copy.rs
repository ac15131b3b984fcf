//! Copies of a store that is only read, also beside the process that writes to it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::compaction::{MergeContext, write_memtable};
use crate::directory::staged::{self, Staged};
use crate::engine::copy;
use crate::error::Result;
use crate::filter_manager::FilterManager;
use crate::names::FileName;
use crate::options::Options;
use crate::recovery::read_only_state::ReadOnlyState;
use crate::sstable::{TableEnv, TableMeta, TableWriter};
use crate::store_dir::{StoreDir, absolute};
use crate::version::{Manifest, TableSet, read_current};
use crate::wal::{LogError, LogWriter};

/// Where [`ReadOnlyDb::checkpoint`](crate::ReadOnlyDb::checkpoint) takes the files of tables and filters from.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckpointFiles<'a> {
    /// Whether they may be hard links to the files of the store, which share later damage with it.
    pub links: bool,
    /// An earlier checkpoint of the store, which has many of the files: they are linked from there.
    pub earlier: Option<&'a Path>,
}

/// An earlier checkpoint, and what it has.
struct Earlier {
    dir: StoreDir,
    tables: TableSet,
}

/// Makes a checkpoint of `loaded` in a new directory.
pub(super) fn checkpoint(
    loaded: &ReadOnlyState,
    options: &Options,
    path: &Path,
    files: CheckpointFiles<'_>,
) -> Result<()> {
    let env = &loaded.env;
    let earlier = files.earlier.map(|path| open_earlier(options, path, env.store)).transpose()?;
    let earlier = earlier.flatten();
    let staged = Staged {
        source: &env.dir,
        vfs: &options.vfs,
        path,
        mode: options.file_mode,
        random: env.random,
        purpose: "checkpoint",
        within: None,
    };
    let fill = |dir: &StoreDir, lock| {
        fill(loaded, options, dir, files.links, earlier.as_ref()).map(|()| lock)
    };
    staged::make(&staged, fill).map(|_| ())
}

/// `None` if there is no manifest, or one of another store.
fn open_earlier(options: &Options, path: &Path, store: u64) -> Result<Option<Earlier>> {
    let Some(dir) = StoreDir::open(&options.vfs, &absolute(path)?, 0)? else { return Ok(None) };
    let Some(number) = read_current(&dir)? else { return Ok(None) };
    let (tables, of_store, _) = Manifest::read(&dir, number)?;
    Ok((of_store == store).then_some(Earlier { dir, tables }))
}

/// Makes the files in `dir`, all synced. What the logs hold becomes a table.
fn fill(
    loaded: &ReadOnlyState,
    options: &Options,
    dir: &StoreDir,
    links: bool,
    earlier: Option<&Earlier>,
) -> Result<()> {
    let from = &loaded.env.dir;
    let mut set = TableSet::new(loaded.env.hash_key, loaded.settings);
    set.flushed_seq = loaded.seq;
    set.time = loaded.time;
    for (level, live) in loaded.view.version.tables() {
        let record = live.open().record();
        for name in names_of(&record) {
            let is_linked = links && from.link_to(name, dir).is_ok()
                || earlier.is_some_and(|earlier| {
                    earlier.has(&record, name) && earlier.dir.link_to(name, dir).is_ok()
                });
            if !is_linked {
                copy(from, name, dir)?;
            }
        }
        set.tables.insert(record.id, (level, record));
    }
    let env = TableEnv::standalone(dir, loaded.env.store, loaded.env.hash_key);
    env.next_file.store(loaded.next_file, Ordering::Relaxed);
    flush(loaded, options, &env, &mut set)?;

    set.log = env.new_file_number();
    let mut log = LogWriter::create_wal(dir, (env.store, &env.hash_key), set.log, true)?.keep();
    log.finish(0, loaded.seq + 1).map_err(LogError::into_error)?;
    let manifest = env.new_file_number();
    set.next_file = env.next_file();
    let mut manifest = Manifest::create(dir, manifest, env.store, env.random, set)?;
    manifest.make_current(dir).map_err(LogError::into_error)
}

fn names_of(record: &TableMeta) -> impl Iterator<Item = FileName> + use<> {
    [FileName::Table(record.id)].into_iter().chain(record.filter.file_of(record.id))
}

impl Earlier {
    /// Whether a file of this table is here: the record has the table's random bytes and checksums, also of its filter.
    fn has(&self, record: &TableMeta, name: FileName) -> bool {
        let Some((_, found)) = self.tables.tables.get(&record.id) else { return false };
        let is_of_filter = matches!(name, FileName::Filter { .. });
        found.is_of_same_table(record) && (!is_of_filter || found.filter == record.filter)
    }
}

/// Writes the entries of the logs to a table of L0.
fn flush(
    loaded: &ReadOnlyState,
    options: &Options,
    env: &Arc<TableEnv>,
    set: &mut TableSet,
) -> Result<()> {
    let memtable = &loaded.view.memtable;
    if memtable.is_empty() {
        return Ok(());
    }
    let filters = FilterManager::new(loaded.settings);
    let settings = options.table_settings(&loaded.settings);
    let filter_for =
        |table: &TableWriter| filters.recipe_for_flush(&loaded.view.version, table.key_counts());
    let context = MergeContext::of_flush(env, &settings, &filter_for, options.ignore_filters);
    for open in write_memtable(memtable, |_| false, &context)? {
        set.tables.insert(open.table.id(), (0, open.record()));
    }
    Ok(())
}
