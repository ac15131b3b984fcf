//! Manifests with one forged field and right checksums.

use criba::vfs::SimDisk;

use crate::case::{Case, Outcome};
use crate::common::part;
use crate::fixture::{self, FIXTURE, Kind, number};
use crate::forge::{
    COMPRESSION, CONTENTS_BYTES, DEFAULT_TTL, ENTRIES_AT, EXPIRIES, FILTER_SETTINGS,
    FOOTER_CHECKSUM_AT, KEYS_AT, Log, MANIFEST_HEADER, RANDOM_AT, SALT_AT, SECOND_SALT_AT, TIME,
    fields, put, table_records, tagged_fields, u64_at,
};
use crate::numbers::odd;
use crate::sweep::sweep_all;

fn disk(log: &Log) -> SimDisk {
    FIXTURE.with(&FIXTURE.only(Kind::Manifest), log.encode())
}

fn case(what: impl Into<String>, log: &Log) -> Case {
    Case::new(what, &FIXTURE.only(Kind::Manifest), disk(log)).forged()
}

/// The manifest with one more edit.
fn with_edit(edit: &[u8]) -> Log {
    let mut log = Log::of(Kind::Manifest);
    let mut frame = log.frames[0].clone();
    (frame.seq, frame.length) = (log.frames.len() as u64, edit.len() as u16);
    frame.payload = edit.to_vec();
    log.frames.push(frame);
    log
}

fn edit(parts: &[&[u8]]) -> Log {
    with_edit(&parts.concat())
}

/// Every field of a table's place and metadata, in the records of all tables.
#[test]
fn forged_records_of_tables_are_refused() {
    let sound = Log::of(Kind::Manifest);
    let mut cases = Vec::new();
    for (frame, record) in records(&sound) {
        let id = u64_at(&sound.frames[frame].payload, record);
        let mut forge = |what: &str, at: usize, field: &[u8]| {
            let mut log = sound.clone();
            put(&mut log.frames[frame].payload, record + at, field);
            // The table is what contradicts the record; or a neighbour on L0, whose changes are newer.
            let mut case = case(format!("{what} of table {id} is {field:?}"), &log);
            let neighbour = |table: &String| at == ENTRIES_AT + 32 || number(table) == id;
            case.files.extend(FIXTURE.of_kind(Kind::Table).into_iter().filter(neighbour));
            cases.push(case);
        };
        for (what, at) in [
            ("the id", 0),
            ("the size", 8),
            ("the index", 16),
            ("the entries", ENTRIES_AT),
            ("the tombstones", ENTRIES_AT + 8),
            ("the keys", ENTRIES_AT + 16),
            ("the oldest change", ENTRIES_AT + 24),
            ("the newest change", ENTRIES_AT + 32),
        ] {
            for value in odd(u64_at(&sound.frames[frame].payload, record + at)) {
                forge(what, at, &value.to_le_bytes());
            }
        }
        for at in FOOTER_CHECKSUM_AT..RANDOM_AT + 16 {
            let byte = sound.frames[frame].payload[record + at];
            let what = if at < RANDOM_AT { "the footer's checksum" } else { "the random bytes" };
            forge(what, at, &[byte ^ 1]);
        }
        for first in [0, 1, 5, 7, 50, 0x7f, 0x80, 0xff] {
            forge("the length of the smallest key", KEYS_AT, &[first]);
        }
        forge("the smallest key", KEYS_AT + 1, b"zz");
        forge("the smallest key", KEYS_AT + 1, b"a");
        for level in [7, 8, 127, 255] {
            let mut log = sound.clone();
            log.frames[frame].payload[record - 1] = level;
            cases.push(case(format!("table {id} on level {level}"), &log));
        }
    }
    let tally =
        sweep_all("records of tables forged", &cases, |_, outcome| outcome == Outcome::Refused);
    assert!(tally[&Outcome::Refused] > part(1000));
}

fn records(log: &Log) -> Vec<(usize, usize)> {
    let of = |(number, frame): (usize, &crate::forge::Frame)| {
        table_records(&frame.payload)
            .into_iter()
            .map(move |record| (number, record))
            .collect::<Vec<_>>()
    };
    log.frames.iter().enumerate().flat_map(of).collect()
}

/// The tagged field of an ingested table.
const INGESTED: [u8; 10] = [3, 8, 1, 0, 0, 0, 0, 0, 0, 0];

/// The manifest with other tagged fields in a record.
fn with_tagged(what: &str, frame: usize, record: usize, fields: &[u8]) -> Case {
    let mut log = Log::of(Kind::Manifest);
    let edit = &mut log.frames[frame];
    let place = tagged_fields(&edit.payload, record);
    edit.payload[place.start - 1] = fields.len() as u8;
    edit.payload.splice(place, fields.iter().copied());
    edit.length = edit.payload.len() as u16;
    case(format!("{what}: tagged fields {fields:?}"), &log)
}

fn blaming_tables(mut case: Case) -> Case {
    case.files.extend(FIXTURE.of_kind(Kind::Table));
    case
}

/// A newer criba may record more of a table than this one knows.
#[test]
fn unknown_tagged_fields_of_tables_are_ignored_and_others_refused() {
    let sound = Log::of(Kind::Manifest);
    let (mut known, mut others, mut unequal) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ingested, mut compressed) = (0, 0);
    for (frame, record) in records(&sound) {
        let payload = &sound.frames[frame].payload;
        let own = &payload[tagged_fields(payload, record)];
        let forge = |fields: &[u8]| with_tagged("a table", frame, record, fields);
        let with = |more: &[u8]| forge(&[own, more].concat());
        // The table says whether it was ingested, too. Without a field, or with one.
        if let Some(rest) = own.strip_prefix(&INGESTED) {
            unequal.push(blaming_tables(forge(rest)));
            for fields in [&[3, 8, 0, 0, 0, 0, 0, 0, 0, 0][..], &[3, 1, 1]] {
                others.push(forge(&[fields, rest].concat()));
            }
            others.push(with(&INGESTED));
            ingested += 1;
            continue;
        }
        unequal.push(blaming_tables(forge(&[&INGESTED, own].concat())));
        // The third and the fourth have a number of prefixes.
        for fields in [
            &[6, 0][..],
            &[255, 0],
            &[2, 8, 1, 0, 0, 0, 0, 0, 0, 0],
            &[2, 8, 0, 0, 0, 0, 0, 0, 0, 0],
            &[6, 2, 3, 4, 9, 1, 8],
        ] {
            known.push(with(fields));
        }
        for fields in [&[1][..], &[1, 2, 0], &[0xff; 8]] {
            others.push(with(fields));
        }
        // Hidden bytes and prefixes: hidden bytes of 0, too short, and more than 16 prefixes of a key.
        for fields in [
            &[1, 8, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[1, 1, 7],
            &[2, 1, 7],
            &[2, 8, 0, 0, 0, 0, 0, 0, 0, 255],
            &[2, 8, 255, 255, 255, 255, 255, 255, 255, 255],
        ] {
            others.push(with(fields));
        }
        // The table contradicts these.
        unequal.push(blaming_tables(with(&[1, 8, 7, 0, 0, 0, 0, 0, 0, 0])));
        match own {
            [CONTENTS_BYTES, 8, _, _, rest @ ..] => {
                for bytes in [0, 255] {
                    let forged = [&[CONTENTS_BYTES, 8, bytes, bytes], rest].concat();
                    unequal.push(blaming_tables(forge(&forged)));
                }
                unequal.push(blaming_tables(forge(&[])));
                others.push(with(own));
                others.push(forge(&[CONTENTS_BYTES, 1, 7]));
                compressed += 1;
            }
            _ => unequal.push(blaming_tables(with(&[CONTENTS_BYTES, 8, 0, 2, 0, 0, 0, 0, 0, 0]))),
        }
    }
    // A length that is more than the record has, and one that is no length.
    for (frame, record) in records(&sound) {
        let length = tagged_fields(&sound.frames[frame].payload, record).start - 1;
        for byte in [0x7f, 0xff] {
            let mut log = sound.clone();
            log.frames[frame].payload[length] = byte;
            others.push(case(format!("{byte} bytes of tagged fields"), &log));
        }
    }
    sweep_all("unknown tagged fields", &known, |_, outcome| outcome == Outcome::Right);
    sweep_all("tagged fields cut short", &others, |_, outcome| outcome == Outcome::Refused);
    assert_eq!((ingested, compressed), (1, 1));
    sweep_all("tagged fields that the table contradicts", &unequal, |_, outcome| {
        outcome == Outcome::Refused
    });
}

/// Those that no writer makes contradict themselves, all others the table.
#[test]
fn forged_expiries_in_records_of_tables_are_refused() {
    let sound = Log::of(Kind::Manifest);
    let (mut themselves, mut tables) = (Vec::new(), Vec::new());
    let mut expiring = 0;
    for (frame, record) in records(&sound) {
        let payload = &sound.frames[frame].payload;
        let own = &payload[tagged_fields(payload, record)];
        let id = u64_at(payload, record);
        let what = format!("expiries of table {id}");
        let forge = |fields: &[u8]| with_tagged(&what, frame, record, fields);
        let Some((others, expiries)) = own
            .split_last_chunk::<{ 2 + EXPIRIES }>()
            .filter(|(_, last)| last[..2] == [4, EXPIRIES as u8])
        else {
            // Of a table without any.
            let some = [&[4, EXPIRIES as u8][..], &1_u64.to_le_bytes().repeat(9)].concat();
            tables.push(blaming_tables(forge(&[own, &some].concat())));
            continue;
        };
        expiring += 1;
        tables.push(blaming_tables(forge(others)));
        themselves.push(forge(&[others, expiries, expiries].concat()));
        for length in [0, 8, EXPIRIES - 8, EXPIRIES - 1, EXPIRIES + 1, EXPIRIES + 8] {
            let mut forged = [&expiries[..], &[0xff; 8]].concat();
            forged.truncate(2 + length);
            forged[1] = length as u8;
            themselves.push(forge(&[others, &forged].concat()));
        }
        let times: Vec<u64> = (0..9).map(|part| u64_at(expiries, 2 + 8 * part)).collect();
        for part in 0..9 {
            for value in odd(times[part]) {
                let mut forged = times.clone();
                forged[part] = value;
                let ascend = forged.is_sorted() && forged[0] < u64::MAX;
                let forged = forged.into_iter().flat_map(u64::to_le_bytes);
                let case = forge(&[others, &expiries[..2], &forged.collect::<Vec<_>>()].concat());
                if ascend {
                    tables.push(blaming_tables(case));
                } else {
                    themselves.push(case);
                }
            }
        }
    }
    assert_eq!(expiring, 2);
    let refused = |_: &Case, outcome| outcome == Outcome::Refused;
    let tally = sweep_all("expiries that no writer makes", &themselves, refused);
    assert!(tally[&Outcome::Refused] > part(500));
    let tally = sweep_all("expiries that the table contradicts", &tables, refused);
    assert!(tally[&Outcome::Refused] > part(50));
}

/// A time is within its bounds, does not go back, and is there if entries expire.
#[test]
fn forged_times_are_refused_unless_they_can_be() {
    const LATEST: u64 = 253_402_300_799_999;
    let time = |tag: u8, value: u64| [&[tag][..], &value.to_le_bytes()].concat();
    let now = fixture::TIME.as_millis() as u64;
    let settings = settings(&[COMPRESSION, 0]);
    let mut bad = Vec::new();
    for (what, edit) in [
        ("goes back", time(TIME, now - 1)),
        ("is 0", time(TIME, 0)),
        ("is after the year 9999", time(TIME, LATEST + 1)),
        ("is the last number", time(TIME, u64::MAX)),
        ("is there twice", time(TIME, now).repeat(2)),
        ("is cut short", time(TIME, now)[..8].to_vec()),
        ("to live is there without settings", time(DEFAULT_TTL, 1)),
        ("to live is 0", [settings.clone(), time(DEFAULT_TTL, 0)].concat()),
        ("to live is there twice", [settings.clone(), time(DEFAULT_TTL, 1).repeat(2)].concat()),
    ] {
        bad.push(case(format!("a time that {what}"), &with_edit(&edit)));
    }
    let mut without = Log::of(Kind::Manifest);
    for frame in &mut without.frames {
        let others = fields(&frame.payload).into_iter().filter(|(tag, _)| *tag != TIME);
        frame.payload = others.flat_map(|(_, place)| frame.payload[place].to_vec()).collect();
        frame.length = frame.payload.len() as u16;
    }
    bad.push(case("no time beside tables of expiring entries", &without));
    sweep_all("times that cannot be", &bad, |_, outcome| outcome == Outcome::Refused);
    // The store takes these for what they say. Behind an hour ahead of the clock, the clock is accepted, by an option.
    let mut good = Vec::new();
    for value in [now, now + 1, now + 3_600_000, now + 3_600_001, LATEST] {
        good.push(case(format!("a time of {value}"), &with_edit(&time(TIME, value))));
    }
    for value in [1, now, u64::MAX] {
        let edit = [settings.clone(), time(DEFAULT_TTL, value)].concat();
        good.push(case(format!("a time to live of {value}"), &with_edit(&edit)));
    }
    sweep_all("times that can be", &good, |_, outcome| outcome == Outcome::Right);
}

/// Filter settings, and what belongs to them.
fn settings(more: &[u8]) -> Vec<u8> {
    [&[FILTER_SETTINGS, 1, 3, 1, 2][..], &10_f64.to_le_bytes(), &[0; 16], more].concat()
}

/// A compression is a known one, among settings, and there if tables are compressed.
#[test]
fn forged_compressions_are_refused_unless_they_can_be() {
    let forged = |what: &str, edit: &[u8]| case(format!("a compression {what}"), &with_edit(edit));
    let mut bad = vec![
        forged("without settings", &[COMPRESSION, 1]),
        forged("twice", &settings(&[COMPRESSION, 1, COMPRESSION, 1])),
        forged("cut short", &settings(&[COMPRESSION])),
        forged("not there", &settings(&[])),
    ];
    for unknown in [2, 3, 127, 255] {
        bad.push(forged(&format!("of number {unknown}"), &settings(&[COMPRESSION, unknown])));
    }
    sweep_all("compressions that cannot be", &bad, |_, outcome| outcome == Outcome::Refused);
    let good = [0, 1].map(|known| forged("that is known", &settings(&[COMPRESSION, known])));
    sweep_all("compressions that can be", &good, |_, outcome| outcome == Outcome::Right);
}

/// A moved table that overlaps another on its level is refused. On other levels the level decides which of
/// two tables is newer, and nothing reveals a forged one.
#[test]
fn overlapping_tables_of_a_level_are_refused() {
    let sound = Log::of(Kind::Manifest);
    let mut cases = Vec::new();
    let on_l0: Vec<_> = records(&sound)
        .into_iter()
        .filter(|&(frame, record)| sound.frames[frame].payload[record - 1] == 0)
        .collect();
    for level in 1..=6 {
        let mut log = sound.clone();
        for &(frame, record) in &on_l0 {
            log.frames[frame].payload[record - 1] = level;
        }
        cases.push(case(format!("L0 on level {level}"), &log));
    }
    for &(frame, record) in &on_l0 {
        let mut log = sound.clone();
        log.frames[frame].payload[record - 1] = 6;
        cases.push(case("a table of L0 on level 6", &log));
    }
    sweep_all("overlapping levels", &cases, |_, outcome| outcome == Outcome::Refused);
}

/// A table works without its filter.
#[test]
fn forged_records_of_filters_degrade_them() {
    let names = FIXTURE.of_kind(Kind::Filter);
    let ids: Vec<u64> = names.iter().map(|name| number(name)).collect();
    let mut cases = Vec::new();
    for (name, &id) in names.iter().zip(&ids) {
        let mut forge = |generation: u64, length: u64, checksum: u32| {
            let record = [
                &[7][..],
                &id.to_le_bytes(),
                &generation.to_le_bytes(),
                &length.to_le_bytes(),
                &checksum.to_le_bytes(),
            ];
            let what = format!("filter {generation} of table {id}: {length} bytes, {checksum:#x}");
            let table = format!("{id:06}.sst");
            cases.push((generation, case(what, &edit(&record)).blaming(name).blaming(&table)));
        };
        for generation in odd(2) {
            forge(generation, 100, 7);
        }
        for length in odd(FIXTURE.file(name).len() as u64 - 5) {
            forge(3, length, 7);
        }
        forge(3, FIXTURE.file(name).len() as u64 - 5, 0);
    }
    let (generations, cases): (Vec<u64>, Vec<Case>) = cases.into_iter().unzip();
    let expect = |number: usize, outcome| match generations[number] {
        // Not after the one before, or beyond what a store gets to.
        0..=2 => outcome == Outcome::Refused,
        far if far > 1 << 61 => outcome == Outcome::Refused,
        // A length of 0 says that there is to be none.
        _ => matches!(outcome, Outcome::Degraded | Outcome::Right),
    };
    let tally =
        crate::sweep::sweep("records of filters forged", cases.len(), |n| cases[n].clone(), expect);
    assert!(tally[&Outcome::Degraded] > 50 && tally[&Outcome::Right] <= ids.len());

    // For a table that is not there, and twice for one that is.
    let mut cases = Vec::new();
    let filter = |id: u64, generation: u64| {
        [&[7][..], &id.to_le_bytes(), &generation.to_le_bytes(), &[0; 12]].concat()
    };
    let tables: Vec<u64> = FIXTURE.of_kind(Kind::Table).iter().map(|name| number(name)).collect();
    for id in odd(ids[0]).into_iter().filter(|id| !tables.contains(id)) {
        cases.push(case(format!("a filter of table {id}"), &with_edit(&filter(id, 3))));
    }
    let twice = [filter(ids[0], 3), filter(ids[0], 3)].concat();
    cases.push(case("a filter twice", &with_edit(&twice)));
    sweep_all("filters of no table", &cases, |_, outcome| outcome == Outcome::Refused);
}

/// The counters: a log that does not exist, a sequence number beyond all logs, and numbers at the end of
/// their range.
#[test]
fn forged_counters_are_refused_or_leave_numbers_to_go_on_with() {
    let mut cases = Vec::new();
    for tag in 3..=5_u8 {
        for value in odd(0) {
            let log = edit(&[&[tag], &value.to_le_bytes()]);
            let case = case(format!("counter {tag} is {value}"), &log);
            cases.push((tag, value, case.blaming(&FIXTURE.only(Kind::Log))));
        }
    }
    // The last numbers of all: one opening may have them. The next refuses.
    cases.retain(|&(tag, value, _)| {
        (tag, value) != (5, 1 << 61) && (tag, value) != (5, (1 << 61) - 1)
    });
    let expect = |number: usize, outcome| {
        let &(tag, value, _) = &cases[number];
        match tag {
            // Nothing else says what the next file is to be.
            5 if (127..(1 << 61) - 1).contains(&value) => outcome == Outcome::Right,
            // The log that is named is not there; or the log does not go on where the tables end.
            3 | 5 => outcome == Outcome::Refused,
            _ => matches!(outcome, Outcome::Refused | Outcome::Dropped),
        }
    };
    crate::sweep::sweep("counters forged", cases.len(), |n| cases[n].2.clone(), expect);
}

/// Each bit of filter settings: what no options can give is refused, the rest is followed.
#[test]
fn forged_filter_settings_are_refused_or_followed() {
    let sound = settings(&[]);
    let with_edit = |settings: &[u8]| with_edit(&[settings, &[COMPRESSION, 0]].concat());
    let mut cases = vec![case("sound filter settings", &with_edit(&sound))];
    for bit in 8..8 * sound.len() {
        let mut forged = sound.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        cases.push(case(format!("filter settings with bit {bit} flipped"), &with_edit(&forged)));
    }
    let tally = sweep_all("filter settings forged", &cases, |_, outcome| {
        matches!(outcome, Outcome::Right | Outcome::Refused)
    });
    assert!(tally[&Outcome::Right] > 30 && tally[&Outcome::Refused] > 100, "{tally:?}");
}

#[test]
fn a_manifest_without_filter_settings_is_refused() {
    let mut log = Log::of(Kind::Manifest);
    for frame in &mut log.frames {
        let others = fields(&frame.payload).into_iter().filter(|(tag, _)| *tag != FILTER_SETTINGS);
        frame.payload = others.flat_map(|(_, place)| frame.payload[place].to_vec()).collect();
        frame.length = frame.payload.len() as u16;
    }
    let case = case("without filter settings", &log);
    sweep_all("no filter settings", &[case], |_, outcome| outcome == Outcome::Refused);
}

#[test]
fn edits_that_cannot_follow_are_refused() {
    let sound = Log::of(Kind::Manifest);
    let mut cases = Vec::new();
    let tables: Vec<u64> = FIXTURE.of_kind(Kind::Table).iter().map(|name| number(name)).collect();
    let others = [0, 1, 2, 6, 9, 99, 1 << 61, u64::MAX];
    for level in 0..=8_u8 {
        for id in others.into_iter().filter(|id| !tables.contains(id)) {
            let log = edit(&[&[2, level], &id.to_le_bytes()]);
            cases.push(case(format!("table {id} removed from level {level}"), &log));
        }
    }
    // Of those that are there, from a level where they are not.
    for (frame, record) in records(&sound) {
        let payload = &sound.frames[frame].payload;
        let (at, id) = (payload[record - 1], &payload[record..record + 8]);
        for level in (0..=6).filter(|&level| level != at) {
            cases.push(case(
                format!("removed from level {level}, not {at}"),
                &edit(&[&[2, level], id]),
            ));
        }
        // Once more, and twice removed.
        let added = [&[1, at], &payload[record..record + KEYS_AT], &[0, 0, 0]].concat();
        cases.push(case("added twice", &with_edit(&added)));
        cases.push(case("removed twice", &edit(&[&[2, at], id, &[2, at], id])));
    }
    cases.push(case("another key of the hash", &edit(&[&[6], &[7; 16]])));
    for tag in (0..=255_u8).filter(|tag| !(1..=11).contains(tag)) {
        cases.push(case(format!("a field {tag}"), &edit(&[&[tag], &[0; 40]])));
    }
    for tag in 1..=11_u8 {
        cases.push(case(format!("a field {tag} cut short"), &edit(&[&[tag], &[0; 5]])));
    }
    // Numbers of edits.
    for (number, frame) in sound.frames.iter().enumerate() {
        for seq in odd(frame.seq) {
            let mut log = sound.clone();
            log.frames[number].seq = seq;
            cases.push(case(format!("edit {number} has number {seq}"), &log));
        }
        for kind in [0, 2, 3, 4, 6, 255] {
            let mut log = sound.clone();
            log.frames[number].kind = kind;
            cases.push(case(format!("edit {number} is a frame of kind {kind}"), &log));
        }
        let mut log = sound.clone();
        log.frames.remove(number);
        if number + 1 < sound.frames.len() {
            cases.push(case(format!("without edit {number}"), &log));
        }
    }
    sweep_all("edits that do not follow", &cases, |case, outcome| {
        // A last edit that is not whole may be one that a crash cut short.
        let last = format!("edit {} is a frame", sound.frames.len() - 1);
        outcome == Outcome::Refused || case.what.contains(&last)
    });
}

/// Every field of the header is checked, except reserved bytes.
#[test]
fn forged_headers_are_refused() {
    let sound = Log::of(Kind::Manifest);
    let mut cases = Vec::new();
    for at in 0..36 {
        for bit in 0..8 {
            let mut log = sound.clone();
            log.header[at] ^= 1 << bit;
            let mut case = case(format!("bit {bit} of byte {at} of the header"), &log);
            if (24..32).contains(&at) {
                // The id of the store is another in all the other files.
                case.files.extend(FIXTURE.of_kind(Kind::Table));
                case.files.extend(FIXTURE.of_kind(Kind::Log));
            }
            cases.push(case);
        }
    }
    let tally = sweep_all("manifest headers forged", &cases, |_, outcome| {
        matches!(outcome, Outcome::Refused | Outcome::Right)
    });
    assert_eq!(tally[&Outcome::Right], 6 * 8 + 4, "the reserved bits, and known features");

    // Under another salt no frame is whole. The second one serves a repair alone.
    let salts = |at: usize| (0..64).map(move |bit| (at + bit / 8, bit % 8));
    let forged = |(at, bit): (usize, usize)| {
        let mut log = sound.clone();
        log.header[at] ^= 1 << bit;
        case(format!("bit {bit} of byte {at} of the header"), &log)
    };
    let first: Vec<Case> = salts(SALT_AT).map(forged).collect();
    sweep_all("salts forged", &first, |_, outcome| outcome == Outcome::Refused);
    let second: Vec<Case> = salts(SECOND_SALT_AT)
        .chain((SALT_AT + 12..MANIFEST_HEADER).step_by(101).map(|at| (at, at % 8)))
        .map(forged)
        .collect();
    sweep_all("second salts forged", &second, |_, outcome| outcome == Outcome::Right);
}
