//! A line for each form in which a program may call the library; each must compile, and give these values.

use std::cmp::Ordering;
use std::io::ErrorKind;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use criba::vfs::{CountingVfs, FileKind, Operation, SimVfs, Vfs};
use criba::{
    Batch, Db, Durability, Error, Event, FilterPolicy, Io, KeyPrefix, KeyRange, MAX_KEY_BYTES,
    Membership, Options, Reader, Result, Value, verify_with,
};

fn store() -> Db {
    store_on(SimVfs::new())
}

fn store_on(disk: SimVfs) -> Db {
    let db = Options::new().vfs(disk).open("/store").unwrap();
    db.write(Batch::from_iter(["a", "b", "c", "d"].map(|key| (key, key.to_uppercase())))).unwrap();
    db
}

struct Letter(u8);

impl KeyRange for Letter {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let key = std::slice::from_ref(&self.0);
        (Bound::Included(key), Bound::Included(key))
    }
}

/// The keys, run together.
fn joined(range: criba::Range) -> String {
    range.map(|item| String::from_utf8(item.unwrap().0.into()).unwrap()).collect()
}

#[test]
fn ranges_need_no_type() {
    let db = store();
    let (text, string, array) = ("b", String::from("b"), *b"b");
    let (slice, vec) = (&array[..], array.to_vec());
    let value = Value::from("b");
    assert_eq!(joined(db.range(..)), "abcd");
    // From a key, borrowed and owned.
    assert_eq!(joined(db.range(text..)), "bcd");
    assert_eq!(joined(db.range(&text..)), "bcd");
    assert_eq!(joined(db.range(slice..)), "bcd");
    assert_eq!(joined(db.range(b"b"..)), "bcd");
    assert_eq!(joined(db.range(&string..)), "bcd");
    assert_eq!(joined(db.range(&vec..)), "bcd");
    assert_eq!(joined(db.range(&array..)), "bcd");
    assert_eq!(joined(db.range(&value..)), "bcd");
    assert_eq!(joined(db.range(string.clone()..)), "bcd");
    assert_eq!(joined(db.range(vec.clone()..)), "bcd");
    assert_eq!(joined(db.range(array..)), "bcd");
    // Every form.
    assert_eq!(joined(db.range("b".."d")), "bc");
    assert_eq!(joined(db.range("b"..="d")), "bcd");
    assert_eq!(joined(db.range(..b"c")), "ab");
    assert_eq!(joined(db.range(..=&string)), "ab");
    assert_eq!(joined(db.range(&("b".."d"))), "bc");
    assert_eq!(joined(db.range((Bound::Excluded(slice), Bound::Included(&b"c"[..])))), "c");
    assert_eq!(joined(db.range((Bound::Excluded(vec), Bound::Unbounded))), "cd");
    // Backward ones are empty.
    assert_eq!(joined(db.range("d".."b")), "");
    // Own types.
    assert_eq!(joined(db.range(Letter(b'c'))), "c");
    assert_eq!(joined(db.snapshot().range("b"..)), "bcd");
}

/// Reads the keys a to d, whose values are capital letters.
fn check_reads(reader: &dyn Reader) -> Result<()> {
    assert_eq!(reader.get(b"a")?.unwrap(), "A");
    assert_eq!(reader.get_many(&[b"a", b"x"])?, [Some(Value::from("A")), None]);
    assert_eq!((reader.contains(b"a")?, reader.contains(b"x")?), (true, false));
    assert_eq!(reader.explain(b"a")?.value.unwrap(), "A");
    let may = |key: &str| reader.may_contain(key.as_bytes());
    assert_eq!((may("a")?, may("x")?), (Membership::Maybe, Membership::No));
    assert!(reader.approximate_len(&..)? >= 4);
    assert_eq!(joined(reader.range(&("b"..="c"))), "bc");
    assert_eq!(joined(reader.range(&Letter(b'c'))), "c");
    assert_eq!(joined(reader.range(&KeyPrefix::new("d"))), "d");
    assert_eq!(joined(reader.prefix(b"d")), "d");
    assert_eq!(joined(reader.iter()), "abcd");
    let keys = |keys: &mut dyn Iterator<Item = Result<Value>>| keys.collect::<Result<Vec<_>>>();
    assert_eq!(keys(&mut reader.keys())?, ["a", "b", "c", "d"]);
    assert_eq!(keys(&mut reader.keys().rev())?, ["d", "c", "b", "a"]);
    assert_eq!(reader.first()?.unwrap(), (Value::from("a"), Value::from("A")));
    assert_eq!(reader.last()?.unwrap(), (Value::from("d"), Value::from("D")));
    assert_eq!(joined(reader.snapshot().iter()), "abcd");
    Ok(())
}

#[test]
fn code_for_any_reader_reads_each_kind_of_store() -> Result<()> {
    let disk = SimVfs::new();
    let db = store_on(disk.clone());
    let read_only = Options::new().vfs(disk).open_read_only("/store")?;
    let snapshot = db.snapshot();
    check_reads(&db)?;
    db.put_with("0", "new first", Durability::Synced)?;
    db.put_with("z", "new last", Durability::Buffered)?;
    db.delete_with("b", Durability::Synced)?;
    let readers: [&dyn Reader; 4] =
        [&snapshot, &snapshot.clone(), &read_only, &read_only.snapshot()];
    for reader in readers {
        check_reads(reader)?;
    }
    // The same without the trait.
    assert_eq!((db.first()?.unwrap().0, db.last()?.unwrap().0), ("0".into(), "z".into()));
    assert_eq!(
        (snapshot.first()?.unwrap().1, snapshot.last()?.unwrap().1),
        ("A".into(), "D".into())
    );
    assert_eq!(
        (db.may_contain("b")?, snapshot.may_contain("b")?),
        (Membership::No, Membership::Maybe)
    );
    assert_eq!(
        (read_only.may_contain("x")?, read_only.approximate_len("b".."d")?),
        (Membership::No, 2)
    );
    assert_eq!((joined(db.iter()), joined(snapshot.iter())), ("0acdz".into(), "abcd".into()));
    assert_eq!((db.keys().count(), snapshot.keys().count()), (5, 4));
    for item in &snapshot {
        assert!(item.is_ok());
    }
    db.write(db.keys().fold(&mut Batch::new(), |batch, key| batch.delete(key.unwrap())))?;
    assert_eq!((db.first()?, db.last()?, db.keys().next().is_none()), (None, None, true));
    let other = db.clone();
    db.close()?;
    assert!(matches!(other.first(), Err(Error::Closed)));
    assert!(matches!(other.keys().next(), Some(Err(Error::Closed))));
    check_reads(&snapshot)
}

/// While one clone of a snapshot lives, compactions keep what it sees.
#[test]
fn the_last_clone_of_a_snapshot_releases_its_entries() -> Result<()> {
    let db = store();
    let entries = || db.tables().iter().map(|table| table.entries).sum::<u64>();
    let snapshot = db.snapshot();
    db.put("a", "new")?;
    let clone = snapshot.clone();
    drop(snapshot);
    db.compact()?;
    assert_eq!((clone.get("a")?.unwrap(), entries()), ("A".into(), 5));
    let clones = [clone.snapshot(), clone];
    db.compact()?;
    assert!(clones.iter().all(|clone| clone.get("a").unwrap().unwrap() == "A"));
    drop(clones);
    db.compact()?;
    assert_eq!(entries(), 4);
    Ok(())
}

#[test]
fn batches_are_chained_collected_and_extended() -> Result<()> {
    let db = store();
    db.write(Batch::new().put("a", "1").delete("b"))?;
    db.write_with(Batch::new().put([0xff], vec![1, 2]), Durability::Synced)?;
    assert_eq!(
        (db.get("a")?.unwrap(), db.get("b")?, db.last()?.unwrap().1),
        ("1".into(), None, vec![1, 2].into())
    );

    let mut batch: Batch = (0..3_u8).map(|i| ([b'k', i], vec![i; 100])).collect();
    batch.extend(vec![("m", "1"), ("n", "2")]);
    batch.extend(&std::collections::BTreeMap::from([("o", "3")]));
    for key in ["c", "d"] {
        batch.delete(key);
    }
    assert_eq!(batch.len(), 8);
    // Each entry has its kind and lengths besides: three bytes, for a deletion two.
    assert_eq!(batch.bytes(), 3 * (2 + 100 + 3) + 3 * (1 + 1 + 3) + 2 * (1 + 2));
    db.write(&mut batch)?; // leaves it empty, to be filled again
    assert_eq!((batch.len(), batch.bytes(), batch.is_empty()), (0, 0, true));
    let keys = db.keys().collect::<Result<Vec<_>>>()?;
    assert_eq!(keys, [&b"a"[..], b"k\0", b"k\x01", b"k\x02", b"m", b"n", b"o", b"\xff"]);
    assert_eq!(db.get("o")?.unwrap(), "3");

    let kept = Batch::from(Batch::new().put("p", "4"));
    assert_eq!(kept.clone().len(), 1);
    db.write(kept)
}

#[test]
fn a_refused_change_is_an_error_of_the_write() -> Result<()> {
    let db = store();
    let long = vec![7; MAX_KEY_BYTES + 1];
    let mut batch = Batch::from_iter([(&b"fine"[..], ""), (&long, "")]);
    assert_eq!((batch.len(), batch.bytes()), (2, 4 + 3));
    let too_long = |result| matches!(result, Err(Error::TooLong { what: "key", .. }));
    assert!(too_long(db.write(batch.clone())));
    assert!(too_long(db.write(&mut batch)));
    assert!(too_long(db.write(Batch::new().put("fine", "").delete(&long))));
    assert!(too_long(db.put_with(&long, "", Durability::Synced)));
    assert!(too_long(db.delete_with(&long, Durability::Synced)));
    assert_eq!(db.get("fine")?, None);
    db.put("fine", "")
}

fn are_ordered<A, B>(less: &A, more: &B)
where
    A: PartialOrd<B> + ?Sized,
    B: PartialOrd<A> + ?Sized,
{
    let orders = (less.partial_cmp(more), more.partial_cmp(less));
    assert_eq!(orders, (Some(Ordering::Less), Some(Ordering::Greater)));
}

#[test]
fn values_convert_and_compare_both_ways() {
    let value = Value::from("ab");
    assert_eq!(value, "ab");
    assert_eq!("ab", value);
    assert_eq!(value, *"ab");
    assert_eq!(*"ab", value);
    assert_eq!(value, b"ab");
    assert_eq!(b"ab", value);
    assert_eq!(value, *b"ab");
    assert_eq!(*b"ab", value);
    assert_eq!(value, b"ab"[..]);
    assert_eq!(b"ab"[..], value);
    assert_eq!(value, &b"ab"[..]);
    assert_eq!(&b"ab"[..], value);
    assert_eq!(value, b"ab".to_vec());
    assert_eq!(b"ab".to_vec(), value);
    assert_eq!(value, String::from("ab"));
    assert_eq!(String::from("ab"), value);
    assert_eq!(value, Bytes::from("ab"));
    assert_eq!(Bytes::from("ab"), value);
    assert_eq!(value, value.clone());
    assert_ne!(value, "a");
    assert_ne!(*b"abc", value);
    are_ordered(&value, "b");
    are_ordered(&value, &"b");
    are_ordered(&value, &b"b"[..]);
    are_ordered(&value, &&b"b"[..]);
    are_ordered(&value, b"b");
    are_ordered(&value, &b"ab\0");
    are_ordered(&value, &b"b".to_vec());
    are_ordered(&value, &String::from("b"));
    are_ordered(&value, &Bytes::from("b"));
    are_ordered("a", &value);
    assert_eq!(value.clone().max(Value::from("b")), "b");

    assert_eq!(Value::from(b"ab".to_vec()), value);
    assert_eq!(Value::from(&b"ab"[..]), value);
    let bytes = Bytes::from_static(b"ab");
    assert_eq!(Value::from(bytes.clone()), value);
    assert_eq!(Bytes::from(Value::from(bytes.clone())).as_ptr(), bytes.as_ptr(), "not a copy");
    assert_eq!(Vec::from(value.clone()), b"ab");
    assert_eq!(&value[1..], b"b");
}

#[test]
fn errors_are_errors_of_the_standard_library() -> std::io::Result<()> {
    let disk = SimVfs::new();
    let open = || Options::new().vfs(disk.clone());
    let kind = |error: Error| {
        let text = error.to_string();
        let error = std::io::Error::from(error);
        assert_eq!(error.get_ref().unwrap().downcast_ref::<Error>().unwrap().to_string(), text);
        error.kind()
    };
    let not_a_store = open().create_if_missing(false).open("/store").unwrap_err();
    assert_eq!(kind(not_a_store), ErrorKind::InvalidData);
    assert_eq!(kind(open().open("").unwrap_err()), ErrorKind::InvalidInput);
    assert_eq!(kind(open().block_bytes(1).open("/store").unwrap_err()), ErrorKind::InvalidInput);
    let db = open().open("/store")?;
    assert_eq!(kind(open().open("/store").unwrap_err()), ErrorKind::WouldBlock);
    let too_long = db.put(vec![7; MAX_KEY_BYTES + 1], "").unwrap_err();
    assert_eq!(kind(too_long), ErrorKind::InvalidInput);
    assert_eq!(kind(db.checkpoint("/store").unwrap_err()), ErrorKind::InvalidInput);
    db.checkpoint("/copy")?;
    assert_eq!(kind(db.checkpoint("/copy").unwrap_err()), ErrorKind::AlreadyExists);
    db.flush()?;
    db.put("a", "1")?;
    db.flush()?;
    let other = db.clone();
    db.close()?;
    assert_eq!(kind(other.flush().unwrap_err()), ErrorKind::Other);
    let dir = disk.open_dir("/store".as_ref())?;
    for name in dir.list()?.iter().filter(|name| name.to_string_lossy().ends_with(".sst")) {
        dir.remove(name, FileKind::Table)?;
    }
    assert_eq!(kind(open().open("/store").unwrap_err()), ErrorKind::NotFound);
    Ok(())
}

#[test]
fn callbacks_are_closures_and_file_layers_are_values() -> Result<()> {
    let flushes = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&flushes);
    let disk = SimVfs::new();
    let options = Options::new().background_threads(0).on_event(move |event| {
        if matches!(event, Event::FlushEnded { .. }) {
            counter.fetch_add(1, Relaxed);
        }
    });
    let db = options.vfs(disk.clone()).open("/store")?;
    db.put("a", "1")?;
    db.flush()?;
    assert_eq!(flushes.load(Relaxed), 1);
    db.close()?;

    // The same layer behind pointers.
    let shared: Arc<dyn Vfs> = Arc::new(disk.clone());
    let counting = CountingVfs::new(Arc::clone(&shared));
    let open = [
        Options::new().vfs(Arc::new(disk.clone())),
        Options::new().vfs(Arc::clone(&shared)),
        Options::new().vfs(Arc::new(shared)),
        Options::new().vfs(counting.clone()),
    ];
    for options in open {
        let db = options.open("/store")?;
        assert_eq!(db.get("a")?.unwrap(), "1");
        db.close()?;
    }
    assert!(counting.counts().of(FileKind::Table, Operation::Read).calls > 0);
    assert!(Arc::new(Arc::new(disk)).is_simulated(), "a defaulted method is forwarded");
    Ok(())
}

/// The greatest difference between the estimate and the count, over ranges of all lengths.
fn furthest_off(db: &Db, keys: u32) -> u32 {
    let key = |number: u32| number.to_be_bytes();
    let ends = || (0..=keys).step_by(keys as usize / 23);
    let ranges = ends().flat_map(|from| ends().map(move |to| (from, to)));
    let off = ranges.map(|(from, to)| {
        let estimate = db.approximate_len(key(from)..key(to)).unwrap();
        u64::from(to.saturating_sub(from)).abs_diff(estimate) as u32
    });
    off.max().unwrap()
}

#[test]
fn the_length_of_a_range_is_estimated_without_a_read() -> Result<()> {
    let options = Options::new().background_threads(0).block_bytes(1024).cache_bytes(0);
    let db = options.vfs(SimVfs::new()).open("/store")?;
    assert_eq!(db.approximate_len(..)?, 0);
    let keys = 20_000_u32;
    // In another order than that of the keys: ascending ones fill their leaves.
    let shuffled = (0..keys).map(|i| i * 7919 % keys);
    for number in shuffled.clone().take(100) {
        db.put(number.to_be_bytes(), [7; 20])?;
    }
    let mut first: Vec<_> = shuffled.clone().take(100).collect();
    first.sort_unstable();
    for (rank, number) in first.iter().enumerate() {
        // One leaf: exact.
        let key = number.to_be_bytes();
        assert_eq!(db.approximate_len(..key)?, rank as u64);
        assert_eq!(db.approximate_len(..=key)?, rank as u64 + 1);
        assert_eq!(db.approximate_len((Bound::Excluded(key), Bound::Unbounded))?, 99 - rank as u64);
    }
    for number in shuffled.skip(100) {
        db.put(number.to_be_bytes(), [7; 20])?;
    }
    assert_eq!(db.approximate_len(..)?, u64::from(keys));
    let in_memory = furthest_off(&db, keys);

    db.compact()?;
    let before = db.stats();
    let in_tables = furthest_off(&db, keys);
    println!("of {keys} keys: {in_memory} off in the memtable, {in_tables} in a table");
    assert!(in_memory < keys / 50 && in_tables < 80, "a block has some 40 entries");
    assert_eq!(db.approximate_len(..)?, u64::from(keys));
    assert_eq!(db.stats(), before, "nothing is read or counted");

    // Overwritten and deleted keys count until they are merged.
    for number in 0..1000_u32 {
        db.put(number.to_be_bytes(), [8; 20])?;
        db.delete((1000 + number).to_be_bytes())?;
    }
    assert_eq!(db.approximate_len(..)?, u64::from(keys) + 2000);
    db.flush()?;
    assert_eq!(db.approximate_len(..)?, u64::from(keys) + 2000);
    db.compact()?;
    assert_eq!(db.approximate_len(..)?, u64::from(keys) - 1000);
    let closed = db.clone();
    db.close()?;
    assert!(matches!(closed.approximate_len(..), Err(Error::Closed)));
    Ok(())
}

#[test]
fn reports_are_printed_in_a_few_lines() -> Result<()> {
    let disk = SimVfs::new();
    let options = || Options::new().background_threads(0).filter(FilterPolicy::bloom()).seed(1);
    let db = options().vfs(disk.clone()).open("/store")?;
    db.write((0..100_u8).map(|i| ([i], "value")).collect::<Batch>())?;
    db.flush()?;
    db.put("x", "in the log")?;
    for key in ["x", "\x07", "absent"] {
        db.get(key)?;
    }
    assert_eq!(db.iter().count(), 101);
    let shown = db.stats().to_string();
    let io = |Io { calls, bytes, .. }: Io| format!("{calls} ({bytes} bytes)");
    let stats = db.stats();
    assert_eq!(
        shown.lines().collect::<Vec<_>>(),
        [
            "lookups: 3, 2 found, 1 absent, 0 failed; 1 answered by memtables".into(),
            "at tables: 1 reads avoided by filters, 0 false positives, 0 probes without a filter"
                .into(),
            format!(
                "blocks for lookups: 1 disk reads of {} bytes, 0 from the cache",
                stats.total().disk_read_bytes
            ),
            "prefix scans: 0 tables skipped, 0 read, 0 of them in vain".into(),
            format!(
                "other reads: scans 0 (0 bytes), compactions 0 (0 bytes), filter rebuilds 0 (0 bytes), opening {}; scans passed 0 hidden entries",
                io(stats.open_reads)
            ),
            format!(
                "writes: tables {}, filters 0 (0 bytes), logs {}",
                io(stats.table_writes),
                io(stats.wal_writes)
            ),
            "background: 1 flushes, 0 compactions, 0 tables moved, 0 filters rebuilt, 0 tables found damaged, 0 attempts failed".into(),
            "written: 101 values, 0 tombstones; conditions: 0 met, 0 failed, 0 conflicts".into(),
            format!(
                "waits: 0 syncs of 0.000 s, 0 stalls of 0.000 s, 0 slowdowns of 0.000 s; work: flushes \
                 {:.3} s, compactions 0.000 s",
                stats.flush_work.nanos as f64 / 1e9
            ),
        ]
    );
    let advice = db.advise();
    assert!(advice.recommended().is_none() && advice.best(2).is_some());
    db.close()?;

    let disk = disk.disk();
    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::on(disk));
    let found = verify_with("/store", &vfs, |_, _| {})?;
    assert_eq!(
        found.to_string(),
        "verified: 1 tables with 1 blocks and 100 entries, 1 logs with 1 changes\n\
         filters: 1, probed with 100 keys and 0 prefixes, 0 denied\n\
         sound"
    );
    let db = options().vfs(Arc::clone(&vfs)).open("/store")?;
    let shown = db.recovery().to_string();
    assert_eq!(shown, "logs: 1 read, 1 changes replayed; 2 files removed");
    db.close()?;

    let dir = vfs.open_dir("/store".as_ref()).unwrap();
    let names = dir.list().unwrap();
    for name in names.iter().filter(|name| name.to_string_lossy().ends_with(".sst")) {
        dir.remove(name, FileKind::Table).unwrap();
    }
    dir.create("other".as_ref(), FileKind::Table, 0o600).unwrap();
    let shown = verify_with("/store", &vfs, |_, _| {})?.to_string();
    assert!(shown.starts_with("note: /store/other: not a file of the store\ndefect: /"), "{shown}");
    assert!(shown.ends_with("\ndefects: 2"), "{shown}");
    Ok(())
}
