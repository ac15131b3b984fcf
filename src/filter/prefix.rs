//! Prefixes of keys: a filter that has prefixes can deny ranges of keys.

use std::fmt;
use std::ops::Bound;

use crate::key::successor;

/// Extracts the prefixes of a key, so that filters can exclude tables from scans; see
/// [`Options::prefix`](crate::Options::prefix).
///
/// ```
/// use criba::PrefixExtractor;
///
/// let prefixes = |extractor: PrefixExtractor, key: &'static str| -> Vec<&str> {
///     let prefixes = extractor.prefixes_of(key.as_bytes());
///     prefixes.map(|prefix| str::from_utf8(prefix).unwrap()).collect()
/// };
/// let directories = PrefixExtractor::every(b'/');
/// assert_eq!(prefixes(directories, "usr/share/doc"), ["usr/", "usr/share/"]);
/// let rows = PrefixExtractor::until(b'/');
/// assert_eq!(prefixes(rows, "usr/share/doc"), ["usr/"]);
/// assert!(prefixes(rows, "usr").is_empty());
/// let years = PrefixExtractor::fixed(4);
/// assert_eq!(prefixes(years, "2026-11-20"), ["2026"]);
/// assert!(prefixes(years, "MMX").is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrefixExtractor(Rule);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Rule {
    Fixed(usize),
    /// A prefix ends with each of the first `most` delimiters.
    Delimited {
        delimiter: u8,
        most: u8,
    },
}

/// The most prefixes of a key.
pub(crate) const MOST_PREFIXES: u8 = 16;

impl PrefixExtractor {
    /// The first `length` bytes, at least one; a shorter key has no prefix.
    pub const fn fixed(length: usize) -> Self {
        Self(Rule::Fixed(length))
    }

    /// All bytes up to and including the first `delimiter`; a key without one has no prefix.
    pub const fn until(delimiter: u8) -> Self {
        Self(Rule::Delimited { delimiter, most: 1 })
    }

    /// A prefix up to and including each `delimiter`, of which the first 16 count: with `/`, each directory that
    /// a path is in. A filter takes as many bits for each distinct prefix as for a key.
    pub const fn every(delimiter: u8) -> Self {
        Self(Rule::Delimited { delimiter, most: MOST_PREFIXES })
    }

    /// The prefixes of a key, the shortest first.
    pub fn prefixes_of<'k>(&self, key: &'k [u8]) -> impl Iterator<Item = &'k [u8]> + use<'k> {
        let (fixed, delimiter, most) = match self.0 {
            Rule::Fixed(length) => (key.get(..length), 0, 0),
            Rule::Delimited { delimiter, most } => (None, delimiter, usize::from(most)),
        };
        let ends = (1..).zip(key).filter(move |&(_, &byte)| byte == delimiter).take(most);
        fixed.into_iter().chain(ends.filter_map(|(end, _)| key.get(..end)))
    }

    /// The prefixes of a key that the key before it, in the order of keys, does not have. Keys with one prefix
    /// follow each other, so that these are the prefixes of no earlier key either.
    pub(crate) fn new_prefixes<'k>(
        &self,
        before: Option<&[u8]>,
        key: &'k [u8],
    ) -> impl Iterator<Item = &'k [u8]> {
        self.prefixes_of(key)
            .filter(move |prefix| !before.is_some_and(|before| before.starts_with(prefix)))
    }

    /// How many prefixes of a key, from the shortest on, are also prefixes by another extractor.
    pub(crate) fn shared_with(self, other: Self) -> usize {
        match (self.0, other.0) {
            (
                Rule::Delimited { delimiter: a, most: most_a },
                Rule::Delimited { delimiter: b, most: most_b },
            ) if a == b => usize::from(most_a.min(most_b)),
            _ => usize::from(self == other),
        }
    }

    /// The id in filter headers, never 0: the rule in the lowest byte, its parameters above.
    pub(crate) fn id(self) -> u64 {
        match self.0 {
            Rule::Fixed(length) => 1 | (length as u64) << 8,
            Rule::Delimited { delimiter, most: 1 } => 2 | u64::from(delimiter) << 8,
            Rule::Delimited { delimiter, most } => {
                3 | u64::from(delimiter) << 8 | u64::from(most) << 16
            }
        }
    }

    pub(crate) fn with_id(id: u64) -> Option<Self> {
        let extractor = match id.to_le_bytes() {
            [1, ..] if id >> 8 > 0 => Self::fixed((id >> 8) as usize),
            [2, delimiter, ..] => Self::until(delimiter),
            [3, delimiter, most @ 2..=MOST_PREFIXES, ..] => {
                Self(Rule::Delimited { delimiter, most })
            }
            _ => return None,
        };
        (extractor.id() == id).then_some(extractor)
    }

    /// Whether this rule is [`every`](Self::every), which earlier readers do not know.
    pub(crate) fn has_many(self) -> bool {
        matches!(self.0, Rule::Delimited { most: 2.., .. })
    }

    pub(crate) fn check(self, longest_key: usize) -> Result<(), String> {
        match self.0 {
            Rule::Fixed(length) if length == 0 || length > longest_key => {
                Err(format!("a prefix has 1 to {longest_key} bytes, not {length}"))
            }
            _ => Ok(()),
        }
    }

    /// The common prefixes of all keys within these bounds, the shortest first.
    pub(crate) fn common<'k>(
        &self,
        bounds: (Bound<&'k [u8]>, Bound<&[u8]>),
    ) -> impl Iterator<Item = &'k [u8]> {
        let start = match bounds.0 {
            Bound::Included(start) | Bound::Excluded(start) => Some(start),
            Bound::Unbounded => None,
        };
        let prefixes = start.into_iter().flat_map(|start| self.prefixes_of(start));
        // All keys from `start` to the successor of a prefix begin with it, so it is one of their prefixes: no
        // prefix depends on later bytes. A longer prefix has no greater successor.
        prefixes.take_while(move |prefix| match (bounds.1, successor(prefix)) {
            (_, None) => true,
            (Bound::Included(end), Some(successor)) => end < successor.as_slice(),
            (Bound::Excluded(end), Some(successor)) => end <= successor.as_slice(),
            (Bound::Unbounded, Some(_)) => false,
        })
    }
}

impl fmt::Display for PrefixExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Rule::Fixed(length) => write!(f, "the first {length} bytes"),
            Rule::Delimited { delimiter, most: 1 } => {
                write!(f, "up to {:?}", char::from(delimiter))
            }
            Rule::Delimited { delimiter, most } => {
                write!(f, "up to each {:?}, of which the first {most} count", char::from(delimiter))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extractors_have_unique_ids() {
        let all = [
            PrefixExtractor::fixed(1),
            PrefixExtractor::fixed(2),
            PrefixExtractor::fixed(258),
            PrefixExtractor::until(0),
            PrefixExtractor::until(1),
            PrefixExtractor::until(255),
            PrefixExtractor::every(0),
            PrefixExtractor::every(255),
            first(2),
        ];
        for (i, extractor) in all.iter().enumerate() {
            assert_ne!(extractor.id(), 0);
            assert_eq!(PrefixExtractor::with_id(extractor.id()), Some(*extractor));
            assert!(all[..i].iter().all(|other| other.id() != extractor.id()));
        }
        for unknown in [0, 1, 3, 4, 0x2f03, 0x1_2f03, 0x11_2f03, 0x110_2f03, 0x1_0002] {
            assert_eq!(PrefixExtractor::with_id(unknown), None);
        }
        assert_eq!(PrefixExtractor::fixed(3).id(), 0x301);
        assert_eq!(PrefixExtractor::fixed(3).to_string(), "the first 3 bytes");
        assert_eq!(PrefixExtractor::until(b'/').to_string(), "up to '/'");
        assert_eq!(PrefixExtractor::every(b'/').id(), 0x10_2f03);
        let every = PrefixExtractor::every(b'/').to_string();
        assert_eq!(every, "up to each '/', of which the first 16 count");
        assert!(PrefixExtractor::fixed(0).check(100).is_err());
        assert!(PrefixExtractor::fixed(101).check(100).is_err());
        assert!(PrefixExtractor::fixed(100).check(100).is_ok());
    }

    const fn first(most: u8) -> PrefixExtractor {
        PrefixExtractor(Rule::Delimited { delimiter: b'/', most })
    }

    fn prefixes(extractor: PrefixExtractor, key: &[u8]) -> Vec<&[u8]> {
        extractor.prefixes_of(key).collect()
    }

    #[test]
    fn a_prefix_ends_with_a_delimiter() {
        let rows = PrefixExtractor::until(b'/');
        assert_eq!(prefixes(rows, b"row7/a/b"), [&b"row7/"[..]]);
        assert_eq!(prefixes(rows, b"/row7"), [&b"/"[..]]);
        assert!(prefixes(rows, b"row7").is_empty());
        let every = PrefixExtractor::every(b'/');
        assert_eq!(prefixes(every, b"/a//b"), [&b"/"[..], b"/a/", b"/a//"]);
        assert_eq!(prefixes(every, &[b'/'; 20]).len(), 16);
        let new: Vec<_> = every.new_prefixes(Some(b"a/b/c"), b"a/b0/c/d").collect();
        assert_eq!(new, [&b"a/b0/"[..], b"a/b0/c/"]);
    }

    #[test]
    fn extractors_of_one_delimiter_share_the_prefixes_of_both() {
        let every = PrefixExtractor::every(b'/');
        let four = first(4);
        for (a, b, shared) in [
            (every, every, 16),
            (every, four, 4),
            (four, PrefixExtractor::until(b'/'), 1),
            (every, PrefixExtractor::every(b'.'), 0),
            (every, PrefixExtractor::fixed(3), 0),
            (PrefixExtractor::fixed(3), PrefixExtractor::fixed(3), 1),
            (PrefixExtractor::fixed(3), PrefixExtractor::fixed(4), 0),
        ] {
            assert_eq!((a.shared_with(b), b.shared_with(a)), (shared, shared), "{a}, {b}");
        }
    }

    /// Compares with the definition, for all bounds of short strings of few letters. The bounds of a scan by
    /// prefix always give the prefix.
    #[test]
    fn all_keys_within_the_bounds_have_the_common_prefix() {
        // The successors of prefixes, too.
        let letters = [0, b'/', b'/' + 1, 0xff];
        let mut strings = vec![vec![]];
        for length in 0..3 {
            let longer: Vec<_> = strings
                .iter()
                .filter(|string: &&Vec<u8>| string.len() == length)
                .flat_map(|string| letters.map(|letter| [&string[..], &[letter]].concat()))
                .collect();
            strings.extend(longer);
        }
        let bounds: Vec<Bound<&[u8]>> = strings
            .iter()
            .flat_map(|s| [Bound::Included(s.as_slice()), Bound::Excluded(s.as_slice())])
            .chain([Bound::Unbounded])
            .collect();
        let (mut found, mut cases) = (0, 0);
        for extractor in [
            PrefixExtractor::fixed(1),
            PrefixExtractor::fixed(2),
            PrefixExtractor::until(b'/'),
            PrefixExtractor::every(b'/'),
            first(2),
        ] {
            for &start in &bounds {
                for &end in &bounds {
                    cases += 1;
                    let common: Vec<_> = extractor.common((start, end)).collect();
                    found += common.len();
                    for string in &strings {
                        let after = match start {
                            Bound::Included(start) => string.as_slice() >= start,
                            Bound::Excluded(start) => string.as_slice() > start,
                            Bound::Unbounded => true,
                        };
                        let before = match end {
                            Bound::Included(end) => string.as_slice() <= end,
                            Bound::Excluded(end) => string.as_slice() < end,
                            Bound::Unbounded => true,
                        };
                        if after && before {
                            let prefixes = prefixes(extractor, string);
                            assert!(prefixes.starts_with(&common), "{start:?} {end:?}");
                        }
                    }
                }
            }
            for string in &strings {
                let end = successor(string);
                let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let common: Vec<_> = extractor.common((Bound::Included(string), end)).collect();
                assert_eq!(common, prefixes(extractor, string));
            }
        }
        println!("{cases} bounds, {found} common prefixes");
        assert!(found > 1000);
    }
}
