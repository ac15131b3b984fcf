//! Prefixes of keys: a filter that has prefixes can reject ranges of keys.

use std::fmt;
use std::ops::Bound;

use crate::key::successor;

/// Extracts the prefix of a key, so that filters can exclude tables from scans; see
/// [`Options::prefix`](crate::Options::prefix).
///
/// ```
/// use criba::PrefixExtractor;
///
/// let rows = PrefixExtractor::until(b'/');
/// assert_eq!(rows.prefix_of(b"row7/column"), Some(&b"row7/"[..]));
/// assert_eq!(rows.prefix_of(b"row7"), None);
/// let years = PrefixExtractor::fixed(4);
/// assert_eq!(years.prefix_of(b"2026-11-20"), Some(&b"2026"[..]));
/// assert_eq!(years.prefix_of(b"MMX"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrefixExtractor(Rule);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Rule {
    Fixed(usize),
    Until(u8),
}

impl PrefixExtractor {
    /// The first `length` bytes, at least one; a shorter key has no prefix.
    pub const fn fixed(length: usize) -> Self {
        Self(Rule::Fixed(length))
    }

    /// All bytes up to and including the first `delimiter`; a key without one has no prefix.
    pub const fn until(delimiter: u8) -> Self {
        Self(Rule::Until(delimiter))
    }

    /// The prefix of a key; `None` if it has none.
    pub fn prefix_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        match self.0 {
            Rule::Fixed(length) => key.get(..length),
            Rule::Until(delimiter) => {
                let end = key.iter().position(|&byte| byte == delimiter)?;
                key.get(..=end)
            }
        }
    }

    /// The id in filter headers, never 0: the rule in the lowest byte, its parameter above.
    pub(crate) fn id(self) -> u64 {
        match self.0 {
            Rule::Fixed(length) => 1 | (length as u64) << 8,
            Rule::Until(delimiter) => 2 | u64::from(delimiter) << 8,
        }
    }

    pub(crate) fn with_id(id: u64) -> Option<Self> {
        let extractor = match id & 0xff {
            1 if id >> 8 > 0 => Self::fixed((id >> 8) as usize),
            2 => Self::until((id >> 8) as u8),
            _ => return None,
        };
        (extractor.id() == id).then_some(extractor)
    }

    pub(crate) fn check(self, longest_key: usize) -> Result<(), String> {
        match self.0 {
            Rule::Fixed(length) if length == 0 || length > longest_key => {
                Err(format!("a prefix has 1 to {longest_key} bytes, not {length}"))
            }
            _ => Ok(()),
        }
    }

    /// The common prefix of all keys within these bounds, if there is one.
    pub(crate) fn common<'k>(&self, bounds: (Bound<&'k [u8]>, Bound<&[u8]>)) -> Option<&'k [u8]> {
        let (Bound::Included(start) | Bound::Excluded(start)) = bounds.0 else { return None };
        let prefix = self.prefix_of(start)?;
        // All keys from `start` to the successor of the prefix begin with it, so it is their prefix: the
        // extracted prefix does not depend on later bytes.
        let within = match (bounds.1, successor(prefix)) {
            (_, None) => true,
            (Bound::Included(end), Some(successor)) => end < successor.as_slice(),
            (Bound::Excluded(end), Some(successor)) => end <= successor.as_slice(),
            (Bound::Unbounded, Some(_)) => false,
        };
        within.then_some(prefix)
    }
}

impl fmt::Display for PrefixExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Rule::Fixed(length) => write!(f, "the first {length} bytes"),
            Rule::Until(delimiter) => write!(f, "up to {:?}", char::from(delimiter)),
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
        ];
        for (i, extractor) in all.iter().enumerate() {
            assert_ne!(extractor.id(), 0);
            assert_eq!(PrefixExtractor::with_id(extractor.id()), Some(*extractor));
            assert!(all[..i].iter().all(|other| other.id() != extractor.id()));
        }
        for unknown in [0, 1, 3, 0x2f03, 0x1_0002] {
            assert_eq!(PrefixExtractor::with_id(unknown), None);
        }
        assert_eq!(PrefixExtractor::fixed(3).id(), 0x301);
        assert_eq!(PrefixExtractor::fixed(3).to_string(), "the first 3 bytes");
        assert_eq!(PrefixExtractor::until(b'/').to_string(), "up to '/'");
        assert!(PrefixExtractor::fixed(0).check(100).is_err());
        assert!(PrefixExtractor::fixed(101).check(100).is_err());
        assert!(PrefixExtractor::fixed(100).check(100).is_ok());
    }

    #[test]
    fn a_prefix_ends_with_the_first_delimiter() {
        let rows = PrefixExtractor::until(b'/');
        assert_eq!(rows.prefix_of(b"row7/a/b"), Some(&b"row7/"[..]));
        assert_eq!(rows.prefix_of(b"/row7"), Some(&b"/"[..]));
        assert_eq!(rows.prefix_of(b"row7"), None);
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
        for extractor in
            [PrefixExtractor::fixed(1), PrefixExtractor::fixed(2), PrefixExtractor::until(b'/')]
        {
            for &start in &bounds {
                for &end in &bounds {
                    cases += 1;
                    let Some(prefix) = extractor.common((start, end)) else { continue };
                    found += 1;
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
                            assert_eq!(
                                extractor.prefix_of(string),
                                Some(prefix),
                                "{start:?} {end:?}"
                            );
                        }
                    }
                }
            }
            for string in &strings {
                let end = successor(string);
                let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let common = extractor.common((Bound::Included(string), end));
                assert_eq!(common, extractor.prefix_of(string));
            }
        }
        println!("{cases} bounds, {found} with a common prefix");
        assert!(found > 1000);
    }
}
