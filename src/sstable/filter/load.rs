//! Loads the filter of a table into memory, as a whole or in part, and releases it.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::io;
use std::sync::Arc;

use super::memory::resident_bytes;
use super::{Filter, FilterHeader, FilterSource, FilterState, OpenTable, Portion, TableFilter};
use crate::codec::ChecksumAt;
use crate::sstable::env::TableEnv;
use crate::sstable::format::{BlockType, TRAILER_BYTES};
use crate::sstable::reader::Table;

/// Larger filters are read in pieces of this size if only a part is wanted. Whole 64-bit words.
const PIECE_BYTES: usize = 256 * 1024;

impl TableFilter {
    /// The stored header and the resident portion; `None` without a usable filter.
    pub(crate) fn residency(&self) -> Option<(&FilterHeader, Portion)> {
        match &self.state {
            FilterState::Active(filter) => Some((filter.stored(), filter.portion())),
            FilterState::NotResident(stored) => Some((stored, Portion::Nothing)),
            FilterState::None | FilterState::Degraded(_) => None,
        }
    }

    /// The stored header, if no damage is known.
    pub(crate) fn sound(&self) -> Option<&FilterHeader> {
        match &self.state {
            FilterState::Active(filter) if filter.damage().is_some() => None,
            _ => self.residency().map(|(stored, _)| stored),
        }
    }

    /// The same filter with nothing resident.
    pub(crate) fn not_resident(&self) -> Self {
        self.in_state(match &self.state {
            FilterState::None => FilterState::None,
            FilterState::Active(filter) => FilterState::NotResident(*filter.stored()),
            FilterState::NotResident(stored) => FilterState::NotResident(*stored),
            FilterState::Degraded(reason) => FilterState::Degraded(reason.clone()),
        })
    }

    /// The same filter with less of it resident; with nothing, if memory is not available. No I/O.
    pub(crate) fn reduced_to(&self, portion: Portion) -> Self {
        match (&self.state, portion) {
            (FilterState::Active(filter), Portion::Columns(columns)) => {
                match filter.narrowed(columns) {
                    Ok(narrow) => self.in_state(FilterState::Active(narrow)),
                    Err(_) => self.not_resident(),
                }
            }
            _ => self.not_resident(),
        }
    }
}

impl OpenTable {
    /// Releases the part of a new table's filter that exceeds the budget. The proof needed all of it.
    pub(crate) fn reduce_to_budget(&mut self) {
        let memory = &self.table.env().filter_memory;
        let _budget = memory.lock_budget();
        let Some((stored, has)) = self.filter.residency() else { return };
        let old = resident_bytes(stored, has);
        let fits = |portion: &Portion| memory.has_room(old, resident_bytes(stored, *portion));
        let portion = stored.portions().filter(fits).last().unwrap_or(Portion::Nothing);
        if portion < has {
            self.filter = Arc::new(self.filter.reduced_to(portion));
        }
    }
}

impl Table {
    /// Reads and verifies the filter again, and keeps a portion of it, at least one column. Fails with what
    /// is wrong.
    pub(crate) fn load_portion(
        &self,
        filter: &TableFilter,
        stored: &FilterHeader,
        portion: Portion,
    ) -> Result<Filter, String> {
        let env = self.env();
        let source = self.filter_source(filter.meta)?.ok_or("there is none")?;
        let Portion::Columns(columns) = portion else {
            return self.read_filter(&source, filter.meta);
        };
        let block = FilterBlock {
            env,
            checksum: ChecksumAt::new(source.salt, source.bound_to),
            source,
            expected: filter.meta.checksum,
        };
        let keys = self.meta().keys;
        let mut damage = None;
        let meter = env.filter_memory.meter();
        let loaded = stored.first_columns(columns, meter, |take| {
            let header = block.read(take).map_err(|reason| {
                damage = Some(reason);
                io::Error::other("damaged")
            })?;
            let read = FilterHeader::decode(&header, stored.bytes(), keys, &env.hash_key);
            if read.as_ref() != Ok(stored) {
                damage = Some("its header is not what it was".into());
            }
            if damage.is_some() { Err(io::Error::other("damaged")) } else { Ok(()) }
        });
        loaded.map_err(|error| damage.unwrap_or_else(|| format!("it cannot be held: {error}")))
    }
}

struct FilterBlock<'a> {
    env: &'a TableEnv,
    source: FilterSource,
    checksum: ChecksumAt,
    /// As the manifest has it.
    expected: u32,
}

impl FilterBlock<'_> {
    /// Reads the whole block, passes its array to `take`, and returns its header. Fails unless all of it is
    /// what the manifest names.
    fn read(mut self, take: &mut dyn FnMut(&[u8])) -> Result<Vec<u8>, String> {
        let end = self.source.block.length + TRAILER_BYTES as u64;
        let mut buffer = vec![0; end.min((PIECE_BYTES + TRAILER_BYTES) as u64) as usize];
        let (mut header, mut trailer) = (Vec::new(), [0; TRAILER_BYTES]);
        let mut at = 0;
        while at < end {
            // The last piece has the trailer as a whole.
            let left = end - at;
            let last = left <= buffer.len() as u64;
            let length = if last { left as usize } else { PIECE_BYTES };
            let piece = buffer.get_mut(..length).unwrap_or_default();
            self.env.ledger.open_reads.count(length as u64);
            let read = self.source.file.read_exact_at(piece, self.source.block.offset + at);
            read.map_err(|e| format!("it cannot be read: {e}"))?;
            let mut array = &*piece;
            if last && let Some((rest, found)) = array.split_last_chunk() {
                (array, trailer) = (rest, *found);
            }
            self.checksum.update(array);
            if at == 0 {
                let (found, rest) = array.split_at_checked(FilterHeader::BYTES).unwrap_or_default();
                (array, header) = (rest, found.to_vec());
            }
            take(array);
            at += length as u64;
        }
        let [block_type, stored @ ..] = trailer;
        self.checksum.update(&[block_type]);
        let (stored, computed) = (u32::from_le_bytes(stored), self.checksum.finish());
        if stored != computed {
            return Err(format!(
                "its block has a wrong checksum: {stored:#010x} stored, {computed:#010x} computed"
            ));
        }
        if block_type != BlockType::Filter as u8 || stored != self.expected {
            return Err("it is not the filter that the manifest names".into());
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::filter::{FilterPolicy, KeyHashes};
    use crate::sstable::samples::{env, put, recipe, writer};
    use criba_filter::FilterKind;

    fn sample(dir: &Path, keys: u32) -> (Arc<TableEnv>, OpenTable, KeyHashes) {
        let env = env(dir);
        let policy = FilterPolicy::bits_per_key(60.0).with_kind(FilterKind::Ribbon);
        let recipe = recipe(&policy);
        let mut writer = writer(&env, 1, 4096, Some(&recipe));
        for i in 0..keys {
            writer.add(put(&i.to_be_bytes(), 1, b"")).expect("written");
        }
        let finished = writer.finish(Some(recipe)).expect("finished").keep();
        let open = Table::open(&env, finished.meta).expect("sound");
        (env, open, finished.hashes.expect("made for the filter"))
    }

    #[test]
    fn a_new_filter_keeps_as_much_as_there_is_room_for() {
        let dir = crate::tempdir::tempdir();
        let (env, mut open, hashes) = sample(dir.path(), 3000);
        let memory = &env.filter_memory;
        let stored = *open.filter.sound().expect("a sound filter");
        let whole = resident_bytes(&stored, Portion::Whole);
        assert_eq!(memory.resident(), whole);
        memory.set_budget(Some(whole));
        open.reduce_to_budget();
        assert_eq!(open.filter.residency(), Some((&stored, Portion::Whole)));

        memory.set_budget(Some(whole / 2));
        open.reduce_to_budget();
        let kept = open.filter.residency().expect("a filter").1;
        let next = stored.portions().find(|portion| *portion > kept).expect("more than is kept");
        assert!(matches!(kept, Portion::Columns(_)), "{kept:?}");
        assert!(memory.resident() <= whole / 2 && resident_bytes(&stored, next) > whole / 2);
        open.verify_filter(&hashes).expect("the first columns know all keys");
        assert_eq!(open.filter.sound(), Some(&stored));
        let FilterState::Active(filter) = &open.filter.state else { panic!("{:?}", open.filter) };
        filter.stored_is_damaged("a flipped bit".into());
        assert_eq!(open.filter.sound(), None);

        memory.set_budget(Some(0));
        open.reduce_to_budget();
        assert_eq!(open.filter.residency(), Some((&stored, Portion::Nothing)));
        assert_eq!(memory.resident(), 0);
    }

    #[test]
    fn a_filter_of_more_than_one_piece_is_read_whole() {
        let dir = crate::tempdir::tempdir();
        let (env, open, hashes) = sample(dir.path(), 100_000);
        let FilterState::Active(whole) = &open.filter.state else { panic!("{:?}", open.filter) };
        let stored = *whole.stored();
        assert!(stored.bytes() > 2 * PIECE_BYTES, "{}", stored.bytes());
        let load = || open.table.load_portion(&open.filter, &stored, Portion::Columns(3));

        let (read, narrowed) = (load().expect("sound"), whole.narrowed(3).expect("columns"));
        for hash in hashes.iter() {
            assert!(read.may_contain_hash(hash));
        }
        for hash in (0..20_000_u64).map(criba_filter::store::mix) {
            assert_eq!(read.may_contain_hash(hash), narrowed.may_contain_hash(hash));
        }

        // As sound as it is, it must be the one that the manifest names.
        let mut meta = open.filter.meta;
        meta.checksum ^= 1;
        let other = TableFilter::new(&env, open.table.id(), meta, FilterState::None);
        let found = open.table.load_portion(&other, &stored, Portion::Columns(3)).map(|_| ());
        assert_eq!(found, Err("it is not the filter that the manifest names".into()));

        let mut bytes = std::fs::read(open.table.path()).expect("readable");
        let (start, length) = (open.table.filter_block().offset as usize, stored.bytes());
        for at in [0, PIECE_BYTES - 1, PIECE_BYTES, length - 1, length, length + 4] {
            bytes[start + at] ^= 1;
            std::fs::write(open.table.path(), &bytes).expect("writable");
            load().expect_err("a flipped bit");
            bytes[start + at] ^= 1;
        }
        std::fs::write(open.table.path(), &bytes).expect("writable");
        load().expect("sound again");
    }
}
