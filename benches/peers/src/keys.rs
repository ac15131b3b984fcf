//! The keys in the stores, absent keys, and lists of lookups.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use clap::ValueEnum;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::random::{Random, Zipf, mix};

/// Every name has this many bytes.
pub const NAME_BYTES: usize = 16;
/// Every value has this many bytes.
pub const VALUE_BYTES: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// Made-up user names of 16 bytes.
    Names,
    /// Paths of files, as they come.
    Paths,
}

/// All keys: the first `n` are present; the others are absent, and lie between them.
#[derive(Debug)]
pub struct Keys {
    pub n: u64,
    source: Source,
    /// The bytes of values, which do not compress.
    pool: Vec<u8>,
}

#[derive(Debug)]
enum Source {
    Names(u64),
    Paths(List),
}

impl Keys {
    pub fn names(n: u64, seed: u64) -> Self {
        Self { n, source: Source::Names(seed), pool: pool(seed) }
    }

    /// The lines of files, plain or gzipped, up to a tab, in random order. If there are too few, they are
    /// repeated with a number before the last dot, like a library's next version.
    pub fn paths(n: u64, seed: u64, files: &[impl AsRef<Path>]) -> Result<Self> {
        let mut lines = Vec::new();
        for file in files {
            lines.append(&mut lines_of(file.as_ref())?);
        }
        lines.sort_unstable();
        lines.dedup();
        if lines.is_empty() {
            return Err("no paths in the files given".into());
        }
        let wanted = 2 * n as usize;
        // As many more as may turn out to be another line.
        let spare = if wanted <= lines.len() { 0 } else { lines.len() };
        let mut places: Vec<usize> = (0..lines.len().max(wanted + spare)).collect();
        Random::new(seed).shuffle(&mut places);

        let mut list = List::default();
        for place in places {
            if list.len() == wanted {
                break;
            }
            let (round, line) = (place / lines.len(), &lines[place % lines.len()]);
            if round == 0 {
                list.push(line);
                continue;
            }
            let name = line.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            let dot = line[name..].iter().rposition(|&byte| byte == b'.');
            let (stem, end) = line.split_at(dot.map_or(line.len(), |dot| name + dot));
            let again = [stem, format!("-{round}").as_bytes(), end].concat();
            if lines.binary_search(&again).is_err() {
                list.push(&again);
            }
        }
        Ok(Self { n, source: Source::Paths(list), pool: pool(seed) })
    }

    /// Appends key `i` to a buffer: a present one below `n`, an absent one from `n` on.
    pub fn write(&self, i: u64, key: &mut Vec<u8>) {
        match &self.source {
            Source::Names(seed) => key.extend_from_slice(&name(*seed, i)),
            Source::Paths(list) => key.extend_from_slice(list.get(i as usize)),
        }
    }

    /// The value of a key in its `round`-th writing.
    pub fn value(&self, i: u64, round: u64) -> &[u8] {
        let at = mix(i ^ (round << 48)) as usize % (self.pool.len() - VALUE_BYTES);
        &self.pool[at..at + VALUE_BYTES]
    }

    /// Key and value of each number, as they are loaded.
    pub fn pairs(
        &self,
        numbers: impl Iterator<Item = u64>,
        round: u64,
    ) -> Pairs<'_, impl Iterator<Item = u64>> {
        Pairs { keys: self, numbers, round, key: Vec::new() }
    }

    /// The bytes of all present keys and values.
    pub fn live_bytes(&self) -> u64 {
        let keys = match &self.source {
            Source::Names(_) => self.n * NAME_BYTES as u64,
            Source::Paths(list) => list.ends[self.n as usize - 1] as u64,
        };
        keys + self.n * VALUE_BYTES as u64
    }

    fn list(&self, numbers: impl Iterator<Item = u64>) -> List {
        let mut list = List::default();
        for i in numbers {
            self.write(i, &mut list.bytes);
            list.ends.push(list.bytes.len());
        }
        list
    }

    /// The number of an absent key. There are as many absent paths as present ones, and more names.
    pub fn absent_number(&self, i: u64) -> u64 {
        match self.source {
            Source::Names(_) => self.n + i,
            Source::Paths(_) => self.n + i % self.n,
        }
    }

    /// `count` absent keys from the `first` on, without repetition if there are enough, in random order.
    pub fn absent(&self, first: u64, count: u64) -> Lookups {
        let keys = self.list((first..first + count).map(|i| self.absent_number(i)));
        Lookups { expected: vec![false; keys.len()], keys }
    }

    /// `count` present keys, all as likely.
    pub fn present(&self, count: u64, random: &mut Random) -> Lookups {
        let keys = self.list((0..count).map(|_| random.below(self.n)));
        Lookups { expected: vec![true; keys.len()], keys }
    }

    /// `count` present keys by Zipf's law; frequent ones lie anywhere.
    pub fn zipfian(&self, count: u64, random: &mut Random) -> Lookups {
        let zipf = Zipf::new(self.n, 0.99);
        let keys = self.list((0..count).map(|_| mix(zipf.draw(random)) % self.n));
        Lookups { expected: vec![true; keys.len()], keys }
    }

    /// `count` keys, about half of them present, in random order.
    pub fn half(&self, count: u64, random: &mut Random) -> Lookups {
        let numbers: Vec<u64> = (0..count).map(|_| random.below(2 * self.n)).collect();
        let expected = numbers.iter().map(|&i| i < self.n).collect();
        Lookups { keys: self.list(numbers.into_iter()), expected }
    }
}

/// Keys to look up, and whether each is present.
#[derive(Debug)]
pub struct Lookups {
    pub keys: List,
    pub expected: Vec<bool>,
}

impl Lookups {
    /// A key, and whether it is there.
    #[inline]
    pub fn get(&self, i: usize) -> (&[u8], bool) {
        (self.keys.get(i), self.expected[i])
    }
}

/// Keys in one allocation: no pointer to follow.
#[derive(Debug, Default)]
pub struct List {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl List {
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    pub fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }
}

/// Lends one pair after another.
pub struct Pairs<'k, I> {
    keys: &'k Keys,
    numbers: I,
    round: u64,
    key: Vec<u8>,
}

impl<I: Iterator<Item = u64>> Pairs<'_, I> {
    pub fn next(&mut self) -> Option<(&[u8], &[u8])> {
        let i = self.numbers.next()?;
        self.key.clear();
        self.keys.write(i, &mut self.key);
        Some((&self.key, self.keys.value(i, self.round)))
    }
}

/// `user` and twelve letters and digits, a permutation of 60 bits: all names are distinct.
fn name(seed: u64, i: u64) -> [u8; NAME_BYTES] {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    const BITS: u64 = (1 << 60) - 1;
    let mut x = i.wrapping_add(mix(seed)) & BITS;
    for factor in [0xBF58_476D_1CE4_E5B9u64, 0x94D0_49BB_1331_11EB] {
        x = (x ^ (x >> 29)).wrapping_mul(factor) & BITS;
    }
    x ^= x >> 32;
    let mut name = *b"user____________";
    for (at, letter) in name[4..].iter_mut().enumerate() {
        *letter = LETTERS[(x >> (55 - 5 * at)) as usize % 32];
    }
    name
}

fn pool(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed ^ 0x7661_6C75_6573);
    (0..(1 << 20) / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

fn lines_of(file: &Path) -> Result<Vec<Vec<u8>>> {
    let opened = File::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let reader: Box<dyn Read> = match file.extension() {
        Some(end) if end == "gz" => Box::new(GzDecoder::new(opened)),
        _ => Box::new(opened),
    };
    let mut lines = Vec::new();
    for line in BufReader::new(reader).split(b'\n') {
        let mut line = line?;
        line.truncate(line.iter().position(|&byte| byte == b'\t').unwrap_or(line.len()));
        if !line.is_empty() {
            lines.push(line);
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all(keys: &Keys, numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
        let key = |i| {
            let mut key = Vec::new();
            keys.write(i, &mut key);
            key
        };
        numbers.map(key).collect()
    }

    #[test]
    fn names_are_distinct_and_follow_from_the_seed() {
        let keys = Keys::names(20_000, 3);
        let distinct: BTreeSet<_> = all(&keys, 0..40_000).into_iter().collect();
        assert_eq!(distinct.len(), 40_000);
        assert!(distinct.iter().all(|name| name.len() == 16 && name.starts_with(b"user")));
        assert_eq!(all(&keys, 0..10), all(&Keys::names(20_000, 3), 0..10));
        assert_ne!(all(&keys, 0..10), all(&Keys::names(20_000, 4), 0..10));
    }

    #[test]
    fn absent_names_lie_between_present_ones() {
        let n = 5000;
        let keys = Keys::names(n, 3);
        let mut sorted: Vec<(Vec<u8>, bool)> =
            all(&keys, 0..n).into_iter().map(|k| (k, true)).collect();
        sorted.extend(all(&keys, n..2 * n).into_iter().map(|key| (key, false)));
        sorted.sort();
        // Neighbours of different sorts: half of all pairs, if they lie at random.
        let changes = sorted.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        assert!((4700..5300).contains(&changes), "{changes}");
    }

    #[test]
    fn lookups_are_what_they_say() {
        let n = 1000;
        let keys = Keys::names(n, 1);
        let present: BTreeSet<_> = all(&keys, 0..n).into_iter().collect();
        let mut random = Random::new(5);
        for lookups in [
            keys.absent(0, 2000),
            keys.present(2000, &mut random),
            keys.zipfian(2000, &mut random),
            keys.half(2000, &mut random),
        ] {
            assert_eq!((lookups.keys.len(), lookups.expected.len()), (2000, 2000));
            for (i, &expected) in lookups.expected.iter().enumerate() {
                assert_eq!(present.contains(lookups.keys.get(i)), expected);
            }
        }
        let half = keys.half(2000, &mut random).expected;
        assert!((900..1100).contains(&half.iter().filter(|&&present| present).count()));
    }

    #[test]
    fn paths_come_again_with_numbers_where_there_are_too_few() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
        let files = [data.join("paths-present.tsv.gz"), data.join("paths-absent.txt.gz")];
        let keys = Keys::paths(3000, 1, &files).unwrap();
        let distinct: BTreeSet<_> = all(&keys, 0..6000).into_iter().collect();
        assert_eq!(distinct.len(), 6000);
        assert!(distinct.iter().any(|path| path.ends_with(b".gz")));
        assert!(all(&keys, 0..3).iter().all(|path| path.contains(&b'/')));
        let total: usize = all(&keys, 0..3000).iter().map(Vec::len).sum();
        assert_eq!(keys.live_bytes(), (total + 3000 * VALUE_BYTES) as u64);
    }

    /// A path may look as if it had a number already.
    #[test]
    fn a_path_that_comes_again_is_no_other_path() {
        let file = std::env::temp_dir().join(format!("criba-peers-paths-{}", std::process::id()));
        std::fs::write(&file, "a/b.c\na/b-1.c\na/b-2.c\n").unwrap();
        let keys = Keys::paths(4, 1, &[&file]).unwrap();
        std::fs::remove_file(&file).unwrap();
        let distinct: BTreeSet<_> = all(&keys, 0..8).into_iter().collect();
        assert_eq!(distinct.len(), 8);
    }

    #[test]
    fn values_have_their_length_and_change_with_each_writing() {
        let keys = Keys::names(10, 1);
        assert_eq!(keys.value(3, 0).len(), VALUE_BYTES);
        assert_eq!(keys.value(3, 0), keys.value(3, 0));
        assert_ne!(keys.value(3, 0), keys.value(3, 1));
        assert_ne!(keys.value(3, 0), keys.value(4, 0));
        let mut pairs = keys.pairs(0..2, 0);
        assert_eq!(pairs.next().unwrap().1, keys.value(0, 0));
        assert!(pairs.next().is_some() && pairs.next().is_none());
    }
}
