//! The checks of `readamp`: each compares two independent counts.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::pass::{Found, Lookup, Pass, TableProbes};
use crate::text::{counted, ratio, thousands};

/// What became of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Whether it holds; `None` if the kernel has no count, which is the only reason.
    pub holds: Option<bool>,
    /// What was compared, what is wrong, or why it is unknown.
    pub said: String,
}

impl Check {
    pub(super) fn holds(said: impl Into<String>) -> Self {
        Self { holds: Some(true), said: said.into() }
    }

    pub(super) fn fails(said: impl Into<String>) -> Self {
        Self { holds: Some(false), said: said.into() }
    }

    fn unknown(why: impl Into<String>) -> Self {
        Self { holds: None, said: why.into() }
    }

    /// Whether it holds, in a word.
    pub fn verdict(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "NOT CHECKED",
        }
    }
}

/// The checks by name, in printed order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checks(pub Vec<(&'static str, Check)>);

impl Checks {
    /// Checks four passes: absent, present, and both without filters.
    pub fn new(passes: &[Pass; 4], first_probes: &FalsePositives) -> Self {
        let [absent, present, absent_unfiltered, present_unfiltered] = passes;
        let pairs = [(absent, absent_unfiltered), (present, present_unfiltered)]
            .map(|(with, without)| (&with.lookups[..], &without.lookups[..]));
        let reads = passes.each_ref().map(PassReads::from);
        Self(vec![
            ("answers_equal", answers_equal(pairs)),
            ("no_key_missed", no_key_missed(&present.lookups)),
            ("avoided_per_lookup", avoided_per_lookup(pairs)),
            ("file_layer_agrees", file_layer_agrees(&reads)),
            ("kernel_agrees", kernel_agrees(&reads)),
            ("fpr_within_bounds", fpr_within_bounds(first_probes)),
        ])
    }

    /// The check of a name.
    pub fn get(&self, name: &str) -> Option<&Check> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, check)| check)
    }

    /// Why checks fail or were not made, by name.
    pub(super) fn reasons(&self) -> serde_json::Map<String, serde_json::Value> {
        let others = self.0.iter().filter(|(_, check)| check.holds != Some(true));
        others.map(|(name, check)| ((*name).to_owned(), check.said.clone().into())).collect()
    }

    /// Those that fail.
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

/// Every lookup had the same answer with filters and without.
pub fn answers_equal(pairs: [Pair; 2]) -> Check {
    lookup_by_lookup(pairs, "gave the same answer with filters and without", |with, without| {
        (with.found != without.found)
            .then(|| format!("{:?} with filters, {:?} without", with.found, without.found))
    })
}

/// Each lookup saved a block per true negative.
pub fn avoided_per_lookup(pairs: [Pair; 2]) -> Check {
    lookup_by_lookup(pairs, "saved a block for each filter that said no", |with, without| {
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

/// Compares each lookup with itself and reports the first that `differs`.
fn lookup_by_lookup(
    pairs: [Pair; 2],
    what: &str,
    differs: impl Fn(&Lookup, &Lookup) -> Option<String>,
) -> Check {
    let lookups: usize = pairs.iter().map(|(with, _)| with.len()).sum();
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
        0 => Check::holds(format!("{} {what}", counted(lookups as u64, "lookup"))),
        _ => {
            Check::fails(format!("it fails for {}; the first is {first}", counted(wrong, "lookup")))
        }
    }
}

/// Every present key was found with its value.
pub fn no_key_missed(present: &[Lookup]) -> Check {
    let missed = present.iter().filter(|lookup| lookup.found != Found::AsLoaded).count() as u64;
    let all = counted(present.len() as u64, "lookup");
    match missed {
        0 => Check::holds(format!("{all} of present keys found the values that were written")),
        _ => Check::fails(format!(
            "{} of {all} of present keys did not find the values that were written",
            thousands(missed)
        )),
    }
}

/// The reads of one pass, counted in three places.
#[derive(Debug, Clone)]
pub struct PassReads {
    /// The pass.
    pub name: &'static str,
    /// The sum of the lookups' explanations.
    pub explained: u64,
    /// The engine's statistics.
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
            explained: pass.explained.disk_reads,
            engine: pass.stats.total().disk_reads,
            file_layer: pass.file_reads,
            kernel: pass.kernel_reads.clone(),
        }
    }
}

/// In every pass, the file layer and the engine counted the same reads of tables, in total and for each
/// lookup.
pub fn file_layer_agrees(passes: &[PassReads]) -> Check {
    for pass in passes {
        if pass.engine != pass.file_layer || pass.explained != pass.file_layer {
            return Check::fails(format!(
                "pass {}: the engine counts {}, its lookups count {}, the file layer counts {}",
                pass.name,
                counted(pass.engine, "disk read"),
                thousands(pass.explained),
                thousands(pass.file_layer)
            ));
        }
    }
    Check::holds("the file layer counts the engine's disk reads, in every pass")
}

/// In every pass, the process made as many read system calls as the engine counted.
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

/// The probability that a sound measurement exceeds the bounds, both sides together.
const DOUBT: f64 = 0.001;

/// The false positives of keys looked up for the first time, and what their filters promise. A filter gives a
/// key the same answer every time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FalsePositives {
    /// Probes with keys that the table does not hold.
    pub probes: u64,
    /// Those that the filter passed.
    pub found: u64,
    /// How many the filters' headers predict.
    pub predicted: f64,
    /// The lower 99.9 % bound of the prediction.
    pub low: u64,
    /// The upper one.
    pub high: u64,
}

impl FalsePositives {
    /// Their number is a sum of independent draws with a chance p per table. Its tails are not heavier than
    /// those of as many draws at the mean chance (Hoeffding, *On the distribution of the number of successes
    /// in independent trials*, 1956), so the bounds of that binomial distribution are safe, and tight for
    /// similar rates.
    pub fn of<'a>(passes: impl IntoIterator<Item = &'a Pass>) -> Self {
        Self::new(passes.into_iter().flat_map(|pass| &pass.first_probes))
    }

    fn new<'a>(tables: impl IntoIterator<Item = &'a TableProbes>) -> Self {
        let (mut probes, mut found, mut predicted) = (0, 0, 0.0);
        for table in tables {
            probes += table.absent;
            found += table.false_positives;
            predicted += table.absent as f64 * table.predicted_rate;
        }
        let (low, high) = bounds(probes, ratio(predicted, probes).unwrap_or(0.0));
        Self { probes, found, predicted, low, high }
    }
}

/// The false positives lie within the 99.9 % bounds, two-sided, of what the filters' stored rates predict for
/// the probes.
pub fn fpr_within_bounds(of: &FalsePositives) -> Check {
    let said = format!(
        "{} false in {}, {} predicted; 99.9 % bounds {} to {}",
        thousands(of.found),
        counted(of.probes, "probe"),
        if of.predicted < 100.0 {
            format!("{:.1}", of.predicted)
        } else {
            thousands(of.predicted.round() as u64)
        },
        thousands(of.low),
        thousands(of.high)
    );
    if (of.low..=of.high).contains(&of.found) { Check::holds(said) } else { Check::fails(said) }
}

/// The interval with at most half of [`DOUBT`] on either side, for `draws` draws with chance `p`.
fn bounds(draws: u64, p: f64) -> (u64, u64) {
    match Binomial::new(p.clamp(0.0, 1.0), draws) {
        Ok(successes) => {
            (successes.inverse_cdf(DOUBT / 2.0), successes.inverse_cdf(1.0 - DOUBT / 2.0))
        }
        Err(_) => (0, draws), // p is no number; its filter's header would not have been accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(blocks: u64, true_negatives: u64, found: Found) -> Lookup {
        Lookup { blocks, true_negatives, found }
    }

    fn sound() -> [(Vec<Lookup>, Vec<Lookup>); 2] {
        let absent = vec![lookup(0, 3, Found::Absent), lookup(1, 2, Found::Absent)];
        let absent_unfiltered = vec![lookup(3, 0, Found::Absent), lookup(3, 0, Found::Absent)];
        let present = vec![lookup(1, 1, Found::AsLoaded)];
        let present_unfiltered = vec![lookup(2, 0, Found::AsLoaded)];
        [(absent, absent_unfiltered), (present, present_unfiltered)]
    }

    fn pairs(lookups: &[(Vec<Lookup>, Vec<Lookup>); 2]) -> [Pair<'_>; 2] {
        lookups.each_ref().map(|(with, without)| (&with[..], &without[..]))
    }

    #[test]
    fn one_other_answer_is_noticed() {
        assert_eq!(answers_equal(pairs(&sound())).holds, Some(true));
        for other in [Found::Absent, Found::Other(b"x".to_vec())] {
            let mut lookups = sound();
            lookups[1].1[0].found = other;
            assert_eq!(answers_equal(pairs(&lookups)).holds, Some(false));
        }
        let mut lookups = sound();
        lookups[0].0[1].found = Found::Other(vec![]);
        let check = answers_equal(pairs(&lookups));
        assert_eq!(check.holds, Some(false));
        assert!(check.said.contains("1 lookup; the first is absent lookup 1"), "{}", check.said);
    }

    /// One read too many and one too few: the sums are equal, the lookups differ.
    #[test]
    fn reads_are_compared_lookup_by_lookup() {
        assert_eq!(avoided_per_lookup(pairs(&sound())).holds, Some(true));
        let mut lookups = sound();
        lookups[0].0[0].blocks += 1;
        lookups[0].0[1].blocks -= 1;
        let check = avoided_per_lookup(pairs(&lookups));
        assert_eq!(check.holds, Some(false));
        assert!(check.said.contains("2 lookups"), "{}", check.said);
        let mut lookups = sound();
        lookups[1].0.clear();
        assert_eq!(avoided_per_lookup(pairs(&lookups)).holds, Some(false), "a lookup is missing");
    }

    #[test]
    fn a_missed_key_is_noticed() {
        let mut lookups = vec![lookup(1, 0, Found::AsLoaded); 3];
        assert_eq!(no_key_missed(&lookups).holds, Some(true));
        for wrong in [Found::Absent, Found::Other(b"stale".to_vec())] {
            lookups[1].found = wrong;
            assert_eq!(no_key_missed(&lookups).holds, Some(false));
        }
    }

    #[test]
    fn one_uncounted_read_is_noticed() {
        let pass =
            PassReads { name: "absent", explained: 7, engine: 7, file_layer: 7, kernel: Ok(7) };
        let check = |change: fn(&mut PassReads)| {
            let mut passes = vec![pass.clone(); 4];
            change(&mut passes[3]);
            (file_layer_agrees(&passes).holds, kernel_agrees(&passes).holds)
        };
        assert_eq!(check(|_| {}), (Some(true), Some(true)));
        assert_eq!(check(|pass| pass.file_layer += 1), (Some(false), Some(true)));
        assert_eq!(check(|pass| pass.explained -= 1), (Some(false), Some(true)));
        assert_eq!(check(|pass| pass.kernel = Ok(8)), (Some(true), Some(false)));
        assert_eq!(check(|pass| pass.kernel = Err("no /proc".into())), (Some(true), None));
        assert_eq!(Check::unknown("no /proc").verdict(), "NOT CHECKED");
    }

    #[test]
    fn a_rate_is_bounded_from_both_sides() {
        let check = |found: u64, predicted_rate| {
            let half = TableProbes { absent: 100_000, false_positives: found / 2, predicted_rate };
            let rest = TableProbes { false_positives: found - found / 2, ..half };
            fpr_within_bounds(&FalsePositives::new(&[half, rest])).holds
        };
        for (found, holds) in
            [(1854, false), (1855, true), (2000, true), (2148, true), (2149, false)]
        {
            assert_eq!(check(found, 0.01), Some(holds), "{found}");
        }
        assert_eq!(check(2000, 0.009), Some(false), "the filters promise more than they hold");
        assert_eq!(check(2000, 0.011), Some(false), "and less");
        assert_eq!(check(0, 0.0), Some(true));
        assert_eq!(check(1, 0.0), Some(false));
        assert_eq!(check(200_000, 1.0), Some(true));
        assert_eq!(fpr_within_bounds(&FalsePositives::new([])).holds, Some(true));
    }

    /// The expected values are sums of single probabilities, from another program.
    #[test]
    fn the_bounds_are_those_of_the_binomial_distribution() {
        assert_eq!(bounds(1000, 0.01), (2, 22));
        assert_eq!(bounds(200_000, 0.01), (1855, 2148));
        assert_eq!(bounds(1_000_000, 0.01), (9674, 10_329));
        assert_eq!(bounds(10_000_000, 0.01), (98_966, 101_037));
        assert_eq!(bounds(10_000_000, 0.5), (4_994_797, 5_005_203));
    }
}
