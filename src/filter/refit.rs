//! Selects the tables for refits: those whose allocated bits changed because tables came, moved or went.
//!
//! A small difference does not pay for reading a table. But many may add up, and the policy promises the
//! total of the store. So if the total is wrong, the largest small differences are mended too. After all
//! selected refits, nothing is selected for the same tables and loads.

use std::collections::VecDeque;

use super::allocation::Share;
use super::policy::FilterPolicy;
use super::recipe::Recipe;

/// A difference counts if it is larger than this many bits per key, …
const BITS_PER_KEY: f64 = 0.5;
/// … this part of the filter, …
const FRACTION: f64 = 0.05;
/// … and this many bits, a cache line.
const BITS: f64 = 512.0;
/// If the total is wrong by more than the first part, refits reduce the error to the second.
const TOTAL_OFF: (f64, f64) = (0.015, 0.005);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) id: u64,
    pub(crate) share: Share,
    /// The bits of the filter, header included, 0 without one; `None` if the allocation may not replace it.
    pub(crate) filter_bits: Option<u64>,
}

/// The difference between the bits of a filter that may be replaced and the wanted bits.
struct Difference {
    id: u64,
    keys: f64,
    now: f64,
    wanted: f64,
    recipe: Option<Recipe>,
}

impl Difference {
    /// The bits that a refit saves; negative if it adds bits.
    fn too_many(&self) -> f64 {
        self.now - self.wanted
    }

    /// The saved bits per key, since a refit reads all keys.
    fn worth(&self) -> f64 {
        self.too_many() / self.keys
    }

    fn counts(&self) -> bool {
        let least = (BITS_PER_KEY * self.keys).max(FRACTION * self.wanted).max(BITS);
        self.too_many().abs() > least
    }
}

/// The tables to refit, with their recipes; `None` for no filter. Refits that free the most bits come first,
/// so that the total stays low.
pub(crate) fn refits(policy: &FilterPolicy, tables: &[Standing]) -> Vec<(u64, Option<Recipe>)> {
    if !policy.is_shared_out() {
        return Vec::new();
    }
    let shares: Vec<Share> = tables.iter().map(|table| table.share).collect();
    let recipes = policy.recipes(&shares);
    let differences = tables.iter().zip(recipes).filter_map(|(table, recipe)| {
        let keys = table.share.keys;
        let wanted = recipe.map_or(0, |recipe| recipe.filter_bits(keys)) as f64;
        let now = table.filter_bits? as f64;
        Some(Difference { id: table.id, keys: keys as f64, now, wanted, recipe })
    });
    let (mut chosen, mut rest): (Vec<_>, Vec<_>) = differences.partition(Difference::counts);

    let total: f64 = chosen.iter().chain(&rest).map(|table| table.wanted).sum();
    let mut off: f64 = rest.iter().map(Difference::too_many).sum();
    if off.abs() > TOTAL_OFF.0 * total {
        // The most bits per key first, so that the fewest keys are read.
        rest.sort_by(|a, b| b.worth().total_cmp(&a.worth()).then(a.id.cmp(&b.id)));
        let mut rest = VecDeque::from(rest);
        while off.abs() > TOTAL_OFF.1 * total {
            let table = if off > 0.0 { rest.pop_front() } else { rest.pop_back() };
            let Some(table) = table else { break };
            off -= table.too_many();
            chosen.push(table);
        }
    }
    chosen.sort_by(|a, b| b.too_many().total_cmp(&a.too_many()).then(a.id.cmp(&b.id)));
    chosen.into_iter().map(|table| (table.id, table.recipe)).collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{Allocation, FilterKind};

    fn levels(policy: &FilterPolicy, bits: impl Fn(usize) -> Option<f64>) -> Vec<Standing> {
        let mut tables = Vec::new();
        for (level, count) in [100, 10, 1].into_iter().enumerate() {
            for _ in 0..count {
                let id = tables.len() as u64;
                let share = Share { keys: 10_000, load: 1.0 / f64::from(count) };
                let bits = bits(level).and_then(|bits| policy.with_bits_per_key(bits).recipe());
                let filter_bits = bits.map_or(0, |recipe| recipe.filter_bits(share.keys));
                tables.push(Standing { id, share, filter_bits: Some(filter_bits) });
            }
        }
        tables
    }

    fn apply(tables: &mut [Standing], refits: &[(u64, Option<Recipe>)]) {
        for (id, recipe) in refits {
            let table = tables.iter_mut().find(|table| table.id == *id).expect("a live table");
            table.filter_bits = Some(recipe.map_or(0, |r| r.filter_bits(table.share.keys)));
        }
    }

    fn total(tables: &[Standing]) -> f64 {
        tables.iter().filter_map(|table| table.filter_bits).sum::<u64>() as f64
    }

    fn balanced(kind: FilterKind) -> FilterPolicy {
        FilterPolicy::bits_per_key(10.0).with_kind(kind)
    }

    #[test]
    fn a_difference_counts_from_the_most_of_three_limits() {
        for (keys, wanted, limit) in
            [(10_000.0, 40_000.0, 5000.0), (10_000.0, 200_000.0, 10_000.0), (100.0, 1000.0, 512.0)]
        {
            for sign in [-1.0, 1.0] {
                let counts = |off: f64| {
                    let now = wanted + sign * off;
                    Difference { id: 0, keys, now, wanted, recipe: None }.counts()
                };
                assert!(!counts(limit) && counts(limit + 1.0), "{keys} keys, {wanted} bits");
            }
        }
    }

    #[test]
    fn what_has_its_share_is_left_alone() {
        for kind in FilterKind::ALL {
            let policy = balanced(kind);
            let mut tables = levels(&policy, |_| Some(10.0));
            let uniform = total(&tables);
            let first = refits(&policy, &tables);
            assert!(first.len() > 10, "{kind}: {} refits", first.len());
            apply(&mut tables, &first);
            assert!((total(&tables) / uniform - 1.0).abs() < 0.006, "{kind}");
            assert_eq!(refits(&policy, &tables), []);
        }
    }

    #[test]
    fn a_table_that_moved_down_gets_another_filter() {
        let policy = balanced(FilterKind::Ribbon);
        let mut tables = levels(&policy, |_| Some(10.0));
        let right = refits(&policy, &tables);
        apply(&mut tables, &right);
        // A table of the lowest level still has the bits that it had on the top level.
        tables[5].filter_bits = tables[110].filter_bits;
        let refits = refits(&policy, &tables);
        assert_eq!(refits.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn small_differences_are_mended_where_they_add_up() {
        let policy = FilterPolicy::default().with_kind(FilterKind::Bloom).with_total_bytes(2 << 20);
        let policy = policy.with_allocation(Allocation::Uniform);
        let mut tables = levels(&policy, |_| None);
        let first = refits(&policy, &tables);
        apply(&mut tables, &first);
        assert!((total(&tables) / (8.0 * 2_097_152.0) - 1.0).abs() < 0.006);
        for (part, expected) in [(0.99, 0..1), (0.97, 60..111)] {
            let mut fewer = tables.clone();
            for table in &mut fewer {
                table.filter_bits = table.filter_bits.map(|bits| (part * bits as f64) as u64);
            }
            let refits = refits(&policy, &fewer);
            assert!(expected.contains(&refits.len()), "{part}: {} refits", refits.len());
            apply(&mut fewer, &refits);
            assert!((total(&fewer) / (8.0 * 2_097_152.0) - 1.0).abs() < 0.015);
        }
    }

    #[test]
    fn small_differences_are_mended_where_few_keys_are_read() {
        let policy = FilterPolicy::default().with_kind(FilterKind::Bloom).with_total_bytes(1 << 20);
        let policy = policy.with_allocation(Allocation::Uniform);
        for sign in [-1.0, 1.0] {
            // Two large tables differ by more bits than any other, but by few bits per key.
            let is_large = |id: u64| [3, 11].contains(&id);
            let mut tables: Vec<Standing> = (0..22)
                .map(|id| {
                    let keys = if is_large(id) { 200_000 } else { 20_000 };
                    Standing { id, share: Share { keys, load: 1.0 }, filter_bits: Some(0) }
                })
                .collect();
            let first = refits(&policy, &tables);
            apply(&mut tables, &first);
            for table in &mut tables {
                let a_key = if is_large(table.id) { 0.05 } else { 0.45 };
                let off = sign * table.share.keys as f64 * a_key;
                table.filter_bits = table.filter_bits.map(|bits| (bits as f64 + off) as u64);
            }
            let mended = refits(&policy, &tables);
            assert!((15..20).contains(&mended.len()), "{} refits", mended.len());
            assert!(!mended.iter().any(|&(id, _)| is_large(id)));
        }
    }

    #[test]
    fn a_fixed_rate_and_filters_of_other_policies_take_no_share() {
        let policy = balanced(FilterKind::Bloom);
        let mut tables = levels(&policy, |_| Some(3.0));
        assert_eq!(refits(&FilterPolicy::rate(0.01), &tables), []);
        assert_eq!(refits(&policy.with_allocation(Allocation::Uniform), &tables), []);
        assert_eq!(refits(&FilterPolicy::none(), &tables), []);
        assert_eq!(refits(&policy, &tables).len(), tables.len());
        for table in &mut tables {
            table.filter_bits = None;
        }
        assert_eq!(refits(&policy, &tables), []);
    }

    #[test]
    fn it_comes_to_rest_at_once() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let (mut replaced, mut shapes) = (0, 0);
        for kind in FilterKind::ALL {
            for _ in 0..200 {
                let policy = balanced(kind).with_bits_per_key(rng.random_range(2.0..20.0));
                let mut tables: Vec<Standing> = (0..rng.random_range(1..80))
                    .map(|id| {
                        let keys = 10_f64.powf(rng.random_range(0.0..6.0)) as u64;
                        let load = rng.random_range(-15.0..1.0_f64).exp2();
                        let bits = keys as f64 * rng.random_range(0.0..20.0);
                        let filter_bits = rng.random_bool(0.9).then_some(bits as u64);
                        Standing { id, share: Share { keys, load }, filter_bits }
                    })
                    .collect();
                let first = refits(&policy, &tables);
                apply(&mut tables, &first);
                assert_eq!(refits(&policy, &tables), [], "{kind}");
                replaced += first.len();
                shapes += 1;
            }
        }
        println!("{replaced} filters of {shapes} stores replaced, none of them twice");
        assert!(shapes == 600 && replaced > 5000);
    }
}
