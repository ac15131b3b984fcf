//! Damage by accident: bits that flip, blocks that are overwritten, filters at the wrong table.

use crate::forger::checksum;
use crate::store::{Store, denied, filter_block, policies};

/// Every bit of a filter block, trailer included.
fn flip_every_bit(kind: usize) {
    let store = Store::new(policies()[kind]);
    store.check(&[], "sound");
    let whole = store.sound(0);
    let mut flips = 0_usize;
    for place in filter_block(whole) {
        for bit in 0..8 {
            let mut bytes = whole.to_vec();
            bytes[place] ^= 1 << bit;
            store.set(&[(&store.tables[0], &bytes)]);
            store.check(&[0], &format!("byte {place}, bit {bit}"));
            // On its own, a table is taken by its own word; but this checksum does not match either.
            assert_eq!(denied(&store.tables[0]), None);
            flips += 1;
        }
    }
    println!("{}: {flips} flips in a filter block, no key missed", store.policy);
    assert_eq!(flips, 8 * filter_block(whole).len());
    assert!(flips > 1000);
}

#[test]
fn a_flipped_bit_anywhere_in_a_bloom_filter_costs_reads_and_no_more() {
    flip_every_bit(0);
}

#[test]
fn a_flipped_bit_anywhere_in_a_blocked_filter_costs_reads_and_no_more() {
    flip_every_bit(1);
}

#[test]
fn a_flipped_bit_anywhere_in_a_ribbon_filter_costs_reads_and_no_more() {
    flip_every_bit(2);
}

#[test]
fn zeroed_and_overwritten_filters_cost_reads_and_no_more() {
    let mut tried = 0;
    for policy in policies() {
        let store = Store::new(policy);
        let whole = store.sound(0);
        let block = filter_block(whole);
        for fill in [0, 0xff] {
            for start in block.clone().step_by(16) {
                // From here to the end, and sixteen bytes only.
                for end in [block.end, (start + 16).min(block.end)] {
                    let mut bytes = whole.to_vec();
                    bytes[start..end].fill(fill);
                    if bytes == whole {
                        continue;
                    }
                    store.set(&[(&store.tables[0], &bytes)]);
                    store.check(&[0], &format!("{start}..{end} filled with {fill}"));
                    tried += 1;
                }
            }
        }
    }
    println!("{tried} filters overwritten in part");
    assert!(tried > 70);
}

/// Each sound, each at the right offset, in the wrong table: told by the block's checksum, or, where
/// that was made to fit, by the manifest's.
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
                    let id = store.tables[number].file_stem().unwrap().to_str().unwrap();
                    let covered = &bytes[block.start..block.end - 4];
                    let sum = checksum(id.parse().unwrap(), block.start as u64, covered);
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
