//! A nightly backup, and its restoration: `cargo run --example checkpoint_and_restore`.
//!
//! The store is copied while a thread writes to it. Then it is lost, and restored from a checkpoint of the
//! backup, so that the next restoration has a backup, too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use criba::{Db, Options, Result, verify};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let db = Db::open(path("store"))?;
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));

    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0_u64.. {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                db.put(number.to_be_bytes(), format!("order {number}"))?;
                written.store(number + 1, Ordering::SeqCst);
            }
            Ok(())
        });
        while written.load(Ordering::SeqCst) < 50_000 {
            std::thread::yield_now();
        }
        let (before, start) = (written.load(Ordering::SeqCst), Instant::now());
        let made = db.checkpoint(path("backup"));
        println!("{before} orders before, {} after", written.load(Ordering::SeqCst));
        println!("the checkpoint took {:?}", start.elapsed());
        done.store(true, Ordering::SeqCst);
        writer.join().expect("no panic").and(made)
    })?;

    // A checkpoint is a directory like that of any store: `cp -r` copies it to another machine.
    let found = verify(path("backup"))?;
    assert!(found.is_sound(), "{:?}", found.findings);

    // The store is lost.
    db.close()?;
    std::fs::remove_dir_all(path("store")).expect("it is there");

    // A wrong path is an error, not a new and empty store.
    let backup = Options::new().create_if_missing(false).open(path("backup"))?;
    backup.checkpoint(path("store"))?;
    backup.close()?;
    let db = Db::open(path("store"))?;

    // The backup has the first orders, without a gap.
    let restored = db.iter().count() as u64;
    for (number, item) in (0_u64..).zip(db.iter()) {
        assert_eq!(*item?.0, number.to_be_bytes());
    }
    println!("{restored} orders restored");
    assert!((50_000..=written.into_inner()).contains(&restored));
    Ok(())
}
