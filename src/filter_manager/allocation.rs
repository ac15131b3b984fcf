//! Distributes bits over the filters of a store so that they avoid the most disk reads.
//!
//! Let a filter have n keys and prefixes, and its table get *a* absent probes, and let a false positive cost c reads. At the
//! false-positive rate p the table wastes a·c·p reads, and its filter takes about n·ρ·log2(1/p) bits. For a
//! given number of bits, the sum of a·c·p is least if one more bit saves as much in every table (Lagrange):
//!
//! ```text
//! pᵢ = min(1, λ · nᵢ / (aᵢ·cᵢ))        with the λ at which the filters take the given bits
//! ```
//!
//! If all levels get equally many absent probes, this is Monkey (Dayan, Athanassoulis and Idreos, *Monkey:
//! Optimal Navigable Key-Value Store*, SIGMOD 2017).

use arc_swap::ArcSwapOption;

use crate::sstable::block_bits;
use crate::sync::Arc;
use criba_filter::store::{Recipe, Size};
use criba_filter::{FilterKind, HashFunction};

/// The largest size of a filter.
pub(super) const MOST_BITS_PER_KEY: f64 = 64.0;

/// A filter with a rate below 2^−10 has at least 1024 bits: in smaller arrays double hashing often sets the
/// same bits.
const RARE: (f64, f64) = (10.0, 1024.0);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share {
    /// The keys and prefixes in the filter.
    pub(crate) hashed: u64,
    /// Absent probes × reads per false positive, in a unit that all tables share.
    pub(crate) load: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TableGroup {
    pub(crate) share: Share,
    pub(crate) tables: u64,
}

impl From<Share> for TableGroup {
    fn from(share: Share) -> Self {
        Self { share, tables: 1 }
    }
}

impl Share {
    /// log2(n / (a·c)), so that log2 p is this plus log2 λ. Infinite without load.
    fn position(&self) -> f64 {
        let load = if self.load.is_nan() { 0.0 } else { self.load.clamp(0.0, f64::MAX) };
        (self.hashed as f64).log2() - load.log2()
    }
}

/// A value of λ, which determines the bits for any table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Balance {
    kind: FilterKind,
    log2_lambda: f64,
}

impl Balance {
    /// With the λ at which the filters of these tables, headers included, take nearly `total_bits`, not more.
    pub(crate) fn new(kind: FilterKind, tables: &[TableGroup], total_bits: u64) -> Self {
        Self { kind, log2_lambda: bisect(kind, tables, total_bits).1 }
    }

    pub(crate) fn bits_per_key(&self, share: &Share) -> f64 {
        self.bits_per_key_at(share.position(), share.hashed)
    }

    fn bits_per_key_at(&self, position: f64, keys: u64) -> f64 {
        let halvings = -self.log2_lambda - position;
        let bits = curve(self.kind).bits_per_key(halvings);
        if halvings < RARE.0 { bits } else { bits.max(RARE.1 / keys as f64) }
    }
}

/// The bits per key for each table. All filters, headers included, take nearly `total_bits`, not more.
pub(crate) fn balance(kind: FilterKind, shares: &[Share], total_bits: u64) -> Vec<f64> {
    let mut bits = vec![0.0; shares.len()];
    let mut rest: Vec<usize> = (0..shares.len()).collect();
    loop {
        let of_rest: Vec<TableGroup> = rest.iter().map(|&i| shares[i].into()).collect();
        let (low, high) = bisect(kind, &of_rest, total_bits);
        let at = |log2_lambda, i: usize| Balance { kind, log2_lambda }.bits_per_key(&shares[i]);
        let taken = |i: usize, bits| filter_bits(kind, shares[i].hashed, bits);
        let mut left = total_bits as f64;
        for &i in &rest {
            bits[i] = at(high, i);
            left -= taken(i, bits[i]);
        }
        // Sizes grow in steps. The step from no filter to the smallest is large, and equal tables take it at
        // the same λ: as many take it as the bits allow. The rest of the bits goes to tables with a filter.
        let before = rest.len();
        rest.retain(|&i| {
            let step = taken(i, at(low, i)) - taken(i, bits[i]);
            if 0.0 < step && step <= left {
                left -= step;
                bits[i] = at(low, i);
            }
            step <= 0.0 || bits[i] > 0.0
        });
        if rest.len() == before {
            return bits;
        }
    }
}

/// Two values of log2 λ that differ by less than this count as equal: the rates differ by about a millionth.
const ALIKE: f64 = 1e-6;

/// Two values of log2 λ, at most [`ALIKE`] apart: with the first the filters are too large, with the second
/// they fit. If all filters fit at their largest size, both values are equal.
fn bisect(kind: FilterKind, tables: &[TableGroup], total_bits: u64) -> (f64, f64) {
    let positions: Vec<f64> = tables.iter().map(|alike| alike.share.position()).collect();
    let finite = || positions.iter().copied().filter(|position| position.is_finite());
    let lowest = finite().fold(f64::INFINITY, f64::min);
    let highest = finite().fold(f64::NEG_INFINITY, f64::max);
    if lowest > highest {
        return (0.0, 0.0); // no table has a load
    }
    let fits = |log2_lambda| {
        let balance = Balance { kind, log2_lambda };
        let bits = |(alike, position): (&TableGroup, &f64)| {
            let keys = alike.share.hashed;
            let bits_per_key = balance.bits_per_key_at(*position, keys);
            alike.tables as f64 * filter_bits(kind, keys, bits_per_key)
        };
        tables.iter().zip(&positions).map(bits).sum::<f64>() <= total_bits as f64
    };
    // At `low` each filter has the most bits, at `high` none has bits.
    let (mut low, mut high) = (-highest - curve(kind).end(), -lowest);
    if fits(low) {
        return (low, low);
    }
    while high - low > ALIKE {
        let middle = f64::midpoint(low, high);
        if fits(middle) { high = middle } else { low = middle }
    }
    (low, high)
}

/// The bits of a filter, header included; 0 for 0 bits per key.
pub(super) fn filter_bits(kind: FilterKind, keys: u64, bits_per_key: f64) -> f64 {
    if bits_per_key == 0.0 {
        return 0.0;
    }
    // The size does not depend on the hash.
    let recipe =
        Recipe { kind, hash: HashFunction::SipHash13, size: Size::BitsPerKey(bits_per_key) };
    block_bits(&recipe, keys) as f64
}

/// The bits per key of a kind by rate, for large filters. Sampled once, because some kinds find them by
/// search.
struct Curve {
    bits: Vec<f64>,
    /// The number of the sample with the most avoided reads per bit, the smallest filter in use. The bits of
    /// smaller filters avoid more reads as filters of this size in fewer tables.
    least: f64,
}

/// The number of samples for each halving of the rate.
const SAMPLES: f64 = 8.0;

impl Curve {
    fn of(kind: FilterKind) -> Self {
        const KEYS: u64 = 1 << 20;
        let count = (-kind.lowest_rate().log2() * SAMPLES) as u32;
        let rate = |i: u32| (-f64::from(i) / SAMPLES).exp2().min(0.999);
        let bits = (0..=count).map(|i| {
            let size = Size::Rate(rate(i));
            let geometry = Recipe { kind, hash: HashFunction::SipHash13, size }.geometry(KEYS);
            kind.array_bytes(&geometry) as f64 * 8.0 / KEYS as f64
        });
        let bits: Vec<f64> = bits.take_while(|&bits| bits <= MOST_BITS_PER_KEY).collect();
        let worth = |(i, bits): (u32, &f64)| (1.0 - rate(i)) / bits;
        let worths = (0..).zip(&bits).map(worth);
        // A filter of the first sample denies almost no key.
        let best = worths.enumerate().skip(1).max_by(|(_, a), (_, b)| a.total_cmp(b));
        Self { bits, least: best.map_or(0.0, |(i, _)| i as f64) }
    }

    /// log2(1 / the lowest rate).
    fn end(&self) -> f64 {
        (self.bits.len() - 1) as f64 / SAMPLES
    }

    /// The bits per key for a rate of 2^−`halvings`; 0 for rates near 1.
    fn bits_per_key(&self, halvings: f64) -> f64 {
        let at = halvings.min(self.end()) * SAMPLES;
        if at.is_nan() || at <= 0.0 || at < self.least {
            return 0.0;
        }
        let (before, after) = (self.bits[at as usize], self.bits[at.ceil() as usize]);
        before + (after - before) * at.fract()
    }
}

/// Computes the curve of each kind once, or a few times: no thread waits for another, which a fork may have left
/// behind.
fn curve(kind: FilterKind) -> Arc<Curve> {
    static CURVES: [ArcSwapOption<Curve>; FilterKind::ALL.len()] =
        [const { ArcSwapOption::const_empty() }; FilterKind::ALL.len()];
    let known = &CURVES[kind as usize];
    known.load_full().unwrap_or_else(|| {
        let curve = Arc::new(Curve::of(kind));
        known.store(Some(Arc::clone(&curve)));
        curve
    })
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const KINDS: [FilterKind; 3] = FilterKind::ALL;

    fn rate(kind: FilterKind, bits_per_key: f64) -> f64 {
        let curve = curve(kind);
        let halvings = (0..=4000).map(|i| f64::from(i) / 4000.0 * curve.end());
        let reached = halvings.take_while(|&h| curve.bits_per_key(h) <= bits_per_key);
        (-reached.last().unwrap_or(0.0)).exp2()
    }

    fn wasted(kind: FilterKind, shares: &[Share], bits: &[f64]) -> f64 {
        shares.iter().zip(bits).map(|(share, &bits)| share.load * rate(kind, bits)).sum()
    }

    fn taken(kind: FilterKind, shares: &[Share], bits: &[f64]) -> f64 {
        shares.iter().zip(bits).map(|(share, &bits)| filter_bits(kind, share.hashed, bits)).sum()
    }

    fn levels(last: u64) -> Vec<Share> {
        (0..5).map(|i| Share { hashed: last / 10_u64.pow(i), load: 1.0 }).collect()
    }

    fn each(shares: &[Share]) -> Vec<TableGroup> {
        shares.iter().map(|&share| share.into()).collect()
    }

    fn uniform(kind: FilterKind, shares: &[Share], bits: f64) -> u64 {
        taken(kind, shares, &vec![bits; shares.len()]) as u64
    }

    /// Monkey's formula is for infinite levels. Large ribbons of r columns take 1.003 · r + 0.031 bits per key. If
    /// columns could be divided among keys, they would waste 0.00148 reads per absent lookup; a mix of 9 and 10
    /// columns costs 6 % more.
    #[test]
    fn equal_loads_give_monkey() {
        let shares = levels(20_000_000);
        let even = wasted(FilterKind::Bloom, &shares, &[10.0; 5]);
        assert!((even / 0.0410 - 1.0).abs() < 0.01, "{even}");
        let monkey = 10_f64.powf(10.0 / 9.0) / 9.0 * (-10.0 * 2_f64.ln().powi(2)).exp();
        for (kind, expected) in [(FilterKind::Bloom, monkey), (FilterKind::Ribbon, 0.00148 * 1.06)]
        {
            let bits = balance(kind, &shares, uniform(kind, &shares, 10.0));
            let wasted = wasted(kind, &shares, &bits);
            println!("{kind}: {bits:.3?} bits a key waste {wasted:.5}, expected {expected:.5}");
            assert!((wasted / expected - 1.0).abs() < 0.03, "{kind}: {wasted}, not {expected}");
        }
        // A hundred tables per level instead of one: each gets a hundredth of the lookups.
        let tables: Vec<Share> = shares
            .iter()
            .flat_map(|s| vec![Share { hashed: s.hashed / 100, load: s.load / 100.0 }; 100])
            .collect();
        let bits = balance(FilterKind::Bloom, &tables, uniform(FilterKind::Bloom, &tables, 10.0));
        let by_table = wasted(FilterKind::Bloom, &tables, &bits);
        assert!((by_table / monkey - 1.0).abs() < 0.03, "{by_table}");
    }

    #[test]
    fn the_total_is_met_whatever_the_shape() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (mut shapes, mut worst) = (0, 0.0_f64);
        for kind in KINDS {
            for _ in 0..300 {
                let tables = rng.random_range(1..60);
                let shares: Vec<Share> = (0..tables)
                    .map(|_| Share {
                        hashed: rng.random_range(1000..2_000_000),
                        load: (rng.random_range(-12.0..2.0_f64)).exp2(),
                    })
                    .collect();
                let total = uniform(kind, &shares, rng.random_range(0.5..20.0));
                let bits = balance(kind, &shares, total);
                let taken = taken(kind, &shares, &bits);
                assert!(taken <= total as f64 + 0.5, "{kind}: {taken} of {total}");
                assert!(bits.iter().all(|bits| (0.0..=MOST_BITS_PER_KEY).contains(bits)));
                // Fewer bits are left than one table's step to its smallest filter, unless all filters
                // have their largest size.
                let largest = shares.iter().map(|share| share.hashed).max().unwrap_or(0);
                let least = curve(kind).least;
                let step = filter_bits(kind, largest, curve(kind).bits[least as usize]);
                let all = Balance { kind, log2_lambda: f64::NEG_INFINITY };
                let most = |s: &Share| filter_bits(kind, s.hashed, all.bits_per_key(s));
                let most: f64 = shares.iter().map(most).sum();
                let left = (total as f64).min(most) - taken;
                assert!(left <= step.max(0.002 * total as f64), "{kind}: {left} of {total} left");
                if tables > 20 {
                    worst = worst.max(left / total as f64);
                }
                shapes += 1;
            }
        }
        println!("{shapes} shapes, at most {:.3} % left of 20 tables and more", 100.0 * worst);
        assert!(shapes == 900 && worst < 0.05);
    }

    #[test]
    fn more_load_and_fewer_keys_never_mean_fewer_bits() {
        for kind in KINDS {
            let shares = levels(1_000_000);
            let balance = Balance::new(kind, &each(&shares), uniform(kind, &shares, 8.0));
            let mut before = 0.0;
            for load in (-40..10).map(|i| f64::from(i).exp2()) {
                let bits = balance.bits_per_key(&Share { hashed: 10_000, load });
                assert!(bits >= before, "{kind} at a load of {load}");
                before = bits;
            }
            for keys in (0..24).map(|i| 1 << i) {
                let bits = balance.bits_per_key(&Share { hashed: keys, load: 1.0 });
                assert!(bits <= before || keys == 1, "{kind} for {keys} keys");
                before = bits;
            }
            let more = Balance::new(kind, &each(&shares), uniform(kind, &shares, 9.0));
            assert!(shares.iter().all(|s| more.bits_per_key(s) >= balance.bits_per_key(s)));
        }
    }

    #[test]
    fn extremes_do_no_harm() {
        let keys = [1, 50, 1000, 1_000_000, 1 << 40];
        let loads = [0.0, 1e-300, 1.0, 1e300, f64::INFINITY, f64::NAN, -1.0];
        let all = || keys.iter().flat_map(|&keys| loads.map(|load| Share { hashed: keys, load }));
        for kind in KINDS {
            for total in [0, 1, 1000, 10_000_000, 1 << 45, u64::MAX] {
                let shares: Vec<Share> = all().collect();
                let bits = balance(kind, &shares, total);
                assert!(taken(kind, &shares, &bits) <= total as f64, "{kind} {total}");
                for (share, bits) in shares.iter().zip(bits) {
                    let most = MOST_BITS_PER_KEY.max(RARE.1 / share.hashed as f64);
                    assert!((0.0..=most).contains(&bits), "{kind} {share:?} {bits}");
                    let has_load = share.load > 0.0;
                    assert!(has_load || bits == 0.0, "{kind}: bits for a table without load");
                    assert!(
                        !has_load || total < u64::MAX || bits > 12.0,
                        "{kind} {share:?} {bits}"
                    );
                }
            }
            assert_eq!(balance(kind, &[], 1000), Vec::<f64>::new());
        }
    }

    #[test]
    fn the_least_filter_is_worth_its_bits() {
        for curve in KINDS.map(curve) {
            let worth = |(i, bits): (usize, &f64)| (1.0 - (-(i as f64) / SAMPLES).exp2()) / bits;
            let worths: Vec<f64> = curve.bits.iter().enumerate().map(worth).collect();
            let least = curve.least as usize;
            assert!(least > 0, "{worths:?}");
            assert!(worths.iter().skip(1).all(|&worth| worth <= worths[least]), "{worths:?}");
            assert!(curve.bits_per_key(curve.least / SAMPLES) > 0.0);
            for below in [0.999, 0.5, 0.0] {
                assert!(curve.bits_per_key(below * curve.least / SAMPLES) <= 0.0, "{below}");
            }
        }
    }

    #[test]
    fn a_block_more_goes_to_some_of_many_tables_alike() {
        let shares = vec![Share { hashed: 1000, load: 1.0 }; 100];
        let total = 100 * (20 * 512 + 1024) + 50 * 512;
        let bits = balance(FilterKind::Blocked, &shares, total);
        let taken = taken(FilterKind::Blocked, &shares, &bits);
        assert!((total as f64 - 512.0..=total as f64).contains(&taken), "{taken} of {total}");
    }

    #[test]
    fn a_few_bits_go_to_some_of_many_tables_alike() {
        let shares = vec![Share { hashed: 10_000, load: 1.0 }; 100];
        let total = 100 * (5500 + 1024);
        let bits = balance(FilterKind::Ribbon, &shares, total);
        let with_filter = bits.iter().filter(|&&bits| bits > 0.0).count();
        assert!((45..60).contains(&with_filter), "{with_filter} of 100");
        assert!(taken(FilterKind::Ribbon, &shares, &bits) > 0.98 * total as f64);
    }
}
