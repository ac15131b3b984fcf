//! Bloom filters and their relatives: bits, false positives, removals and speed.
//!
//! Counting and cuckoo filters are implemented here. Of the published crates, one evicts at random, so counts
//! differ between runs, and loses a key when full; the licence of the other does not fit. Quotient filters
//! are the crate `qfilter`.

mod counting;
mod cuckoo;

use std::time::Instant;

use criba::FilterKind;
use criba::filter::{Bloom, FilterSize, ScalableBloom, StaticFilter};
use criba_cli::page::figure::{Axis, Figure, Series};
use criba_cli::{Failure, Result};
use siphasher::sip::SipHasher13;

use self::counting::Counting;
use self::cuckoo::Cuckoo;
use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting, key};
use crate::source::Source;
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
    wrong_removals(setting, notes, &hash);

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
    let (n, asked) = (keys(setting), lookups(setting));
    let start = Instant::now();
    let all = (0..n).map(|i| key(0, i));
    let hashing = setting.hashing("filters", kind as u64);
    let filter = if kind == FilterKind::Bloom {
        let (m, k) = theory::classic_shape(n, 0.01);
        let mut filter = Bloom::with_geometry(m, k)?.with_hashing(hashing)?;
        filter.extend(all);
        Fixed::Bloom(filter)
    } else {
        Fixed::Static(StaticFilter::build(kind, FilterSize::Rate(0.01), hashing, all)?)
    };
    let insert_ns = start.elapsed().as_secs_f64() * 1e9 / n as f64;
    let start = Instant::now();
    let passed = (0..asked).filter(|&i| filter.contains(&key(1, i))).count() as u64;
    let lookup_ns = start.elapsed().as_secs_f64() * 1e9 / asked as f64;
    let (bytes, rate, spread, formula) = match &filter {
        Fixed::Bloom(filter) => {
            let (m, k) = theory::classic_shape(n, 0.01);
            let formula = "(1 − e^(−kn/m))^k";
            (filter.bytes(), theory::rate(m, k, n), theory::spread(m, k, n), formula)
        }
        Fixed::Static(filter) => (
            filter.bytes(),
            filter.predicted_rate(),
            0.0,
            "what the finished filter tells of itself",
        ),
    };
    let sample = Sample::of_filter(asked, passed, rate, spread);
    let quantity = format!("FPR, {kind}");
    notes.check(Check::share(quantity, formula, sample).at("bits").if_enough());
    let name = kind.to_string();
    let bits_per_key = 8.0 * bytes as f64 / n as f64;
    Ok(Row { name, removable: false, bits_per_key, rate: sample.rate(), insert_ns, lookup_ns })
}

enum Fixed {
    Bloom(Bloom),
    Static(StaticFilter),
}

impl Fixed {
    fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::Bloom(filter) => filter.contains(key),
            Self::Static(filter) => filter.contains(key),
        }
    }
}

/// A series of filters, the first for a sixteenth of the keys.
fn scalable(setting: &Setting, notes: &mut Notes) -> Result<Row> {
    let (n, asked) = (keys(setting), lookups(setting));
    let filter = ScalableBloom::with_rate(n / 16, 0.01)?;
    let mut filter = filter.with_hashing(setting.hashing("scalable", 0))?;
    let start = Instant::now();
    for i in 0..n {
        filter.insert(key(0, i));
    }
    let insert_ns = start.elapsed().as_secs_f64() * 1e9 / n as f64;
    let start = Instant::now();
    let passed = (0..asked).filter(|&i| filter.contains(key(1, i))).count() as u64;
    let lookup_ns = start.elapsed().as_secs_f64() * 1e9 / asked as f64;
    let sample = Sample::of_chance(asked, passed, filter.current_rate());
    let formula = "1 − Π (1 − pᵢ) over its layers, from their bits";
    let check = Check::share("FPR, scalable", formula, sample).at("bits").if_enough();
    notes.check(check);
    let name = format!("scalable, {} layers", filter.layers());
    let bits_per_key = 8.0 * filter.bytes() as f64 / n as f64;
    Ok(Row { name, removable: false, bits_per_key, rate: sample.rate(), insert_ns, lookup_ns })
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

/// Removes absent keys that pass from a counting filter: other keys disappear with them.
fn wrong_removals(setting: &Setting, notes: &mut Notes, hash: &dyn Fn(u32, u64) -> u64) {
    let n = keys(setting) / 8;
    let mut filter = Counting::new(n, 0.01);
    for i in 0..n {
        filter.insert(hash(0, i));
    }
    let mut removals = 0_u64;
    for i in 0..n {
        let stranger = hash(1, i);
        if filter.contains(stranger) {
            filter.remove(stranger);
            removals += 1;
        }
    }
    let lost = (0..n).filter(|&i| !filter.contains(hash(0, i))).count();
    notes.remark(format!(
        "A removal has to be of a key that was inserted. Of a counting filter of {} keys, {} strangers that \
         passed were taken out; {} of its own keys were denied from then on.",
        shown(n as f64),
        shown(removals as f64),
        shown(lost as f64)
    ));
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
    Figure {
        id: "bits",
        title: "Bits a key and false positives of Bloom filters' relatives".into(),
        asked: "What does it cost to be able to take keys out again?".into(),
        theory: "A set of keys takes log2(1/p) bits each at the least, a Bloom filter 1.44 times that, with \
                 counters of four bits four times as many; fingerprints take log2(1/p) bits and two or \
                 three more, and empty places beside."
            .into(),
        measured: format!(
            "{} keys, {} absent ones asked; each filter made for 1 %, but that fingerprints are of whole \
             bits.",
            shown(keys(setting) as f64),
            shown(lookups(setting) as f64)
        ),
        x: Axis::log("memory", "bits a key"),
        y: Axis::log("false-positive rate", "%"),
        series,
    }
}
