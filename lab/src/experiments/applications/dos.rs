//! Denial of service: hosts that send too much, found by a Count-Min sketch; and keys chosen to fill a
//! filter.

use criba_cli::Result;
use criba_report::figure::{Axis, Series};
use statrs::distribution::{Binomial, DiscreteCDF};

use crate::check::{Check, Sample, mean_and_sd};
use crate::experiment::{Notes, Setting, drawn, key};
use crate::experiments::hash_families::hashes::Family;
use crate::experiments::hash_families::plain::Plain;
use crate::trial::{FORMULA, of_shape};
use crate::{shown, theory};

/// Two rows of counters (Cormode and Muthukrishnan, 2005). The estimate is the lesser counter.
struct CountMin {
    rows: [Vec<u64>; 2],
    seed: u64,
}

impl CountMin {
    fn new(width: usize, seed: u64) -> Self {
        Self { rows: [0, 1].map(|_| vec![0; width]), seed }
    }

    fn places(&self, key: &[u8]) -> [usize; 2] {
        let (h1, h2) = Family::SipHash.hashes(self.seed, key);
        [h1, h2].map(|hash| hash as usize % self.rows[0].len())
    }

    fn add(&mut self, key: &[u8], count: u64) {
        let [first, second] = self.places(key);
        self.rows[0][first] += count;
        self.rows[1][second] += count;
    }

    fn estimate(&self, key: &[u8]) -> u64 {
        let [first, second] = self.places(key);
        self.rows[0][first].min(self.rows[1][second])
    }
}

const WIDTH: usize = 1000;
const HOSTS: u64 = 5000;
const ATTACKERS: u64 = 20;
/// Packets of a host and of an attacker in an interval.
const PACKETS: [u64; 2] = [2, 1000];
const THRESHOLDS: [u64; 6] = [8, 12, 16, 20, 24, 28];
const CALIBRATED: u64 = 20;

/// A false alarm: in both rows an attacker shares the counter, or too many hosts.
fn false_alarm(threshold: u64) -> f64 {
    let share = 1.0 / WIDTH as f64;
    let others = Binomial::new(share, HOSTS - 1).expect("a chance");
    let quiet = others.cdf((threshold - PACKETS[0] - 1) / PACKETS[0]);
    let without_attacker = (1.0 - share).powi(ATTACKERS as i32);
    (1.0 - without_attacker * quiet).powi(2)
}

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    detection(setting, notes)?;
    as_a_filter(setting, notes);
    chosen_keys(setting, notes);
    Ok(())
}

fn detection(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let intervals: Vec<u64> = (0..setting.pick(500, 5000)).collect();
    let seed = setting.seed("sketches");
    let alarms = setting.each("hosts that send too much", &intervals, |&interval| {
        let mut sketch = CountMin::new(WIDTH, seed ^ interval);
        (0..HOSTS).for_each(|i| sketch.add(&key(0, i), PACKETS[0]));
        (0..ATTACKERS).for_each(|i| sketch.add(&key(1, i), PACKETS[1]));
        let alarms = |family: u32, hosts: u64, threshold: u64| {
            (0..hosts).filter(|&i| sketch.estimate(&key(family, i)) >= threshold).count() as f64
        };
        let found = alarms(1, ATTACKERS, CALIBRATED);
        Ok((found, THRESHOLDS.map(|threshold| alarms(0, HOSTS, threshold) / HOSTS as f64)))
    })?;
    let found: f64 = alarms.iter().map(|(found, _)| found).sum();
    let all = (ATTACKERS * intervals.len() as u64) as f64;
    notes.check(Check::exact("attackers found by a sketch", "all", all, found).at("dos"));
    let (mut theory, mut measured) = (Vec::new(), Vec::new());
    for (place, threshold) in THRESHOLDS.into_iter().enumerate() {
        let draws: Vec<f64> = alarms.iter().map(|(_, alarms)| alarms[place]).collect();
        theory.push((threshold as f64, false_alarm(threshold)));
        measured.push((threshold as f64, mean_and_sd(&draws).0));
        if threshold == CALIBRATED {
            let formula = "(1 − (1 − 1/w)^a · P(2 · Bin(n − 1, 1/w) < T − 2))²";
            let quantity = "false alarms a host, threshold 20";
            notes.check(Check::mean(quantity, formula, false_alarm(threshold), &draws).at("dos"));
        }
    }
    measured.retain(|(_, share)| *share > 0.0);
    notes.figure(drawn(
        "dos",
        [
            "False alarms of a sketch that counts packets",
            "How is the threshold of an alarm chosen?",
            "A counter never counts too little, so that no attacker is missed. A host gets a false \
             alarm if both of its counters are shared by an attacker or by too many hosts.",
            &format!(
                "{} intervals, each with a new sketch of two rows of {WIDTH} counters, {HOSTS} \
                 hosts of {} packets and {ATTACKERS} attackers of {}.",
                shown(intervals.len() as f64),
                PACKETS[0],
                shown(PACKETS[1] as f64)
            ),
        ],
        [
            Axis::linear("packets that cause an alarm", ""),
            Axis::log("false alarms a host and interval", ""),
        ],
        vec![Series::line("theory", 0, theory), Series::marks("measured", 0, measured)],
    ));
    Ok(())
}

/// A sketch with counters of four bits in the memory of a Bloom filter of 1 %.
fn as_a_filter(setting: &Setting, notes: &mut Notes) {
    let n = 50_000;
    let (m, _) = theory::classic_shape(n, 0.01);
    let width = m / 4 / 2;
    let mut sketch = CountMin::new(width as usize, setting.seed("as a filter"));
    (0..n).for_each(|i| sketch.add(&key(0, i), 1));
    let passed = (0..n).filter(|&i| sketch.estimate(&key(1, i)) > 0).count() as u64;
    let rows = theory::spread(width, 1, n) * 2.0 * theory::fill(width, 1, n);
    let sample = Sample::of_filter(n, passed, theory::fill(width, 1, n).powi(2), rows);
    let formula = "(1 − e^(−n/w))², of counters of 4 bits";
    notes.check(Check::share("FPR, Count-Min of 9.59 bits a key as a filter", formula, sample));
}

/// Keys that set k new bits each, found by trying; and the same keys under a secret hash.
fn chosen_keys(setting: &Setting, notes: &mut Notes) {
    let n = 4000;
    let (m, k) = theory::classic_shape(n, 0.01);
    let mut open = Plain::new(m, k);
    let mut secret = open.clone();
    let seed = setting.seed("secret");
    let hidden = |family, i| Family::SipHash.hashes(seed, &key(family, i));
    let known = |family, i| Family::Murmur.hashes(0, &key(family, i));
    let (mut chosen, mut tried) = (0, setting.seed("candidates") >> 32);
    let first = tried;
    while chosen < n {
        if open.would_be_new(known(0, tried)) {
            open.insert(known(0, tried));
            secret.insert(hidden(0, tried));
            chosen += 1;
        }
        tried += 1;
    }
    let set = (open.fill() * m as f64).round();
    let of_keys = (n * u64::from(k)) as f64;
    notes.check(Check::exact("bits set by chosen keys", "k · n", of_keys, set));
    let asked = 600_000;
    let passed = |filter: &Plain, hashes: &dyn Fn(u32, u64) -> (u64, u64)| {
        (0..asked).filter(|&i| filter.contains(hashes(1, i))).count() as u64
    };
    let rate = (of_keys / m as f64).powi(k as i32);
    let sample = Sample::of_chance(asked, passed(&open, &known), rate);
    notes.check(Check::share("FPR after chosen keys, public hash", "(kn/m)^k", sample));
    let sample = of_shape(asked, passed(&secret, &hidden), (m, k), n);
    notes.check(Check::share("FPR after chosen keys, secret hash", FORMULA, sample).if_enough());
    let cost = (tried - first) as f64 / n as f64;
    notes.measured("keys tried for a chosen one", shown(cost.round()), "in the mean");
}
