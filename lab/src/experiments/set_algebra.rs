//! Estimates of the number of keys in filters, alone, united and in common, from their bits.

use criba_cli::Result;
use criba_filter::Bloom;
use criba_report::figure::{Axis, Series};

use crate::check::{Check, mean_and_sd};
use crate::experiment::{Experiment, Notes, Setting, drawn, key};
use crate::source::Source;
use crate::{shown, theory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "set-algebra",
    title: "Sets counted, united and intersected by their bits",
    question: "How many keys does a filter hold, how many do two hold together, and how many in \
               common; and how far off is what the bits tell?",
    sources: &[Source::Wiki],
    run,
};

/// A prime number of bits: no step of double hashing has a short orbit.
const M: u64 = 10_007;
const K: u32 = 5;

/// The keys of two sets: in the first only, in the second only, in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sets {
    first: u64,
    second: u64,
    both: u64,
}

fn alike(size: u64, both: u64) -> Sets {
    Sets { first: size - both, second: size - both, both }
}

impl Sets {
    fn union(self) -> u64 {
        self.first + self.second + self.both
    }

    /// The shares of unset bits, e^(−kn/m): of the first filter, the second, and their union.
    fn unset(self) -> [f64; 3] {
        [self.first + self.both, self.second + self.both, self.union()].map(unset)
    }
}

fn unset(keys: u64) -> f64 {
    (-f64::from(K) * keys as f64 / M as f64).exp()
}

/// −(m/k) · ln of a share of unset bits.
fn keys_of(unset: f64) -> f64 {
    -(M as f64) / f64::from(K) * unset.ln()
}

/// The standard deviation of a filter's estimate: √(m · (e^ρ − 1 − ρ))/k, with ρ = kn/m.
fn sd_of_size(keys: u64) -> f64 {
    let load = -unset(keys).ln();
    (M as f64 * (load.exp_m1() - load)).sqrt() / f64::from(K)
}

/// The mean of a filter's estimate: the logarithm adds half of its second derivative times the variance of
/// the bits, (e^ρ − 1 − ρ)/(2k).
fn mean_of_size(keys: u64) -> f64 {
    let load = -unset(keys).ln();
    keys_of(1.0 - theory::fill(M, K, keys)) + (load.exp_m1() - load) / (2.0 * f64::from(K))
}

/// The standard deviation of the size in common, by inclusion and exclusion. With Poisson probes bits are
/// independent, and the logarithms of the shares a, b of unset bits and u of the union have the covariances
/// (u/(ab) − 1)/m, (1/a − 1)/m and (1/b − 1)/m. That exactly c keys are in common subtracts c/k: (m/k²) ·
/// (1/u − 1/a − 1/b + 2u/(ab) − 1) − c/k.
fn sd_in_common(sets: Sets) -> f64 {
    let ([a, b, u], k) = (sets.unset(), f64::from(K));
    let bits = 1.0 / u - 1.0 / a - 1.0 / b + 2.0 * u / (a * b) - 1.0;
    (M as f64 / (k * k) * bits - sets.both as f64 / k).max(0.0).sqrt()
}

struct Told {
    first: f64,
    union: f64,
    /// By inclusion and exclusion.
    in_common: f64,
    /// How many bits both have set.
    in_both: f64,
    /// Whether the union equals the filter of both sets.
    same_bits: bool,
}

fn measure(setting: &Setting, sets: Sets, number: u64) -> Result<Told> {
    let hashing = setting.hashing("filters", sets.both << 40 | sets.union() << 20 | number);
    let mut first = Bloom::with_geometry(M, K)?.with_hashing(hashing)?;
    let mut second = first.empty_like()?;
    let (alone, other, both) = (0..sets.first, 0..sets.second, 0..sets.both);
    first.extend(alone.clone().map(|i| key(0, i)).chain(both.clone().map(|i| key(2, i))));
    second.extend(other.clone().map(|i| key(1, i)).chain(both.clone().map(|i| key(2, i))));
    let mut all = first.empty_like()?;
    all.extend(alone.map(|i| key(0, i)).chain(other.map(|i| key(1, i))));
    all.extend(both.map(|i| key(2, i)));
    let mut united = first.clone();
    united.union(&second)?;
    let in_both = (first.bits_set() + second.bits_set() - united.bits_set()) as f64;
    Ok(Told {
        first: first.estimated_len(),
        union: united.estimated_len(),
        // The library's does not go below 0; where the truth is 0 the mean would be above it.
        in_common: first.estimated_len() + second.estimated_len() - united.estimated_len(),
        in_both,
        same_bits: united.to_bytes() == all.to_bytes(),
    })
}

fn pairs(setting: &Setting) -> u64 {
    setting.pick(2500, 20_000)
}

fn many(setting: &Setting, sets: Sets) -> Result<Vec<Told>> {
    let numbers: Vec<u64> = (0..pairs(setting)).collect();
    setting.each("pairs of filters", &numbers, |&number| measure(setting, sets, number))
}

fn draws(told: &[Told], of: impl Fn(&Told) -> f64) -> Vec<f64> {
    told.iter().map(of).collect()
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    sizes(setting, notes)?;
    overlaps(setting, notes)?;
    notes.measured("keys in common", "the same with m/k", "k is the number of probes");
    Ok(())
}

/// Estimates of filters from nearly empty to far beyond their size.
fn sizes(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let design = (M as f64 / f64::from(K) * std::f64::consts::LN_2) as u64; // half of the bits set
    let (mut scatter, mut offset) = (Vec::new(), Vec::new());
    for size in [design / 4, design, 2 * design] {
        let told = many(setting, alike(size, 0))?;
        let of = [
            ("filter", size, draws(&told, |told| told.first)),
            ("union", 2 * size, draws(&told, |told| told.union)),
        ];
        for (what, keys, estimates) in of {
            let quantity = format!("keys estimated of a {what} of {}", shown(keys as f64));
            let formula = "the mean of −(m/k) · ln(1 − X/m): n + (e^ρ − 1 − ρ)/(2k)";
            let check = Check::mean(quantity, formula, mean_of_size(keys), &estimates);
            notes.check(check.at("size"));
            let (mean, sd) = mean_and_sd(&estimates);
            let fullness = keys as f64 / design as f64;
            scatter.push((fullness, 100.0 * sd / keys as f64));
            offset.push((fullness, 100.0 * (mean / keys as f64 - 1.0).abs()));
        }
    }
    let theory = (20..=820)
        .step_by(10)
        .map(|i| i * design / 200)
        .map(|keys| (keys as f64 / design as f64, 100.0 * sd_of_size(keys) / keys as f64));
    notes.figure(drawn(
        "size",
        [
            "How far off a filter's estimate of its keys is",
            "How well do its bits tell how many keys a filter holds?",
            "n = −(m/k) · ln(1 − X/m) for X bits set (Swamidass and Baldi, 2007), with the \
             standard deviation √(m · (e^ρ − 1 − ρ))/k, ρ = kn/m.",
            &format!(
                "{} filters of {} bits and {K} probes for each mark, under different hashes.",
                shown(pairs(setting) as f64),
                shown(M as f64)
            ),
        ],
        [
            Axis::linear("keys, in those that set half of the bits", ""),
            Axis::linear("error of the estimate", "% of the keys"),
        ],
        vec![
            Series::line("standard deviation in theory", 0, theory.collect()),
            Series::marks("standard deviation, measured", 0, scatter),
            Series::marks("error of the mean, measured", 1, offset),
        ],
    ));
    Ok(())
}

fn overlaps(setting: &Setting, notes: &mut Notes) -> Result<()> {
    const SIZE: u64 = 1000;
    let (mut means, mut ands, mut same) = (vec![], vec![], 0);
    let shares = [0_u64, 10, 25, 50, 75, 100];
    for percent in shares {
        let sets = alike(SIZE, SIZE * percent / 100);
        let told = many(setting, sets)?;
        same += told.iter().filter(|told| told.same_bits).count();
        let truth = sets.both as f64;
        let in_common = draws(&told, |told| told.in_common);
        let quantity =
            format!("keys in common estimated of {truth}, in sets of {}", shown(SIZE as f64));
        let formula = "the mean of n(A) + n(B) − n(A∪B), each from its bits";
        let theory = 2.0 * mean_of_size(SIZE) - mean_of_size(sets.union());
        let check = Check::mean(quantity, formula, theory, &in_common).at("overlap");
        // Of nothing in common the figure is 0, and a fifth of that nothing too.
        notes.check(if sets.both == 0 { check.as_illustration() } else { check });
        let in_both = draws(&told, |told| told.in_both);
        let quantity = format!("bits set in both, of {truth} keys in common");
        let formula = "m · (X(A) + X(B) − X(A∪B)), X the share of bits set";
        let [one, all] = [SIZE, sets.union()].map(|keys| theory::fill(M, K, keys));
        let check = Check::mean(quantity, formula, M as f64 * (2.0 * one - all), &in_both);
        notes.check(check.at("overlap"));
        let (mean, _) = mean_and_sd(&in_common);
        means.push((percent as f64, mean));
        ands.push((percent as f64, keys_of(1.0 - mean_and_sd(&in_both).0 / M as f64)));
    }
    let formula = "every one";
    let all = (pairs(setting) * shares.len() as u64) as f64;
    notes.check(
        Check::exact(
            "unions that are bit by bit the filter of both sets",
            formula,
            all,
            same as f64,
        )
        .at("overlap"),
    );

    let along = |of: &dyn Fn(Sets) -> f64| {
        (0..=100)
            .map(|percent| {
                (f64::from(percent), of(alike(SIZE, SIZE * u64::from(percent as u32) / 100)))
            })
            .collect()
    };
    let measured = format!(
        "{} pairs of filters of {} keys each for every mark, {} bits and {K} probes.",
        shown(pairs(setting) as f64),
        shown(SIZE as f64),
        shown(M as f64)
    );
    notes.figure(drawn(
        "overlap",
        [
            "Keys in common, by inclusion and exclusion and by AND",
            "What do the bits of two filters tell of the keys that both hold?",
            "n(A) + n(B) − n(A∪B) is right in the mean. The bits that both have set are not those \
             of a filter of the intersection: of the others, many meet by chance. Taken for such, \
             they tell −(m/k) · ln(a + b − u), with a, b and u the shares unset in A, B and A∪B.",
            &measured,
        ],
        [Axis::linear("keys in common", "% of each set"), Axis::linear("keys told", "")],
        vec![
            Series::line("truth", 0, along(&|sets| sets.both as f64)),
            Series::marks("inclusion and exclusion, mean", 0, means),
            Series::line(
                "AND of the bits, theory",
                1,
                along(&|sets| {
                    let [a, b, u] = sets.unset();
                    keys_of(a + b - u)
                }),
            ),
            Series::marks("AND of the bits, from their mean number", 1, ands),
        ],
    ));
    let least = alike(SIZE, 0);
    notes.measured(
        "error of the number in common",
        format!("± {:.0} keys of {SIZE}, where there are none", sd_in_common(least)),
        "standard deviation; a smaller intersection is not told from none",
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_itself_in_common_with_itself() {
        for keys in [100, 2000, 8000] {
            let (one, common) = (sd_of_size(keys), sd_in_common(alike(keys, keys)));
            assert!((one / common - 1.0).abs() < 1e-9, "{one} and {common}");
        }
    }
}
