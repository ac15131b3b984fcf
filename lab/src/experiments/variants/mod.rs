//! Bloom filters and their relatives: bits, false positives, removals and speed.
//!
//! Counting and cuckoo filters are implemented here. Of the published crates, one evicts at random, so counts
//! differ between runs, and loses a key when full; the licence of the other does not fit. Quotient filters
//! are the crate `qfilter`.

mod counting;
mod cuckoo;

use std::time::{Duration, Instant};

use criba::FilterKind;
use criba_cli::{Failure, Result};
use criba_filter::{FilterSize, ScalableBloom, StaticFilter};
use criba_report::figure::{Axis, Figure, Series};
use siphasher::sip::SipHasher13;

use self::counting::Counting;
use self::cuckoo::Cuckoo;
use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting, drawn, key};
use crate::source::Source;
use crate::trial::FORMULA;
use crate::{shown, theory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "variants",
    title: "Bloom filters and their relatives",
    question: "What do filters cost that can take keys out again, and what do others save?",
    sources: &[Source::Guide, Source::Paper],
    run,
};

/// A filter with removal of keys.
trait Removable {
    fn name(&self) -> &'static str;
    fn bits(&self) -> f64;
    fn insert(&mut self, hash: u64) -> bool;
    fn contains(&self, hash: u64) -> bool;
    fn remove(&mut self, hash: u64);
    /// The expected rate, its scatter between filters, and the formula.
    fn expected(&self, keys: u64) -> (f64, f64, &'static str);
}

impl Removable for qfilter::Filter {
    fn name(&self) -> &'static str {
        "quotient"
    }

    fn bits(&self) -> f64 {
        8.0 * self.memory_usage() as f64
    }

    fn insert(&mut self, hash: u64) -> bool {
        self.insert_fingerprint(true, hash).is_ok()
    }

    fn contains(&self, hash: u64) -> bool {
        self.contains_fingerprint(hash)
    }

    fn remove(&mut self, hash: u64) {
        self.remove_fingerprint(hash);
    }

    /// Keys with equal fingerprints scatter as the square root of their number, a thousandth of the keys.
    fn expected(&self, keys: u64) -> (f64, f64, &'static str) {
        let fingerprints = 2_f64.powi(i32::from(self.fingerprint_size()));
        let rate = -(keys as f64 * (-1.0 / fingerprints).ln_1p()).exp_m1();
        let together = (keys as f64).powi(2) / (2.0 * fingerprints);
        (rate, together.sqrt() / fingerprints, "1 − (1 − 2^−f)^n, of f bits of fingerprint")
    }
}

struct Row {
    name: String,
    removable: bool,
    bits_per_key: f64,
    rate: f64,
    insert_ns: f64,
    lookup_ns: f64,
}

fn lookups(setting: &Setting) -> u64 {
    setting.pick(500_000, 4_000_000)
}

/// 95 % of a power of two, which fills quotient and cuckoo filters, whose sizes are powers of two.
fn keys(setting: &Setting) -> u64 {
    (1 << setting.pick(18, 21)) * 94 / 100
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let n = keys(setting);
    let hasher = SipHasher13::new_with_keys(setting.seed("hash"), 0);
    let hash = move |family: u32, i: u64| hasher.hash(&key(family, i));
    let mut rows = Vec::new();
    setting.begin("filters that cannot remove", 4);
    for kind in [FilterKind::Bloom, FilterKind::Blocked, FilterKind::Ribbon] {
        rows.push(fixed(setting, notes, kind)?);
        setting.step(1);
    }
    rows.push(scalable(setting, notes)?);

    setting.begin("filters that can", 3);
    let quotient = qfilter::Filter::new(n, 0.01);
    let mut quotient = quotient.map_err(|e| Failure::Usage(format!("a quotient filter: {e:?}")))?;
    for filter in
        [&mut Counting::new(n, 0.01) as &mut dyn Removable, &mut Cuckoo::new(n, 10), &mut quotient]
    {
        rows.push(removable(setting, notes, filter, &hash));
        setting.step(1);
    }

    for row in &rows {
        let ours = format!(
            "{:.2} bits a key, {:.3} %, insert {:.0} ns, lookup {:.0} ns",
            row.bits_per_key,
            100.0 * row.rate,
            row.insert_ns,
            row.lookup_ns
        );
        let note = if row.removable { "takes keys out again" } else { "" };
        notes.measured(&row.name, ours, note);
    }
    notes.figure(figure(setting, &rows));
    notes.remark(
        "A table is written once and never changed: what is deleted gets a tombstone in a newer table, and is \
         gone when a compaction writes the two anew, with a filter that is made of the keys that are left. \
         So its filter has no removal to serve, knows its keys beforehand, and can be of the kinds that \
         need to: blocked, or the ribbon, which takes the fewest bits of all here.",
    );
    Ok(())
}

/// The kinds that tables have.
fn fixed(setting: &Setting, notes: &mut Notes, kind: FilterKind) -> Result<Row> {
    let (n, start) = (keys(setting), Instant::now());
    let hashing = setting.hashing("filters", kind as u64);
    let all = (0..n).map(|i| key(0, i));
    let filter = StaticFilter::build(kind, FilterSize::Rate(0.01), hashing, all)?;
    let insert = start.elapsed();
    let shape = filter.geometry();
    let expected = match kind {
        FilterKind::Bloom => {
            (theory::rate(shape.m, shape.k, n), theory::spread(shape.m, shape.k, n), FORMULA)
        }
        _ => (filter.predicted_rate(), 0.0, "computed from the finished bits"),
    };
    let bits = 8.0 * filter.bytes() as f64;
    Ok(lasting(setting, notes, kind.to_string(), bits, insert, expected, |key| {
        filter.contains(key)
    }))
}

/// A series of filters, the first for a sixteenth of the keys.
fn scalable(setting: &Setting, notes: &mut Notes) -> Result<Row> {
    let filter = ScalableBloom::with_rate(keys(setting) / 16, 0.01)?;
    let mut filter = filter.with_hashing(setting.hashing("scalable", 0))?;
    let start = Instant::now();
    filter.extend((0..keys(setting)).map(|i| key(0, i)));
    let insert = start.elapsed();
    let formula = "1 − Π (1 − pᵢ) over its layers, from their bits";
    let expected = (filter.current_rate(), 0.0, formula);
    let bits = 8.0 * filter.bytes() as f64;
    Ok(lasting(setting, notes, "scalable".into(), bits, insert, expected, |key| {
        filter.contains(key)
    }))
}

fn lasting(
    setting: &Setting,
    notes: &mut Notes,
    name: String,
    bits: f64,
    insert: Duration,
    (rate, spread, formula): (f64, f64, &str),
    contains: impl Fn([u8; 12]) -> bool,
) -> Row {
    let (n, asked) = (keys(setting) as f64, lookups(setting));
    let start = Instant::now();
    let passed = (0..asked).filter(|&i| contains(key(1, i))).count() as u64;
    let lookup_ns = start.elapsed().as_secs_f64() * 1e9 / asked as f64;
    let sample = Sample::of_filter(asked, passed, rate, spread);
    let check = Check::share(format!("FPR, {name}"), formula, sample).at("bits");
    notes.check(check.if_enough());
    let (bits_per_key, insert_ns) = (bits / n, insert.as_secs_f64() * 1e9 / n);
    Row { name, removable: false, bits_per_key, rate: sample.rate(), insert_ns, lookup_ns }
}

/// Fills a filter, probes it, removes half of the keys, and probes again.
fn removable(
    setting: &Setting,
    notes: &mut Notes,
    filter: &mut dyn Removable,
    hash: &dyn Fn(u32, u64) -> u64,
) -> Row {
    let (n, asked, name) = (keys(setting), lookups(setting), filter.name());
    let start = Instant::now();
    let inserted = (0..n).filter(|&i| filter.insert(hash(0, i))).count() as u64;
    let insert_ns = start.elapsed().as_secs_f64() * 1e9 / n as f64;
    let formula = "all of them";
    let check = Check::exact(format!("keys with room, {name}"), formula, n as f64, inserted as f64);
    notes.check(check.at("bits"));

    let start = Instant::now();
    let passed = (0..asked).filter(|&i| filter.contains(hash(1, i))).count() as u64;
    let lookup_ns = start.elapsed().as_secs_f64() * 1e9 / asked as f64;
    let (rate, spread, formula) = filter.expected(n);
    let full = Sample::of_filter(asked, passed, rate, spread);
    let check = Check::share(format!("FPR, {name}"), formula, full).at("bits").if_enough();
    notes.check(check);

    (0..n / 2).for_each(|i| filter.remove(hash(0, i)));
    let kept = (n / 2..n).filter(|&i| filter.contains(hash(0, i))).count() as f64;
    let quantity = format!("keys that stay and are found, after half were removed, {name}");
    notes.check(Check::exact(quantity, "all of them", (n - n / 2) as f64, kept).at("bits"));
    // Those that were removed are absent keys now, and so are those that never were there.
    let removed = (0..n / 2).filter(|&i| filter.contains(hash(0, i))).count() as u64;
    let never = (0..asked).filter(|&i| filter.contains(hash(1, i))).count() as u64;
    let (rate, spread, _) = filter.expected(n - n / 2);
    let half = Sample::of_filter(asked + n / 2, removed + never, rate, spread);
    let quantity = format!("FPR after half were removed, {name}");
    notes.check(Check::share(quantity, formula, half).at("bits").if_enough());
    let (name, bits_per_key) = (name.to_owned(), filter.bits() / n as f64);
    Row { name, removable: true, bits_per_key, rate: full.rate(), insert_ns, lookup_ns }
}

fn figure(setting: &Setting, rows: &[Row]) -> Figure {
    let along = |per_halving: f64| -> Vec<(f64, f64)> {
        let halvings = (40..=90).map(|i| f64::from(i) / 10.0);
        halvings.map(|h| (h * per_halving, 100.0 * (-h).exp2())).collect()
    };
    let point = |row: &Row| (row.bits_per_key, 100.0 * row.rate);
    let fixed = rows.iter().filter(|row| !row.removable).map(point).collect();
    let mut series = vec![
        Series::line("least there is, log2 1/p bits", 5, along(1.0)),
        Series::line("Bloom filter in theory, 1.44 log2 1/p", 0, along(std::f64::consts::LOG2_E)),
        Series::marks("no removal: ribbon, Bloom, blocked, scalable, from the left", 0, fixed),
    ];
    for (hue, row) in (1..).zip(rows.iter().filter(|row| row.removable)) {
        series.push(Series::marks(row.name.as_str(), hue, vec![point(row)]));
    }
    drawn(
        "bits",
        [
            "Bits a key and false positives of Bloom filters' relatives",
            "What does it cost to be able to take keys out again?",
            "A set of keys takes log2(1/p) bits each at the least, a Bloom filter 1.44 times that, \
             with counters of four bits four times as many; fingerprints take log2(1/p) bits and \
             two or three more, and empty places beside.",
            &format!(
                "{} keys, {} absent ones asked; each filter made for 1 %, but that fingerprints \
                 are of whole bits.",
                shown(keys(setting) as f64),
                shown(lookups(setting) as f64)
            ),
        ],
        [Axis::log("memory", "bits a key"), Axis::log("false-positive rate", "%")],
        series,
    )
}
