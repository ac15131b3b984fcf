//! A filter of which memory holds a part.
//!
//! The columns of a ribbon do not depend on one another: each gives 0 for every key, and 0 for an
//! absent key with probability 1/2. So the first r′ of r columns are a filter themselves, of rate
//! 2^−r′ and what passes in any number of columns, and never deny a key. The other kinds are resident
//! whole or not at all.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::io;

use super::hash::HashKey;
use super::kind::{FilterKind, Geometry};
use super::ribbon::{narrowed, narrowed_rate};
use super::section::{Filter, HEADER_BYTES, Header};
use super::{PrefixExtractor, Recipe};
use crate::sealed::{Meter, SealedBytes};
use crate::sync::Arc;

/// How much of a stored filter is in memory, or is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Portion {
    Nothing,
    /// The first columns of a ribbon, at least one, fewer than are stored.
    Columns(u32),
    Whole,
}

/// A filter as it is stored, whether it is in memory or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StoredFilter {
    pub(super) header: Header,
    pub(super) length: usize,
}

impl StoredFilter {
    /// As a header of [`HEADER_BYTES`](Self::HEADER_BYTES) bytes tells it of a filter of `length`
    /// bytes, for a table with `keys` distinct keys in a store with this secret. The checksum covers
    /// header and array together, so nothing of this is proved before both were read.
    pub(crate) fn decode(
        header: &[u8],
        length: usize,
        keys: u64,
        secret: &HashKey,
    ) -> Result<Self, String> {
        let header = Header::decode_for(header, length, keys, secret)?;
        Ok(Self { header, length })
    }

    pub(crate) const HEADER_BYTES: usize = HEADER_BYTES;

    pub(crate) fn kind(&self) -> FilterKind {
        self.header.kind
    }

    pub(crate) fn hash(&self) -> super::KeyHash {
        self.header.hash
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.header.geometry
    }

    pub(crate) fn predicted_rate(&self) -> f64 {
        self.header.predicted_rate
    }

    /// The length of header and array.
    pub(crate) fn bytes(&self) -> usize {
        self.length
    }

    /// Whether a filter built by this recipe, with the prefixes of this extractor, is like this one.
    pub(crate) fn follows(&self, recipe: &Recipe, extractor: Option<PrefixExtractor>) -> bool {
        self.header.follows(recipe, extractor)
    }

    /// Whether it has the prefixes of this extractor, or none if there is none.
    pub(crate) fn has_prefixes_of(&self, extractor: Option<PrefixExtractor>) -> bool {
        self.header.has_prefixes_of(extractor)
    }

    /// What can be resident of it, the least first.
    pub(crate) fn portions(&self) -> impl Iterator<Item = Portion> + use<> {
        let Geometry { k, wide, .. } = self.header.geometry;
        // With a wide segment anywhere, all of the k columns are less than the whole.
        let columns =
            if self.header.kind == FilterKind::Ribbon { k + u32::from(wide > 0) } else { 1 };
        let narrower = (1..columns).map(Portion::Columns);
        std::iter::once(Portion::Nothing).chain(narrower).chain([Portion::Whole])
    }

    /// The memory that a portion takes, header included.
    pub(crate) fn bytes_of(&self, portion: Portion) -> usize {
        match portion {
            Portion::Nothing => 0,
            Portion::Columns(columns) => self.narrow(columns).bytes(),
            Portion::Whole => self.length,
        }
    }

    /// The false-positive rate of a portion.
    pub(crate) fn rate_of(&self, portion: Portion) -> f64 {
        match portion {
            Portion::Nothing => 1.0,
            Portion::Columns(columns) => self.narrow(columns).predicted_rate,
            Portion::Whole => self.header.predicted_rate,
        }
    }

    /// The header of its first columns.
    fn narrow(&self, columns: u32) -> Header {
        let Header { geometry, predicted_rate, .. } = self.header;
        let mut header = self.header;
        header.geometry = narrowed(&geometry, columns);
        header.predicted_rate = narrowed_rate(&geometry, predicted_rate, columns);
        header
    }

    /// The first columns of this filter, whose array `feed` gives from its beginning, in pieces of
    /// whole 64-bit words. `feed` proves the array good, or fails.
    pub(crate) fn first_columns(
        &self,
        columns: u32,
        meter: &Arc<Meter>,
        feed: impl FnOnce(&mut dyn FnMut(&[u8])) -> io::Result<()>,
    ) -> io::Result<Filter> {
        self.narrowed_from(&self.header.geometry, columns, Some(meter), feed)
    }

    fn narrowed_from(
        &self,
        from: &Geometry,
        columns: u32,
        meter: Option<&Arc<Meter>>,
        feed: impl FnOnce(&mut dyn FnMut(&[u8])) -> io::Result<()>,
    ) -> io::Result<Filter> {
        let narrow = self.narrow(columns);
        let length = narrow.bytes();
        let fill = |buffer: &mut [u8]| {
            let mut header = Vec::with_capacity(HEADER_BYTES);
            narrow.encode(&mut header);
            let (head, array) = buffer.split_at_mut(HEADER_BYTES);
            head.copy_from_slice(&header);
            let mut taken = FirstColumns::new(from, columns, array);
            feed(&mut |piece| taken.push(piece))?;
            if taken.is_full() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        };
        let memory = match meter {
            Some(meter) => SealedBytes::metered(length, meter, fill)?,
            None => SealedBytes::filled(length, fill)?,
        };
        Ok(Filter::new(memory, length, narrow, *self))
    }
}

impl Filter {
    /// What is stored of it.
    pub(crate) fn stored(&self) -> &StoredFilter {
        &self.stored
    }

    /// How much of what is stored it holds.
    pub(crate) fn portion(&self) -> Portion {
        let Geometry { k, .. } = self.header.geometry;
        if self.header == self.stored.header { Portion::Whole } else { Portion::Columns(k) }
    }

    /// Its first columns, fewer than it has, in memory of their own. No I/O.
    pub(crate) fn narrowed(&self, columns: u32) -> io::Result<Self> {
        let array = self.memory.get(HEADER_BYTES..self.length).unwrap_or_default();
        let (from, meter) = (&self.header.geometry, self.meter.as_ref());
        self.stored.narrowed_from(from, columns, meter, |take| {
            take(array);
            Ok(())
        })
    }

    /// Notes that what is stored was read again and found bad. What is resident was verified when it
    /// was read, nothing can have changed it since, and it serves on.
    pub(crate) fn stored_is_damaged(&self, reason: String) {
        let _ = self.damage.set(reason); // the first reason is as good as any later one
    }

    /// What was wrong with the stored filter when it was read again.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }
}

/// The first columns of an array of this shape.
pub(super) fn first_columns(from: &Geometry, array: &[u8], columns: u32) -> Vec<u8> {
    let narrow = narrowed(from, columns);
    let mut kept = vec![0; (FilterKind::Ribbon.kind().array_bytes)(&narrow)];
    FirstColumns::new(from, narrow.k, &mut kept).push(array);
    kept
}

/// Copies the first columns out of an array that comes in pieces. An array is its segments, a segment
/// one 64-bit word a column; the first `wide` segments have one column more.
struct FirstColumns<'a> {
    from: Geometry,
    columns: u32,
    segment: u64,
    column: u32,
    into: std::slice::ChunksExactMut<'a, u8>,
}

impl<'a> FirstColumns<'a> {
    fn new(from: &Geometry, columns: u32, into: &'a mut [u8]) -> Self {
        Self { from: *from, columns, segment: 0, column: 0, into: into.chunks_exact_mut(8) }
    }

    fn push(&mut self, piece: &[u8]) {
        for word in piece.chunks_exact(8) {
            if self.column < self.columns
                && let Some(place) = self.into.next()
            {
                place.copy_from_slice(word);
            }
            self.column += 1;
            if self.column == self.from.k + u32::from(self.segment < self.from.wide) {
                self.column = 0;
                self.segment += 1;
            }
        }
    }

    /// Whether all of the array has come.
    fn is_full(&self) -> bool {
        self.into.len() == 0 && self.segment == self.from.m / 64
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::mix;
    use super::super::policy::Size;
    use super::super::section::{FilterPlace, build};
    use super::super::{KeyHash, KeyHashes, Recipe};
    use super::*;

    fn filter_of(kind: FilterKind, bits: f64, keys: u64) -> (Vec<u64>, Filter) {
        let secret = HashKey::new([9; 16]);
        let recipe = Recipe { kind, hash: KeyHash::SipHash13, size: Size::BitsPerKey(bits) };
        let hashes: Vec<u64> = (0..keys).map(|i| mix(i ^ 0xC81B_A000)).collect();
        let place = FilterPlace { table: 3, generation: 0 };
        let keyed = KeyHashes::of_hashes(recipe.hash, &secret, hashes.clone());
        let bytes = build(&recipe, &secret, place, &keyed);
        let memory = SealedBytes::metered(bytes.len(), &Arc::default(), |buffer| {
            buffer.copy_from_slice(&bytes);
            Ok(())
        });
        let filter = Filter::decode(memory.expect("memory"), bytes.len(), keys, &secret);
        (hashes, filter.expect("sound"))
    }

    fn passing(filter: &Filter, asked: u64) -> u64 {
        (0..asked).filter(|&i| filter.may_contain_hash(mix(i ^ 0xAB5E_0000_0000))).count() as u64
    }

    /// Each number of columns, out of arrays with and without wide segments, in one step and in
    /// several, denies no key and has the rate it says, from both sides.
    #[test]
    fn the_first_columns_are_a_filter_of_the_rate_they_say() {
        let (keys, asked) = (3000, 200_000);
        let mut cells = 0;
        // Bits a key, and the columns that they make; with a fraction, some segments have one more.
        for (bits, columns, fraction) in
            [(6.6, 6, true), (7.7, 7, false), (8.0, 7, true), (9.35, 8, true), (13.2, 11, true)]
        {
            let (hashes, whole) = filter_of(FilterKind::Ribbon, bits, keys);
            let stored = *whole.stored();
            let Geometry { k, wide, .. } = stored.header.geometry;
            assert_eq!((k, wide > 0), (columns, fraction), "{bits} bits");
            assert_eq!(whole.portion(), Portion::Whole);
            assert_eq!(stored.portions().last(), Some(Portion::Whole));
            for portion in stored.portions() {
                let Portion::Columns(columns) = portion else { continue };
                let narrow = whole.narrowed(columns).expect("memory");
                let again = whole.narrowed(stored.header.geometry.k).expect("memory");
                let twice = again.narrowed(columns).expect("memory");
                assert_eq!(narrow.memory[..], twice.memory[..], "{bits} bits, {columns} columns");
                assert_eq!(narrow.portion(), portion);
                assert_eq!(narrow.bytes(), stored.bytes_of(portion));
                assert!(narrow.bytes() < whole.bytes());
                assert!(hashes.iter().all(|&hash| narrow.may_contain_hash(hash)));
                let rate = narrow.predicted_rate();
                assert_eq!(rate.to_bits(), stored.rate_of(portion).to_bits());
                assert!((rate / (-f64::from(columns)).exp2() - 1.0).abs() < 0.02, "{rate}");
                // 200,000 probes; four standard deviations, and a fiftieth for the span.
                let (expected, found) = (rate * asked as f64, passing(&narrow, asked) as f64);
                let bound = 4.0 * expected.sqrt() + expected / 50.0;
                assert!((found - expected).abs() < bound, "{columns}: {found} of {expected}");
                cells += 1;
            }
        }
        println!("{cells} narrowed filters, {asked} absent hashes each");
        assert_eq!(cells, 6 + 6 + 7 + 8 + 11);
    }

    /// However the array is cut into pieces, the same columns come out; an array that ends too soon
    /// gives none.
    #[test]
    fn pieces_of_any_size_give_the_same_columns() {
        let (_, whole) = filter_of(FilterKind::Ribbon, 8.0, 1000);
        let array = whole.memory[HEADER_BYTES..whole.length].to_vec();
        let stored = *whole.stored();
        let meter = Arc::default();
        let expected = whole.narrowed(3).expect("memory");
        for words in [1, 2, 7, 64, 100_000] {
            let narrow = stored.first_columns(3, &meter, |take| {
                array.chunks(8 * words).for_each(take);
                Ok(())
            });
            assert_eq!(narrow.expect("all of it").memory[..], expected.memory[..]);
        }
        let short = stored.first_columns(3, &meter, |take| {
            take(&array[..array.len() - 8]);
            Ok(())
        });
        assert!(short.is_err());
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn the_first_damage_is_the_one_told() {
        let (_, filter) = filter_of(FilterKind::Ribbon, 8.0, 100);
        assert_eq!(filter.damage(), None);
        filter.stored_is_damaged("a checksum".into());
        filter.stored_is_damaged("another".into());
        assert_eq!(filter.damage(), Some("a checksum"));
    }

    #[test]
    fn other_kinds_are_whole_or_nothing() {
        for kind in [FilterKind::Bloom, FilterKind::Blocked] {
            let (_, whole) = filter_of(kind, 10.0, 1000);
            let portions: Vec<_> = whole.stored().portions().collect();
            assert_eq!(portions, [Portion::Nothing, Portion::Whole]);
            assert_eq!(whole.stored().bytes_of(Portion::Whole), whole.bytes());
        }
    }

    /// Hashes that fall badly make a filter of a larger shape; it follows its recipe all the same. One
    /// that is much too large was made for another recipe, as is one that never had a reason to grow.
    #[test]
    fn a_filter_that_had_to_be_larger_follows_its_recipe() {
        let follows = |kind: FilterKind, asked: Size, times: usize| {
            let recipe = |size| Recipe { kind, hash: KeyHash::SipHash13, size };
            let (_, filter) = filter_of(kind, 10.0, 3000);
            let mut stored = *filter.stored();
            stored.header.geometry = recipe(asked).geometry(3000);
            for _ in 0..times {
                stored.header.geometry = (kind.kind().roomier)(&stored.header.geometry);
            }
            assert!(!stored.follows(&recipe(Size::BitsPerKey(40.0)), None), "{kind}");
            assert!(!stored.follows(&recipe(asked), Some(PrefixExtractor::fixed(4))), "{kind}");
            stored.follows(&recipe(asked), None)
        };
        let (rate, bits) = (Size::Rate(0.01), Size::BitsPerKey(10.0));
        for kind in FilterKind::ALL {
            assert!((0..3).all(|times| follows(kind, rate, times)), "{kind}");
            assert!(!follows(kind, rate, 20), "{kind}");
            assert!(follows(kind, bits, 0), "{kind}");
            assert_eq!(follows(kind, bits, 2), kind == FilterKind::Ribbon, "{kind}");
        }
    }
}
