//! Replays the corpus of each target, and mutations of it under a fixed seed.
//!
//! `CRIBA_FUZZ_MUTATIONS=2000000` sets the number of mutations, `CRIBA_FUZZ_SEED=7` the seed. A failing input
//! is written to a file, which the failure names.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits memory: a parser that allocates a forged length exceeds this at once, and the process ends.
const ADDRESS_SPACE: u64 = 4 << 30;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}

pub(crate) fn corpus_dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// The inputs of a target, by name.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = corpus_dir(target);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.expect("a directory").path())
        .collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a file")).collect()
}

/// Runs a target over its corpus and mutations. At least `least` per cent must be accepted in part, or the
/// code behind the first checks is hardly reached.
fn replay(target: &str, run: fn(&[u8]) -> bool, mutations: u64, least: u64) {
    let limit = Rlimit { current: Some(ADDRESS_SPACE), ..getrlimit(Resource::As) };
    setrlimit(Resource::As, limit).expect("a lower limit");
    let run = |input: &[u8]| {
        catch_unwind(AssertUnwindSafe(|| run(input))).unwrap_or_else(|panic| {
            let path = std::env::temp_dir().join(format!("criba-{target}-failed"));
            let _ = std::fs::write(&path, input);
            println!("the input is {}", path.display());
            resume_unwind(panic)
        })
    };
    let corpus = corpus(target);
    assert!(corpus.len() > 2, "a corpus of {}", corpus.len());
    let whole = corpus.iter().filter(|input| run(input)).count();
    assert!(whole > 0, "nothing in the corpus is accepted");

    let mutations = number("CRIBA_FUZZ_MUTATIONS", mutations);
    let seed = number("CRIBA_FUZZ_SEED", 20_261_120);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let accepted = (0..mutations).filter(|_| run(&mutated(&corpus, &mut rng))).count() as u64;
    println!(
        "fuzz {target}: corpus {} inputs, accepted {whole}; mutations {mutations}, accepted \
         {accepted}, seed {seed}",
        corpus.len()
    );
    assert!(accepted * 100 >= mutations * least, "only {accepted} of {mutations} accepted");
}

/// An input of the corpus, changed in one to four places.
fn mutated(corpus: &[Vec<u8>], rng: &mut ChaCha8Rng) -> Vec<u8> {
    const TELLING: [u64; 12] = [
        0,
        1,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 61,
        i64::MAX as u64,
        u64::MAX,
    ];
    // The shorter of two: long inputs take long.
    let mut pick = || &corpus[rng.random_range(0..corpus.len())];
    let (one, other) = (pick(), pick());
    let mut bytes = if one.len() < other.len() { one } else { other }.clone();
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=bytes.len());
        let end = (at + (1 << rng.random_range(0..7))).min(bytes.len());
        match rng.random_range(0..9) {
            0 | 1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.random_range(0..8);
                }
            }
            2 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.random();
                }
            }
            3 => {
                let value = TELLING[rng.random_range(0..TELLING.len())].to_le_bytes();
                let width = (1 << rng.random_range(0..4)).min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            4 => {
                let mut more = vec![0; rng.random_range(1..12)];
                rng.fill_bytes(&mut more);
                bytes.splice(at..at, more);
            }
            5 => drop(bytes.drain(at..end)),
            6 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            7 => {
                let other = &corpus[rng.random_range(0..corpus.len())];
                let from = rng.random_range(0..=other.len());
                let to = (from + (1 << rng.random_range(0..10))).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            _ if rng.random_ratio(1, 4) => bytes.truncate(at),
            _ => {
                // A little more or less, as a counter or an offset is wrong.
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = byte.wrapping_add_signed(rng.random_range(-4..=4));
                }
            }
        }
    }
    bytes
}

#[test]
fn no_bytes_break_the_reading_of_batches() {
    replay("batch", crate::batch, 20_000, 5);
}

#[test]
fn no_bytes_break_the_reading_of_logs() {
    replay("wal", crate::wal, 20_000, 5);
}

#[test]
fn no_bytes_break_the_reading_of_manifests() {
    replay("manifest", crate::manifest, 20_000, 5);
}

#[test]
fn no_bytes_break_the_reading_of_tables() {
    replay("table", crate::table, 20_000, 5);
}

#[test]
fn no_bytes_break_the_reading_of_filters() {
    replay("filter", crate::filter, 20_000, 5);
}

#[test]
fn no_change_to_its_files_breaks_the_opening_of_a_store() {
    replay("open", crate::open, 2_000, 5);
}
