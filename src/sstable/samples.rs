//! Tables for the tests of this module.

use std::path::Path;
use std::sync::Arc;

use super::compression::Compression;
use super::env::TableEnv;
use super::filter::OpenTable;
use super::format::Properties;
use super::reader::Table;
use super::writer::{TableSettings, TableWriter};
use crate::filter::FilterPolicy;
use crate::key::{EntryKind, EntryRef, Seq};
use crate::store_dir::StoreDir;
use crate::vfs::RealVfs;
use criba_filter::store::{HashKey, Recipe};

pub(super) const STORE: u64 = 77;

pub(super) fn env(dir: &Path) -> Arc<TableEnv> {
    TableEnv::standalone(&StoreDir::of(RealVfs, dir), STORE, HashKey::new([5; 16]))
}

/// A writer of a table; its filter, if any, uses the recipe's hash.
pub(super) fn writer(
    env: &Arc<TableEnv>,
    id: u64,
    block_bytes: usize,
    recipe: Option<&Recipe>,
) -> TableWriter {
    let filter_hash = recipe.map(|recipe| recipe.hash);
    let settings = TableSettings {
        block_bytes,
        compression: Compression::None,
        filter_hash,
        prefix: None,
        ingested_after: None,
    };
    TableWriter::create(env, id, &settings).expect("a new file")
}

pub(super) fn put<'a>(key: &'a [u8], seq: Seq, value: &'a [u8]) -> EntryRef<'a> {
    EntryRef { key, seq, kind: EntryKind::Put, value }
}

pub(super) fn recipe(policy: &FilterPolicy) -> Recipe {
    policy.recipe().expect("filters are wanted")
}

/// Table 1: keys k00 to k39, sequence numbers from 100 up, four keys a block.
pub(super) fn open_table(dir: &Path) -> (Arc<TableEnv>, OpenTable) {
    let (env, recipe) = (env(dir), recipe(&FilterPolicy::default()));
    let mut writer = writer(&env, 1, 150, Some(&recipe));
    for i in 0..40 {
        writer.add(put(format!("k{i:02}").as_bytes(), 100 + i, &[b'v'; 24])).expect("written");
    }
    let finished = writer.finish(Some(recipe)).expect("finished").keep();
    let open = Table::open(&env, finished.meta).expect("sound");
    (env, open)
}

/// Properties that do not contradict themselves.
pub(super) fn properties() -> Properties {
    Properties {
        entries: 9,
        tombstones: 3,
        hidden_bytes: 5,
        ingested_after: None,
        expiries: None,
        contents_bytes: None,
        keys: 8,
        data_blocks: 2,
        key_bytes: 70,
        value_bytes: 80,
        min_seq: 5,
        max_seq: 20,
        smallest: b"a".to_vec(),
        largest: b"k".to_vec(),
    }
}
