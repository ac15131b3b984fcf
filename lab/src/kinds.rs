//! Theory of the kinds of filters of stores, and of the allocation of bits.

use criba::FilterKind;

use super::theory;

/// The rate of a large filter of these bits per key.
pub fn rate_at(kind: FilterKind, bits_per_key: f64) -> f64 {
    if bits_per_key <= 0.0 {
        return 1.0;
    }
    match kind {
        FilterKind::Bloom => {
            let best = bits_per_key * std::f64::consts::LN_2;
            let probes = [best.floor().max(1.0), best.ceil().max(1.0)];
            let rates = probes.map(|k| theory::rate_at_ratio(bits_per_key, k as u32));
            rates[0].min(rates[1])
        }
        // A ribbon has about 1.003 rows a key, and two bits for each 64 rows; where columns are not whole,
        // the one that is left is in a part of the rows.
        _ => {
            let columns = (bits_per_key - 0.031) / 1.003;
            if columns < 1.0 { 1.0 } else { ribbon_rate(columns.floor(), columns.fract()) }
        }
    }
}

/// 2^−r, the rate of a ribbon of r columns; a part `wide` has one more.
fn ribbon_rate(columns: f64, wide: f64) -> f64 {
    (-columns).exp2() * (1.0 - wide / 2.0)
}

/// A table in the allocation: its keys, and its absent probes per lookup.
pub type Share = (f64, f64);

/// The wasted reads per absent lookup with equal bits per key.
pub fn uniform(kind: FilterKind, shares: &[Share], bits_per_key: f64) -> f64 {
    shares.iter().map(|(_, load)| load).sum::<f64>() * rate_at(kind, bits_per_key)
}

/// The least wasted reads per absent lookup with these mean bits per key.
///
/// By Lagrange's multiplier: each table takes the bits b that minimise load · p(b) + λ · keys · b, and λ
/// makes the total right. For p = 2^(−b·ln 2), rates are in proportion to keys/load (Dayan, Athanassoulis and
/// Idreos, *Monkey*, SIGMOD 2017); the method holds for any p.
pub fn balanced(kind: FilterKind, shares: &[Share], bits_per_key: f64) -> f64 {
    let sizes = (0..=600).map(|i| f64::from(i) * 0.1);
    let sizes: Vec<(f64, f64)> = sizes.map(|bits| (bits, rate_at(kind, bits))).collect();
    let keys: f64 = shares.iter().map(|(keys, _)| keys).sum();
    let at = |lambda: f64| {
        let best = |&(keys, load): &Share| {
            let cost = |&(bits, rate): &(f64, f64)| load * rate + lambda * keys * bits;
            let least = sizes.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
            least.map_or((0.0, load), |(bits, rate)| (keys * bits, load * rate))
        };
        shares.iter().map(best).fold((0.0, 0.0), |(b, w), (bits, wasted)| (b + bits, w + wasted))
    };
    let (mut low, mut high) = (-80.0_f64, 10.0_f64); // of log2 λ
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if at(middle.exp2()).0 > keys * bits_per_key { low = middle } else { high = middle }
    }
    // Between two λ that are neighbours sizes jump; what is in between is shared out.
    let ((more, less_wasted), (less, more_wasted)) = (at(low.exp2()), at(high.exp2()));
    let part = if more > less { (keys * bits_per_key - less) / (more - less) } else { 0.0 };
    more_wasted + part * (less_wasted - more_wasted)
}

#[cfg(test)]
mod tests {
    use criba_filter::{FilterSize, Hashing, StaticFilter};

    use super::*;
    use crate::experiment::key;

    #[test]
    fn rates_are_those_of_large_finished_filters() {
        for kind in [FilterKind::Bloom, FilterKind::Ribbon] {
            for bits in [4.0, 7.75, 10.0] {
                let keys = (0..300_000).map(|i| key(0, i));
                let hashing = Hashing::keyed([3; 16]);
                let size = FilterSize::BitsPerKey(bits);
                let filter = StaticFilter::build(kind, size, hashing, keys).expect("sound");
                let (theory, finished) = (rate_at(kind, bits), filter.predicted_rate());
                println!("{kind}, {bits} bits a key: {theory:.5}, finished {finished:.5}");
                assert!((theory / finished - 1.0).abs() < 0.05, "{kind}, {bits} bits");
            }
        }
    }

    /// Five levels, each a tenth of the next: Monkey's closed form at 10 bits per key.
    #[test]
    fn bits_are_shared_out_as_monkey_does() {
        let shares: Vec<Share> = (0..5).map(|i| (10_f64.powi(6 - i), 1.0)).collect();
        let monkey = 10_f64.powf(10.0 / 9.0) / 9.0 * (-10.0 * 2_f64.ln().powi(2)).exp();
        let best = balanced(FilterKind::Bloom, &shares, 10.0);
        assert!((best / monkey - 1.0).abs() < 0.03, "{best} and {monkey}");
        for kind in [FilterKind::Bloom, FilterKind::Ribbon] {
            for bits in 2..=16 {
                let (all, best) = (
                    uniform(kind, &shares, f64::from(bits)),
                    balanced(kind, &shares, f64::from(bits)),
                );
                assert!(best <= all * 1.01, "{kind} at {bits}: {best} and {all}");
            }
        }
    }
}
