//! A disk on which a sync does nothing. Writes may be lost; but each value read was written, and nothing
//! panics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use criba::vfs::{SimVfs, Unit};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::everywhere::{Keys, SEED, script};
use crate::failures::some;
use crate::history::{DIR, Runner, options};

const FAILURES: usize = 12;

#[test]
fn a_disk_that_lies_about_syncs_makes_nothing_up() {
    let (mut opened, mut refused, mut found, mut failed) = (0, 0, 0, 0);
    for seed in SEED..SEED + 2 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut runner = Runner::on(SimVfs::new().lying());
        for step in script(&mut rng, 100, Keys::Short) {
            runner.step(&step);
        }
        let history = runner.finish();
        let mut written = BTreeMap::<&[u8], BTreeSet<&[u8]>>::new();
        for (key, value) in history.states.iter().flatten() {
            written.entry(key).or_default().insert(value);
        }
        for moment in history.moments.iter().step_by(5) {
            for _ in 0..FAILURES {
                let disk = some(&moment.disk, Unit::Page, &mut rng);
                let Ok(db) = options().vfs(Arc::new(SimVfs::on(disk))).open(DIR) else {
                    refused += 1;
                    continue;
                };
                opened += 1;
                for (key, values) in &written {
                    match db.get(key) {
                        Ok(None) => {}
                        Ok(Some(value)) => {
                            assert!(values.contains(&value[..]), "{key:?}: {value:?}");
                            found += 1;
                        }
                        Err(_) => failed += 1,
                    }
                }
            }
        }
    }
    println!(
        "lying disk: {opened} opened, {refused} refused; {found} values found, all once written, \
         {failed} errors, seed {SEED:#x}"
    );
    assert!(opened > 100 && refused > 100 && found > 100);
}
