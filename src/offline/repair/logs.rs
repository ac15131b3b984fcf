//! What can be read of damaged logs.

use std::path::{Path, PathBuf};

use super::loss::Loss;
use crate::error::{Error, Result};
use crate::key::{EntryRef, Seq};
use crate::names::{FileName, MAX_NUMBER};
use crate::store_dir::StoreDir;
use crate::wal::{FileHeader, Item, LogKind, LogReader, Record};
use criba_filter::store::HashKey;

/// The history that the logs make together: sequence numbers without a gap.
pub(super) struct History<'a> {
    dir: &'a StoreDir,
    store: u64,
    /// Key of the manifest. Without it, the salts of logs are those in their headers.
    hash_key: Option<HashKey>,
    /// The sequence number of the next change; 0 if it is unknown.
    pub(super) next: Seq,
    /// The log that must come next.
    promised: Option<u64>,
    /// Damage, until the next record shows which changes it cost.
    hole: Option<(PathBuf, Option<u64>, String)>,
    pub(super) losses: Vec<Loss>,
}

impl<'a> History<'a> {
    /// A history whose first change is `next`, in log `first` if that is known.
    pub(super) fn new(
        dir: &'a StoreDir,
        store: u64,
        hash_key: Option<HashKey>,
        first: Option<u64>,
        next: Seq,
    ) -> Self {
        Self { dir, store, hash_key, next, promised: first, hole: None, losses: Vec::new() }
    }

    /// Passes each change in a whole record of the logs to `keep`, and whether its place is certain.
    pub(super) fn read(
        &mut self,
        logs: &[u64],
        mut keep: impl FnMut(EntryRef<'_>, bool),
    ) -> Result<()> {
        for &number in logs {
            match self.promised {
                // It was made, and never used.
                Some(promised) if number < promised => continue,
                Some(promised) if number > promised => self.miss(promised),
                _ => {}
            }
            let is_needed = self.promised.take().is_some();
            let path = self.dir.path_of(FileName::Log(number));
            let salt = self.hash_key.map(|key| key.salt_of_log(number));
            let mut reader = match LogReader::open(self.dir, LogKind::Wal, number, salt) {
                Ok(reader) => reader,
                Err(error) => {
                    self.damage(path, None, error.to_string());
                    continue;
                }
            };
            match reader.header() {
                Ok(Ok(FileHeader { store, .. })) if store != self.store => {
                    self.damage(path, Some(0), format!("a log of store {store:016x}"));
                    continue;
                }
                Err(error @ Error::Unsupported { .. }) => return Err(error),
                // The salt proves each frame to be of this log.
                _ => {}
            }
            // Without a frame, the header must: of another log, or of zeros, nothing says what was in this one.
            let differs = reader.header_differs_by(self.store);
            let is_whole = self.read_log(&path, reader, &mut keep);
            if is_needed && !is_whole && differs.is_ok_and(|bytes| bytes > 1) {
                self.damage(path, Some(0), "neither this log's header nor a frame of it".into());
            }
        }
        if let Some(promised) = self.promised.take() {
            self.miss(promised);
        }
        // No record follows, so nothing bounds what is lost.
        if self.hole.is_some() {
            self.lose_up_to(Seq::MAX, None);
        }
        Ok(())
    }

    /// Returns whether it has a whole record or an end.
    fn read_log(
        &mut self,
        path: &Path,
        mut reader: LogReader,
        keep: &mut impl FnMut(EntryRef<'_>, bool),
    ) -> bool {
        let (mut is_whole, mut certain_from) = (false, 0);
        loop {
            let (offset, found) = match reader.next() {
                // What bounds no loss, and ends no log.
                Ok(Item::Record { seq, offset, payload }) if offset < certain_from => {
                    let record = Record { path, offset, seq, payload: &payload };
                    let _ = record.for_each_entry(|entry| keep(entry, false));
                    continue;
                }
                Ok(Item::End { .. }) if reader.position() < certain_from => {
                    (reader.position(), "an end frame within damage".into())
                }
                Ok(Item::Record { seq, offset, payload })
                    if (self.next..=MAX_NUMBER).contains(&seq) =>
                {
                    let record = Record { path, offset, seq, payload: &payload };
                    match record.for_each_entry(|_| {}) {
                        Ok(changes) => {
                            self.continue_at(path, seq, offset);
                            let _ = record.for_each_entry(|entry| keep(entry, true));
                            self.next = seq + changes;
                            is_whole = true;
                            continue;
                        }
                        Err(error) => (offset, error.to_string()),
                    }
                }
                Ok(Item::Record { seq, offset, .. }) => {
                    (offset, format!("sequence number {seq} instead of {}", self.next))
                }
                Ok(Item::Damage { offset, found }) => (offset, found),
                Err(error) => (reader.position(), error.to_string()),
                Ok(Item::End { next }) => {
                    self.promised = Some(next).filter(|&next| next != 0);
                    return true;
                }
                Ok(Item::Eof) => return is_whole,
            };
            self.damage(path.to_owned(), Some(offset), found);
            certain_from = reader.resume_from(reader.position().max(offset + 1));
        }
    }

    fn miss(&mut self, number: u64) {
        let path = self.dir.path_of(FileName::Log(number));
        self.damage(
            path,
            None,
            "no such file, which the manifest or the log before it names".into(),
        );
    }

    fn damage(&mut self, path: PathBuf, offset: Option<u64>, found: String) {
        // The first of several damages without a record in between is named.
        self.hole.get_or_insert((path, offset, found));
    }

    /// A record begins with this sequence number.
    fn continue_at(&mut self, path: &Path, seq: Seq, offset: u64) {
        if 0 < self.next && self.next < seq {
            let found = format!("sequence number {seq} instead of {}", self.next);
            self.damage(path.to_owned(), Some(offset), found);
        }
        if self.hole.is_some() {
            self.lose_up_to(seq - 1, (0 < self.next).then(|| seq - self.next));
        }
    }

    fn lose_up_to(&mut self, newest: Seq, changes: Option<u64>) {
        let Some((path, offset, found)) = self.hole.take() else { return };
        // A number that came a second time may be of changes that a crash undid.
        let newest = newest.max(self.next);
        let found = match changes {
            Some(1) => format!("{found}: one change lost"),
            Some(changes) => format!("{found}: {changes} changes lost"),
            None => format!("{found}: changes behind it are lost, if there were any"),
        };
        self.losses.push(Loss::of_any_key(path, offset, found, newest));
    }
}
