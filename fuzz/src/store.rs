//! A deterministic small store with a file of every kind, and all that was ever written to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use criba::parsers::{HashKeyBytes, Recorded, read_current};
use criba::vfs::{SimDisk, SimVfs, Vfs};
use criba::{Batch, Compression, Db, FilterPolicy, Options, PrefixExtractor, Result};

use crate::DIR;

/// The written keys; some are deleted.
const KEYS: u64 = 60;

/// A store after a crash: tables on two levels, with filters of each kind and without, one beside its table, and
/// a compressed one; and entries that are only in the log. Everything is synced.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) disk: SimDisk,
    /// The files, in order of their names.
    pub(crate) files: Vec<PathBuf>,
    /// Every value that a key ever had.
    pub(crate) written: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    pub(crate) hash_key: HashKeyBytes,
}

/// The fixture, made once.
pub(crate) fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| make().expect("a disk in memory that nothing is wrong with"))
}

/// Options without background work.
pub(crate) fn options() -> Options {
    Options::new()
        .seed(1)
        .background_threads(0)
        .auto_compaction(false)
        .block_bytes(256)
        .cache_bytes(1 << 16)
        .prefix(PrefixExtractor::until(b'/'))
}

fn make() -> Result<Fixture> {
    let vfs = SimVfs::new();
    let mut written = BTreeMap::<_, BTreeSet<_>>::new();
    let mut number = 0;
    let mut write = |db: &Db, changes: u64| -> Result<()> {
        for _ in 0..changes / 3 {
            let mut batch = Batch::new();
            for _ in 0..3 {
                number += 1;
                let key = key(number * 7 % KEYS);
                let value = format!("value {number} of {}", key.escape_ascii());
                if number % 5 == 0 {
                    batch.delete(&key);
                } else {
                    batch.put(&key, &value);
                    written.entry(key).or_default().insert(value.into_bytes());
                }
            }
            db.write(batch)?;
        }
        Ok(())
    };
    let open = |policy: FilterPolicy| {
        let is_ribbon = policy == FilterPolicy::ribbon();
        let compression = if is_ribbon { Compression::Lz4 } else { Compression::None };
        let options = options().filter(policy).compression(compression);
        options.vfs(Arc::new(vfs.clone())).open(DIR)
    };

    let db = open(FilterPolicy::classic())?;
    write(&db, 60)?;
    db.flush()?;
    db.compact()?;
    db.rebuild_filters(&FilterPolicy::bits_per_key(9.4))?;
    db.close()?;
    for policy in [
        FilterPolicy::classic(),
        FilterPolicy::default(),
        FilterPolicy::ribbon(),
        FilterPolicy::none(),
    ] {
        let db = open(policy)?;
        write(&db, 30)?;
        db.flush()?;
        db.close()?;
    }
    let db = open(FilterPolicy::default())?;
    write(&db, 30)?;
    db.sync()?;
    let disk = vfs.disk(); // with the store open: no end frame is in the log
    drop(db);

    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::on(disk.clone()));
    let manifest = read_current(&vfs, DIR.as_ref())?.expect("a store");
    let (recorded, _) = Recorded::read(&vfs, DIR.as_ref(), manifest)?;
    let files = disk.files().map(|(path, _)| path.to_owned()).collect();
    let hash_key = recorded.hash_key();
    Ok(Fixture { disk, files, written, hash_key })
}

/// A key of the store, or an absent one.
fn key(number: u64) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        _ => format!("row{:02}/{number:02}", number / 4).into_bytes(),
    }
}
