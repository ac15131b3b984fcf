//! The manifest in force, also without a sound `CURRENT`.

use std::path::PathBuf;

use super::loss::Loss;
use crate::directory::{Listing, origin};
use crate::error::{Error, Result};
use crate::key::Seq;
use crate::names::{FileName, Origin};
use crate::sstable::{Table, TableEnv};
use crate::store_dir::StoreDir;
use crate::version::{Manifest, TableSet, read_current};
use crate::wal::{LogKind, LogReader};
use criba_filter::store::HashKey;

/// A damaged manifest counts as lost: a later edit may have replaced every table that an earlier one names.
const NEWEST_LOST: Seq = Seq::MAX;

/// The live tables, if all edits of the current manifest are known. Otherwise adds the loss.
pub(super) fn tables_in_force(
    dir: &StoreDir,
    store: u64,
    listing: &Listing,
    losses: &mut Vec<Loss>,
) -> Result<Option<TableSet>> {
    let named = match read_current(dir) {
        Err(error @ (Error::Unsupported { .. } | Error::NotAStore { .. })) => return Err(error),
        current => current.unwrap_or_default(),
    };
    let others = listing.manifests().into_iter().filter(|&number| Some(number) > named);
    let mut known = Vec::new();
    for number in named.into_iter().chain(others) {
        match read_edits(dir, store, number) {
            Ok(set_and_edits) => known.push(set_and_edits),
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            // It was being made, to replace the one named.
            Err(_) if named.is_some_and(|named| named < number) => {}
            Err(error) => {
                losses.push(Loss::of_error(dir.path(), error, super::loss::ANY_KEY, NEWEST_LOST));
                return Ok(None);
            }
        }
    }
    let current = match &known[..] {
        // Only the manifest in force gets edits. So `CURRENT` is of an earlier time if a newer one has some.
        [(set, _), newer @ ..] if named.is_some() && newer.iter().all(|(_, edits)| *edits < 2) => {
            Some(set)
        }
        _ if named.is_some() => None,
        [(set, _)] | [.., (set, 2..)] => Some(set),
        // The newest repeats another one, or is in its place.
        [.., (before, _), (set, _)] if before.has_same_tables(set) => Some(set),
        _ => None,
    };
    if current.is_none() {
        let (path, what) =
            (dir.path_of(FileName::Current), "the current manifest is unknown".into());
        losses.push(Loss::of_any_key(path, None, what, NEWEST_LOST));
    }
    Ok(current.cloned())
}

/// All edits of a manifest, also under a damaged header.
fn read_edits(dir: &StoreDir, store: u64, number: u64) -> Result<(TableSet, u64)> {
    let path = dir.path_of(FileName::Manifest(number));
    let mut reader = LogReader::open(dir, LogKind::Manifest, number, None)?;
    if let Ok(header) = reader.header()?
        && header.store != store
    {
        let (expected, found) = [store, header.store].map(|id| format!("store {id:016x}")).into();
        return Err(Error::corrupt(&path, 0, format!("a manifest of {expected}"), found));
    }
    match Manifest::read_edits(reader, &path)? {
        (set, edits, None) => Ok((set, edits)),
        (_, _, Some(lost)) => {
            Err(Error::corrupt(&path, lost.offset, "a whole version edit", lost.found))
        }
    }
}

/// The id of the store of the manifest that `CURRENT` names: in its header, or in a table that it names.
pub(super) fn store_in_force(dir: &StoreDir) -> Option<u64> {
    let number = read_current(dir).ok().flatten()?;
    let mut reader = LogReader::open(dir, LogKind::Manifest, number, None).ok()?;
    if let Some(header) = reader.origin().ok()?.filter(|origin| origin.number == number) {
        return Some(header.store);
    }
    // Its edits name tables by random bytes. The header, damaged or not, has the salt of its frames.
    let _ = reader.header().ok()?;
    let (set, ..) = Manifest::read_edits(reader, &dir.path_of(FileName::Manifest(number))).ok()?;
    let env = TableEnv::standalone(dir, 0, HashKey::new([0; HashKey::BYTES]));
    set.tables.values().find_map(|(_, meta)| {
        let (found, store) = Table::meta_of_file(&env, meta.id).ok()?;
        (found.random == meta.random).then_some(store)
    })
}

/// The id of the store that most files name; 0 if none does.
pub(super) fn store_of_most(env: &TableEnv, listing: &Listing) -> u64 {
    let mut ids: Vec<u64> = listing
        .ours
        .iter()
        .filter_map(|&name| origin(env, name).ok().flatten())
        .map(|origin| origin.store)
        .collect();
    ids.sort_unstable();
    let of_one = ids.chunk_by(|a, b| a == b).max_by_key(|same| same.len());
    of_one.map_or(0, |same| same[0])
}

/// Files of several stores, and nothing says which of them is the one to repair.
pub(super) fn unknown_store(dir: &StoreDir, store: u64) -> Loss {
    let what = format!(
        "files of several stores are here, and it does not name the one: {store:016x} has the most"
    );
    Loss::of_any_key(dir.path_of(FileName::Current), None, what, NEWEST_LOST)
}

/// Removes the files of other stores from a listing, and returns them with the ids of their stores.
pub(super) fn take_others(env: &TableEnv, listing: &mut Listing) -> Vec<(PathBuf, u64)> {
    let mut others = Vec::new();
    listing.ours.retain(|&name| match origin(env, name) {
        Ok(Some(Origin { store, .. })) if store != env.store => {
            others.push((env.path_of(name), store));
            false
        }
        _ => true,
    });
    others
}
