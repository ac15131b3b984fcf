//! The options for filters.

use clap::ValueEnum;
use criba::{Allocation, FilterKind, FilterPolicy, HashFunction};

use crate::failure::{Failure, Result};
use crate::text::bytes_of;

/// The options that change the filters of later tables.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FilterArgs {
    /// The kind of filter, or none
    #[arg(long, value_name = "KIND", value_enum, alias = "kind")]
    filter: Option<Kind>,
    /// A false-positive rate for every table
    #[arg(
        long,
        value_name = "RATE",
        conflicts_with = "bits_per_key",
        allow_negative_numbers = true
    )]
    fpr: Option<f64>,
    /// Bits per key, in the average of the store; 0 for no filters
    #[arg(long, value_name = "BITS", allow_negative_numbers = true)]
    bits_per_key: Option<f64>,
}

impl FilterArgs {
    /// The policy with these options; `None` if there are none.
    pub(crate) fn change(&self, policy: FilterPolicy) -> Option<FilterPolicy> {
        if self.filter.is_none() && self.fpr.is_none() && self.bits_per_key.is_none() {
            return None;
        }
        let none = policy.with_bits_per_key(0.0);
        // Nothing is left of the filters that the store had before it had none.
        let policy = if policy == none { FilterPolicy::default() } else { policy };
        let policy = match self.filter {
            Some(Kind::Bloom) => policy.with_kind(FilterKind::Bloom),
            Some(Kind::Ribbon) => policy.with_kind(FilterKind::Ribbon),
            Some(Kind::None) => return Some(none),
            Some(Kind::Blocked) | None => policy, // `check` refuses blocked filters
        };
        Some(match (self.fpr, self.bits_per_key) {
            (Some(rate), _) => policy.with_rate(rate),
            (_, Some(bits)) => policy.with_bits_per_key(bits),
            _ => policy,
        })
    }

    /// Refuses numbers out of range, and options that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        if self.filter == Some(Kind::Blocked) {
            return no_blocked("--filter");
        }
        if let Some(rate) = self.fpr.filter(|&rate| !(rate > 0.0 && rate < 1.0)) {
            return wrong(format!(
                "--fpr {rate}: expected more than 0 and less than 1, such as 0.01"
            ));
        }
        if let Some(bits) = self.bits_per_key.filter(|bits| !(0.0..=64.0).contains(bits)) {
            return wrong(format!(
                "--bits-per-key {bits}: expected 0 (no filters) to 64, such as 10"
            ));
        }
        let sizes =
            [("--fpr", self.fpr.is_some()), ("--bits-per-key", self.bits_per_key.is_some())];
        match sizes.into_iter().find(|(_, given)| *given && self.filter == Some(Kind::None)) {
            Some((size, _)) => wrong(format!("--filter none and {size} contradict each other")),
            None => Ok(()),
        }
    }
}

fn no_blocked(option: &str) -> Result<()> {
    wrong(format!(
        "{option} blocked: stores have no blocked filters; {option} ribbon wastes fewer reads with as many bytes"
    ))
}

fn wrong(what: String) -> Result<()> {
    Err(Failure::Usage(what))
}

/// All options for filters.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PolicyArgs {
    /// Which filters to begin with: bloom and ribbon are keyed and balanced, with 10 bits a key;
    /// classic is bloom with MurmurHash2, uniform, 1 % in every table
    #[arg(long, value_name = "NAME", value_enum)]
    policy: Option<Named>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Bytes for all filters of the store
    #[arg(long, value_name = "BYTES", value_parser = bytes_of, conflicts_with_all = ["fpr", "bits_per_key"])]
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
    #[value(alias = "default")]
    Bloom,
    Ribbon,
    Classic,
    /// Of older stores; refused with a hint
    #[value(hide = true)]
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Bloom,
    Ribbon,
    None,
    /// Of older stores; refused with a hint
    #[value(hide = true)]
    Blocked,
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
    /// The policy that these options make from `policy`.
    pub(crate) fn applied_to(&self, policy: FilterPolicy) -> FilterPolicy {
        let begun = match self.policy {
            Some(Named::Bloom) => FilterPolicy::bloom(),
            Some(Named::Ribbon) => FilterPolicy::ribbon(),
            Some(Named::Classic) => FilterPolicy::classic(),
            Some(Named::Blocked) | None => policy,
        };
        let mut policy = self.filter.change(begun).unwrap_or(begun);
        if let Some(bytes) = self.filter_bytes {
            policy = policy.with_total_bytes(bytes);
        }
        if let Some(share) = self.allocation {
            policy = policy.with_allocation(match share {
                Share::Uniform => Allocation::Uniform,
                Share::Balanced => Allocation::Balanced,
            });
        }
        if let Some(hash) = self.hash {
            policy = policy.with_hash(match hash {
                Hash::Siphash13 => HashFunction::SipHash13,
                Hash::Murmurhash2 => HashFunction::MurmurHash2,
            });
        }
        policy
    }

    /// As [`FilterArgs::check`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.policy == Some(Named::Blocked) {
            return no_blocked("--policy");
        }
        self.filter.check()?;
        let FilterArgs { fpr, bits_per_key, .. } = self.filter;
        if self.is_none() && self.filter_bytes.is_some() {
            return wrong("--filter none and --filter-bytes contradict each other".into());
        }
        let sized = fpr.is_some() || bits_per_key.is_some() || self.filter_bytes.is_some();
        let rate = if fpr.is_some() {
            "--fpr"
        } else if self.policy == Some(Named::Classic) && !sized {
            "--policy classic"
        } else {
            return Ok(());
        };
        match self.allocation {
            Some(Share::Balanced) => wrong(format!(
                "{rate} and --allocation balanced contradict each other: a rate is that of every table; \
                 what can be balanced is --bits-per-key"
            )),
            _ => Ok(()),
        }
    }

    /// As [`applied_to`](Self::applied_to) the default policy.
    pub(crate) fn policy(&self) -> FilterPolicy {
        self.applied_to(FilterPolicy::default())
    }

    /// Whether no filters are requested, by their kind.
    pub(crate) fn is_none(&self) -> bool {
        self.filter.filter == Some(Kind::None)
    }

    /// The requested bits per key, if the size was given so.
    pub(crate) fn bits(&self) -> Option<f64> {
        self.filter.bits_per_key
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
        assert_eq!(policy("--filter ribbon"), FilterPolicy::ribbon());
        assert_eq!(policy("--policy default"), FilterPolicy::bloom());
        assert_eq!(policy("--policy ribbon"), FilterPolicy::ribbon());
        assert_eq!(policy("--kind none"), FilterPolicy::none());
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
    #[test]
    fn options_that_are_not_given_change_nothing() {
        let ribbon = FilterPolicy::ribbon().with_rate(0.001);
        let bits = FilterArgs { bits_per_key: Some(7.0), ..FilterArgs::default() };
        let bloom = FilterArgs { filter: Some(Kind::Bloom), ..FilterArgs::default() };
        assert_eq!(FilterArgs::default().change(ribbon), None);
        assert_eq!(bits.change(ribbon), Some(ribbon.with_bits_per_key(7.0)));
        assert_eq!(bloom.change(ribbon), Some(FilterPolicy::bloom().with_rate(0.001)));
        let left = FilterPolicy::classic().with_bits_per_key(0.0);
        for none in [FilterPolicy::none(), left] {
            assert_eq!(bloom.change(none), Some(FilterPolicy::bloom()));
        }
        assert_eq!(PolicyArgs::default().applied_to(ribbon), ribbon);
    }
}
