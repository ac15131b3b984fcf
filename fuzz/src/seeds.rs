//! Makes the corpus: the files of the small store, and a few made by hand.
//!
//! ```text
//! cargo test --test fuzz seeds -- --ignored
//! ```

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use criba::parsers::{LogWriter, Recorded, batch_bytes, read_current};
use criba::vfs::{FileKind, SimDisk, SimVfs, Vfs};
use criba::{Batch, Clock, Compression, Db, Error, Expiry, FilterKind, FilterPolicy, Options};
use criba_filter::{Bloom, FilterSize, Hashing, ScalableBloom, ShardedBloom, StaticFilter};

use crate::replay::corpus_dir;
use crate::store::{fixture, options};
use crate::{DIR, log, manifest, mounted, table};

fn keep(target: &str, name: &str, bytes: impl AsRef<[u8]>) {
    let dir = corpus_dir(target);
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join(name), bytes).expect("a file");
}

#[test]
#[ignore = "writes files of the corpus"]
fn make_seeds() {
    batches();
    logs();
    manifests();
    tables_and_their_filters();
    filters_alone();
    directories();
}

fn batches() {
    let mut small = Batch::new();
    small.put("key", "value").delete("gone").put("", "");
    let mut large = Batch::new();
    large.put([b'k'; 200], [b'v'; 400]).delete([b'k'; 130]);
    let bytes = |batch: Batch| batch_bytes(batch).expect("not too long");
    keep("batch", "small", bytes(small));
    keep("batch", "long-lengths", bytes(large));
    keep("batch", "expiring", expiring_batch());
    // Less than an expiry, and the time of what expires never.
    keep("batch", "short-expiry", [3, 1, b'k', 7, 1, 2, 3, 4, 5, 6, 7]);
    keep("batch", "never", [&[3, 1, b'k', 9][..], &[0xff; 8], b"v"].concat());
    keep("batch", "empty", []);
    keep("batch", "overlong-varints", [1, 0x83, 0x80, 0, b'k', b'e', b'y', 0x81, 0, b'v']);
}

/// In some hundred years.
fn expiry(number: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(5_000_000_000 + number)
}

fn expiring_batch() -> Vec<u8> {
    let mut batch = Batch::new();
    batch.put_expiring("key", "value", expiry(1)).put("other", "value");
    batch.put_expiring("", "", SystemTime::UNIX_EPOCH).delete("gone");
    batch_bytes(batch).expect("not too long")
}

/// A log of these records; closed if it names a next log.
fn log_of(records: &[&[u8]], next: Option<u64>) -> Vec<u8> {
    let vfs = mounted(SimDisk::default());
    let mut log = LogWriter::create(&vfs, DIR.as_ref(), log::NUMBER, 7).expect("a file in memory");
    for (record, seq) in records.iter().zip(1..) {
        log.append(&[(seq, record.to_vec())]).expect("a file in memory");
        log.sync().expect("a file in memory");
    }
    if let Some(next) = next {
        log.finish(next, 9).expect("a file in memory");
    }
    read(vfs.as_ref(), &log::name(log::NUMBER))
}

fn read(vfs: &dyn Vfs, name: &str) -> Vec<u8> {
    let dir = vfs.open_dir(DIR.as_ref()).expect("a directory in memory");
    let file = dir.open(name.as_ref(), FileKind::Wal).expect("it was written");
    let mut bytes = vec![0; file.length().expect("in memory") as usize];
    file.read_exact_at(&mut bytes, 0).expect("in memory");
    bytes
}

fn logs() {
    keep("wal", "empty", log_of(&[], None));
    keep("wal", "records", log_of(&[b"one", b"", b"three"], None));
    keep("wal", "expiring", log_of(&[&expiring_batch(), b""], None));
    keep("wal", "closed", log_of(&[b"one", b"two"], Some(6)));
    // The second record begins in the first block and ends in the second.
    let long = log_of(&[&vec![b'x'; 32_500], &[b'y'; 500], b"z"], Some(0));
    keep("wal", "two-blocks", &long);
    let mut zeros = log_of(&[b"one"], None);
    zeros.resize(zeros.len() + 100, 0);
    keep("wal", "zeros-behind", zeros);
}

fn manifests() {
    let current = |vfs: &Arc<dyn Vfs>| {
        read_current(vfs, DIR.as_ref()).expect("a sound file").expect("a store")
    };
    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::on(fixture().disk.clone()));
    keep("manifest", "current", read(vfs.as_ref(), "CURRENT"));
    let (recorded, _) =
        Recorded::read(&vfs, DIR.as_ref(), current(&vfs)).expect("a sound manifest");
    let vfs = mounted(SimDisk::default());
    recorded.write(&vfs, DIR.as_ref(), manifest::NUMBER).expect("a file in memory");
    let whole = read(vfs.as_ref(), &manifest::name(manifest::NUMBER));
    keep("manifest", "edit", last_edit(&whole));
    keep("manifest", "one-edit", whole);

    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::new());
    let db = options().vfs(Arc::clone(&vfs)).open(DIR).expect("a new store");
    for value in ["old", "new"] {
        db.put("key", value).and_then(|()| db.flush()).expect("a disk in memory");
    }
    db.compact().expect("a disk in memory");
    assert_eq!(current(&vfs), manifest::NUMBER, "the first manifest of a store");
    let edits = || read(vfs.as_ref(), &manifest::name(manifest::NUMBER));
    keep("manifest", "edit-removing", last_edit(&edits()));
    db.rebuild_filters(&FilterPolicy::classic()).expect("a disk in memory");
    keep("manifest", "edit-filter", last_edit(&edits()));
    keep("manifest", "edits", edits());
    ingest(&db);
    keep("manifest", "edit-ingested", last_edit(&edits()));

    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::new());
    let db = expiring_options().vfs(Arc::clone(&vfs)).open(DIR).expect("a new store");
    put_expiring(&db);
    db.flush().expect("a disk in memory");
    let edits = read(vfs.as_ref(), &manifest::name(current(&vfs)));
    keep("manifest", "edit-expiring", last_edit(&edits));
    assert_eq!(current(&vfs), manifest::NUMBER, "the first manifest of a store");
    keep("manifest", "edits-expiring", edits);

    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::new());
    let db = compressed_options().vfs(Arc::clone(&vfs)).open(DIR).expect("a new store");
    put_alike(&db);
    db.flush().expect("a disk in memory");
    let edits = read(vfs.as_ref(), &manifest::name(current(&vfs)));
    keep("manifest", "edit-compressed", last_edit(&edits));
    keep("manifest", "edits-compressed", edits);
}

fn compressed_options() -> Options {
    options().compression(Compression::Lz4)
}

/// Values that can be compressed, and one that cannot.
fn put_alike(db: &Db) {
    for number in 0..40_u8 {
        let key = format!("row{:02}/{number:02}", number / 4);
        let value = match number {
            20 => (0..=255_u8).map(|byte| byte.wrapping_mul(number + 1)).collect(),
            _ => format!("value {number} ").repeat(3).into_bytes(),
        };
        db.put(key, value).expect("a disk in memory");
    }
}

#[derive(Debug)]
struct StandingClock;

impl Clock for StandingClock {
    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// A store has expiring entries from its first manifest on if they expire by default.
fn expiring_options() -> Options {
    options().clock(Arc::new(StandingClock)).default_ttl(Duration::from_secs(60))
}

/// Some keys expire, at a few times.
fn put_expiring(db: &Db) {
    for number in 0..40 {
        let key = format!("row{:02}/{number:02}", number / 4);
        let value = format!("value {number}");
        match number % 4 {
            0 => db.delete(key),
            1 => db.put_with_expiry(key, value, Expiry::Never),
            _ => db.put_with_expiry(key, value, expiry(number % 7)),
        }
        .expect("a disk in memory");
    }
}

fn ingest(db: &Db) {
    let pairs = (0..40).map(|number| {
        Ok::<_, Error>((format!("row{:02}/{number:02}", number / 4), format!("value {number}")))
    });
    db.ingest(pairs).expect("a disk in memory");
}

/// The last record of a manifest of one block.
fn last_edit(manifest: &[u8]) -> &[u8] {
    let (mut edit, mut rest) = (&manifest[..0], &manifest[4096..]);
    while let [_, _, _, _, low, high, ..] = *rest
        && (low, high) != (0, 0)
    {
        let frame;
        (frame, rest) = rest.split_at(27 + usize::from(u16::from_le_bytes([low, high])));
        edit = &frame[27..];
    }
    edit
}

/// The bytes of a table and of its filter block, from a store with this policy.
fn table_of(policy: FilterPolicy, fill: impl FnOnce(&Db)) -> (Vec<u8>, Vec<u8>) {
    table_in(options().filter(policy), fill)
}

fn table_in(options: Options, fill: impl FnOnce(&Db)) -> (Vec<u8>, Vec<u8>) {
    let vfs = SimVfs::new();
    let db = options.vfs(Arc::new(vfs.clone())).open(DIR).expect("a new store");
    fill(&db);
    db.flush().expect("a disk in memory");
    let id = db.tables()[0].id;
    assert_eq!(id, table::NUMBER, "the first table of a store");
    let bytes = read(&vfs, &table::name(id));
    let footer = bytes.len() - 128;
    let field = |at: usize| {
        u64::from_le_bytes(bytes[footer + at..][..8].try_into().expect("eight bytes")) as usize
    };
    let filter = bytes[field(0)..field(0) + field(8)].to_vec();
    (bytes, filter)
}

fn tables_and_their_filters() {
    let some = |db: &Db| {
        for number in 0..40 {
            let key = format!("row{:02}/{number:02}", number / 4);
            if number % 7 == 3 { db.delete(key) } else { db.put(key, format!("value {number}")) }
                .expect("a disk in memory");
        }
    };
    for (name, policy) in [
        ("bloom", FilterPolicy::classic()),
        ("ribbon", FilterPolicy::ribbon().with_bits_per_key(6.4)),
        ("unfiltered", FilterPolicy::none()),
    ] {
        let (table, filter) = table_of(policy, some);
        keep("table", name, table);
        if !filter.is_empty() {
            keep("filter", &format!("block-{name}"), filter);
        }
    }
    let (one, _) = table_of(FilterPolicy::none(), |db| {
        db.put("", "").expect("a disk in memory");
    });
    keep("table", "one-entry", one);
    let (ingested, _) = table_of(FilterPolicy::classic(), |db| {
        // Takes the number before that of the first flushed table.
        let fails = db.ingest([Ok(("a", "value")), Err(Error::Conflict)]);
        assert!(matches!(fails, Err(Error::Conflict)));
        ingest(db);
    });
    keep("table", "ingested", ingested);
    let options = expiring_options().filter(FilterPolicy::none());
    let (expiring, _) = table_in(options, |db| {
        put_expiring(db);
        db.put_with_expiry("row05/20", "renewed", expiry(50)).expect("a disk in memory");
    });
    keep("table", "expiring", expiring);
    let (compressed, _) = table_in(compressed_options().filter(FilterPolicy::none()), put_alike);
    keep("table", "compressed", compressed);
    // More than one restart point in a block, and the versions of one key across some of them.
    let (versions, _) = table_of(FilterPolicy::none(), |db| {
        let mut held = Vec::new();
        for number in 0..50_u8 {
            db.put([number / 20], [number]).expect("a disk in memory");
            held.push(db.snapshot());
        }
        db.flush().expect("a disk in memory"); // while every version is wanted
    });
    keep("table", "versions", versions);
    // The first value is the bytes of an entry, and the second restart point is put there.
    let (mut forged, _) = table_of(FilterPolicy::none(), |db| {
        db.put("a", [0, 1, 0, 1, 1, b'A']).expect("a disk in memory");
        for number in b'a'..=b'y' {
            db.put([b'a', number], "").expect("a disk in memory");
        }
    });
    // The index follows the only block: trailer, number of restart points, the second of two.
    let footer = forged.len() - 128;
    let index = usize::from(u16::from_le_bytes([forged[footer + 16], forged[footer + 17]]));
    assert_eq!(forged[index - 5 - 4], 2, "two restart points");
    forged[index - 5 - 4 - 4] = 6;
    keep("table", "restart-in-value", forged);
}

fn filters_alone() {
    let hashing = Hashing::keyed([3; 16]);
    let keys = || (0..40_u32).map(u32::to_le_bytes);
    let mut bloom =
        Bloom::with_rate(40, 0.02).and_then(|b| b.with_hashing(hashing)).expect("small");
    bloom.extend(keys());
    keep("filter", "alone-bloom", bloom.to_bytes());
    let mut scalable =
        ScalableBloom::with_rate(8, 0.05).and_then(|b| b.with_hashing(hashing)).expect("small");
    scalable.extend(keys());
    keep("filter", "alone-scalable", scalable.to_bytes());
    let sharded = ShardedBloom::with_rate(2, 40, 0.05).and_then(|b| b.with_hashing(hashing));
    let sharded = sharded.expect("small");
    keys().for_each(|key| {
        sharded.insert(key);
    });
    keep("filter", "alone-sharded", sharded.to_bytes());
    for (name, kind) in [
        ("alone-static-bloom", FilterKind::Bloom),
        ("alone-static-blocked", FilterKind::Blocked),
        ("alone-static-ribbon", FilterKind::Ribbon),
    ] {
        let hashing = Hashing::murmurhash2();
        let filter = StaticFilter::build(kind, FilterSize::BitsPerKey(7.5), hashing, keys());
        keep("filter", name, filter.expect("small").to_bytes());
    }
    let (many, size) = ((0..800_u32).map(u32::to_le_bytes), FilterSize::BitsPerKey(3.3));
    let layered = StaticFilter::build(FilterKind::Ribbon, size, hashing, many);
    keep("filter", "alone-static-layers", layered.expect("small").to_bytes());
}

/// Changes to the small store; the first byte says whether checksums are corrected.
fn directories() {
    keep("open", "unchanged", [0]);
    for mended in [0, 1] {
        let keep = |name: &str, changes: &[u8]| {
            let name = format!("{name}{}", if mended == 1 { "-mended" } else { "" });
            keep("open", &name, [&[mended], changes].concat());
        };
        for (number, file) in (0_u8..).zip(&fixture().files) {
            let name = file.file_name().expect("a name").to_string_lossy();
            keep(&format!("bit-{name}"), &[number, 0, 20, 0, 1]);
            keep(&format!("end-{name}"), &[number, 1, 0xf0, 0xff]);
        }
        keep("gone", &[1, 2]);
        keep("swapped", &[0, 3, 1, 2, 3, 0]);
        keep("field", &[0, 4, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        keep("inserted", &[3, 5, 100, 0, 3, 1, 2, 3]);
        keep("taken-out", &[4, 6, 0x10, 0, 7]);
        keep("strangers", &[0, 7, 0, 200, 1, 7, 1, 200, 2, 7, 3, 40]);
    }
}
