//! Replays the logs after a crash: a prefix of the writes, without a hole, with everything recorded as
//! synced.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::fmt;
use std::path::{Path, PathBuf};

use super::frame::{LogKind, WAL_HEADER_BYTES};
use super::reader::{Item, LogReader};
use crate::batch::for_each_entry;
use crate::error::{Error, Result};
use crate::key::{EntryRef, Seq};
use crate::names::FileName;
use crate::store_dir::StoreDir;
use criba_filter::store::{HashKey, shown};

/// The incomplete end of the logs that recovery dropped. None of it was recorded as synced. (Damage to the
/// last sync before a crash looks like a write that the crash cut short.)
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostTail {
    /// The log with the first dropped byte.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// Dropped bytes in this log and later ones, without zeros at the end.
    pub bytes: u64,
    /// Records that end in them. A crash of the process leaves none; a power failure can, and damage does. Before
    /// the next opening that writes [`repair`](crate::repair) can salvage them.
    pub records: u64,
    /// What was found instead of a record.
    pub found: String,
}

impl fmt::Display for LostTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset, bytes, records, found } = self;
        let path = shown(path);
        write!(
            f,
            "{path}: offset {offset}: expected a whole record, found {found}; {bytes} bytes"
        )?;
        match *records {
            0 => Ok(()),
            1 => write!(f, " with the end of a record"),
            records => write!(f, " with the ends of {records} records"),
        }
    }
}

impl LostTail {
    pub(crate) fn new(path: PathBuf, offset: u64, bytes: u64, found: String) -> Self {
        Self { path, offset, bytes, records: 0, found }
    }
}

/// The logs of a store.
pub(crate) struct Logs<'a> {
    pub(crate) dir: &'a StoreDir,
    pub(crate) store: u64,
    pub(crate) hash_key: &'a HashKey,
    /// The numbers of the files, ascending.
    pub(crate) numbers: Vec<u64>,
    /// The log that the manifest names.
    pub(crate) first: u64,
    /// The sequence number of the first record.
    pub(crate) first_seq: Seq,
}

/// A record of a log.
pub(crate) struct Record<'a> {
    pub(crate) path: &'a Path,
    pub(crate) offset: u64,
    pub(crate) seq: Seq,
    pub(crate) payload: &'a [u8],
}

impl Record<'_> {
    /// Passes the entries of the record to `apply`. Returns their number.
    pub(crate) fn for_each_entry(&self, apply: impl FnMut(EntryRef<'_>)) -> Result<u64> {
        for_each_entry(self.payload, self.seq, apply)
            .ok_or_else(|| Error::corrupt(self.path, self.offset, "a batch", "an invalid one"))
    }
}

/// What a replay came to.
#[derive(Debug)]
pub(crate) struct Replay {
    /// The sequence number of the next write.
    pub(crate) next_seq: Seq,
    pub(crate) lost: Option<LostTail>,
}

/// The first damage in the logs.
#[derive(Debug)]
struct Gap {
    path: PathBuf,
    offset: u64,
    found: String,
    /// A frame behind the gap, in the same log, that declares more than this synced proves that the missing
    /// part was synced.
    limit: u64,
    bytes: u64,
    records: u64,
}

impl Gap {
    fn at(path: &Path, offset: u64, found: String, limit: u64) -> Self {
        Self { path: path.to_owned(), offset, found, limit, bytes: 0, records: 0 }
    }

    /// The error if something from the gap on is recorded as synced.
    fn refuse(&self) -> Error {
        let expected = "a whole record, since what follows was recorded as synced";
        Error::corrupt(&self.path, self.offset, expected, self.found.clone())
    }
}

/// Passes each record to `apply`, in order, which returns the number of its entries.
pub(crate) fn replay(
    logs: &Logs<'_>,
    mut apply: impl FnMut(&Record<'_>) -> Result<u64>,
) -> Result<Replay> {
    let Logs { dir, store, hash_key, ref numbers, first, first_seq } = *logs;
    let mut next_seq = first_seq;
    let mut gap: Option<Gap> = None;
    // The log that an end frame, or to begin with the manifest, says must come next.
    let mut expected_next = Some(first);
    for &number in numbers {
        let path = dir.path_of(FileName::Log(number));
        let salt = Some(hash_key.salt_of_log(number));
        let mut reader = LogReader::open(dir, LogKind::Wal, number, salt)?;
        match reader.header_of(store)? {
            // A header is synced before anything refers to the log or is put into it. So this is damage, or
            // a log whose creation the crash cut short.
            Err(found)
                if expected_next == Some(number) || reader.furthest_synced_from(0)?.is_some() =>
            {
                return Err(Error::corrupt(&path, 0, "a log header", found));
            }
            Err(_) if gap.is_none() => continue,
            _ => {}
        }
        if expected_next.is_some_and(|expected| expected != number) {
            // A log that was made and never written to, because making it failed halfway.
            if reader.furthest_synced_from(0)?.is_none() {
                continue;
            }
            break; // its expected predecessor is missing
        }
        if gap.is_none() {
            expected_next = None;
            loop {
                match reader.next()? {
                    Item::Record { seq, offset, payload } if seq == next_seq => {
                        let (path, payload) = (&path, &payload);
                        next_seq += apply(&Record { path, offset, seq, payload })?;
                    }
                    Item::Record { seq, offset, .. } => {
                        let found = format!("sequence number {seq} instead of {next_seq}");
                        // What is missing before the first record was in an earlier log, and any
                        // sync of this log covered that one.
                        let limit = if offset == WAL_HEADER_BYTES { 0 } else { offset };
                        gap = Some(Gap::at(&path, offset, found, limit));
                        break;
                    }
                    Item::Damage { offset, found } => {
                        let limit = offset;
                        gap = Some(Gap::at(&path, offset, found, limit));
                        break;
                    }
                    Item::End { next } => {
                        expected_next = Some(next).filter(|&next| next != 0);
                        break;
                    }
                    Item::Eof => break,
                }
            }
        }
        if let Some(gap) = &mut gap {
            let own = gap.path == path;
            let (from, limit) = if own { (gap.offset, gap.limit) } else { (0, 0) };
            if reader.furthest_synced_from(from)? > Some(limit) {
                return Err(gap.refuse());
            }
            gap.bytes += reader.written()?.saturating_sub(from);
            gap.records += reader.records_from(from)?;
        }
    }
    if gap.is_none()
        && let Some(number) = expected_next
    {
        let path = dir.path_of(FileName::Log(number));
        return Err(Error::Missing { path, named_by: "the manifest or the log before it".into() });
    }
    let lost = gap.map(|gap| LostTail {
        path: gap.path,
        offset: gap.offset,
        bytes: gap.bytes,
        records: gap.records,
        found: gap.found,
    });
    Ok(Replay { next_seq, lost })
}

#[cfg(test)]
mod tests {
    use super::super::frame::FileHeader;
    use super::super::writer::LogWriter;
    use super::*;
    use crate::vfs::RealVfs;

    #[test]
    fn a_log_with_a_broken_header_is_passed_over_only_if_it_was_never_in_use() -> Result<()> {
        for (named, used, refused) in
            [(false, false, false), (false, true, true), (true, false, true), (true, true, true)]
        {
            let dir = crate::tempdir::tempdir();
            let store = StoreDir::of(RealVfs, dir.path());
            let path = |number| store.path_of(FileName::Log(number));
            let key = HashKey::new([3; HashKey::BYTES]);
            let header =
                |number| FileHeader { features: 0, store: 77, salt: key.salt_of_log(number) };
            let create =
                |number| LogWriter::create(&store, LogKind::Wal, number, header(number), true);
            let mut log = create(4)?.keep();
            log.append([(1, &b"first"[..])]).expect("a real file");
            if named {
                log.finish(5, 2).expect("a real file");
            }
            let mut next = create(5)?.keep();
            if used {
                next.append([(2, &b"second"[..])]).expect("a real file");
            }
            let mut bytes = std::fs::read(path(5)).expect("a log");
            bytes[0] ^= 1;
            std::fs::write(path(5), bytes).expect("a real file");

            let (dir, hash_key, numbers) = (&store, &key, vec![4, 5]);
            let logs = Logs { dir, store: 77, hash_key, numbers, first: 4, first_seq: 1 };
            let replayed = replay(&logs, |record| Ok(record.seq.min(1)));
            match replayed {
                Ok(replayed) if !refused => assert_eq!(replayed.next_seq, 2),
                Err(Error::Corrupt { path: found, .. }) if refused => assert_eq!(found, path(5)),
                other => panic!("{named} {used}: {other:?}"),
            }
        }
        Ok(())
    }
}
