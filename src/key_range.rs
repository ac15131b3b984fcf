//! Ranges of keys as arguments.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use crate::key::successor;

/// Owned bounds of a range of keys.
pub(crate) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

pub(crate) fn borrowed(bounds: &KeyBounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice))
}

/// A range of keys, for [`Db::range`](crate::Db::range): `..`, `from..`, `..to`, `from..to`, the last two
/// with `=`, a [`KeyPrefix`], or a pair of [`Bound`]s. The ends are bytes, strings, or references to them. A range
/// whose first bound is behind the last one has no keys.
///
/// With [`RangeBounds`], the compiler could not infer the type of the keys of `..`. Of your own `r` that implements it,
/// pass `(r.start_bound(), r.end_bound())`.
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

/// A prefix of keys, such as those of a table. As a [`KeyRange`] it has all keys that start with the prefix.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = criba::Db::open(dir.path().join("store"))?;
/// use criba::KeyPrefix;
///
/// let mut row = KeyPrefix::new("row/1/");
/// db.put(row.key("name"), "Ada")?;
/// db.put(row.key("year"), "1815")?;
/// assert_eq!(db.get(row.key("name"))?.unwrap(), "Ada");
/// assert_eq!(db.range(&row).count(), 2);
/// assert_eq!(row.end(), Some(&b"row/10"[..])); // `0` follows `/`
/// # Ok::<(), criba::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct KeyPrefix {
    length: usize,
    /// The prefix, with the last suffix.
    key: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl KeyPrefix {
    /// The keys that start with these bytes.
    pub fn new(prefix: impl AsRef<[u8]>) -> Self {
        let key = prefix.as_ref().to_vec();
        Self { length: key.len(), end: successor(&key), key }
    }

    /// The least key greater than all keys with the prefix. `None` if there is no such key, because each byte of
    /// the prefix is `0xff`, or the prefix is empty.
    pub fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }

    /// The range of the keys whose suffixes, after the prefix, lie within these bounds.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// # let row = criba::KeyPrefix::new("row/1/");
    /// let next_page = db.range(row.range("name"..)).take(20);
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn range(&self, suffixes: impl KeyRange) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (from, to) = suffixes.bounds();
        let whole = |suffix: &[u8]| [self.as_ref(), suffix].concat();
        let (first, behind) = self.bounds();
        let from = match from {
            Bound::Unbounded => first.map(<[u8]>::to_vec),
            bound => bound.map(whole),
        };
        let to = match to {
            Bound::Unbounded => behind.map(<[u8]>::to_vec),
            bound => bound.map(whole),
        };
        (from, to)
    }

    /// The prefix, followed by `suffix`. The next call overwrites it: all keys are made in one buffer: a call allocates only for a longer key
    /// than before.
    pub fn key(&mut self, suffix: impl AsRef<[u8]>) -> &[u8] {
        self.key.truncate(self.length);
        self.key.extend_from_slice(suffix.as_ref());
        &self.key
    }
}

impl KeyRange for KeyPrefix {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let end = self.end().map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(self.as_ref()), end)
    }
}

/// The prefix.
impl AsRef<[u8]> for KeyPrefix {
    fn as_ref(&self) -> &[u8] {
        &self.key[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_lacks_it() {
        for (prefix, end) in [
            (&b"ab"[..], Some(&b"ac"[..])),
            (b"a\xff\xff", Some(b"b")),
            (b"\xff", None),
            (b"", None),
        ] {
            let mut keys = KeyPrefix::new(prefix);
            assert_eq!(keys.key("a long suffix"), [prefix, b"a long suffix"].concat());
            assert_eq!(keys.key(""), prefix);
            keys.key([0xff]);
            let bound = end.map_or(Bound::Unbounded, Bound::Excluded);
            assert_eq!((keys.end(), keys.bounds()), (end, (Bound::Included(prefix), bound)));
            assert_eq!(keys.as_ref(), prefix);
            let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
            assert_eq!(keys.range(..), (owned(Bound::Included(prefix)), owned(bound)));
            let with = |suffix: &[u8]| [prefix, suffix].concat();
            let part = (Bound::Included(with(b"a")), Bound::Excluded(with(b"c")));
            assert_eq!(keys.range("a".."c"), part);
        }
    }
}
