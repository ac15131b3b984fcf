//! A power failure at each operation of a checkpoint, and of the step after it: the checkpoint is not there,
//! or it is whole; the store is as it would be without it.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use criba::vfs::{SimDisk, SimVfs, Unit, Vfs};

use crate::failures::{each_alone, ends};
use crate::history::{History, Runner, Step, options};
use crate::on_two_threads;
use crate::oracle::{Case, contents, fingerprint};
use crate::small::{KINDS, step};

/// Whether the only checkpoint is there. Makes it where it is not.
fn check(disk: SimDisk, history: &History, moment: usize, at: &str) -> bool {
    let copy = &history.copies[0];
    let vfs = SimVfs::on(disk);
    let open = |path: &str| {
        let db = options().vfs(Arc::new(vfs.clone())).open(path);
        db.unwrap_or_else(|error| panic!("{at}: {path}: {error}"))
    };
    if vfs.open_dir(Path::new(&copy.path)).is_ok() {
        let found = contents(&open(&copy.path));
        assert!(found == history.states[copy.writes], "{at}: not what was in the store");
        return true;
    }
    assert!(moment + 1 < copy.moments.end, "{at}: an acknowledged checkpoint is gone");
    let db = open("/store");
    db.checkpoint(&copy.path).unwrap_or_else(|error| panic!("{at}: again: {error}"));
    let expected = contents(&db);
    assert!(contents(&open(&copy.path)) == expected, "{at}: the second one differs");
    false
}

/// Returns the numbers of disks without the checkpoint, and with it.
fn crash(before: &[Step], after: &Step, name: &str) -> [usize; 2] {
    let mut runner = Runner::new();
    for step in before.iter().chain([&Step::Checkpoint, after]) {
        runner.step(step);
    }
    let end = runner.moment_count();
    let history = runner.finish();
    let keys: BTreeSet<Vec<u8>> = history.states.iter().flat_map(|s| s.keys().cloned()).collect();
    let (mut seen, mut disks) = (HashSet::new(), [0; 2]);
    for number in history.copies[0].moments.start..end {
        let moment = &history.moments[number];
        let alone = [Unit::Page, Unit::Sector].map(|unit| each_alone(&moment.disk, unit));
        for (i, disk) in
            ends(&moment.disk).into_iter().chain(alone.into_iter().flatten()).enumerate()
        {
            let promised = (history.bounds(number), number + 1 < history.copies[0].moments.end);
            if !seen.insert((fingerprint(&disk), promised)) {
                continue;
            }
            let (operation, path) = (moment.operation, moment.path.display());
            let at = format!("{name}, operation {number}, {operation:?} of {path}, failure {i}");
            disks[usize::from(check(disk.clone(), &history, number, &at))] += 1;
            let bounds = history.bounds(number);
            Case { disk, history: &history, keys: &keys, bounds, at: &at }.check(false);
        }
    }
    disks
}

#[test]
fn a_checkpoint_is_whole_or_not_there_after_a_power_failure_at_any_operation() {
    let all = KINDS * KINDS + 10;
    let crashed = on_two_threads(all, |number| {
        let kinds = [number / KINDS % KINDS, number % KINDS];
        let mut before: Vec<Step> =
            kinds.iter().enumerate().map(|(i, &kind)| step(kind, i)).collect();
        if number >= KINDS * KINDS {
            // Tables on several levels, with filter files, and writes in the log.
            let writes = (0..40).map(|i| if i == 25 { step(7, i) } else { step(3 * (i % 2), i) });
            before = writes.chain(before).collect();
        }
        let after = step(number * 7 % KINDS, 9);
        crash(&before, &after, &format!("steps {kinds:?}"))
    });
    let [without, with] = crashed.into_iter().fold([0; 2], |[a, b], [c, d]| [a + c, b + d]);
    println!("{all} workloads, {without} distinct disks without the checkpoint, {with} with it");
    assert!(without > 1000 && with > 1000);
}
