//! What the corpus begins with: the files of the small store, and a few made by hand.
//!
//! ```text
//! cargo test --lib fuzzing::seeds -- --ignored
//! ```

use std::path::Path;
use std::sync::Arc;

use super::replay::corpus_dir;
use super::store::{fixture, options};
use super::{DIR, log, manifest, mounted, table};
use crate::filter::{Bloom, FilterSize, Hashing, ScalableBloom, ShardedBloom, StaticFilter};
use crate::names::FileName;
use crate::version::{Edit, Manifest};
use crate::vfs::{SimDisk, SimVfs, Vfs};
use crate::wal::{LogKind, LogWriter};
use crate::{Batch, FilterKind, FilterPolicy};

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
    let parts = |batch: Batch| batch.into_parts().expect("not too long").0;
    keep("batch", "small", parts(small));
    keep("batch", "long-lengths", parts(large));
    keep("batch", "empty", []);
    keep("batch", "overlong-varints", [1, 0x83, 0x80, 0, b'k', b'e', b'y', 0x81, 0, b'v']);
}

/// A log of these records, closed if it names the one after it.
fn log_of(records: &[&[u8]], next: Option<u64>) -> Vec<u8> {
    let vfs = mounted(SimDisk::default());
    let path = FileName::Log(log::NUMBER).path(DIR.as_ref());
    let mut log = LogWriter::create(vfs.as_ref(), &path, LogKind::Wal, log::NUMBER, 7, true)
        .expect("a file in memory");
    for (record, seq) in records.iter().zip(1..) {
        log.append([(seq, *record)]).expect("a file in memory");
        log.sync().expect("a file in memory");
    }
    if let Some(next) = next {
        log.finish(next, 9).expect("a file in memory");
    }
    read(vfs.as_ref(), &path)
}

fn read(vfs: &dyn Vfs, path: &Path) -> Vec<u8> {
    let file = vfs.open(path, crate::vfs::FileKind::Wal).expect("it was written");
    let mut bytes = vec![0; file.length().expect("in memory") as usize];
    file.read_exact_at(&mut bytes, 0).expect("in memory");
    bytes
}

fn logs() {
    keep("wal", "empty", log_of(&[], None));
    keep("wal", "records", log_of(&[b"one", b"", b"three"], None));
    keep("wal", "closed", log_of(&[b"one", b"two"], Some(6)));
    // The second record begins in the first block and ends in the second.
    let long = log_of(&[&vec![b'x'; 32_500], &[b'y'; 500], b"z"], Some(0));
    keep("wal", "two-blocks", &long);
    let mut zeros = log_of(&[b"one"], None);
    zeros.resize(zeros.len() + 100, 0);
    keep("wal", "zeros-behind", zeros);
}

fn manifests() {
    let vfs = SimVfs::on(fixture().disk.clone());
    for file in &fixture().files {
        let name = file.file_name().and_then(|name| FileName::parse(name.to_str()?));
        match name {
            Some(FileName::Current) => keep("manifest", "current", fixture().read(file)),
            Some(FileName::Manifest(number)) => {
                let (set, store, _) =
                    Manifest::read(&vfs, DIR.as_ref(), number).expect("a sound manifest");
                let vfs = mounted(SimDisk::default());
                let number = manifest::NUMBER;
                let mut manifest =
                    Manifest::create(vfs.as_ref(), DIR.as_ref(), number, store, set.clone())
                        .expect("a file in memory");
                let path = FileName::Manifest(number).path(DIR.as_ref());
                keep("manifest", "one-edit", read(vfs.as_ref(), &path));
                let whole = set.as_edit();
                keep("manifest", "edit", whole.encode());
                let removed = whole.added.iter().take(2).map(|(level, meta)| (*level, meta.id));
                let filters = whole.added.iter().skip(2).take(1).map(|(_, meta)| {
                    let mut filter = meta.filter;
                    filter.generation += 1;
                    (meta.id, filter)
                });
                let edit = Edit {
                    removed: removed.collect(),
                    filters: filters.collect(),
                    flushed_seq: Some(set.flushed_seq + 1),
                    ..Edit::default()
                };
                keep("manifest", "edit-removing", edit.encode());
                manifest.record(&edit).expect("a sound edit");
                let mut moved = Edit::default();
                let (level, meta) = &whole.added[3];
                moved.removed.push((*level, meta.id));
                moved.added.push((level + 2, meta.clone()));
                manifest.record(&moved).expect("a sound edit");
                keep("manifest", "three-edits", read(vfs.as_ref(), &path));
            }
            _ => {}
        }
    }
}

/// The bytes of a table and those of its filter block, from a store with this policy.
fn table_of(policy: FilterPolicy, fill: impl FnOnce(&crate::Db)) -> (Vec<u8>, Vec<u8>) {
    let vfs = SimVfs::new();
    let db = options().filter(policy).vfs(Arc::new(vfs.clone())).open(DIR).expect("a new store");
    fill(&db);
    db.flush().expect("a disk in memory");
    let id = db.tables()[0].id;
    assert_eq!(id, table::NUMBER, "the first table of a store");
    let bytes = read(&vfs, &FileName::Table(id).path(DIR.as_ref()));
    let footer = bytes.len() - 128;
    let field = |at: usize| {
        u64::from_le_bytes(bytes[footer + at..][..8].try_into().expect("eight bytes")) as usize
    };
    let filter = bytes[field(0)..field(0) + field(8)].to_vec();
    (bytes, filter)
}

fn tables_and_their_filters() {
    let some = |db: &crate::Db| {
        for number in 0..40 {
            let key = format!("row{:02}/{number:02}", number / 4);
            if number % 7 == 3 { db.delete(key) } else { db.put(key, format!("value {number}")) }
                .expect("a disk in memory");
        }
    };
    for (name, policy) in [
        ("bloom", FilterPolicy::classic()),
        ("blocked", FilterPolicy::blocked()),
        ("ribbon", FilterPolicy::bits_per_key(6.4)),
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
    // More than one restart point in a block, and the versions of one key across some of them.
    let (versions, _) = table_of(FilterPolicy::none(), |db| {
        let mut held = Vec::new();
        for number in 0..50_u8 {
            db.put([number / 20], [number]).expect("a disk in memory");
            held.push(db.snapshot().expect("open"));
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
    let mut bloom = Bloom::with_rate(40, 0.02).and_then(|b| b.hashed_by(hashing)).expect("small");
    bloom.extend(keys());
    keep("filter", "alone-bloom", bloom.to_bytes());
    let mut scalable =
        ScalableBloom::with_rate(8, 0.05).and_then(|b| b.hashed_by(hashing)).expect("small");
    scalable.extend(keys());
    keep("filter", "alone-scalable", scalable.to_bytes());
    let sharded = ShardedBloom::with_rate(2, 40, 0.05).and_then(|b| b.hashed_by(hashing));
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
}

/// Changes to the small store: the first byte says whether checksums are made right.
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
