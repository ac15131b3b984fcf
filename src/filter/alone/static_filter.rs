//! A filter of any kind over keys that are all known.

use super::format::{Flaw, Form, Head, encode};
use super::hashing::Hashing;
use super::part::{Array, Part};
use super::saved::{Saved, mapped, saved};
use super::sizing::invalid;
use crate::filter::hash::mix;
use crate::filter::kind::{FilterKind, Geometry};
use crate::filter::policy::Size;
use crate::filter::{FilterPolicy, KeyHash, Recipe};

/// How large a [`StaticFilter`] is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FilterSize {
    /// As large as it takes for this part of all absent keys to pass.
    Rate(f64),
    /// So many bits a key, fractions included, above 0 and up to 64.
    BitsPerKey(f64),
}

/// A filter of any [`FilterKind`], built once from all its keys: exactly sized, and never changed.
///
/// To be used when the keys are all there: it needs no guess of their number. Of the kinds, `Ribbon`
/// takes the fewest bits, a quarter less than `Bloom`; `Blocked` is built and asked the fastest, for
/// a few more; `Bloom` is the one that everybody else can read.
///
/// ```
/// # fn main() -> criba::Result<()> {
/// use criba::FilterKind;
/// use criba::filter::{FilterSize, Hashing, StaticFilter};
///
/// let words = ["sieve", "riddle", "strainer"];
/// let size = FilterSize::Rate(0.01);
/// let filter = StaticFilter::build(FilterKind::Ribbon, size, Hashing::random()?, words)?;
/// assert!(words.iter().all(|word| filter.contains(word)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StaticFilter {
    head: Head,
    part: Part,
}

impl StaticFilter {
    /// Builds a filter of these keys; one that comes twice counts once. Takes 8 bytes a key while it
    /// gathers them, and what the kind takes to build.
    ///
    /// # Errors
    /// If the size is not within the kind's limits, or the operating system gives no memory.
    pub fn build<K: AsRef<[u8]>>(
        kind: FilterKind,
        size: FilterSize,
        hashing: Hashing,
        keys: impl IntoIterator<Item = K>,
    ) -> crate::Result<Self> {
        check(kind, size)?;
        let mut hashes: Vec<u64> = keys.into_iter().map(|key| hashing.of(key.as_ref())).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let keys = hashes.len() as u64;
        let size = match size {
            FilterSize::Rate(rate) => Size::Rate(rate),
            FilterSize::BitsPerKey(bits) => Size::BitsPerKey(bits),
        };
        let recipe = Recipe { kind, hash: hashing.hash(), size };
        let geometry = recipe.geometry(keys.max(1));
        (kind.kind().check)(&geometry).map_err(|reason| invalid("size", reason))?;
        // At first the plain hashes; of a hash that takes no salt, always.
        let salt_of = |attempt| if recipe.hash == KeyHash::SipHash13 { mix(attempt) } else { 0 };
        let (attempt, geometry, built) = recipe.build(keys.max(1), |attempt| {
            hashes.iter().map(|&hash| salted(hash, salt_of(attempt))).collect()
        });
        let salt = salt_of(attempt);
        let head = Head { form: Form::Static, hashing, capacity: keys, rate: built.predicted_rate };
        Ok(Self { head, part: Part::new(kind, geometry, salt, Array::sealed(&built.array)?) })
    }

    /// Whether the key may be among those it was built from; "no" is certain.
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        let hash = self.head.hashing.of(key.as_ref());
        self.part.may_contain(salted(hash, self.part.salt))
    }

    /// The part of all absent keys that pass, computed from the finished bits.
    pub fn predicted_rate(&self) -> f64 {
        self.head.rate
    }

    /// The number of keys it was built from, those that hash alike counted once.
    pub fn keys(&self) -> u64 {
        self.head.capacity
    }

    /// Its kind.
    pub fn kind(&self) -> FilterKind {
        self.part.kind
    }

    /// Its shape.
    pub fn geometry(&self) -> Geometry {
        self.part.geometry
    }

    /// How it hashes.
    pub fn hashing(&self) -> Hashing {
        self.head.hashing
    }

    /// The bytes of its array.
    pub fn bytes(&self) -> usize {
        self.part.array.len()
    }
}

/// Refuses sizes that the kind does not come in, as a store's options do.
fn check(kind: FilterKind, size: FilterSize) -> crate::Result<()> {
    let policy = FilterPolicy::default().with_kind(kind);
    let (option, checked) = match size {
        FilterSize::Rate(rate) => ("rate", policy.with_rate(rate).check()),
        FilterSize::BitsPerKey(bits) if bits > 0.0 => {
            ("bits_per_key", policy.with_bits_per_key(bits).check())
        }
        FilterSize::BitsPerKey(bits) => {
            ("bits_per_key", Err(format!("a filter has more than 0 bits a key, not {bits}")))
        }
    };
    checked.map_err(|reason| invalid(option, reason))
}

fn salted(hash: u64, salt: u64) -> u64 {
    if salt == 0 { hash } else { mix(hash ^ salt) }
}

impl Saved for StaticFilter {
    const FORM: Form = Form::Static;

    fn encode(&self) -> Vec<u8> {
        encode(&self.head, &[&self.part])
    }

    fn assemble(head: Head, mut parts: Vec<Part>) -> Result<Self, Flaw> {
        let one = parts.pop().filter(|_| parts.is_empty());
        Ok(Self { head, part: one.ok_or_else(|| Flaw::parts("one part"))? })
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

    /// Asked under its salt, as the format says, a filter knows its keys.
    #[test]
    fn what_falls_badly_is_built_again_under_a_salt() {
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
                let StaticFilter { head, part } = filter.expect("sensible");
                again += u32::from(part.salt != 0);
                let under = |hash| if part.salt == 0 { hash } else { mix(hash ^ part.salt) };
                let is_known = |key: [u8; 4]| part.may_contain(under(head.hashing.of(&key)));
                assert!(keys().all(is_known), "seed {seed}, salt {}", part.salt);
            }
            assert!(many.contains(&again), "{again} of 100");
        }
    }
}
