//! Log files, as write-ahead logs.

use std::path::Path;

use super::{DIR, assert_names_a_file, disk_with, mend, mounted};
use crate::names::FileName;
use crate::vfs::SimDisk;
use crate::wal::{Item, LogKind, LogReader, LogWriter, replay};

/// The number of the log that the bytes are taken for.
pub(super) const NUMBER: u64 = 4;

/// Takes bytes for a write-ahead log.
///
/// # Panics
/// If records do not lie one behind the other in the file; if written again and read again they are
/// not the same; if a replay does not get the same ones.
pub fn wal(bytes: &[u8]) -> bool {
    let mut mended = bytes.to_vec();
    mend::log(&mut mended, NUMBER);
    let accepted = as_log(bytes);
    as_log(&mended) || accepted
}

type Records = Vec<(u64, Vec<u8>)>;

fn as_log(bytes: &[u8]) -> bool {
    let (dir, name) = (Path::new(DIR), FileName::Log(NUMBER));
    let vfs = disk_with(&name.to_string(), bytes);
    let mut reader = LogReader::open(vfs.as_ref(), &name.path(dir), LogKind::Wal, NUMBER)
        .expect("a file in memory");
    let store = match reader.header(LogKind::Wal) {
        Ok(Ok(store)) => store,
        Ok(Err(_)) => return false,
        Err(error) => {
            assert_names_a_file(&error);
            return false;
        }
    };
    let (records, _) = read_all(&mut reader, bytes.len());

    // A replay of this log alone gets its records up to the first that has not the next number.
    let first = records.first().map_or(1, |(seq, _)| *seq);
    let mut replayed = 0;
    let result =
        replay(vfs.as_ref(), dir, store, &[NUMBER], NUMBER, first, |_, _, seq, payload| {
            assert_eq!((seq, payload), (records[replayed].0, records[replayed].1.as_slice()));
            replayed += 1;
            Ok(u64::from(seq < u64::MAX))
        });
    match result {
        Ok(replay) => assert!(replay.lost.is_some() || replayed == records.len()),
        Err(error) => assert_names_a_file(&error),
    }

    assert_eq!(rewritten(&records), records);
    !records.is_empty()
}

/// Every record, and what comes behind them.
fn read_all(reader: &mut LogReader, length: usize) -> (Records, Item) {
    let mut records = Records::new();
    let (mut end, mut payloads) = (0, 0);
    loop {
        match reader.next().expect("a file in memory") {
            Item::Record { seq, offset, payload } => {
                assert!(offset >= end, "a record at {offset}, within one that ends behind {end}");
                end = offset + payload.len() as u64;
                payloads += payload.len();
                assert!(payloads < length, "more in the records than in the file");
                records.push((seq, payload));
            }
            last => {
                if let Item::Damage { offset, .. } = last {
                    assert!(end <= offset && offset < length as u64, "damage at {offset}");
                }
                return (records, last);
            }
        }
    }
}

/// The records after they were written to a new log.
fn rewritten(records: &Records) -> Records {
    let vfs = mounted(SimDisk::default());
    let path = FileName::Log(NUMBER).path(DIR.as_ref());
    let mut log = LogWriter::create(vfs.as_ref(), &path, LogKind::Wal, NUMBER, 7, true)
        .expect("a file in memory");
    log.append(records.iter().map(|(seq, payload)| (*seq, payload.as_slice())))
        .expect("a file in memory");
    log.finish(9, 0).expect("a file in memory");
    let length = log.length() as usize;
    let mut reader =
        LogReader::open(vfs.as_ref(), &path, LogKind::Wal, NUMBER).expect("a file in memory");
    assert_eq!(reader.header(LogKind::Wal).expect("of this version"), Ok(7));
    let (records, last) = read_all(&mut reader, length);
    assert_eq!(last, Item::End { next: 9 });
    records
}
