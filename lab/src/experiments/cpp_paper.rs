//! The paper's experiment: half a million strings in a filter and in a hash set.

use std::collections::HashSet;
use std::hint::black_box;
use std::time::Instant;

use criba::FilterKind;
use criba::filter::{Bloom, FilterSize, Hashing, StaticFilter};
use criba_cli::Result;
use criba_cli::page::figure::{Axis, Figure, Series};
use criba_cli::readamp::input::Input;
use siphasher::sip::SipHasher13;

use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting};
use crate::source::Source;
use crate::{shown, theory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cpp-paper",
    title: "Half a million strings, in a filter and in a hash set",
    question: "What does a filter of 1 % save against a hash set of strings, in bytes and in time?",
    sources: &[Source::Paper],
    run,
};

const N: u64 = 500_000;
const RATE: f64 = 0.01;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    HashSet,
    /// A Bloom filter with keys inserted one by one.
    Inserted,
    /// A filter built from all keys at once.
    Built(FilterKind),
    /// A filter without a hash key: not for untrusted keys.
    Unkeyed(FilterKind),
}

const HOLDERS: [Holder; 6] = [
    Holder::HashSet,
    Holder::Inserted,
    Holder::Built(FilterKind::Bloom),
    Holder::Built(FilterKind::Blocked),
    Holder::Built(FilterKind::Ribbon),
    Holder::Unkeyed(FilterKind::Blocked),
];

impl Holder {
    fn name(self) -> String {
        match self {
            Self::HashSet => "HashSet<String>".into(),
            Self::Inserted => "bloom, key by key".into(),
            Self::Built(kind) => kind.to_string(),
            Self::Unkeyed(kind) => format!("{kind}, MurmurHash2"),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Trial {
    bytes: f64,
    /// Present strings found, of those asked for.
    found: u64,
    /// Absent strings that passed, against theory.
    passed: Sample,
    times: Times,
}

#[derive(Debug, Clone, Copy, Default)]
struct Times {
    insert: f64,
    positive: f64,
    negative: f64,
}

type OneTime = fn(&Times) -> f64;

/// Strings in memory in the order of the lookups, so that cache misses are not timed.
struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl<'a> FromIterator<&'a [u8]> for Strings {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(names: I) -> Self {
        let (mut text, mut ends) = (String::new(), vec![0]);
        for name in names {
            text += str::from_utf8(name).expect("made-up names are text");
            ends.push(text.len());
        }
        Self { text, ends }
    }
}

impl Strings {
    fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.ends.windows(2).map(|ends| &self.text[ends[0]..ends[1]])
    }
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let n = setting.pick(N, 10 * N);
    let repetitions = setting.pick(3, 10);
    let input = Input::made_up(n, n, setting.seed("strings"));
    let present: Strings = input.present.iter().map(|(name, _)| &name[..]).collect();
    let absent: Strings = input.absent.iter().map(|name| &name[..]).collect();
    drop(input);
    let mut holders = HOLDERS.map(|holder| (holder, Vec::new()));
    setting.begin("filters and a hash set", repetitions * HOLDERS.len() as u64);
    for repetition in 0..repetitions {
        for (holder, trials) in &mut holders {
            let hashing = setting.hashing("filters", repetition);
            trials.push(trial(*holder, hashing, &present, &absent)?);
            setting.step(1);
        }
    }
    check(setting, notes, n, &holders)?;
    compare(notes, n, &holders);
    let alone = (0..repetitions).map(|_| hash_alone(&absent)).fold(f64::INFINITY, f64::min);
    let bound = least(&holders[0].1, |times| times.negative) / alone;
    notes.compare(
        "the keyed hash alone",
        "–",
        format!("{:.1} ms", 1e3 * alone),
        "all absent strings",
    );
    notes.remark(format!(
        "What bounds the ratios is the hash, which the set takes as well (SipHash-1-3, both under a key): \
         the set answers for absent strings in {bound:.1} times what their hashes alone take, so that no \
         keyed filter can be faster by more than that. Building a filter also sorts the hashes, to count \
         the distinct ones."
    ));
    figures(notes, n, &holders);
    Ok(())
}

fn trial(holder: Holder, hashing: Hashing, present: &Strings, absent: &Strings) -> Result<Trial> {
    let n = present.iter().len() as u64;
    let size = FilterSize::Rate(RATE);
    let start = Instant::now();
    Ok(match holder {
        Holder::HashSet => {
            let set: HashSet<String> = present.iter().map(str::to_owned).collect();
            let insert = start.elapsed().as_secs_f64();
            asked(insert, bytes_of(&set), (0.0, 0.0), present, absent, |key| set.contains(key))
        }
        Holder::Inserted => {
            let mut filter = Bloom::with_rate(n, RATE)?.with_hashing(hashing)?;
            filter.extend(present.iter());
            let insert = start.elapsed().as_secs_f64();
            let shape = filter.geometry();
            let rate = (theory::rate(shape.m, shape.k, n), theory::spread(shape.m, shape.k, n));
            asked(insert, filter.bytes(), rate, present, absent, |key| filter.contains(key))
        }
        Holder::Built(kind) | Holder::Unkeyed(kind) => {
            let unkeyed = holder == Holder::Unkeyed(kind);
            let hashing = if unkeyed { Hashing::murmurhash2() } else { hashing };
            let filter = StaticFilter::build(kind, size, hashing, present.iter())?;
            let insert = start.elapsed().as_secs_f64();
            let shape = filter.geometry();
            let rate = match kind {
                FilterKind::Bloom => {
                    (theory::rate(shape.m, shape.k, n), theory::spread(shape.m, shape.k, n))
                }
                _ => (filter.predicted_rate(), 0.0), // of the finished bits
            };
            asked(insert, filter.bytes(), rate, present, absent, |key| filter.contains(key))
        }
    })
}

fn hash_alone(strings: &Strings) -> f64 {
    let hasher = SipHasher13::new_with_key(black_box(&[7; 16]));
    let start = Instant::now();
    let sum = strings.iter().fold(0, |sum: u64, key| sum ^ hasher.hash(black_box(key).as_bytes()));
    black_box(sum);
    start.elapsed().as_secs_f64()
}

/// A power of two of slots, at most 7/8 full, each with a tag byte, and the strings' memory.
fn bytes_of(set: &HashSet<String>) -> usize {
    let slots = (set.capacity() * 8 / 7).next_power_of_two();
    slots * (size_of::<String>() + 1) + set.iter().map(String::capacity).sum::<usize>()
}

fn asked(
    insert: f64,
    bytes: usize,
    (rate, spread): (f64, f64),
    present: &Strings,
    absent: &Strings,
    contains: impl Fn(&str) -> bool,
) -> Trial {
    let count = |keys: &Strings| {
        let start = Instant::now();
        let found = keys.iter().filter(|key| contains(black_box(key))).count() as u64;
        (found, start.elapsed().as_secs_f64())
    };
    let (found, positive) = count(present);
    let (passed, negative) = count(absent);
    Trial {
        bytes: bytes as f64,
        found,
        passed: Sample::of_filter(absent.iter().len() as u64, passed, rate, spread),
        times: Times { insert, positive, negative },
    }
}

fn check(
    setting: &Setting,
    notes: &mut Notes,
    n: u64,
    holders: &[(Holder, Vec<Trial>)],
) -> Result<()> {
    for (holder, trials) in holders {
        let name = holder.name();
        let asked = (n * trials.len() as u64) as f64;
        let found: u64 = trials.iter().map(|trial| trial.found).sum();
        let quantity = format!("present strings found, {name}");
        notes.check(Check::exact(quantity, "all", asked, found as f64));
        let passed: Sample = trials.iter().map(|trial| trial.passed).sum();
        let quantity = format!("FPR, {name}");
        let formula = match holder {
            // That none passes cannot be shifted by 20 %; that all are told absent can.
            Holder::HashSet => {
                let told = (passed.trials - passed.passed) as f64;
                let quantity = format!("absent strings told, {name}");
                notes.check(Check::exact(quantity, "all", passed.trials as f64, told));
                continue;
            }
            Holder::Inserted | Holder::Built(FilterKind::Bloom) => {
                "(1 − e^(−kn/m))^k, with the terms that it leaves out"
            }
            Holder::Built(_) | Holder::Unkeyed(_) => "reckoned from the finished bits",
        };
        notes.check(Check::share(quantity, formula, passed).at("rates"));
    }
    let keys = (0..N).map(u64::to_le_bytes);
    let hashing = setting.hashing("the paper's size", 0);
    let filter = StaticFilter::build(FilterKind::Bloom, FilterSize::Rate(RATE), hashing, keys)?;
    let (shape, formula) = (filter.geometry(), "⌈−n ln p / (ln 2)²⌉");
    let (m, k) = theory::classic_shape(N, RATE);
    notes.check(Check::exact("m for n = 500,000, p = 1 %", formula, m as f64, shape.m as f64));
    let (theory, measured) = (f64::from(k), f64::from(shape.k));
    notes.check(Check::exact("k for n = 500,000, p = 1 %", "round(m/n · ln 2)", theory, measured));
    notes.compare("m", "4,799,259", shown(shape.m as f64), "");
    notes.compare("k", "7", shape.k.to_string(), "");
    let kilobytes = filter.bytes() as f64 / 1000.0;
    notes.compare(
        "the filter",
        "about 600 KB",
        format!("{kilobytes:.1} kB"),
        "measured: its array",
    );
    notes.correct(
        Source::Paper,
        "500,000 strings at 1 % take m = 4,799,259 bits.",
        "the formula gives 4,792,530.",
    );
    Ok(())
}

fn least(trials: &[Trial], time: OneTime) -> f64 {
    trials.iter().map(|trial| time(&trial.times)).fold(f64::INFINITY, f64::min)
}

fn compare(notes: &mut Notes, n: u64, holders: &[(Holder, Vec<Trial>)]) {
    let (_, set) = &holders[0];
    let megabytes = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
    let note = "from capacities: slots, and what the strings point to; an allocator counts the same in a test";
    notes.compare("the hash set", "15–20 MB", megabytes(set[0].bytes), note);
    for (holder, trials) in &holders[1..] {
        let passed: Sample = trials.iter().map(|trial| trial.passed).sum();
        let theirs =
            if *holder == Holder::Inserted { "5,089 of 500,000 (1.0178 %)" } else { "–" };
        let (mean, rate) = (passed.passed as f64 / trials.len() as f64, 100.0 * passed.rate());
        let ours = format!("{} of {} ({rate:.4} %)", shown(mean.round()), shown(n as f64));
        let note = format!("{:.2} bits a string", 8.0 * trials[0].bytes / n as f64);
        notes.compare(&format!("false positives, {}", holder.name()), theirs, ours, &note);
    }
    let operations: [(&str, &str, &str, OneTime); 3] = [
        ("insert", "45 ms against 120 (2.7)", "20", |times| times.insert),
        ("positive lookups", "35 ms against 50 (1.4)", "8", |times| times.positive),
        ("negative lookups", "40 ms against 55 (1.4)", "8", |times| times.negative),
    ];
    for (operation, theirs, aim, time) in operations {
        let of_set = least(set, time);
        let ratio = |trials: &[Trial]| of_set / least(trials, time);
        for (holder, trials) in &holders[1..] {
            let theirs = if *holder == Holder::Inserted { theirs } else { "–" };
            let ms = 1e3 * least(trials, time);
            let ours = format!("{ms:.1} ms against {:.1} ({:.1})", 1e3 * of_set, ratio(trials));
            notes.compare(&format!("{operation}, {}", holder.name()), theirs, ours, "");
        }
        let fastest = holders[1..].iter().map(|(_, trials)| ratio(trials)).fold(0.0, f64::max);
        let note = "of the times of hash set and filter; the aim is ours";
        notes.compare(
            &format!("{operation}, fastest kind"),
            "–",
            format!("{fastest:.1}, of {aim} aimed at"),
            note,
        );
    }
    notes.remark(
        "The hash set takes a copy of each string, as it must to answer for them later; a filter \
         keeps none. Inserting into a filter that is built at once is building it. Times are the \
         least of all repetitions, of one thread.",
    );
}

fn figures(notes: &mut Notes, n: u64, holders: &[(Holder, Vec<Trial>)]) {
    let against_size = |time: OneTime| {
        let series = holders.iter().enumerate().map(|(hue, (holder, trials))| {
            let place = (8.0 * trials[0].bytes / n as f64, 1e9 * least(trials, time) / n as f64);
            Series::marks(holder.name(), hue, vec![place])
        });
        series.collect::<Vec<_>>()
    };
    let measured = format!("{} strings, the least time of all repetitions.", shown(n as f64));
    for (id, title, time) in [
        ("insert", "Memory and time of inserting", (|t| t.insert) as OneTime),
        ("positive", "Memory and time of lookups that find", |t| t.positive),
        ("negative", "Memory and time of lookups that do not find", |t| t.negative),
    ] {
        notes.figure(Figure {
            id,
            title: title.into(),
            asked: "What does each take, in memory and in time?".into(),
            theory:
                "A filter of 1 % takes −log2(0.01) = 6.64 bits a key at least, and a Bloom filter \
                     1.44 times as many, 9.58. Times are this machine's, and decide nothing."
                    .into(),
            measured: measured.clone(),
            x: Axis::log("memory", "bits a string"),
            y: Axis::log("time", "ns a string"),
            series: against_size(time),
        });
    }
    let repetitions = holders[0].1.len();
    let along = |rate: f64| vec![(1.0, rate), (repetitions as f64, rate)];
    let mut series = vec![
        Series::line("asked for", 5, along(RATE)),
        Series::line("the paper's", 0, along(0.010_178)),
    ];
    for (hue, (holder, trials)) in holders[1..].iter().enumerate() {
        let points = trials.iter().enumerate();
        let points = points.map(|(i, trial)| (i as f64 + 1.0, trial.passed.rate())).collect();
        series.push(Series::marks(holder.name(), hue + 1, points)); // as in the other figures
    }
    notes.figure(Figure {
        id: "rates",
        title: "False positives of filters made for 1 %".into(),
        asked: "Does each kind keep the rate that it was asked for?".into(),
        theory: "(1 − e^(−kn/m))^k with m = ⌈−n ln p/(ln 2)²⌉ and k = 7 is 1.004 %; inserted key by \
                 key a filter has some bits more, for 1 %; blocked and ribbon filters reckon their rate \
                 from the finished bits."
            .into(),
        measured: format!(
            "{1} repetitions under different hashes, each with {0} strings and asked {0} absent ones.",
            shown(n as f64),
            repetitions
        ),
        x: Axis::linear("repetition", ""),
        y: Axis::linear("false-positive rate", ""),
        series,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_the_hash_set_are_those_that_the_allocator_counts() {
        let names = Input::made_up(50_000, 0, 1).present;
        let mut set = HashSet::new();
        let counted = allocation_counter::measure(|| {
            for (name, _) in &names {
                set.insert(str::from_utf8(name).expect("made-up names are text").to_owned());
            }
        });
        let (reckoned, counted) = (bytes_of(&set) as f64, counted.bytes_current as f64);
        println!("{reckoned} bytes reckoned, {counted} counted");
        assert!((reckoned / counted - 1.0).abs() < 0.001);
    }
}
