//! How many absent keys each table is asked for: what the allocation of filter bits goes by.
//!
//! Nothing is counted for it at a lookup: the ledger's counters are looked at now and then. What they
//! told fades, by half for so many lookups; and when a compaction rewrites tables, each output
//! inherits what its inputs met in its part of the key range. It is kept in memory alone, so a store
//! that was just opened has no history.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::ledger::Ledger;
use crate::table::OpenTable;
use crate::version::{KeyRanks, LiveTable, keys_within};

/// History is halved after so many lookups for each table, and at least as many as for the second
/// number of tables: a table of the last level met some hundreds of them by then.
const HALF_LIFE: (u64, usize) = (256, 16);
/// Without history a table's load is taken to be its part of the key range; that counts like so many
/// absent probes that were met.
const PRIOR_PROBES: f64 = 16.0;

/// What a table met, fading.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct History {
    /// Lookups that went to tables while this one lived.
    lookups: f64,
    /// Of these, the ones that asked this table for a key that it does not hold.
    absent: f64,
}

impl History {
    /// Absent probes for each lookup: the mean of a Gamma distribution around `prior`, after what was
    /// met.
    pub(crate) fn load(&self, prior: f64) -> f64 {
        (self.absent + PRIOR_PROBES) / (self.lookups + PRIOR_PROBES / prior)
    }

    /// The same absent probes among a part of the lookups only.
    pub(crate) fn among(self, part: f64) -> Self {
        Self { lookups: self.lookups * part, ..self }
    }

    fn fade(&mut self, factor: f64) {
        self.lookups *= factor;
        self.absent *= factor;
    }
}

/// A live table's history, and where the ledger's counters stood when it was brought up to date.
#[derive(Debug, Default)]
struct Seen {
    history: History,
    lookups: u64,
    absent: u64,
    /// It lived before the store was opened, and lookups were too few since to tell anything.
    past_unknown: bool,
}

/// A table that was there when the store was opened has a history of its own after so many lookups.
const TELLING_LOOKUPS: f64 = 4096.0;

/// The histories of the live tables.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    tables: HashMap<u64, Seen>,
    lookups: u64,
}

impl Loads {
    /// Those of a store just opened, with these tables.
    pub(crate) fn opened(tables: impl Iterator<Item = u64>) -> Self {
        let seen = |id| (id, Seen { past_unknown: true, ..Seen::default() });
        Self { tables: tables.map(seen).collect(), lookups: 0 }
    }

    /// After so many lookups, what was met before counts half.
    pub(crate) fn half_life(&self) -> u64 {
        HALF_LIFE.0 * self.tables.len().max(HALF_LIFE.1) as u64
    }

    /// Brings all histories up to date.
    pub(crate) fn observe(&mut self, ledger: &Ledger) -> Histories {
        let lookups = ledger.table_lookups().max(self.lookups); // threads may add up differently
        let absent = ledger.absent_probes();
        let passed = lookups.saturating_sub(self.lookups);
        let fading = (-(passed as f64) / self.half_life() as f64).exp2();
        self.lookups = lookups;
        for (id, seen) in &mut self.tables {
            let absent = absent.get(id).copied().unwrap_or(0);
            seen.history.fade(fading);
            seen.history.lookups += lookups.saturating_sub(seen.lookups) as f64;
            seen.history.absent += absent.saturating_sub(seen.absent) as f64;
            (seen.lookups, seen.absent) = (lookups, absent);
            seen.past_unknown &= seen.history.lookups < TELLING_LOOKUPS;
        }
        let of = |(&id, seen): (&u64, &Seen)| (id, (seen.history, seen.past_unknown));
        let tables = self.tables.iter().map(of).collect();
        Histories { tables, lookups, half_life: self.half_life() }
    }

    /// Follows a change of the live tables. A table that only moves goes on with its history.
    pub(crate) fn follow(
        &mut self,
        removed: &[(usize, u64)],
        added: &[(usize, OpenTable)],
        ledger: &Ledger,
    ) {
        let lookups = ledger.table_lookups().max(self.lookups); // threads may add up differently
        for (_, open) in added {
            let new = || Seen { lookups, ..Seen::default() };
            self.tables.entry(open.table.id()).or_insert_with(new);
        }
        for (_, id) in removed {
            if !added.iter().any(|(_, open)| open.table.id() == *id) {
                self.tables.remove(id);
            }
        }
    }

    /// Gives new tables what they inherit.
    pub(crate) fn inherit(&mut self, inherited: Vec<(u64, History)>) {
        for (id, history) in inherited {
            if let Some(seen) = self.tables.get_mut(&id) {
                seen.history = history;
            }
        }
    }
}

/// The histories of the tables of a version, by id.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    tables: HashMap<u64, (History, bool)>,
    /// The lookups that went to tables up to now.
    pub(super) lookups: u64,
    /// See [`Loads::half_life`].
    pub(super) half_life: u64,
}

impl Histories {
    /// None to speak of while the past is unknown: a few lookups are not to be set against it.
    pub(crate) fn of(&self, table: u64) -> History {
        let known = self.tables.get(&table).filter(|(_, unknown)| !unknown);
        known.map(|(history, _)| *history).unwrap_or_default()
    }

    /// All absent probes.
    pub(crate) fn absent_probes(&self) -> f64 {
        self.tables.values().map(|(history, _)| history.absent).sum()
    }

    /// Whether the table had lookups before the store was opened, and too few since, so that it is
    /// not known what it is asked for. Its filter may be right for that.
    pub(crate) fn past_unknown(&self, table: u64) -> bool {
        self.tables.get(&table).is_some_and(|(_, unknown)| *unknown)
    }

    /// What the outputs of a compaction of these tables inherit.
    pub(crate) fn heritage(&self, inputs: &[(usize, LiveTable)]) -> Heritage {
        let mut inputs: Vec<_> = inputs
            .iter()
            .map(|(level, live)| (*level, live.clone(), self.of(live.table.id())))
            .collect();
        inputs.sort_by(|(a_level, a, _), (b_level, b, _)| {
            let (a, b) = (a.table.meta(), b.table.meta());
            let by_age = if *a_level == 0 { a.max_seq.cmp(&b.max_seq) } else { Ordering::Equal };
            b_level.cmp(a_level).then(by_age).then_with(|| a.smallest.cmp(&b.smallest))
        });
        Heritage(inputs)
    }
}

/// The histories of a compaction's inputs: the oldest data first, a level in key order.
#[derive(Debug)]
pub(crate) struct Heritage(Vec<(usize, LiveTable, History)>);

impl Heritage {
    /// What was met in a range of keys; `ranks` are of a version that has the inputs.
    ///
    /// A lookup that all inputs sent away was counted last by the lowest one in its way, and it is
    /// the one that the output will send away instead. So the lowest input tells, and one above it
    /// only for what none below covers. A table's probes are taken to be spread like its keys.
    pub(crate) fn of_range(
        &self,
        ranks: &KeyRanks<'_>,
        smallest: &[u8],
        largest: &[u8],
    ) -> History {
        let all = ranks.keys_within(smallest, largest);
        // Parts of the range: what no table so far covers, and what one with a history does.
        let (mut open, mut known) = (1.0, 0.0);
        let (mut lookups, mut load) = (0.0, 0.0);
        for run in self.0.chunk_by(|(a, ..), (b, ..)| a == b && *a > 0) {
            if open < 0.01 {
                break;
            }
            let first =
                run.partition_point(|(_, live, _)| live.table.meta().largest.as_slice() < smallest);
            let overlapping = || {
                run[first..]
                    .iter()
                    .take_while(|(_, live, _)| live.table.meta().smallest.as_slice() <= largest)
            };
            let part = |live: &LiveTable| {
                let meta = live.table.meta();
                let from = smallest.max(meta.smallest.as_slice());
                ranks.keys_within(from, largest.min(meta.largest.as_slice())) / all.max(1.0)
            };
            let covered: f64 = overlapping().map(|(_, live, _)| part(live)).sum();
            let taken = (open / covered).min(1.0); // of each of them
            for (_, live, history) in overlapping().filter(|(.., history)| history.lookups > 0.0) {
                let of_table =
                    keys_within(&live.table, smallest, largest) / live.table.meta().keys as f64;
                load += taken * of_table * history.absent / history.lookups;
                lookups += taken * part(live) * history.lookups;
                known += taken * part(live);
            }
            open -= taken * covered;
        }
        if known == 0.0 {
            return History::default();
        }
        History { lookups, absent: lookups * load / known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Options, Result};

    fn key(number: usize) -> String {
        format!("{number:06}")
    }

    /// Looks up absent keys, some hundreds, between the keys of a table.
    fn ask(db: &Db, smallest: usize, largest: usize, count: usize) -> Result<()> {
        for i in 0..count {
            let between = smallest + 2 * (i % ((largest - smallest) / 2)) + 1;
            assert_eq!(db.get(key(between))?, None);
        }
        Ok(())
    }

    #[test]
    fn outputs_inherit_what_the_lowest_input_met_in_their_range() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options::new().background_threads(0).auto_compaction(false);
        let db = options.table_bytes(4096).block_bytes(128).open(dir.path())?;
        for i in (0..4000).step_by(2) {
            db.put(key(i), "value")?;
        }
        db.compact()?;
        // A table on top, over all the range, that meets all lookups once more.
        for i in [0, 2000, 3998] {
            db.put(key(i), "other")?;
        }
        db.flush()?;
        let tables = db.tables();
        assert!(tables.len() > 5 && tables[0].level == 0);
        let number = |key: &crate::Value| -> usize {
            std::str::from_utf8(key).ok().and_then(|key| key.parse().ok()).expect("a number")
        };
        let (smallest, largest) = (number(&tables[1].smallest), number(&tables[1].largest));
        ask(&db, smallest, largest, 900)?;
        let last = &tables[tables.len() - 1];
        ask(&db, number(&last.smallest), number(&last.largest), 100)?;

        let core = db.core()?;
        let version = std::sync::Arc::clone(&core.view.load().version);
        let ranks = KeyRanks::new(&version);
        let inputs: Vec<_> = version.tables().map(|(level, live)| (level, live.clone())).collect();
        let heritage = core.loads.lock().observe(&core.env.ledger).heritage(&inputs);
        let half = usize::midpoint(smallest, largest);
        for (from, to, expected) in [
            (smallest, largest, 0.9),
            (smallest, half, 0.45),
            (half, largest, 0.45),
            (number(&last.smallest), number(&last.largest), 0.1),
            (number(&tables[2].smallest), number(&tables[2].largest), 0.0),
            (0, 3998, 1.0),
        ] {
            let history = heritage.of_range(&ranks, key(from).as_bytes(), key(to).as_bytes());
            let load = history.absent / history.lookups;
            assert!((load - expected).abs() < 0.03, "{from} … {to}: {load}, not {expected}");
            assert!(history.lookups > 980.0, "{history:?}");
        }

        // Rewritten, the tables know it still; ten half-lives later they know better.
        db.compact()?;
        let load = |db: &Db| db.tables()[0].load;
        assert!((load(&db) - 0.9).abs() < 0.1, "{}", load(&db));
        for _ in 0..3 {
            ask(&db, number(&last.smallest), number(&last.largest), 20_000)?;
            db.tables();
        }
        assert!(load(&db) < 0.01, "{}", load(&db));
        Ok(())
    }

    #[test]
    fn without_history_a_load_is_the_prior_and_few_probes_change_little() {
        let history = |lookups, absent| History { lookups, absent };
        assert!((history(0.0, 0.0).load(0.25) - 0.25).abs() < 1e-12);
        assert!((history(10.0, 10.0).load(0.25) / 0.25 - 1.4).abs() < 0.01);
        assert!((history(1e6, 5e5).load(0.25) - 0.5).abs() < 0.001);
        assert!(history(1e9, 0.0).load(1.0) > 0.0);
    }
}
