//! A filter of any kind, built from all its keys at once.

use std::fmt;

use super::format::{Flaw, Form, Head, Saved, encode};
use super::hashing::Hashing;
use super::methods::{mapped, saved};
use super::part::{Array, Part};
use super::sizing::invalid;
use crate::geometry::Geometry;
use crate::hash::HashFunction;
use crate::hash::mix;
use crate::kind::FilterKind;
use crate::prober::Prober;
use crate::recipe::{Recipe, Size};

/// The size of a [`StaticFilter`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FilterSize {
    /// The size for this false-positive rate.
    Rate(f64),
    /// Bits per key, fractions included: above 0 and at most 64.
    BitsPerKey(f64),
}

/// An immutable filter of any [`FilterKind`], sized for the exact number of its keys.
///
/// Use it if all keys are known. `Ribbon` has the fewest bits, a quarter less than `Bloom`. `Blocked` is the
/// fastest to build and to probe, for a few more bits. `Bloom` is the one that other implementations can
/// read.
///
/// ```
/// use criba_filter::FilterKind;
/// use criba_filter::{FilterSize, Hashing, StaticFilter};
///
/// let words = ["sieve", "riddle", "strainer"];
/// let size = FilterSize::Rate(0.01);
/// let filter = StaticFilter::build(FilterKind::Ribbon, size, Hashing::random()?, words)?;
/// assert!(words.iter().all(|word| filter.contains(word)));
/// # Ok::<(), criba_filter::Error>(())
/// ```
pub struct StaticFilter {
    head: Head,
    part: Part,
    prober: Prober,
}

impl StaticFilter {
    /// Builds a filter of these keys. A repeated key counts once. Takes 8 bytes of memory per key, besides
    /// the memory for building a filter of this kind.
    ///
    /// # Errors
    /// If the size is beyond the limits of the kind, or memory is short.
    pub fn build<K: AsRef<[u8]>>(
        kind: FilterKind,
        size: FilterSize,
        hashing: Hashing,
        keys: impl IntoIterator<Item = K>,
    ) -> crate::Result<Self> {
        let (option, size) = match size {
            FilterSize::Rate(rate) => ("rate", Size::Rate(rate)),
            FilterSize::BitsPerKey(bits) => ("bits_per_key", Size::BitsPerKey(bits)),
        };
        let recipe = Recipe { kind, hash: hashing.hash(), size };
        recipe.check().map_err(|reason| invalid(option, reason))?;
        let mut hashes: Vec<u64> = keys.into_iter().map(|key| hashing.of(key.as_ref())).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let keys = hashes.len() as u64;
        // The first attempt has no salt, since `mix(0)` is 0.
        let salt_of =
            |attempt| if recipe.hash == HashFunction::SipHash13 { mix(attempt) } else { 0 };
        let (attempt, geometry, built) = recipe.build(keys.max(1), |attempt| {
            hashes.iter().map(|&hash| salted(hash, salt_of(attempt))).collect()
        });
        let salt = salt_of(attempt);
        let head = Head { form: Form::Static, hashing, capacity: keys, rate: built.predicted_rate };
        Ok(Self::of(head, Part::new(kind, geometry, salt, Array::sealed(&built.array)?)))
    }

    fn of(head: Head, part: Part) -> Self {
        let prober = part.prober();
        Self { head, part, prober }
    }

    /// Whether the key may be in the filter. `false` is certain.
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        let hash = self.head.hashing.of(key.as_ref());
        self.prober.may_contain(salted(hash, self.part.salt))
    }

    /// The false-positive rate, computed from the finished bits.
    pub fn predicted_rate(&self) -> f64 {
        self.head.rate
    }

    /// The number of distinct hashes of keys.
    pub fn keys(&self) -> u64 {
        self.head.capacity
    }

    /// The kind.
    pub fn kind(&self) -> FilterKind {
        self.part.kind
    }

    /// The geometry.
    pub fn geometry(&self) -> Geometry {
        self.part.geometry
    }

    /// The length of the array in bytes.
    pub fn bytes(&self) -> usize {
        self.part.array.len()
    }
}

fn salted(hash: u64, salt: u64) -> u64 {
    if salt == 0 { hash } else { mix(hash ^ salt) }
}

impl fmt::Debug for StaticFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head, part, prober: _ } = self;
        f.debug_struct("StaticFilter").field("head", head).field("part", part).finish()
    }
}

impl Saved for StaticFilter {
    const FORM: Form = Form::Static;

    fn encode(&self) -> Vec<u8> {
        encode(&self.head, &[&self.part])
    }

    fn assemble(head: Head, mut parts: Vec<Part>) -> Result<Self, Flaw> {
        let one = parts.pop().filter(|_| parts.is_empty());
        Ok(Self::of(head, one.ok_or_else(|| Flaw::parts("one part"))?))
    }

    fn array(bytes: &[u8]) -> crate::Result<Array> {
        Array::sealed(bytes)
    }
}

saved!(StaticFilter);
mapped!(StaticFilter);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlucky_filter_is_built_again_under_a_salt() {
        let keys = || (0..110_u32).map(u32::to_le_bytes);
        for (make, many) in [
            (Hashing::keyed as fn([u8; 16]) -> Hashing, 10..90),
            (|_| Hashing::murmurhash2(), 0..1),
        ] {
            let mut again = 0;
            for seed in 0..100 {
                let size = FilterSize::Rate(0.0001);
                let filter =
                    StaticFilter::build(FilterKind::Ribbon, size, make([seed; 16]), keys());
                let StaticFilter { head, part, prober } = filter.expect("sensible");
                again += u32::from(part.salt != 0);
                let under = |hash| if part.salt == 0 { hash } else { mix(hash ^ part.salt) };
                let passes = |key: [u8; 4]| prober.may_contain(under(head.hashing.of(&key)));
                assert!(keys().all(passes), "seed {seed}, salt {}", part.salt);
            }
            assert!(many.contains(&again), "{again} of 100");
        }
    }
}
