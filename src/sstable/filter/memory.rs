//! The memory of filters and its budget.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::sync::Arc;

use super::{FilterHeader, Portion};
use crate::sealed::{Meter, Seal, mapped_bytes};
use crate::sstable::format::TRAILER_BYTES;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The memory that filters take, and its limit.
#[derive(Debug)]
pub(crate) struct FilterMemory {
    meter: Arc<Meter>,
    /// `u64::MAX` for no budget.
    budget: AtomicU64,
    /// Held while memory is taken under the budget, so that two threads do not take the same bytes.
    budget_lock: Mutex<()>,
}

impl FilterMemory {
    pub(crate) fn new(budget: Option<u64>, seal: Seal) -> Self {
        let budget = AtomicU64::new(budget.unwrap_or(u64::MAX));
        Self { meter: Arc::new(Meter::new(seal)), budget, budget_lock: Mutex::new(()) }
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The bytes of resident filters, in whole pages: of live tables, of tables being written, and of filters
    /// that a reader still holds.
    pub(crate) fn resident(&self) -> u64 {
        self.meter.bytes()
    }

    pub(crate) fn budget(&self) -> Option<u64> {
        Some(self.budget.load(Ordering::Acquire)).filter(|&budget| budget < u64::MAX)
    }

    pub(crate) fn set_budget(&self, budget: Option<u64>) {
        let _budget = self.budget_lock.lock();
        self.budget.store(budget.unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Until the guard is dropped, no other thread takes memory or changes the budget.
    pub(crate) fn lock_budget(&self) -> MutexGuard<'_, ()> {
        self.budget_lock.lock()
    }

    /// Whether the budget has room to replace `old` bytes by `new` bytes.
    pub(crate) fn has_room(&self, old: u64, new: u64) -> bool {
        let others = self.resident().saturating_sub(old);
        self.budget().is_none_or(|budget| others.saturating_add(new) <= budget)
    }
}

/// The memory, in bytes, that a portion of a filter takes at most.
pub(crate) fn resident_bytes(stored: &FilterHeader, portion: Portion) -> u64 {
    match portion {
        Portion::Nothing => 0,
        Portion::Columns(_) => mapped_bytes(stored.bytes_of(portion)),
        // As it is read from the file, with its trailer.
        Portion::Whole => mapped_bytes(stored.bytes_of(portion) + TRAILER_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterPolicy, KeyHashes};
    use crate::sealed::SealedBytes;
    use crate::sstable::filter::{FilterId, build};
    use crate::sstable::samples::recipe;
    use criba_filter::FilterKind;
    use criba_filter::store::HashKey;

    fn take(memory: &FilterMemory, bytes: usize) -> SealedBytes {
        SealedBytes::metered(bytes, memory.meter(), |_| Ok(())).expect("anonymous memory")
    }

    #[test]
    fn what_others_take_and_what_is_wanted_fit_into_the_budget() {
        let memory = FilterMemory::new(None, Seal::default());
        assert_eq!(memory.budget(), None);
        assert!(memory.has_room(0, u64::MAX));
        let (one, other) = (take(&memory, 1), take(&memory, 1));
        let page = mapped_bytes(1);
        assert_eq!(memory.resident(), 2 * page);
        memory.set_budget(Some(3 * page));
        assert_eq!(memory.budget(), Some(3 * page));
        assert!(memory.has_room(0, page) && !memory.has_room(0, page + 1));
        assert!(memory.has_room(page, 2 * page) && !memory.has_room(page, 2 * page + 1));
        drop((one, other));
        assert!(memory.has_room(0, 3 * page) && !memory.has_room(0, 3 * page + 1));
        memory.set_budget(None);
        assert_eq!(memory.budget(), None);
    }

    /// Where header and array fill whole pages, the trailer takes another page.
    #[test]
    fn a_filter_takes_what_is_reckoned_for_it() {
        let hash_key = HashKey::new([5; 16]);
        let policy = FilterPolicy::bits_per_key(10.0).with_kind(FilterKind::Bloom);
        let recipe = recipe(&policy);
        let keys = 3174; // come to 496 words
        let mut hashes = KeyHashes::new(recipe.hash, &hash_key, None);
        (0..keys).for_each(|i: u64| hashes.add(&i.to_be_bytes()));
        let id = FilterId { table: 1, generation: 0 };
        let bytes = build(&recipe, &hash_key, id, &hashes);
        assert_eq!(bytes.len(), 4096);
        let stored = FilterHeader::decode(&bytes, bytes.len(), keys, &hash_key).expect("sound");
        let memory = FilterMemory::new(None, Seal::default());
        let _held = take(&memory, bytes.len() + TRAILER_BYTES);
        assert_eq!(resident_bytes(&stored, Portion::Whole), memory.resident());
        assert_eq!(resident_bytes(&stored, Portion::Nothing), 0);
    }
}
