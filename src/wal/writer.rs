//! Appending records to a log file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{
    BLOCK_BYTES, FILE_HEADER_BYTES, FRAME_HEADER_BYTES, Frame, FrameKind, LEAST_ROOM_BYTES,
    LogKind, encode_file_header,
};
use crate::codec::PutFields;
use crate::error::{Error, IoContext};
use crate::key::Seq;
use crate::vfs::{Vfs, VfsFile};

/// A long record is written in pieces of about this size, not copied whole.
const WRITE_BYTES: usize = 1 << 20;

/// Why nothing was appended or synced.
#[derive(Debug, Clone)]
pub(crate) enum LogError {
    /// The log ends where it did before; the next append may succeed.
    Refused(Error),
    /// What the log holds is in doubt: nothing more may be written to it.
    Broken(Error),
}

impl LogError {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Refused(error) | Self::Broken(error) => error,
        }
    }
}

/// An open log. One thread appends at a time.
#[derive(Debug)]
pub(crate) struct LogWriter {
    file: Arc<dyn VfsFile>,
    path: PathBuf,
    number: u64,
    /// Where the last whole record ends.
    end: u64,
    /// See [`Frame::synced`].
    synced: u64,
    buffer: Vec<u8>,
}

impl LogWriter {
    /// Makes a new log file, durable and empty. `follows_synced` says whether all earlier logs are
    /// known to be synced.
    pub(crate) fn create(
        vfs: &dyn Vfs,
        path: &Path,
        kind: LogKind,
        number: u64,
        store: u64,
        follows_synced: bool,
    ) -> Result<Self, Error> {
        let file = vfs.create(path, kind.file_kind()).context("create", path)?;
        file.append(&encode_file_header(kind, number, store)).context("write the header", path)?;
        file.sync_all().context("sync", path)?;
        let dir = path.parent().unwrap_or(path);
        vfs.sync_dir(dir).context("sync", dir)?;
        let synced = if follows_synced { FILE_HEADER_BYTES } else { 0 };
        let path = path.to_owned();
        Ok(Self { file, path, number, end: FILE_HEADER_BYTES, synced, buffer: Vec::new() })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The log's length in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.end
    }

    /// Notes that every earlier log is synced.
    pub(crate) fn earlier_logs_are_synced(&mut self) {
        self.synced = self.synced.max(FILE_HEADER_BYTES);
    }

    /// Appends records, each with its sequence number and the parts of its payload: all of them or,
    /// after an error, none. Gives the number of bytes written.
    pub(crate) fn append<'a>(
        &mut self,
        records: impl IntoIterator<Item = (Seq, &'a [u8])>,
    ) -> Result<u64, LogError> {
        let start = self.end;
        let mut written = start;
        self.buffer.clear();
        for (seq, payload) in records {
            if let Err(error) = self.push_record(seq, payload, &mut written) {
                return Err(self.cut_back(start, error));
            }
        }
        if let Err(error) = self.write_buffer() {
            return Err(self.cut_back(start, error));
        }
        self.end = written;
        Ok(written - start)
    }

    /// Closes the log: appends an end record that names the log in which writers go on (0 for
    /// none), and syncs.
    pub(crate) fn finish(&mut self, next: u64, seq: Seq) -> Result<(), LogError> {
        let start = self.end;
        let mut written = start;
        let mut payload = Vec::new();
        payload.put_u64(next);
        self.buffer.clear();
        self.skip_short_tail(&mut written);
        self.push_frame(FrameKind::End, seq, &payload, &mut written);
        if let Err(error) = self.write_buffer() {
            return Err(self.cut_back(start, error));
        }
        self.end = written;
        self.sync()
    }

    /// Makes everything appended so far durable.
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        if self.synced == self.end {
            return Ok(());
        }
        self.file.sync_data().context("sync", &self.path).map_err(LogError::Broken)?;
        self.synced = self.end;
        Ok(())
    }

    fn cut_back(&mut self, length: u64, error: Error) -> LogError {
        self.buffer.clear();
        match self.file.set_length(length) {
            Ok(()) => LogError::Refused(error),
            Err(_) => LogError::Broken(error),
        }
    }

    fn push_record(&mut self, seq: Seq, payload: &[u8], at: &mut u64) -> Result<(), Error> {
        let mut rest = payload;
        let mut first = true;
        loop {
            self.skip_short_tail(at);
            let room = (BLOCK_BYTES - *at % BLOCK_BYTES - FRAME_HEADER_BYTES) as usize;
            let (part, after) = rest.split_at(room.min(rest.len()));
            let kind = match (first, after.is_empty()) {
                (true, true) => FrameKind::Full,
                (true, false) => FrameKind::First,
                (false, false) => FrameKind::Middle,
                (false, true) => FrameKind::Last,
            };
            self.push_frame(kind, seq, part, at);
            if self.buffer.len() >= WRITE_BYTES {
                self.write_buffer()?;
            }
            if after.is_empty() {
                return Ok(());
            }
            (rest, first) = (after, false);
        }
    }

    /// Fills the end of a block with zeros if it is too short for every kind of frame.
    fn skip_short_tail(&mut self, at: &mut u64) {
        let left = BLOCK_BYTES - *at % BLOCK_BYTES;
        if left < LEAST_ROOM_BYTES {
            self.buffer.resize(self.buffer.len() + left as usize, 0);
            *at += left;
        }
    }

    fn push_frame(&mut self, kind: FrameKind, seq: Seq, payload: &[u8], at: &mut u64) {
        let frame = Frame { kind, seq, synced: self.synced, payload };
        frame.encode(self.number, *at, &mut self.buffer);
        *at += FRAME_HEADER_BYTES + payload.len() as u64;
    }

    fn write_buffer(&mut self) -> Result<(), Error> {
        if !self.buffer.is_empty() {
            let action = format!("append {} bytes", self.buffer.len());
            self.file.append(&self.buffer).context(action, &self.path)?;
            self.buffer.clear();
        }
        Ok(())
    }
}
