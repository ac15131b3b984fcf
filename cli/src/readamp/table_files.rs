//! The files of a store's tables and filters, read beside the store: `std::fs`, and the layout in `format.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use criba::{TableFile, Value};

use crate::failure::{Failure, Result};

const FOOTER: u64 = 128;
/// Behind the manifest's header and the head of its first frame.
const FIRST_EDIT: u64 = 4096 + 27;
const FILTER_MAGIC: &[u8; 8] = b"cribaFLT";

/// The tables of a closed store, and the generation of the newest filter file of each; 0 for none.
pub(super) fn list(dir: &Path) -> Result<BTreeMap<u64, u64>> {
    let entries = fs::read_dir(dir).map_err(|e| Failure::file("list", dir, e))?;
    let (mut tables, mut filters) = (BTreeMap::new(), Vec::new());
    for entry in entries {
        let name = entry.map_err(|e| Failure::file("list", dir, e))?.file_name();
        match name.to_str().and_then(|name| name.split_once('.')) {
            Some((id, "sst")) => tables.extend(id.parse::<u64>().map(|id| (id, 0))),
            Some((id, "flt")) => filters.extend(id.split_once('-').and_then(|(id, generation)| {
                Some((id.parse::<u64>().ok()?, generation.parse::<u64>().ok()?))
            })),
            _ => {}
        }
    }
    for (id, generation) in filters {
        if let Some(newest) = tables.get_mut(&id) {
            *newest = generation.max(*newest);
        }
    }
    Ok(tables)
}

pub(super) fn path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:06}.sst"))
}

/// How many keys the header of a table's filter says it was built of; `None` without a filter.
pub(super) fn keys_in_filter(dir: &Path, id: u64, generation: u64) -> Result<Option<u64>> {
    let table = path(dir, id);
    let (path, offset) = match generation {
        0 => {
            let [offset, length] = filter_handle(&table)?;
            if length == 0 {
                return Ok(None);
            }
            (table, offset)
        }
        _ => (dir.join(format!("{id:06}-{generation:04}.flt")), 0),
    };
    let header = read(&path, offset, 40)?;
    if !header.starts_with(FILTER_MAGIC) {
        let expected = format!("a filter's header at offset {offset}");
        return Err(Failure::unfit(&path, expected, "other bytes"));
    }
    Ok(Some(number(&header[32..])))
}

/// The offset of a table's filter block, and the length of its contents.
fn filter_handle(table: &Path) -> Result<[u64; 2]> {
    let length = fs::metadata(table).map_err(|e| Failure::file("look at", table, e))?.len();
    let footer = read(table, length.saturating_sub(FOOTER), 16)?;
    Ok([number(&footer), number(&footer[8..])])
}

/// A table's bytes from its filter block to the end.
pub(super) fn tail(table: &Path) -> Result<Vec<u8>> {
    let [offset, _] = filter_handle(table)?;
    let length = fs::metadata(table).map_err(|e| Failure::file("look at", table, e))?.len();
    read(table, offset, length.saturating_sub(offset) as usize)
}

/// The hash key of a store that was just made: in the first edit of the manifest, behind the fields 3, 4 and 5.
pub(super) fn hash_key(dir: &Path) -> Result<[u8; 16]> {
    let current = dir.join("CURRENT");
    let text = fs::read_to_string(&current).map_err(|e| Failure::file("read", &current, e))?;
    let manifest = dir.join(text.lines().nth(1).unwrap_or_default());
    let fields = read(&manifest, FIRST_EDIT, 44)?;
    if [0, 9, 18, 27].map(|at| fields[at]) != [3, 4, 5, 6] {
        let expected = format!("the fields 3 to 6 at offset {FIRST_EDIT}");
        return Err(Failure::unfit(&manifest, expected, "others"));
    }
    let mut key = [0; 16];
    key.copy_from_slice(&fields[28..]);
    Ok(key)
}

fn read(path: &Path, offset: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let file = File::open(path).map_err(|e| Failure::file("open", path, e))?;
    file.read_exact_at(&mut bytes, offset).map_err(|e| Failure::file("read", path, e))?;
    Ok(bytes)
}

fn number(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(number)
}

/// The distinct keys in the data blocks of a table.
pub(super) fn distinct_keys(dir: &Path, id: u64) -> Result<BTreeSet<Value>> {
    let table = TableFile::open(path(dir, id))?;
    table.entries().map(|entry| Ok(entry?.key)).collect()
}

/// The length of each table's file, and a digest of all its bytes.
pub(super) fn digests(dir: &Path) -> Result<BTreeMap<u64, (u64, u64)>> {
    let digest = |id| {
        let path = path(dir, id);
        let bytes = fs::read(&path).map_err(|e| Failure::file("read", &path, e))?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Ok((id, (bytes.len() as u64, hasher.finish())))
    };
    list(dir)?.into_keys().map(digest).collect()
}
