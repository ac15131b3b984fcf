//! What a publication has: only what is durable on the writer's disk, all that a reader needs, and whole tables in other
//! checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use criba::Durability;
use criba::vfs::{Keep, SimVfs, Unit};
use criba_object::object_store::memory::InMemory;
use criba_object::{open, open_reader};

use crate::bucket::{Client, key, listed, options, sim, store, until_one_is_written};

/// A checkpoint has buffered writes that came after the flush: they are synced here before they are published.
#[test]
fn what_is_published_is_durable_on_the_writers_disk() {
    for round in 0..20 {
        let bucket = Arc::new(InMemory::new());
        let vfs = sim();
        let stop = Arc::new(AtomicBool::new(false));
        let of_hook = Arc::clone(&stop);
        // The second manifest is that of the publication.
        let client = Client::before_manifests(&bucket, move |number| {
            of_hook.store(number >= 2, Ordering::SeqCst);
        });
        let store_options = criba::Options::new().background_threads(1).cache_bytes(0);
        let local = options().store(store_options.clone()).vfs(vfs.clone());
        let writer = open(client.store(), "/local", local).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    writer.put_with(key(number), [1; 100], Durability::Buffered).unwrap();
                    number += 1;
                }
            });
            until_one_is_written(&writer);
            writer.sync_remote().unwrap();
        });
        let disk = vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD);
        drop(writer);
        let reader = open_reader(
            store(&bucket),
            "/reader",
            options().store(store_options.clone()).vfs(sim()),
        );
        let readers_have = reader.unwrap().iter().count();
        let local = options().store(store_options).vfs(SimVfs::on(disk));
        let writer = open(store(&bucket), "/local", local).unwrap();
        let writer_has = writer.iter().count();
        assert!(
            writer_has >= readers_have,
            "round {round}: after a power failure the writer has lost {} published writes, without an error",
            readers_have - writer_has
        );
    }
}

/// The log of all writes during a flush is longer than a manifest may be.
#[test]
fn a_manifest_that_is_published_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let large = || {
        let store =
            criba::Options::new().background_threads(1).memtable_bytes(512 << 20).cache_bytes(0);
        options().store(store)
    };
    let stop = Arc::new(AtomicBool::new(false));
    let of_hook = Arc::clone(&stop);
    let client = Client::before_manifests(&bucket, move |number| {
        of_hook.store(number >= 2, Ordering::SeqCst);
    });
    let writer = open(client.store(), dir.path().join("a"), large()).unwrap();
    let mut value = vec![0u8; 1 << 20];
    let mut random = 1u64;
    for byte in &mut value {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (random >> 56) as u8;
    }
    for number in 0..400 {
        writer.put_with(key(number), &value, Durability::Buffered).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::SeqCst) && number < 450 {
                writer.put_with(key(number), &value, Durability::Buffered).unwrap();
                number += 1;
            }
        });
        writer.sync_remote().unwrap();
    });
    let logs = listed(&bucket, "logs");
    assert!(logs.iter().any(|log| log.size > 1 << 20), "no long log was published: {logs:?}");
    drop(writer);
    open_reader(store(&bucket), dir.path().join("r"), large()).unwrap();
    open(store(&bucket), dir.path().join("a"), large()).unwrap();
}

/// The store's filter policy is in the manifest; no table changes with it.
#[test]
fn a_policy_that_was_set_is_published() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let writer = open(store(&bucket), dir.path().join("a"), options()).unwrap();
    writer.put("a", "1").unwrap();
    writer.sync_remote().unwrap();
    let policy = criba::FilterPolicy::bits_per_key(17.0);
    writer.set_policy(policy).unwrap();
    writer.sync_remote().unwrap();
    let new = open_reader(store(&bucket), dir.path().join("b"), options()).unwrap();
    assert_eq!(new.policy(), policy);
}

/// A checkpoint beside the store's directory is no publication: it gets whole tables.
#[test]
fn a_checkpoint_beside_the_store_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Arc::new(InMemory::new());
    let local = dir.path().join("a");
    let writer = open(store(&bucket), &local, options().local_bytes(0)).unwrap();
    for number in 0..2000 {
        writer.put(key(number), [1; 50]).unwrap();
    }
    writer.sync_remote().unwrap();
    writer.checkpoint(dir.path().join("elsewhere")).unwrap();
    assert_eq!(criba::Db::open(dir.path().join("elsewhere")).unwrap().iter().count(), 2000);
    writer.checkpoint(local.join("backup")).unwrap();
    let copy = criba::Db::open(local.join("backup")).map(|db| db.iter().count());
    assert_eq!(copy.unwrap(), 2000);
}
