//! A stub: the local file of a table whose data blocks are only in its object.
//!
//! It has the name of the table and `.stub`: a header, then the table's tail, which is its filter, index, properties
//! and footer.
//!
//! | bytes | content |
//! |--:|---|
//! | 8 | magic `cribaSTB` |
//! | 2 | version, 1 |
//! | 2 | length of the object's name |
//! | 8 | bytes of the table |
//! | 8 | offset of the tail in the table |
//! | … | the object's name |
//! | 4 | CRC-32 of the header before |

use std::io;
use std::sync::Arc;

use criba::vfs::VfsFile;

use crate::published::Object;

const MAGIC: &[u8; 8] = b"cribaSTB";
const VERSION: u16 = 1;
const FIXED_BYTES: usize = 28;
const CHECKSUM_BYTES: usize = 4;
const MAX_NAME_BYTES: usize = 1024;
/// A tail is copied in pieces of so many bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// An open stub.
#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) file: Arc<dyn VfsFile>,
    pub(crate) object: String,
    /// The bytes of the whole table.
    pub(crate) bytes: u64,
    pub(crate) tail_offset: u64,
    header_bytes: u64,
}

pub(crate) fn stub_name(table: &str) -> String {
    format!("{table}.stub")
}

/// The table of a stub.
pub(crate) fn table_of(stub: &str) -> Option<&str> {
    stub.strip_suffix(".stub")
}

/// Writes a stub. `read_tail` fills a buffer from an offset of the table.
pub(crate) fn write(
    file: &dyn VfsFile,
    object: &Object,
    mut read_tail: impl FnMut(u64, u64) -> io::Result<bytes::Bytes>,
) -> io::Result<()> {
    let mut header = Vec::with_capacity(FIXED_BYTES + object.name.len() + CHECKSUM_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&(object.name.len() as u16).to_le_bytes());
    header.extend_from_slice(&object.bytes.to_le_bytes());
    header.extend_from_slice(&object.kept_from.to_le_bytes());
    header.extend_from_slice(object.name.as_bytes());
    let checksum = crc32fast::hash(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    file.append(&header)?;
    let mut offset = object.kept_from;
    while offset < object.bytes {
        let length = PIECE_BYTES.min(object.bytes - offset);
        file.append(&read_tail(offset, length)?)?;
        offset += length;
    }
    Ok(())
}

impl Stub {
    /// Reads the header.
    pub(crate) fn open(file: Arc<dyn VfsFile>) -> io::Result<Self> {
        let length = file.length()?;
        let damaged = |found: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("a damaged stub: {found}"))
        };
        if length < (FIXED_BYTES + CHECKSUM_BYTES) as u64 {
            return Err(damaged("it is too short"));
        }
        let fixed = file.read_new(FIXED_BYTES, 0)?;
        if !fixed.starts_with(MAGIC) {
            return Err(damaged("a bad magic number"));
        }
        let two = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let eight = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("8 bytes"));
        let name_bytes = usize::from(two(10));
        let header_bytes = FIXED_BYTES + name_bytes + CHECKSUM_BYTES;
        if name_bytes > MAX_NAME_BYTES || length < header_bytes as u64 {
            return Err(damaged("a name that is too long"));
        }
        let header = file.read_new(header_bytes, 0)?;
        let (covered, checksum) = header.split_at(header_bytes - CHECKSUM_BYTES);
        if crc32fast::hash(covered).to_le_bytes() != checksum {
            return Err(damaged("a wrong checksum"));
        }
        if two(8) != VERSION {
            return Err(damaged("another version"));
        }
        let object = String::from_utf8(covered[FIXED_BYTES..].to_vec());
        let object = object.map_err(|_| damaged("a name that is not text"))?;
        let (bytes, tail_offset) = (eight(12), eight(20));
        if tail_offset.checked_add(length - header_bytes as u64) != Some(bytes) {
            return Err(damaged("a tail of another length"));
        }
        Ok(Self { file, object, bytes, tail_offset, header_bytes: header_bytes as u64 })
    }

    /// Reads from the tail, at an offset of the table.
    pub(crate) fn read_tail(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, self.header_bytes + (offset - self.tail_offset))
    }
}
