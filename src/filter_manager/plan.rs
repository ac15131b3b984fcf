//! Recipes for the tables of one store, by its policy.

use super::allocation::{Balance, Share, TableGroup, balance, filter_bits};
use crate::filter::{Allocation, Amount, FilterPolicy, KeyCounts};
use criba_filter::store::{Recipe, Size};

/// How a policy distributes bits while a task writes tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Plan {
    /// The same recipe for every table, or none.
    Fixed(Option<Recipe>),
    /// All tables get their bits by one λ.
    Balanced { policy: FilterPolicy, balance: Balance },
}

impl Plan {
    pub(crate) fn recipe(&self, share: &Share) -> Option<Recipe> {
        match self {
            Self::Fixed(recipe) => *recipe,
            Self::Balanced { policy, balance } => {
                policy.recipe_of(balance.bits_per_key(&policy.weighed(share)))
            }
        }
    }

    /// The recipe for a table whose prefixes were not in the numbers of the plan. For bits per key, the rate is as
    /// planned and the bytes grow; for bytes, the bits per key fall.
    pub(crate) fn recipe_of_more(&self, table: KeyCounts, load: f64) -> Option<Recipe> {
        let recipe = self.recipe(&Share { hashed: table.keys, load })?;
        match (self, recipe.size) {
            (Self::Balanced { policy, .. }, Size::BitsPerKey(bits))
                if matches!(policy.amount, Amount::TotalBytes(_)) =>
            {
                policy.recipe_of(bits * table.keys as f64 / table.hashed() as f64)
            }
            _ => Some(recipe),
        }
    }
}

impl FilterPolicy {
    /// Whether the recipe of a table depends on the other tables.
    pub(crate) fn is_shared_out(&self) -> bool {
        match self.amount {
            Amount::None | Amount::Rate(_) | Amount::Geometry(_) => false,
            Amount::BitsPerKey(_) => self.allocation == Allocation::Balanced,
            Amount::TotalBytes(_) => true,
        }
    }

    pub(crate) fn plan(&self, tables: &[TableGroup]) -> Plan {
        if !self.is_shared_out() {
            return Plan::Fixed(self.recipe());
        }
        let total = self.total_bits(tables);
        let weighed =
            |group: &TableGroup| TableGroup { share: self.weighed(&group.share), ..*group };
        let tables: Vec<TableGroup> = tables.iter().map(weighed).collect();
        let balance = Balance::new(self.kind, &tables, total);
        Plan::Balanced { policy: *self, balance }
    }

    /// The recipe of each table of a store. Uses the total more exactly than a plan, whose λ is for unknown
    /// tables.
    pub(crate) fn recipes(&self, shares: &[Share]) -> Vec<Option<Recipe>> {
        if !self.is_shared_out() {
            return vec![self.recipe(); shares.len()];
        }
        let tables: Vec<TableGroup> = shares.iter().map(|&share| share.into()).collect();
        let weighed: Vec<Share> = shares.iter().map(|share| self.weighed(share)).collect();
        let bits = balance(self.kind, &weighed, self.total_bits(&tables));
        bits.into_iter().map(|bits| self.recipe_of(bits)).collect()
    }

    /// The bits for all filters, headers included: for bits per key, as many as with equal bits per key.
    fn total_bits(&self, tables: &[TableGroup]) -> u64 {
        match self.amount {
            Amount::TotalBytes(bytes) => bytes.saturating_mul(8),
            Amount::BitsPerKey(bits) => {
                let of_one = |share: &Share| filter_bits(self.kind, share.hashed, bits);
                tables.iter().map(|t| t.tables as f64 * of_one(&t.share)).sum::<f64>() as u64
            }
            Amount::None | Amount::Rate(_) | Amount::Geometry(_) => 0,
        }
    }

    /// The share with the load that the allocation assumes. For uniform bits it is proportional to the hashes;
    /// λ then gives every table the same rate.
    fn weighed(&self, share: &Share) -> Share {
        match self.allocation {
            Allocation::Balanced => *share,
            Allocation::Uniform => Share { load: share.hashed as f64, ..*share },
        }
    }

    fn recipe_of(&self, bits_per_key: f64) -> Option<Recipe> {
        let size = Size::BitsPerKey(bits_per_key);
        (bits_per_key > 0.0).then_some(Recipe { kind: self.kind, hash: self.hash, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FilterKind;
    use crate::sstable::block_bits;

    fn shares() -> Vec<Share> {
        let of = |hashed, load| Share { hashed, load };
        vec![of(1000, 1.0), of(10_000, 1.0), of(100_000, 1.0), of(5000, 0.0)]
    }

    fn each(shares: &[Share]) -> Vec<TableGroup> {
        shares.iter().map(|&share| share.into()).collect()
    }

    fn bits(recipes: &[Option<Recipe>], shares: &[Share]) -> f64 {
        let one = |(recipe, share): (&Option<Recipe>, &Share)| {
            recipe.map_or(0, |recipe| block_bits(&recipe, share.hashed))
        };
        recipes.iter().zip(shares).map(one).sum::<u64>() as f64
    }

    #[test]
    fn what_no_other_table_has_a_say_in_is_the_same_for_all() {
        let shares = shares();
        let policy = FilterPolicy::default();
        for policy in [
            FilterPolicy::none(),
            policy.with_rate(0.01),
            policy.with_geometry(1000, 7),
            policy.with_allocation(Allocation::Uniform),
        ] {
            assert!(!policy.is_shared_out(), "{policy}");
            assert_eq!(policy.recipes(&shares), vec![policy.recipe(); 4]);
            let plan = policy.plan(&each(&shares));
            assert!(shares.iter().all(|share| plan.recipe(share) == policy.recipe()), "{policy}");
        }
    }

    #[test]
    fn what_is_shared_out_comes_to_the_total_and_goes_where_lookups_are() {
        let shares = shares();
        for kind in FilterKind::ALL {
            let policy = FilterPolicy::bits_per_key(10.0).with_kind(kind);
            let even = bits(&[policy.recipe(); 4], &shares);
            let of_bytes = policy.with_total_bytes(even as u64 / 8);
            for policy in [policy, of_bytes] {
                assert!(policy.is_shared_out());
                let recipes = policy.recipes(&shares);
                let part = bits(&recipes, &shares) / even;
                assert!((0.98..=1.0).contains(&part), "{policy}: {part}");
                assert_eq!(recipes[3], None, "{policy}: it has no load");
                let per_key =
                    |i: usize| bits(&recipes[i..=i], &shares[i..]) / shares[i].hashed as f64;
                assert!(per_key(0) > per_key(1) && per_key(1) > per_key(2), "{policy}");
                let plan = policy.plan(&each(&shares));
                let planned: Vec<_> = shares.iter().map(|share| plan.recipe(share)).collect();
                let part = bits(&planned, &shares) / even;
                assert!((0.98..=1.0).contains(&part), "{policy}: {part} planned");
            }

            // Loads in proportion to keys give every table the same bits per key.
            let uniform = of_bytes.with_allocation(Allocation::Uniform);
            let recipes = uniform.recipes(&shares);
            let part = bits(&recipes, &shares) / even;
            assert!((0.98..=1.0).contains(&part), "{uniform}: {part}");
            for (recipe, share) in recipes.iter().zip(&shares) {
                let per_key = bits(&[*recipe], &[*share]) / share.hashed as f64;
                assert!((9.0..11.5).contains(&per_key), "{uniform}: {per_key}");
            }
        }
    }
}
