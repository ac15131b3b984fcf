//! Every byte of every file, forged: each bit of it flipped, and fields that begin with it set to the numbers at
//! which lengths and counts go wrong, with right checksums everywhere. The store is read, written, verified,
//! repaired and inspected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use criba::vfs::{SimVfs, Vfs};
use criba::{
    Error, MAX_KEY_BYTES, MAX_VALUE_BYTES, TableFile, Uncertain, repair_with, verify_with,
};

use crate::case::{Case, Outcome, outcome_of, within_memory};
use crate::common::part;
use crate::current::sum;
use crate::fixture::{DIR, FIXTURE, Kind, name, number, path};
use crate::forge::{FOOTER_INDEX_AT, INDEX_AT, Log, Table, put};
use crate::sweep::{Tally, all, as_text, in_parallel};
use crate::{common, forged_filters};

/// The short form forges one field at each place of so many.
const PLACES: usize = 11;

/// The numbers at which lengths and counts go wrong.
fn limits(file: usize) -> Vec<u64> {
    let block = MAX_VALUE_BYTES as u64 + (1 << 20);
    let mut values = vec![0, u64::MAX, 1 << 61];
    for limit in [MAX_KEY_BYTES as u64, MAX_VALUE_BYTES as u64, block, 1 << 20, file as u64] {
        values.extend([limit - 1, limit, limit + 1]);
    }
    for bits in [15, 16, 31, 32, 50, 63] {
        values.extend([(1 << bits) - 1, 1 << bits]);
    }
    values
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// The forged bytes at an offset: eight flips, then each number as fixed fields and as a varint.
fn forgeries(bytes: &[u8], at: usize) -> Vec<Vec<u8>> {
    let mut fields: Vec<Vec<u8>> = (0..8).map(|bit| vec![bytes[at] ^ (1 << bit)]).collect();
    for value in limits(bytes.len()) {
        fields.extend([2, 4, 8].map(|width| value.to_le_bytes()[..width].to_vec()));
        fields.push(varint(value));
    }
    fields.retain(|field| bytes[at..].len() >= field.len() && !bytes[at..].starts_with(field));
    fields.dedup();
    fields
}

/// The forged store, with right checksums. `None` where a checksum itself was forged.
fn case(kind: Kind, file: &str, at: usize, field: &[u8]) -> Option<Case> {
    let what = format!("{file}: {field:02x?} at {at}");
    let sound = FIXTURE.file(file);
    let mut bytes = sound.to_vec();
    put(&mut bytes, at, field);
    let mut case = match kind {
        Kind::Table => {
            let table = Table::of(file).with(at, field);
            bytes = table.sealed();
            let mut disk = FIXTURE.with(file, bytes.clone());
            let index = table.footer + FOOTER_INDEX_AT;
            // The manifest agrees about the place of the index.
            let manifest = table.manifest(|record| {
                record[INDEX_AT..INDEX_AT + 8].copy_from_slice(&bytes[index..index + 8]);
            });
            disk.write(path(&FIXTURE.only(Kind::Manifest)), manifest);
            Case::new(what, file, disk)
        }
        Kind::Filter if at < sound.len() - 5 => {
            forged_filters::case(number(file), 3, &bytes[..sound.len() - 5])
        }
        Kind::Log | Kind::Manifest => {
            Log::of(kind).seal(&mut bytes);
            Case::new(what, file, FIXTURE.with(file, bytes.clone()))
        }
        Kind::Current if at < sound.len() - 9 => {
            bytes.truncate(sound.len() - 9);
            let sum = sum(&bytes);
            bytes.extend(sum.as_bytes());
            Case::new(what, file, FIXTURE.with(file, bytes.clone()))
        }
        _ => return None,
    };
    // A forgery makes any sound file contradict a forged one.
    case.files = FIXTURE.disk.files().map(|(path, _)| name(path)).chain(case.files).collect();
    (bytes != sound).then(|| case.forged())
}

/// Repairs the store, and checks that the result is sound.
fn repair(case: &Case) {
    let vfs: Arc<dyn Vfs> = Arc::new(SimVfs::on(case.disk.clone()));
    let repair = || repair_with(DIR, "/new", Uncertain::SetAside, None, &vfs);
    match within_memory(&case.what, repair) {
        Ok(_) => {
            let found = verify_with("/new", &vfs, |_, _| {}).unwrap();
            assert!(found.is_sound(), "{}: {found}", case.what);
        }
        Err(Error::NotAStore { .. } | Error::Unsupported { .. }) => {}
        Err(error) => panic!("{}: {error}", case.what),
    }
}

/// Reads the table alone, as `inspect` does.
fn inspect(case: &Case, table: &str) {
    let dir = common::tempdir();
    let file = dir.path().join(table);
    let bytes = case.disk.read(path(table)).unwrap();
    std::fs::write(&file, bytes).unwrap();
    within_memory(&case.what, || {
        let Ok(table) = TableFile::open(&file) else { return };
        let _ = table.filter();
        for entry in table.index() {
            let _ = table.verdict(&entry.separator);
        }
        let _ = table.entries().take_while(Result::is_ok).count();
    });
}

#[test]
fn a_forgery_anywhere_costs_neither_memory_nor_the_store() {
    let files = Kind::ALL
        .into_iter()
        .flat_map(|kind| FIXTURE.of_kind(kind).into_iter().map(move |name| (kind, name)));
    let places = files.flat_map(|(kind, name)| {
        (0..FIXTURE.file(&name).len()).map(move |at| (kind, name.clone(), at))
    });
    let step = if all() { 1 } else { PLACES };
    let places: Vec<_> = places.step_by(step).collect();
    let tallies = Mutex::new(BTreeMap::<Kind, Tally>::new());
    in_parallel(places.len(), |number, begun| {
        let (kind, ref file, at) = places[number];
        let fields = forgeries(FIXTURE.file(file), at);
        for (nth, field) in fields.iter().enumerate() {
            // The long form has each flip, and each 7th of the fields.
            let chosen =
                if all() { nth < 8 || nth % 7 == number % 7 } else { nth == number % fields.len() };
            let Some(case) = chosen.then(|| case(kind, file, at, field)).flatten() else {
                continue;
            };
            begun(&case.what);
            let outcome = outcome_of(&case);
            repair(&case);
            if kind == Kind::Table {
                inspect(&case, file);
            }
            let mut tallies = tallies.lock().unwrap();
            *tallies.entry(kind).or_default().entry(outcome).or_default() += 1;
        }
    });
    let tallies = tallies.into_inner().unwrap();
    for (kind, tally) in &tallies {
        println!("{kind:?}: {} stores: {}", tally.values().sum::<usize>(), as_text(tally));
    }
    let refused: usize = tallies.values().filter_map(|tally| tally.get(&Outcome::Refused)).sum();
    assert!(refused > part(places.len()) / 5, "{tallies:?}");
}
