//! Compressed data blocks with right checksums whose lengths, distances and contents are forged.

use std::ops::Range;
use std::sync::Arc;

use criba::vfs::SimVfs;
use criba::{Error, Uncertain, repair_with};

use crate::case::{Case, Outcome};
use crate::common::part;
use crate::fixture::{DIR, FIXTURE, Kind, options, path};
use crate::forge::{COMPRESSED, CONTENTS_BYTES, FOOTER_FEATURES_AT, Table, tagged_fields, u64_at};
use crate::forged_tables::case;
use crate::numbers::odd;
use crate::sweep::sweep_all;

/// The type of a compressed data block.
const COMPRESSED_DATA: u8 = 6;
/// The longest contents that are compressed.
const LONGEST: u32 = 256 << 10;

/// The compressed table, and its compressed blocks.
fn compressed() -> (Table, Vec<Range<usize>>) {
    let table = Table::all().into_iter().find(Table::is_compressed).unwrap();
    let is_compressed = |block: &Range<usize>| table.bytes[block.end - 5] == COMPRESSED_DATA;
    let blocks: Vec<_> = table.data.iter().filter(|block| is_compressed(block)).cloned().collect();
    assert!(blocks.len() > 2, "{blocks:?}");
    (table, blocks)
}

fn lz4(block: &Range<usize>) -> Range<usize> {
    block.start + 4..block.end - 5
}

fn length(table: &Table, block: &Range<usize>) -> u32 {
    u32::from_le_bytes(table.bytes[block.start..block.start + 4].try_into().unwrap())
}

/// A copy in an LZ4 block: where its distance is, and how much was decompressed before it.
#[derive(Debug)]
struct Match {
    distance_at: usize,
    before: usize,
}

/// The copies of a sound block.
fn matches(table: &Table, block: &Range<usize>) -> Vec<Match> {
    let lz4 = lz4(block);
    let (mut at, mut before, mut found) = (lz4.start, 0, Vec::new());
    let more = |at: &mut usize, nibble: u8| {
        let mut sum = usize::from(nibble);
        let mut byte = if nibble == 15 { 255 } else { 0 };
        while byte == 255 {
            byte = table.bytes[*at];
            sum += usize::from(byte);
            *at += 1;
        }
        sum
    };
    loop {
        let token = table.bytes[at];
        at += 1;
        let literals = more(&mut at, token >> 4);
        (at, before) = (at + literals, before + literals);
        if at == lz4.end {
            assert_eq!(before, length(table, block) as usize);
            return found;
        }
        found.push(Match { distance_at: at, before });
        at += 2;
        before += 4 + more(&mut at, token & 15);
    }
}

/// All cases fail, and each error names the block, not a place within it: none is known.
fn fail_by_block(title: &str, cases: &[Case]) {
    let (table, blocks) = compressed();
    sweep_all(title, cases, |case, outcome| {
        let vfs = SimVfs::on(case.disk.clone());
        let db = options().vfs(vfs).open(DIR).unwrap();
        let error = db.iter().find_map(Result::err).unwrap();
        let Error::Corrupt { path: found, offset, .. } = &error else { panic!("{error}") };
        assert_eq!(found, &path(&table.name));
        assert!(blocks.iter().any(|block| block.start as u64 == *offset), "{}: {error}", case.what);
        outcome == Outcome::Failed
    });
}

#[test]
fn a_length_that_the_bytes_do_not_have_fails() {
    let (table, blocks) = compressed();
    let mut cases = Vec::new();
    for block in &blocks {
        let (length, stored) = (length(&table, block), lz4(block).len() as u32);
        let lengths = [0, 1, length - 1, length + 1, 255 * stored, 255 * stored + 1];
        let limits = [LONGEST, LONGEST + 1, (1 << 30) + (1 << 20), 1 << 31, u32::MAX];
        for forged in lengths.into_iter().chain(limits) {
            let forged_table = table.with(block.start, &forged.to_le_bytes());
            cases.push(case(&format!("{length} bytes are {forged}"), &forged_table, |_| {}));
        }
    }
    fail_by_block("lengths of contents forged", &cases);
}

#[test]
fn a_copy_from_before_the_beginning_fails() {
    let (table, blocks) = compressed();
    let mut cases = Vec::new();
    for block in &blocks {
        for Match { distance_at, before } in matches(&table, block) {
            for distance in [0, before + 1, before + 2, 0x8000, 0xffff] {
                let forged = table.with(distance_at, &(distance as u16).to_le_bytes());
                let what = format!("a copy at {before} from {distance} bytes before");
                cases.push(case(&what, &forged, |_| {}));
            }
        }
    }
    assert!(cases.len() > 20);
    fail_by_block("distances forged", &cases);
}

/// Copies of another place, overlapping ones too, give other contents of the right length.
#[test]
fn other_copies_fail_or_are_what_they_say() {
    let (table, blocks) = compressed();
    let mut cases = Vec::new();
    for block in &blocks {
        for Match { distance_at, before } in matches(&table, block) {
            for distance in 1..=before.min(80) {
                let forged = table.with(distance_at, &(distance as u16).to_le_bytes());
                if forged.bytes != table.bytes {
                    let what = format!("a copy at {before} from {distance} bytes before");
                    cases.push(case(&what, &forged, |_| {}));
                }
            }
        }
    }
    let tally = sweep_all("copies forged", &cases, |_, outcome| {
        matches!(outcome, Outcome::Failed | Outcome::Believed | Outcome::Right)
    });
    assert!(tally[&Outcome::Believed] > 100, "{tally:?}");
}

/// Tokens, literals, distances and lengths.
#[test]
fn forged_bytes_of_compressed_blocks_fail_or_are_what_they_say() {
    let (table, blocks) = compressed();
    let mut cases = Vec::new();
    for block in &blocks {
        for at in lz4(block) {
            let sound = table.bytes[at];
            for byte in [0, 1, 0x0f, 0x10, 0x1f, 0xf0, 0xff, sound ^ 1, sound ^ 0x10, sound ^ 0x80]
            {
                if byte != sound {
                    let forged = table.with(at, &[byte]);
                    cases.push(case(&format!("byte {at} is {byte}"), &forged, |_| {}));
                }
            }
        }
    }
    let tally = sweep_all("compressed bytes forged", &cases, |_, outcome| {
        matches!(outcome, Outcome::Failed | Outcome::Believed | Outcome::Right)
    });
    assert!(tally[&Outcome::Failed] > part(500), "{tally:?}");
}

/// As much as so many bytes can give, and a little more.
#[test]
fn a_block_that_expands_as_far_as_it_can_fails_and_costs_little() {
    let (table, blocks) = compressed();
    let mut cases = Vec::new();
    for block in &blocks {
        let lz4 = lz4(block);
        // One literal, a copy of it that is as long as it can be, and no last literals.
        let mut bomb = [&b"\x1fa\x01\0"[..], &vec![255; lz4.len() - 6], &[0, 0]].concat();
        let most = 1 + 4 + 15 + 255 * (lz4.len() as u32 - 6);
        for (what, length) in [("right", most), ("less", most - 1), ("more", most + 1)] {
            let mut forged = table.with(lz4.start, &bomb);
            forged = forged.with(block.start, &length.to_le_bytes());
            cases.push(case(&format!("a bomb with the {what} length"), &forged, |_| {}));
        }
        bomb.fill(255);
        let forged = table.with(lz4.start, &bomb).with(block.start, &LONGEST.to_le_bytes());
        cases.push(case("literals without an end", &forged, |_| {}));
    }
    fail_by_block("bombs", &cases);
}

#[test]
fn a_block_is_of_the_type_that_its_contents_have() {
    let mut cases = Vec::new();
    for table in Table::all() {
        for block in &table.data {
            for of in (0..8).chain([255]).filter(|of| *of != table.bytes[block.end - 5]) {
                let forged = table.with(block.end - 5, &[of]);
                cases.push(case(
                    &format!("a block at {} of type {of}", block.start),
                    &forged,
                    |_| {},
                ));
            }
        }
    }
    sweep_all("types of data blocks forged", &cases, |_, outcome| outcome == Outcome::Failed);
}

/// The table without its feature and its tag, on which manifest, properties and footer agree.
#[test]
fn a_table_without_the_feature_has_no_compressed_block() {
    const UNKNOWN: u8 = 77;
    let (mut table, _) = compressed();
    table.bytes[table.footer + FOOTER_FEATURES_AT] &= !COMPRESSED;
    let in_properties = table.properties.end - 5 - 10;
    assert_eq!(table.bytes[in_properties], CONTENTS_BYTES);
    table.bytes[in_properties] = UNKNOWN;
    let sealed = table.sealed();
    let manifest = table.manifest_with(&sealed, |edit, record| {
        let at = tagged_fields(edit, record).end - 10;
        assert_eq!(edit[at], CONTENTS_BYTES);
        edit[at] = UNKNOWN;
    });
    let mut disk = FIXTURE.with(&table.name, sealed);
    disk.write(path(&FIXTURE.only(Kind::Manifest)), manifest);
    let cases = [Case::new("compressed blocks without the feature", &table.name, disk).forged()];
    fail_by_block("compressed blocks without the feature", &cases);
}

/// The bytes of all contents are information, but for the number of entries that they allow.
#[test]
fn forged_bytes_of_contents_are_refused_or_found_by_verify() {
    let (sound, _) = compressed();
    let at = sound.properties.end - 5 - 8;
    let contents_bytes = u64_at(&sound.bytes, at);
    let (mut alone, mut agreed) = (Vec::new(), Vec::new());
    for value in odd(contents_bytes) {
        let table = sound.with(at, &value.to_le_bytes());
        alone.push(case(&format!("{value} bytes of contents in the properties"), &table, |_| {}));
        let sealed = table.sealed();
        let manifest = table.manifest_with(&sealed, |edit, record| {
            let end = tagged_fields(edit, record).end;
            edit[end - 8..end].copy_from_slice(&value.to_le_bytes());
        });
        let mut disk = FIXTURE.with(&table.name, sealed);
        disk.write(path(&FIXTURE.only(Kind::Manifest)), manifest);
        let what = format!("{value} bytes of contents everywhere");
        let case = Case::new(what, &table.name, disk).forged();
        agreed.push((value, case.blaming(&FIXTURE.only(Kind::Manifest))));
    }
    sweep_all("bytes of contents in properties", &alone, |_, outcome| outcome == Outcome::Refused);
    let possible = 255 * sound.bytes.len() as u64;
    for (value, case) in &agreed {
        let found = case.verify();
        assert!(found.is_none_or(|found| !found.is_sound()), "{}", case.what);
        let expected = if *value > possible { Outcome::Refused } else { Outcome::Right };
        assert_eq!(crate::case::outcome_of(case), expected, "{}", case.what);
    }
}

/// A repair takes a block for what it decompresses to, also without index and footer.
#[test]
fn a_repair_finds_compressed_blocks_by_their_checksums() {
    let (table, _) = compressed();
    let mut bytes = table.bytes.clone();
    for at in [table.index.start, table.properties.start, table.footer] {
        bytes[at] ^= 1;
    }
    let vfs: Arc<dyn criba::vfs::Vfs> = Arc::new(SimVfs::on(FIXTURE.with(&table.name, bytes)));
    let repaired = repair_with(DIR, "/new", Uncertain::SetAside, None, &vfs).unwrap();
    assert_eq!(repaired.losses, [], "every entry was found");
    let db = options().vfs(vfs).open("/new").unwrap();
    let found: crate::fixture::Map =
        db.iter().map(|pair| pair.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert_eq!(&found, FIXTURE.last());
}
