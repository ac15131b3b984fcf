//! The plan by which filters were given out last, for further jobs to go by.
//!
//! A plan is made from the load of every table, which takes microseconds each: milliseconds with thousands of
//! tables, and there may be a job for each table that is written. While there are many, one changes little, so
//! one plan serves until enough has changed: then jobs spend the less on plans the more tables there are.

use crate::filter::{FilterPolicy, Plan};
use crate::sync::Mutex;

/// With fewer tables each job makes its own plan.
const MANY_TABLES: usize = 256;
/// One plan serves while keys change by no more than this part, and for this part of the lookups in which what
/// tables were asked for counts half.
const KEYS_PART: u64 = 128;
const HALF_LIFE_PART: u64 = 8;

#[derive(Debug, Default)]
pub(crate) struct LastPlan(Mutex<Option<(Basis, Plan)>>);

/// What a plan is made from, as far as it tells whether that has changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Basis {
    pub(super) policy: FilterPolicy,
    pub(super) tables: usize,
    /// Of all tables together.
    pub(super) keys: u64,
    pub(super) lookups: u64,
    /// After so many lookups, what was met before counts half.
    pub(super) half_life: u64,
}

impl Basis {
    /// Whether a plan made from this serves `now`.
    fn serves(&self, now: &Self) -> bool {
        self.policy == now.policy
            && self.tables.min(now.tables) >= MANY_TABLES
            && self.keys.abs_diff(now.keys) <= self.keys / KEYS_PART
            && self.lookups.abs_diff(now.lookups) <= self.half_life / HALF_LIFE_PART
    }
}

impl LastPlan {
    /// The last plan if it serves, or else a new one.
    pub(super) fn for_basis(&self, now: Basis, make: impl FnOnce() -> Plan) -> Plan {
        let mut last = self.0.lock();
        match &*last {
            Some((basis, plan)) if basis.serves(&now) => *plan,
            _ => last.insert((now, make())).1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Share;

    fn plan(policy: FilterPolicy, keys: u64) -> Plan {
        policy.plan(&[Share { keys, load: 1.0 }, Share { keys: 10 * keys, load: 1.0 }])
    }

    #[test]
    fn a_plan_serves_until_enough_has_changed() {
        let policy = FilterPolicy::default();
        let start = Basis { policy, tables: 1000, keys: 1_280_000, lookups: 50, half_life: 800 };
        let other = policy.with_bits_per_key(8.0);
        let cases = [
            (start, true),
            (Basis { keys: 1_290_000, ..start }, true),
            (Basis { keys: 1_290_001, ..start }, false),
            (Basis { keys: 1_269_999, ..start }, false),
            (Basis { lookups: 150, ..start }, true),
            (Basis { lookups: 151, ..start }, false),
            (Basis { tables: 255, ..start }, false),
            (Basis { policy: other, ..start }, false),
        ];
        for (now, serves) in cases {
            let last = LastPlan::default();
            let [first, second] = [plan(policy, 1000), plan(policy, 1_000_000)];
            assert_ne!(first, second);
            assert_eq!(last.for_basis(start, || first), first);
            let expected = if serves { first } else { second };
            assert_eq!(last.for_basis(now, || second), expected, "{now:?}");
        }
    }

    #[test]
    fn changes_add_up_from_where_the_plan_was_made() {
        let policy = FilterPolicy::default();
        let (last, mut made) = (LastPlan::default(), 0);
        for keys in (1_280_000..=1_380_000).step_by(5000) {
            let now = Basis { policy, tables: 1000, keys, lookups: 0, half_life: 800 };
            last.for_basis(now, || {
                made += 1;
                plan(policy, keys)
            });
        }
        assert_eq!(made, 7); // one in three
    }

    #[test]
    fn few_tables_have_a_plan_of_their_own_each() {
        let policy = FilterPolicy::default();
        let last = LastPlan::default();
        let few = Basis { policy, tables: 255, keys: 1000, lookups: 0, half_life: 4096 };
        let mut made = 0;
        for _ in 0..3 {
            last.for_basis(few, || {
                made += 1;
                plan(policy, 1000)
            });
        }
        assert_eq!(made, 3);
    }
}
