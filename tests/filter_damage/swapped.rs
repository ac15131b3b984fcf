//! Filters in the wrong table.

use crate::forger::{checksum, salt};
use crate::store::{Store, filter_block, policies};

/// Each filter is sound and at the right offset, in the wrong table. The block's checksum detects it, or,
/// where that is right, the manifest's.
#[test]
fn swapped_filters_cost_reads_and_no_more() {
    for policy in policies() {
        let store = Store::new(policy);
        let sound = [store.sound(0), store.sound(1)];
        let block = filter_block(sound[0]);
        for fitting in [false, true] {
            let swapped = [0, 1].map(|number| {
                let mut bytes = sound[number].to_vec();
                bytes[block.clone()].copy_from_slice(&sound[1 - number][block.clone()]);
                if fitting {
                    let covered = &bytes[block.start..block.end - 4];
                    let sum = checksum(salt(&bytes), block.start as u64, covered);
                    bytes[block.end - 4..block.end].copy_from_slice(&sum);
                }
                assert!(bytes != sound[number]);
                bytes
            });
            let [a, b] = [0, 1].map(|number| (store.tables[number].as_path(), &*swapped[number]));
            store.set(&[a]);
            store.check(&[0], "one has the other's filter");
            store.set(&[a, b]);
            store.check(&[0, 1], "swapped");
        }
    }
}
