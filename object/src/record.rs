//! A record: a first line that says what it is, fields, and a checksum of all before.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bucket::Bucket;
use crate::error::{Error, Result};
use crate::requests::Purpose;

const CHECKSUM_BYTES: usize = 4;

pub(crate) fn encode(first_line: &str, fields: &impl Serialize) -> Vec<u8> {
    let mut bytes = first_line.as_bytes().to_vec();
    bytes.extend(postcard::to_stdvec(fields).expect("memory can be written"));
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads and decodes an object; once more if it is damaged: bytes may change on their way.
pub(crate) async fn read<T>(
    bucket: &Bucket,
    object: &str,
    at_most: u64,
    decode: impl Fn(&[u8]) -> Result<T>,
) -> Result<T> {
    let bytes = bucket.read_all(Purpose::Manifests, object, at_most).await?;
    if let Ok(decoded) = decode(&bytes) {
        return Ok(decoded);
    }
    decode(&bucket.read_all(Purpose::Manifests, object, at_most).await?)
}

/// Decodes a record of the object or the file `of`.
pub(crate) fn decode<T: DeserializeOwned>(first_line: &str, bytes: &[u8], of: &str) -> Result<T> {
    let start = first_line.len();
    let Some(rest) = bytes.strip_prefix(first_line.as_bytes()) else {
        return Err(damaged(
            of,
            0,
            &format!("the line \"{}\"", first_line.trim_end()),
            "other bytes",
        ));
    };
    let Some((fields, checksum)) = rest.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(damaged(of, start, "a checksum", "the end"));
    };
    let covered = &bytes[..bytes.len() - CHECKSUM_BYTES];
    if crc32fast::hash(covered) != u32::from_le_bytes(*checksum) {
        return Err(damaged(of, covered.len(), "the checksum of all before", "a wrong checksum"));
    }
    let (decoded, rest) = postcard::take_from_bytes(fields)
        .map_err(|_| damaged(of, start, "the fields of this record", "other bytes"))?;
    if !rest.is_empty() {
        return Err(damaged(of, covered.len() - rest.len(), "the end of the record", "more bytes"));
    }
    Ok(decoded)
}

pub(crate) fn damaged(of: &str, offset: usize, expected: &str, found: &str) -> Error {
    Error::Damaged {
        object: of.to_owned(),
        offset: offset as u64,
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}
