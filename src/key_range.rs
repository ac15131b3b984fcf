//! Ranges of keys as arguments.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// Owned bounds of a range of keys.
pub(crate) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

pub(crate) fn borrowed(bounds: &KeyBounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice))
}

/// A range of keys, for [`Db::range`](crate::Db::range): `..`, `from..`, `..to`, `from..to`, the last two
/// with `=`, or a pair of [`Bound`]s. The ends are bytes, strings, or references to them.
///
/// With [`RangeBounds`], the compiler could not infer the type of the keys of `..`.
pub trait KeyRange {
    /// The bound at the first key, and the bound at the last key.
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>);
}

impl KeyRange for RangeFull {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<R: KeyRange + ?Sized> KeyRange for &R {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (**self).bounds()
    }
}

macro_rules! key_ranges {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> KeyRange for $range {
            fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
                let (start, end) = (RangeBounds::<K>::start_bound(self), self.end_bound());
                (start.map(K::as_ref), end.map(K::as_ref))
            }
        }
    )*};
}

key_ranges!(
    Range<K>,
    RangeFrom<K>,
    RangeInclusive<K>,
    RangeTo<K>,
    RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);
