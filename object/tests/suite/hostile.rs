//! Objects with hostile bytes.

use std::sync::Arc;

use criba_object::object_store::ObjectStoreExt;
use criba_object::object_store::memory::InMemory;
use criba_object::open;

use crate::bucket::{block_on, listed, options, store};

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
