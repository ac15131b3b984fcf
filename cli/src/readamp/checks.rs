//! The checks of `readamp`: each compares two counts that were come by in different ways.

use serde::ser::{Serialize, SerializeMap, Serializer};
use statrs::distribution::{Binomial, Discrete};

use super::measure::{Found, Lookup, Pass, TableProbes};
use crate::text::{counted, thousands};

/// What became of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Whether it holds; `None` if that cannot be told.
    pub holds: Option<bool>,
    /// What was compared, what is wrong, or why it cannot be told.
    pub said: String,
}

impl Check {
    fn holds(said: impl Into<String>) -> Self {
        Self { holds: Some(true), said: said.into() }
    }

    fn fails(said: impl Into<String>) -> Self {
        Self { holds: Some(false), said: said.into() }
    }

    fn unknown(why: impl Into<String>) -> Self {
        Self { holds: None, said: why.into() }
    }
}

/// The checks by name, in the order in which they are printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checks(pub Vec<(&'static str, Check)>);

impl Checks {
    /// Makes all checks of four passes: absent, present, and both without filters.
    pub fn new(passes: &[Pass; 4]) -> Self {
        let [absent, present, absent_unfiltered, present_unfiltered] = passes;
        let pairs = [(absent, absent_unfiltered), (present, present_unfiltered)]
            .map(|(with, without)| (&with.lookups[..], &without.lookups[..]));
        let reads = passes.each_ref().map(PassReads::from);
        let probes: Vec<_> =
            [absent, present].iter().flat_map(|pass| pass.first_probes.iter().copied()).collect();
        Self(vec![
            ("answers_equal", answers_equal(pairs)),
            ("no_key_missed", no_key_missed(&present.lookups)),
            ("avoided_per_lookup", avoided_per_lookup(pairs)),
            ("file_layer_agrees", file_layer_agrees(&reads)),
            ("kernel_agrees", kernel_agrees(&reads)),
            ("fpr_within_bounds", fpr_within_bounds(&probes)),
        ])
    }

    /// The check of a name.
    pub fn get(&self, name: &str) -> Option<&Check> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, check)| check)
    }

    /// Those that do not hold.
    pub fn failed(&self) -> impl Iterator<Item = &(&'static str, Check)> {
        self.0.iter().filter(|(_, check)| check.holds == Some(false))
    }
}

impl Serialize for Checks {
    /// A map from names to true, false or null.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, check) in &self.0 {
            map.serialize_entry(name, &check.holds)?;
        }
        map.end()
    }
}

/// The same lookups with filters and without.
pub type Pair<'a> = (&'a [Lookup], &'a [Lookup]);

/// Every lookup, with filters and without, gave the same answer.
pub fn answers_equal(pairs: [Pair; 2]) -> Check {
    let what = "with filters and without, all lookups gave the same answers";
    lookup_by_lookup(pairs, what, |with, without| {
        (with.found != without.found)
            .then(|| format!("{:?} with filters, {:?} without", with.found, without.found))
    })
}

/// Every single lookup saved as many blocks as filters told it no.
pub fn avoided_per_lookup(pairs: [Pair; 2]) -> Check {
    let what = "each lookup saved one block for each filter that said no";
    lookup_by_lookup(pairs, what, |with, without| {
        (without.blocks != with.blocks + with.true_negatives).then(|| {
            format!(
                "{} without filters, {} and {} with them",
                counted(without.blocks, "block"),
                counted(with.blocks, "block"),
                counted(with.true_negatives, "true negative")
            )
        })
    })
}

/// Compares each lookup with itself, and tells the first that `differs`.
fn lookup_by_lookup(
    pairs: [Pair; 2],
    what: &str,
    differs: impl Fn(&Lookup, &Lookup) -> Option<String>,
) -> Check {
    let lookups: usize = pairs.iter().map(|(with, _)| with.len()).sum();
    if lookups == 0 {
        return Check::unknown("no lookup was made");
    }
    let mut wrong = 0;
    let mut first = String::new();
    for (kind, (with, without)) in ["absent", "present"].into_iter().zip(pairs) {
        if with.len() != without.len() {
            return Check::fails(format!("lookups are missing for {kind} keys"));
        }
        for (number, (with, without)) in with.iter().zip(without).enumerate() {
            if let Some(how) = differs(with, without) {
                wrong += 1;
                if wrong == 1 {
                    first = format!("{kind} lookup {number}: {how}");
                }
            }
        }
    }
    match wrong {
        0 => Check::holds(what),
        _ => {
            Check::fails(format!("it fails for {}; the first is {first}", counted(wrong, "lookup")))
        }
    }
}

/// Every present key was found, with the value that was loaded.
pub fn no_key_missed(present: &[Lookup]) -> Check {
    let missed = present.iter().filter(|lookup| lookup.found != Found::AsLoaded).count() as u64;
    match (present.len(), missed) {
        (0, _) => Check::unknown("no present key was looked up"),
        (_, 0) => Check::holds("every present key was found with its value"),
        (all, missed) => Check::fails(format!(
            "{} of {} present keys were not found with their values",
            thousands(missed),
            thousands(all as u64)
        )),
    }
}

/// The reads of one pass, counted in three places.
#[derive(Debug, Clone)]
pub struct PassReads {
    /// The pass.
    pub name: &'static str,
    /// What the lookups told, summed.
    pub told: u64,
    /// What the engine's statistics say.
    pub engine: u64,
    /// Calls of the file layer.
    pub file_layer: u64,
    /// Read system calls, or why they are unknown.
    pub kernel: Result<u64, String>,
}

impl From<&Pass> for PassReads {
    fn from(pass: &Pass) -> Self {
        Self {
            name: pass.name,
            told: pass.told.disk_reads,
            engine: pass.stats.total().disk_reads,
            file_layer: pass.file_reads,
            kernel: pass.kernel_reads.clone(),
        }
    }
}

/// In every pass, the file layer was asked to read from tables as often as the engine says, by its
/// statistics and lookup by lookup.
pub fn file_layer_agrees(passes: &[PassReads]) -> Check {
    for pass in passes {
        if pass.engine != pass.file_layer || pass.told != pass.file_layer {
            return Check::fails(format!(
                "pass {}: the engine counts {}, its lookups tell of {}, the file layer counts {}",
                pass.name,
                counted(pass.engine, "disk read"),
                thousands(pass.told),
                thousands(pass.file_layer)
            ));
        }
    }
    Check::holds("the file layer counts the engine's disk reads, in every pass")
}

/// In every pass, the process made as many read system calls as the engine says.
pub fn kernel_agrees(passes: &[PassReads]) -> Check {
    for pass in passes {
        match &pass.kernel {
            Err(why) => return Check::unknown(why),
            Ok(kernel) if *kernel != pass.engine => {
                return Check::fails(format!(
                    "pass {}: the engine counts {}, the kernel counts {}",
                    pass.name,
                    counted(pass.engine, "disk read"),
                    counted(*kernel, "read call")
                ));
            }
            Ok(_) => {}
        }
    }
    Check::holds("the kernel counts the engine's disk reads, in every pass")
}

/// The probability that a sound measurement falls outside the bounds, both sides together.
const DOUBT: f64 = 0.001;

/// The false positives lie within the 99.9 % bounds, on both sides, of what the filters' stored
/// rates predict for the probes made.
///
/// The number of false positives is a sum of independent yes-or-no draws whose chances p differ from
/// table to table. Its tails are never heavier than those of as many draws at the mean chance
/// (Hoeffding, *On the distribution of the number of successes in independent trials*, 1956), so
/// bounds of that one binomial distribution are safe ones, and with rates as alike as those of one
/// store's filters also tight.
pub fn fpr_within_bounds(tables: &[TableProbes]) -> Check {
    let probes: u64 = tables.iter().map(|table| table.absent).sum();
    let found: u64 = tables.iter().map(|table| table.false_positives).sum();
    let expected: f64 = tables.iter().map(|table| table.absent as f64 * table.predicted_rate).sum();
    if probes == 0 {
        return Check::unknown("no filter was asked for a key that its table does not hold");
    }
    let (low, high) = bounds(probes, expected / probes as f64);
    let said = format!(
        "{} false positives, {expected:.1} predicted; 99.9 % bounds {} to {}",
        thousands(found),
        thousands(low),
        thousands(high)
    );
    if (low..=high).contains(&found) { Check::holds(said) } else { Check::fails(said) }
}

/// The narrowest interval that leaves at most half of [`DOUBT`] on either side of `draws` draws with
/// chance `p`, summed from the far end of each tail.
fn bounds(draws: u64, p: f64) -> (u64, u64) {
    let Ok(distribution) = Binomial::new(p.clamp(0.0, 1.0), draws) else { return (0, draws) };
    let mean = draws as f64 * p;
    // Beyond this lies less than 1e-20, which no sum of halves of a thousandth will miss.
    let reach = 12.0 * (mean * (1.0 - p)).max(0.0).sqrt() + 30.0;
    let first = (mean - reach).max(0.0) as u64;
    let last = draws.min((mean + reach).ceil() as u64);
    // Where a tail, summed from its far end, outgrows its share of the doubt.
    let mut tails = [0.0; 2];
    let mut outgrows = |side: usize, count| {
        tails[side] += distribution.pmf(count);
        tails[side] > DOUBT / 2.0
    };
    let low = (first..=last).find(|&count| outgrows(0, count));
    let high = (first..=last).rev().find(|&count| outgrows(1, count));
    (low.unwrap_or(first), high.unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::DiscreteCDF;

    #[test]
    fn probe_statrs() {
        for (n, p) in [
            (1000, 0.01),
            (200_000, 0.01),
            (1_000_000, 0.01),
            (10_000_000, 0.01),
            (10_000_000, 0.5),
        ] {
            let d = Binomial::new(p, n).unwrap();
            let (lo, hi) = bounds(n, p);
            println!(
                "{n} {p}: {lo} {hi} cdf(lo-1)={} cdf(lo)={} sf(hi)={} sf(hi-1)={}",
                d.cdf(lo.saturating_sub(1)),
                d.cdf(lo),
                d.sf(hi),
                d.sf(hi - 1)
            );
        }
    }
}
