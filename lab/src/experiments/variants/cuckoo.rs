//! A cuckoo filter: fingerprints in buckets of four, each in one of two buckets (Fan, Andersen, Kaminsky and
//! Mitzenmacher, *Cuckoo Filter: Practically Better Than Bloom*, 2014).

use super::Removable;

const SLOTS: usize = 4;
const MOST_MOVES: u32 = 2000;

pub(super) struct Cuckoo {
    fingerprint_bits: u32,
    /// A power of two of buckets; 0 is no fingerprint.
    buckets: Vec<[u16; SLOTS]>,
    /// Changes with every eviction, to choose the slot.
    turn: u64,
}

impl Cuckoo {
    /// An empty filter, 95 % full with this number of keys.
    pub(super) fn new(keys: u64, fingerprint_bits: u32) -> Self {
        let buckets = (keys as f64 / 0.95 / SLOTS as f64).ceil() as usize;
        let buckets = vec![[0; SLOTS]; buckets.next_power_of_two()];
        Self { fingerprint_bits, buckets, turn: 0 }
    }

    /// A fingerprint from the upper half of the hash, a bucket from the lower.
    fn place(&self, hash: u64) -> (u16, usize) {
        let fingerprints = (1_u64 << self.fingerprint_bits) - 1;
        let fingerprint = (((hash >> 32) * fingerprints) >> 32) as u16 + 1;
        (fingerprint, hash as usize & (self.buckets.len() - 1))
    }

    /// The other bucket of a fingerprint, an involution.
    fn other(&self, fingerprint: u16, bucket: usize) -> usize {
        let far = u64::from(fingerprint).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        bucket ^ (far as usize & (self.buckets.len() - 1))
    }

    fn slot(&mut self, bucket: usize, holding: u16) -> Option<&mut u16> {
        self.buckets[bucket].iter_mut().find(|slot| **slot == holding)
    }
}

impl Removable for Cuckoo {
    fn name(&self) -> &'static str {
        "cuckoo"
    }

    /// What a packed array would take.
    fn bits(&self) -> f64 {
        f64::from(self.fingerprint_bits) * (self.buckets.len() * SLOTS) as f64
    }

    fn insert(&mut self, hash: u64) -> bool {
        let (mut fingerprint, mut bucket) = self.place(hash);
        for attempt in 0..MOST_MOVES {
            if let Some(slot) = self.slot(bucket, 0) {
                *slot = fingerprint;
                return true;
            }
            if attempt > 0 {
                self.turn = self.turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let slot = (self.turn >> 62) as usize;
                std::mem::swap(&mut fingerprint, &mut self.buckets[bucket][slot]);
            }
            bucket = self.other(fingerprint, bucket);
        }
        false // and the last that was evicted is lost: such a filter is made anew, larger
    }

    fn contains(&self, hash: u64) -> bool {
        let (fingerprint, bucket) = self.place(hash);
        let other = self.other(fingerprint, bucket);
        self.buckets[bucket].contains(&fingerprint) || self.buckets[other].contains(&fingerprint)
    }

    fn remove(&mut self, hash: u64) {
        let (fingerprint, bucket) = self.place(hash);
        for bucket in [bucket, self.other(fingerprint, bucket)] {
            if let Some(slot) = self.slot(bucket, fingerprint) {
                *slot = 0;
                return;
            }
        }
    }

    /// Each of the eight slots of a key holds its fingerprint with the chance that it is taken, over the
    /// number of fingerprints. Keys with equal buckets and fingerprints are rare.
    fn expected(&self, keys: u64) -> (f64, f64, &'static str) {
        let fingerprints = f64::from((1_u32 << self.fingerprint_bits) - 1);
        let places = 2.0 * keys as f64 / self.buckets.len() as f64;
        let rate = -(places * (-1.0 / fingerprints).ln_1p()).exp_m1();
        let together = keys as f64 * rate / 2.0;
        (rate, rate * together.sqrt() / keys as f64, "1 − (1 − 1/(2^f − 1))^(8 · load)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(i: u64) -> u64 {
        let hash = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }

    #[test]
    fn the_other_bucket_of_the_other_is_the_first() {
        let filter = Cuckoo::new(10_000, 10);
        for i in 0..1000 {
            let (fingerprint, bucket) = filter.place(hash(i));
            let other = filter.other(fingerprint, bucket);
            assert_eq!(filter.other(fingerprint, other), bucket);
        }
    }

    #[test]
    fn what_is_taken_out_leaves_nothing() {
        let mut filter = Cuckoo::new(3000, 10);
        (0..3000).for_each(|i| assert!(filter.insert(hash(i)), "{i}"));
        assert!((0..3000).all(|i| filter.contains(hash(i))));
        (0..3000).for_each(|i| filter.remove(hash(i)));
        assert!(filter.buckets.iter().all(|bucket| *bucket == [0; SLOTS]));
    }
}
