//! Keys of experiments: made-up names, and real keys from a sample of paths or from files.

use std::io::Read;
use std::path::Path;

use criba_cli::readamp::input::Input;
use criba_cli::{Failure, Result};
use flate2::read::GzDecoder;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Keys of a filter, and absent keys.
#[derive(Debug, Clone)]
pub struct Keys {
    /// What they are called in a report.
    pub(super) name: &'static str,
    pub(super) present: Vec<Vec<u8>>,
    pub(super) absent: Vec<Vec<u8>>,
}

/// The fewest real keys of each kind that experiments need.
pub const FEWEST: usize = 1000;

impl Keys {
    /// The keys of two files, as for `criba readamp`.
    ///
    /// # Errors
    /// [`Failure::File`]; [`Failure::Unfit`] if one has fewer than [`FEWEST`].
    pub fn read(present: &Path, absent: &Path) -> Result<Self> {
        let input = Input::read(present, absent)?;
        let keys = Self {
            name: "keys of files",
            present: input.present.into_iter().map(|(key, _)| key).collect(),
            absent: input.absent,
        };
        for (path, keys) in [(present, &keys.present), (absent, &keys.absent)] {
            if keys.len() < FEWEST {
                let expected =
                    format!("{FEWEST} distinct keys at least that are not in the other file");
                let found = keys.len().to_string();
                return Err(Failure::unfit(path, expected, found));
            }
        }
        Ok(keys)
    }

    /// [`FEWEST`] of each sort, drawn at random.
    pub(super) fn drawn(&self, random: &mut ChaCha8Rng) -> Self {
        let mut draw = |keys: &Vec<Vec<u8>>| {
            let mut keys: Vec<&Vec<u8>> = keys.iter().collect();
            let (drawn, _) = keys.partial_shuffle(random, FEWEST);
            drawn.iter().map(|key| (*key).clone()).collect()
        };
        Self { name: self.name, present: draw(&self.present), absent: draw(&self.absent) }
    }
}

pub(super) fn random_names(each: u64, seed: u64) -> Keys {
    let Input { present, absent, .. } = Input::made_up(each, each, seed);
    let name = "random names";
    Keys { name, present: present.into_iter().map(|(key, _)| key).collect(), absent }
}

/// user000000, user000001, …: the present ones first.
pub(super) fn sequential_names(each: u64) -> Keys {
    let names = |from: u64| (from..from + each).map(|i| format!("user{i:06}").into_bytes());
    Keys { name: "sequential names", present: names(0).collect(), absent: names(each).collect() }
}

/// A thousand paths of Debian's index of installed files, and a thousand others; see tests/data/README.md.
///
/// # Panics
/// If the committed file cannot be unpacked.
pub fn real_paths() -> Keys {
    let present = include_bytes!("../../tests/data/paths-present.tsv.gz");
    let absent = include_bytes!("../../tests/data/paths-absent.txt.gz");
    let lines = |packed: &[u8]| {
        let mut text = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut text).expect("packed when it was committed");
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let key = |line: &[u8]| line.split(|&byte| byte == b'\t').next().map(<[u8]>::to_vec);
        lines.filter_map(key).collect()
    };
    Keys { name: "real paths", present: lines(present), absent: lines(absent) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_keys_are_distinct() {
        for keys in [random_names(1000, 7), sequential_names(1000), real_paths()] {
            assert_eq!((keys.present.len(), keys.absent.len()), (1000, 1000));
            let distinct: HashSet<_> = keys.present.iter().chain(&keys.absent).collect();
            assert_eq!(distinct.len(), 2000);
        }
    }

    #[test]
    fn keys_of_the_samples_files_are_the_samples() {
        let file = |name| Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name);
        let read = Keys::read(&file("paths-present.tsv.gz"), &file("paths-absent.txt.gz"));
        let (mut read, mut sample) = (read.expect("sound files"), real_paths());
        for keys in [&mut read.present, &mut read.absent, &mut sample.present, &mut sample.absent] {
            keys.sort();
        }
        assert_eq!((read.present, read.absent), (sample.present, sample.absent));
    }
}
