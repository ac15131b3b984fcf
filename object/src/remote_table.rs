//! Reads a table whose data blocks are in an object.
//!
//! A lookup reads one block: one request. A scan announces what it will read, and a compaction reads much at once: then
//! requests grow to [`LARGEST`], and what was read ahead waits in memory, one range for each table.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;

use bytes::Bytes;
use criba::TableLayout;
use criba::vfs::VfsFile;

use crate::bucket::Bucket;
use crate::error::Result;
use crate::requests::Purpose;
use crate::runtime::Pending;
use crate::stub::Stub;

/// The bytes of a compaction's requests. A scan announces at most as many.
const LARGEST: u64 = 4 << 20;
/// A read of so many bytes is of a compaction, which reads the whole table.
const IS_BULK: u64 = 128 << 10;
/// The most announced blocks of a table that wait for their lookups.
const MOST_ANNOUNCED: usize = 256;

#[derive(Debug)]
pub(crate) struct RemoteTable {
    bucket: Bucket,
    stub: Stub,
    layout: TableLayout,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ahead: Option<Ahead>,
    /// Blocks that a batch of lookups announced, by offset, with their length.
    announced: HashMap<u64, (u64, Pending<Result<Bytes>>)>,
}

/// A range that was read ahead. It waits until its last byte is read: a compaction reads the block at the end of one
/// piece again with the next piece.
#[derive(Debug)]
struct Ahead {
    offset: u64,
    length: u64,
    bytes: Source,
    /// Whether it is of a scan, which reads one block after the other. A compaction reads many at once.
    is_of_scan: bool,
}

#[derive(Debug)]
enum Source {
    Arrived(Bytes),
    UnderWay(Pending<Result<Bytes>>),
}

impl RemoteTable {
    /// Opens a table by its stub.
    pub(crate) fn open(bucket: &Bucket, stub: Stub, path: &std::path::Path) -> io::Result<Self> {
        let layout = TableLayout::read(&Tail(&stub), stub.bytes, path).map_err(io::Error::other)?;
        if layout.tail_offset() < stub.tail_offset {
            let reason = "a damaged stub: the tail begins in a data block";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(Self { bucket: bucket.clone(), stub, layout, state: Mutex::default() })
    }

    pub(crate) fn stub(&self) -> &Stub {
        &self.stub
    }

    pub(crate) fn read_into(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let length = buffer.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > self.stub.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let data = self.stub.tail_offset.saturating_sub(offset).min(length) as usize;
        let (of_data, of_tail) = buffer.split_at_mut(data);
        if !of_data.is_empty() {
            of_data.copy_from_slice(&self.data(offset, data as u64)?);
        }
        if !of_tail.is_empty() {
            self.stub.read_tail(of_tail, offset + data as u64)?;
        }
        Ok(())
    }

    fn data(&self, offset: u64, length: u64) -> io::Result<Bytes> {
        if let Some(bytes) = self.announced(offset, length) {
            return Ok(bytes);
        }
        if let Some(bytes) = self.read_ahead(offset, length)? {
            return Ok(bytes);
        }
        let request = LARGEST.max(length).min(self.stub.tail_offset - offset);
        if length < IS_BULK || request == length {
            return self.block(offset, length);
        }
        let bytes = self.get(Purpose::Ranges, offset, request)?;
        let read = bytes.slice(..length as usize);
        let bytes = Source::Arrived(bytes);
        self.lock().ahead = Some(Ahead { offset, length: request, bytes, is_of_scan: false });
        Ok(read)
    }

    /// Bytes of the range that was read ahead; none if they are a damaged block.
    fn read_ahead(&self, offset: u64, length: u64) -> io::Result<Option<Bytes>> {
        let end = offset + length;
        let has = |ahead: &mut Ahead| ahead.offset <= offset && end <= ahead.offset + ahead.length;
        let Some(mut ahead) = self.lock().ahead.take_if(has) else { return Ok(None) };
        let bytes = match ahead.bytes {
            Source::Arrived(bytes) => bytes,
            Source::UnderWay(pending) => pending.wait()??,
        };
        let start = (offset - ahead.offset) as usize;
        let read = bytes.slice(start..start + length as usize);
        let is_damaged = ahead.is_of_scan && !self.layout.is_data_block(offset, &read);
        if end < ahead.offset + ahead.length {
            ahead.bytes = Source::Arrived(bytes);
            self.lock().ahead = Some(ahead);
        }
        Ok(Some(read).filter(|_| !is_damaged))
    }

    /// Begins the request of a range that a scan will read.
    pub(crate) fn announce_scan(&self, offset: u64, length: u64) -> io::Result<()> {
        let length = length.min(self.stub.tail_offset.saturating_sub(offset));
        // A longer block is read as a block.
        if length == 0 || length > LARGEST {
            return Ok(());
        }
        let bytes = Source::UnderWay(self.begin(Purpose::Ranges, offset, length)?);
        self.lock().ahead = Some(Ahead { offset, length, bytes, is_of_scan: true });
        Ok(())
    }

    /// Reads one block; once more if its checksum is wrong.
    fn block(&self, offset: u64, length: u64) -> io::Result<Bytes> {
        let bytes = self.get(Purpose::Blocks, offset, length)?;
        if self.layout.is_data_block(offset, &bytes) {
            return Ok(bytes);
        }
        self.get(Purpose::Blocks, offset, length)
    }

    fn get(&self, purpose: Purpose, offset: u64, length: u64) -> io::Result<Bytes> {
        Ok(self.begin(purpose, offset, length)?.wait()??)
    }

    fn begin(&self, purpose: Purpose, offset: u64, length: u64) -> Result<Pending<Result<Bytes>>> {
        let (bucket, object) = (self.bucket.clone(), self.stub.object.clone());
        let range = offset..offset + length;
        self.bucket.runtime.begin(async move { bucket.read(purpose, &object, range).await })
    }

    /// Begins the request of a block that a lookup will read soon.
    pub(crate) fn announce(&self, offset: u64, length: u64) -> io::Result<()> {
        let is_data = offset.checked_add(length).is_some_and(|end| end <= self.stub.tail_offset);
        if !is_data || length == 0 {
            return Ok(());
        }
        let pending = self.begin(Purpose::Blocks, offset, length)?;
        let mut state = self.lock();
        // Blocks that no lookup came for: another one had put them into the cache.
        if state.announced.len() >= MOST_ANNOUNCED {
            state.announced.clear();
        }
        state.announced.insert(offset, (length, pending));
        Ok(())
    }

    /// The block that was announced, if its request succeeds.
    fn announced(&self, offset: u64, length: u64) -> Option<Bytes> {
        let (announced, pending) = self.lock().announced.remove(&offset)?;
        let bytes = pending.wait().ok()?.ok()?;
        let is_it = announced == length && self.layout.is_data_block(offset, &bytes);
        is_it.then_some(bytes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Shows a stub as the end of its table.
#[derive(Debug)]
struct Tail<'a>(&'a Stub);

impl VfsFile for Tail<'_> {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if offset < self.0.tail_offset {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.0.read_tail(buffer, offset)
    }

    fn append(&self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.bytes)
    }

    fn identity(&self) -> io::Result<criba::vfs::Identity> {
        self.0.file.identity()
    }
}
