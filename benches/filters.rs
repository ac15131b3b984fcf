//! The three kinds of filters beside the best of other crates, with the same hashes in one run.
//!
//! `cargo bench -p criba-benches --bench filters [-- [rivals] KEYS …]`; default: 100,000 and 1,000,000 keys.
//! With `rivals`, only the filters whose ratios are printed, which takes a third of the time.
//!
//! Each filter is built, then probed with as many absent and present hashes as it has keys. The time of a
//! probe is the median over short chunks, most of which are not interrupted. A round does this with every
//! filter in turn; times are medians over the rounds, ratios medians of the ratios within a round, so that
//! other load affects all filters. Hashes are computed before.
//!
//! Two targets are not met: a single absent probe no slower than `sbbf-rs-safe` (blocked) and `BinaryFuse8`
//! (ribbon). On two shared cores with AVX-512 the ratios were (2026-11-28), with 10⁵, 10⁶ and 10⁷ keys, for
//! blocked 1.14, 1.15 and 1.8–2.0; the time of the other changes by a sixth with the place of its code in the
//! program. For ribbon they were 1.77–1.87, 1.57–1.81 and 2.11. In batches, as in a lookup of several tables:
//! blocked 0.71, 0.73–0.79 and 0.88–0.90; ribbon 1.31–1.46, 1.26–1.28 and 0.93.
//!
//! Blocked reads a whole cache line where the other reads half of one, and has fewer false positives. Its probe
//! has 15 instructions. One with vectors of 128 bits need not clear the upper halves at its end, but took 1.3
//! to 1.4 times as long. A ribbon reads two lines and a bit, and computes seven parities, in about 50 instructions;
//! one probe in thirty reads a second layer.

use std::collections::HashSet;
use std::hint::black_box;
use std::time::Instant;

use criba::FilterKind;
use criba_filter::HashFilter;
use xorf::Filter as _;

const ROUNDS: usize = 21;
const CHUNK: usize = 10_000;

/// The i-th output of SplitMix64.
fn hash(i: u64) -> u64 {
    let mut z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// One filter in one round: nanoseconds per key, and its properties.
#[derive(Clone, Copy)]
struct Lap {
    build: f64,
    absent: f64,
    present: f64,
    bits: f64,
    rate: f64,
}

struct Hashes {
    keys: Vec<u64>,
    absent: Vec<u64>,
}

/// Times a build, and probes of the result.
fn lap<F>(
    hashes: &Hashes,
    build: impl FnOnce(Vec<u64>) -> F,
    bytes: impl FnOnce(&F) -> usize,
    contains: impl Fn(&F, u64) -> bool,
) -> Lap {
    lap_many(hashes, build, bytes, |filter, hashes| {
        hashes.iter().filter(|&&hash| contains(filter, hash)).count()
    })
}

/// Times probes of many hashes at once.
fn lap_many<F>(
    hashes: &Hashes,
    build: impl FnOnce(Vec<u64>) -> F,
    bytes: impl FnOnce(&F) -> usize,
    count: impl Fn(&F, &[u64]) -> usize,
) -> Lap {
    let n = hashes.keys.len() as f64;
    let keys = hashes.keys.clone();
    let start = Instant::now();
    let filter = black_box(build(keys));
    let build = start.elapsed().as_secs_f64();
    let ask = |hashes: &[u64]| {
        let mut passed = 0;
        let chunks = hashes.chunks(CHUNK).map(|chunk| {
            let start = Instant::now();
            passed += black_box(count(&filter, chunk));
            1e9 * start.elapsed().as_secs_f64() / chunk.len() as f64
        });
        (median(chunks), passed)
    };
    ask(&hashes.absent[..hashes.absent.len() / 4]); // warm
    let (absent, mistaken) = ask(&hashes.absent);
    let (present, found) = ask(&hashes.keys);
    assert_eq!(found, hashes.keys.len(), "a key was denied");
    Lap {
        build: 1e9 * build / n,
        absent,
        present,
        bits: 8.0 * bytes(&filter) as f64 / n,
        rate: mistaken as f64 / hashes.absent.len() as f64,
    }
}

type Contender = (&'static str, Box<dyn Fn(&Hashes) -> Lap>);

fn ours(kind: FilterKind, bits: f64) -> Box<dyn Fn(&Hashes) -> Lap> {
    Box::new(move |hashes| {
        lap(
            hashes,
            |keys| HashFilter::build(kind, bits, keys),
            |filter| (filter.bits_per_key() * hashes.keys.len() as f64 / 8.0) as usize,
            HashFilter::may_contain,
        )
    })
}

/// In batches of [`CHUNK`] hashes.
fn ours_many(kind: FilterKind, bits: f64) -> Box<dyn Fn(&Hashes) -> Lap> {
    Box::new(move |hashes| {
        lap_many(
            hashes,
            |keys| HashFilter::build(kind, bits, keys),
            |filter| (filter.bits_per_key() * hashes.keys.len() as f64 / 8.0) as usize,
            |filter, hashes| {
                let mut answers = [false; CHUNK];
                filter.may_contain_many(hashes, &mut answers);
                answers[..hashes.len()].iter().filter(|&&answer| answer).count()
            },
        )
    })
}

fn contenders() -> Vec<Contender> {
    vec![
        ("bloom", ours(FilterKind::Bloom, 9.585)),
        ("blocked", ours(FilterKind::Blocked, 10.0)),
        ("ribbon", ours(FilterKind::Ribbon, 7.75)),
        ("blocked, many", ours_many(FilterKind::Blocked, 10.0)),
        ("ribbon, many", ours_many(FilterKind::Ribbon, 7.75)),
        (
            "sbbf-rs-safe",
            Box::new(|hashes| {
                lap(
                    hashes,
                    |keys| {
                        let mut filter = sbbf_rs_safe::Filter::new(10, keys.len());
                        for hash in keys {
                            filter.insert_hash(hash);
                        }
                        filter
                    },
                    |filter| filter.as_bytes().len(),
                    sbbf_rs_safe::Filter::contains_hash,
                )
            }),
        ),
        (
            "BinaryFuse8",
            Box::new(|hashes| {
                lap(
                    hashes,
                    |keys| xorf::BinaryFuse8::try_from(keys).expect("distinct hashes"),
                    |filter| filter.fingerprints.len(),
                    |filter, hash| filter.contains(&hash),
                )
            }),
        ),
        (
            "fastbloom",
            Box::new(|hashes| {
                lap(
                    hashes,
                    |keys| {
                        let mut filter = fastbloom::BloomFilter::with_num_bits(
                            (keys.len() as f64 * 9.585) as usize,
                        )
                        .seed(&1)
                        .expected_items(keys.len());
                        for hash in keys {
                            filter.insert_hash(hash);
                        }
                        filter
                    },
                    |filter| filter.num_bits() / 8,
                    fastbloom::BloomFilter::contains_hash,
                )
            }),
        ),
        (
            "HashSet<u64>",
            Box::new(|hashes| {
                lap(
                    hashes,
                    HashSet::from_iter,
                    // A slot is a key and a byte; seven eighths of a power of two may be filled.
                    |set: &HashSet<u64>| (set.capacity() * 8 / 7).next_power_of_two() * 9,
                    |set, hash| set.contains(&hash),
                )
            }),
        ),
    ]
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn run(keys: usize, rivals: bool) {
    let hashes = Hashes {
        keys: (0..keys as u64).map(hash).collect(),
        absent: (0..keys.max(1_000_000) as u64).map(|i| hash(i | 1 << 40)).collect(),
    };
    let mut contenders = contenders();
    if rivals {
        let others = ["bloom", "fastbloom", "HashSet<u64>"];
        contenders.retain(|(name, _)| !others.contains(name));
    }
    let rounds: Vec<Vec<Lap>> = (0..ROUNDS)
        .map(|_| contenders.iter().map(|(_, contender)| contender(&hashes)).collect())
        .collect();
    println!("\n{keys} keys, medians of {ROUNDS} rounds; times in ns");
    println!(
        "{:<14}{:>10}{:>10}{:>12}{:>14}{:>15}",
        "", "bits/key", "FPR %", "build/key", "absent probe", "present probe"
    );
    for (at, (name, _)) in contenders.iter().enumerate() {
        let laps = || rounds.iter().map(|round| round[at]);
        println!(
            "{name:<14}{:>10.2}{:>10.3}{:>12.2}{:>14.2}{:>15.2}",
            laps().next().map_or(0.0, |lap| lap.bits),
            100.0 * median(laps().map(|lap| lap.rate)),
            median(laps().map(|lap| lap.build)),
            median(laps().map(|lap| lap.absent)),
            median(laps().map(|lap| lap.present)),
        );
    }
    let index =
        |name: &str| contenders.iter().position(|(known, _)| *known == name).expect("known");
    let said = |what: &str, value: f64, most: f64| {
        let verdict = if value <= most { "holds" } else { "MISSED" };
        println!("  {what:<46}{value:>8.3} of {most:<6} {verdict}");
    };
    let rate = |name: &str| 100.0 * rounds[0][index(name)].rate;
    let ratio = |ours: &str, theirs: &str, of: fn(&Lap) -> f64| {
        let (ours, theirs) = (index(ours), index(theirs));
        median(rounds.iter().map(|round| of(&round[ours]) / of(&round[theirs])))
    };
    // The scatter of a count of false positives, three deviations, is allowed for.
    let scatter = |rate: f64| rate + 3.0 * (rate * 100.0 / hashes.absent.len() as f64).sqrt();
    if !rivals {
        said("bloom: FPR % at 9.585 bits", rate("bloom"), scatter(1.004));
    }
    said("blocked: FPR % at 10 bits", rate("blocked"), 1.1);
    said("ribbon: FPR % at 7.75 bits", rate("ribbon"), 0.52);
    let pairs: [(&str, &str, f64); 2] =
        [("blocked", "sbbf-rs-safe", 1.5), ("ribbon", "BinaryFuse8", 2.0)];
    for (ours, theirs, most) in pairs {
        let absent = ratio(ours, theirs, |lap| lap.absent);
        said(&format!("{ours}: absent probe / {theirs}"), absent, 1.0);
        let many = ratio(&format!("{ours}, many"), theirs, |lap| lap.absent);
        said(&format!("{ours}: absent probe of many / {theirs}"), many, 1.0);
        said(&format!("{ours}: build / {theirs}"), ratio(ours, theirs, |lap| lap.build), most);
    }
}

fn main() {
    let asked: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let rivals = std::env::args().any(|word| word == "rivals");
    for keys in if asked.is_empty() { vec![100_000, 1_000_000] } else { asked } {
        run(keys, rivals);
    }
}
