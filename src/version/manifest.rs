//! The manifest: the log of edits, and the file `CURRENT`, which names it.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::path::{Path, PathBuf};

use super::edit::{Edit, TableSet};
use crate::error::{Error, IoContext, Result};
use crate::names::FileName;
use crate::vfs::{FileKind, Vfs};
use crate::wal::{FILTER_SETTINGS, Item, LogError, LogKind, LogReader, LogWriter, LostTail};

/// The manifest is rewritten when it has this many times the bytes of its content …
const REWRITE_FACTOR: u64 = 4;
/// … and at least this many bytes.
const REWRITE_FROM_BYTES: u64 = 64 * 1024;

/// The first line of `CURRENT`: the version of the store's layout.
const CURRENT_HEADER: &str = "criba 1";

#[derive(Debug)]
pub(crate) struct Manifest {
    log: LogWriter,
    set: TableSet,
    /// The number of edits, which number the records.
    edits: u64,
    /// The length right after the last rewriting.
    rewritten_bytes: u64,
    store: u64,
}

impl Manifest {
    /// Writes a new manifest with `set` as one edit: durable, but not yet current.
    pub(crate) fn create(
        vfs: &dyn Vfs,
        dir: &Path,
        number: u64,
        store: u64,
        set: TableSet,
    ) -> Result<Self> {
        let path = FileName::Manifest(number).path(dir);
        let mut log = LogWriter::create(vfs, &path, LogKind::Manifest, number, store, true)?;
        let written = log.append([(0, set.as_edit().encode().as_slice())]);
        written.and_then(|_| log.sync()).map_err(LogError::into_error)?;
        let rewritten_bytes = log.length();
        Ok(Self { log, set, edits: 1, rewritten_bytes, store })
    }

    pub(crate) fn number(&self) -> u64 {
        self.log.number()
    }

    pub(crate) fn set(&self) -> &TableSet {
        &self.set
    }

    /// Records an edit durably. An edit that a reader would refuse is not written.
    pub(crate) fn record(&mut self, edit: &Edit) -> std::result::Result<(), LogError> {
        let mut set = self.set.clone();
        set.apply(edit).and_then(|()| set.check()).map_err(|found| {
            LogError::Refused(Error::corrupt(
                self.log.path(),
                self.log.length(),
                "an edit that follows",
                found,
            ))
        })?;
        self.log.append([(self.edits, edit.encode().as_slice())])?;
        self.log.sync()?;
        self.edits += 1;
        self.set = set;
        Ok(())
    }

    pub(crate) fn wants_rewriting(&self) -> bool {
        self.log.length() > (REWRITE_FACTOR * self.rewritten_bytes).max(REWRITE_FROM_BYTES)
    }

    /// Continues in a new manifest. After the first kind of error this one is current; after the second kind
    /// either may be.
    pub(crate) fn rewrite(
        &mut self,
        vfs: &dyn Vfs,
        dir: &Path,
        number: u64,
    ) -> std::result::Result<u64, LogError> {
        let next = Self::create(vfs, dir, number, self.store, self.set.clone())
            .map_err(LogError::Refused)
            .and_then(|next| set_current(vfs, dir, number).map(|()| next))
            .inspect_err(|error| {
                if let LogError::Refused(_) = error {
                    // Nothing names it. Left behind by a failure, it goes at the next open.
                    let _ = vfs.remove(&FileName::Manifest(number).path(dir), FileKind::Manifest);
                }
            })?;
        let old = self.number();
        *self = next;
        Ok(old)
    }

    /// Reads a manifest. Each edit was synced before the next one, so damage before the last edit is an
    /// error, and an incomplete last edit was never in force.
    pub(crate) fn read(
        vfs: &dyn Vfs,
        dir: &Path,
        number: u64,
    ) -> Result<(TableSet, u64, Option<LostTail>)> {
        let path = FileName::Manifest(number).path(dir);
        let reader = LogReader::open(vfs, &path, LogKind::Manifest, number);
        let mut reader = match reader {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::Missing { path, named_by: FileName::Current.to_string() });
            }
            other => other?,
        };
        let header = reader
            .header(LogKind::Manifest)?
            .map_err(|found| Error::corrupt(&path, 0, "a manifest header", found))?;
        let (set, _, lost) = Self::read_edits(reader, &path, header.features)?;
        Ok((set, header.store, lost))
    }

    /// Reads the edits of a manifest whose header has these features. Returns the set after them, their
    /// number, and an incomplete last one.
    pub(crate) fn read_edits(
        mut reader: LogReader,
        path: &Path,
        features: u32,
    ) -> Result<(TableSet, u64, Option<LostTail>)> {
        let mut set = TableSet::default();
        let mut edits = 0;
        let mut lost = None;
        loop {
            match reader.next()? {
                Item::Record { seq, offset, payload } => {
                    let corrupt = |found| Error::corrupt(path, offset, "a version edit", found);
                    if seq != edits {
                        return Err(corrupt(format!("edit number {seq} instead of {edits}")));
                    }
                    let edit = Edit::decode(&payload)
                        .ok_or_else(|| corrupt("fields unknown to this criba".into()))?;
                    if edit.filter_settings.is_some() && features & FILTER_SETTINGS == 0 {
                        return Err(corrupt("filter settings, without the feature".into()));
                    }
                    set.apply(&edit).map_err(corrupt)?;
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
        if edits == 0 {
            return Err(Error::corrupt(path, reader.length(), "a version edit", "none"));
        }
        set.check().map_err(|found| Error::corrupt(path, 0, "a sound set of tables", found))?;
        Ok((set, edits, lost))
    }
}

/// Makes a manifest current: writes and syncs `CURRENT.tmp`, renames it, syncs the directory.
pub(crate) fn set_current(
    vfs: &dyn Vfs,
    dir: &Path,
    number: u64,
) -> std::result::Result<(), LogError> {
    let temp = FileName::CurrentTemp.path(dir);
    let current = FileName::Current.path(dir);
    let body = format!("{CURRENT_HEADER}\n{}\n", FileName::Manifest(number));
    let text = format!("{body}{:08x}\n", crc32fast::hash(body.as_bytes()));
    let prepare = || {
        match vfs.remove(&temp, FileKind::Current) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).context("remove", &temp);
            }
            _ => {}
        }
        let file = vfs.create(&temp, FileKind::Current).context("create", &temp)?;
        file.append(text.as_bytes()).context("write", &temp)?;
        file.sync_all().context("sync", &temp)
    };
    prepare().map_err(LogError::Refused)?;
    // From here on a crash, or an error, may find either manifest in force.
    vfs.rename(&temp, &current, FileKind::Current)
        .context("rename to CURRENT", &temp)
        .and_then(|()| vfs.sync_dir(dir).context("sync", dir))
        .map_err(LogError::Broken)
}

/// The number of the current manifest; `None` without `CURRENT`.
pub(crate) fn read_current(vfs: &dyn Vfs, dir: &Path) -> Result<Option<u64>> {
    let path: PathBuf = FileName::Current.path(dir);
    let file = match vfs.open(&path, FileKind::Current) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.context("open", &path)?,
    };
    let length = file.length().context("find the length", &path)?;
    let corrupt = |found: &str| {
        Err(Error::corrupt(&path, 0, "three lines: version, manifest, checksum", found))
    };
    if length > 256 {
        return corrupt("a longer file");
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).context("read", &path)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.split('\n').collect();
    let [header, name, checksum, ""] = lines[..] else { return corrupt("other lines") };
    let body = format!("{header}\n{name}\n");
    if checksum != format!("{:08x}", crc32fast::hash(body.as_bytes())) {
        return corrupt("another checksum");
    }
    if header != CURRENT_HEADER {
        return Err(Error::Unsupported {
            path,
            supported: format!("a store of version \"{CURRENT_HEADER}\""),
            found: format!("\"{header}\""),
        });
    }
    match FileName::parse(name) {
        Some(FileName::Manifest(number)) => Ok(Some(number)),
        _ => corrupt("another name"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::filter::HashKey;
    use crate::sstable::{FilterMeta, TableMeta};
    use crate::vfs::{Fault, FaultRule, FaultVfs, Operation, RealVfs, SimVfs};

    #[test]
    fn a_manifest_is_outgrown_at_four_times_its_content_and_64_kib() -> Result<()> {
        let (vfs, dir) = (SimVfs::new(), Path::new("/store"));
        vfs.create_dir(dir).context("create", dir)?;
        let set = TableSet { hash_key: Some(HashKey::new([1; 16])), ..TableSet::default() };
        let mut manifest = Manifest::create(&vfs, dir, 1, 77, set)?;
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
        let old = manifest.rewrite(&vfs, dir, 9).map_err(LogError::into_error)?;
        assert_eq!((old, manifest.number()), (1, 9));
        assert_eq!(read_current(&vfs, dir)?, Some(9));
        let (set, store, lost) = Manifest::read(&vfs, dir, 9)?;
        assert_eq!((set.next_file, store, lost), (next_file, 77, None));
        assert!(!manifest.wants_rewriting());

        // As if its content were larger.
        manifest.rewritten_bytes = 20_000;
        let length = grow_to(&mut manifest, 80_000)?;
        assert!((80_000..80_000 + edit_bytes).contains(&length), "{length}");
        Ok(())
    }

    #[test]
    fn only_what_is_not_there_is_missing_and_what_cannot_be_read_is_an_error() -> Result<()> {
        let (disk, dir) = (Arc::new(SimVfs::new()), Path::new("/store"));
        disk.create_dir(dir).context("create", dir)?;
        assert_eq!(read_current(disk.as_ref(), dir)?, None);
        let read = |vfs: &dyn Vfs| Manifest::read(vfs, dir, 1).map(|_| ());
        assert!(matches!(read(disk.as_ref()), Err(Error::Missing { .. })));
        let set = TableSet { hash_key: Some(HashKey::new([1; 16])), ..TableSet::default() };
        Manifest::create(disk.as_ref(), dir, 1, 77, set)?;
        set_current(disk.as_ref(), dir, 1).map_err(LogError::into_error)?;

        let failing = FaultVfs::new(Arc::clone(&disk) as Arc<dyn Vfs>);
        failing.add(FaultRule::new(Fault::Io).operations([Operation::Open]).from_then_on());
        assert!(matches!(read(&failing), Err(Error::Io { .. })));
        assert!(matches!(read_current(&failing, dir), Err(Error::Io { .. })));
        failing.clear();
        failing.add(FaultRule::new(Fault::Io).operations([Operation::Remove]));
        assert!(matches!(set_current(&failing, dir, 2), Err(LogError::Refused(_))));
        assert_eq!(read_current(disk.as_ref(), dir)?, Some(1));
        Ok(())
    }

    #[test]
    fn a_long_edit_that_a_crash_cut_in_its_midst_was_never_made() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let set = TableSet { hash_key: Some(HashKey::new([1; 16])), ..TableSet::default() };
        let mut manifest = Manifest::create(&RealVfs, dir.path(), 1, 77, set)?;
        let offset = manifest.log.length();
        let meta = TableMeta {
            id: 5,
            size: 200_000,
            index_offset: 800,
            footer_checksum: 1,
            filter: FilterMeta::default(),
            entries: 10,
            tombstones: 1,
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
        let (set, _, lost) = Manifest::read(&RealVfs, dir.path(), 1)?;
        assert_eq!((set.tables.len(), lost.map(|lost| lost.offset)), (0, Some(offset)));
        Ok(())
    }
}
