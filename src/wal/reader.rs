//! Reads a log file record by record, up to damage or its end.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::path::PathBuf;
use std::sync::Arc;

use super::frame::{
    BLOCK_BYTES, FRAME_HEADER_BYTES, FileHeader, Frame, FrameKind, HeaderError, LEAST_ROOM_BYTES,
    LogId, LogKind, NoFrame, decode_file_header, decode_frame, encode_file_header, origin,
    stored_salt, wrong_rest_of_header,
};
use crate::codec::{FORMAT_VERSION, may_be_unsynced, u16_at};
use crate::error::{Error, IoContext, Result};
use crate::key::Seq;
use crate::names::Origin;
use crate::store_dir::StoreDir;
use crate::vfs::VfsFile;

/// A longer record is collected if its last frame is there.
const LONG_RECORD_BYTES: usize = 16 << 20;

/// What comes next in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// A whole record.
    Record {
        seq: Seq,
        /// Where its first frame starts.
        offset: u64,
        payload: Vec<u8>,
    },
    /// The log was closed; writing continued in log `next` (0: it did not).
    End { next: u64 },
    /// The end of the file, or only zeros from here on.
    Eof,
    /// Damage at `offset`.
    Damage { offset: u64, found: String },
}

#[derive(Debug)]
pub(crate) struct LogReader {
    file: Arc<dyn VfsFile>,
    path: PathBuf,
    kind: LogKind,
    number: u64,
    /// The salt of the frames. Without one, no frame is whole.
    salt: Option<u64>,
    length: u64,
    /// The block that contains `at`, and its offset.
    block: Vec<u8>,
    block_start: Option<u64>,
    at: u64,
}

/// The next frame's start: too short an end of a block is padding.
fn behind_padding(at: u64) -> u64 {
    let left = BLOCK_BYTES - at % BLOCK_BYTES;
    if left < LEAST_ROOM_BYTES { at + left } else { at }
}

impl LogReader {
    /// Opens a log. The salt derived from the store's hash key counts; without it, that in the header, which
    /// [`header`](Self::header) reads.
    pub(crate) fn open(
        dir: &StoreDir,
        kind: LogKind,
        number: u64,
        derived: Option<u64>,
    ) -> Result<Self> {
        let name = kind.file_name(number);
        let path = dir.path_of(name);
        let file = dir.open_file(name).context("open", &path)?;
        let length = file.length().context("find the length", &path)?;
        let (salt, at) = (derived, kind.header_bytes());
        Ok(Self {
            file,
            path,
            kind,
            number,
            salt,
            length,
            block: Vec::new(),
            block_start: None,
            at,
        })
    }

    /// Reads the first `length` bytes of an open write-ahead log.
    pub(crate) fn of(file: Arc<dyn VfsFile>, path: PathBuf, log: LogId, length: u64) -> Self {
        let LogId { number, salt } = log;
        let (kind, salt) = (LogKind::Wal, Some(salt));
        let (block, block_start, at) = (Vec::new(), None, kind.header_bytes());
        Self { file, path, kind, number, salt, length, block, block_start, at }
    }

    /// Checks and returns the header, or what is there instead. A version or feature that this criba does not
    /// read is an error.
    pub(crate) fn header(&mut self) -> Result<std::result::Result<FileHeader, String>> {
        self.load_block(0)?;
        let decoded = decode_file_header(&self.block, self.kind, self.number);
        if self.salt.is_none() {
            self.salt = stored_salt(&self.block, self.kind, self.number);
        }
        match decoded {
            Ok(header) => Ok(Ok(header)),
            Err(HeaderError::Damaged(found)) => Ok(Err(found)),
            Err(HeaderError::Unsupported(found)) => Err(Error::Unsupported {
                path: self.path.clone(),
                supported: format!("version {FORMAT_VERSION} without other features"),
                found,
            }),
        }
    }

    /// What a sound header of any version says that the file is.
    pub(crate) fn origin(&mut self) -> Result<Option<Origin>> {
        self.load_block(0)?;
        Ok(origin(&self.block, self.kind))
    }

    /// As [`header`](Self::header), of a log of this store, whose salt is derived.
    pub(crate) fn header_of(&mut self, store: u64) -> Result<std::result::Result<(), String>> {
        // Before its version: it may be another one's.
        let number = self.number;
        let of_another = |origin: &Origin| origin.number == number && origin.store != store;
        if let Some(found) = self.origin()?.filter(of_another) {
            let expected = format!("a log of store {store:016x}");
            let found = format!("store {:016x}", found.store);
            return Err(Error::corrupt(&self.path, 0, expected, found));
        }
        Ok(match self.header()? {
            Ok(header) if Some(header.salt) != self.salt => Err("the salt of another log".into()),
            Ok(_) => Ok(()),
            Err(found) => Err(found),
        })
    }

    /// The offset at which the rest of a sound header is wrong. See [`wrong_rest_of_header`].
    pub(crate) fn wrong_rest_of_header(&mut self) -> Result<Option<u64>> {
        self.load_block(0)?;
        let wrong = wrong_rest_of_header(&self.block, self.kind, self.number);
        Ok(wrong.map(|at| at as u64))
    }

    /// The number of bytes in which the header is another than that of this log of a store; all of them if it
    /// is cut short.
    pub(crate) fn header_differs_by(&mut self, store: u64) -> Result<usize> {
        self.load_block(0)?;
        let header = FileHeader { features: 0, store, salt: self.salt.unwrap_or_default() };
        let expected = encode_file_header(self.kind, self.number, header);
        let found = self.block.get(..expected.len()).unwrap_or_default();
        let same = found.iter().zip(&expected).filter(|(found, expected)| found == expected);
        Ok(expected.len() - same.count())
    }

    /// Whether a crash can have left this of a log with an unsynced header.
    pub(crate) fn may_be_unsynced_header(&mut self) -> Result<bool> {
        self.load_block(0)?;
        let first_sector = self.block.get(..512).unwrap_or(&self.block);
        Ok(self.length <= self.kind.header_bytes()
            && may_be_unsynced(first_sector, self.kind.magic()))
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The length without the zeros at the end.
    pub(crate) fn written(&mut self) -> Result<u64> {
        let (mut at, mut end) = (0, 0);
        while at < self.length {
            let rest = self.rest_of_block(at)?;
            if let Some(last) = rest.iter().rposition(|&byte| byte != 0) {
                end = at + last as u64 + 1;
            }
            let behind_block = at + rest.len() as u64;
            at = self.behind_zeros(at)?.unwrap_or(behind_block);
        }
        Ok(end)
    }

    fn load_block(&mut self, start: u64) -> Result<()> {
        if self.block_start != Some(start) {
            let length = BLOCK_BYTES.min(self.length.saturating_sub(start)) as usize;
            self.block_start = None;
            self.block.resize(length, 0);
            let read = self.file.read_exact_at(&mut self.block, start);
            read.context(format_args!("read {length} bytes at offset {start}"), &self.path)?;
            self.block_start = Some(start);
        }
        Ok(())
    }

    /// The bytes from `at` to the end of its block or of the file.
    fn rest_of_block(&mut self, at: u64) -> Result<&[u8]> {
        let start = at - at % BLOCK_BYTES;
        self.load_block(start)?;
        Ok(self.block.get((at - start) as usize..).unwrap_or_default())
    }

    /// The frame at `at`, or what is there instead.
    fn frame_at(&mut self, at: u64) -> Result<std::result::Result<Frame<'_>, NoFrame>> {
        let log = self.salt.map(|salt| LogId { number: self.number, salt });
        let rest = self.rest_of_block(at)?;
        Ok(log.ok_or(NoFrame::NoSalt).and_then(|log| decode_frame(rest, log, at)))
    }

    /// If there are only zeros from `at` to the end of its block, the end of the block or of the hole that it is in.
    fn behind_zeros(&mut self, at: u64) -> Result<Option<u64>> {
        let rest = self.rest_of_block(at)?;
        if rest.iter().any(|&byte| byte != 0) {
            return Ok(None);
        }
        let end = at + rest.len() as u64;
        if end >= self.length {
            return Ok(Some(end));
        }
        // Where holes are not known, the zeros are read.
        let data = self.file.next_data(end).unwrap_or(Some(end)).unwrap_or(self.length);
        let block = data.min(self.length) / BLOCK_BYTES * BLOCK_BYTES;
        Ok(Some(if data >= self.length { self.length } else { block.max(end) }))
    }

    /// Whether there are only zeros from `at` on.
    fn only_zeros_from(&mut self, mut at: u64) -> Result<bool> {
        while at < self.length {
            match self.behind_zeros(at)? {
                Some(behind) => at = behind,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The next record, end or damage. After an end or damage there is no next item.
    pub(crate) fn next(&mut self) -> Result<Item> {
        let mut record: Option<(Seq, u64, Vec<u8>)> = None;
        let mut collects = true;
        loop {
            self.at = behind_padding(self.at);
            let at = self.at;
            let damage = |found: String, record: Option<(Seq, u64, Vec<u8>)>| {
                let offset = record.map_or(at, |(_, offset, _)| offset);
                Ok(Item::Damage { offset, found })
            };
            if at >= self.length {
                return match record {
                    None => Ok(Item::Eof),
                    cut => damage("the end of the file within a record".into(), cut),
                };
            }
            let frame = self
                .frame_at(at)?
                .map(|Frame { kind, seq, payload, .. }| (kind, seq, payload.to_vec()));
            let (kind, seq, payload) = match frame {
                Ok(frame) => frame,
                Err(found) => {
                    self.read_again(at)?;
                    if record.is_none() && self.only_zeros_from(at)? {
                        return Ok(Item::Eof);
                    }
                    return damage(found.to_string(), record);
                }
            };
            let frame_end = at + FRAME_HEADER_BYTES + payload.len() as u64;
            record = match (kind, record) {
                (FrameKind::Full, None) => {
                    self.at = frame_end;
                    return Ok(Item::Record { seq, offset: at, payload });
                }
                (FrameKind::First, None) => Some((seq, at, payload)),
                (FrameKind::Middle | FrameKind::Last, Some((first_seq, offset, mut whole)))
                    if first_seq == seq =>
                {
                    // Beyond this size, frames without a last one take no memory.
                    let becomes_long = whole.len() + payload.len() > LONG_RECORD_BYTES
                        && whole.len() <= LONG_RECORD_BYTES;
                    if collects && becomes_long {
                        collects = self.record_ends(at, seq)?;
                    }
                    if collects {
                        whole.extend_from_slice(&payload);
                    }
                    if kind == FrameKind::Last {
                        self.at = frame_end;
                        if !collects {
                            return Err(self.read_otherwise(at));
                        }
                        return Ok(Item::Record { seq, offset, payload: whole });
                    }
                    Some((first_seq, offset, whole))
                }
                (FrameKind::End, None) => {
                    return match payload.try_into() {
                        Ok(next) => Ok(Item::End { next: u64::from_le_bytes(next) }),
                        Err(_) => damage("an end frame without a log number".into(), None),
                    };
                }
                (_, record) => return damage(format!("a {kind:?} frame out of order"), record),
            };
            self.at = frame_end;
        }
    }

    /// Whether whole frames of a record follow from `at` on, up to its last one.
    fn record_ends(&mut self, mut at: u64, seq: Seq) -> Result<bool> {
        while at < self.length {
            match self.frame_at(at)? {
                Ok(Frame { kind: FrameKind::Middle, seq: found, payload, .. }) if found == seq => {
                    at += FRAME_HEADER_BYTES + payload.len() as u64;
                }
                Ok(Frame { kind, seq: found, .. }) => {
                    return Ok(kind == FrameKind::Last && found == seq);
                }
                Err(_) => return Ok(false),
            }
            at = behind_padding(at);
        }
        Ok(false)
    }

    /// Reads a damaged frame again: what follows from damage is final, and one wrong read must not cause it.
    fn read_again(&mut self, at: u64) -> Result<()> {
        self.block_start = None;
        match self.frame_at(at)? {
            Err(_) => Ok(()),
            Ok(_) => Err(self.read_otherwise(at)),
        }
    }

    fn read_otherwise(&self, at: u64) -> Error {
        let found = "different bytes in two reads";
        Error::corrupt(&self.path, at, "the same frame each time it is read", found)
    }

    /// Where the next item is read.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// Moves behind damage, to the next whole frame with which a record begins or the log ends; to the end of
    /// the file without one. Passes over blocks that cannot be read.
    ///
    /// Returns the offset from which on frames are certain: that of the frame, if the reader is there already,
    /// or if it follows the damaged one by its length, or begins a block. Else a search of each byte from `from`
    /// on found it, where bytes of a value can look like a frame, and the next block is certain.
    pub(crate) fn resume_from(&mut self, from: u64) -> u64 {
        let behind = if from <= self.at { Some(self.at) } else { self.behind_damage() };
        let (mut at, mut is_certain) = (behind.unwrap_or(from), behind.is_some());
        while at < self.length {
            let left = BLOCK_BYTES - at % BLOCK_BYTES;
            is_certain |= left == BLOCK_BYTES;
            if left == BLOCK_BYTES
                && let Ok(Some(behind)) = self.behind_zeros(at)
            {
                at = behind;
                continue;
            }
            at += match self.frame_at(at) {
                Ok(Ok(Frame { kind: FrameKind::Middle | FrameKind::Last, payload, .. })) => {
                    FRAME_HEADER_BYTES + payload.len() as u64
                }
                Ok(Ok(_)) => break,
                Ok(Err(_)) if is_certain && left < LEAST_ROOM_BYTES => left, // padding
                Ok(Err(_)) => {
                    is_certain = false;
                    1
                }
                Err(_) => left,
            };
        }
        self.at = at;
        if is_certain { at } else { at.next_multiple_of(BLOCK_BYTES) }
    }

    /// The whole frame behind a damaged one in its block, if its length is right.
    fn behind_damage(&mut self) -> Option<u64> {
        let at = self.at;
        let rest = self.rest_of_block(at).ok()?;
        let length = FRAME_HEADER_BYTES + u64::from(u16_at(rest, 4)?);
        let (is_within, behind) = (length < rest.len() as u64, at + length);
        (is_within && self.frame_at(behind).is_ok_and(|frame| frame.is_ok())).then_some(behind)
    }

    /// Searches every byte from `from` on for whole frames, and returns the furthest offset that one of them
    /// declares synced; `None` without such a frame.
    pub(crate) fn furthest_synced_from(&mut self, from: u64) -> Result<Option<u64>> {
        let mut furthest = None;
        self.search_from(from, |frame| furthest = furthest.max(Some(frame.synced)))?;
        Ok(furthest)
    }

    /// The number of whole frames from `from` on with which a record ends. The process writes in order: if it dies
    /// within a record, no record ends behind.
    pub(crate) fn records_from(&mut self, from: u64) -> Result<u64> {
        let mut records = 0;
        self.search_from(from, |frame| {
            records += u64::from(matches!(frame.kind, FrameKind::Full | FrameKind::Last));
        })?;
        Ok(records)
    }

    fn search_from(&mut self, from: u64, mut found: impl FnMut(&Frame<'_>)) -> Result<()> {
        let mut at = from;
        while at < self.length {
            if at.is_multiple_of(BLOCK_BYTES)
                && let Some(behind) = self.behind_zeros(at)?
            {
                at = behind;
                continue;
            }
            at += match self.frame_at(at)? {
                Ok(frame) => {
                    found(&frame);
                    FRAME_HEADER_BYTES + frame.payload.len() as u64
                }
                Err(_) => 1,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::WAL_HEADER_BYTES;
    use super::super::writer::LogWriter;
    use super::*;
    use crate::vfs::{CountingVfs, FileKind, Operation, RealVfs, SimVfs};
    use std::path::Path;

    const HEADER: FileHeader = FileHeader { features: 0, store: 77, salt: 5 };
    const ID: LogId = LogId { number: 4, salt: 5 };

    /// The directory of a log.
    fn dir_of(path: &Path) -> StoreDir {
        StoreDir::of(RealVfs, path.parent().expect("a directory"))
    }

    fn write(path: &Path, records: &[(Seq, Vec<u8>)], end: Option<u64>) -> Result<()> {
        let _ = std::fs::remove_file(path);
        let mut log = LogWriter::create(&dir_of(path), LogKind::Wal, 4, HEADER, true)?.keep();
        for (seq, payload) in records {
            let before = log.length();
            let written = log.append([(*seq, payload.as_slice())]).expect("a real file");
            assert_eq!(log.length(), before + written);
        }
        if let Some(next) = end {
            log.finish(next, 99).expect("a real file");
        }
        assert_eq!(log.length(), std::fs::metadata(path).expect("it exists").len());
        Ok(())
    }

    fn read(path: &Path) -> Result<Vec<Item>> {
        let mut reader = LogReader::open(&dir_of(path), LogKind::Wal, 4, None)?;
        assert_eq!(reader.header()?, Ok(HEADER));
        let mut items = Vec::new();
        loop {
            let item = reader.next()?;
            let last = !matches!(item, Item::Record { .. });
            items.push(item);
            if last {
                return Ok(items);
            }
        }
    }

    #[test]
    fn records_of_every_size_come_back() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let path = dir.path().join("000004.log");
        // Around the block's end in every way, alone (so that an end frame comes there) and before
        // records of several blocks.
        let near_block = BLOCK_BYTES - WAL_HEADER_BYTES - FRAME_HEADER_BYTES;
        for first in near_block - 60..=near_block + 5 {
            for sizes in [&[first][..], &[first, 0, 1, 100, 3 * BLOCK_BYTES, 5]] {
                let records: Vec<_> = sizes
                    .iter()
                    .enumerate()
                    .map(|(i, &size)| (i as u64 + 1, vec![i as u8 + 1; size as usize]))
                    .collect();
                for end in [None, Some(5)] {
                    write(&path, &records, end)?;
                    let items = read(&path)?;
                    let read: Vec<_> = items
                        .iter()
                        .filter_map(|item| match item {
                            Item::Record { seq, payload, .. } => Some((*seq, payload.clone())),
                            _ => None,
                        })
                        .collect();
                    assert!(read == records, "first record of {first} bytes");
                    let expected = end.map_or(Item::Eof, |next| Item::End { next });
                    assert_eq!(items.last(), Some(&expected));
                }
            }
        }
        Ok(())
    }

    #[test]
    fn a_log_cut_at_any_byte_gives_the_records_before_the_cut() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let path = dir.path().join("000004.log");
        let records: Vec<_> =
            (1..=40_u64).map(|seq| (seq, vec![seq as u8; 30 * seq as usize])).collect();
        write(&path, &records, Some(5))?;
        let whole = std::fs::read(&path).expect("it exists");
        let mut damaged = 0;
        for length in WAL_HEADER_BYTES as usize..whole.len() {
            std::fs::write(&path, &whole[..length]).expect("a real file");
            let items = read(&path)?;
            for (item, (seq, payload)) in items.iter().zip(&records) {
                let Item::Record { seq: found, payload: bytes, .. } = item else { break };
                assert_eq!((found, bytes), (seq, payload));
            }
            match items.last() {
                Some(Item::Damage { offset, .. }) => {
                    assert!(*offset < length as u64);
                    damaged += 1;
                }
                Some(Item::Eof) => {}
                other => panic!("cut to {length}: {other:?}"),
            }
        }
        assert!(damaged > 20_000, "{damaged} cuts within a frame");
        Ok(())
    }

    #[test]
    fn zeros_behind_the_records_are_the_end_of_the_log() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let path = dir.path().join("000004.log");
        write(&path, &[(1, b"record".to_vec())], None)?;
        let mut bytes = std::fs::read(&path).expect("it exists");
        bytes.resize(100_000, 0);
        std::fs::write(&path, &bytes).expect("a real file");
        assert_eq!(read(&path)?.last(), Some(&Item::Eof));
        bytes[90_000] = 1;
        std::fs::write(&path, &bytes).expect("a real file");
        assert!(matches!(read(&path)?.last(), Some(Item::Damage { .. })));
        Ok(())
    }

    #[test]
    fn frames_beyond_damage_are_found_again_and_tell_what_was_synced() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let path = dir.path().join("000004.log");
        let mut log = LogWriter::create(&dir_of(&path), LogKind::Wal, 4, HEADER, true)?.keep();
        log.append([(1, &b"first"[..])]).expect("a real file");
        log.sync().expect("a real file");
        let synced = log.length();
        log.append([(2, &b"second"[..])]).expect("a real file");
        let mut bytes = std::fs::read(&path).expect("it exists");
        bytes[WAL_HEADER_BYTES as usize + 5] ^= 1; // the first frame's length
        std::fs::write(&path, &bytes).expect("a real file");
        let mut reader = LogReader::open(&dir_of(&path), LogKind::Wal, 4, Some(HEADER.salt))?;
        assert!(matches!(reader.next()?, Item::Damage { offset: WAL_HEADER_BYTES, .. }));
        assert_eq!(reader.furthest_synced_from(WAL_HEADER_BYTES)?, Some(synced));
        assert_eq!(reader.furthest_synced_from(synced + 1)?, None);
        Ok(())
    }

    #[test]
    fn records_go_into_as_few_frames_and_long_ones_into_as_few_writes_as_they_can() {
        let vfs = CountingVfs::new(Arc::new(SimVfs::new()));
        let dir = StoreDir::of(vfs.clone(), "/");
        let log = LogWriter::create(&dir, LogKind::Wal, 4, HEADER, true);
        let mut log = log.expect("a sound disk");
        let block = BLOCK_BYTES - WAL_HEADER_BYTES - FRAME_HEADER_BYTES;
        for (bytes, frames) in [(1000, 1), (block - 1000 - FRAME_HEADER_BYTES, 1), (BLOCK_BYTES, 2)]
        {
            let payload = vec![1; bytes as usize];
            let written = log.append([(1, payload.as_slice())]).expect("a sound disk");
            assert_eq!(written, bytes + frames * FRAME_HEADER_BYTES);
        }
        let writes = || vfs.counts().of(FileKind::Wal, Operation::Append).calls;
        let before = writes();
        log.append([(2, vec![2; 7 << 19].as_slice())]).expect("a sound disk");
        assert_eq!(writes() - before, 4, "for 3.5 MiB");
    }

    #[test]
    fn frames_of_different_records_do_not_make_one() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let path = dir.path().join("000004.log");
        for (last, whole) in [(7, true), (8, false)] {
            let mut bytes = encode_file_header(LogKind::Wal, 4, HEADER);
            for (kind, seq) in [(FrameKind::First, 7), (FrameKind::Last, last)] {
                let frame = Frame { kind, seq, synced: 0, payload: b"part" };
                frame.encode(ID, bytes.len() as u64, &mut bytes);
            }
            std::fs::write(&path, &bytes).expect("a real file");
            let offset = WAL_HEADER_BYTES;
            match read(&path)?.first() {
                Some(Item::Record { seq: 7, payload, .. }) if whole => {
                    assert_eq!(payload, b"partpart");
                }
                Some(Item::Damage { offset: found, .. }) if !whole => assert_eq!(*found, offset),
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    }

    #[test]
    fn a_log_says_when_the_logs_before_it_are_synced() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let path = dir.path().join("000004.log");
        for (before, later, said) in
            [(true, false, WAL_HEADER_BYTES), (false, false, 0), (false, true, WAL_HEADER_BYTES)]
        {
            let _ = std::fs::remove_file(&path);
            let mut log =
                LogWriter::create(&dir_of(&path), LogKind::Wal, 4, HEADER, before)?.keep();
            if later {
                log.earlier_logs_are_synced();
            }
            log.append([(1, &b"record"[..])]).expect("a real file");
            let mut reader = LogReader::open(&dir_of(&path), LogKind::Wal, 4, Some(HEADER.salt))?;
            assert_eq!(reader.furthest_synced_from(WAL_HEADER_BYTES)?, Some(said));
        }
        Ok(())
    }
}
