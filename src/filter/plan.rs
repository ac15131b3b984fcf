//! What a policy means for the tables of one store.

use super::allocation::{Balance, Share, balance, filter_bits};
use super::policy::{Allocation, Amount, FilterPolicy, Recipe, Size};

/// How a policy gives filters out while one job writes tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Plan {
    /// The same recipe for every table, or none.
    Fixed(Option<Recipe>),
    /// By one λ.
    Balanced { policy: FilterPolicy, balance: Balance },
}

impl Plan {
    /// The filter for one table, if it is to have any.
    pub(crate) fn recipe(&self, share: &Share) -> Option<Recipe> {
        match self {
            Self::Fixed(recipe) => *recipe,
            Self::Balanced { policy, balance } => {
                policy.recipe_of(balance.bits_per_key(&policy.weighed(share)))
            }
        }
    }
}

impl FilterPolicy {
    /// Whether what one table gets depends on what others there are.
    pub(crate) fn is_shared_out(&self) -> bool {
        match self.amount {
            Amount::None | Amount::Rate(_) | Amount::Geometry(_) => false,
            Amount::BitsPerKey(_) => self.allocation == Allocation::Balanced,
            Amount::TotalBytes(_) => true,
        }
    }

    /// The plan for a store of these tables.
    pub(crate) fn plan(&self, shares: &[Share]) -> Plan {
        if !self.is_shared_out() {
            return Plan::Fixed(self.recipe());
        }
        let total = self.total_bits(shares);
        let balance = Balance::new(self.kind, &self.all_weighed(shares), total);
        Plan::Balanced { policy: *self, balance }
    }

    /// What each table of a store of these should have; to the bit, where a plan only has one λ for
    /// tables still to come.
    pub(crate) fn recipes(&self, shares: &[Share]) -> Vec<Option<Recipe>> {
        if !self.is_shared_out() {
            return vec![self.recipe(); shares.len()];
        }
        let bits = balance(self.kind, &self.all_weighed(shares), self.total_bits(shares));
        bits.into_iter().map(|bits| self.recipe_of(bits)).collect()
    }

    /// What all filters of a store take together, headers included: as much as they would if each
    /// table had as many bits a key as any other.
    fn total_bits(&self, shares: &[Share]) -> u64 {
        match self.amount {
            Amount::TotalBytes(bytes) => bytes.saturating_mul(8),
            Amount::BitsPerKey(bits) => {
                let bits = shares.iter().map(|share| filter_bits(self.kind, share.keys, bits));
                bits.sum::<f64>() as u64
            }
            Amount::None | Amount::Rate(_) | Amount::Geometry(_) => 0,
        }
    }

    /// A share as the allocation sees it. Bits are uniform where loads are as the keys: then λ gives
    /// every table the same rate.
    fn weighed(&self, share: &Share) -> Share {
        match self.allocation {
            Allocation::Balanced => *share,
            Allocation::Uniform => Share { load: share.keys as f64, ..*share },
        }
    }

    fn all_weighed(&self, shares: &[Share]) -> Vec<Share> {
        shares.iter().map(|share| self.weighed(share)).collect()
    }

    fn recipe_of(&self, bits_per_key: f64) -> Option<Recipe> {
        let size = Size::BitsPerKey(bits_per_key);
        (bits_per_key > 0.0).then_some(Recipe { kind: self.kind, hash: self.hash, size })
    }
}
