//! Lookups: memtables, then tables from newest to oldest, each filter before its table.

mod ahead;
mod search;

use self::ahead::ReadAhead;
use self::search::{Passed, Search};

use std::cell::OnceCell;

use crate::error::Result;
use crate::expiry::{Moment, Stored};
use crate::key::EntryKind;
use crate::ledger::{Explanation, Step};
use crate::sstable::TableEnv;
use crate::value::Value;
use crate::view::ReadView;
use criba_filter::store::IN_FLIGHT;

pub(crate) trait Trace {
    /// Whether it needs every step of a lookup. Otherwise it gets searches of memtables and reads of tables.
    const STEPS: bool;
    /// Whether it needs to know which reads are slow.
    const TIMED: bool = false;

    fn step(&mut self, step: Step);
}

impl Trace for () {
    const STEPS: bool = false;

    fn step(&mut self, _: Step) {}
}

impl Trace for Vec<Step> {
    const STEPS: bool = true;

    fn step(&mut self, step: Step) {
        self.push(step);
    }
}

/// Whether a key may have a value: the answer of [`Db::may_contain`](crate::Db::may_contain).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Membership {
    /// The key certainly has no value.
    No,
    /// The key may have a value.
    Maybe,
}

/// A store that has a present moment.
pub(crate) trait Now {
    fn now(&self) -> Moment;

    /// The newest entry of a key whose entry in the view has expired at this moment, if there may be a newer one.
    fn renewed(&self, _: &[u8], _: &ReadView, _: Moment) -> Result<Option<Stored>> {
        Ok(None)
    }
}

/// The moment of lookups.
pub(crate) enum When<'a> {
    At(Moment),
    /// Now: determined when the first entry is searched for. Most lookups of absent keys come to none, and need no
    /// clock.
    Now(&'a dyn Now, OnceCell<Moment>),
}

impl<'a> When<'a> {
    #[inline]
    pub(crate) fn now(store: &'a dyn Now) -> Self {
        Self::Now(store, OnceCell::new())
    }

    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        match self {
            Self::At(moment) => *moment,
            Self::Now(store, moment) => *moment.get_or_init(|| store.now()),
        }
    }

    /// See [`Now::renewed`].
    fn renewed(&self, key: &[u8], view: &ReadView) -> Result<Option<Stored>> {
        match self {
            Self::At(_) => Ok(None),
            Self::Now(store, _) => store.renewed(key, view, self.moment()),
        }
    }
}

/// Lookups in a view.
#[derive(Clone, Copy)]
pub(crate) struct Lookups<'e> {
    pub(crate) env: &'e TableEnv,
    pub(crate) ignore_filters: bool,
}

impl Lookups<'_> {
    /// The value of a key; calls `trace` for each step.
    #[inline]
    pub(crate) fn get(
        self,
        view: &ReadView,
        when: &When<'_>,
        key: &[u8],
        trace: &mut impl Trace,
    ) -> Result<Option<Value>> {
        self.find(view, when, key, trace, Stored::into_value)
    }

    /// As `get`; what `take` makes of the entry.
    #[inline]
    pub(crate) fn find<T>(
        self,
        view: &ReadView,
        when: &When<'_>,
        key: &[u8],
        trace: &mut impl Trace,
        take: impl Fn(Stored) -> T,
    ) -> Result<Option<T>> {
        Search::new(self, view, when, key).find(trace, take)
    }

    /// See [`Db::explain`](crate::Db::explain).
    pub(crate) fn explain(
        self,
        view: &ReadView,
        when: &When<'_>,
        key: &[u8],
    ) -> Result<Explanation> {
        let mut steps = Vec::new();
        let value = self.get(view, when, key, &mut steps)?;
        Ok(Explanation { value, steps })
    }

    /// The values of many keys, each as `take` makes it of what is stored. Prefetches the filters of several keys, then looks these keys up. Announces the
    /// blocks of the next keys while reads are slow.
    pub(crate) fn get_many<K: AsRef<[u8]>, T>(
        self,
        view: &ReadView,
        when: &When<'_>,
        keys: &[K],
        take: impl Fn(Stored) -> T + Copy,
    ) -> Result<Vec<Option<T>>> {
        // With a large L0, one key alone has enough filters to prefetch.
        let at_once = if view.version.level(0).len() < IN_FLIGHT / 2 { IN_FLIGHT } else { 1 };
        let mut values = Vec::with_capacity(keys.len());
        let mut searches = Vec::with_capacity(keys.len().min(at_once));
        let mut ahead = ReadAhead::new(self);
        for chunk in keys.chunks(at_once) {
            searches.clear();
            searches.extend(chunk.iter().map(|key| Search::new(self, view, when, key.as_ref())));
            if at_once > 1 {
                searches.iter().for_each(Search::prefetch);
            }
            for search in &searches {
                if ahead.slow {
                    ahead.announce(self, view, when, keys, values.len());
                }
                values.push(search.find(&mut ahead, take)?);
            }
        }
        Ok(values)
    }

    /// See [`Db::may_contain`](crate::Db::may_contain). A tombstone in a memtable is a "no". A tombstone in a
    /// table is a "maybe": filters contain the keys of tombstones. So is an expired entry. Counts nothing.
    pub(crate) fn may_contain(self, view: &ReadView, when: &When<'_>, key: &[u8]) -> Membership {
        let search = Search::new(self, view, when, key);
        let may = match search.in_memtables(&mut Passed::default(), &mut ()) {
            Some(stored) => stored.kind != EntryKind::Delete,
            None => search.next_maybe(0).is_some(),
        };
        if may { Membership::Maybe } else { Membership::No }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::filter::LookupKey;
    use crate::ledger::{Counts, TableStep, Verdict};
    use crate::version::Version;
    use crate::{Db, FilterPolicy, Options};
    use criba_filter::HashFunction;

    fn key(rng: &mut ChaCha8Rng) -> Vec<u8> {
        let prefix = [&b""[..], b"common prefix"][rng.random_range(0..2)];
        [prefix, &vec![rng.random_range(b'a'..b'h'); rng.random_range(0..3)]].concat()
    }

    /// The candidates of a lookup by their definition: number, level, verdict of the filter; `None` for a table
    /// that does not cover the key.
    fn candidates(
        version: &Version,
        key: &[u8],
        env: &TableEnv,
    ) -> Vec<(u64, usize, Option<Verdict>)> {
        let lookup_key = LookupKey::new(key, &env.hash_key, HashFunction::MurmurHash2);
        let mut found: Vec<(u64, usize, Option<Verdict>)> = Vec::new();
        for (level, live) in version.tables() {
            let meta = live.table.meta();
            let decided = level > 0 && found.last().is_some_and(|&(_, last, _)| last == level);
            if !decided && (level == 0 || key <= &meta.largest[..]) {
                let covers = meta.overlaps(key, key);
                let verdict = covers.then(|| live.filter.verdict(&lookup_key));
                found.push((meta.id, level, verdict));
            }
        }
        found
    }

    #[derive(Debug, Default)]
    struct Seen {
        denied: u32,
        two_kinds: u32,
        two_hashes: u32,
        without: u32,
        deepest: usize,
    }

    /// Compares one lookup, its explanation and its counts with the definition.
    fn check(db: &Db, key: &[u8], seen: &mut Seen) -> Result<()> {
        let inner = db.inner()?;
        let version = std::sync::Arc::clone(&inner.views.load().version);
        let expected = candidates(&version, key, &inner.env);
        let before = db.stats();
        let explained = db.explain(key)?;
        let between = db.stats();
        assert_eq!(db.get(key)?, explained.value);
        assert_eq!(db.get_many(&[key])?[0], explained.value);
        let counted = [between - before, db.stats() - between];
        let steps = explained.steps.iter().filter_map(|step| match step {
            Step::Table { id, level, step } => Some((*id, *level, *step)),
            Step::Memtable { .. } => None,
        });
        let steps: Vec<_> = steps.collect();
        let found: Vec<_> = steps
            .iter()
            .map(|&(id, level, step)| match step {
                TableStep::RangePruned => (id, level, None),
                TableStep::Probed { verdict, .. } => (id, level, Some(verdict)),
            })
            .collect();
        assert!(expected.starts_with(&found), "{key:?}: {expected:?}, not {found:?}");
        // Only an entry ends a lookup before its last candidate: a value or a tombstone.
        let has_entry = |step: &Step| match step {
            Step::Memtable { found, .. } => found.is_some(),
            Step::Table { step, .. } => {
                matches!(step, TableStep::Probed { found: Some(_), .. })
            }
        };
        let ended = explained.steps.iter().position(has_entry);
        assert!(ended.is_none_or(|at| at + 1 == explained.steps.len()), "{explained:?}");
        assert!(ended.is_some() || found.len() == expected.len(), "{explained:?}");
        let mut sum = Counts::default();
        for &(_, _, step) in &steps {
            sum += Counts::from(step);
        }
        let probes = |counts: Counts| (counts.true_negatives, counts.range_pruned, counts.probes());
        assert_eq!(probes(counted[0].total()), probes(sum), "{key:?}");
        let twice = probes(sum);
        assert_eq!(probes(counted[1].total()), (2 * twice.0, 2 * twice.1, 2 * twice.2), "{key:?}");
        let may = db.may_contain(key)?;
        assert!(explained.value.is_none() || may == Membership::Maybe);
        let verdicts = || expected.iter().filter_map(|&(_, _, verdict)| verdict);
        if verdicts().count() > 0 && verdicts().all(|verdict| verdict == Verdict::No) {
            seen.denied += 1;
            let tables = version.tables().filter(|(_, live)| {
                expected.iter().any(|&(id, _, verdict)| id == live.table.id() && verdict.is_some())
            });
            let (mut kinds, mut hashes) = (Vec::new(), Vec::new());
            for header in tables.filter_map(|(_, live)| live.filter.sound()) {
                kinds.push(header.kind);
                hashes.push(header.hash);
            }
            seen.two_kinds += u32::from(kinds.iter().any(|kind| *kind != kinds[0]));
            seen.two_hashes += u32::from(hashes.iter().any(|hash| *hash != hashes[0]));
        }
        seen.without += u32::from(verdicts().any(|v| v != Verdict::No && v != Verdict::Maybe));
        seen.deepest = seen.deepest.max(verdicts().count());
        Ok(())
    }

    #[test]
    fn a_lookup_meets_its_candidates_in_order_whatever_their_filters_are() -> Result<()> {
        let mut rng = ChaCha8Rng::seed_from_u64(27);
        let mut seen = Seen::default();
        let policies = [
            FilterPolicy::default(),
            FilterPolicy::ribbon(),
            FilterPolicy::classic(),
            FilterPolicy::ribbon().with_hash(HashFunction::MurmurHash2),
            FilterPolicy::none(),
        ];
        for round in 0..60 {
            let dir = crate::tempdir::tempdir();
            let options = Options::new().background_threads(0).filter(policies[round % 5]);
            let options = options.memtable_bytes(1024).table_bytes(1024).level_base_bytes(1024);
            // Without compactions, more tables cover a key than are probed at once.
            let many = round % 5 == 4;
            let db = options.auto_compaction(!many).block_bytes(128).open(dir.path())?;
            for _ in 0..rng.random_range(0..200) {
                let key = key(&mut rng);
                if rng.random_bool(0.9) {
                    db.put(key, "value")?;
                } else {
                    db.delete(key)?;
                }
                if rng.random_bool(if many { 0.3 } else { 0.02 }) {
                    db.flush()?;
                }
                if rng.random_bool(0.02) {
                    db.set_policy(policies[rng.random_range(0..5)])?;
                }
            }
            db.flush()?;
            if round % 4 == 3 {
                db.set_filter_memory(Some(4096))?; // some filters are not resident
            }
            for _ in 0..200 {
                check(&db, &key(&mut rng), &mut seen)?;
            }
        }
        println!("{seen:?}");
        assert!(seen.denied > 1000 && seen.two_kinds > 100 && seen.two_hashes > 100);
        assert!(seen.without > 100 && seen.deepest > 16);
        Ok(())
    }
}
