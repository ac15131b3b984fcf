//! What the texts claim and ask: the rows of docs/lab.md, read from there, so that document, page and checks
//! cannot differ.

use super::check::{Check, Law};
use super::experiment::Size;
use super::run::Run;
use super::source::Source;

/// The seed of the document's figures.
const SEED: u64 = 1;
const DOCUMENT: &str = include_str!("../../docs/lab.md");

/// A claim of a text, or an exercise of the notebook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The number of an exercise, and the texts with their lines: "P 54, W 13".
    pub place: String,
    /// What the text says or asks.
    pub says: String,
    /// The figure of the text; "" if it has none.
    pub theirs: String,
    /// What was measured or derived.
    pub ours: String,
    /// Where: a check, an experiment, or a derivation.
    pub answer: String,
    /// Whether it holds; `None` for an exercise, and where that depends on the machine.
    pub holds: Option<bool>,
    /// Whether the page's summary shows it.
    pub headline: bool,
}

/// All rows in the order of the document.
pub fn all() -> Vec<Claim> {
    DOCUMENT.lines().filter_map(Claim::parse).collect()
}

impl Claim {
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<_> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
        let headline = cells[0].starts_with("**");
        let plain = |cell: &str| cell.replace("**", "");
        let place = plain(cells[0]);
        if !place.contains(|c: char| c.is_ascii_digit()) {
            return None; // the head of a table
        }
        let (says, theirs, ours, answer) = match cells[..] {
            [_, says, theirs, ours, answer] => (says, theirs, ours, answer),
            [_, says, ours, answer] => (says, "", ours, answer),
            _ => return None,
        };
        let holds = match ours.chars().next() {
            Some('✓') => Some(true),
            Some('✗') => Some(false),
            _ => None,
        };
        let [says, theirs, ours, answer] = [says, theirs, ours, answer].map(plain);
        Some(Self { place, says, theirs, ours, answer, holds, headline })
    }

    pub(crate) fn is_exercise(&self) -> bool {
        self.place.starts_with(['A', 'T', 'Y'])
    }

    pub(crate) fn is_tried(&self) -> bool {
        !self.is_exercise() && self.answer != "not tried"
    }

    pub(crate) fn is_of(&self, source: Source) -> bool {
        let letter = source.letter();
        self.place.split([',', ' ']).any(|word| word == letter)
    }

    /// Experiment and quantity.
    fn check(&self) -> Option<(&str, &str)> {
        self.answer.split('`').nth(1)?.split_once(": ")
    }

    pub(crate) fn is_in_percent(&self) -> bool {
        self.figure().is_some_and(|(_, is_percent)| is_percent)
    }

    /// The first number of `ours`, a percentage as a share, and whether it is one.
    fn figure(&self) -> Option<(f64, bool)> {
        let words: Vec<_> = self.ours.split_whitespace().collect();
        let number = |word: &str| {
            let word = word.trim_matches(['(', ')', ';', ':', ',', '.']).replace(',', "");
            word.parse::<f64>().ok()
        };
        let (at, found) =
            words.iter().enumerate().find_map(|(at, word)| Some((at, number(word)?)))?;
        let is_percent = words.get(at + 1).is_some_and(|next| next.starts_with('%'));
        Some((if is_percent { found / 100.0 } else { found }, is_percent))
    }
}

impl Run {
    /// The check that decides a claim, if its experiment was made.
    pub fn check_of(&self, claim: &Claim) -> Option<&Check> {
        let (experiment, quantity) = claim.check()?;
        let mut checks = self.checks();
        let found = checks.find(|(name, check)| *name == experiment && check.quantity == quantity);
        found.map(|(_, check)| check)
    }

    /// What is wrong in rows, by a quick run: checks that do not exist or decide nothing, and figures out of
    /// bounds. Exact counts are those of one seed.
    pub fn stale(&self, claims: &[Claim]) -> Vec<String> {
        if self.size == Size::Full {
            return Vec::new();
        }
        let made = |name: &str| self.outcomes.iter().any(|made| made.experiment.name == name);
        let denies = |claim: &Claim| {
            let (experiment, quantity) = claim.check()?;
            let problem = match self.check_of(claim) {
                None if !made(experiment) => return None,
                None => format!("there is no check {quantity:?}"),
                Some(check) if !check.decides => format!("{quantity:?} decides nothing"),
                Some(check) => {
                    let (low, high) = check.law.bounds(check.theory, self.doubt());
                    let is_anothers = check.law == Law::Exact && self.seed != SEED;
                    let figure = claim.figure();
                    if is_anothers
                        || figure.is_some_and(|(figure, _)| (low..=high).contains(&figure))
                    {
                        return None;
                    }
                    format!("{quantity:?} is within {low} to {high}, not {:?}", claim.ours)
                }
            };
            Some(format!("docs/lab.md, {}: {experiment}: {problem}", claim.place))
        };
        claims.iter().filter_map(denies).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exercise_is_measured_or_derived_or_out_of_reach_with_a_reason() {
        let exercises: Vec<_> = all().into_iter().filter(Claim::is_exercise).collect();
        let numbers: Vec<_> =
            exercises.iter().filter_map(|one| one.place.split([',', ' ']).next()).collect();
        let numbered = [("A", 17), ("T", 9), ("Y", 12)]
            .map(|(kind, last)| (1..=last).map(move |i| format!("{kind}{i}")));
        assert_eq!(numbers, numbered.into_iter().flatten().collect::<Vec<_>>());
        let answered = |one: &&Claim| one.check().is_some() || one.answer.contains("derived");
        let beyond: Vec<_> = exercises.iter().filter(|one| !answered(one)).collect();
        assert!(
            beyond.len() <= 4 && beyond.iter().all(|one| one.answer == "out of reach"),
            "{beyond:?}"
        );
    }

    #[test]
    fn each_text_has_claims_and_one_headline() {
        for source in Source::TEXTS {
            let claims = all();
            let of = || claims.iter().filter(|claim| claim.is_of(source));
            assert!(of().count() > 8, "{source:?}");
            assert_eq!(of().filter(|claim| claim.headline).count(), 1, "{source:?}");
        }
    }

    #[test]
    fn the_figure_of_a_row_is_its_first_number() {
        let figure = |ours: &str| Claim { ours: ours.into(), ..all()[0].clone() }.figure();
        assert_eq!(figure("✗ 4,792,530 bits"), Some((4_792_530.0, false)));
        assert_eq!(figure("✓ k = 7; 1.5 % pass"), Some((7.0, false)));
        assert_eq!(figure("2.5 % pass"), Some((0.025, true)));
    }
}
