//! Tables: the footer, the index, the properties and every data block.

use std::ops::Bound;
use std::sync::Arc;

use super::{DIR, assert_names_a_file, disk_with, mend, store};
use crate::error::Result;
use crate::iter::{Cursor, Direction};
use crate::key::{EntryKind, EntryRef, Seq};
use crate::names::FileName;
use crate::table::{OpenTable, ReadPlan, Table, TableCursor, TableEnv, TableSettings, TableWriter};

/// The number of the table that the bytes are taken for.
pub(super) const NUMBER: u64 = 4;

/// Takes bytes for a table, which its own footer and properties describe.
///
/// # Panics
/// If an error names no file; if a table in which a check finds nothing wrong is not the same
/// backwards; if a lookup in it misses an entry, or finds another; if it is not the same written again.
pub fn table(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    mend::table(&mut mended);
    let accepted = as_table(bytes);
    as_table(&mended) || accepted
}

type Entries = Vec<(Vec<u8>, Seq, EntryKind, Vec<u8>)>;

fn as_table(bytes: &[u8]) -> bool {
    let vfs = disk_with(&FileName::Table(NUMBER).to_string(), bytes);
    let env = |store| TableEnv::alone(&vfs, DIR.as_ref(), store, store::fixture().secret);
    let opened = Table::meta_of_file(&env(0), NUMBER).and_then(|(mut meta, store)| {
        meta.id = NUMBER;
        let env = env(store);
        Table::open(&env, meta).map(|open| (env, open))
    });
    let (env, open) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            assert_names_a_file(&error);
            return false;
        }
    };
    let mut sound = true;
    open.check(&mut |error| {
        assert_names_a_file(&error);
        sound = false;
    });
    let forward = read_all(&open, Direction::Forward, ReadPlan::Compaction);
    let backward = read_all(&open, Direction::Backward, ReadPlan::Scan);
    for error in [&forward, &backward].into_iter().filter_map(|read| read.as_ref().err()) {
        assert_names_a_file(error);
    }
    for key in [&b""[..], b"row", b"row07/30", &[0xff; 9]] {
        if open.table.meta().overlaps(key, key) {
            let _ = search(&open, key, Seq::MAX);
        }
    }
    if !sound {
        return true;
    }

    let entries = forward.expect("a check read all of it");
    let mut backward = backward.expect("a check read all of it");
    backward.reverse();
    assert_eq!(entries, backward);
    for (key, seq, kind, value) in &entries {
        if let Ok(found) = search(&open, key, *seq) {
            assert_eq!(found, Some((*kind, value.clone())), "key {}", key.escape_ascii());
        }
    }
    assert_eq!(rewritten(&env, &entries).expect("sound entries"), entries);
    true
}

/// What the table has for a key.
fn search(open: &OpenTable, key: &[u8], seq: Seq) -> Result<Option<(EntryKind, Vec<u8>)>> {
    let found = open.table.search(key, seq).1.inspect_err(assert_names_a_file)?;
    Ok(found.version.map(|(kind, value)| (kind, value.to_vec())))
}

fn read_all(open: &OpenTable, direction: Direction, plan: ReadPlan) -> Result<Entries> {
    let table = Arc::clone(&open.table);
    let mut cursor = TableCursor::new(table, direction, Bound::Unbounded, plan)?;
    let mut entries = Entries::new();
    while let Some(entry) = cursor.entry() {
        entries.push((entry.key.to_vec(), entry.seq, entry.kind, entry.value.to_vec()));
        cursor.advance()?;
    }
    Ok(entries)
}

/// The entries after they were written to a new table.
fn rewritten(env: &Arc<TableEnv>, entries: &Entries) -> Result<Entries> {
    let settings = TableSettings { block_bytes: 200, filter_hash: None, prefix: None };
    let mut writer = TableWriter::create(env, NUMBER + 1, &settings)?;
    for (key, seq, kind, value) in entries {
        writer.add(EntryRef { key, seq: *seq, kind: *kind, value })?;
    }
    let open = Table::open(env, writer.finish(None)?.meta)?;
    read_all(&open, Direction::Forward, ReadPlan::Scan)
}
