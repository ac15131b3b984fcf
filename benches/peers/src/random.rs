//! Pseudorandom numbers from a seed: all stores get the same keys in the same order.

/// SplitMix64, fast and good enough to choose keys.
#[derive(Debug, Clone)]
pub struct Random(u64);

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ STEP))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`, nearly uniform for bounds far below 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// From 0 up to, not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts a slice into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// A permutation; every output bit depends on every input bit.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Ranks by Zipf's law, the first the most frequent, by the method of Gray and others ("Quickly generating
/// billion-record synthetic databases", 1994), as in YCSB.
#[derive(Debug)]
pub struct Zipf {
    n: f64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    pub fn new(n: u64, theta: f64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let zeta = zeta_of(n);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Self { n: n as f64, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    /// A rank from 0 to n - 1.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let rank = self.n * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.n as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_everything_and_follows_from_the_seed() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..1000).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
    }

    #[test]
    fn zipf_draws_the_first_as_often_as_the_law_says() {
        let (n, draws) = (1000, 200_000);
        let zipf = Zipf::new(n, 0.99);
        let mut random = Random::new(7);
        let mut counts = vec![0u32; n as usize];
        for _ in 0..draws {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        let zeta: f64 = (1..=n).map(|i| (i as f64).powf(-0.99)).sum();
        let expected = f64::from(draws) / zeta;
        assert!((f64::from(counts[0]) - expected).abs() < 0.05 * expected, "{}", counts[0]);
        assert!(counts[0] > counts[1] && counts[1] > counts[10] && counts[10] > counts[999]);
    }
}
