//! Selects the entries that a merge keeps, and what it keeps of them.

use crate::expiry::{Millis, Moment, is_over};
use crate::key::{EntryKind, EntryRef, Seq};

/// Decides for each entry of a merge, in internal-key order, whether it is kept.
///
/// An entry is needed if it is the newest of its key or a snapshot sees it. A snapshot sees an entry if its
/// number is at least that of the entry, and below that of the next newer entry of the key. Of an entry that has
/// expired for all that see it, only a tombstone is needed.
#[derive(Debug)]
pub(crate) struct Survivors<'a> {
    snapshots: &'a [Moment],
    /// All later readers have at least this time.
    over: Millis,
    key: Vec<u8>,
    /// The sequence number of the previous entry, which has `key`.
    newer: Option<Seq>,
    pub(crate) expired: Expired,
}

/// The number of expired entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Expired {
    pub(crate) dropped: u64,
    pub(crate) to_tombstones: u64,
}

impl<'a> Survivors<'a> {
    /// `snapshots` ascend, and so do their times.
    pub(crate) fn new(snapshots: &'a [Moment], over: Millis) -> Self {
        Self { snapshots, over, key: Vec::new(), newer: None, expired: Expired::default() }
    }

    /// What must be kept of an entry. `nothing_older`, called for tombstones only: whether no table outside
    /// the merge can hold an older entry of the key.
    pub(crate) fn survivor<'e>(
        &mut self,
        entry: EntryRef<'e>,
        nothing_older: impl FnOnce(&[u8]) -> bool,
    ) -> Option<EntryRef<'e>> {
        let newer = self.newer.filter(|_| self.key == entry.key);
        if newer.is_none() {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
        }
        self.newer = Some(entry.seq);
        let older = self.snapshots.partition_point(|snapshot| snapshot.seq < entry.seq);
        let of_entry = |snapshot: &&Moment| newer.is_none_or(|newer| snapshot.seq < newer);
        let first_reader = self.snapshots.get(older).filter(of_entry);
        if newer.is_some() && first_reader.is_none() {
            return None;
        }
        // The first snapshot has the earliest time. Readers that are no snapshot see only the newest entry.
        let expiry = entry.expiry();
        let is_expired = is_over(expiry, first_reader.map_or(self.over, |first| first.time))
            && (newer.is_some() || is_over(expiry, self.over));
        let survivor = if is_expired {
            EntryRef { kind: EntryKind::Delete, value: &[], ..entry }
        } else {
            entry
        };
        // A tombstone that hides nothing is not needed. Its older entries within the merge are dropped too,
        // since no snapshot is older than the tombstone.
        let hides_nothing = survivor.kind == EntryKind::Delete
            && self.snapshots.first().is_none_or(|oldest| entry.seq <= oldest.seq);
        let is_dropped = hides_nothing && nothing_older(entry.key);
        self.expired.dropped += u64::from(is_expired && is_dropped);
        self.expired.to_tombstones += u64::from(is_expired && !is_dropped);
        (!is_dropped).then_some(survivor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expiry::stored;

    /// A change of the key.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Change {
        Put,
        Delete,
        Until(Millis),
    }
    use Change::{Delete, Put, Until};

    fn surviving(
        snapshots: &[Moment],
        over: Millis,
        nothing_older: bool,
        changes: &[(Seq, Change)],
    ) -> Vec<(Seq, Change)> {
        let mut survivors = Survivors::new(snapshots, over);
        let mut kept = Vec::new();
        for &(seq, change) in changes {
            let (kind, value) = match change {
                Put => (EntryKind::Put, Vec::new()),
                Delete => (EntryKind::Delete, Vec::new()),
                Until(expiry) => (EntryKind::Expiring, stored(expiry, b"")),
            };
            let entry = EntryRef { key: b"k", seq, kind, value: &value };
            if let Some(survivor) = survivors.survivor(entry, |_| nothing_older) {
                assert_eq!(survivor.seq, seq);
                kept.push((seq, if survivor.kind == kind { change } else { Delete }));
            }
        }
        kept
    }

    /// Snapshots at time 0.
    fn at(seqs: &[Seq]) -> Vec<Moment> {
        seqs.iter().map(|&seq| Moment { seq, time: 0 }).collect()
    }

    fn seqs(snapshots: &[Seq], nothing_older: bool, changes: &[(Seq, Change)]) -> Vec<Seq> {
        let kept = surviving(&at(snapshots), 0, nothing_older, changes);
        kept.into_iter().map(|(seq, _)| seq).collect()
    }

    #[test]
    fn without_snapshots_only_the_newest_change_survives() {
        assert_eq!(seqs(&[], false, &[(9, Put), (5, Put), (1, Delete)]), [9]);
        assert_eq!(seqs(&[], false, &[(9, Delete), (5, Put)]), [9]);
        assert_eq!(seqs(&[], true, &[(9, Delete), (5, Put)]), [0; 0]);
    }

    #[test]
    fn snapshots_keep_what_they_see_and_no_more() {
        let puts = [9, 7, 5, 3, 1].map(|seq| (seq, Put));
        assert_eq!(seqs(&[4, 6], true, &puts), [9, 5, 3]);
        assert_eq!(seqs(&[9], true, &puts), [9]);
        assert_eq!(seqs(&[7, 8], true, &puts), [9, 7]);
        assert_eq!(seqs(&[100], true, &puts), [9]);
    }

    #[test]
    fn a_tombstone_stays_while_it_hides_something() {
        let changes = [(9, Delete), (5, Put)];
        // A snapshot at 6 sees entry 5, so the tombstone 9 must stay and hide it from newer reads.
        assert_eq!(seqs(&[6], true, &changes), [9, 5]);
        assert_eq!(seqs(&[9], true, &changes), [0; 0]);
        assert_eq!(seqs(&[9], false, &changes), [9]);
    }

    #[test]
    fn an_expired_entry_goes_or_becomes_a_tombstone() {
        let changes = [(9, Until(50)), (5, Put)];
        assert_eq!(surviving(&[], 49, true, &changes), [(9, Until(50))]);
        assert_eq!(surviving(&[], 50, false, &changes), [(9, Delete)]);
        assert_eq!(surviving(&[], 50, true, &changes), []);
        let snapshot = |seq, time| [Moment { seq, time }];
        assert_eq!(surviving(&snapshot(9, 49), 60, true, &changes), [(9, Until(50))]);
        assert_eq!(surviving(&snapshot(9, 50), 60, true, &changes), []);
        assert_eq!(surviving(&snapshot(6, 40), 60, true, &changes), [(9, Delete), (5, Put)]);
        let mut survivors = Survivors::new(&[], 50);
        let value = stored(50, b"");
        for (key, nothing_older) in [(b"a", true), (b"b", false), (b"c", true)] {
            let entry = EntryRef { key, seq: 1, kind: EntryKind::Expiring, value: &value };
            let _ = survivors.survivor(entry, |_| nothing_older);
        }
        assert_eq!(survivors.expired, Expired { dropped: 2, to_tombstones: 1 });
    }

    /// What a reader gets of changes, newest first: the number of the one that gives the key a value.
    fn read(changes: &[(Seq, Change)], reader: Moment) -> Option<Seq> {
        let (seq, change) = changes.iter().find(|(seq, _)| *seq <= reader.seq)?;
        match change {
            Put => Some(*seq),
            Delete => None,
            Until(expiry) => (reader.time < *expiry).then_some(*seq),
        }
    }

    #[test]
    fn no_reader_can_tell_the_difference() {
        let kinds = [None, Some(Put), Some(Delete), Some(Until(10)), Some(Until(20))];
        let mut cases = 0;
        for shape in 0..kinds.len().pow(4) {
            // Four possible changes at 2, 4, 6, 8.
            let kind = |place: u32| kinds[shape / kinds.len().pow(place) % kinds.len()];
            let changes: Vec<(Seq, Change)> = (0..4)
                .rev()
                .filter_map(|place| Some((2 * u64::from(place) + 2, kind(place)?)))
                .collect();
            // Five possible snapshots, between the changes or at their numbers, at ascending times.
            for taken in 0..64_u64 {
                let first = 1 + taken / 32;
                for (from, over) in [(0, 0), (5, 20), (8, 10), (9, 25), (0, 15)] {
                    let snapshots: Vec<Moment> = (0..5)
                        .filter(|place| taken >> place & 1 == 1)
                        .map(|place| Moment { seq: 2 * place + first, time: from + 3 * place })
                        .collect();
                    for nothing_older in [false, true] {
                        let kept = surviving(&snapshots, over, nothing_older, &changes);
                        let newest = Moment { seq: Seq::MAX, time: over };
                        for reader in snapshots.iter().copied().chain([newest]) {
                            assert_eq!(read(&changes, reader), read(&kept, reader));
                            // What hides older entries outside the merge does so afterwards.
                            let hides = |changes: &[(Seq, Change)]| {
                                changes.iter().any(|(seq, _)| *seq <= reader.seq)
                            };
                            assert!(nothing_older || hides(&changes) == hides(&kept));
                            cases += 1;
                        }
                    }
                }
            }
        }
        assert!(cases > 100_000);
    }
}
