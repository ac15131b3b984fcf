//! Scans within a prefix probe the filter of each table before they read a block of it.

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::filter::{PrefixExtractor, PrefixHash};
use crate::key::EntryRef;
use crate::key_range::{KeyBounds, borrowed};
use crate::ledger::{Ledger, PrefixCounts, Verdict};
use crate::sstable::TableFilter;
use criba_filter::store::PrefixKey;

/// The prefixes that all keys of a scan have, for probes of tables.
#[derive(Debug)]
pub(crate) struct PrefixProbe {
    extractor: PrefixExtractor,
    /// The shortest prefix first.
    prefixes: Vec<PrefixHash>,
    bounds: KeyBounds,
    ignore_filters: bool,
    ledger: Arc<Ledger>,
}

impl PrefixProbe {
    /// `None` if keys within these bounds have no prefix in common.
    pub(crate) fn new(
        extractor: PrefixExtractor,
        bounds: &KeyBounds,
        hash_key: &PrefixKey,
        ignore_filters: bool,
        ledger: &Arc<Ledger>,
    ) -> Option<Self> {
        let common = extractor.common(borrowed(bounds));
        let prefixes: Vec<_> = common.map(|prefix| PrefixHash::new(prefix, hash_key)).collect();
        if prefixes.is_empty() {
            return None;
        }
        let (bounds, ledger) = (bounds.clone(), Arc::clone(ledger));
        Some(Self { extractor, prefixes, bounds, ignore_filters, ledger })
    }

    pub(super) fn probe(&self, filter: &TableFilter) -> Verdict {
        let verdict = if self.ignore_filters {
            Verdict::Unfiltered
        } else {
            filter.prefix_verdict(self.extractor, &self.prefixes)
        };
        let none = PrefixCounts::default();
        self.ledger.count_prefix(match verdict {
            Verdict::No => PrefixCounts { probes: 1, skipped: 1, ..none },
            Verdict::Maybe => PrefixCounts { probes: 1, passed: 1, ..none },
            Verdict::Unfiltered | Verdict::NotResident | Verdict::Degraded => {
                PrefixCounts { unfiltered: 1, ..none }
            }
        });
        verdict
    }

    /// Counts the result of a "maybe": the first entry that the table had within the bounds.
    pub(super) fn opened(&self, first: Option<EntryRef<'_>>) {
        let within =
            |entry: EntryRef<'_>| RangeBounds::<[u8]>::contains(&borrowed(&self.bounds), entry.key);
        if !first.is_some_and(within) {
            self.ledger.count_prefix(PrefixCounts { wasted: 1, ..PrefixCounts::default() });
        }
    }
}
