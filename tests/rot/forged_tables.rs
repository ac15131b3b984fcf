//! Tables with one forged field and right checksums, also in the manifest.

use crate::case::{Case, Outcome};
use crate::common::part;
use crate::fixture::{FIXTURE, Kind, number, path};
use crate::forge::{
    ENTRIES_AT, EXPIRIES, EXPIRING, FOOTER_FEATURES_AT, FOOTER_RANDOM_AT, RANDOM_AT, Table, put,
    tagged_fields, u64_at,
};
use crate::numbers::odd;
use crate::sweep::{Tally, all, sweep_all};

/// The store with a changed table, and the manifest's record of it.
pub(crate) fn case(what: &str, table: &Table, record: impl Fn(&mut [u8])) -> Case {
    let mut disk = FIXTURE.with(&table.name, table.sealed());
    let manifest = FIXTURE.only(Kind::Manifest);
    disk.write(path(&manifest), table.manifest(record));
    let case = Case::new(format!("{}: {what}", table.name), &table.name, disk).forged();
    // Its filter, too, is asked for keys that it never held.
    let filter =
        FIXTURE.of_kind(Kind::Filter).into_iter().find(|name| number(name) == number(&table.name));
    filter.iter().fold(case.blaming(&manifest), |case, filter| case.blaming(filter))
}

/// A case for each of some tables and each forged field.
fn each(
    title: &str,
    tables: Vec<Table>,
    forge: impl Fn(&Table, &mut dyn FnMut(String, usize, &[u8])),
) -> Vec<Case> {
    let mut cases = Vec::new();
    for sound in tables {
        forge(&sound, &mut |what, at, field| {
            let mut table = sound.clone();
            put(&mut table.bytes, at, field);
            if table.bytes != sound.bytes {
                cases.push(case(&format!("{title} {what}"), &table, |_| {}));
            }
        });
    }
    cases
}

fn swept(
    title: &str,
    forge: impl Fn(&Table, &mut dyn FnMut(String, usize, &[u8])),
    expect: &[Outcome],
) -> Tally {
    swept_in(title, Table::all(), forge, expect)
}

fn swept_in(
    title: &str,
    tables: Vec<Table>,
    forge: impl Fn(&Table, &mut dyn FnMut(String, usize, &[u8])),
    expect: &[Outcome],
) -> Tally {
    sweep_all(&format!("{title} forged"), &each(title, tables, forge), |_, outcome| {
        expect.contains(&outcome)
    })
}

#[test]
fn forged_footers_are_refused() {
    let forge = |table: &Table, forge: &mut dyn FnMut(String, usize, &[u8])| {
        for at in (0..80).step_by(8) {
            for value in odd(u64_at(&table.bytes, table.footer + at)) {
                // Without a filter, and without range tombstones, the place of none does not matter.
                let length = u64_at(&table.bytes, table.footer + (at | 8));
                if at % 16 == 0 && at < 64 && length == 0 {
                    continue;
                }
                forge(format!("field {at} is {value}"), table.footer + at, &value.to_le_bytes());
            }
        }
        for version in [0_u16, 1, 3, u16::MAX] {
            forge(format!("version {version}"), table.footer + 112, &version.to_le_bytes());
        }
        for at in FOOTER_RANDOM_AT..FOOTER_RANDOM_AT + 16 {
            let byte = table.bytes[table.footer + at] ^ 1;
            forge(format!("random byte {at}"), table.footer + at, &[byte]);
        }
        // Without a known one, with one that the properties do not have, with an unknown one.
        for features in 0..16 {
            forge(format!("features {features}"), table.footer + FOOTER_FEATURES_AT, &[features]);
        }
        forge("magic".into(), table.footer + 120, b"C");
    };
    swept("footer", forge, &[Outcome::Refused]);
}

/// A table whose random bytes are others is sound if the manifest has them too.
#[test]
fn a_table_has_the_random_bytes_that_the_manifest_names() {
    let mut cases = Vec::new();
    for sound in Table::all() {
        let mut table = sound.clone();
        let random = [7; 16];
        put(&mut table.bytes, sound.footer + FOOTER_RANDOM_AT, &random);
        cases.push(case("other random bytes everywhere", &table, |record| {
            put(record, RANDOM_AT, &random);
        }));
    }
    sweep_all("random bytes", &cases, |_, outcome| outcome == Outcome::Right);
}

#[test]
fn forged_properties_are_refused_or_found_by_verify() {
    let forge = |table: &Table, forge: &mut dyn FnMut(String, usize, &[u8])| {
        let at = table.properties.start;
        forge("keyspace".into(), at, &[1]);
        for field in [4, 12, 20, 28, 52, 60] {
            for value in odd(u64_at(&table.bytes, at + field)) {
                forge(format!("field {field} is {value}"), at + field, &value.to_le_bytes());
            }
        }
        for byte in [0, 5, 7, 40, 0x7f, 0x80, 0xff] {
            forge(format!("length of the smallest key {byte}"), at + 68, &[byte]);
        }
        forge("smallest key".into(), at + 69, b"z");
        forge("smallest key".into(), at + 69, b"a");
        if table.has_expiries() {
            let at = table.expiries();
            for time in (at..at + EXPIRIES).step_by(8) {
                for value in odd(u64_at(&table.bytes, time)) {
                    let what = format!("time {} of the expiries is {value}", (time - at) / 8);
                    forge(what, time, &value.to_le_bytes());
                }
            }
            forge("length of the expiries".into(), at - 1, &[EXPIRIES as u8 - 8]);
            forge("an unknown field in place of the expiries".into(), at - 2, &[7]);
        }
    };
    swept("properties", forge, &[Outcome::Refused]);
    // The sums of lengths are information only.
    let forge = |table: &Table, forge: &mut dyn FnMut(String, usize, &[u8])| {
        for field in [36, 44] {
            let at = table.properties.start + field;
            for value in odd(u64_at(&table.bytes, at)) {
                forge(format!("field {field} is {value}"), at, &value.to_le_bytes());
            }
        }
    };
    swept("sums of lengths", forge, &[Outcome::Right]);
}

/// Counts of entries, tombstones and keys, and the range of sequence numbers: properties and manifest
/// agree, and only the data contradict them.
#[test]
fn forged_counts_on_which_all_agree_are_contradicted_by_the_data() {
    let mut cases = Vec::new();
    for sound in Table::all() {
        let at = sound.properties.start;
        for (what, property, record) in [
            ("entries", 4, ENTRIES_AT),
            ("tombstones", 12, ENTRIES_AT + 8),
            ("keys", 20, ENTRIES_AT + 16),
            ("oldest change", 52, ENTRIES_AT + 24),
            ("newest change", 60, ENTRIES_AT + 32),
        ] {
            for value in odd(u64_at(&sound.bytes, at + property)) {
                let mut table = sound.clone();
                put(&mut table.bytes, at + property, &value.to_le_bytes());
                let what = format!("{what} are {value}, as the manifest says");
                cases.push(case(&what, &table, |bytes| put(bytes, record, &value.to_le_bytes())));
            }
        }
    }
    let tally =
        sweep_all("counts forged everywhere", &cases, |_, outcome| outcome != Outcome::Believed);
    assert!(tally[&Outcome::Refused] > part(500), "{tally:?}");
}

/// Without expiring entries, or with them, whatever footer and properties say: manifest and footer agree, and the
/// properties do not.
#[test]
fn the_feature_of_expiring_entries_is_that_of_the_properties() {
    let mut cases = Vec::new();
    for sound in Table::all() {
        let mut table = sound.clone();
        table.bytes[sound.footer + FOOTER_FEATURES_AT] ^= EXPIRING;
        let sealed = table.sealed();
        let manifest = table.manifest_with(&sealed, |edit, record| {
            let place = tagged_fields(edit, record);
            let fields = if sound.has_expiries() {
                edit[place.start..place.end - 2 - EXPIRIES].to_vec()
            } else {
                let expiries = [&[4, EXPIRIES as u8][..], &1_u64.to_le_bytes().repeat(9)].concat();
                [&edit[place.clone()], &expiries].concat()
            };
            edit[place.start - 1] = fields.len() as u8;
            edit.splice(place, fields);
        });
        let mut disk = FIXTURE.with(&table.name, sealed);
        disk.write(path(&FIXTURE.only(Kind::Manifest)), manifest);
        let what = format!("{}: other features in footer and manifest", table.name);
        cases.push(Case::new(what, &table.name, disk).forged());
    }
    sweep_all("features of expiring entries", &cases, |_, outcome| outcome == Outcome::Refused);
}

/// Expiries on which properties and manifest agree say when merges are worth it. A reader needs none, and `verify`
/// compares them with the entries.
#[test]
fn forged_expiries_on_which_all_agree_are_found_by_verify() {
    let mut cases = Vec::new();
    for sound in Table::all().into_iter().filter(Table::has_expiries) {
        let at = sound.expiries();
        let times: Vec<u64> = (0..9).map(|part| u64_at(&sound.bytes, at + 8 * part)).collect();
        for part in 0..9 {
            for value in odd(times[part]) {
                let mut forged = times.clone();
                forged[part] = value;
                if !forged.is_sorted() || forged[0] == u64::MAX {
                    continue;
                }
                let forged: Vec<u8> = forged.into_iter().flat_map(u64::to_le_bytes).collect();
                let table = sound.with(at, &forged);
                let sealed = table.sealed();
                let manifest = table.manifest_with(&sealed, |edit, record| {
                    let end = tagged_fields(edit, record).end;
                    put(edit, end - EXPIRIES, &forged);
                });
                let mut disk = FIXTURE.with(&table.name, sealed);
                disk.write(path(&FIXTURE.only(Kind::Manifest)), manifest);
                let what = format!("{}: time {part} of the expiries is {value}", table.name);
                cases.push(Case::new(what, &table.name, disk).forged());
            }
        }
    }
    assert!(cases.len() > 20);
    for case in &cases {
        assert!(case.verify().is_some_and(|found| !found.is_sound()), "{}", case.what);
    }
    sweep_all("expiries forged everywhere", &cases, |_, outcome| outcome == Outcome::Right);
}

/// A tombstone has no value: of another kind, it is an entry without the eight bytes of an expiry.
#[test]
fn an_expiring_entry_without_an_expiry_fails() {
    let mut cases = Vec::new();
    for sound in Table::all_raw() {
        for block in &sound.data {
            let mut at = block.start;
            let restarts =
                u32::from_le_bytes(sound.bytes[block.end - 9..block.end - 5].try_into().unwrap());
            while at < block.end - 9 - 4 * restarts as usize {
                // Shared, suffix, value, number: all less than 128 here.
                let [_, suffix, value, number, kind] = sound.bytes[at..at + 5].try_into().unwrap();
                assert!(
                    suffix < 0x80 && value < 0x80 && number < 0x80 && [0, 1, 3].contains(&kind)
                );
                if kind == 0 {
                    let table = sound.with(at + 4, &[3]);
                    cases.push(case(&format!("no expiry at {at}"), &table, |_| {}));
                }
                at += 5 + usize::from(suffix) + usize::from(value);
            }
        }
    }
    assert!(cases.len() > 3);
    sweep_all("entries without an expiry", &cases, |_, outcome| outcome == Outcome::Failed);
}

#[test]
fn forged_indexes_are_refused() {
    let forge = |table: &Table, forge: &mut dyn FnMut(String, usize, &[u8])| {
        let end = table.index.end - 5;
        let blocks = table.data.len();
        let count = (end - 4, 4);
        // No key has versions in two blocks.
        let cuts = (end - 16, 4);
        let entry_offsets = (0..blocks).map(|n| (end - 16 - 4 * (blocks - n), 4));
        let starts: Vec<usize> = entry_offsets
            .clone()
            .map(|(at, _)| u32::from_le_bytes(table.bytes[at..at + 4].try_into().unwrap()) as usize)
            .map(|entry| table.index.start + entry)
            .collect();
        let block_offsets = starts.iter().map(|&at| (at, 8));
        let lengths = starts.iter().map(|&at| (at + 8, 2));
        let fields = [count, (end - 12, 8), cuts];
        for (at, width) in
            fields.into_iter().chain(entry_offsets.clone()).chain(block_offsets).chain(lengths)
        {
            let mut sound = [0; 8];
            sound[..width].copy_from_slice(&table.bytes[at..at + width]);
            for value in odd(u64::from_le_bytes(sound)) {
                let what = format!("{width} bytes at {at} are {value}");
                forge(what, at, &value.to_le_bytes()[..width]);
            }
        }
    };
    // The end of the data may be any of those that are padded to the same place; the last block then has
    // another length, and so another checksum.
    let tally = swept("index", forge, &[Outcome::Refused, Outcome::Failed]);
    assert!(tally[&Outcome::Refused] > 1000);
}

/// Separators in order that do not separate the blocks mislead lookups: none of them reads the
/// contradicting block. Every full scan finds the contradiction.
#[test]
fn forged_separators_are_refused_or_found_by_whoever_walks() {
    let mut cases = Vec::new();
    for sound in Table::all() {
        let contents = &sound.bytes[sound.index.start..sound.index.end];
        let keys = contents.windows(4).enumerate().filter(|(_, bytes)| bytes == b"key ");
        for (at, _) in keys {
            for byte in *b"\0az" {
                let mut table = sound.clone();
                table.bytes[sound.index.start + at] = byte;
                cases.push(case(&format!("separator at {at} begins with {byte}"), &table, |_| {}));
            }
        }
    }
    sweep_all("separators forged", &cases, |_, outcome| {
        matches!(outcome, Outcome::Refused | Outcome::Failed | Outcome::Believed)
    });
}

/// Searches begin at restart points. A scan of the block finds wrong ones; a single lookup need not.
#[test]
fn forged_restart_points_are_found() {
    let forge = |table: &Table, forge: &mut dyn FnMut(String, usize, &[u8])| {
        for block in &table.data {
            let count = block.end - 5 - 4;
            for value in odd(1) {
                forge(format!("count {value}"), count, &(value as u32).to_le_bytes());
            }
            for value in odd(0) {
                forge(format!("restart {value}"), count - 4, &(value as u32).to_le_bytes());
            }
        }
    };
    swept_in("restart points", Table::all_raw(), forge, &[Outcome::Failed]);
}

/// Every byte of every entry, to values that change lengths and counts. Bytes that contradict neither block
/// nor index nor manifest are believed.
#[test]
fn forged_entries_fail_or_are_what_they_say() {
    let forge = |table: &Table, forge: &mut dyn FnMut(String, usize, &[u8])| {
        for block in &table.data {
            let step = if all() { 1 } else { 3 };
            for at in (block.start..block.end - 5 - 8).step_by(step) {
                for byte in [0, 1, 2, 3, 0x7f, 0x80, 0xff, table.bytes[at] ^ 1] {
                    forge(format!("byte {at} is {byte}"), at, &[byte]);
                }
            }
            // Lengths far beyond the block.
            for field in 0..3 {
                for long in [&[0xff; 9][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0xff, 0xff, 0x03]] {
                    let what = format!("length {field} of the first entry is {long:?}");
                    forge(what, block.start + field, long);
                }
            }
        }
    };
    let all = [Outcome::Failed, Outcome::Right, Outcome::Believed];
    let tally = swept_in("entries", Table::all_raw(), forge, &all);
    assert!(tally[&Outcome::Failed] > part(1000), "{tally:?}");
}
