//! Selects the entries that a merge keeps.

use crate::key::{EntryKind, EntryRef, Seq};

/// Decides for each entry of a merge, in internal-key order, whether it is kept.
///
/// An entry is needed if it is the newest of its key or a snapshot sees it. A snapshot sees an entry if its
/// number is at least that of the entry, and below that of the next newer entry of the key.
#[derive(Debug)]
pub(crate) struct Survivors<'a> {
    snapshots: &'a [Seq],
    key: Vec<u8>,
    /// The sequence number of the previous entry, which has `key`.
    newer: Option<Seq>,
}

impl<'a> Survivors<'a> {
    /// `snapshots` ascend.
    pub(crate) fn new(snapshots: &'a [Seq]) -> Self {
        Self { snapshots, key: Vec::new(), newer: None }
    }

    /// Whether the entry must be kept. `nothing_older`, called for tombstones only: whether no table outside
    /// the merge can hold an older entry of the key.
    pub(crate) fn keeps(
        &mut self,
        entry: EntryRef<'_>,
        nothing_older: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let newer = self.newer.filter(|_| self.key == entry.key);
        if newer.is_none() {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
        }
        self.newer = Some(entry.seq);
        let older = self.snapshots.partition_point(|&snapshot| snapshot < entry.seq);
        let first_reader = self.snapshots.get(older);
        let seen = match (newer, first_reader) {
            (None, _) => true,
            (Some(newer), Some(&snapshot)) => snapshot < newer,
            (Some(_), None) => false,
        };
        // A tombstone that hides nothing is not needed. Its older entries within the merge are dropped too,
        // since no snapshot is older than the tombstone.
        let hides_nothing = entry.kind == EntryKind::Delete
            && self.snapshots.first().is_none_or(|&oldest| entry.seq <= oldest);
        seen && !(hides_nothing && nothing_older(entry.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surviving(snapshots: &[Seq], nothing_older: bool, changes: &[(Seq, bool)]) -> Vec<Seq> {
        let mut survivors = Survivors::new(snapshots);
        changes
            .iter()
            .filter(|&&(seq, tombstone)| {
                let kind = if tombstone { EntryKind::Delete } else { EntryKind::Put };
                survivors.keeps(EntryRef { key: b"k", seq, kind, value: b"" }, |_| nothing_older)
            })
            .map(|(seq, _)| *seq)
            .collect()
    }

    #[test]
    fn without_snapshots_only_the_newest_change_survives() {
        assert_eq!(surviving(&[], false, &[(9, false), (5, false), (1, true)]), [9]);
        assert_eq!(surviving(&[], false, &[(9, true), (5, false)]), [9]);
        assert_eq!(surviving(&[], true, &[(9, true), (5, false)]), [0; 0]);
    }

    #[test]
    fn snapshots_keep_what_they_see_and_no_more() {
        let puts = [(9, false), (7, false), (5, false), (3, false), (1, false)];
        assert_eq!(surviving(&[4, 6], true, &puts), [9, 5, 3]);
        assert_eq!(surviving(&[9], true, &puts), [9]);
        assert_eq!(surviving(&[7, 8], true, &puts), [9, 7]);
        assert_eq!(surviving(&[100], true, &puts), [9]);
    }

    #[test]
    fn a_tombstone_stays_while_it_hides_something() {
        let changes = [(9, true), (5, false)];
        // A snapshot at 6 sees entry 5, so the tombstone 9 must stay and hide it from newer reads.
        assert_eq!(surviving(&[6], true, &changes), [9, 5]);
        assert_eq!(surviving(&[9], true, &changes), [0; 0]);
        assert_eq!(surviving(&[9], false, &changes), [9]);
    }

    #[test]
    fn no_reader_can_tell_the_difference() {
        let mut cases = 0;
        for shape in 0..1_u32 << 8 {
            // Four possible changes at 2, 4, 6, 8, each missing, a put or a tombstone.
            let changes: Vec<(Seq, bool)> = (0..4)
                .rev()
                .filter_map(|i| match shape >> (2 * i) & 3 {
                    0 | 3 => None,
                    kind => Some((2 * i + 2, kind == 2)),
                })
                .collect();
            // Five possible snapshots: between the changes, or at their numbers.
            for taken in 0..64_u64 {
                let first = 1 + taken / 32;
                let snapshots: Vec<Seq> =
                    (0..5).filter(|i| taken >> i & 1 == 1).map(|i| 2 * i + first).collect();
                for nothing_older in [false, true] {
                    let kept = surviving(&snapshots, nothing_older, &changes);
                    for reader in snapshots.iter().copied().chain([Seq::MAX]) {
                        let newest = |seqs: Vec<Seq>| seqs.into_iter().find(|&s| s <= reader);
                        let before = newest(changes.iter().map(|c| c.0).collect());
                        let after = newest(kept.clone());
                        let absent =
                            |seq: Option<Seq>| seq.is_none_or(|seq| changes.contains(&(seq, true)));
                        if nothing_older {
                            assert!(before == after || absent(before) && absent(after));
                        } else {
                            assert_eq!(before, after, "{changes:?} read at {reader}");
                        }
                        cases += 1;
                    }
                }
            }
        }
        assert!(cases > 10_000);
    }
}
