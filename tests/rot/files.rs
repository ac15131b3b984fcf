//! Swapped, outdated, deleted, added and copied files.

use std::collections::BTreeSet;

use crate::case::{Case, Outcome};
use crate::fixture::{FIXTURE, Kind, name, number, path};
use crate::sweep::sweep_all;

fn names() -> Vec<String> {
    Kind::ALL.into_iter().flat_map(|kind| FIXTURE.of_kind(kind)).collect()
}

/// The expected outcome for a wrong file.
fn refused_or_degraded(name: &str) -> Outcome {
    match Kind::of(name) {
        Kind::Lock => Outcome::Right,
        Kind::Filter => Outcome::Degraded,
        _ => Outcome::Refused,
    }
}

#[test]
fn swapped_files_are_found() {
    let names = names();
    let mut cases = Vec::new();
    for (i, a) in names.iter().enumerate() {
        for b in &names[i + 1..] {
            let mut disk = FIXTURE.with(a, FIXTURE.file(b));
            disk.write(path(b), FIXTURE.file(a));
            cases.push(Case::new(format!("{a} and {b} swapped"), a, disk).blaming(b));
        }
    }
    sweep_all("files swapped", &cases, |case, outcome| {
        outcome == case.files.iter().map(|name| refused_or_degraded(name)).max().unwrap()
    });
}

/// An earlier manifest is believed while all its files exist, and an earlier log is a log with fewer
/// records: nothing reveals that a whole file is outdated.
#[test]
fn an_outdated_file_is_found_or_loses_only_newer_writes() {
    let (mut cases, mut seen) = (Vec::new(), BTreeSet::new());
    for older in &FIXTURE.older {
        for (from, bytes) in older.files() {
            let from = name(from);
            let same_kind = names().into_iter().filter(|to| Kind::of(to) == Kind::of(&from));
            for to in same_kind.filter(|to| FIXTURE.file(to) != bytes) {
                if seen.insert((to.clone(), bytes.to_vec())) {
                    let what = format!("{to} replaced by an earlier {from}");
                    cases.push(Case::new(what, &to, FIXTURE.with(&to, bytes)));
                }
            }
        }
    }
    let tally = sweep_all("files put back", &cases, |case, outcome| {
        match Kind::of(&case.files[0]) {
            Kind::Log => matches!(outcome, Outcome::Refused | Outcome::Shorter),
            // The filters that it names may be gone.
            Kind::Manifest => {
                matches!(outcome, Outcome::Refused | Outcome::Degraded | Outcome::Right)
            }
            _ => outcome == refused_or_degraded(&case.files[0]),
        }
    });
    assert!(tally[&Outcome::Degraded] >= 4, "earlier generations of filters: {tally:?}");
    assert!(tally[&Outcome::Shorter] > 5, "{tally:?}");
}

/// The earlier `CURRENT` and manifest: their log and tables are gone.
#[test]
fn an_earlier_current_with_its_manifest_is_refused() {
    let mut cases = Vec::new();
    for older in &FIXTURE.older {
        let mut disk = FIXTURE.disk.clone();
        let of = |path: &&std::path::Path| {
            matches!(Kind::of(&name(path)), Kind::Current | Kind::Manifest)
        };
        for (path, bytes) in older.files().filter(|(path, _)| of(path)) {
            disk.write(path, bytes);
        }
        if disk.read(path("CURRENT")) != FIXTURE.disk.read(path("CURRENT")) {
            cases.push(Case::new("an earlier CURRENT", "CURRENT", disk));
        }
    }
    assert!(cases.len() >= 4);
    sweep_all("CURRENT and manifest put back", &cases, |_, outcome| outcome == Outcome::Refused);
}

/// Every set of files is deleted, but those that leave no data.
#[test]
fn deleted_files_are_missed_by_name() {
    let names = names();
    let mut cases = Vec::new();
    for set in 1_u32..1 << names.len() {
        let deleted: Vec<_> = (0..names.len()).filter(|n| set >> n & 1 == 1).collect();
        let holds_data =
            |n: usize| matches!(Kind::of(&names[n]), Kind::Table | Kind::Filter | Kind::Log);
        if (0..names.len()).all(|n| !holds_data(n) || deleted.contains(&n)) {
            continue; // this looks like a store that is being made
        }
        let mut disk = FIXTURE.disk.clone();
        let mut what = "deleted:".to_owned();
        for &n in &deleted {
            disk.remove(path(&names[n]));
            what = what + " " + &names[n];
        }
        let mut case = Case::new(what, "CURRENT", disk);
        case.files = deleted.into_iter().map(|n| names[n].clone()).collect();
        cases.push(case);
    }
    sweep_all("files deleted", &cases, |case, outcome| {
        outcome == case.files.iter().map(|name| refused_or_degraded(name)).max().unwrap()
    });
}

/// Files with other spellings of names are foreign, and stay.
#[test]
fn files_that_are_not_the_stores_change_nothing() {
    let mut cases = Vec::new();
    for foreign in [
        "notes.txt",
        "7.sst",
        "000007.SST",
        "+000007.log",
        "000007.sst.bak",
        "MANIFEST",
        "current",
        "MANIFEST-18446744073709551615",
        "4611686018427387905.sst",
        "000007-0000.flt",
        ".flt",
        "é",
    ] {
        for bytes in ["", "something", "cribaSST"] {
            let disk = FIXTURE.with(foreign, bytes);
            cases.push(Case::new(format!("a file {foreign}"), "none", disk));
        }
    }
    sweep_all("foreign files", &cases, |_, outcome| outcome == Outcome::Right);
}

/// A copy, or random bytes, under every other number of a file: nothing refers to it.
#[test]
fn files_under_other_numbers_are_not_taken_for_what_they_are_copies_of() {
    let (mut cases, far) = (Vec::new(), 1 << 41);
    for original in names() {
        for other in [0, 1, 17, 999, 1 << 32, far, (1 << 61) - 1, 1 << 61, (1 << 61) + 1, 1 << 62] {
            let near = number(&original) + (1 << 32); // its low 32 bits are the same
            for other in [other, near] {
                let copy = match Kind::of(&original) {
                    Kind::Table => format!("{other:06}.sst"),
                    Kind::Filter => format!("{other:06}-0002.flt"),
                    Kind::Log => format!("{other:06}.log"),
                    Kind::Manifest => format!("MANIFEST-{other:06}"),
                    Kind::Current | Kind::Lock => "CURRENT.tmp".into(),
                };
                for bytes in [FIXTURE.file(&original), b"", b"nonsense"] {
                    let what = format!("{copy}, {} bytes of {original}", bytes.len());
                    cases.push(Case::new(what, &copy, FIXTURE.with(&copy, bytes)));
                }
            }
        }
    }
    // More filters of the tables that there are.
    for table in FIXTURE.of_kind(Kind::Table).iter().map(|name| number(name)) {
        for generation in [1, 3, 99, 1_u64 << 61, 1 << 62] {
            let copy = format!("{table:06}-{generation:04}.flt");
            let bytes = FIXTURE.file(&FIXTURE.of_kind(Kind::Filter)[0]);
            cases.push(Case::new(copy.clone(), &copy, FIXTURE.with(&copy, bytes)));
        }
    }
    sweep_all("files under other numbers", &cases, |case, outcome| {
        // A number that no store gets to would leave it none to go on with.
        let name = &case.files[0];
        let too_far = name != "CURRENT.tmp" && number(name) >= far;
        outcome == if too_far { Outcome::Refused } else { Outcome::Right }
    });
}
