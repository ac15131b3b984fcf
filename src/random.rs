//! Random numbers that identify a store and salt its checksums.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::io;
use std::path::Path;

use crate::error::{IoContext, Result};
use criba_filter::store::mix;

/// What a random number is for. With a seed, it is a function of the seed and of this.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    StoreId,
    HashKey { half: u64 },
    SaltOfManifest { number: u64 },
    SaltOfTable { id: u64, half: u64 },
    NameOfDirectory { attempt: u64 },
}

/// Random numbers of the operating system, or of a seed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RandomSource {
    seed: Option<u64>,
}

impl RandomSource {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self { seed }
    }

    /// Whether the store must do the same in each run.
    pub(crate) fn is_seeded(self) -> bool {
        self.seed.is_some()
    }

    /// # Errors
    /// [`Io`](crate::Error::Io): the operating system has none.
    pub(crate) fn number(self, purpose: Purpose) -> Result<u64> {
        let Some(seed) = self.seed else {
            let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()));
            return random.context("get random bytes", Path::new("the operating system"));
        };
        let stream = match purpose {
            Purpose::StoreId => 1,
            Purpose::HashKey { half } => 2 + half,
            Purpose::SaltOfManifest { number } => 1 << 61 | number,
            Purpose::NameOfDirectory { attempt } => 1 << 60 | attempt,
            Purpose::SaltOfTable { id, half } => 1 << 62 | half << 61 | id,
        };
        // SplitMix64: similar seeds give different outputs.
        Ok(mix(seed.wrapping_add(stream.wrapping_mul(0x9E37_79B9_7F4A_7C15))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_different_ones_for_each_purpose() {
        let purposes = [
            Purpose::StoreId,
            Purpose::HashKey { half: 0 },
            Purpose::HashKey { half: 1 },
            Purpose::SaltOfManifest { number: 1 },
            Purpose::SaltOfManifest { number: 2 },
            Purpose::SaltOfTable { id: 1, half: 0 },
            Purpose::SaltOfTable { id: 1, half: 1 },
            Purpose::SaltOfTable { id: 2, half: 0 },
            Purpose::NameOfDirectory { attempt: 0 },
        ];
        let numbers = |seed| {
            let source = RandomSource::new(seed);
            purposes.map(|purpose| source.number(purpose).expect("a number"))
        };
        assert_eq!(numbers(Some(7)), numbers(Some(7)));
        let mut all = [numbers(Some(7)), numbers(Some(8)), numbers(None), numbers(None)].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 * purposes.len());
    }
}
