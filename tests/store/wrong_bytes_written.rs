//! The disk writes a wrong bit and reports success. A later read or opening detects it: an error that names
//! a file, or a log whose end is dropped and reported. No answer is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use criba::vfs::{Fault, FaultRule, FaultVfs, Injected, Operation, SimVfs};
use criba::{Db, Error, FilterPolicy, Options};

use crate::common;

const DIR: &str = "/store";

/// One of this many bytes has a wrong bit, in a full sweep.
const STRIDE: u64 = 5;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(vfs: &FaultVfs) -> Options {
    common::options()
        .background_threads(0)
        .auto_compaction(false)
        .block_bytes(256)
        .max_open_files(1)
        .cache_bytes(0)
        .filter(FilterPolicy::ribbon()) // so that the first manifest is not replaced by one with its feature
        .seed(7)
        .vfs(Arc::new(vfs.clone()))
}

/// Writes every kind of file, reads it back in a compaction, and opens the store twice. The history has the
/// acknowledged writes, also after an error.
fn script(vfs: &FaultVfs, history: &mut Vec<Contents>) -> criba::Result<()> {
    let mut state = Contents::new();
    let mut put = |db: &Db, name: &str, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let key = format!("{name} {number:03}");
            let value = format!("the value of {key} in {name}");
            db.put(&key, &value)?;
            state.insert(key.into_bytes(), value.into_bytes());
            history.push(state.clone());
        }
        db.sync()
    };
    let db = options(vfs).open(DIR)?;
    put(&db, "first", 0..12)?;
    db.flush()?;
    db.rebuild_filters(&FilterPolicy::classic())?;
    put(&db, "second", 0..12)?;
    db.flush()?;
    db.compact()?;
    put(&db, "third", 0..12)?;
    db.flush()?;
    put(&db, "fourth", 0..4)?;
    drop(db); // not closed: what is in the log is replayed
    let db = options(vfs).open(DIR)?;
    put(&db, "fifth", 0..4)
}

#[derive(Debug, Default)]
struct Outcomes {
    flips: u64,
    /// A call of the script failed.
    failed: u64,
    refused: u64,
    /// The opening reported the lost end of a log.
    reported: u64,
    /// The opening succeeded, and some lookups failed.
    unreadable: u64,
    /// The wrong bytes are unused: the log is flushed, the table or filter was discarded.
    right: u64,
}

/// An error that names a file.
fn names_a_file(error: &Error, at: &str) {
    let named =
        matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. } | Error::Missing { .. });
    assert!(named, "{at}: {error:?}");
}

/// Runs the script with one wrong bit; `None` if it ended before that.
fn miswritten(skip: u64, byte: u64, outcomes: &mut Outcomes) -> Option<Injected> {
    let disk = SimVfs::new();
    let faults = FaultVfs::new(Arc::new(disk.clone()));
    let wrong = FaultRule::new(Fault::FlippedBit(byte * 8 + byte % 8));
    faults.add(wrong.operations([Operation::Append, Operation::Write]).skip(skip));
    let mut history = vec![Contents::new()];
    let done = script(&faults, &mut history);
    let injected = faults.injected().pop()?;
    let at = format!("write {skip}, byte {byte} of {injected:?}");
    outcomes.flips += 1;
    if let Err(error) = &done {
        names_a_file(error, &at);
        outcomes.failed += 1;
    }
    let whole = &history[history.len() - 1];
    let db = match options(&faults).open(DIR) {
        Ok(db) => db,
        Err(error) => {
            names_a_file(&error, &at);
            outcomes.refused += 1;
            return Some(injected);
        }
    };
    let recovery = db.recovery();
    let reported = recovery.lost_tail.is_some() || recovery.lost_edit.is_some();
    let mut unreadable = false;
    let mut found = Contents::new();
    for (key, value) in whole {
        match db.get(key) {
            Ok(Some(stored)) => {
                assert_eq!(stored.as_ref(), &value[..], "{at}: {key:?}");
                found.insert(key.clone(), value.clone());
            }
            Ok(None) => assert!(reported, "{at}: {key:?} is lost without a report"),
            Err(error) => {
                names_a_file(&error, &at);
                unreadable = true;
            }
        }
    }
    if unreadable {
        outcomes.unreadable += 1;
    } else if reported {
        assert!(history.contains(&found), "{at}: not what the store ever held");
        outcomes.reported += 1;
    } else {
        outcomes.right += 1;
    }
    Some(injected)
}

#[test]
fn what_is_miswritten_is_found_and_never_believed() {
    let stride = STRIDE * common::stride() as u64;
    let mut of_kind: BTreeMap<String, Outcomes> = BTreeMap::new();
    let mut unread = BTreeMap::from([("Manifest", 0), ("Current", 0)]);
    for skip in 0.. {
        let Some(first) = miswritten(skip, 0, &mut Outcomes::default()) else { break };
        let outcomes = of_kind.entry(format!("{:?}", first.kind)).or_default();
        for byte in (skip % stride..first.bytes).step_by(stride as usize) {
            miswritten(skip, byte, outcomes).expect("the same script");
            // Nothing but a repair and a verification needs the rest of a manifest's header.
            let is_rest = first.bytes == 4096 && (52..4096).contains(&byte);
            if let Some(unread) = unread.get_mut(&*format!("{:?}", first.kind)) {
                *unread += u64::from(is_rest);
            }
        }
    }
    for (kind, outcomes) in &of_kind {
        println!("{kind}: {outcomes:?}");
    }
    let [wal, table, filter] = ["Wal", "Table", "Filter"].map(|kind| &of_kind[kind]);
    assert!(wal.reported > 0 && wal.refused > 0, "the end of a log, and its middle");
    assert!(table.failed > 0 && table.unreadable > 0, "read back by a job, or by a lookup");
    assert!(filter.flips > 0 && filter.failed == filter.flips, "read back before it serves");
    for (kind, unread) in unread {
        let Outcomes { flips, refused, reported, right, .. } = of_kind[kind];
        assert!(flips > unread && refused + reported + unread == flips, "{kind}");
        assert_eq!(right, unread, "{kind}");
    }
}
