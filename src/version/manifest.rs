//! The manifest: the log of edits, and the file `CURRENT`, which names it.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use super::edit::{Edit, TableSet};
use crate::codec::{may_be_unsynced, other_version};
use crate::error::{Error, IoContext, Result};
use crate::names::FileName;
use crate::random::{Purpose, RandomSource};
use crate::store_dir::StoreDir;
use crate::wal::{FileHeader, Item, LogError, LogKind, LogReader, LogWriter, LostTail};
use criba_filter::store::shown;

/// The manifest is rewritten when it has this many times the bytes of its content …
const REWRITE_FACTOR: u64 = 4;
/// … and at least this many bytes.
const REWRITE_FROM_BYTES: u64 = 64 * 1024;

/// The first line of `CURRENT`: the version of the store's layout.
const CURRENT_HEADER: &str = "criba 2";
const MAX_CURRENT_BYTES: u64 = 256;

#[derive(Debug)]
pub(crate) struct Manifest {
    log: LogWriter,
    set: TableSet,
    /// The number of edits, which number the records.
    edits: u64,
    /// The length right after the last rewriting.
    rewritten_bytes: u64,
    /// The required features in the header.
    features: u32,
    store: u64,
    random: RandomSource,
}

impl Manifest {
    /// Writes a new manifest with `set` as one edit: durable, but not yet current. Dropped before
    /// [`make_current`](Self::make_current), it removes itself. What a reader would refuse is not written.
    pub(crate) fn create(
        dir: &StoreDir,
        number: u64,
        store: u64,
        random: RandomSource,
        set: TableSet,
    ) -> Result<Self> {
        let features = set.required_features();
        let edit = set.as_edit().encode();
        let refused = |found| Error::corrupt(dir.path(), 0, "tables that a reader accepts", found);
        TableSet::read(&edit).map_err(refused)?;
        let salt = random.number(Purpose::SaltOfManifest { number })?;
        let header = FileHeader { features, store, salt };
        let mut log = LogWriter::create(dir, LogKind::Manifest, number, header, true)?;
        let written = log.append([(0, edit.as_slice())]);
        written.and_then(|_| log.sync()).map_err(LogError::into_error)?;
        let rewritten_bytes = log.length();
        Ok(Self { log, set, edits: 1, rewritten_bytes, features, store, random })
    }

    /// Keeps the file without making it current, for tests of damage.
    #[cfg(feature = "testing")]
    pub(crate) fn keep(self) {
        self.log.keep_file();
    }

    pub(crate) fn number(&self) -> u64 {
        self.log.id().number
    }

    pub(crate) fn set(&self) -> &TableSet {
        &self.set
    }

    /// Records an edit durably. An edit that a reader would refuse is not written.
    pub(crate) fn record(&mut self, edit: &Edit) -> std::result::Result<(), LogError> {
        let bytes = edit.encode();
        let mut set = self.set.clone();
        let read = Edit::decode(&bytes).ok_or_else(|| "a field that is out of bounds".to_owned());
        read.and_then(|edit| set.apply(&edit)).and_then(|()| set.check()).map_err(|found| {
            LogError::Refused(Error::corrupt(
                self.log.path(),
                self.log.length(),
                "an edit that follows",
                found,
            ))
        })?;
        self.log.append([(self.edits, bytes.as_slice())])?;
        self.log.sync()?;
        self.edits += 1;
        self.set = set;
        Ok(())
    }

    /// Whether an edit may lead to a set: the header has the features that it requires.
    pub(crate) fn allows(&self, set: &TableSet) -> bool {
        set.required_features() & !self.features == 0
    }

    pub(crate) fn wants_rewriting(&self) -> bool {
        self.log.length() > (REWRITE_FACTOR * self.rewritten_bytes).max(REWRITE_FROM_BYTES)
    }

    /// Makes this the manifest in force. After an error that is [`LogError::Broken`] it may be, and stays.
    pub(crate) fn make_current(&mut self, dir: &StoreDir) -> std::result::Result<(), LogError> {
        let made = set_current(dir, self.number());
        if matches!(made, Err(LogError::Refused(_))) {
            return made;
        }
        self.log.keep_file();
        made
    }

    /// Continues in a new manifest, with this set. After the first kind of error this one is
    /// current; after the second kind either may be.
    pub(crate) fn rewrite(
        &mut self,
        dir: &StoreDir,
        number: u64,
        set: TableSet,
    ) -> std::result::Result<u64, LogError> {
        let next = Self::create(dir, number, self.store, self.random, set);
        let mut next = next.map_err(LogError::Refused)?;
        next.make_current(dir)?;
        let old = self.number();
        *self = next;
        Ok(old)
    }

    /// Reads a manifest. Each edit was synced before the next one, so damage before the last edit is an
    /// error, and an incomplete last edit was never in force.
    pub(crate) fn read(dir: &StoreDir, number: u64) -> Result<(TableSet, u64, Option<LostTail>)> {
        let (set, store, lost, _) = Self::read_all(dir, number)?;
        Ok((set, store, lost))
    }

    /// As `read`, with damage in the header's rest.
    pub(crate) fn read_all(
        dir: &StoreDir,
        number: u64,
    ) -> Result<(TableSet, u64, Option<LostTail>, Option<Error>)> {
        let path = dir.path_of(FileName::Manifest(number));
        let reader = LogReader::open(dir, LogKind::Manifest, number, None);
        let mut reader = match reader {
            Err(error) if error.is_missing_file() => {
                return Err(Error::Missing { path, named_by: FileName::Current.to_string() });
            }
            other => other?,
        };
        let header = reader
            .header()?
            .map_err(|found| Error::corrupt(&path, 0, "a manifest header", found))?;
        let wrong_rest = reader.wrong_rest_of_header()?.map(|offset| {
            Error::corrupt(&path, offset, "zeros and a second copy of the salt", "different bytes")
        });
        let (set, _, lost) = Self::read_edits(reader, &path)?;
        Ok((set, header.store, lost, wrong_rest))
    }

    /// Reads the edits of a manifest, whose header was read. Returns the set after them, their number, and an
    /// incomplete last one.
    pub(crate) fn read_edits(
        mut reader: LogReader,
        path: &std::path::Path,
    ) -> Result<(TableSet, u64, Option<LostTail>)> {
        let mut set: Option<TableSet> = None;
        let mut edits = 0;
        let mut lost = None;
        loop {
            match reader.next()? {
                Item::Record { seq, offset, payload } => {
                    let corrupt = |found| Error::corrupt(path, offset, "a version edit", found);
                    if seq != edits {
                        return Err(corrupt(format!("edit number {seq} instead of {edits}")));
                    }
                    let edit =
                        Edit::decode(&payload).ok_or_else(|| corrupt("an invalid edit".into()))?;
                    match &mut set {
                        Some(set) => set.apply(&edit).map_err(corrupt)?,
                        None => set = Some(TableSet::first(&edit).map_err(corrupt)?),
                    }
                    edits += 1;
                }
                Item::Damage { offset, found } => {
                    if reader.furthest_synced_from(offset)? > Some(offset) || edits == 0 {
                        return Err(Error::corrupt(path, offset, "a whole version edit", found));
                    }
                    let bytes = reader.length() - offset;
                    lost = Some(LostTail::new(path.to_owned(), offset, bytes, found));
                    break;
                }
                Item::End { .. } | Item::Eof => break,
            }
        }
        let Some(set) = set else {
            return Err(Error::corrupt(path, reader.length(), "a version edit", "none"));
        };
        set.check().map_err(|found| Error::corrupt(path, 0, "a sound set of tables", found))?;
        Ok((set, edits, lost))
    }
}

/// Writes and syncs `CURRENT.tmp`, renames it, syncs the directory.
fn set_current(dir: &StoreDir, number: u64) -> std::result::Result<(), LogError> {
    let body = format!("{CURRENT_HEADER}\n{}\n", FileName::Manifest(number));
    let text = format!("{body}{:08x}\n", crc32fast::hash(body.as_bytes()));
    let prepare = || {
        match dir.remove(FileName::CurrentTemp) {
            Err(error) if !error.is_missing_file() => return Err(error),
            _ => {} // what an earlier failure left is gone
        }
        let temp = dir.create(FileName::CurrentTemp)?;
        temp.file().append(text.as_bytes()).context("write", temp.path())?;
        temp.file().sync_all().context("sync", temp.path())?;
        dir.check()?; // before the rename: after that, `CURRENT` is in doubt
        Ok(temp)
    };
    let temp = prepare().map_err(LogError::Refused)?;
    // From here on a crash, or an error, may find either manifest in force.
    temp.keep();
    dir.rename(FileName::CurrentTemp, FileName::Current)
        .and_then(|()| dir.sync())
        .map_err(LogError::Broken)
}

/// Whether `CURRENT.tmp` can be what a crash left of one.
pub(crate) fn is_temporary_current(dir: &StoreDir) -> Result<bool> {
    let path = dir.path_of(FileName::CurrentTemp);
    let file = dir.open_file(FileName::CurrentTemp).context("open", &path)?;
    let length = file.length().context("find the length", &path)?;
    if length > MAX_CURRENT_BYTES {
        return Ok(false);
    }
    let bytes = file.read_new(length as usize, 0).context("read", &path)?;
    Ok(may_be_unsynced(&bytes, CURRENT_HEADER.as_bytes()))
}

/// The number of the current manifest; `None` without `CURRENT`.
pub(crate) fn read_current(dir: &StoreDir) -> Result<Option<u64>> {
    let path = dir.path_of(FileName::Current);
    let file = match dir.open_file(FileName::Current) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.context("open", &path)?,
    };
    let length = file.length().context("find the length", &path)?;
    let corrupt = |found: &str| {
        Err(Error::corrupt(&path, 0, "three lines: version, manifest, checksum", found))
    };
    if length > MAX_CURRENT_BYTES {
        return corrupt("a file that is too long");
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).context("read", &path)?;
    let text = String::from_utf8_lossy(&bytes);
    if text.starts_with("MANIFEST-") {
        let found = "a CURRENT as LevelDB, RocksDB or Pebble write it".into();
        return Err(Error::NotAStore { path: dir.path().to_owned(), found });
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let [header, name, checksum, ""] = lines[..] else { return corrupt("a wrong number of lines") };
    let body = format!("{header}\n{name}\n");
    if checksum != format!("{:08x}", crc32fast::hash(body.as_bytes())) {
        return corrupt("a wrong checksum");
    }
    if header != CURRENT_HEADER {
        let version = header.strip_prefix("criba ").and_then(|version| version.parse().ok());
        let found = version.map_or_else(|| format!("\"{}\"", shown(header)), other_version);
        return Err(Error::Unsupported {
            path,
            supported: format!("a store of version \"{CURRENT_HEADER}\""),
            found,
        });
    }
    match FileName::parse(name) {
        Some(FileName::Manifest(number)) => Ok(Some(number)),
        _ => corrupt("an invalid name of a manifest"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::settings::StoreSettings;
    use super::*;
    use crate::filter::PrefixExtractor;
    use crate::names::MAX_FOUND_NUMBER;
    use crate::sstable::{FilterMeta, TableMeta, TableRandom};
    use crate::vfs::{Fault, FaultRule, FaultVfs, Operation, RealVfs, SimVfs};
    use criba_filter::store::HashKey;

    fn empty_set() -> TableSet {
        TableSet::new(HashKey::new([1; 16]), StoreSettings::default())
    }

    #[test]
    fn a_manifest_is_outgrown_at_four_times_its_content_and_64_kib() -> Result<()> {
        let dir = StoreDir::of(SimVfs::new(), "/store");
        let set = empty_set();
        let mut manifest = Manifest::create(&dir, 1, 77, RandomSource::default(), set)?;
        let grow_to = |manifest: &mut Manifest, most: u64| {
            let next_file = manifest.set.next_file;
            for file in next_file + 1.. {
                let edit = Edit { next_file: Some(file), ..Edit::default() };
                manifest.record(&edit).map_err(LogError::into_error)?;
                if manifest.wants_rewriting() {
                    break;
                }
                assert!(manifest.log.length() <= most);
            }
            Ok::<_, Error>(manifest.log.length())
        };
        let edit_bytes = 100;
        let length = grow_to(&mut manifest, 64 * 1024)?;
        assert!((64 * 1024..64 * 1024 + edit_bytes).contains(&length), "{length}");
        let next_file = manifest.set.next_file;
        let set = manifest.set().clone();
        let old = manifest.rewrite(&dir, 9, set).map_err(LogError::into_error)?;
        assert_eq!((old, manifest.number()), (1, 9));
        assert_eq!(read_current(&dir)?, Some(9));
        let (set, store, lost) = Manifest::read(&dir, 9)?;
        assert_eq!((set.next_file, store, lost), (next_file, 77, None));
        assert!(!manifest.wants_rewriting());

        // As if its content were larger.
        manifest.rewritten_bytes = 20_000;
        let length = grow_to(&mut manifest, 80_000)?;
        assert!((80_000..80_000 + edit_bytes).contains(&length), "{length}");
        Ok(())
    }

    #[test]
    fn what_a_reader_would_refuse_is_not_written() -> Result<()> {
        let sound = TableSet { next_file: 9, ..empty_set() };
        let too_long = StoreSettings {
            extractor: Some(PrefixExtractor::fixed(70_000)),
            ..StoreSettings::default()
        };
        for unsound in [
            TableSet { next_file: MAX_FOUND_NUMBER + 1, ..sound.clone() },
            TableSet { log: MAX_FOUND_NUMBER + 1, ..sound.clone() },
            TableSet { settings: too_long, ..sound.clone() },
        ] {
            let vfs = SimVfs::new();
            let dir = StoreDir::of(vfs.clone(), "/store");
            let random = RandomSource::default();
            let created = Manifest::create(&dir, 1, 77, random, unsound.clone());
            assert!(matches!(created, Err(Error::Corrupt { .. })), "{unsound:?}");
            assert_eq!(vfs.disk().files().count(), 0);

            let mut manifest = Manifest::create(&dir, 1, 77, random, sound.clone())?;
            let length = manifest.log.length();
            let edit = Edit { hash_key: None, ..unsound.as_edit() };
            let is_refused = matches!(manifest.record(&edit), Err(LogError::Refused(_)));
            assert!(is_refused, "{unsound:?}");
            assert_eq!(manifest.log.length(), length);
        }
        Ok(())
    }

    #[test]
    fn only_what_is_not_there_is_missing_and_what_cannot_be_read_is_an_error() -> Result<()> {
        let failing = FaultVfs::new(Arc::new(SimVfs::new()));
        let dir = StoreDir::of(failing.clone(), "/store");
        assert_eq!(read_current(&dir)?, None);
        let read = || Manifest::read(&dir, 1).map(|_| ());
        assert!(matches!(read(), Err(Error::Missing { .. })));
        let set = empty_set();
        let mut manifest = Manifest::create(&dir, 1, 77, RandomSource::default(), set)?;
        manifest.make_current(&dir).map_err(LogError::into_error)?;

        failing.add(FaultRule::new(Fault::Io).operations([Operation::Open]).from_then_on());
        assert!(matches!(read(), Err(Error::Io { .. })));
        assert!(matches!(read_current(&dir), Err(Error::Io { .. })));
        failing.clear();
        failing.add(FaultRule::new(Fault::Io).operations([Operation::Remove]));
        assert!(matches!(set_current(&dir, 2), Err(LogError::Refused(_))));
        assert_eq!(read_current(&dir)?, Some(1));
        Ok(())
    }

    #[test]
    fn a_long_edit_that_a_crash_cut_in_its_midst_was_never_made() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let set = empty_set();
        let mut manifest = Manifest::create(
            &StoreDir::of(RealVfs, dir.path()),
            1,
            77,
            RandomSource::default(),
            set,
        )?;
        let offset = manifest.log.length();
        let meta = TableMeta {
            id: 5,
            size: 200_000,
            index_offset: 800,
            footer_checksum: 1,
            random: TableRandom::new(3, 4),
            filter: FilterMeta::default(),
            entries: 10,
            tombstones: 1,
            hidden_bytes: 0,
            prefixes: None,
            is_ingested: false,
            expiries: None,
            contents_bytes: None,
            keys: 9,
            min_seq: 1,
            max_seq: 10,
            smallest: vec![b'a'; 60_000],
            largest: vec![b'b'; 60_000],
        };
        let (flushed_seq, next_file) = (Some(10), Some(8));
        let edit = Edit { added: vec![(1, meta)], flushed_seq, next_file, ..Edit::default() };
        manifest.record(&edit).map_err(LogError::into_error)?;
        let path = manifest.log.path().to_owned();
        let mut bytes = std::fs::read(&path).expect("a manifest");
        // The first of its frames is lost, the others are there.
        bytes[offset as usize + 100] ^= 1;
        std::fs::write(&path, bytes).expect("a real file");
        let (set, _, lost) = Manifest::read(&StoreDir::of(RealVfs, dir.path()), 1)?;
        assert_eq!((set.tables.len(), lost.map(|lost| lost.offset)), (0, Some(offset)));
        Ok(())
    }
}
