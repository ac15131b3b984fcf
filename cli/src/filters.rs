//! Asking for filters on the command line.

use clap::ValueEnum;
use criba::{FilterKind, FilterPolicy};

/// Which filters tables are to have.
#[derive(Debug, clap::Args)]
pub(crate) struct FilterArgs {
    /// What to begin with: bloom filters over MurmurHash2, 1 % everywhere; the default, blocked ones
    /// over a keyed hash, 10 bits a key; or the same with ribbon filters, the fewest reads a byte
    #[arg(long, value_enum, default_value_t = Policy::Default)]
    policy: Policy,
    /// The kind of filter, instead of the policy's
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// The false-positive rate of each filter, instead of the policy's size
    #[arg(long, value_name = "P", conflicts_with = "bits_per_key")]
    fpr: Option<f64>,
    /// The filters' size, instead of the policy's; 0 for no filters
    #[arg(long, value_name = "B")]
    bits_per_key: Option<f64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Policy {
    Classic,
    Default,
    Compact,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Bloom,
    Blocked,
    Ribbon,
}

impl FilterArgs {
    pub(crate) fn policy(&self) -> FilterPolicy {
        let mut policy = match self.policy {
            Policy::Classic => FilterPolicy::classic(),
            Policy::Default => FilterPolicy::default(),
            Policy::Compact => FilterPolicy::compact(),
        };
        if let Some(kind) = self.kind {
            policy = policy.with_kind(match kind {
                Kind::Bloom => FilterKind::Bloom,
                Kind::Blocked => FilterKind::Blocked,
                Kind::Ribbon => FilterKind::Ribbon,
            });
        }
        if let Some(rate) = self.fpr {
            policy = policy.with_rate(rate);
        }
        if let Some(bits) = self.bits_per_key {
            policy = policy.with_bits_per_key(bits);
        }
        policy
    }
}
