//! The options for filters.

use clap::ValueEnum;
use criba::{Allocation, FilterKind, FilterPolicy, HashFunction};

#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PolicyArgs {
    /// Which filters to begin with: classic (bloom, MurmurHash2, uniform, 1 %), default (ribbon,
    /// keyed, balanced, 10 bits a key) or blocked (the same with blocked ones)
    #[arg(long, value_name = "NAME", value_enum)]
    policy: Option<Named>,
    /// The kind of filter, or none
    #[arg(long, value_name = "KIND", value_enum, alias = "kind")]
    filter: Option<Kind>,
    /// A false-positive rate for every table
    #[arg(
        long,
        value_name = "RATE",
        conflicts_with_all = ["bits_per_key", "filter_bytes"],
        allow_negative_numbers = true
    )]
    fpr: Option<f64>,
    /// Bits per key, in the average of the store; 0 for no filters
    #[arg(
        long,
        value_name = "BITS",
        conflicts_with = "filter_bytes",
        allow_negative_numbers = true
    )]
    bits_per_key: Option<f64>,
    /// Bytes for all filters of the store
    #[arg(long, value_name = "BYTES")]
    filter_bytes: Option<u64>,
    /// Where the bits go: as many for each key, or where they avoid the most reads
    #[arg(long, value_name = "HOW", value_enum)]
    allocation: Option<Share>,
    /// How keys are hashed
    #[arg(long, value_name = "HASH", value_enum)]
    hash: Option<Hash>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Named {
    Classic,
    Default,
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Bloom,
    Blocked,
    Ribbon,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Share {
    Uniform,
    Balanced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Hash {
    Siphash13,
    Murmurhash2,
}

impl PolicyArgs {
    pub(crate) fn policy(&self) -> FilterPolicy {
        let mut policy = match self.policy {
            Some(Named::Classic) => FilterPolicy::classic(),
            Some(Named::Blocked) => FilterPolicy::blocked(),
            Some(Named::Default) | None => FilterPolicy::default(),
        };
        policy = match self.filter {
            Some(Kind::Bloom) => policy.with_kind(FilterKind::Bloom),
            Some(Kind::Blocked) => policy.with_kind(FilterKind::Blocked),
            Some(Kind::Ribbon) => policy.with_kind(FilterKind::Ribbon),
            Some(Kind::None) => return FilterPolicy::none(),
            None => policy,
        };
        policy = match (self.fpr, self.bits_per_key, self.filter_bytes) {
            (Some(rate), ..) => policy.with_rate(rate),
            (_, Some(bits), _) => policy.with_bits_per_key(bits),
            (.., Some(bytes)) => policy.with_total_bytes(bytes),
            _ => policy,
        };
        policy = match self.allocation {
            Some(Share::Uniform) => policy.with_allocation(Allocation::Uniform),
            Some(Share::Balanced) => policy.with_allocation(Allocation::Balanced),
            None => policy,
        };
        match self.hash {
            Some(Hash::Siphash13) => policy.with_hash(HashFunction::SipHash13),
            Some(Hash::Murmurhash2) => policy.with_hash(HashFunction::MurmurHash2),
            None => policy,
        }
    }

    /// The requested bits per key, if the size was given so.
    pub(crate) fn bits(&self) -> Option<f64> {
        self.bits_per_key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        policy: PolicyArgs,
    }

    fn policy(line: &str) -> FilterPolicy {
        let line = std::iter::once("x").chain(line.split_whitespace());
        <Line as clap::Parser>::try_parse_from(line).expect("a sound line").policy.policy()
    }

    #[test]
    fn options_change_the_policy_that_they_begin_with() {
        assert_eq!(policy(""), FilterPolicy::default());
        assert_eq!(policy("--policy classic"), FilterPolicy::classic());
        assert_eq!(policy("--filter blocked"), FilterPolicy::blocked());
        assert_eq!(policy("--kind none --bits-per-key 3"), FilterPolicy::none());
        assert_eq!(
            policy("--fpr 0.02 --filter bloom").to_string(),
            "bloom filters at a rate of 0.02, SipHash-1-3, keyed"
        );
        assert_eq!(
            policy("--policy classic --bits-per-key 12 --allocation balanced --hash siphash13"),
            FilterPolicy::default().with_kind(FilterKind::Bloom).with_bits_per_key(12.0)
        );
        assert_eq!(policy("--filter-bytes 5000"), FilterPolicy::default().with_total_bytes(5000));
    }
}
