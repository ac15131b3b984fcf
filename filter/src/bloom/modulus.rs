//! Remainders without division (Barrett, *Implementing the RSA Public Key Encryption Algorithm*, CRYPTO 1986).

/// A divisor, at least 1, with its reciprocal ⌊(2⁶⁴ − 1)/m⌋. The default is 0, and divides nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Modulus {
    m: u64,
    reciprocal: u64,
}

impl Modulus {
    /// The divisor `m`; 1 for 0.
    pub fn of(m: u64) -> Self {
        let m = m.max(1);
        Self { m, reciprocal: u64::MAX / m }
    }

    /// `h` mod m. The estimated quotient ⌊h · reciprocal / 2⁶⁴⌋ is too small by at most 1: the reciprocal is
    /// too small by at most 1 in 2⁶⁴/m, and h is below 2⁶⁴.
    #[inline]
    pub fn remainder(self, h: u64) -> u64 {
        let quotient = (u128::from(h) * u128::from(self.reciprocal)) >> 64;
        self.reduced(h - quotient as u64 * self.m)
    }

    /// (`a` + `b`) mod m, for `a` and `b` below m, which is at most 2⁶³.
    #[inline]
    pub(crate) fn sum(self, a: u64, b: u64) -> u64 {
        self.reduced(a + b)
    }

    /// `x` mod m for `x` below 2m. Without a branch, which would be mispredicted half of the time.
    #[inline]
    fn reduced(self, x: u64) -> u64 {
        x.min(x.wrapping_sub(self.m))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    #[test]
    fn remainders_are_those_of_division() {
        let near = |m: u64| [m.saturating_sub(1), m, m.saturating_add(1)];
        let divisors = (1..2000)
            .chain((0..64).flat_map(|i| near(1 << i)))
            .chain((0..2000).map(|i| mix(i) >> (i % 64)))
            .chain(near(u64::MAX));
        let mut compared = 0;
        for m in divisors.filter(|&m| m > 0) {
            let modulus = Modulus::of(m);
            let most = u64::MAX / m * m; // the greatest multiple
            let hashes = (0..50).map(|i| mix(i ^ m)).chain(near(most)).chain(near(m)).chain([
                0,
                u64::MAX,
                u64::MAX - 1,
            ]);
            for h in hashes {
                assert_eq!(modulus.remainder(h), h % m, "{h} mod {m}");
                compared += 1;
            }
        }
        assert!(compared > 200_000, "{compared}");
        let modulus = Modulus::of(10);
        assert_eq!([(0, 0), (4, 5), (4, 6), (9, 9)].map(|(a, b)| modulus.sum(a, b)), [0, 9, 0, 8]);
    }
}
