//! Checkpoints: a copy of the store as of one moment, made while writers go on.
//!
//! The moment is a read view taken under the writer's lock. The view's version and memtables agree, whatever
//! a flush records at that moment; and no log grows, so the end of the last record is known. Files are linked
//! and logs copied later, without a lock.

use std::path::Path;
use std::sync::Arc;

use super::inner::DbInner;
use crate::directory::staged::{self, Staged};
use crate::error::{Error, IoContext, Result};
use crate::key::Seq;
use crate::names::FileName;
use crate::store_dir::StoreDir;
use crate::version::{Manifest, TableSet, Version};
use crate::vfs::VfsFile;
use crate::wal::{Item, LogError, LogId, LogReader, LogWriter, Record};

const COPY_BYTES: u64 = 1 << 20;
/// How often a checkpoint begins again because a file was removed meanwhile.
const ATTEMPTS: usize = 20;

/// What a checkpoint holds.
struct CheckpointState {
    /// Keeps the files of its tables.
    version: Arc<Version>,
    /// Logs of the memtables, oldest first.
    logs: Vec<OpenLog>,
    /// Sequence number of the first entry in the logs.
    first_seq: Seq,
    next_seq: Seq,
}

/// A log that stays readable when its name is removed.
struct OpenLog {
    number: u64,
    file: Arc<dyn VfsFile>,
    /// Where the last acknowledged record ends.
    end: u64,
}

impl DbInner {
    pub(crate) fn checkpoint(&self, path: &Path) -> Result<()> {
        self.check_writable()?;
        // Held to the end, so that no opening after a `close` removes files that only this version has.
        let _store = self.health.directory_lock()?;
        let staged = Staged {
            source: &self.env.dir,
            vfs: &self.options.vfs,
            path,
            mode: self.options.file_mode,
            random: self.env.random,
            purpose: "checkpoint",
            within: None,
        };
        // The lock is held until the directory has its name.
        let fill = |dir: &StoreDir, lock| self.fill(dir).map(|()| lock);
        staged::make(&staged, fill)?;
        Ok(())
    }

    /// Makes the files of a checkpoint in `dir`, all synced.
    fn fill(&self, dir: &StoreDir) -> Result<()> {
        let mut attempts = ATTEMPTS;
        let (mut set, state) = loop {
            staged::clear(dir)?;
            let before = Arc::clone(&self.views.load().version);
            let made = self.state().and_then(|state| Ok((self.link_tables(&state, dir)?, state)));
            attempts -= 1;
            match made {
                // A flush removed its log before it was opened. Or a filter was replaced that the budget had
                // replaced in memory: then a version does not keep its file.
                Err(error)
                    if attempts > 0 && error.is_missing_file() && self.has_changed(&before) => {}
                other => break other?,
            }
        };
        set.log = self.write_log(state, dir)?;
        let manifest = self.env.new_file_number();
        set.next_file = self.env.next_file();
        let mut manifest = Manifest::create(dir, manifest, self.env.store, self.env.random, set)?;
        manifest.make_current(dir).map_err(LogError::into_error)
    }

    fn has_changed(&self, version: &Arc<Version>) -> bool {
        !Arc::ptr_eq(version, &self.views.load().version)
    }

    fn state(&self) -> Result<CheckpointState> {
        let writer = self.commits.writer();
        self.check_writable()?;
        let view = self.views.load_full();
        let mut logs = Vec::new();
        for memtable in view.sealed.iter().rev().chain([&view.memtable]) {
            let number = memtable.log();
            let name = FileName::Log(number);
            let file = self.env.dir.open_file(name).context("open", &self.env.path_of(name))?;
            let end = memtable.log_end().unwrap_or(writer.log.length());
            logs.push(OpenLog { number, file, end });
        }
        // Each entry in the logs is in a memtable, and has a sequence number of its own.
        let entries: u64 = view.memtables().map(|memtable| memtable.len()).sum();
        let (version, next_seq) = (Arc::clone(&view.version), writer.next_seq);
        Ok(CheckpointState { version, logs, first_seq: next_seq - entries, next_seq })
    }

    /// Links the tables and filter files. Returns the manifest's content, without its log and `next_file`.
    fn link_tables(&self, state: &CheckpointState, dir: &StoreDir) -> Result<TableSet> {
        let mut set = TableSet::new(self.env.hash_key, self.filters.settings());
        set.flushed_seq = state.first_seq - 1;
        set.time = self.env.time.recorded();
        for (level, live) in state.version.tables() {
            let record = live.open().record();
            let filter = record.filter.file_of(record.id);
            for name in [FileName::Table(record.id)].into_iter().chain(filter) {
                if self.env.dir.link_to(name, dir).is_err() {
                    copy(&self.env.dir, name, dir)?; // for whatever reason
                }
            }
            set.tables.insert(record.id, (level, record));
        }
        Ok(set)
    }

    /// Writes the acknowledged records of all logs to one new log, synced. Returns its number.
    fn write_log(&self, state: CheckpointState, dir: &StoreDir) -> Result<u64> {
        let (env, number) = (&self.env, self.env.new_file_number());
        let mut copy = LogWriter::create_wal(dir, (env.store, &env.hash_key), number, true)?.keep();
        let mut seq = state.first_seq;
        for log in state.logs {
            self.copy_records(log, &mut seq, &mut copy)?;
        }
        if seq != state.next_seq {
            let expected = format!("logs up to sequence number {}", state.next_seq - 1);
            return Err(Error::corrupt(env.dir.path(), 0, expected, format!("up to {}", seq - 1)));
        }
        // The end frame then says that all before it was synced: later damage does not pass for a crash.
        copy.sync().and_then(|()| copy.finish(0, seq)).map_err(LogError::into_error)?;
        Ok(number)
    }

    /// Copies the records of a log, the first of which has the sequence number `seq`. All that is written was
    /// verified.
    fn copy_records(&self, log: OpenLog, seq: &mut Seq, copy: &mut LogWriter) -> Result<()> {
        let OpenLog { number, file, end } = log;
        let env = &self.env;
        let path = env.path_of(FileName::Log(number));
        let id = LogId { number, salt: env.hash_key.salt_of_log(number) };
        let mut reader = LogReader::of(file, path.clone(), id, end);
        let header = reader.header_of(env.store)?;
        header.map_err(|found| Error::corrupt(&path, 0, "a log header", found))?;
        let mut records: Vec<(Seq, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        loop {
            let item = reader.next()?;
            let ends = matches!(item, Item::End { .. } | Item::Eof);
            match item {
                Item::Record { seq: found, offset, payload } if found == *seq => {
                    let record = Record { path: &path, offset, seq: found, payload: &payload };
                    *seq += record.for_each_entry(|_| ())?;
                    bytes += payload.len() as u64;
                    records.push((found, payload));
                }
                Item::Record { seq: found, offset, .. } => {
                    let expected = format!("sequence number {seq}");
                    return Err(Error::corrupt(&path, offset, expected, found.to_string()));
                }
                Item::Damage { offset, found } => {
                    return Err(Error::corrupt(&path, offset, "a whole record", found));
                }
                Item::End { .. } | Item::Eof => {}
            }
            if ends || bytes >= COPY_BYTES {
                let pieces = records.iter().map(|(seq, payload)| (*seq, payload.as_slice()));
                copy.append(pieces).map_err(LogError::into_error)?;
                records.clear();
                bytes = 0;
            }
            if ends {
                return Ok(());
            }
        }
    }
}

/// Copies a file, synced.
pub(crate) fn copy(from: &StoreDir, name: FileName, to: &StoreDir) -> Result<()> {
    let path = from.path_of(name);
    let file = from.open_file(name).context("open", &path)?;
    let length = file.length().context("find the length", &path)?;
    let copy = to.create(name)?;
    let mut buffer = vec![0; COPY_BYTES.min(length) as usize];
    for offset in (0..length).step_by(COPY_BYTES as usize) {
        buffer.truncate((length - offset) as usize);
        let bytes = buffer.len();
        let read = file.read_exact_at(&mut buffer, offset);
        read.context(format_args!("read {bytes} bytes at offset {offset}"), &path)?;
        let written = copy.file().append(&buffer);
        written.context(format_args!("write {bytes} bytes at offset {offset}"), copy.path())?;
    }
    copy.file().sync_all().context("sync", copy.path())?;
    copy.keep();
    Ok(())
}
