//! A workload that changes: from scans for keys that are there to transactions that mostly miss.

use criba_cli::Result;
use rand::RngExt;
use statrs::distribution::{Binomial, DiscreteCDF};

use super::one_percent;
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting};
use crate::experiments::stored::Stored;
use crate::shown;
use crate::theory;
use crate::trial::{FORMULA, of_shape};

/// Lookups that are judged together, and the absent ones among them from which on they are transactions.
const WINDOW: u64 = 25;
const MANY: u64 = 13;
const KEYS: u64 = 20_000;

struct Phase {
    name: &'static str,
    absent: f64,
    bits: u64,
}

const PHASES: [Phase; 3] = [
    Phase { name: "analytic", absent: 0.4, bits: 4 },
    Phase { name: "transactional, not adapted", absent: 0.6, bits: 4 },
    Phase { name: "transactional, adapted", absent: 0.6, bits: 8 },
];

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let windows: u64 = setting.pick(16_000, 160_000);
    let policy = |bits: u64| {
        let m = bits * KEYS;
        let k = theory::best_probes(bits as f64);
        ((m, k), one_percent().with_geometry(m, k))
    };
    let store = Stored::new(setting, "shifting", policy(PHASES[0].bits).1)?;
    store.put(2..KEYS)?; // and the two at the edges
    let mut random = setting.random("shifting");
    let mut next_absent = 1 << 40;
    setting.begin("a workload that changes", PHASES.len() as u64);
    for Phase { name, absent, bits } in PHASES {
        let (shape, policy) = policy(bits);
        store.db.rebuild_filters(&policy)?;
        let (mut misses, mut reads, mut alarms, mut all) = (0, 0, 0, 0);
        for _ in 0..windows {
            let keys = (0..WINDOW).map(|_| {
                let is_absent = random.random::<f64>() < absent;
                next_absent += u64::from(is_absent);
                if is_absent { next_absent } else { random.random_range(2..KEYS) }
            });
            let met = store.look_up(keys)?;
            let missed = met.made - met.found;
            misses += missed;
            all += met.counts.disk_reads;
            reads += met.counts.disk_reads - met.found;
            alarms += u64::from(missed >= MANY);
        }
        let quantity = format!("disk reads an absent lookup, {name}");
        notes.check(
            Check::share(quantity, FORMULA, of_shape(misses, reads, shape, KEYS)).if_enough(),
        );
        let expected = Binomial::new(absent, WINDOW).map_or(f64::NAN, |count| count.sf(MANY - 1));
        let quantity = format!("windows of {WINDOW} taken for transactions, {name}");
        let formula = "P(Bin(25, share of absent keys) ≥ 13)";
        notes.check(Check::share(quantity, formula, Sample::of_chance(windows, alarms, expected)));
        let lookups = (windows * WINDOW) as f64;
        notes.measured(&format!("disk reads a lookup, {name}"), shown(all as f64 / lookups), "");
        setting.step(1);
    }
    Ok(())
}
