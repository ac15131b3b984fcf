//! Appending records to a log file.

use std::path::Path;

use super::frame::{
    BLOCK_BYTES, FRAME_HEADER_BYTES, FileHeader, Frame, FrameKind, LEAST_ROOM_BYTES, LogId,
    LogKind, encode_file_header,
};
use crate::codec::PutFields;
use crate::error::{Error, IoContext};
use crate::key::Seq;
use crate::store_dir::{NewFile, StoreDir};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};
use criba_filter::store::HashKey;

/// Long records are written in pieces of this size.
const WRITE_BYTES: usize = 1 << 20;

/// Why nothing was appended or synced.
#[derive(Debug, Clone)]
pub(crate) enum LogError {
    /// The log is unchanged; the next append may succeed.
    Refused(Error),
    /// The content of the log is in doubt: nothing more may be written.
    Broken(Error),
}

impl LogError {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Refused(error) | Self::Broken(error) => error,
        }
    }
}

/// The file of a log. One thread syncs it, while another appends.
#[derive(Debug)]
struct LogFile {
    file: NewFile,
    /// See [`Frame::synced`].
    synced: AtomicU64,
    /// Locked during a sync, which a second one waits for: the kernel reports a failed sync once.
    state: Mutex<SyncState>,
}

#[derive(Debug)]
enum SyncState {
    Open,
    /// The end frame is durable, and with it all before.
    Closed,
    Failed(Error),
}

impl LogFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Makes everything up to `end` durable, in a file that still has its name.
    fn sync_to(&self, end: u64, state: &mut SyncState) -> Result<(), LogError> {
        let synced = if self.synced() < end {
            self.file.file().sync_data().context("sync", self.path())
        } else {
            Ok(())
        };
        if let Err(error) = synced.and_then(|()| self.file.check_named()) {
            *state = SyncState::Failed(error.clone());
            return Err(LogError::Broken(error));
        }
        self.synced.fetch_max(end, Ordering::Release);
        Ok(())
    }
}

/// A sync that began: it makes durable what was appended before, and needs no lock of the writer.
#[derive(Debug)]
pub(crate) struct LogSync {
    file: Arc<LogFile>,
    end: u64,
}

impl LogSync {
    pub(crate) fn run(self) -> Result<(), LogError> {
        let mut state = self.file.state.lock();
        match &*state {
            SyncState::Open => self.file.sync_to(self.end, &mut state),
            SyncState::Closed => Ok(()),
            SyncState::Failed(error) => Err(LogError::Broken(error.clone())),
        }
    }
}

/// An open log. One thread appends at a time.
#[derive(Debug)]
pub(crate) struct LogWriter {
    file: Arc<LogFile>,
    id: LogId,
    /// The offset of the first frame.
    begin: u64,
    /// Where the last whole record ends.
    end: u64,
    /// The length of the file, which has zeros from `end` on.
    filled: u64,
    /// `filled` is a multiple of this, see [`Self::fill_ahead`].
    fill: u64,
    buffer: Vec<u8>,
}

impl LogWriter {
    /// Creates an empty log file durably. `follows_synced` says whether all earlier logs are known to be
    /// synced. The writer removes the file when it is dropped, unless it is [kept](Self::keep).
    pub(crate) fn create(
        dir: &StoreDir,
        kind: LogKind,
        number: u64,
        header: FileHeader,
        follows_synced: bool,
    ) -> Result<Self, Error> {
        let file = dir.create(kind.file_name(number))?;
        let bytes = encode_file_header(kind, number, header);
        file.file().append(&bytes).context("write the header", file.path())?;
        file.file().sync_all().context("sync", file.path())?;
        dir.sync()?;
        let (begin, id) = (kind.header_bytes(), LogId { number, salt: header.salt });
        let (synced, end) = (if follows_synced { begin } else { 0 }, begin);
        let (synced, state) = (AtomicU64::new(synced), Mutex::new(SyncState::Open));
        let file = Arc::new(LogFile { file, synced, state });
        Ok(Self { file, id, begin, end, filled: end, fill: 1, buffer: Vec::new() })
    }

    /// [`create`](Self::create)s a log of a store.
    pub(crate) fn create_wal(
        dir: &StoreDir,
        (store, hash_key): (u64, &HashKey),
        number: u64,
        follows_synced: bool,
    ) -> Result<Self, Error> {
        let header = FileHeader { features: 0, store, salt: hash_key.salt_of_log(number) };
        Self::create(dir, LogKind::Wal, number, header, follows_synced)
    }

    pub(crate) fn keep(self) -> Self {
        self.keep_file();
        self
    }

    pub(crate) fn keep_file(&self) {
        self.file.file.keep();
    }

    /// Lets an append soon after a sync write zeros up to a multiple of `bytes`. Later appends then do not change
    /// the file's length, and their syncs take two thirds of the time.
    pub(crate) fn fill_ahead(mut self, bytes: u64) -> Self {
        self.fill = bytes;
        self
    }

    pub(crate) fn id(&self) -> LogId {
        self.id
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Checks that the directory is that of this opening, as a new file does, and that the log has its name in it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.file.file.check()
    }

    /// Makes this the log in use, which must keep its name.
    pub(crate) fn watch(&self) {
        self.file.file.watch();
    }

    /// The log's length in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.end
    }

    /// Notes that every earlier log is synced.
    pub(crate) fn earlier_logs_are_synced(&self) {
        self.file.synced.fetch_max(self.begin, Ordering::Release);
    }

    /// Appends all records, or none after an error. Returns the number of bytes written.
    pub(crate) fn append<'a>(
        &mut self,
        records: impl IntoIterator<Item = (Seq, &'a [u8])>,
    ) -> Result<u64, LogError> {
        let mut at = self.end;
        self.buffer.clear();
        for (seq, payload) in records {
            if let Err(error) = self.push_record(seq, payload, &mut at) {
                return Err(self.cut_back(error));
            }
        }
        // Also beside a sync. Not for appends that none syncs: they would write each byte twice.
        let synced = self.file.synced();
        let is_synced_often = synced > self.begin && self.end - synced <= self.fill;
        let fills = is_synced_often && at > self.filled;
        let to = if fills { at.next_multiple_of(self.fill) } else { at };
        self.buffer.resize(self.buffer.len() + (to - at) as usize, 0);
        if let Err(error) = self.write_buffer(to) {
            return Err(self.cut_back(error));
        }
        let written = to - self.end;
        self.end = at;
        Ok(written)
    }

    /// Closes the log: appends an end frame that names the next log (0 for none), cuts off the zeros, and
    /// syncs.
    pub(crate) fn finish(&mut self, next: u64, seq: Seq) -> Result<(), LogError> {
        let file = Arc::clone(&self.file);
        let mut state = file.state.lock();
        if let SyncState::Failed(error) = &*state {
            return Err(LogError::Broken(error.clone()));
        }
        let mut at = self.end;
        let mut payload = Vec::new();
        payload.put_u64(next);
        self.buffer.clear();
        self.skip_short_tail(&mut at);
        self.push_frame(FrameKind::End, seq, &payload, &mut at);
        if let Err(error) = self.write_buffer(at).and_then(|()| self.cut(at)) {
            return Err(self.cut_back(error));
        }
        self.end = at;
        file.sync_to(at, &mut state)?;
        *state = SyncState::Closed;
        Ok(())
    }

    /// Begins a sync of everything appended so far.
    pub(crate) fn begin_sync(&self) -> LogSync {
        LogSync { file: Arc::clone(&self.file), end: self.end }
    }

    /// Makes everything appended so far durable.
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.begin_sync().run()
    }

    /// Undoes a failed append.
    fn cut_back(&mut self, error: Error) -> LogError {
        self.buffer.clear();
        self.fill = 1; // what does not fit with zeros behind it may fit without
        self.filled = u64::MAX; // not known
        match self.cut(self.end) {
            Ok(()) => LogError::Refused(error),
            Err(_) => LogError::Broken(error),
        }
    }

    fn cut(&mut self, length: u64) -> Result<(), Error> {
        if self.filled > length {
            self.file.file.file().set_length(length).context("set the length", self.path())?;
            self.filled = length;
        }
        Ok(())
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
                self.write_buffer(*at)?;
            }
            if after.is_empty() {
                return Ok(());
            }
            (rest, first) = (after, false);
        }
    }

    /// Pads the end of a block that is too short for every frame.
    fn skip_short_tail(&mut self, at: &mut u64) {
        let left = BLOCK_BYTES - *at % BLOCK_BYTES;
        if left < LEAST_ROOM_BYTES {
            self.buffer.resize(self.buffer.len() + left as usize, 0);
            *at += left;
        }
    }

    fn push_frame(&mut self, kind: FrameKind, seq: Seq, payload: &[u8], at: &mut u64) {
        let frame = Frame { kind, seq, synced: self.file.synced(), payload };
        frame.encode(self.id, *at, &mut self.buffer);
        *at += FRAME_HEADER_BYTES + payload.len() as u64;
    }

    /// Writes the buffer, which ends at `to`.
    fn write_buffer(&mut self, to: u64) -> Result<(), Error> {
        let length = self.buffer.len() as u64;
        if length > 0 {
            let at = to - length;
            let written = if at == self.filled {
                self.file.file.file().append(&self.buffer)
            } else {
                self.file.file.file().write_at(&self.buffer, at)
            };
            written.context(format_args!("write {length} bytes at offset {at}"), self.path())?;
            self.filled = self.filled.max(to);
            self.buffer.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Item, LogReader};
    use super::*;
    use crate::sync::Arc;
    use crate::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, SimVfs, Vfs};

    const FILL: u64 = 1000;
    const HEADER: FileHeader = FileHeader { features: 0, store: 77, salt: 5 };
    const PATH: &str = "/000004.log";

    fn root(vfs: impl Vfs + 'static) -> StoreDir {
        StoreDir::of(vfs, "/")
    }

    fn log(vfs: impl Vfs + 'static) -> LogWriter {
        let log = LogWriter::create(&root(vfs), LogKind::Wal, 4, HEADER, true);
        log.expect("a sound disk").keep().fill_ahead(FILL)
    }

    fn length(vfs: &SimVfs) -> u64 {
        vfs.disk().read(PATH).expect("it exists").len() as u64
    }

    fn read(vfs: &SimVfs) -> (Vec<Seq>, Item) {
        let mut reader = LogReader::open(&root(vfs.clone()), LogKind::Wal, 4, Some(HEADER.salt))
            .expect("a sound disk");
        let mut seqs = Vec::new();
        loop {
            match reader.next().expect("a sound disk") {
                Item::Record { seq, .. } => seqs.push(seq),
                last => return (seqs, last),
            }
        }
    }

    #[test]
    fn a_log_grows_by_its_fill_as_long_as_each_append_is_synced() {
        let vfs = SimVfs::new();
        let mut log = log(vfs.clone());
        let mut lengths = Vec::new();
        for seq in 0..40 {
            let written = log.append([(seq, &[7; 100][..])]).expect("a sound disk");
            log.sync().expect("a sound disk");
            let before = lengths.last().copied();
            lengths.push(length(&vfs));
            let filled = before.is_some_and(|before| before < length(&vfs));
            let zeros = if filled { length(&vfs) - log.length() } else { 0 };
            assert_eq!(written, FRAME_HEADER_BYTES + 100 + zeros);
        }
        assert_eq!(read(&vfs), ((0..40).collect(), Item::Eof));
        lengths.dedup();
        // The first append follows no sync.
        let filled = (1..=6).map(|fills| fills * FILL);
        assert!(lengths[1..].iter().copied().eq(filled), "{lengths:?}");

        log.finish(5, 40).expect("a sound disk");
        assert_eq!((length(&vfs), read(&vfs).1), (log.length(), Item::End { next: 5 }));
    }

    #[test]
    fn a_log_that_is_not_synced_is_not_filled() {
        let vfs = SimVfs::new();
        let mut log = log(vfs.clone());
        for seq in 0..40 {
            log.append([(seq, &[7; 100][..])]).expect("a sound disk");
            assert_eq!(length(&vfs), log.length());
        }
    }

    #[test]
    fn an_append_beside_a_sync_fills_and_many_without_a_sync_do_not() {
        let vfs = SimVfs::new();
        let mut log = log(vfs.clone());
        let append = |log: &mut LogWriter, seq| {
            log.append([(seq, &[7; 100][..])]).expect("a sound disk");
            length(&vfs) - log.length()
        };
        append(&mut log, 0);
        log.sync().expect("a sound disk");
        assert!(append(&mut log, 1) > 0);
        let sync = log.begin_sync();
        let zeros: Vec<u64> = (2..40).map(|seq| append(&mut log, seq)).collect();
        sync.run().expect("a sound disk");
        assert!(zeros.contains(&0) && zeros.last() == Some(&0), "{zeros:?}");
        let fills = zeros.windows(2).filter(|pair| pair[1] > pair[0]).count();
        assert_eq!(fills, 1, "{zeros:?}");
    }

    #[test]
    fn a_log_that_could_not_be_filled_goes_on_without() {
        let vfs = SimVfs::new();
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        let mut log = log(faults.clone());
        let mut append = |seq| log.append([(seq, &[7; 100][..])]).and_then(|_| log.sync());
        append(0).expect("a sound disk");
        let full = FaultRule::new(Fault::NoSpace).kinds([FileKind::Wal]);
        faults.add(full.operations([Operation::Append]));
        assert!(matches!(append(1), Err(LogError::Refused(_))));
        append(1).expect("there is room again");
        append(2).expect("there is room again");
        assert_eq!(read(&vfs), (vec![0, 1, 2], Item::Eof));
        assert_eq!(length(&vfs), log.length());
    }
}
