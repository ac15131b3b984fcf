//! Other filters for the same tables, in as many bytes: in a copy of the loaded store, and as the third act.

use std::collections::BTreeMap;
use std::fs;

use criba::FilterKind;
use serde::Serialize;

use super::bench::Bench;
use super::changes::Changes;
use super::checks::Check;
use super::state::State;
use super::table_files;
use super::temporary_dir;
use super::work::Work;
use crate::failure::{Failure, Result};
use crate::interrupt::TemporaryDir;
use crate::text::counted;

/// What other filters on the same tables did.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct OtherFilters {
    /// The kind.
    pub kind: String,
    /// The policy.
    pub filter: String,
    /// The bytes of the filters before.
    pub filter_bytes_before: u64,
    /// Filters built beside their tables.
    pub rebuilt: u64,
    /// Table files.
    pub table_files: u64,
    /// Their bytes.
    pub table_bytes: u64,
    /// The store with these filters. Its checks are the six and `tables_untouched`.
    pub state: State,
}

/// Builds ribbon filters, or Bloom filters where the store has ribbons, in the bytes of the filters that are
/// there, and measures again; `None` for a store without filters.
pub(super) fn rebuild(
    bench: &Bench,
    changes: &Changes,
    filter_bytes: u64,
    work: &[Work; 2],
) -> Result<Option<OtherFilters>> {
    if filter_bytes == 0 {
        return Ok(None);
    }
    let before = table_files::digests(bench.dir)?;
    let own = bench.settings.filter;
    let is_ribbon = own == own.with_kind(FilterKind::Ribbon);
    let kind = if is_ribbon { FilterKind::Bloom } else { FilterKind::Ribbon };
    let policy = own.with_kind(kind).with_total_bytes(filter_bytes);
    bench.begin("other filters", 0);
    let db = bench.open(|options| options)?;
    let rebuilt = db.rebuild_filters(&policy)?.rebuilt;
    db.close()?;
    let mut state = State::measure(bench, policy, work, changes)?;
    let after = table_files::digests(bench.dir)?;
    state.add_check("tables_untouched", tables_untouched(&before, &after));
    Ok(Some(OtherFilters {
        kind: kind.to_string(),
        filter: policy.to_string(),
        filter_bytes_before: filter_bytes,
        rebuilt,
        table_files: after.len() as u64,
        table_bytes: after.values().map(|(bytes, _)| bytes).sum(),
        state,
    }))
}

/// [`rebuild`] in a copy of the store.
pub(super) fn rebuild_in_copy(
    bench: &Bench,
    filter_bytes: u64,
    work: &[Work; 2],
) -> Result<Option<OtherFilters>> {
    if filter_bytes == 0 {
        return Ok(None);
    }
    let copy = copy(bench)?;
    let bench = Bench { dir: copy.path(), ..*bench };
    rebuild(&bench, &Changes::none(), filter_bytes, work)
}

/// A temporary copy of the closed store.
pub(super) fn copy(bench: &Bench) -> Result<TemporaryDir> {
    let copy = temporary_dir()?;
    for entry in fs::read_dir(bench.dir).map_err(|e| Failure::file("list", bench.dir, e))? {
        let entry = entry.map_err(|e| Failure::file("list", bench.dir, e))?;
        let (from, to) = (entry.path(), copy.path().join(entry.file_name()));
        fs::copy(&from, to).map_err(|e| Failure::file("copy", &from, e))?;
    }
    Ok(copy)
}

/// Table files by number: their lengths and digests.
type Digests = BTreeMap<u64, (u64, u64)>;

/// The same table files, with the same bytes.
fn tables_untouched(before: &Digests, after: &Digests) -> Check {
    let other = before.iter().find(|(id, digest)| after.get(id) != Some(digest));
    let other = other.map(|(id, _)| id).or(after.keys().find(|id| !before.contains_key(id)));
    match other {
        Some(id) => Check::fails(format!("{id:06}.sst is not the file that it was")),
        None => Check::holds(format!(
            "{} of {} have the digests that they had",
            counted(after.len() as u64, "table file"),
            counted(after.values().map(|(bytes, _)| bytes).sum(), "byte"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_byte_or_file_is_noticed() {
        let files = |files: &[(u64, (u64, u64))]| files.iter().copied().collect::<Digests>();
        let before = files(&[(1, (10, 77)), (2, (20, 78))]);
        assert_eq!(tables_untouched(&before, &before).holds, Some(true));
        for other in [
            &[(1, (10, 77)), (2, (20, 79))][..],
            &[(1, (10, 77)), (2, (21, 78))],
            &[(1, (10, 77))],
            &[(1, (10, 77)), (2, (20, 78)), (3, (1, 1))],
        ] {
            let check = tables_untouched(&before, &files(other));
            assert_eq!(check.holds, Some(false), "{}", check.said);
        }
    }
}
