//! Log files, as write-ahead logs.

use criba::Error;
use criba::parsers::{HashKeyBytes, LogEnd, LogWriter, read_log, replay_log};
use criba::vfs::{SimDisk, Vfs};
use std::sync::Arc;

use crate::{DIR, assert_names_a_file, disk_with, mend, mounted};

/// The log number of the input.
pub(crate) const NUMBER: u64 = 4;

/// The hash key with which the parser reads it.
const HASH_KEY: HashKeyBytes = [0; 16];

/// The file name of a log.
pub(crate) fn name(number: u64) -> String {
    format!("{number:06}.log")
}

/// Parses bytes as a write-ahead log.
///
/// # Panics
/// If records are not in file order; if they differ after a round trip; if a replay gets other records.
pub fn wal(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    mend::wal(&mut mended, NUMBER, &HASH_KEY);
    let accepted = as_log(bytes);
    as_log(&mended) || accepted
}

type Records = Vec<(u64, Vec<u8>)>;

fn as_log(bytes: &[u8]) -> bool {
    let vfs = disk_with(&name(NUMBER), bytes);
    let Some((store, records, _)) = read_all(&vfs, bytes.len()) else { return false };

    // A replay of this log alone gets its records up to the first that has not the next number.
    let first = records.first().map_or(1, |(seq, _)| *seq);
    let mut replayed = 0;
    let result = replay_log(&vfs, DIR.as_ref(), store, NUMBER, first, |seq, payload| {
        assert_eq!((seq, payload), (records[replayed].0, records[replayed].1.as_slice()));
        replayed += 1;
        u64::from(seq < u64::MAX)
    });
    match result {
        Ok(lost) => assert!(lost.is_some() || replayed == records.len()),
        Err(error) => assert_names_a_file(&error),
    }

    assert_eq!(rewritten(&records), records);
    !records.is_empty()
}

/// The store's id, every record, and what follows them; `None` if the header is refused.
fn read_all(vfs: &Arc<dyn Vfs>, length: usize) -> Option<(u64, Records, LogEnd)> {
    let mut records = Records::new();
    let (mut end, mut payloads) = (0, 0);
    let read = read_log(vfs, DIR.as_ref(), NUMBER, |seq, offset, payload| {
        assert!(offset >= end, "a record at {offset}, within one that ends behind {end}");
        end = offset + payload.len() as u64;
        payloads += payload.len();
        assert!(payloads < length, "more in the records than in the file");
        records.push((seq, payload));
    });
    if let Err(error @ Error::Unsupported { .. }) = &read {
        assert_names_a_file(error);
        return None;
    }
    let (store, last) = read.expect("a file in memory")?;
    if let LogEnd::Damage { offset } = last {
        assert!(end <= offset && offset < length as u64, "damage at {offset}");
    }
    Some((store, records, last))
}

/// The records after a round trip through a new log.
fn rewritten(records: &Records) -> Records {
    let vfs = mounted(SimDisk::default());
    let mut log = LogWriter::create(&vfs, DIR.as_ref(), NUMBER, 7).expect("a file in memory");
    log.append(records).expect("a file in memory");
    log.finish(9, 0).expect("a file in memory");
    let (store, records, last) = read_all(&vfs, usize::MAX).expect("of this version");
    assert_eq!((store, last), (7, LogEnd::Closed { next: 9 }));
    records
}
