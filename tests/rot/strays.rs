//! Files of other stores in the majority: repair keeps the store that `CURRENT` names, whatever lies beside it.

use std::path::Path;
use std::sync::Arc;

use criba::vfs::{SimVfs, Vfs};
use criba::{Options, Repaired, Uncertain, repair_with};

const DIR: &str = "/store";
const OTHER: &str = "/other";
const NEW: &str = "/new";

fn options(sim: &SimVfs, seed: u64) -> Options {
    Options::new().vfs(sim.clone()).background_threads(0).seed(seed).auto_compaction(false)
}

/// A store with some tables, and a log.
fn fill(sim: &SimVfs, dir: &str, seed: u64, tables: usize) {
    let db = options(sim, seed).open(dir).unwrap();
    for table in 0..tables {
        for number in 0..20 {
            db.put(format!("{dir} {table} {number}"), "value").unwrap();
        }
        db.flush().unwrap();
    }
    db.put(format!("{dir} log"), "value").unwrap();
    db.close().unwrap();
}

/// Copies tables and manifests of the other store, under numbers that are free and below the next one.
fn stray(sim: &SimVfs, kinds: &[&str]) -> usize {
    let disk = sim.disk();
    let strays: Vec<_> = disk
        .files()
        .filter(|(path, _)| path.starts_with(OTHER))
        .filter(|(path, _)| kinds.iter().any(|kind| path.to_string_lossy().contains(kind)))
        .map(|(path, bytes)| (Path::new(DIR).join(path.file_name().unwrap()), bytes.to_vec()))
        .filter(|(path, _)| disk.read(path).is_none())
        .collect();
    sim.edit(|disk| {
        for (path, bytes) in &strays {
            disk.write(path, bytes.clone());
        }
    });
    strays.len()
}

fn repair(sim: &SimVfs, store: Option<u64>) -> Repaired {
    sim.unlock();
    let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
    repair_with(DIR, NEW, Uncertain::Accept, store, &vfs).unwrap()
}

fn keys(sim: &SimVfs) -> Vec<String> {
    let db = options(sim, 9).open(NEW).unwrap();
    let keys = db.iter().unwrap().map(|item| String::from_utf8(item.unwrap().0.to_vec()).unwrap());
    keys.collect()
}

#[test]
fn strays_in_the_majority_are_listed_and_not_believed() {
    for kinds in [&[".sst"][..], &["MANIFEST"], &[".sst", "MANIFEST"]] {
        let sim = SimVfs::new();
        fill(&sim, DIR, 1, 2);
        fill(&sim, OTHER, 2, 12);
        options(&sim, 2).open(OTHER).unwrap().close().unwrap(); // its manifest has another number
        let strays = stray(&sim, kinds);
        assert!(strays > 0);
        let repaired = repair(&sim, None);
        assert_eq!(repaired.others.len(), strays, "{repaired:?}");
        assert!(repaired.losses.is_empty(), "{repaired:?}");
        assert_eq!((repaired.keys, repaired.uncertain), (41, 0), "{repaired:?}");
        assert!(keys(&sim).iter().all(|key| key.starts_with(DIR)));
    }
}

/// Then most files decide, or the user.
#[test]
fn without_a_manifest_the_user_can_name_the_store() {
    let made = || {
        let sim = SimVfs::new();
        fill(&sim, DIR, 1, 2);
        fill(&sim, OTHER, 2, 12);
        let own = repair(&sim, None).store;
        sim.edit(|disk| disk.remove(NEW));
        stray(&sim, &[".sst"]);
        sim.edit(|disk| disk.remove(Path::new(DIR).join("CURRENT")));
        let manifests: Vec<_> = sim.disk().files().map(|(path, _)| path.to_owned()).collect();
        for path in manifests.iter().filter(|path| path.to_string_lossy().contains("store/MANI")) {
            sim.edit(|disk| disk.remove(path));
        }
        (sim, own)
    };
    let (sim, own) = made();
    let repaired = repair(&sim, None);
    assert_ne!(repaired.store, own, "most files are of the other");
    assert_eq!(repaired.keys, repaired.uncertain, "a guess makes nothing certain");
    assert!(keys(&sim).iter().all(|key| key.starts_with(OTHER)));
    let (sim, own) = made();
    let repaired = repair(&sim, Some(own));
    assert_eq!(repaired.store, own);
    assert_eq!(repaired.keys, 41, "{repaired:?}");
    assert!(keys(&sim).iter().all(|key| key.starts_with(DIR)));
}
