//! Portions of filters: a ribbon in memory can be reduced to its first columns.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::io;

use super::block::Filter;
use super::header::FilterHeader;
use crate::sealed::{Meter, Seal, SealedBytes};
use crate::sync::Arc;
use criba_filter::store::{FirstColumns, narrowed, narrowed_rate};
use criba_filter::{FilterKind, Geometry};

/// The part of a stored filter that is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Portion {
    Nothing,
    /// This number of first columns of a ribbon: at least one, fewer than are stored.
    Columns(u32),
    Whole,
}

impl FilterHeader {
    /// All portions possible for this filter, the smallest first.
    pub(crate) fn portions(&self) -> impl Iterator<Item = Portion> + use<> {
        let Geometry { k, wide, .. } = self.geometry;
        // With wide segments, the first k columns are less than the whole filter.
        let columns = if self.kind == FilterKind::Ribbon { k + u32::from(wide > 0) } else { 1 };
        let narrower = (1..columns).map(Portion::Columns);
        std::iter::once(Portion::Nothing).chain(narrower).chain([Portion::Whole])
    }

    pub(crate) fn bytes_of(&self, portion: Portion) -> usize {
        match portion {
            Portion::Nothing => 0,
            Portion::Columns(columns) => self.narrow(columns).bytes(),
            Portion::Whole => self.bytes(),
        }
    }

    pub(crate) fn rate_of(&self, portion: Portion) -> f64 {
        match portion {
            Portion::Nothing => 1.0,
            Portion::Columns(columns) => self.narrow(columns).predicted_rate,
            Portion::Whole => self.predicted_rate,
        }
    }

    fn narrow(&self, columns: u32) -> Self {
        Self {
            geometry: narrowed(&self.geometry, columns),
            predicted_rate: narrowed_rate(&self.geometry, self.predicted_rate, columns),
            ..*self
        }
    }

    /// Loads the first columns of this filter. `feed` must pass the array in pieces of whole 64-bit words to
    /// its argument, and verify it.
    pub(crate) fn first_columns(
        &self,
        columns: u32,
        meter: &Arc<Meter>,
        feed: impl FnOnce(&mut dyn FnMut(&[u8])) -> io::Result<()>,
    ) -> io::Result<Filter> {
        self.first_columns_of(&self.geometry, columns, Some(meter), feed)
    }

    /// As `first_columns`, from an array of geometry `from`.
    fn first_columns_of(
        &self,
        from: &Geometry,
        columns: u32,
        meter: Option<&Arc<Meter>>,
        feed: impl FnOnce(&mut dyn FnMut(&[u8])) -> io::Result<()>,
    ) -> io::Result<Filter> {
        let narrow = self.narrow(columns);
        let length = narrow.bytes();
        let fill = |buffer: &mut [u8]| {
            let (head, array) = buffer.split_at_mut(FilterHeader::BYTES);
            head.copy_from_slice(&narrow.encode());
            let mut taken = FirstColumns::new(from, columns, array);
            feed(&mut |piece| taken.push(piece))?;
            if taken.is_full() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        };
        let memory = match meter {
            Some(meter) => SealedBytes::metered(length, meter, fill)?,
            None => SealedBytes::filled(Seal::System, length, fill)?,
        };
        Ok(Filter::new(memory, narrow, *self))
    }
}

impl Filter {
    pub(crate) fn portion(&self) -> Portion {
        if self.header() == self.stored() {
            Portion::Whole
        } else {
            Portion::Columns(self.header().geometry.k)
        }
    }

    /// The first columns of this filter, fewer than it has in memory, copied to new memory. No I/O.
    pub(crate) fn narrowed(&self, columns: u32) -> io::Result<Self> {
        let (from, meter) = (&self.header().geometry, self.meter.as_ref());
        self.stored().first_columns_of(from, columns, meter, |take| {
            take(self.prober.array());
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::{FilterId, build};
    use super::*;
    use crate::filter::FilterPolicy;
    use crate::filter::KeyHashes;
    use crate::filter::PrefixExtractor;
    use criba_filter::HashFunction;
    use criba_filter::store::{HashKey, Recipe, Size, mix};

    fn filter_of(kind: FilterKind, bits: f64, keys: u64) -> (Vec<u64>, Filter) {
        let hash_key = HashKey::new([9; 16]);
        let recipe = Recipe { kind, hash: HashFunction::SipHash13, size: Size::BitsPerKey(bits) };
        let hashes: Vec<u64> = (0..keys).map(|i| mix(i ^ 0xC81B_A000)).collect();
        let id = FilterId { table: 3, generation: 0 };
        let keyed = KeyHashes::of_hashes(recipe.hash, &hash_key, hashes.clone());
        let bytes = build(&recipe, &hash_key, id, &keyed);
        let memory = SealedBytes::metered(bytes.len(), &Arc::default(), |buffer| {
            buffer.copy_from_slice(&bytes);
            Ok(())
        });
        let filter = Filter::decode(memory.expect("memory"), bytes.len(), keys, &hash_key);
        (hashes, filter.expect("sound"))
    }

    fn passing(filter: &Filter, probes: u64) -> u64 {
        (0..probes).filter(|&i| filter.may_contain_hash(mix(i ^ 0xAB5E_0000_0000))).count() as u64
    }

    #[test]
    fn the_first_columns_reject_no_key_and_have_their_predicted_rate() {
        let (keys, probes) = (3000, 200_000);
        let mut cells = 0;
        // Bits per key; the number of columns; whether some segments are wide.
        for (bits, columns, fraction) in
            [(6.6, 6, true), (7.361, 7, false), (8.0, 7, true), (9.35, 8, true), (12.2, 11, true)]
        {
            let (hashes, whole) = filter_of(FilterKind::Ribbon, bits, keys);
            let stored = *whole.stored();
            let Geometry { k, wide, .. } = stored.geometry;
            assert_eq!((k, wide > 0), (columns, fraction), "{bits} bits");
            assert_eq!(whole.portion(), Portion::Whole);
            assert_eq!(stored.portions().last(), Some(Portion::Whole));
            for portion in stored.portions() {
                let Portion::Columns(columns) = portion else { continue };
                let narrow = whole.narrowed(columns).expect("memory");
                let again = whole.narrowed(k).expect("memory");
                let twice = again.narrowed(columns).expect("memory");
                assert_eq!(narrow.prober.array(), twice.prober.array(), "{bits} bits, {columns}");
                assert_eq!(narrow.portion(), portion);
                assert_eq!(narrow.header().bytes(), stored.bytes_of(portion));
                assert!(narrow.header().bytes() < stored.bytes());
                assert!(hashes.iter().all(|&hash| narrow.may_contain_hash(hash)));
                let rate = narrow.header().predicted_rate;
                assert_eq!(rate.to_bits(), stored.rate_of(portion).to_bits());
                assert!((rate / (-f64::from(columns)).exp2() - 1.0).abs() < 0.02, "{rate}");
                // 200,000 probes: four standard deviations, and 2 % for the scatter of filters.
                let (expected, found) = (rate * probes as f64, passing(&narrow, probes) as f64);
                let bound = 4.0 * expected.sqrt() + expected / 50.0;
                assert!((found - expected).abs() < bound, "{columns}: {found} of {expected}");
                cells += 1;
            }
        }
        println!("{cells} narrowed filters, {probes} absent hashes each");
        assert_eq!(cells, 6 + 6 + 7 + 8 + 11);
    }

    #[test]
    fn pieces_of_any_size_give_the_same_columns_and_a_short_array_gives_none() {
        let (_, whole) = filter_of(FilterKind::Ribbon, 8.0, 1000);
        let array = whole.prober.array().to_vec();
        let stored = *whole.stored();
        let meter = Arc::default();
        let expected = whole.narrowed(3).expect("memory");
        for words in [1, 2, 7, 64, 100_000] {
            let narrow = stored.first_columns(3, &meter, |take| {
                array.chunks(8 * words).for_each(take);
                Ok(())
            });
            assert_eq!(narrow.expect("all of it").prober.array(), expected.prober.array());
        }
        let short = stored.first_columns(3, &meter, |take| {
            take(&array[..array.len() - 8]);
            Ok(())
        });
        assert!(short.is_err());
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn the_first_damage_is_kept() {
        let (_, filter) = filter_of(FilterKind::Ribbon, 8.0, 100);
        assert_eq!(filter.damage(), None);
        filter.stored_is_damaged("a checksum".into());
        filter.stored_is_damaged("another".into());
        assert_eq!(filter.damage(), Some("a checksum"));
    }

    #[test]
    fn other_kinds_are_in_memory_as_a_whole_or_not_at_all() {
        let (_, whole) = filter_of(FilterKind::Bloom, 10.0, 1000);
        let portions: Vec<_> = whole.stored().portions().collect();
        assert_eq!(portions, [Portion::Nothing, Portion::Whole]);
        assert_eq!(whole.stored().bytes_of(Portion::Whole), whole.header().bytes());
    }

    #[test]
    fn a_filter_that_was_rebuilt_larger_follows_its_recipe() {
        let follows = |kind: FilterKind, requested: Size, times: usize| {
            let recipe = |size| Recipe { kind, hash: HashFunction::SipHash13, size };
            let (_, filter) = filter_of(kind, 10.0, 3000);
            let mut stored = *filter.stored();
            stored.geometry = recipe(requested).geometry(3000);
            for _ in 0..times {
                stored.geometry = kind.grow(&stored.geometry);
            }
            assert!(!stored.follows(&recipe(Size::BitsPerKey(40.0)), None), "{kind}");
            let with_prefixes = stored.follows(&recipe(requested), Some(PrefixExtractor::fixed(4)));
            assert!(!with_prefixes, "{kind}");
            stored.follows(&recipe(requested), None)
        };
        let (rate, bits) = (Size::Rate(0.01), Size::BitsPerKey(10.0));
        for kind in FilterPolicy::KINDS {
            assert!((0..3).all(|times| follows(kind, rate, times)), "{kind}");
            assert!(!follows(kind, rate, 20), "{kind}");
            assert!(follows(kind, bits, 0), "{kind}");
            assert_eq!(follows(kind, bits, 2), kind == FilterKind::Ribbon, "{kind}");
        }
    }
}
