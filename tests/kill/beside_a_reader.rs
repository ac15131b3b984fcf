//! A process that reads a store while another writes to it, is killed and starts again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{SEED, apply, common, contents, count, killed, options};

#[test]
fn a_reader_shows_what_a_process_acknowledged_while_that_is_killed_and_starts_again() {
    // KILL_READER_SECONDS=60 for a long run.
    let seconds = std::env::var("KILL_READER_SECONDS").map_or(3, |n| n.parse().unwrap());
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    drop(options(0).open(&dir).unwrap());
    let open = || options(0).open_read_only(&dir).unwrap();
    let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let changed_enough = AtomicBool::new(false);
    let (mut model, mut modelled) = (BTreeMap::new(), 0);
    let (mut store, mut opened, mut refreshed, mut changed) = (open(), 1_u64, 0_u64, 0_u64);
    let mut versions = 0_u64;

    let mut look = |reopen: bool| {
        let known = acknowledged.load(Ordering::SeqCst);
        let tables: Vec<_> = store.tables().iter().map(|table| table.id).collect();
        if reopen {
            store = open();
            opened += 1;
        } else {
            changed += u64::from(store.refresh().unwrap());
            refreshed += 1;
        }
        versions +=
            u64::from(tables != store.tables().iter().map(|table| table.id).collect::<Vec<_>>());
        changed_enough.store(changed > 20 && versions > 20, Ordering::SeqCst);
        let shown = count(&store);
        assert!(shown >= known.max(modelled), "{shown}: {known} acknowledged, {modelled} before");
        (modelled + 1..=shown).for_each(|number| apply(&mut model, number));
        modelled = shown;
        let found = contents(&store);
        assert_eq!(found.len(), model.len(), "after {shown} writes");
        assert_eq!(found, model, "after {shown} writes");
        shown
    };
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let start = Instant::now();
    let kills = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut kills = 0;
            loop {
                // Longer on a busy machine.
                let (took, enough) =
                    (start.elapsed().as_secs(), kills > 1 && changed_enough.load(Ordering::SeqCst));
                if took >= seconds.max(60) || (took >= seconds && enough) {
                    break;
                }
                let (threads, enough) = (rng.random_range(0..3), rng.random_range(500..4000));
                let compacting = threads > 0 && rng.random();
                let said = killed(&dir, threads, enough, compacting, &acknowledged);
                said.expect("nothing else ends the process");
                kills += 1;
            }
            done.store(true, Ordering::SeqCst);
            kills
        });
        for round in 0_u64.. {
            // The handle is kept over some kills.
            look(round % 100 == 99);
            if done.load(Ordering::SeqCst) || writer.is_finished() {
                break;
            }
        }
        writer.join().unwrap()
    });
    let (last, acknowledged) = (look(false), acknowledged.load(Ordering::SeqCst));
    assert!((acknowledged..=acknowledged + 1).contains(&last), "{last}: {acknowledged}");
    println!(
        "{kills} kills, {acknowledged} writes, seed {SEED}; opened {opened} times, refreshed {refreshed} \
         times: {changed} changes, {versions} of tables"
    );
    assert!(kills > 1 && changed > 20 && versions > 20, "{kills} {changed} {versions}");
}
