//! Edits of the set of live tables, and the set after all edits. See format.md, "Manifest".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::collections::BTreeMap;

use super::settings::StoreSettings;
use crate::clock::LATEST;
use crate::codec::{Fields, PutFields};
use crate::expiry::Millis;
use crate::filter::MOST_PREFIXES;
use crate::key::Seq;
use crate::ledger::LEVELS;
use crate::names::{FileName, MAX_FOUND_NUMBER};
use crate::sstable::{Compression, FilterMeta, MAX_EXPANSION, TableMeta};
use crate::wal::EXPIRY;
use criba_filter::store::HashKey;

const ADDED: u8 = 1;
const REMOVED: u8 = 2;
const LOG: u8 = 3;
const FLUSHED_SEQ: u8 = 4;
const NEXT_FILE: u8 = 5;
const HASH_KEY: u8 = 6;
const FILTER: u8 = 7;
const SETTINGS: u8 = 8;
const TIME: u8 = 9;
const DEFAULT_TTL: u8 = 10;
const COMPRESSION: u8 = 11;

/// The changes of one flush, compaction or rebuild.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Edit {
    pub(crate) added: Vec<(usize, TableMeta)>,
    /// Level and id.
    pub(crate) removed: Vec<(usize, u64)>,
    /// The oldest log with entries that are not in tables.
    pub(crate) log: Option<u64>,
    /// The newest sequence number in tables.
    pub(crate) flushed_seq: Option<Seq>,
    /// A number above all file numbers.
    pub(crate) next_file: Option<u64>,
    /// The hash key of the store: in the first edit of each manifest, and never another.
    pub(crate) hash_key: Option<HashKey>,
    /// New filters by table id.
    pub(crate) filters: Vec<(u64, FilterMeta)>,
    /// The settings from now on: in the first edit of each manifest.
    pub(crate) settings: Option<StoreSettings>,
    /// The time of the store, if it has expiring entries.
    pub(crate) time: Option<Millis>,
}

impl Edit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (level, id) in &self.removed {
            bytes.put_u8(REMOVED);
            bytes.put_u8(*level as u8);
            bytes.put_u64(*id);
        }
        for (level, meta) in &self.added {
            bytes.put_u8(ADDED);
            bytes.put_u8(*level as u8);
            meta.encode(&mut bytes);
        }
        let default_ttl = self.settings.and_then(|settings| settings.default_ttl);
        for (tag, field) in [
            (LOG, self.log),
            (FLUSHED_SEQ, self.flushed_seq),
            (NEXT_FILE, self.next_file),
            (TIME, self.time),
            (DEFAULT_TTL, default_ttl),
        ] {
            if let Some(value) = field {
                bytes.put_u8(tag);
                bytes.put_u64(value);
            }
        }
        if let Some(key) = &self.hash_key {
            bytes.put_u8(HASH_KEY);
            bytes.extend_from_slice(key.bytes());
        }
        for (id, filter) in &self.filters {
            bytes.put_u8(FILTER);
            bytes.put_u64(*id);
            filter.encode(&mut bytes);
        }
        if let Some(settings) = &self.settings {
            bytes.put_u8(SETTINGS);
            settings.encode(&mut bytes);
            if let Some(compression) = settings.compression {
                bytes.put_u8(COMPRESSION);
                bytes.put_u8(compression.id());
            }
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let mut edit = Self::default();
        let (mut default_ttl, mut compression) = (None, None);
        let level =
            |fields: &mut Fields<'_>| fields.u8().map(usize::from).filter(|&level| level < LEVELS);
        while !fields.is_empty() {
            match fields.u8()? {
                ADDED => edit.added.push((level(&mut fields)?, TableMeta::decode(&mut fields)?)),
                REMOVED => edit.removed.push((level(&mut fields)?, fields.u64()?)),
                LOG => once(&mut edit.log, fields.u64()?)?,
                FLUSHED_SEQ => once(&mut edit.flushed_seq, fields.u64()?)?,
                NEXT_FILE => once(&mut edit.next_file, fields.u64()?)?,
                HASH_KEY => {
                    let key = fields.bytes(HashKey::BYTES)?;
                    once(&mut edit.hash_key, HashKey::new(key.try_into().ok()?))?;
                }
                FILTER => edit.filters.push((fields.u64()?, FilterMeta::decode(&mut fields)?)),
                SETTINGS => once(&mut edit.settings, StoreSettings::decode(&mut fields)?)?,
                TIME => once(&mut edit.time, fields.u64().filter(|&time| time <= LATEST)?)?,
                DEFAULT_TTL => once(&mut default_ttl, fields.u64().filter(|&ttl| ttl > 0)?)?,
                COMPRESSION => once(&mut compression, Compression::with_id(fields.u8()?)?)?,
                _ => return None,
            }
        }
        if default_ttl.is_some() {
            edit.settings.as_mut()?.default_ttl = default_ttl;
        }
        if compression.is_some() {
            edit.settings.as_mut()?.compression = compression;
        }
        Some(edit)
    }
}

/// Takes a field that an edit has at most once.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// What the manifest amounts to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableSet {
    /// Level and record of each table, by id.
    pub(crate) tables: BTreeMap<u64, (usize, TableMeta)>,
    pub(crate) log: u64,
    pub(crate) flushed_seq: Seq,
    pub(crate) next_file: u64,
    pub(crate) hash_key: HashKey,
    pub(crate) settings: StoreSettings,
    /// The time up to which the store was in use, if it has expiring entries.
    pub(crate) time: Option<Millis>,
}

impl TableSet {
    /// The set of a store without tables.
    pub(crate) fn new(hash_key: HashKey, settings: StoreSettings) -> Self {
        Self {
            tables: BTreeMap::new(),
            log: 0,
            flushed_seq: 0,
            next_file: 0,
            hash_key,
            settings,
            time: None,
        }
    }

    /// The features that a reader of this set must know; see format.md, "Manifest".
    pub(crate) fn required_features(&self) -> u32 {
        self.settings.required_features() | if self.time.is_some() { EXPIRY } else { 0 }
    }

    /// The set that the first edit of a manifest makes, or why it cannot be the first.
    pub(crate) fn first(edit: &Edit) -> Result<Self, String> {
        let hash_key = edit.hash_key.ok_or("a first edit without the key of the store's hash")?;
        let settings = edit.settings.ok_or("a first edit without settings")?;
        let mut set = Self::new(hash_key, settings);
        set.apply(edit)?;
        Ok(set)
    }

    /// Applies an edit. Fails with the reason why it cannot follow.
    pub(crate) fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        for (level, id) in &edit.removed {
            match self.tables.remove(id) {
                Some((at, _)) if at == *level => {}
                _ => {
                    return Err(format!(
                        "the removal of table {id}, which is not on level {level}"
                    ));
                }
            }
        }
        for (level, meta) in &edit.added {
            if self.tables.insert(meta.id, (*level, meta.clone())).is_some() {
                return Err(format!("a second table {}", meta.id));
            }
        }
        for (id, filter) in &edit.filters {
            let Some((_, meta)) = self.tables.get_mut(id) else {
                return Err(format!("a filter of table {id}, which is not there"));
            };
            let (old, new) = (meta.filter.generation, filter.generation);
            if new <= old {
                return Err(format!("filter {new} of table {id} after filter {old}"));
            }
            meta.filter = *filter;
        }
        for (field, value) in [
            (&mut self.log, edit.log),
            (&mut self.flushed_seq, edit.flushed_seq),
            (&mut self.next_file, edit.next_file),
        ] {
            if let Some(value) = value {
                if value < *field {
                    return Err(format!("a counter that goes back from {field} to {value}"));
                }
                *field = value;
            }
        }
        if edit.hash_key.is_some_and(|key| key != self.hash_key) {
            return Err("a second hash key".into());
        }
        self.settings = edit.settings.unwrap_or(self.settings);
        if let Some(time) = edit.time {
            if self.time > Some(time) {
                return Err(format!("a time of {time}, which goes back"));
            }
            self.time = Some(time);
        }
        Ok(())
    }

    /// Replaces the settings. Another extractor gives other prefixes, in numbers that are not known.
    pub(crate) fn replace_settings(&mut self, settings: StoreSettings) {
        if settings.extractor != self.settings.extractor {
            for (_, meta) in self.tables.values_mut() {
                meta.prefixes = None;
            }
        }
        self.settings = settings;
    }

    /// The edit that makes this set from the empty one.
    pub(crate) fn as_edit(&self) -> Edit {
        Edit {
            added: self.tables.values().cloned().collect(),
            removed: Vec::new(),
            log: Some(self.log),
            flushed_seq: Some(self.flushed_seq),
            next_file: Some(self.next_file),
            hash_key: Some(self.hash_key),
            filters: Vec::new(),
            settings: Some(self.settings),
            time: self.time,
        }
    }

    /// The set that a reader makes of its edit alone, or why it refuses it.
    pub(crate) fn read(edit: &[u8]) -> Result<Self, String> {
        let edit = Edit::decode(edit).ok_or("a field that is out of bounds")?;
        let set = Self::first(&edit)?;
        set.check()?;
        Ok(set)
    }

    /// Whether both name the same tables and logs.
    pub(crate) fn has_same_tables(&self, other: &Self) -> bool {
        let Self { tables, log, flushed_seq, .. } = self;
        (tables, log, flushed_seq) == (&other.tables, &other.log, &other.flushed_seq)
    }

    /// Whether a file belongs to the store with this set in manifest number `manifest`.
    pub(crate) fn refers_to(&self, name: FileName, manifest: u64) -> bool {
        match name {
            FileName::Table(id) => self.tables.contains_key(&id),
            FileName::Filter { table, .. } => self
                .tables
                .get(&table)
                .is_some_and(|(_, meta)| meta.filter.file_of(table) == Some(name)),
            FileName::Log(number) => number >= self.log,
            FileName::Manifest(number) => number == manifest,
            FileName::CurrentTemp => false,
            FileName::Current | FileName::Lock => true,
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        for level in 1..LEVELS {
            let mut tables: Vec<_> =
                self.tables.values().filter(|(at, _)| *at == level).map(|(_, meta)| meta).collect();
            tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
            let overlap =
                tables.iter().zip(tables.iter().skip(1)).find(|(a, b)| a.largest >= b.smallest);
            if let Some((a, b)) = overlap {
                return Err(format!("tables {} and {} of level {level} overlapping", a.id, b.id));
            }
        }
        // L0 is searched newest first, which finds the newest version only if no two interleave.
        let mut l0: Vec<_> =
            self.tables.values().filter(|(at, _)| *at == 0).map(|(_, meta)| meta).collect();
        l0.sort_by_key(|meta| meta.max_seq);
        let interleave = l0.iter().zip(l0.iter().skip(1)).find(|(a, b)| a.max_seq >= b.min_seq);
        if let Some((a, b)) = interleave {
            return Err(format!(
                "tables {} and {} of level 0 with changes interleaved",
                a.id, b.id
            ));
        }
        for (counter, value) in [
            ("log number", self.log),
            ("sequence number", self.flushed_seq),
            ("file number", self.next_file),
        ] {
            if value > MAX_FOUND_NUMBER {
                return Err(format!("a {counter} of {value}"));
            }
        }
        for (_, meta) in self.tables.values() {
            let sound = meta.smallest <= meta.largest
                && meta.min_seq <= meta.max_seq
                && meta.max_seq <= self.flushed_seq
                && 0 < meta.keys
                && meta.keys <= meta.entries
                && meta.prefixes <= Some(meta.keys.saturating_mul(MOST_PREFIXES.into()))
                && meta.entries <= meta.decompressed_size()
                && meta.decompressed_size() <= meta.size.saturating_mul(MAX_EXPANSION as u64)
                && meta.index_offset < meta.size
                && meta.filter.generation <= MAX_FOUND_NUMBER
                && meta.id < self.next_file
                && (meta.expiries.is_none() || self.time.is_some())
                && (meta.contents_bytes.is_none() || self.settings.compression.is_some())
                && meta.number().is_none_or(|number| {
                    number > 0
                        && number == meta.min_seq
                        && meta.tombstones == 0
                        && meta.keys == meta.entries
                });
            if !sound {
                return Err(format!("a record of table {} that contradicts itself", meta.id));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterPolicy, PrefixExtractor};
    use crate::sstable::TableRandom;

    fn meta(id: u64, smallest: &[u8], largest: &[u8]) -> TableMeta {
        TableMeta {
            id,
            size: 1000,
            index_offset: 800,
            footer_checksum: 1,
            random: TableRandom::new(3, 4),
            filter: FilterMeta { generation: 3, bytes: 200, checksum: 2 },
            entries: 10,
            tombstones: 1,
            hidden_bytes: 7,
            prefixes: Some(8),
            is_ingested: false,
            expiries: None,
            contents_bytes: None,
            keys: 9,
            min_seq: 1,
            max_seq: 10,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
        }
    }

    fn empty_set() -> TableSet {
        TableSet::new(HashKey::new([9; 16]), StoreSettings::default())
    }

    fn sample() -> Edit {
        Edit {
            added: vec![(0, meta(5, b"", b"zz")), (6, meta(4, b"a", b"b"))],
            removed: vec![(1, 3), (0, 2)],
            log: Some(6),
            flushed_seq: Some(10),
            next_file: Some(8),
            hash_key: Some(HashKey::new([9; 16])),
            filters: vec![(5, FilterMeta { generation: 4, bytes: 0, checksum: 0 })],
            settings: Some(StoreSettings {
                policy: FilterPolicy::classic(),
                extractor: Some(PrefixExtractor::fixed(3)),
                default_ttl: Some(7),
                compression: Some(Compression::Lz4),
            }),
            time: Some(8),
        }
    }

    #[test]
    fn an_edit_comes_back_and_no_cut_one_passes_for_it() {
        let edit = sample();
        let bytes = edit.encode();
        assert_eq!(Edit::decode(&bytes), Some(edit.clone()));
        for length in 0..bytes.len() {
            assert_ne!(Edit::decode(&bytes[..length]), Some(edit.clone()));
        }
        assert_eq!(Edit::decode(&[99]), None);
        assert_eq!(Edit::decode(&[REMOVED, 7, 0, 0, 0, 0, 0, 0, 0, 0]), None, "level 7");
    }

    #[test]
    fn an_edit_says_one_thing_of_the_store_once() {
        let counters = [7_u64, 9].map(|number| number.to_le_bytes().to_vec());
        let settings = [FilterPolicy::classic(), FilterPolicy::none()].map(|policy| {
            let mut bytes = Vec::new();
            StoreSettings { policy, ..StoreSettings::default() }.encode(&mut bytes);
            bytes
        });
        for (tag, [one, other]) in [
            (LOG, counters.clone()),
            (FLUSHED_SEQ, counters.clone()),
            (NEXT_FILE, counters),
            (HASH_KEY, [vec![7; 16], vec![9; 16]]),
            (SETTINGS, settings),
        ] {
            let edit = |fields: &[&[u8]]| {
                let bytes = fields.iter().flat_map(|field| [&[tag], *field].concat());
                Edit::decode(&bytes.collect::<Vec<u8>>())
            };
            assert!(edit(&[&one]).is_some() && edit(&[&other]).is_some(), "field {tag}");
            for second in [&one, &other] {
                assert_eq!(edit(&[&one, second]), None, "field {tag}");
                assert_eq!(edit(&[second, &one]), None, "field {tag}");
            }
        }
    }

    #[test]
    fn a_compression_belongs_to_settings_and_is_known() {
        let settings =
            StoreSettings { compression: Some(Compression::None), ..StoreSettings::default() };
        let edit = Edit { settings: Some(settings), ..Edit::default() };
        let bytes = edit.encode();
        assert_eq!(bytes[bytes.len() - 2..], [COMPRESSION, 0]);
        assert_eq!(Edit::decode(&bytes), Some(edit));
        assert_eq!(Edit::decode(&bytes[bytes.len() - 2..]), None, "without settings");
        let with = |more: &[u8]| Edit::decode(&[&bytes[..bytes.len() - 2], more].concat());
        assert!(with(&[COMPRESSION, 1]).is_some());
        for wrong in [&[COMPRESSION, 2][..], &[COMPRESSION], &[COMPRESSION, 1, COMPRESSION, 1]] {
            assert_eq!(with(wrong), None);
        }
        assert_eq!(settings.required_features(), crate::wal::COMPRESSION);
        assert_eq!(StoreSettings::default().required_features(), 0);
    }

    #[test]
    fn a_set_is_rebuilt_from_its_own_edit() {
        let edit = Edit { removed: vec![], ..sample() };
        let set = TableSet::first(&edit).expect("a first edit");
        assert_eq!(set.check(), Ok(()));
        assert_eq!(set.tables[&5].1.filter, edit.filters[0].1);
        assert_eq!(TableSet::first(&set.as_edit()), Ok(set));
    }

    #[test]
    fn edits_that_cannot_follow_are_refused() {
        assert!(TableSet::first(&sample()).is_err(), "removes tables that are not there");
        let first = Edit { removed: vec![], ..sample() };
        for lacking in
            [Edit { hash_key: None, ..first.clone() }, Edit { settings: None, ..first.clone() }]
        {
            assert!(TableSet::first(&lacking).is_err(), "{lacking:?}");
        }
        let set = TableSet::first(&first).expect("a first edit");
        let elsewhere = Edit { removed: vec![(1, 5)], ..Edit::default() };
        assert!(set.clone().apply(&elsewhere).is_err(), "table 5 is on another level");
        let added = Edit { added: vec![(3, meta(5, b"", b""))], ..Edit::default() };
        assert!(set.clone().apply(&added).is_err(), "a second table 5");
        let rekeyed = Edit { hash_key: Some(HashKey::new([8; 16])), ..Edit::default() };
        assert!(set.clone().apply(&rekeyed).is_err(), "a second hash key");
        let same = Edit { hash_key: Some(set.hash_key), ..Edit::default() };
        assert_eq!(set.clone().apply(&same), Ok(()), "the hash key once more");
        let filter = |id, generation| {
            let meta = FilterMeta { generation, bytes: 7, checksum: 8 };
            set.clone().apply(&Edit { filters: vec![(id, meta)], ..Edit::default() })
        };
        assert!(filter(6, 5).is_err(), "a filter of no table");
        assert!(filter(4, 3).is_err(), "a filter that is there already");
        assert_eq!(filter(4, 5), Ok(()));
        let back = Edit { next_file: Some(7), ..Edit::default() };
        assert!(set.clone().apply(&back).is_err(), "a counter going back");
        let endless = FilterMeta { generation: MAX_FOUND_NUMBER + 1, ..FilterMeta::default() };
        let (size, contents) = (1000, Some(255_000));
        let compressed = || TableMeta { contents_bytes: contents, ..meta(6, b"x", b"y") };
        let added = |set: &TableSet, meta: TableMeta| {
            let mut set = set.clone();
            set.apply(&Edit { added: vec![(1, meta)], ..Edit::default() }).expect("it follows");
            set.check()
        };
        assert_eq!(added(&set, TableMeta { entries: 255_000, ..compressed() }), Ok(()));
        let mut plain = set.clone();
        plain.settings.compression = None;
        assert!(added(&plain, compressed()).is_err(), "no compression is recorded");
        assert_eq!(added(&plain, meta(6, b"x", b"y")), Ok(()));
        for (level, bad) in [
            (1, TableMeta { contents_bytes: Some(255 * size + 1), ..compressed() }), // by no LZ4
            (1, TableMeta { entries: 255_001, ..compressed() }), // more than its contents can hold
            (6, meta(6, b"b", b"c")),                            // overlaps table 4
            (1, TableMeta { keys: 0, ..meta(6, b"x", b"y") }),   // no keys
            (1, TableMeta { prefixes: Some(145), ..meta(6, b"x", b"y") }), // more than 16 of a key
            (1, TableMeta { max_seq: 11, ..meta(6, b"x", b"y") }), // newer than flushed
            (1, TableMeta { index_offset: 1000, ..meta(6, b"x", b"y") }), // no room for an index
            (1, TableMeta { entries: 1001, ..meta(6, b"x", b"y") }), // more than its bytes can hold
            (1, meta(8, b"x", b"y")),                            // a number not yet given
            (1, meta(6, b"y", b"x")),                            // range upside down
            (1, TableMeta { filter: endless, ..meta(6, b"x", b"y") }), // no room above it
        ] {
            let mut set = set.clone();
            set.apply(&Edit { added: vec![(level, bad)], ..Edit::default() }).expect("it follows");
            assert!(set.check().is_err());
        }
    }

    #[test]
    fn a_set_refers_to_its_own_files_alone() {
        let set = TableSet::first(&Edit { removed: vec![], ..sample() }).expect("a first edit");
        let filter = |table, generation| FileName::Filter { table, generation };
        for (name, referred) in [
            (FileName::Table(5), true),
            (FileName::Table(3), false),
            (filter(4, 3), true),
            (filter(4, 2), false),
            (filter(4, 4), false),
            (filter(3, 3), false),
            (FileName::Log(5), false),
            (FileName::Log(6), true),
            (FileName::Log(7), true),
            (FileName::Manifest(2), true),
            (FileName::Manifest(3), false),
            (FileName::Current, true),
            (FileName::CurrentTemp, false),
            (FileName::Lock, true),
        ] {
            assert_eq!(set.refers_to(name, 2), referred, "{name}");
        }
    }

    #[test]
    fn counters_from_which_no_store_could_go_on_are_refused() {
        let most = MAX_FOUND_NUMBER;
        for (log, flushed_seq, next_file, sound) in [
            (most, most, most, true),
            (most + 1, most, most, false),
            (most, most + 1, most, false),
            (most, most, most + 1, false),
        ] {
            let set = TableSet { log, flushed_seq, next_file, ..empty_set() };
            assert_eq!(set.check().is_ok(), sound, "{log} {flushed_seq} {next_file}");
        }
    }

    #[test]
    fn tables_of_l0_whose_changes_interleave_are_refused() {
        let of = |id, min_seq, max_seq| TableMeta { min_seq, max_seq, ..meta(id, b"a", b"z") };
        for (changes, sound) in [
            ([(1, 3), (4, 7)], true),
            ([(4, 7), (1, 3)], true),
            ([(1, 4), (4, 7)], false),
            ([(2, 3), (1, 7)], false),
        ] {
            let [(a, b), (c, d)] = changes;
            let (mut set, filters) = (empty_set(), Vec::new());
            let added = vec![(0, of(1, a, b)), (0, of(2, c, d))];
            set.apply(&Edit { added, removed: vec![], filters, ..sample() }).expect("a first edit");
            assert_eq!(set.check().is_ok(), sound, "{changes:?}");
        }
    }
}
