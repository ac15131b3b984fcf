//! Objects with hostile bytes.

use std::ffi::OsStr;
use std::sync::Arc;

use criba::TableLayout;
use criba::vfs::{FileKind, RealVfs, Vfs};
use criba_object::object_store::ObjectStoreExt;
use criba_object::object_store::memory::InMemory;
use criba_object::{open, open_reader};

use crate::bucket::{block_on, key, listed, options, store};

/// A manifest of the greatest number has no next one.
#[test]
fn hostile_numbers_do_not_panic() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), dir.path().join("a"), options()).unwrap();
    writer.put("a", "1").unwrap();
    writer.close().unwrap();
    // The manifest as anyone can write it: number u64::MAX.
    let newest = listed(&bucket, "manifests").into_iter().map(|meta| meta.location).max().unwrap();
    let bytes = block_on(async { bucket.get(&newest).await.unwrap().bytes().await.unwrap() });
    let line = b"criba-object manifest 1\n";
    let (mut old, body) = (line.to_vec(), &bytes[line.len()..bytes.len() - 4]);
    // The number is a varint of one byte here.
    assert!(body[0] < 128);
    old.extend([0xff; 9]);
    old.push(1);
    old.extend(&body[1..]);
    let sum = crc32fast::hash(&old);
    old.extend(sum.to_le_bytes());
    let name = format!("manifests/{:020}", u64::MAX);
    block_on(bucket.put(&name.as_str().into(), old.into())).unwrap();
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        open(store(&bucket), dir.path().join("b"), options()).map(drop)
    }));
    // No writer makes a manifest of this name: it does not count.
    opened.expect("no panic").unwrap();
}

/// Filters without a set bit, in tables and in files of their own, with a wrong checksum and with the right one.
#[test]
fn a_filter_that_denies_all_keys_hides_none() {
    const HEADER_BYTES: usize = 128;
    let dir = tempfile::tempdir().unwrap();
    let mut number = 0;
    for (directory, bits) in [("tables", None), ("filters", Some(16.0))] {
        let bucket = Arc::new(InMemory::new());
        let local = dir.path().join(directory);
        let writer = open(store(&bucket), &local, options()).unwrap();
        for number in 0..2000 {
            writer.put(key(number), [7; 100]).unwrap();
        }
        writer.compact().unwrap();
        if let Some(bits) = bits {
            writer.rebuild_filters(&criba::FilterPolicy::bits_per_key(bits)).unwrap();
        }
        writer.sync_remote().unwrap();
        let files = RealVfs.open_dir(&local.join("store")).unwrap();
        for has_right_checksum in [false, true] {
            let hostile = Arc::new(bucket.fork());
            for table in writer.tables() {
                let name = format!("{:06}.sst", table.id);
                let file = files.open(OsStr::new(&name), FileKind::Table).unwrap();
                let layout = TableLayout::read(&*file, table.file_bytes, name.as_ref()).unwrap();
                let salt = u64::from_le_bytes(layout.random()[..8].try_into().unwrap());
                // The checksum has the place of the block, or the names of the file.
                let (start, inputs) = match bits {
                    None => (layout.tail_offset(), [salt, layout.tail_offset()]),
                    Some(_) => (0, [table.id, 1]),
                };
                let start = start as usize;
                let objects = listed(&hostile, directory);
                let is_it = |name: &str| name.contains(&format!("/{:06}", table.id));
                let object = objects.iter().find(|object| is_it(object.location.as_ref())).unwrap();
                let read = async { hostile.get(&object.location).await.unwrap().bytes().await };
                let mut bytes = block_on(read).unwrap().to_vec();
                let end = start + table.filter.stored_bytes();
                let mut sum = crc32fast::Hasher::new();
                for input in inputs {
                    sum.update(&input.to_le_bytes());
                }
                let mut sound = sum.clone();
                sound.update(&bytes[start..=end]);
                assert_eq!(sound.finalize().to_le_bytes(), bytes[end + 1..end + 5], "{directory}");
                bytes[start + HEADER_BYTES..end].fill(0);
                if has_right_checksum {
                    sum.update(&bytes[start..=end]);
                    bytes[end + 1..end + 5].copy_from_slice(&sum.finalize().to_le_bytes());
                }
                block_on(hostile.put(&object.location, bytes.into())).unwrap();
            }
            number += 1;
            let local = dir.path().join(format!("reader{number}"));
            let reader = open_reader(store(&hostile), local, options()).unwrap();
            for number in 0..2000 {
                let found = reader.get(key(number)).unwrap();
                assert!(found.is_some(), "{directory}, {has_right_checksum}: {number}");
            }
        }
    }
}
