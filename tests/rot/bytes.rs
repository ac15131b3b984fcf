//! Flipped bits, truncated files, zeroed sectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use criba::vfs::SimVfs;

use crate::case::{Case, Outcome};
use crate::common::part;
use crate::fixture::{DIR, FIXTURE, Kind, Map, options};
use crate::forge::{MANIFEST_HEADER, SALT_AT, SECOND_SALT_AT};
use crate::sweep::{Tally, all, as_text, sweep, sweep_all};

/// The ends of a table's parts: data blocks, padding, filter block, and the rest.
pub(crate) fn parts(table: &[u8]) -> [usize; 3] {
    let footer = &table[table.len() - 128..];
    let field = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize;
    let index = field(16);
    let tail = &table[index..index + field(24)];
    let data_end = u64::from_le_bytes(tail[tail.len() - 12..][..8].try_into().unwrap()) as usize;
    [data_end, if field(8) > 0 { field(0) } else { data_end }, index]
}

/// The bits to flip: one of each byte in the short form.
fn bits(bytes: &[u8]) -> Vec<(usize, usize)> {
    let of_byte = |at: usize| {
        let one = at * 5 % 8;
        let bits = if all() { 0..8 } else { one..one + 1 };
        bits.map(move |bit| (at, bit))
    };
    (0..bytes.len()).flat_map(of_byte).collect()
}

/// The expected outcome of damage at an offset of a file.
fn expected(kind: Kind, bytes: &[u8], at: usize, outcome: Outcome) -> bool {
    match kind {
        Kind::Table => {
            let [data, padding, filter] = parts(bytes);
            let expected = match at {
                at if at < data => Outcome::Failed,
                at if at < padding => Outcome::Right, // only `verify` reads it
                at if at < filter => Outcome::Degraded,
                _ => Outcome::Refused,
            };
            outcome == expected
        }
        Kind::Filter => outcome == Outcome::Degraded,
        Kind::Log => {
            let synced = at < FIXTURE.ends[FIXTURE.synced];
            outcome == if synced { Outcome::Refused } else { Outcome::Dropped }
        }
        // The second salt is for a repair, and the bytes around it are not read.
        Kind::Manifest if (SALT_AT + 12..MANIFEST_HEADER).contains(&at) => {
            outcome == Outcome::Right
        }
        // The last edit may have been cut short by a crash, and without it the filter is the older one.
        Kind::Manifest => matches!(outcome, Outcome::Refused | Outcome::Dropped),
        Kind::Current => outcome == Outcome::Refused,
        Kind::Lock => unreachable!("it is empty"),
    }
}

fn flip(kind: Kind) -> BTreeMap<String, Tally> {
    let mut tallies = BTreeMap::new();
    let mut flips = 0;
    for name in FIXTURE.of_kind(kind) {
        let bytes = FIXTURE.file(&name);
        let bits = bits(bytes);
        flips += bits.len();
        let case = |number: usize| {
            let (at, bit) = bits[number];
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1 << bit;
            let what = format!("{name}: bit {bit} of byte {at} flipped");
            Case::new(what, &name, FIXTURE.with(&name, flipped))
        };
        let title = format!("{name}, {} bytes, bits flipped", bytes.len());
        let expect = |number: usize, outcome| expected(kind, bytes, bits[number].0, outcome);
        tallies.insert(name.clone(), sweep(&title, bits.len(), case, expect));
    }
    let names = FIXTURE.of_kind(kind);
    let bytes: usize = names.iter().map(|name| FIXTURE.file(name).len()).sum();
    let mut sum = Tally::new();
    for (&outcome, &count) in tallies.values().flatten() {
        *sum.entry(outcome).or_default() += count;
    }
    println!("{kind:?}: {} files, {bytes} bytes, {flips} flips: {}", names.len(), as_text(&sum));
    tallies
}

#[test]
fn a_flipped_bit_in_a_table_fails_reads_or_degrades_its_filter_or_refuses_the_store() {
    for tally in flip(Kind::Table).values() {
        for outcome in [Outcome::Failed, Outcome::Refused] {
            assert!(tally[&outcome] > part(100), "{tally:?}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_filter_beside_its_table_degrades_it() {
    assert!(flip(Kind::Filter).len() >= 2);
}

#[test]
fn a_flipped_bit_in_a_log_refuses_the_store_if_it_was_synced_and_else_drops_the_end() {
    for tally in flip(Kind::Log).values() {
        assert!(tally[&Outcome::Refused] > part(100) && tally[&Outcome::Dropped] > part(100));
    }
}

#[test]
fn a_flipped_bit_in_the_manifest_is_never_believed() {
    for tally in flip(Kind::Manifest).values() {
        assert!(tally[&Outcome::Refused] > part(500));
    }
}

#[test]
fn a_flipped_bit_in_current_refuses_the_store() {
    flip(Kind::Current);
}

/// At every length. The manifest has the lengths of tables and filters; CURRENT checks its own. Crashes
/// truncate logs, so these have their own tests.
#[test]
fn files_cut_short_are_refused_or_degraded() {
    for kind in [Kind::Table, Kind::Filter, Kind::Current] {
        for name in FIXTURE.of_kind(kind) {
            let bytes = FIXTURE.file(&name);
            let case = |length: usize| {
                let what = format!("{name}: cut to {length} bytes");
                Case::new(what, &name, FIXTURE.with(&name, &bytes[..length]))
            };
            let expected = if kind == Kind::Filter { Outcome::Degraded } else { Outcome::Refused };
            let title = format!("{name}, cut at every length");
            sweep(&title, bytes.len(), case, |_, outcome| outcome == expected);
        }
    }
}

/// A log cut within a record reveals itself; one cut between two records looks like a shorter log, even if
/// the lost records were synced. The header is synced first.
#[test]
fn a_log_cut_short_drops_what_is_cut_and_reports_it_but_between_two_records() {
    let name = FIXTURE.only(Kind::Log);
    let bytes = FIXTURE.file(&name);
    let case = |length: usize| {
        let what = format!("{name}: cut to {length} bytes");
        Case::new(what, &name, FIXTURE.with(&name, &bytes[..length]))
    };
    let tally =
        sweep(&format!("{name}, cut at every length"), bytes.len(), case, |length, outcome| {
            let expected = match length {
                _ if length < FIXTURE.ends[0] => Outcome::Refused,
                _ if FIXTURE.ends.contains(&length) => Outcome::Shorter,
                _ => Outcome::Dropped,
            };
            outcome == expected
        });
    assert_eq!(tally[&Outcome::Shorter], FIXTURE.ends.len() - 1);
}

/// Synced writes fill a log with zeros ahead. Losing zeros loses nothing: any other byte there is reported
/// as dropped.
#[test]
fn a_flipped_bit_in_what_fills_a_log_drops_that_and_no_record() {
    let name = FIXTURE.only(Kind::Log);
    let written = FIXTURE.file(&name);
    let filled = |zeros: usize| {
        let mut bytes = written.to_vec();
        bytes.resize(written.len() + zeros, 0);
        bytes
    };
    let flip = |at: usize| {
        let mut bytes = filled(400);
        bytes[written.len() + at] ^= 1 << (at % 8);
        let what = format!("{name}: zero {at} flipped");
        Case::new(what, &name, FIXTURE.with(&name, bytes))
    };
    sweep("zeros flipped", 400, flip, |_, outcome| outcome == Outcome::Dropped);
    for at in 0..400 {
        let vfs = SimVfs::on(flip(at).disk);
        let db = options().vfs(Arc::new(vfs)).open(DIR).unwrap();
        let lost = db.recovery().lost_tail.clone().unwrap();
        assert_eq!((lost.offset, lost.bytes), (written.len() as u64, at as u64 + 1));
        let entries = db.iter().map(Result::unwrap);
        let found: Map = entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        assert_eq!(&found, FIXTURE.last());
    }
    let cut = |zeros: usize| {
        let what = format!("{name}: with {zeros} zeros");
        Case::new(what, &name, FIXTURE.with(&name, filled(zeros)))
    };
    sweep("zeros cut", 400, cut, |_, outcome| outcome == Outcome::Right);
}

/// The tables and logs of truncated edits reveal them. So only edits that replaced filters can go
/// unnoticed.
#[test]
fn a_manifest_cut_short_is_refused_or_loses_nothing_but_filters() {
    let name = FIXTURE.only(Kind::Manifest);
    let bytes = FIXTURE.file(&name);
    let case = |length: usize| {
        let what = format!("{name}: cut to {length} bytes");
        Case::new(what, &name, FIXTURE.with(&name, &bytes[..length]))
    };
    let tally = sweep(&format!("{name}, cut at every length"), bytes.len(), case, |_, outcome| {
        matches!(outcome, Outcome::Refused | Outcome::Dropped | Outcome::Degraded | Outcome::Right)
    });
    assert!(tally[&Outcome::Refused] > part(500), "{tally:?}");
}

/// Sectors, pages, and everything from a sector on. (Files of this size have one page.)
#[test]
fn zeros_in_place_of_sectors_are_never_believed() {
    let mut cases = Vec::new();
    for kind in Kind::ALL {
        for name in FIXTURE.of_kind(kind) {
            let bytes = FIXTURE.file(&name);
            for start in (0..bytes.len()).step_by(512) {
                for end in [(start + 512).min(bytes.len()), bytes.len()] {
                    let mut zeroed = bytes.to_vec();
                    zeroed[start..end].fill(0);
                    if zeroed == bytes {
                        continue; // it is zeros
                    }
                    let what = format!("{name}: zeros from {start} to {end}");
                    cases.push(Case::new(what, &name, FIXTURE.with(&name, zeroed)));
                }
            }
        }
    }
    let second_salt = format!("zeros from {SECOND_SALT_AT} to {}", SECOND_SALT_AT + 512);
    sweep_all("zeroed sectors", &cases, |case, outcome| match Kind::of(&case.files[0]) {
        // Zeros to the end of a log are how some file systems show one that a crash cut short.
        Kind::Log => matches!(outcome, Outcome::Refused | Outcome::Dropped | Outcome::Shorter),
        Kind::Manifest if case.what.contains(&second_salt) => outcome == Outcome::Right,
        Kind::Manifest => matches!(outcome, Outcome::Refused | Outcome::Dropped),
        Kind::Filter => outcome == Outcome::Degraded,
        _ => matches!(outcome, Outcome::Refused | Outcome::Failed),
    });
}
