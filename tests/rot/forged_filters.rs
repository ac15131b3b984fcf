//! Filters beside their tables, forged, with right checksums; `filter_damage` has those within tables.

use std::sync::Arc;

use criba::FilterPolicy;
use criba::vfs::SimVfs;

use crate::case::{Case, Outcome};
use crate::common::part;
use crate::fixture::{DIR, FIXTURE, Kind, number, options, path};
use crate::forge::{Log, filter_file, u64_at};
use crate::sweep::sweep_all;

/// The store in which a table has this filter, of this generation, as the manifest says.
pub(crate) fn case(table: u64, generation: u64, contents: &[u8]) -> Case {
    let file = filter_file(contents, table, generation);
    let mut manifest = Log::of(Kind::Manifest);
    let mut frame = manifest.frames[0].clone();
    frame.seq = manifest.frames.len() as u64;
    frame.payload = [
        &[7][..],
        &table.to_le_bytes(),
        &generation.to_le_bytes(),
        &(contents.len() as u64).to_le_bytes(),
        &file[file.len() - 4..],
    ]
    .concat();
    frame.length = frame.payload.len() as u16;
    manifest.frames.push(frame);
    let name = FIXTURE.only(Kind::Manifest);
    let mut disk = FIXTURE.with(&name, manifest.encode());
    let filter = format!("{table:06}-{generation:04}.flt");
    disk.write(path(&filter), file);
    Case::new(format!("{filter} of {} bytes", contents.len()), &filter, disk)
        .blaming(&name)
        .forged()
}

/// A table and its sound filter.
fn sound() -> (u64, Vec<u8>) {
    let name = &FIXTURE.of_kind(Kind::Filter)[0];
    let bytes = FIXTURE.file(name);
    (number(name), bytes[..bytes.len() - 5].to_vec())
}

#[test]
fn a_sound_filter_of_another_generation_serves_up_to_the_last_number() {
    let (table, contents) = sound();
    let generations =
        [3, 9999, 10_000, 1 << 40, (1 << 61) - 1, 1 << 61, (1 << 61) + 1, 1 << 62, u64::MAX];
    let cases: Vec<_> = generations.iter().map(|&g| case(table, g, &contents)).collect();
    let tally = sweep_all("generations", &cases, |_, outcome| {
        matches!(outcome, Outcome::Right | Outcome::Refused)
    });
    assert_eq!(tally[&Outcome::Right], 6);
}

/// A filter at the last generation is to be replaced: the store must not write a manifest that the next
/// opening refuses.
#[test]
fn a_filter_that_no_other_can_follow_does_not_cost_the_store() {
    let (table, contents) = sound();
    for contents in [&contents[..], &contents[..contents.len() - 1]] {
        let vfs = SimVfs::on(case(table, 1 << 61, contents).disk);
        let open = || options().vfs(Arc::new(vfs.clone())).open(DIR);
        let db = open().unwrap();
        let rebuilt = db.rebuild_filters(&FilterPolicy::ribbon());
        db.put("new", "value").unwrap();
        db.close().unwrap();
        let db = open().unwrap();
        assert!(rebuilt.is_err(), "{rebuilt:?}");
        assert_eq!(db.get("new").unwrap().unwrap(), "value");
        let rest = db.iter().map(Result::unwrap).filter(|(key, _)| *key != *b"new");
        let rest = rest.map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert!(rest.eq(FIXTURE.last().clone()));
        // A merge makes a table of its own, and a filter that is the first of its generations.
        db.compact().unwrap();
        db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
        db.close().unwrap();
        open().unwrap().close().unwrap();
    }
}

/// One bit of every byte of header and array. The header is checked, except reserved bytes; the fields that
/// place a key's bits, and the bits, are believed: `verify` probes every key.
#[test]
fn forged_headers_and_arrays_degrade_or_are_found_by_a_lookup_of_every_key() {
    let (table, contents) = sound();
    assert_eq!(u64_at(&contents, 0), u64::from_le_bytes(*b"cribaFLT"));
    let mut cases = Vec::new();
    for bit in 0..contents.len() * 8 {
        let mut forged = contents.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let mut case = case(table, 3, &forged);
        case.what = format!("bit {bit} of the contents of {}", case.what);
        cases.push(case);
    }
    let tally = sweep_all("filters forged", &cases, |_, outcome| {
        matches!(outcome, Outcome::Right | Outcome::Degraded | Outcome::Believed)
    });
    assert!(tally[&Outcome::Degraded] > part(200), "{tally:?}");
}
