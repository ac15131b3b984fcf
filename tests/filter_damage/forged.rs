//! Forged filters with right checksums. The store degrades those that contradict the manifest, and every
//! header that no writer makes. A filter that is plausible, with *every* checksum right, the manifest's
//! too, passes; only a probe of each key of its table finds it.

use std::path::PathBuf;

use criba::{FilterInfo, PrefixExtractor};

use crate::common::the_file;
use crate::forger::{checksum, filter_of, manifest_naming, salt, with_filter};
use crate::store::{KEYS, Store, denied, filter_block, key, options, policies};

/// The length of a filter's header.
const HEADER: usize = 128;

/// The largest address space of this process so far, in KiB.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmPeak:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Asserts that a call takes less than 4 GiB of address space: far more than these tests need, and far less
/// than any of the forged sizes.
fn bounded(work: impl FnOnce()) {
    let before = peak();
    work();
    if let (Some(before), Some(after)) = (before, peak()) {
        assert!(after - before < 4 << 20, "{} KiB more of address space", after - before);
    }
}

impl Store {
    fn manifest(&self) -> PathBuf {
        the_file(&self.dir, "MANIFEST-")
    }

    /// Gives the first table this filter, with every checksum put right, the manifest's too.
    fn forge(&self, filter: &[u8]) {
        let table = with_filter(self.sound(0), filter);
        self.set(&[]);
        let path = self.manifest();
        let manifest = manifest_naming(&std::fs::read(&path).unwrap(), &table);
        self.set(&[(&self.tables[0], &table), (&path, &manifest)]);
    }
}

/// The forger itself changes nothing: with the same filter the store is as before.
#[test]
fn a_forgery_without_a_change_leaves_the_files_as_they_are() {
    for policy in policies() {
        let store = Store::new(policy);
        assert!(with_filter(store.sound(0), filter_of(store.sound(0))) == store.sound(0));
        store.set(&[]);
        let manifest = std::fs::read(store.manifest()).unwrap();
        assert!(manifest_naming(&manifest, store.sound(0)) == manifest);
    }
}

/// Flips a bit of each byte of the header; the block's checksum is right, the manifest's is not.
#[test]
fn the_manifest_reveals_a_header_forged_with_the_blocks_checksum() {
    let mut tried = 0;
    for policy in policies() {
        let store = Store::new(policy);
        let block = filter_block(store.sound(0));
        for byte in 0..HEADER {
            let mut table = store.sound(0).to_vec();
            table[block.start + byte] ^= 1 << (byte % 8);
            let sum =
                checksum(salt(&table), block.start as u64, &table[block.start..block.end - 4]);
            table[block.end - 4..block.end].copy_from_slice(&sum);
            store.set(&[(&store.tables[0], &table)]);
            store.check(&[0], &format!("byte {byte} of the header"));
            tried += 1;
        }
    }
    println!("{tried} headers forged, the block's checksum put right: all degraded");
}

/// Every checksum is right, the manifest's too; but no writer makes such a header for this table.
#[test]
fn impossible_headers_cost_reads_and_no_more() {
    const HUGE: [u64; 4] = [1 << 63, u64::MAX, u64::MAX - 63, u64::MAX - 511];
    let mut tried = 0;
    bounded(|| {
        for policy in policies() {
            let store = Store::new(policy);
            let sound = filter_of(store.sound(0));
            let mut forge = |offset: usize, field: &[u8]| {
                let mut filter = sound.to_vec();
                filter[offset..offset + field.len()].copy_from_slice(field);
                assert!(filter != sound);
                store.forge(&filter);
                store.check(&[0], &format!("{field:?} at {offset}"));
                tried += 1;
            };
            let (kind, hash) = (sound[10], sound[11]);
            forge(0, b"d"); // magic
            for version in [0_u16, 2, u16::MAX] {
                forge(8, &version.to_le_bytes());
            }
            for other in (0..=5).chain([255]).filter(|&other| other != kind) {
                forge(10, &[other]);
            }
            for other in (0..=5).chain([255]).filter(|&other| other != hash) {
                forge(11, &[other]);
            }
            if hash == 2 {
                forge(16, &[1]); // a salt, which this hash has not
            }
            for fingerprint in [1, u64::MAX] {
                forge(24, &fingerprint.to_le_bytes());
            }
            let keys = u64::from(KEYS);
            for keys in [0, 1, keys - 1, keys + 1].into_iter().chain(HUGE) {
                forge(32, &keys.to_le_bytes());
            }
            // Shapes that differ from the array's, in the kind's units and beyond all bounds.
            let m = u64::from_le_bytes(sound[40..48].try_into().unwrap());
            for m in [0, m + 512, m * 2, 1 << 40, 1 << 43, 1 << 44].into_iter().chain(HUGE) {
                forge(40, &m.to_le_bytes());
            }
            for k in [0, 65, 1 << 31, u32::MAX] {
                forge(48, &k.to_le_bytes());
            }
            for rate in [-1e-9, 1.0 + 1e-9, f64::NAN, f64::INFINITY] {
                forge(56, &f64::to_bits(rate).to_le_bytes());
            }
            let sound_wide = u64::from_le_bytes(sound[64..72].try_into().unwrap());
            let other_wides = [0, 1, 2, m, 1 << 40].into_iter().filter(|&wide| wide != sound_wide);
            for wide in other_wides.chain(HUGE) {
                forge(64, &wide.to_le_bytes());
            }
            // Prefixes without an extractor; and more prefixes than 16 of each key.
            for prefixes in [1, keys, 16 * keys + 1].into_iter().chain(HUGE) {
                forge(80, &prefixes.to_le_bytes());
            }
            for extractor in [1_u64, 7, u64::MAX] {
                for prefixes in [16 * keys + 1].into_iter().chain(HUGE) {
                    forge(72, &[extractor.to_le_bytes(), prefixes.to_le_bytes()].concat());
                }
            }
            // All fields at once.
            forge(32, &[0; 24]);
            forge(32, &[0xff; 40]);
        }
    });
    println!("{tried} impossible headers, every checksum put right: all degraded");
}

/// An unknown extractor, with any possible number of prefixes: the filter serves for keys, and no key or
/// prefix is missed.
#[test]
fn a_forged_extractor_hides_no_key_and_no_prefix() {
    let keys = u64::from(KEYS);
    let mut tried = 0;
    for policy in policies() {
        let store = Store::new(policy);
        for (extractor, prefixes) in [1_u64, 1 << 32 | 3, u64::MAX]
            .into_iter()
            .flat_map(|extractor| [0, 1, keys].map(|prefixes| (extractor, prefixes)))
        {
            let mut filter = filter_of(store.sound(0)).to_vec();
            filter[72..88]
                .copy_from_slice(&[extractor.to_le_bytes(), prefixes.to_le_bytes()].concat());
            store.forge(&filter);
            store.check(&[], &format!("{prefixes} prefixes of extractor {extractor:#x}"));
            let options = options(policy).prefix(PrefixExtractor::fixed(5));
            let db = options.open(&store.dir).unwrap();
            let found = db.prefix("key 0").map(Result::unwrap).count();
            assert_eq!(found, 2 * KEYS as usize);
            tried += 1;
        }
    }
    println!("{tried} extractors forged, every checksum put right: no key and no prefix missed");
}

/// A filter cut short at every length, or followed by more, with every checksum put right.
#[test]
fn filters_of_another_length_cost_reads_and_no_more() {
    let mut tried = 0;
    for policy in policies() {
        let store = Store::new(policy);
        let sound = filter_of(store.sound(0));
        for length in 1..sound.len() {
            store.forge(&sound[..length]);
            store.check(&[0], &format!("cut to {length}"));
            tried += 1;
        }
        for more in [1, 8, 64, 4096] {
            store.forge(&[sound, &vec![0; more]].concat());
            store.check(&[0], &format!("{more} bytes more"));
            tried += 1;
        }
    }
    println!("{tried} filters of another length, every checksum put right: all degraded");
}

/// Every bit of the header, with the table's checksums right and no manifest. A filter in use denies no
/// key, unless the field decides the places of a key's bits.
#[test]
fn only_forged_places_can_deny_keys() {
    for policy in policies() {
        let store = Store::new(policy);
        let sound = filter_of(store.sound(0));
        let (mut degraded, mut harmless, mut denying) = (0, 0, 0);
        for bit in 0..8 * HEADER {
            let mut filter = sound.to_vec();
            filter[bit / 8] ^= 1 << (bit % 8);
            store.set(&[(&store.tables[0], &with_filter(store.sound(0), &filter))]);
            // Without the manifest: a table on its own cannot be contradicted.
            match denied(&store.tables[0]) {
                None => degraded += 1,
                Some(0) => harmless += 1,
                Some(_) => {
                    let salt_shape_and_wide = [16..24, 40..52, 64..72];
                    let place = salt_shape_and_wide.iter().any(|field| field.contains(&(bit / 8)));
                    assert!(place, "{policy}: bit {bit} makes it deny keys");
                    denying += 1;
                }
            }
        }
        println!(
            "{policy}: {} bits of a header forged: {degraded} degraded, {harmless} harmless, \
             {denying} found by a lookup of each key",
            8 * HEADER
        );
        assert!(degraded > 8 * 24);
    }
}

/// The limit of the promise: with every checksum right, the manifest's too, a filter of the right length
/// that probes wrong places denies some keys. `verify` probes every key of a table and finds it; a compaction reads the keys themselves and restores
/// all.
#[test]
fn a_filter_forged_in_every_checksum_is_found_by_probing_it_with_its_keys() {
    let [classic, keyed, ribbon] = policies();
    // m of a Bloom filter; the salt.
    for (policy, offset) in [(classic, 40), (keyed, 16), (ribbon, 16)] {
        let store = Store::new(policy);
        assert_eq!(denied(&store.tables[0]), Some(0), "sound");
        let mut filter = filter_of(store.sound(0)).to_vec();
        filter[offset] -= 1;
        store.forge(&filter);
        let db = options(policy).open(&store.dir).unwrap();
        assert!(db.tables().iter().all(|table| matches!(table.filter, FilterInfo::Active { .. })));
        let found = |table| (0..KEYS).filter(|&n| db.get(key(table, n)).unwrap().is_some()).count();
        assert_eq!(found(1), KEYS as usize);
        let missed = KEYS as usize - found(0);
        assert!(missed > 0, "{policy}: it was to be forged");
        assert_eq!(denied(&store.tables[0]), Some(missed));
        assert_eq!(denied(&store.tables[1]), Some(0));
        db.compact().unwrap();
        assert_eq!((found(0), found(1)), (KEYS as usize, KEYS as usize));
        println!("{policy}: {missed} of {KEYS} keys denied, all found by probing, and back after");
    }
}
