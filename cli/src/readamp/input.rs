//! The keys to load and to look up: made up, or from files.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::failure::{Failure, Result};
use crate::lines::{Lines, check_lengths, split_at_tab};

/// Keys to load, and absent keys.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// Distinct keys in order, with their values.
    pub present: Vec<(Vec<u8>, Vec<u8>)>,
    /// Distinct keys, none of them present.
    pub absent: Vec<Vec<u8>>,
    /// Other absent keys, looked up before the measurement.
    pub history: Vec<Vec<u8>>,
    /// Lines of the present file overruled by a later line with the same key.
    pub present_repeated: u64,
    /// Lines of the absent file that repeat an earlier one.
    pub absent_repeated: u64,
    /// Lines of the absent file with a present key, left out.
    pub absent_present: u64,
    /// The files; `None` for made-up keys.
    pub files: Option<(PathBuf, PathBuf)>,
}

/// The purposes of random streams. Each stream is independent of the others.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stream {
    Names,
    Loading,
    Absent,
    Present,
    History,
    Ranks,
    Changes,
    Scans,
}

pub(super) fn random(seed: u64, stream: Stream) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream as u64);
    random
}

impl Input {
    /// User names with e-mail addresses as values, and absent user names from the same distribution.
    pub fn made_up(present: u64, absent: u64, seed: u64) -> Self {
        let mut random = random(seed, Stream::Names);
        let mut seen = HashSet::new();
        let mut names = std::iter::repeat_with(|| user_name(&mut random))
            .filter(|name| seen.insert(name.clone()));
        let mut present: Vec<_> =
            names.by_ref().take(present as usize).map(|name| (name.clone(), name)).collect();
        let absent = names.take(absent as usize).map(String::into_bytes).collect();
        present.sort_unstable();
        let present = present
            .into_iter()
            .map(|(name, value)| {
                let host = HOSTS[name.len() % HOSTS.len()];
                (name.into_bytes(), format!("{value}@{host}").into_bytes())
            })
            .collect();
        Self { present, absent, ..Self::default() }
    }

    /// Moves this many absent keys, drawn at random, to the history.
    ///
    /// # Errors
    /// [`Failure::Usage`] if that leaves none.
    pub fn with_history(mut self, count: u64, seed: u64) -> Result<Self> {
        if count > 0 {
            let left = self.absent.len().checked_sub(count as usize).filter(|&left| left > 0);
            let left = left.ok_or_else(|| {
                Failure::Usage(format!(
                    "--history {count} leaves nothing of {} absent keys",
                    self.absent.len()
                ))
            })?;
            self.absent.shuffle(&mut random(seed, Stream::History));
            self.history = self.absent.split_off(left);
        }
        Ok(self)
    }

    /// Keys from files, byte for byte: a line of the present file is a key, or key TAB value; a line of the
    /// absent file is a key, up to a TAB.
    ///
    /// # Errors
    /// [`Failure::File`]; [`Failure::Unfit`] without a present key.
    pub fn read(present_file: &Path, absent_file: &Path) -> Result<Self> {
        let mut input = Self {
            files: Some((present_file.to_owned(), absent_file.to_owned())),
            ..Self::default()
        };
        let mut present = BTreeMap::new();
        Lines::open(present_file)?.for_each(|number, line| {
            let (key, value) = split_at_tab(line);
            check_lengths(present_file, number, key, value.unwrap_or_default())?;
            let before = present.insert(key.to_vec(), value.unwrap_or_default().to_vec());
            input.present_repeated += u64::from(before.is_some());
            Ok(())
        })?;
        if present.is_empty() {
            return Err(Failure::unfit(present_file, "at least one key, one a line", "none"));
        }
        let mut seen = HashSet::new();
        Lines::open(absent_file)?.for_each(|_, line| {
            let (key, _) = split_at_tab(line);
            if present.contains_key(key) {
                input.absent_present += 1;
            } else if seen.contains(key) {
                input.absent_repeated += 1;
            } else {
                seen.insert(key.to_vec());
                input.absent.push(key.to_vec());
            }
            Ok(())
        })?;
        input.present = present.into_iter().collect();
        Ok(input)
    }
}

const HOSTS: [&str; 4] = ["mail.example", "example.org", "post.example", "example.net"];
const ONSETS: [&str; 20] = [
    "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br",
    "st", "qu",
];
const VOWELS: [&str; 8] = ["a", "e", "i", "o", "u", "ei", "ia", "oo"];
const CODAS: [&str; 8] = ["", "", "n", "r", "s", "l", "nt", "ck"];

/// Such as "mara.quint83": two pronounceable names and mostly a number.
fn user_name(random: &mut ChaCha8Rng) -> String {
    let mut name = String::with_capacity(20);
    add_word(&mut name, random);
    name.push('.');
    add_word(&mut name, random);
    if random.random_bool(0.7) {
        name.push_str(&random.random_range(0..100).to_string());
    }
    name
}

fn add_word(name: &mut String, random: &mut ChaCha8Rng) {
    fn one_of(parts: &[&'static str], random: &mut ChaCha8Rng) -> &'static str {
        parts[random.random_range(0..parts.len())]
    }
    for _ in 0..random.random_range(1..=2) {
        name.push_str(one_of(&ONSETS, random));
        name.push_str(one_of(&VOWELS, random));
    }
    name.push_str(one_of(&CODAS, random));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_keys_are_distinct_and_repeatable() {
        let input = Input::made_up(1000, 500, 7);
        assert_eq!((input.present.len(), input.absent.len()), (1000, 500));
        let keys = input.present.iter().map(|(key, _)| key).chain(&input.absent);
        assert_eq!(keys.collect::<HashSet<_>>().len(), 1500);
        assert!(input.present.is_sorted());
        let (key, value) = &input.present[0];
        assert!(value.starts_with(key) && value.contains(&b'@'));
        let again = Input::made_up(1000, 500, 7);
        assert_eq!((&input.present, &input.absent), (&again.present, &again.absent));
        assert_ne!(Input::made_up(1000, 500, 8).absent, input.absent);
    }

    #[test]
    fn a_history_shares_no_key_with_what_is_measured() {
        let input = Input::made_up(10, 500, 7).with_history(200, 7).expect("enough keys");
        assert_eq!((input.absent.len(), input.history.len()), (300, 200));
        let all: HashSet<_> = input.absent.iter().chain(&input.history).collect();
        assert_eq!(all.len(), 500);
        assert!(Input::made_up(10, 500, 7).with_history(500, 7).is_err());
    }

    #[test]
    fn files_are_cleaned_and_the_cleaning_is_reported() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let (present, absent) = (dir.path().join("p"), dir.path().join("a"));
        std::fs::write(&present, b"b\t1\na\nb\t2\t3\n\xff\\x41\n")?;
        std::fs::write(&absent, b"a\nx\nx\n\ny")?;
        let input = Input::read(&present, &absent).expect("sound files");
        let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        assert_eq!(input.present, [pair(b"a", b""), pair(b"b", b"2\t3"), pair(b"\xff\\x41", b"")]);
        assert_eq!(input.absent, [&b"x"[..], b"", b"y"]);
        let repeats = (input.present_repeated, input.absent_repeated, input.absent_present);
        assert_eq!(repeats, (1, 1, 1));
        Ok(())
    }
}
